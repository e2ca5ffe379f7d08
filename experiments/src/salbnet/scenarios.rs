//! What is simulated: the scenarios of the salbnet slides' successors, and the faults of feedback.

use super::simulation::{Event, Feedback, MS, SECOND, Scenario, Server, Swells, US, Work};

/// How many queries BIND takes out of its queue at once: as many as libuv asks for with one system call.
const BIND_TAKES: usize = 20;

/// What it costs BIND to be woken and to take them out. With it these servers use as much as really run ones did at loads of
/// 0.6 and 0.9 (see docs/reference/experiments.md).
const BIND_TAKE_NS: u64 = 20 * US;

/// What a query took such servers in real runs where they never rested.
const REALLY_NS: u64 = 170 * US;

/// Servers that work on one query after the other, by how many they can a second.
fn servers(capacities: [u32; 3], slots: usize) -> Vec<Server> {
    capacities.map(|capacity| one_by_one(Work::Busy(SECOND / u64::from(capacity)), slots, capacity)).to_vec()
}

/// A server that takes one query after the other.
fn one_by_one(work: Work, slots: usize, capacity: u32) -> Server {
    Server { work, slots, takes: 1, take_ns: 0, capacity }
}

/// From one refill of a quota to the next in most scenarios, and where a container runtime is told nothing of it.
const PERIOD_NS: u64 = 10 * MS;
const CONTAINER_PERIOD_NS: u64 = 100 * MS;

/// Servers such as BIND with shares of one processor, on which a query takes so long. As in real runs: shares of 20, 10 and
/// 5 % are 2 ms and 1 ms in each 10 ms, and 1 ms in each 20 ms.
fn limited(shares: [f64; 3], mean_ns: u64, period_ns: u64) -> Vec<Server> {
    shares
        .map(|share| {
            let period_ns = period_ns.max((MS as f64 / share) as u64);
            let quota_ns = (period_ns as f64 * share) as u64;
            let work = Work::Limited { mean_ns, quota_ns, period_ns };
            let capacity = (share * SECOND as f64 / mean_ns as f64) as u32;
            Server { work, slots: 256, takes: BIND_TAKES, take_ns: BIND_TAKE_NS, capacity }
        })
        .to_vec()
}

fn plain(name: &'static str, about: &'static str, servers: Vec<Server>, rate: f64) -> Scenario {
    Scenario {
        name,
        about,
        servers,
        rate,
        swells: None,
        beyond: 0.0,
        length_ns: 9 * SECOND,
        balancers: vec![1.0],
        events: Vec::new(),
        feedback: Feedback::default(),
    }
}

/// What three unequal servers can, in queries a second: as with quotas of 20, 10 and 5 % of a processor.
const CAPACITIES: [u32; 3] = [2_000, 1_000, 500];

fn unequal() -> Vec<Server> {
    servers(CAPACITIES, 256)
}

/// Three unequal servers, to which nothing happens, at a load.
fn unequal_at(name: &'static str, about: &'static str, share: f64) -> Scenario {
    plain(name, about, unequal(), f64::from(CAPACITIES.iter().sum::<u32>()) * share)
}

/// Three unequal servers at a load.
pub(crate) fn at_load(share: f64) -> Scenario {
    unequal_at("load", "three unequal servers", share)
}

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    let loads = vec![
        unequal_at("unequal, 0.7", "three unequal servers, load 0.7 of what they can", 0.7),
        unequal_at("unequal, 0.9", "three unequal servers, load 0.9", 0.9),
        unequal_at("unequal, 0.97", "three unequal servers, load 0.97", 0.97),
    ];
    let servers =
        [loads, quotas(), swells(), antagonists(), containers(), traps(), vec![sinkhole()], recursors()];
    let feedback = [reports(), vec![agent_stopped()], several_balancers(), restarts()];
    servers.into_iter().chain(feedback).flatten().collect()
}

/// Servers with quotas, up to loads that are more than they can.
fn quotas() -> Vec<Scenario> {
    let quotas: [(_, _, _, f64); 7] = [
        ("quotas, 0.7", "servers with 20, 10 and 5 % of a processor by quotas, load 0.7", MS / 10, 0.7),
        ("quotas, 0.9", "the same, load 0.9", MS / 10, 0.9),
        (
            "quotas, as really run, 0.6",
            "the same, and each query takes 0.17 ms, as in real runs; load 0.6",
            REALLY_NS,
            0.6,
        ),
        ("quotas, as really run, 0.9", "the same, load 0.9", REALLY_NS, 0.9),
        ("quotas, long work, 0.9", "the same, and each query takes 0.5 ms", MS / 2, 0.9),
        ("quotas, long work, 1.05", "the same, load 1.05", MS / 2, 1.05),
        ("quotas, long work, 1.2", "the same, load 1.2", MS / 2, 1.2),
    ];
    let scenario = |(name, about, work_ns, share)| {
        let can = 0.35 * SECOND as f64 / work_ns as f64;
        let beyond = f64::max(1.0 - 1.0 / share, 0.0);
        Scenario { beyond, ..plain(name, about, limited([0.2, 0.1, 0.05], work_ns, PERIOD_NS), can * share) }
    };
    quotas.map(scenario).into()
}

/// Servers with quotas, of which at times more is asked than they can.
fn swells() -> Vec<Scenario> {
    let swells = [
        (
            "quotas, bursts",
            "the same with 0.25 ms a query, load 0.7, and 1.4 for 0.3 s of each 1.5 s",
            0.7,
            [1_500, 300],
            2.0,
        ),
        (
            "quotas, long bursts",
            "load 0.85, and 1.3 for a second of each four",
            0.85,
            [4_000, 1_000],
            1.3 / 0.85,
        ),
        (
            "quotas, crowds, 0.7",
            "load 0.7, and twice a second what comes in 60 ms comes within 4",
            0.7,
            [500, 4],
            15.0,
        ),
        ("quotas, crowds, 0.85", "the same at 0.85", 0.85, [500, 4], 15.0),
    ];
    let scenario = |(name, about, share, [every, length], times): (_, _, _, [u64; 2], _)| {
        let swells = Swells { every_ns: every * MS, length_ns: length * MS, times };
        let servers = limited([0.2, 0.1, 0.05], MS / 4, PERIOD_NS);
        Scenario { swells: Some(swells), ..plain(name, about, servers, 1_400.0 * share) }
    };
    swells.map(scenario).into()
}

/// Equal servers, one of which another program slows, and after a while another one.
fn antagonists() -> Vec<Scenario> {
    let moves = (0..5).flat_map(|turn: u64| {
        let (at, server) = (turn * 2 * SECOND, turn as usize % 3);
        let before = (server + 2) % 3;
        [(at, before, Event::Slowed(1.0)), (at, server, Event::Slowed(2.0))]
    });
    let moves: Vec<_> = moves.collect();
    let with_quotas = |name, about, work_ns| {
        let rate = 0.9 * 2.5 * 0.12 * SECOND as f64 / work_ns as f64;
        Scenario { events: moves.clone(), ..plain(name, about, limited([0.12; 3], work_ns, PERIOD_NS), rate) }
    };
    let long = with_quotas(
        "quotas, moving antagonist",
        "every two seconds another of three with 12 % is half as fast, 0.5 ms a query; load 0.9 of what is left",
        MS / 2,
    );
    let real = with_quotas(
        "quotas, moving antagonist, as really run",
        "the same, and each query takes 0.17 ms",
        REALLY_NS,
    );
    let without = Scenario {
        events: moves,
        ..plain(
            "moving antagonist",
            "every two seconds another of three equal servers is half as fast; load 0.9 of what is left",
            servers([1_200; 3], 256),
            3_000.0 * 0.9,
        )
    };
    vec![long, real, without]
}

/// Some of these with quotas as container runtimes set them: what is used up too soon is missed for up to a tenth of a second.
fn containers() -> Vec<Scenario> {
    let ours = [
        (
            "quotas, long work, 0.9",
            "containers, 0.9",
            "20, 10 and 5 % of a processor in each 100 ms, load 0.9",
        ),
        ("quotas, bursts", "containers, bursts", "the same, load 0.7, and 1.4 for 0.3 s of each 1.5 s"),
        ("quotas, crowds, 0.7", "containers, crowds, 0.7", "the same, and twice a second a crowd, as above"),
        ("quotas, crowds, 0.85", "containers, crowds, 0.85", "the same at 0.85"),
        ("quotas, moving antagonist", "containers, moving antagonist", "three with 12 % in each 100 ms"),
    ];
    let others = [quotas(), swells(), antagonists()].concat();
    let scenario = |(other, name, about)| {
        let other = others.iter().find(|scenario| scenario.name == other).expect("it is one of the others");
        let mut scenario = Scenario { name, about, ..other.clone() };
        for server in &mut scenario.servers {
            if let Work::Limited { quota_ns, period_ns, .. } = &mut server.work {
                *quota_ns = *quota_ns * CONTAINER_PERIOD_NS / *period_ns;
                *period_ns = CONTAINER_PERIOD_NS;
            }
        }
        scenario
    };
    let stopped = |scenario: &Scenario| Scenario {
        name: "containers, agent stopped",
        about: "as the first of these; the fastest server's agent stops for three seconds",
        events: vec![(2 * SECOND, 0, Event::AgentStops(true)), (5 * SECOND, 0, Event::AgentStops(false))],
        ..scenario.clone()
    };
    let mut all: Vec<Scenario> = ours.map(scenario).into();
    all.push(stopped(&all[0]));
    all
}

/// Servers of which one lets many more wait than the others.
fn traps() -> Vec<Scenario> {
    let mut trap = servers([1_000, 1_000, 1_000], 78);
    trap[2].slots = 5_041;
    let equal = plain(
        "buffer trap",
        "equal servers, queues of 64 kB, 64 kB and 4 MB; load 0.95",
        trap.clone(),
        2_850.0,
    );
    trap[2] = one_by_one(Work::Busy(4 * MS), 5_041, 250);
    let slow = plain(
        "slow buffer trap",
        "the one with 4 MB has a quarter of the speed; load 0.9",
        trap,
        2_250.0 * 0.9,
    );
    vec![equal, slow]
}

/// A server that seems to be the fastest.
fn sinkhole() -> Scenario {
    Scenario {
        events: vec![(3 * SECOND, 1, Event::Fails(true))],
        ..plain(
            "sinkhole",
            "from 3 s on one answers with failures within 20 us; load 0.7 of the others",
            unequal(),
            2_500.0 * 0.7,
        )
    }
}

/// Servers that work on all queries at once.
fn recursors() -> Vec<Scenario> {
    let recursor = |wait: u64| one_by_one(Work::Waits(0.8, wait * MS), 256, 1_000);
    let alone = plain(
        "recursors",
        "three that read at once and wait for others for one in five, 10, 20 and 40 ms",
        vec![recursor(10), recursor(20), recursor(40)],
        2_000.0,
    );
    let mut beside = servers([1_000, 1_000, 1_000], 256);
    beside[0] = recursor(20);
    vec![alone, plain("recursor beside others", "one waits for others, two are busy", beside, 2_000.0)]
}

/// What may become of reports.
fn reports() -> Vec<Scenario> {
    let faults = [
        ("reports: none", "no agent at all", Feedback { none: true, ..Feedback::default() }),
        ("reports: half lost", "half of all reports lost", Feedback { lost: 0.5, ..Feedback::default() }),
        ("reports: 90 % lost", "nine of ten reports lost", Feedback { lost: 0.9, ..Feedback::default() }),
        (
            "reports: 10-50 ms late",
            "reports 10 to 50 ms late, overtaking each other",
            Feedback { late_ns: (10 * MS, 50 * MS), ..Feedback::default() },
        ),
        (
            "reports: up to 2 s late",
            "reports 10 ms to 2 s late",
            Feedback { late_ns: (10 * MS, 2 * SECOND), ..Feedback::default() },
        ),
        (
            "reports: repeated",
            "each report comes again within a second",
            Feedback { again: 1.0, ..Feedback::default() },
        ),
    ];
    faults.map(|(name, about, feedback)| Scenario { feedback, ..unequal_at(name, about, 0.9) }).into()
}

/// A server of which nothing is told for a while.
fn agent_stopped() -> Scenario {
    Scenario {
        events: vec![(2 * SECOND, 0, Event::AgentStops(true)), (5 * SECOND, 0, Event::AgentStops(false))],
        ..unequal_at("agent stopped", "the fastest server's agent stops for three seconds; load 0.9", 0.9)
    }
}

/// Balancers that know nothing of each other.
fn several_balancers() -> Vec<Scenario> {
    let two = Scenario {
        balancers: vec![0.7, 0.3],
        ..unequal_at("two balancers", "two balancers with 70 and 30 % of the demand; load 0.9", 0.9)
    };
    let four = Scenario {
        balancers: vec![0.55, 0.25, 0.15, 0.05],
        ..unequal_at("four balancers", "four balancers with 55, 25, 15 and 5 %; load 0.9", 0.9)
    };
    vec![two, four]
}

/// Servers that are ended, started again, and slow until they are warm.
fn restarts() -> Vec<Scenario> {
    let warms = |from: u64, is_whole: bool| {
        let at = move |step: u64| from + SECOND + step * SECOND / 2;
        let slow = [8.0, 4.0, 2.0, 1.0];
        let steps = slow
            .into_iter()
            .enumerate()
            .map(move |(step, slowed)| (at(step as u64), 0, Event::Slowed(slowed)));
        let agent = [(from, 0, Event::AgentStops(true)), (from + SECOND, 0, Event::AgentStops(false))];
        let away = [(from, 0, Event::Gone(true)), (from + SECOND, 0, Event::Gone(false))];
        away.into_iter().chain(agent.into_iter().filter(move |_| is_whole)).chain(steps)
    };
    let restarts = [
        (
            "cold restart",
            "one of three is ended for a second and then slow, twice as fast every half second; load 0.6",
            false,
        ),
        ("cold machine", "the same, with its agent", true),
    ];
    let scenario = |(name, about, is_whole)| Scenario {
        events: warms(3 * SECOND, is_whole).collect(),
        ..plain(name, about, servers([1_000; 3], 256), 1_800.0)
    };
    restarts.map(scenario).into()
}
