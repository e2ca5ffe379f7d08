//! Figures 7 and 8 in real time: HTTP servers with a quota each, browsers behind caching resolvers, our name server and
//! our control process, a world of them for each algorithm and seed, all side by side.
//!
//! - [`stage`]: what runs in a world, in processes of their own;
//! - [`browsers`]: the clients.

mod browsers;
mod stage;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use replay::observe;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::closed_loop::{SECONDS, SETTLED, means};
use super::outcome::{HEAD, MEANING, Outcome, drawn, required};
use super::world::{INTERVAL, Second, TTL};
use crate::options::{Run, Size};
use crate::quantiles::quantile;
use crate::quota;
use crate::report::{Limit, Report, number};
use browsers::Seen;
use stage::{Control, Sample, World};

/// The name that all browsers ask for.
const NAME: &str = "www.example.com";

/// What each site may use of one processor: with what all clients demand, those of all worlds take about nine tenths of
/// one.
const SHARE: f64 = 0.08;

/// Seeds of clients in a full run, each with a world for each algorithm: 20 clusters ask 400 times in the counted time, so
/// the shares of a single world are off by 2.6 points by chance.
const SEEDS: u64 = 4;

/// How much of the machine may be busy for its quotas to be what servers really get.
const BUSY_MAX: f64 = 0.6;

/// The algorithms, each in its world.
const ALGORITHMS: [&str; 3] = ["I", "II", "III"];

/// How long a run is, and how fast.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// By how much all is faster than in the paper: TTL, rounds, requests, and the work of each.
    faster: u32,
    /// Seconds of the paper, and when what the beginning did is over.
    seconds: usize,
    settled: usize,
}

impl Pace {
    /// How long a second of the paper takes.
    fn second(self) -> Duration {
        Duration::from_secs(1) / self.faster
    }

    fn round(self) -> Duration {
        Duration::from_secs(INTERVAL) / self.faster
    }

    /// The TTL of the rows, in seconds.
    fn ttl(self) -> u64 {
        TTL / u64::from(self.faster)
    }
}

/// What is seen from a world's outside and inside.
struct Observed {
    algorithm: &'static str,
    seed: u64,
    run: Vec<Second>,
    seen: Arc<Seen>,
}

/// Does this part; the outcomes are those of the virtual clock, where they are known.
///
/// # Errors
/// Where something does not start or ends before its time, or this program is told to end.
pub(super) fn perform(
    run: &Run,
    folder: &Path,
    modelled: Option<&[[Outcome; 3]]>,
    report: &mut Report,
) -> Result<()> {
    report.heading("The closed loop (figures 7 and 8), in real time");
    if let Err(why) = quota::are_there() {
        report.say(&format!("Left out: servers with a quota cannot be had here: {why:#}."));
        return Ok(());
    }
    let pace = run.size.of(
        Pace { faster: 1, seconds: SECONDS as usize, settled: SETTLED },
        Pace { faster: 10, seconds: 200, settled: 80 },
        Pace { faster: 10, seconds: 40, settled: 20 },
    );
    // Three worlds without optimisation are more than a small machine has.
    let algorithms = run.size.of(&ALGORITHMS[..], &ALGORITHMS[..], &ALGORITHMS[2..]);
    let seeds = run.size.of(SEEDS, 1, 1);
    let (observed, busy) = observe(run, folder, pace, algorithms, seeds)?;
    told(pace, seeds, busy, report);
    for one in observed.iter().filter(|one| one.seed == run.seed) {
        drawn(one.algorithm, " in real time", &one.run, report);
    }
    let (mut rows, mut outcomes) = (Vec::new(), Vec::new());
    for algorithm in algorithms {
        let own = observed.iter().filter(|one| one.algorithm == *algorithm);
        let each: Vec<Outcome> = own.map(|one| Outcome::of(&one.run[pace.settled..])).collect();
        let outcome = Outcome::mean(&each);
        outcomes.push(outcome);
        rows.push(outcome.row(format!("{algorithm}, in real time")));
        let at = ALGORITHMS.iter().position(|name| name == algorithm);
        if let (Some(modelled), Some(at)) = (modelled, at) {
            rows.push(means(modelled)[at].row(format!("{algorithm}, on a virtual clock")));
        }
    }
    let title = format!(
        "From {} s on, means over the seeds: {seeds} in real time, those of the virtual clock beside them. {MEANING}",
        pace.settled
    );
    report.table(&title, &HEAD, rows);
    clients(&observed, report);
    if let Ok(three) = <[Outcome; 3]>::try_from(outcomes) {
        chance(seeds, modelled, report);
        must(run, busy, &three, report);
    }
    if run.size == Size::Smoke {
        let share = observed.iter().map(answered).fold(1.0, f64::min);
        report.must("in real time: requests answered", Limit::AtLeast(0.5), share);
    }
    Ok(())
}

/// Says what was done, and how much of the machine it took.
fn told(pace: Pace, seeds: u64, busy: f64, report: &mut Report) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    report.say(&format!(
        "Processes and packets: for each algorithm and seed ({seeds}) two HTTP servers in a CPU quota of their own ({SHARE} \
         of a processor, by control groups), a `pointsman serve`, a `pointsman control` with a round each {INTERVAL} s, and \
         20 clusters of browsers, all at once and side by side. A request takes a server a fixed processor time, in floating-point \
         multiplications. A server's load is what the kernel counted of its processor time over its quota; the control \
         process reads that count itself. Each cluster has a caching resolver of its own, which keeps an answer for its TTL; \
         it is a part of the experiment, since as many resolvers of others would take more of the machine than all that is \
         measured. The clients of a seed want the same at the same time of all algorithms; drawings show the first seed. Demand, thresholds, ranks, TTL and \
         requests are those of the virtual clock. Below, seconds are the paper's; {}",
        match pace.faster {
            1 => "they are real ones.".to_owned(),
            faster => format!(
                "this run is {faster} times as fast (TTL, rounds and requests; the work of each request is as much smaller)."
            ),
        },
    ));
    let beyond = if busy > BUSY_MAX {
        ": too much for quotas to be what the servers got, so these numbers are no proof"
    } else {
        ""
    };
    report.say(&format!(
        "Of the machine's {cores} processors {:.0} % were busy meanwhile{beyond}.",
        busy * 100.0
    ));
}

/// What the clients had of it.
fn clients(observed: &[Observed], report: &mut Report) {
    let rows = observed.iter().map(|one| {
        let times = one.seen.times();
        let percentile = |share| quantile(&times, share).map_or("-".to_owned(), |time| number(time.round()));
        vec![
            one.algorithm.to_owned(),
            one.seed.to_string(),
            number(f64::from(sent(one))),
            format!("{:.2} %", answered(one) * 100.0),
            percentile(0.5),
            percentile(0.99),
            one.seen.questions.load(Ordering::Relaxed).to_string(),
            one.seen.unanswered.load(Ordering::Relaxed).to_string(),
        ]
    });
    let head = [
        "algorithm",
        "seed",
        "requests",
        "answered in time",
        "p50, ms",
        "p99, ms",
        "resolvers' questions",
        "unanswered",
    ];
    let rows = rows.collect();
    report.table("What clients saw in real time, from the beginning on", &head, rows);
}

fn sent(one: &Observed) -> u32 {
    (0..one.run.len()).flat_map(|second| one.seen.requests(second)).sum()
}

/// The share of requests that were answered in time.
fn answered(one: &Observed) -> f64 {
    one.seen.times().len() as f64 / f64::from(sent(one)).max(1.0)
}

/// How probable it is that all holds that must, for as many seeds.
fn chance(seeds: u64, modelled: Option<&[[Outcome; 3]]>, report: &mut Report) {
    let holds =
        |few: &&[[Outcome; 3]]| required(&means(few)).iter().all(|(_, limit, value)| limit.holds(*value));
    if let Some(modelled) = modelled {
        let groups = modelled.chunks_exact(seeds as usize);
        report.say(&format!(
            "Chance is in overload and shares: judged {seeds} by {seeds}, as those in real time are, {} of {} groups of the \
             virtual clock's seeds have all that must hold.",
            groups.clone().filter(holds).count(),
            groups.len()
        ));
    }
}

/// What must hold of the means, and of the machine on which they were found.
fn must(run: &Run, busy: f64, three: &[Outcome; 3], report: &mut Report) {
    report.must("in real time: share of the processors that was busy", Limit::AtMost(BUSY_MAX), busy);
    let judged = required(three);
    // A short run's overload and shares are chance above all.
    let judged = if run.size == Size::Full { &judged[..] } else { &judged[..1] };
    for (name, limit, value) in judged {
        report.must(format!("in real time: {name}"), *limit, *value);
    }
}

/// Lets the worlds run; returns what was seen of each, and how much of the machine was busy.
fn observe(
    run: &Run,
    folder: &Path,
    pace: Pace,
    algorithms: &[&'static str],
    seeds: u64,
) -> Result<(Vec<Observed>, f64)> {
    let all =
        (0..seeds).flat_map(|turn| algorithms.iter().map(move |name| (*name, run.seed.wrapping_add(turn))));
    let all: Vec<(&str, u64)> = all.collect();
    let mut worlds = Vec::new();
    for number in 0..all.len() {
        worlds.push(World::start(folder, number as u8, pace)?);
    }
    let seen: Vec<Arc<Seen>> = all.iter().map(|_| Arc::new(Seen::nothing(pace.seconds))).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().context("a runtime")?;
    let mut controls = Vec::new();
    for (world, (algorithm, _)) in worlds.iter().zip(&all) {
        controls.push(world.control(algorithm, pace)?);
    }
    let machine = || observe::spent().map(|(all, _)| all).context("/proc/stat");
    let before = machine()?;
    let runs = runtime.block_on(async {
        let begin = Instant::now();
        let mut clusters = Vec::new();
        for ((world, seen), (_, seed)) in worlds.iter().zip(&seen).zip(&all) {
            clusters.push(browsers::start(world, pace, begin, *seed, seen).await?);
        }
        let watched = async {
            let runs = watch(&mut worlds, &mut controls, pace, begin).await?;
            for one in &mut clusters {
                while let Some(ended) = one.join_next().await {
                    ended.context("a cluster")??;
                }
            }
            Ok::<_, anyhow::Error>(runs)
        };
        tokio::select! {
            runs = watched => runs,
            what = told_to_end() => Err(what?),
        }
    })?;
    let spent = machine()?.since(before);
    let mut observed = Vec::new();
    for (((algorithm, seed), samples), seen) in all.into_iter().zip(runs).zip(seen) {
        let second = |(at, (loads, shares)): (usize, ([f64; 2], [f64; 2]))| Second {
            shares,
            loads,
            requests: seen.requests(at),
        };
        let run = samples.into_iter().enumerate().map(second).collect();
        observed.push(Observed { algorithm, seed, run, seen });
    }
    Ok((observed, spent.in_use()))
}

/// Loads and shares of a second.
type Told = ([f64; 2], [f64; 2]);

/// Looks at all worlds at the end of each second of the paper.
async fn watch(
    worlds: &mut [World],
    controls: &mut [Control],
    pace: Pace,
    begin: Instant,
) -> Result<Vec<Vec<Told>>> {
    let mut look = |worlds: &mut [World]| -> Result<Vec<(Instant, Sample)>> {
        controls.iter_mut().try_for_each(Control::runs)?;
        // Short calls over loopback, on the thread that nobody else waits for.
        tokio::task::block_in_place(|| {
            worlds.iter_mut().map(|world| Ok((Instant::now(), world.sample()?))).collect()
        })
    };
    let mut last = look(worlds)?;
    let mut runs = vec![Vec::new(); worlds.len()];
    for second in 1..=pace.seconds {
        sleep_until(begin + pace.second() * second as u32).await;
        let now = look(worlds)?;
        for (run, ((then, before), (at, after))) in runs.iter_mut().zip(last.iter().zip(&now)) {
            let quota = (*at - *then).as_secs_f64() * SHARE;
            let load = |site: usize| (after.used[site] - before.used[site]) / quota;
            run.push(([load(0), load(1)], after.shares));
        }
        last = now;
    }
    Ok(runs)
}

/// Waits until this program is told to end, so that what it started ends with it.
async fn told_to_end() -> Result<anyhow::Error> {
    let signal = |kind| signal(kind).context("signals");
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(anyhow!("it was told to end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_proved_on_a_busy_machine() {
        let other = Outcome { oscillation: 1.0, ..Outcome::default() };
        for (size, busy, oscillation, closest, holds) in [
            (Size::Full, 0.6, 0.2, 0.0, true),
            (Size::Full, 0.61, 0.2, 0.0, false),
            (Size::Full, 0.6, 0.21, 0.0, false),
            (Size::Full, 0.6, 0.2, -0.1, false),
            (Size::Quick, 0.6, 0.2, -0.1, true),
            (Size::Quick, 0.61, 0.2, 0.0, false),
        ] {
            let (run, mut report) = Report::of_a_test(size);
            must(&run, busy, &[other, other, Outcome { oscillation, closest, ..other }], &mut report);
            assert_eq!(report.holds(), holds, "{}", report.told());
        }
    }
}
