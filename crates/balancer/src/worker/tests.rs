//! What a worker does with queries, replies and its sockets, step by step.

use std::net::SocketAddr;

use super::*;
use crate::cache::Caching;
use crate::doubts::DOUBT_NS;
use crate::field::{BackEnd, Drained, Standing};
use crate::lines::MEND_NS;
use crate::pending::Index;
use crate::picker::For;
use fastrand::Rng;
use net::count::Count;
use routing::balance::{Lease, Policy};

fn picker(policy: &str) -> Picker {
    let policy = Policy::from_name(policy).expect("one of the names");
    Picker::new(policy, For::Datagrams, 0, 1_000, 7, Rng::with_seed(1))
}

/// A worker that has looked at these back ends once.
fn bench(back_ends: &[SocketAddr]) -> Bench {
    let field = back_ends.iter().fold(Field::default(), |field, address| {
        field.with(|place| BackEnd::new(place, *address, 1, 1)).expect("there is a place")
    });
    let listener = net::udp::bind(([127, 0, 0, 1], 0).into(), None).expect("loopback binds");
    let worker = Worker {
        index: 0,
        core: None,
        listener: Arc::new(listener),
        field: Arc::new(ArcSwap::from_pointee(field)),
        picker: picker("wrr"),
        counters: Arc::default(),
        stops: Arc::default(),
        clock: Clock::new(),
        allow: None,
        cache: None,
        doubted: Arc::default(),
        runtime: crate::relay::tests::nowhere(),
        tap: None,
        limits: Limits {
            timeout_ns: 1_000,
            tries: 2,
            sockets: 2,
            outstanding_max: 16,
            per_client_max: 16,
            client_address: ClientAddress::Hidden,
            steers: true,
        },
    };
    let mut bench = worker.bench().expect("there are descriptors");
    bench.look(1);
    bench
}

/// A query of a client comes.
fn ask(bench: &mut Bench) {
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    bench.take_query(query, ([127, 0, 0, 1], 9).into(), None, 1);
}

fn ports(bench: &Bench, place: usize) -> Vec<u16> {
    let sockets = bench.lines.of(place).filter_map(|line| bench.lines.socket(line));
    sockets.map(|socket| socket.local_addr().expect("it is bound").port()).collect()
}

#[test]
fn a_line_that_will_not_do_is_opened_anew_and_what_waits_goes_on() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
    (0..4).for_each(|_| ask(&mut bench));
    let waiting = |bench: &Bench| [0, 1].map(|place| bench.pending.waiting_for(place).len());
    assert_eq!(waiting(&bench), [2, 2]);
    let before = [0, 1].map(|place| ports(&bench, place));
    for trouble in [Trouble::Datagram, Trouble::NobodyListens] {
        bench.lines.hear(0, trouble);
        bench.mend(MEND_NS);
        assert_eq!(ports(&bench, 0), before[0], "{trouble:?} is not the line's");
    }
    bench.lines.hear(0, Trouble::Socket);
    bench.mend(MEND_NS);
    let after = [0, 1].map(|place| ports(&bench, place));
    assert!(before[0].iter().all(|port| !after[0].contains(port)), "{before:?} {after:?}");
    assert_eq!((&before[1], after[0].len()), (&after[1], 2));
    assert_eq!(waiting(&bench), [0, 4]);
    let cells = bench.worker.picker.cells(0).expect("it is there");
    assert_eq!([cells.refused.get(), cells.in_flight()], [0, 0], "its socket is ours");
    bench.lines.hear(0, Trouble::Socket);
    bench.mend(MEND_NS + 1);
    assert_eq!(ports(&bench, 0), after[0], "it is not time yet");
}

#[test]
fn strangers_get_nothing() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
    bench.worker.allow = Some(Acl::new(vec!["192.0.2.0/24".parse().expect("a prefix")]));
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    for (client, octets) in [
        ([192, 0, 2, 7], &query[..]),
        ([198, 51, 100, 7], query),
        ([198, 51, 100, 7], &query[..13]),
        ([127, 0, 0, 1], query),
    ] {
        bench.take_query(octets, (client, 9).into(), None, 1);
    }
    let counts = &bench.worker.counters;
    assert_eq!([&counts.strangers, &counts.malformed].map(|count| count.get()), [2, 0]);
    assert_eq!((bench.pending.waiting_for(0).len(), bench.answers.len()), (2, 0));
}

#[test]
fn so_many_queries_are_outstanding_and_no_more() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    for client in 1..=20 {
        bench.take_query(query, ([127, 0, client, 1], 9).into(), None, 1);
    }
    let counts = &bench.worker.counters;
    assert_eq!([&counts.full, &counts.full_client].map(|count| count.get()), [4, 0]);
    assert_eq!(bench.pending.waiting_for(0).len(), 16);
}

#[test]
fn who_has_no_line_is_passed_over() {
    // Nobody may send there without having asked for it.
    let unreachable = ([255, 255, 255, 255], 9).into();
    let mut bench = bench(&[unreachable, ([127, 0, 0, 1], 9).into()]);
    (0..4).for_each(|_| ask(&mut bench));
    assert_eq!(bench.pending.waiting_for(1).len(), 4);
    let mut bench = self::bench(&[unreachable]);
    ask(&mut bench);
    let FrontCounters { no_socket, no_id, failed, shed, .. } = &*bench.worker.counters;
    assert_eq!([no_socket, no_id, failed, shed].map(|count| count.get()), [1, 0, 1, 0]);
    assert!(bench.pending.is_empty() && bench.answers.len() == 1);
}

#[test]
fn what_the_system_has_no_room_for_is_no_back_ends_fault() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
    let (_theirs, failed) = (bench.lines.stop_up(0), Count::default());
    for line in bench.lines.of(0).collect::<Vec<_>>() {
        while bench.lines.push(line, Index::ANY, &[7; 32], &failed) {}
    }
    ask(&mut bench);
    let cells = bench.worker.picker.cells(0).expect("it is there");
    assert_eq!([&cells.timeouts, &cells.refused].map(|count| count.get()), [0, 0]);
    assert_eq!([&cells.sent, &cells.datagrams].map(|count| count.get()), [0, 0], "nothing has left");
    let FrontCounters { send_failed, failed, .. } = &*bench.worker.counters;
    assert_eq!((cells.in_flight(), [send_failed, failed].map(|count| count.get())), (0, [1, 1]));
    assert!(bench.pending.is_empty() && bench.answers.len() == 1);
    assert_eq!(bench.wait(1), ROOM_WAIT);
}

#[test]
fn clients_who_cannot_be_heard_are_left_alone_for_a_while() {
    let mut bench = bench(&[]);
    let to = bench.worker.listener.local_address();
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    client.send_to(&[0], to).expect("it is sent");
    bench.readiness.wait(Duration::from_secs(10)).expect("it waits");
    let hears = |bench: &mut Bench| {
        let mut ready = bench.readiness.ready().expect("it tells");
        ready.any(|ready| ready.token == CLIENTS)
    };
    assert!(hears(&mut bench));
    bench.go_deaf(&io::ErrorKind::OutOfMemory.into(), 1);
    bench.hear_again(DEAF_NS);
    assert!(!hears(&mut bench), "it would be looked at again and again");
    bench.hear_again(DEAF_NS + 1);
    assert!(hears(&mut bench) && bench.worker.counters.receive_failed.get() == 1);
}

fn counts(bench: &Bench) -> [u64; 4] {
    let FrontCounters { failed, shed, steered, retries, .. } = &*bench.worker.counters;
    [failed, shed, steered, retries].map(|count| count.get())
}

/// An agent has just said that the queue has room for one, which something waits in.
fn grant_one(back_end: &BackEnd) {
    let until = u64::MAX;
    let one = Lease { limit: 1, hard_until_ns: until, until_ns: until, queue_ns: 1, room: 1, ..Lease::NONE };
    back_end.udp.put(one);
}

#[test]
fn where_no_back_end_is_queries_fail_and_without_credit_they_are_shed() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
    bench.worker.picker = picker("credit");
    let back_end = bench.worker.field.load().iter().next().expect("it is there").clone();
    grant_one(&back_end);
    bench.look(1);
    (0..2).for_each(|_| ask(&mut bench));
    assert_eq!(bench.pending.waiting_for(0).len(), 1);
    assert_eq!((counts(&bench), bench.answers.len()), ([0, 1, 0, 0], 0));
    back_end.set_draining(Drained::ByOperator, true);
    bench.look(1);
    ask(&mut bench);
    assert_eq!((counts(&bench), bench.answers.len()), ([1, 1, 0, 0], 1));
    assert_eq!(bench.pending.waiting_for(0).len(), 1);
}

#[test]
fn clients_are_sent_to_tcp_only_where_it_is_another_way() {
    for (steers, expected) in [(true, [0, 0, 1, 0]), (false, [0, 1, 0, 0])] {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        (bench.worker.picker, bench.worker.limits.steers) = (picker("credit"), steers);
        let back_end = bench.worker.field.load().iter().next().expect("it is there").clone();
        grant_one(&back_end);
        back_end.tcp.put(Lease { limit: 9, until_ns: u64::MAX, ..Lease::NONE });
        bench.look(1);
        (0..2).for_each(|_| ask(&mut bench));
        assert_eq!((counts(&bench), bench.answers.len()), (expected, usize::from(steers)));
    }
}

#[test]
fn what_was_sent_and_finds_nobody_else_with_credit_has_failed() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
    bench.worker.picker = picker("credit");
    bench.worker.field.load().iter().for_each(|back_end| grant_one(back_end));
    bench.look(1);
    (0..2).for_each(|_| ask(&mut bench));
    bench.abandon(0, 1);
    assert_eq!((counts(&bench), bench.answers.len()), ([1, 0, 0, 0], 1));
}

#[test]
fn how_long_a_connection_may_be_idle_is_asked_no_back_end() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
    let plain = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
    let mut query = [&plain[..], b"\0\x0b\0\0"].concat();
    query[plain.len() - 1] = 4;
    bench.take_query(&query, ([127, 0, 0, 1], 9).into(), None, 1);
    let waiting = bench.pending.waiting_for(0);
    assert_eq!(bench.pending.get(waiting[0]).query[2..], plain[2..]);
}

/// Two back ends with two queries each, and the first one.
fn bench_of_two() -> (Bench, Arc<BackEnd>) {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
    (0..4).for_each(|_| ask(&mut bench));
    let first = bench.worker.picker.back_end(0).expect("it is there").clone();
    (bench, first)
}

/// What whoever guesses a port can have the system say: that nobody listens, or that no way leads there.
const GONE: [Trouble; 2] = [Trouble::NobodyListens, Trouble::NoWay];

#[test]
fn who_is_said_to_be_gone_and_answers_stays() {
    for (is_probed, trouble) in [(false, GONE[0]), (true, GONE[0]), (false, GONE[1]), (true, GONE[1])] {
        let (mut bench, first) = bench_of_two();
        bench.lines.hear(0, trouble);
        bench.bury(1);
        assert!(first.is_doubted.load(Ordering::Relaxed));
        (0..2).for_each(|_| ask(&mut bench));
        assert_eq!(
            [0, 1].map(|place| bench.pending.waiting_for(place).len()),
            [2, 4],
            "others are preferred"
        );
        if is_probed {
            first.replied.store(1, Ordering::Relaxed);
        } else {
            first.cells[0].count_answer(0, 1);
        }
        bench.bury(DOUBT_NS + 1);
        assert_eq!((first.standing(), bench.pending.waiting_for(0).len()), (Standing::Up, 2));
        (0..2).for_each(|_| ask(&mut bench));
        assert_eq!(bench.pending.waiting_for(0).len(), 3);
    }
}

#[test]
fn who_is_said_to_be_gone_and_is_silent_is_left() {
    for trouble in GONE {
        let (mut bench, first) = bench_of_two();
        let left = |bench: &Bench| (first.is_down(), bench.pending.waiting_for(1).len());
        bench.lines.hear(0, trouble);
        bench.bury(1);
        bench.lines.hear(0, trouble);
        bench.bury(DOUBT_NS);
        assert_eq!((left(&bench), first.cells[0].doubts.get()), ((false, 2), 1));
        bench.bury(DOUBT_NS + 1);
        assert_eq!(left(&bench), (true, 4));
        assert_eq!(first.cells[0].refused.get(), 2);
    }
}

#[test]
fn who_is_in_doubt_can_answer_over_the_lines_that_were_asked() {
    let (mut bench, first) = bench_of_two();
    let before = ports(&bench, 0);
    bench.lines.hear(0, Trouble::NoWay);
    bench.bury(MEND_NS);
    bench.mend(MEND_NS);
    assert_eq!((ports(&bench, 0), bench.pending.waiting_for(0).len()), (before.clone(), 2));
    first.cells[0].count_answer(0, 1);
    bench.bury(MEND_NS + 1);
    bench.mend(MEND_NS + 1);
    let after = ports(&bench, 0);
    assert!(after.len() == 2 && before.iter().all(|port| !after.contains(port)), "another may find a way");
}

#[test]
fn who_was_not_asked_is_not_doubted() {
    for trouble in GONE {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        let first = bench.worker.picker.back_end(0).expect("it is there").clone();
        bench.lines.hear(0, trouble);
        bench.bury(1);
        assert!(bench.doubts.all().is_empty() && !first.is_doubted.load(Ordering::Relaxed));
        bench.bury(DOUBT_NS + 1);
        assert!(!first.is_down());
    }
}

#[test]
fn who_is_doubted_is_asked_where_nobody_else_is() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
    ask(&mut bench);
    bench.lines.hear(0, Trouble::NobodyListens);
    bench.bury(1);
    ask(&mut bench);
    assert_eq!(bench.pending.waiting_for(0).len(), 2);
}

/// What a back end would answer to a query that waits for it, with the line that it would come over.
fn reply(bench: &Bench, index: Index, rcode: u8) -> (u16, Vec<u8>) {
    let waiting = bench.pending.get(index);
    let mut octets = waiting.query.clone();
    (octets[2], octets[3]) = (octets[2] | 0x80, rcode);
    let line = bench.lines.of(waiting.back_end).find(|line| bench.pending.matching(*line, &octets).is_ok());
    (line.expect("it was sent over one"), octets)
}

/// What each of two back ends would answer to a query that the first one has not answered in time.
fn asked_twice(rcode: u8) -> (Bench, [(u16, Vec<u8>); 2]) {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
    ask(&mut bench);
    let of = |bench: &Bench, place| reply(bench, bench.pending.waiting_for(place)[0], rcode);
    let place = usize::from(bench.pending.waiting_for(0).is_empty());
    let first = of(&bench, place);
    bench.expire(1_002);
    let second = of(&bench, 1 - place);
    (bench, [first, second])
}

/// What was counted of the back end at the other end of a line.
fn cells(bench: &Bench, line: u16) -> [u64; 5] {
    let cells = bench.worker.picker.cells(place_of(line)).expect("it is there");
    [cells.answers(), cells.timeouts.get(), cells.late.get(), cells.alien.get(), cells.in_flight()]
}

#[test]
fn an_answer_that_comes_late_goes_to_who_still_waits_for_another_one() {
    let (mut bench, [first, second]) = asked_twice(0);
    bench.take_reply(first.0, place_of(first.0), &first.1, 1_500);
    assert_eq!((bench.answers.len(), bench.worker.counters.late_answers.get()), (1, 1));
    assert_eq!(cells(&bench, first.0), [0, 1, 1, 0, 0]);
    // What the second one does is still its measure, and nobody's answer.
    assert_eq!(cells(&bench, second.0), [0, 0, 0, 0, 1]);
    bench.take_reply(first.0, place_of(first.0), &first.1, 1_600);
    bench.take_reply(second.0, place_of(second.0), &second.1, 1_700);
    assert_eq!([first.0, second.0].map(|line| cells(&bench, line)), [[0, 1, 2, 0, 0], [1, 0, 0, 0, 0]]);
    assert_eq!((bench.answers.len(), bench.worker.counters.answers.get()), (1, 1));
    assert!(bench.pending.is_empty());
}

#[test]
fn whose_client_has_its_answer_is_asked_of_nobody_else() {
    let (mut bench, [first, second]) = asked_twice(0);
    bench.take_reply(first.0, place_of(first.0), &first.1, 1_500);
    bench.worker.limits.tries = 3;
    bench.expire(5_000);
    assert_eq!(cells(&bench, second.0), [0, 1, 0, 0, 0]);
    assert_eq!((counts(&bench), bench.answers.len()), ([0, 0, 0, 1], 1));
    bench.take_reply(second.0, place_of(second.0), &second.1, 5_100);
    assert_eq!((cells(&bench, second.0), bench.answers.len()), ([0, 1, 1, 0, 0], 1));
    // Each query is taken off its client's count once.
    bench.clients = Clients::new(1);
    ask(&mut bench);
    ask(&mut bench);
    assert_eq!(bench.worker.counters.full_client.get(), 1);
}

#[test]
fn a_late_answer_that_says_that_its_server_failed_is_not_waited_for_in_vain() {
    let (mut bench, [first, second]) = asked_twice(2);
    bench.take_reply(first.0, place_of(first.0), &first.1, 1_500);
    assert_eq!((bench.answers.len(), cells(&bench, first.0)), (0, [0, 1, 1, 0, 0]));
    bench.take_reply(second.0, place_of(second.0), &second.1, 1_600);
    assert_eq!((bench.answers.len(), cells(&bench, second.0)), (1, [1, 0, 0, 0, 0]));
}

#[test]
fn a_late_answer_counts_only_where_its_query_was_sent() {
    for (change, expected) in [(0, [0, 1, 0, 1, 0]), (13, [0, 1, 0, 0, 0])] {
        let (mut bench, [mut first, _]) = asked_twice(0);
        first.1[change] ^= 1;
        bench.take_reply(first.0, place_of(first.0), &first.1, 1_500);
        assert_eq!((bench.answers.len(), cells(&bench, first.0)), (0, expected));
    }
    // Another socket is another place, although its line has the same number.
    let (mut bench, [first, _]) = asked_twice(0);
    bench.lines.hear(place_of(first.0), Trouble::Socket);
    bench.mend(MEND_NS);
    bench.take_reply(first.0, place_of(first.0), &first.1, MEND_NS);
    assert_eq!((bench.answers.len(), cells(&bench, first.0)), (0, [0, 1, 0, 1, 0]));
}

/// A client asks with a query that is longer than a datagram over IPv4, which the system refuses as a packet filter
/// does.
fn ask_too_long(bench: &mut Bench) {
    const PADDING: u16 = 65_480;
    let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0".to_vec();
    for field in [PADDING + 4, 12, PADDING] {
        query.extend(field.to_be_bytes());
    }
    query.resize(query.len() + usize::from(PADDING), 0);
    bench.take_query(&query, ([127, 0, 0, 1], 9).into(), None, 1);
}

#[test]
fn what_the_system_refuses_goes_to_another_back_end_at_once() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
    let theirs = bench.lines.divert(1);
    // The turn of each comes once, and what is refused is in no budget.
    while bench.worker.picker.may_retry() {
        bench.worker.picker.sent_again(1, 1);
    }
    let before = bench.worker.picker.state.in_flight(1);
    (0..2).for_each(|_| ask_too_long(&mut bench));
    // What goes with it is not refused.
    (0..2).for_each(|_| ask(&mut bench));
    bench.flush(1);
    let counts = &bench.worker.counters;
    assert_eq!([&counts.send_failed, &counts.retries, &counts.failed].map(|count| count.get()), [1, 1, 0]);
    assert_eq!([0, 1].map(|place| bench.pending.waiting_for(place).len()), [1, 3]);
    assert_eq!([0, 1].map(|place| bench.worker.picker.state.in_flight(place)), [1, before + 3]);
    let mut octets = vec![0; 1 << 16];
    let arrived = [(); 3].map(|()| theirs.recv(&mut octets).expect("it arrives"));
    assert_eq!(arrived.iter().filter(|length| **length > 65_507).count(), 2);
}

#[test]
fn where_nothing_can_be_sent_is_doubted_and_its_queries_go_on_at_once() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
    drop(bench.lines.divert(0));
    let _theirs = bench.lines.divert(1);
    (0..4).for_each(|_| ask(&mut bench));
    bench.lines.hear(0, Trouble::NoWay);
    bench.flush(1);
    assert_eq!([0, 1].map(|place| bench.pending.waiting_for(place).len()), [0, 4]);
    assert!(bench.doubts.all().contains(0) && !bench.doubts.all().contains(1));
    let counts = &bench.worker.counters;
    assert_eq!([&counts.send_failed, &counts.retries, &counts.failed].map(|count| count.get()), [2, 2, 0]);
    let cells = bench.worker.picker.cells(0).expect("it is there");
    assert_eq!([cells.timeouts.get(), cells.refused.get(), cells.in_flight()], [0; 3]);
}

#[test]
fn what_the_system_refuses_everywhere_fails_at_once() {
    let mut bench = bench(&[([127, 0, 0, 1], 9).into(), ([127, 0, 0, 2], 9).into()]);
    ask_too_long(&mut bench);
    bench.flush(1);
    assert_eq!((counts(&bench), bench.worker.counters.send_failed.get()), ([1, 0, 0, 1], 2));
    assert_eq!(bench.worker.counters.late_answers.get(), 0);
    assert!(bench.pending.is_empty());
    let cells = [0, 1].map(|place| bench.worker.picker.cells(place).expect("it is there"));
    assert_eq!(
        cells.map(|cells| [cells.timeouts.get(), cells.refused.get(), cells.in_flight()]),
        [[0; 3]; 2]
    );
}

#[test]
fn who_asks_ahead_of_time_has_what_is_kept_where_the_back_end_fails() {
    const SECOND: u64 = 1_000_000_000;
    let (fresh_max, none) = (Duration::from_secs(1_000), Duration::ZERO);
    let caching = Caching { memory: 1 << 20, fresh_max, stale_max: none, failures_for: fresh_max };
    for (rcode, is_lost) in [(2, false), (0, true)] {
        let mut bench = bench(&[([127, 0, 0, 1], 9).into()]);
        bench.worker.cache = Some(Arc::new(Cache::new(&caching, 1)));
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
        let ask = |bench: &mut Bench, now| {
            bench.take_query(query, ([127, 0, 0, 1], 9).into(), None, now);
            bench.pending.waiting_for(0).first().copied()
        };
        let index = ask(&mut bench, 0).expect("nothing is kept");
        let (line, mut octets) = reply(&bench, index, 0);
        octets[7] = 1;
        octets.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x64\0\x04\xc0\0\x02\x01");
        bench.take_reply(line, 0, &octets, 1);
        assert_eq!(ask(&mut bench, 80 * SECOND), None, "it is kept for 100 s");
        let now = 95 * SECOND;
        let index = ask(&mut bench, now).expect("somebody asks ahead of time");
        assert_eq!(ask(&mut bench, now), Some(index), "and nobody else does");
        let answers = bench.answers.len();
        if is_lost {
            bench.expire(now + 2_000);
        } else {
            let (line, octets) = reply(&bench, index, rcode);
            bench.take_reply(line, 0, &octets, now + 1);
        }
        assert_eq!(bench.answers.len(), answers + 1);
        // With five seconds to live.
        assert_eq!(&bench.room[..8], b"\x12\x34\x81\0\0\x01\0\x01");
        assert_eq!(&bench.room[19..35], b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01");
        let FrontCounters { cache_hits, cache_misses, cache_stale, .. } = &*bench.worker.counters;
        assert_eq!([cache_hits, cache_misses, cache_stale].map(|count| count.get()), [2, 2, 0]);
    }
}
