//! Really run: three BINDs with small shares of one processor behind our balancer, with each policy, and behind Debian's
//! dnsdist, and load from a trace in sessions at rising factors.
//!
//! - [`cases`]: what happens to servers; [`field`]: the servers, their agents, and who balances.
//! - [`turns`]: in which order arms have their turns, and which have another.
//! - [`outcome`]: what came of a replay, from its log, and whether it counts; [`waits`]: how long threads waited for a
//!   core; [`told`]: what is told of all.

mod cases;
mod field;
mod outcome;
mod told;
mod turns;
mod waits;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use net::awake::Awake;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use replay::observe::Observer;

use crate::options::Run;
use crate::process::Pointsman;
use crate::quota;
use crate::report::{Report, number};
use crate::servload;
use cases::{CASES, Case};
use field::{ARMS, Arm, Field, NEUTRAL};
use outcome::{Conditions, LOAD_OFF_MAX, Outcome, Window, Work};
use turns::{Sample, TRIES_MAX};
use waits::Waits;

/// What is not looked at in the beginning, in seconds: copies of sessions begin within the first.
const BEGIN: u64 = 1;

/// How long a client waits, in seconds: longer than a balancer waits for one server, shorter than stub resolvers do.
const PATIENCE: f64 = 2.0;

/// For how long servers are asked to find out what a query costs them, in seconds, and how long clients wait then.
const REFERENCE: u64 = 2;
const REFERENCE_PATIENCE: f64 = 0.5;

/// The load at which they are asked then: one at which they never rest. A query costs less there, by a quarter, and a load
/// at which servers rest or do not, as it happens, is two loads.
const SATURATING: f64 = 1.2;

/// The load that one turn sends.
struct Load {
    trace: PathBuf,
    window: Window,
    /// How long clients wait, in seconds.
    patience: f64,
}

/// What is sent in an arm's turn, and in the ones before and after it.
struct Loads {
    turn: Load,
    reference: Load,
}

impl Load {
    /// Sessions for so many seconds.
    fn new(folder: &Path, seconds: u64, patience: f64, seed: u64) -> Result<Load> {
        let trace = folder.join(format!("sessions-{seconds}.txt"));
        let flat = vec![u64::from(servload::MEAN); seconds as usize];
        fs::write(&trace, servload::text(&mut Rng::with_seed(seed), &flat)).context("the trace")?;
        // At the end copies of sessions end one after the other, as they have begun.
        let window = Window { from_us: BEGIN as f64 * 1e6, until_us: seconds as f64 * 1e6 };
        Ok(Load { trace, window, patience })
    }
}

/// Does this part, or says why not.
pub(super) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    if !CASES.iter().any(|case| run.wants(case.part)) {
        return Ok(());
    }
    report.heading("Really run");
    if let Some(why) = missing() {
        report.say(&format!("Left out: {why}."));
        return Ok(());
    }
    run.within(|folder| play(run, folder, report))
}

/// What this part needs and does not find here, in words.
fn missing() -> Option<String> {
    let starts = |program: &str, word: &str| Command::new(program).arg(word).output().is_ok();
    if let Err(why) = quota::are_there() {
        return Some(format!("{why:#}"));
    }
    if let Err(why) = Pointsman::find() {
        return Some(format!("{why:#}"));
    }
    let needed = [("named", "-v"), ("dnsdist", "--version"), ("taskset", "--version")];
    let absent = needed.into_iter().find(|(program, word)| !starts(program, word));
    absent.map(|(program, _)| format!("{program} is not installed"))
}

fn play(run: &Run, folder: &Path, report: &mut Report) -> Result<()> {
    let seconds = BEGIN + run.size.of(5, 4, 1);
    let shorter = BEGIN + run.size.of(REFERENCE, REFERENCE, 1);
    let asked = Loads {
        turn: Load::new(folder, seconds, PATIENCE, run.seed)?,
        reference: Load::new(folder, shorter, REFERENCE_PATIENCE, run.seed)?,
    };
    let awake = Awake::begin();
    let rest = match &awake {
        Ok(_) => {
            "Cores are kept from resting: a virtual machine's core that rests goes back to the host, and wakes late."
                .into()
        }
        Err(why) => format!("Cores may rest, and wake late on a virtual machine: {why}."),
    };
    report.say(&format!(
        "Debian's BIND three times, each with a share of one processor by a control group: 10 ms from one refill to the \
         next where nothing else is said, for shares below 10 % longer, as the kernel takes no quota below 1 ms. Each name is the end of a chain of \
         aliases, and held against a list of keys many times, so that a query is some work. Load comes from 33 sessions with \
         the slides' mean of 75 queries/s, multiplied; each turn lasts {seconds} s, of which the first {BEGIN} is left out. \
         What a query costs the servers changes within minutes with the machine's host, so all arms take turns, in another \
         order each time. Before and after each the servers are asked for {SATURATING} times what they can by \
         `least-outstanding`, for {REFERENCE} s: what a query costs where they never rest says what they can. By the one before, \
         an arm is asked; the mean of both says which load that was. \
         An error is a query that is not answered within {PATIENCE} s, or with a failure; latencies are of the others, \
         from when they were due. After each value half the width of its 95 % confidence interval over runs; plots draw \
         medians. What must hold is held against the median, over rounds, of what ours came to beside a rival in the same \
         round: one slow moment of the machine makes the p99 of a run many times as high, and a mean is little but the \
         worst of its runs. Beside it stands between which of these pairs the median of all that could be lies, and how sure \
         that is; of fewer than {} nothing is said, and what must hold does not. \
         A turn is void where balancer, agents, replayer and servers (these as if they used all they may) use more than \
         70 % of the machine, or others more than 10 %; where a thread of the balancer waits for its core for more than 10 % of \
         the time; where 1 % of all queries are sent more than 1 ms late; and where the load is off by more than {:.0} % of \
         what it was to be. A full run tries it again at the end of the round, {TRIES_MAX} times in all; the last one stands. \
         Balancer, agents and dnsdist go before all else on their core (SCHED_FIFO), the replayer on its own, as if they \
         had machines of their own. {rest}",
        outcome::VALUES_LEAST,
        100.0 * LOAD_OFF_MAX
    ));
    for case in CASES.iter().filter(|case| run.wants(case.part)) {
        let loads = case.wanted(run.size);
        if loads.is_empty() {
            continue;
        }
        let mut field = Field::start(folder, case.shares, case.period, case.buffers)?;
        let capacities = measure(&mut field, case, &asked.turn, run.seed, report)?;
        field.capacities = capacities;
        let samples = rounds(run, &mut field, case, &asked, loads)?;
        told::all(run, case, &samples, loads, &capacities, report);
        if turns::is_vain(run.size, case, &samples) {
            report.say(
                "Broken off, as too many turns were void. Try again when nothing else runs on this machine.",
            );
            return Ok(());
        }
    }
    Ok(())
}

/// All rounds of a case; in each, arms have their turns at one load after the other.
fn rounds(run: &Run, field: &mut Field, case: &Case, asked: &Loads, loads: &[f64]) -> Result<Vec<Sample>> {
    let (mut capacities, tries) = (field.capacities, run.size.of(TRIES_MAX, 1, 1));
    let mut samples = Vec::new();
    let rounds = |load: f64| turns::rounds(run.size, case, load);
    let most = loads.iter().map(|load| rounds(*load)).max().unwrap_or(0);
    for round in 0..most {
        let seed = run.seed.wrapping_add(round);
        let mut draws = Rng::with_seed(seed);
        for wanted in loads.iter().filter(|load| round < rounds(**load)) {
            let refer = |field: &mut Field, could: [f64; 3]| {
                let rate = SATURATING * case.at_rest().can(&could);
                Ok::<_, anyhow::Error>(neutral(field, case, &asked.reference, rate, seed)?.1)
            };
            capacities = refer(field, capacities)?;
            let turn = |arm: usize| {
                let before = case.can(&capacities);
                let mut outcome = once(field, case, &ARMS[arm], &asked.turn, wanted * before, seed)?;
                capacities = refer(field, capacities)?;
                outcome.conditions.load_wanted = *wanted;
                outcome.conditions.load_had = wanted * before / before.midpoint(case.can(&capacities));
                Ok(outcome)
            };
            let order = turns::order(run.size, round, &mut draws);
            samples.extend(turns::round(round, &order, *wanted, tries, turn)?);
            if turns::is_vain(run.size, case, &samples) {
                return Ok(samples);
            }
        }
    }
    Ok(samples)
}

/// Measures how many queries a second each server can answer, as it is asked in the runs: all of them at once, and for
/// more than they can.
fn measure(field: &mut Field, case: &Case, load: &Load, seed: u64, report: &mut Report) -> Result<[f64; 3]> {
    let alone = field.alone()?;
    let (measured, capacities) = neutral(field, case, load, alone.iter().sum(), seed)?;
    let told = |rates: [f64; 3]| rates.map(|one| number(one.round())).join(", ");
    report.say(&format!(
        "{}: {} Asked alone and without a balancer, one after the other, the servers answer {} queries/s. In the runs they \
         share their core with each other and with the balancer. Asked for as many there, \
         balanced by `least-outstanding`, they answered {} queries/s well; by the processor time that a query took, what \
         they may use is enough for {} queries/s. Load 1 was {} queries/s then.",
        case.name,
        case.about,
        told(alone),
        number(measured.goodput().round()),
        told(capacities),
        number(case.can(&capacities).round()),
    ));
    if let Some(why) = measured.conditions.void() {
        report.say(&format!("That was measured while {why}."));
    }
    Ok(capacities)
}

/// One run behind a balancer that goes before the servers on their core and spreads by nothing that it knows of them, and how
/// many queries a second each can answer: what a query costs there, and what they may use, says how many it can be.
fn neutral(field: &mut Field, case: &Case, load: &Load, rate: f64, seed: u64) -> Result<(Outcome, [f64; 3])> {
    let outcome = once(field, &case.at_rest(), &NEUTRAL, load, rate, seed)?;
    let capacities = outcome.work.capacities(&case.shares);
    ensure!(capacities.iter().all(|one| one.is_normal()), "a server was not asked: {:?}", outcome.work);
    Ok((outcome, capacities))
}

/// One run: a balancer that knows nothing yet, `rate` queries a second, and what came of them.
fn once(field: &mut Field, case: &Case, arm: &Arm, load: &Load, rate: f64, seed: u64) -> Result<Outcome> {
    let balancer = field.balancer(arm)?;
    let log = load.trace.with_extension("log");
    let _ = fs::remove_file(&log);
    let (factor, seed) = (format!("{:.3}", rate / f64::from(servload::MEAN)), seed.to_string());
    let (log_name, timeout) = (log.display().to_string(), format!("{:.0}ms", load.patience * 1e3));
    let options =
        ["--factor", &factor, "--spread", "1s", "--source-prefix", "127.64.0.0/10", "--timeout", &timeout];
    let options = [&options[..], &["--seed", &seed, "--log", &log_name]].concat();
    let before = field.received()?;
    let mut observers = Vec::new();
    for process in field.agents().chain([balancer.id()]) {
        observers.push(Observer::new(process).context("a process of ours")?);
    }
    let began = Instant::now();
    let (served_before, waits) = (field.used()?, Waits::of(balancer.id())?);
    let used = children() - field.ended;
    let (pointsman, address) = (field.pointsman.clone(), balancer.address);
    let replayed = thread::scope(|scope| {
        let replay = scope.spawn(|| pointsman.replay(&load.trace, address, &options));
        let happened = case.happens(field, &|| replay.is_finished());
        let replayed = replay.join().expect("a replay panics");
        happened.and(replayed)
    })?;
    // It is all spent while queries are sent, which takes a little longer.
    let seconds = load.window.until_us / 1e6;
    let (waited, served_after) = (waits.since(balancer.id())? / seconds, field.used()?);
    let served_for: [f64; 3] = std::array::from_fn(|server| served_after[server] - served_before[server]);
    let served = served_for.iter().sum::<f64>() / seconds;
    let mut ours = (children() - field.ended - used) / seconds;
    let mut busy: f64 = 0.0;
    for observer in &mut observers {
        let of_it = observer.second(seconds).context("a process of ours")?;
        ours += of_it.user + of_it.system;
        // All see the same machine, the last for the longest.
        busy = of_it.host_cores.iter().sum();
    }
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let conditions = Conditions {
        machine: (ours + case.shares.iter().sum::<f64>()) / cores,
        others: (busy * began.elapsed().as_secs_f64() / seconds - ours - served).max(0.0) / cores,
        waited,
        late: replayed.lateness_us.context("nothing was sent")?.p99 / 1e3,
        servers: served / case.can(&case.shares),
        ..Conditions::default()
    };
    let after = field.received()?;
    let received = std::array::from_fn(|server| after[server].saturating_sub(before[server]));
    let mut work = Work { received, used: served_for };
    if let Some(server) = case.restarted() {
        work.forget(server);
    }
    let rows = fs::read_to_string(&log).context("the replay's log")?;
    Outcome::of(&rows, load.window, conditions, work)
}

/// Processor time of children that have ended, in seconds.
fn children() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
    usage.map_or(0.0, |usage| {
        (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
    })
}
