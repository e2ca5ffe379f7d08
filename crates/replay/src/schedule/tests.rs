use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::trace::{PORT, Skip, Trace, Transport};

const MS: u64 = 1_000_000;

/// A query of client 192.0.2.`client` at so many milliseconds.
fn query(at_ms: u64, client: u8) -> Message {
    let time = Duration::from_millis(1_475_745_600_000 + at_ms);
    let octets = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01".to_vec();
    Message {
        time,
        client: ([192, 0, 2, client], 5353).into(),
        server: ([192, 0, 2, 53], 53).into(),
        transport: Transport::Udp,
        octets,
    }
}

fn plan(pacing: Pacing, factor: f64, spread_ms: u64) -> Plan {
    let clients = Clients::Factor { factor, spread: Some(Duration::from_millis(spread_ms)) };
    Plan { pacing, clients, limit: None, loops: 1, seed: 1 }
}

const RECORDED: Pacing = Pacing::Recorded { speed: 1.0 };

/// The whole schedule of a trace.
fn schedule(queries: &[Message], plan: &Plan) -> Vec<Planned> {
    let read = || queries.iter().cloned().map(Ok).collect::<Vec<_>>().into_iter();
    let census = plan
        .wanted()
        .map_or_else(Default::default, |wanted| Census::of(read(), wanted).expect("the trace is small"));
    let mut schedule = Schedule::new(plan.clone(), Arc::new(census), || Ok::<_, Infallible>(read()));
    let mut planned = Vec::new();
    while let Ok(Some(query)) = schedule.next_query() {
        planned.push(query);
    }
    planned
}

fn dues(planned: &[Planned]) -> Vec<u64> {
    planned.iter().map(|query| query.due).collect()
}

#[test]
fn times_are_those_recorded_scaled_or_made() {
    let trace = [query(0, 1), query(10, 2), query(30, 1)];
    for (pacing, expected) in [
        (RECORDED, [0, 10 * MS, 30 * MS]),
        (Pacing::Recorded { speed: 2.0 }, [0, 5 * MS, 15 * MS]),
        (Pacing::Recorded { speed: 0.5 }, [0, 20 * MS, 60 * MS]),
        (Pacing::Rate { per_second: 1_000.0, poisson: false }, [0, MS, 2 * MS]),
        (Pacing::Fast, [0, 0, 0]),
    ] {
        assert_eq!(dues(&schedule(&trace, &plan(pacing, 1.0, 0))), expected, "{pacing:?}");
    }
}

#[test]
fn drawn_gaps_have_their_rate() {
    let trace: Vec<Message> = (0..5_000).map(|at| query(at, 1)).collect();
    let planned = schedule(&trace, &plan(Pacing::Rate { per_second: 1_000.0, poisson: true }, 1.0, 0));
    let last = planned.last().expect("queries").due as f64 / 1e9;
    assert!((4.8..5.2).contains(&last), "{last}");
    let even = dues(&planned).windows(2).filter(|pair| pair[1] - pair[0] == MS).count();
    assert!(even < 10, "{even} gaps are even");
}

#[test]
fn loops_follow_one_another_and_the_limit_ends_them() {
    let trace = [query(0, 1), query(10, 2), query(30, 1)];
    let mut plan = plan(RECORDED, 1.0, 0);
    (plan.loops, plan.limit) = (100, Some(7));
    let expected: Vec<u64> = [0, 10, 30, 45, 55, 75, 90].iter().map(|at| at * MS).collect();
    assert_eq!(dues(&schedule(&trace, &plan)), expected);
    assert!(schedule(&[], &plan).is_empty());
}

#[test]
fn servloads_modes_clone_at_the_same_instants() {
    // Rounded seconds 0, 1, 2 with 1, 2, 0, 1 queries: the median is 1.
    let trace = [query(0, 1), query(1_000, 2), query(1_100, 1), query(3_000, 3)];
    let count = |clients| {
        let planned = schedule(&trace, &Plan { clients, ..plan(RECORDED, 1.0, 0) });
        let mut times: BTreeMap<u64, usize> = BTreeMap::new();
        planned.iter().for_each(|query| *times.entry(query.due / MS).or_default() += 1);
        times.into_values().collect::<Vec<_>>()
    };
    assert_eq!(count(Clients::Multiply(3)), [3, 3, 3, 3]);
    assert_eq!(count(Clients::Peak(4)), [4, 4, 4, 4]);
    assert_eq!(count(Clients::Factor { factor: 3.0, spread: Some(Duration::ZERO) }), [3, 3, 3, 3]);
    // Client 1 has two queries over 1.1 s, 2 and 3 have one: they are the median.
    assert_eq!(count(Clients::Score(2)), [1, 2, 1, 2]);
    // With three more in second 3 and two in second 1, the median of 1, 4, 0, 4 is 2.5: the first query is not cloned.
    let more = [query(1_200, 4), query(1_300, 4), query(3_100, 3), query(3_200, 3), query(3_300, 3)];
    let mut trace = [&trace[..], &more].concat();
    trace.sort_by_key(|query| query.time);
    let clients = Clients::Peak(4);
    let copies = schedule(&trace, &Plan { clients, ..plan(RECORDED, 1.0, 0) });
    let of_the_first = copies.iter().filter(|copy| copy.due == 0).count();
    assert_eq!((copies.len(), of_the_first), (1 + 4 * 8, 1));
}

#[test]
fn servloads_table_has_its_counts() {
    // The slides' trace in small: 33 sessions.
    let trace: Vec<Message> = (0..660).map(|at| query(at * 13, (at % 33) as u8)).collect();
    for factor in [1, 4, 8, 16] {
        let planned =
            schedule(&trace, &Plan { clients: Clients::Multiply(factor), ..plan(RECORDED, 1.0, 0) });
        let sessions: HashSet<u64> = planned.iter().map(|query| query.client).collect();
        assert_eq!((planned.len(), sessions.len()), (660 * factor as usize, 33 * factor as usize));
    }
}

#[test]
fn a_fraction_takes_its_share_of_clients() {
    let trace: Vec<Message> = (0..250_u8).map(|client| query(u64::from(client), client)).collect();
    for factor in [0.1_f64, 0.5, 1.5, 2.25] {
        let count = schedule(&trace, &plan(RECORDED, factor, 0)).len() as f64;
        let expected = 250.0 * factor;
        // Four standard deviations of the clients that are drawn.
        let off = 4.0 * (250.0 * factor.fract() * (1.0 - factor.fract())).sqrt();
        assert!((count - expected).abs() <= off, "{count} for {expected}");
    }
}

#[test]
fn the_spread_is_the_mean_gap_unless_told() {
    let trace: Vec<Message> = (0..100).map(|at| query(at * 20, at as u8)).collect();
    let plan = Plan { clients: Clients::Factor { factor: 3.0, spread: None }, ..plan(RECORDED, 1.0, 0) };
    let shifts: Vec<u64> = schedule(&trace, &plan)
        .iter()
        .map(|query| {
            query.due
                - u64::from(match query.message.client.ip() {
                    std::net::IpAddr::V4(address) => address.octets()[3],
                    std::net::IpAddr::V6(_) => unreachable!("clients are IPv4"),
                }) * 20
                    * MS
        })
        .collect();
    assert!(shifts.iter().all(|shift| *shift < 20 * MS));
    assert!(shifts.iter().any(|shift| *shift > 15 * MS), "they fill the span");
    // Where queries are rare, it is a second.
    let rare: Vec<Message> = (0..100).map(|at| query(at * 10_000, at as u8)).collect();
    let shifts: Vec<u64> = schedule(&rare, &plan).iter().map(|query| query.due % (10_000 * MS)).collect();
    assert!(shifts.iter().all(|shift| *shift < 1_000 * MS), "{shifts:?}");
    assert!(shifts.iter().any(|shift| *shift > 900 * MS), "they fill the span");
}

#[test]
fn each_client_and_copy_has_one_source_address_of_its_own() {
    let trace: Vec<Message> = (0..300_u64).map(|at| query(at * 17, (at % 100) as u8)).collect();
    let sources = |clients, prefix: &str, loops| {
        let plan = Plan { loops, clients, ..plan(RECORDED, 1.0, 0) };
        let read = || trace.iter().cloned().map(Ok).collect::<Vec<_>>().into_iter();
        let census =
            Arc::new(plan.wanted().map_or_else(Default::default, |wanted| {
                Census::of(read(), wanted).expect("the trace is small")
            }));
        let prefix: Prefix = prefix.parse().expect("a prefix");
        let mut schedule = Schedule::new(plan, census, || Ok::<_, Infallible>(read())).with_sources(prefix);
        let mut seen: HashMap<u64, HashSet<IpAddr>> = HashMap::new();
        while let Ok(Some(query)) = schedule.next_query() {
            seen.entry(query.client).or_default().insert(query.source.expect("one of the prefix"));
        }
        assert!(seen.values().all(|sources| sources.len() == 1), "a client keeps its own");
        let mut clients: BTreeMap<IpAddr, usize> = BTreeMap::new();
        seen.values().flatten().for_each(|source| *clients.entry(*source).or_default() += 1);
        let most = clients.values().copied().max().unwrap_or(0);
        (seen.len(), clients.len(), most, schedule.met().sharing)
    };
    let factor = |factor| Clients::Factor { factor, spread: Some(Duration::from_millis(9)) };
    for (clients, prefix, loops, expected) in [
        (factor(1.0), "127.1.0.0/24", 1, (100, 100, 1, 0)),
        (factor(1.0), "127.1.0.0/24", 3, (100, 100, 1, 0)),
        (factor(2.5), "127.1.0.0/23", 1, (248, 248, 1, 0)),
        (factor(0.5), "127.1.0.0/26", 1, (48, 48, 1, 0)),
        (factor(5.0), "127.1.0.0/24", 2, (500, 254, 2, 246)),
        (Clients::Multiply(3), "fd00::/64", 1, (300, 300, 1, 0)),
        (Clients::Peak(2), "127.1.0.0/24", 1, (200, 200, 1, 0)),
        (Clients::Score(2), "127.1.0.0/24", 1, (200, 200, 1, 0)),
    ] {
        assert_eq!(sources(clients, prefix, loops), expected, "{clients:?} in {prefix}");
    }
}

#[test]
fn what_the_trace_held_is_told() {
    let lines = "# a comment\n1.0 192.0.2.1:1 udp a. A -\n2.0 192.0.2.1:1 udp a. A -\n";
    // Each time through, one more packet than before gave nothing.
    let mut opened = 0;
    let open = || {
        opened += 1;
        let trace = Trace::read(std::io::Cursor::new(lines), PORT).expect("lines");
        Ok::<_, Infallible>(Counted { trace, skipped: Skipped::default(), count: opened })
    };
    let plan = Plan { loops: 2, ..plan(RECORDED, 1.0, 0) };
    let mut schedule = Schedule::new(plan, Arc::default(), open).with_skipped(|counted| &counted.skipped);
    let mut told = Vec::new();
    while let Ok(Some(_)) = schedule.next_query() {
        let met = schedule.met();
        told.push((met.queries, met.skipped.of(Skip::Cut)));
    }
    let met = schedule.met();
    told.push((met.queries, met.skipped.of(Skip::Cut)));
    assert_eq!(told.last(), Some(&(4, 2 + 4)), "{told:?}");
    assert_eq!(told[0], (1, 1), "what is read now counts too: {told:?}");
}

/// A trace of which so many packets beside each query give no message.
struct Counted {
    trace: Trace,
    skipped: Skipped,
    count: u64,
}

impl Iterator for Counted {
    type Item = Result<Message, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.trace.next()?;
        self.skipped.counts[Skip::Cut as usize] += self.count;
        Some(next)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_number_of_threads_shares_one_schedule(
        times in prop::collection::vec((0..5_000_u64, 0..40_u8), 1..200),
        factor in 0.1..6.0_f64, spread in 0..300_u64, poisson in any::<bool>(), threads in 1..=8_u64,
    ) {
        let mut times = times;
        times.sort_unstable();
        let trace: Vec<Message> = times.iter().map(|(at, client)| query(*at, *client)).collect();
        let pacing = if poisson { Pacing::Rate { per_second: 999.0, poisson } } else { RECORDED };
        let whole = schedule(&trace, &plan(pacing, factor, spread));
        prop_assert!(dues(&whole).is_sorted());
        // Each thread makes the schedule for itself and keeps its share.
        let mut merged: Vec<Planned> = (0..threads)
            .flat_map(|thread| {
                let mut own = schedule(&trace, &plan(pacing, factor, spread));
                own.retain(|query| query.client % threads == thread);
                own
            })
            .collect();
        merged.sort_by_key(|query| query.index);
        let seen = |planned: &[Planned]| -> Vec<(u64, u64, u64, u32)> {
            planned.iter().map(|query| (query.index, query.due, query.client, query.copy)).collect()
        };
        prop_assert_eq!(seen(&merged), seen(&whole));
    }

    #[test]
    fn every_copy_keeps_the_think_times(
        times in prop::collection::vec((0..5_000_u64, 0..10_u8), 1..100),
        factor in 1..5_u32, spread in 0..3_000_u64,
    ) {
        let mut times = times;
        times.sort_unstable();
        let trace: Vec<Message> = times.iter().map(|(at, client)| query(*at, *client)).collect();
        let planned = schedule(&trace, &plan(RECORDED, f64::from(factor), spread));
        prop_assert_eq!(planned.len(), trace.len() * factor as usize);
        let mut sessions: HashMap<u64, Vec<&Planned>> = HashMap::new();
        for query in &planned {
            sessions.entry(query.client).or_default().push(query);
        }
        for session in sessions.values() {
            let recorded = |query: &Planned| query.message.time.as_nanos() as u64;
            let shift = session[0].due as i128 - recorded(session[0]) as i128;
            for query in session {
                prop_assert_eq!(query.due as i128 - recorded(query) as i128, shift);
            }
        }
    }
}

#[test]
fn a_step_reads_so_far_and_no_further() {
    let mut responses = vec![query(0, 1); READ_MAX + 1];
    responses.iter_mut().for_each(|message| message.octets[2] |= 0x80);
    let steps = |messages: Vec<Option<Arc<Message>>>| {
        let open = || Ok::<_, Infallible>(messages.iter().cloned().map(Ok).collect::<Vec<_>>().into_iter());
        let mut schedule = Schedule::new(plan(RECORDED, 1.0, 0), Arc::default(), open);
        std::iter::from_fn(|| match schedule.step() {
            Ok(Next::Query(_)) => Some("query"),
            Ok(Next::NotYet) => Some("not yet"),
            Ok(Next::End) => None,
        })
        .collect::<Vec<_>>()
    };
    let one = Some(Arc::new(query(1, 1)));
    let all: Vec<_> = responses.into_iter().map(Into::into).chain([one.clone()]).collect();
    assert_eq!(steps(all), ["not yet", "query"]);
    assert_eq!(
        steps(vec![None, one.clone(), None, None, one]),
        ["not yet", "query", "not yet", "not yet", "query"]
    );
}
