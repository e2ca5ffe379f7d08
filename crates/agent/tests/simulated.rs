//! A meter, balancers that spend all that they are granted, and a server with a queue like the kernel's, on a virtual
//! clock: nothing overflows, the queue stays short, and the server stays busy.

use std::collections::VecDeque;
use std::time::Duration;

use agent::Settings;
use agent::meter::Meter;
use agent::queue::{Queue, Sample, Waiting};
use credit::{Account, HELLO_SPACING, Hello, INTERVAL, Report, Service, Taken};
use proptest::prelude::*;

/// One step of the clock.
const STEP: Duration = Duration::from_millis(1);

/// What a datagram is charged here: not what the meter begins with.
const CHARGE: u64 = 832;

/// A server that takes datagrams from one queue.
struct Server {
    /// Datagrams a second.
    capacity: f64,
    /// Octets of the queue.
    room: u64,
    queued: u64,
    /// What was received and is still charged.
    deferred: u64,
    /// Work that it could have done and has not yet.
    work: f64,
    taken: u64,
    drops: u32,
    inode: u32,
}

impl Server {
    fn new(capacity: f64, room: u64) -> Self {
        Self { capacity, room, queued: 0, deferred: 0, work: 0.0, taken: 0, drops: 0, inode: 1 }
    }

    fn arrive(&mut self, count: u64) {
        for _ in 0..count {
            if (self.queued + self.deferred) * CHARGE > self.room {
                self.drops += 1;
            } else {
                self.queued += 1;
            }
        }
    }

    /// Serves for a step; returns how many it took.
    fn serve(&mut self) -> u64 {
        self.work += self.capacity * STEP.as_secs_f64();
        let taken = (self.work as u64).min(self.queued);
        self.queued -= taken;
        self.deferred += taken;
        self.taken += taken;
        self.work -= taken as f64;
        if self.queued == 0 {
            self.work = self.work.min(1.0);
        }
        if self.queued == 0 || self.deferred * CHARGE > self.room / 4 {
            self.deferred = 0;
        }
        taken
    }

    fn sample(&self, at: Duration) -> Sample {
        let octets = |count: u64| u32::try_from(count * CHARGE).expect("queues are small");
        let waiting = Waiting::Datagrams {
            charged: octets(self.queued + self.deferred),
            room: u32::try_from(self.room).expect("queues are small"),
            queued: octets(self.queued),
        };
        Sample { at, queues: vec![Queue { inode: self.inode, waiting, drops: self.drops }] }
    }

    /// How long the last in the queue waits, at the rate of now.
    fn delay(&self) -> f64 {
        self.queued as f64 / self.capacity
    }
}

/// A balancer that has more to send than it may.
struct Balancer {
    account: Account,
    /// Queries a second that it would send.
    demand: f64,
    wanted: f64,
    sent: u64,
    answered: u64,
    greeted: Option<Duration>,
}

/// What is on its way, with the time at which it comes.
type Way<T> = VecDeque<(Duration, T)>;

struct World {
    now: Duration,
    server: Server,
    meter: Meter,
    balancers: Vec<Balancer>,
    /// From one end of the network to the other.
    distance: Duration,
    queries: Way<u64>,
    answers: Way<(usize, u64)>,
    hellos: Way<(usize, Hello)>,
    reports: Way<(usize, Report)>,
    /// Says whether a report is lost.
    loses: fastrand::Rng,
    loss: f64,
}

impl World {
    fn new(server: Server, demands: &[f64]) -> Self {
        let service: Service = "udp:192.0.2.1:53".parse().expect("a service");
        let meter =
            Meter::new(service, Settings::default(), (1..=demands.len() as u64).map(|number| number << 40));
        let balancers = demands.iter().enumerate().map(|(number, demand)| Balancer {
            account: Account::new(number as u64 + 1, 99, service),
            demand: *demand,
            wanted: 0.0,
            sent: 0,
            answered: 0,
            greeted: None,
        });
        Self {
            now: Duration::ZERO,
            server,
            meter,
            balancers: balancers.collect(),
            distance: Duration::from_micros(300),
            queries: Way::new(),
            answers: Way::new(),
            hellos: Way::new(),
            reports: Way::new(),
            loses: fastrand::Rng::with_seed(7),
            loss: 0.0,
        }
    }

    /// Runs for some time; returns the longest that a query waited.
    fn run(&mut self, time: Duration) -> f64 {
        let (end, mut longest) = (self.now + time, 0.0_f64);
        while self.now < end {
            self.step();
            longest = longest.max(self.server.delay());
        }
        longest
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        let taken = self.server.serve();
        if taken > 0 {
            // Whose they are does not matter to what is tested.
            let number = usize::try_from(self.server.taken).unwrap_or(0) % self.balancers.len();
            self.answers.push_back((now + self.distance, (number, taken)));
        }
        // In the order in which they were sent, hellos behind the queries that they count.
        while let Some(count) = due(&mut self.queries, now) {
            self.server.arrive(count);
        }
        let mut is_heard = false;
        while let Some((number, hello)) = due(&mut self.hellos, now) {
            is_heard |= self.meter.hear(number, &hello, now);
        }
        if is_heard || self.meter.is_due(now) {
            self.meter.sample(&self.server.sample(now));
        } else {
            self.meter.glance(&self.server.sample(now));
            if self.meter.is_due(now) {
                self.meter.sample(&self.server.sample(now));
            }
        }
        let (reports, distance) = (&mut self.reports, self.distance);
        self.meter.reports(now, |number, report| {
            reports.push_back((now + distance, (number, *report)));
            true
        });
        while let Some((number, count)) = due(&mut self.answers, now) {
            self.balancers[number].answered += count;
        }
        while let Some((number, report)) = due(&mut self.reports, now) {
            if self.loses.f64() < self.loss {
                continue;
            }
            let balancer = &mut self.balancers[number];
            if balancer.account.take(&report, now) == Taken::Introduction {
                balancer.greeted = None;
            }
        }
        for number in 0..self.balancers.len() {
            self.spend(number);
        }
    }

    fn spend(&mut self, number: usize) {
        let (now, balancer) = (self.now, &mut self.balancers[number]);
        balancer.wanted = (balancer.wanted + balancer.demand * STEP.as_secs_f64()).min(balancer.demand);
        let credit = balancer.account.credit(now, balancer.sent).unwrap_or(0);
        let sent = credit.min(balancer.wanted as u64);
        balancer.wanted -= sent as f64;
        balancer.sent += sent;
        self.queries.push_back((now + self.distance, sent));
        let spacing =
            if balancer.account.is_half_used(now, balancer.sent) { HELLO_SPACING } else { INTERVAL };
        if balancer.greeted.is_none_or(|at| now - at >= spacing) {
            balancer.greeted = Some(now);
            let hello = balancer.account.hello(now, balancer.sent, balancer.answered.min(balancer.sent));
            self.hellos.push_back((now + self.distance, (number, hello)));
        }
    }
}

fn due<T>(way: &mut Way<T>, now: Duration) -> Option<T> {
    way.pop_front_if(|(at, _)| *at <= now).map(|(_, what)| what)
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// The delay that is aimed at, and what the clock's step and a round of measuring add, in seconds.
const DELAY: f64 = 0.05;

#[test]
fn a_server_is_kept_busy_and_its_queue_short_whatever_its_speed_and_buffer() {
    for capacity in [300.0, 2_000.0, 20_000.0, 200_000.0] {
        for room in [64 << 10, 208 << 10, 4 << 20] {
            let mut world = World::new(Server::new(capacity, room), &[capacity * 3.0]);
            world.run(seconds(1.0));
            let (taken, drops) = (world.server.taken, world.server.drops);
            let longest = world.run(seconds(2.0));
            let rate = (world.server.taken - taken) as f64 / 2.0;
            let told = format!("{capacity}/s in {room}: {rate}/s, {longest} s, {} drops", world.server.drops);
            assert_eq!(world.server.drops, drops, "{told}");
            // Between two hellos are three steps of this clock, and a small buffer is empty before.
            let by_buffer = room as f64 / CHARGE as f64 / 4.0 / STEP.as_secs_f64();
            assert!(rate > 0.9 * capacity.min(by_buffer), "{told}");
            assert!(longest < DELAY, "{told}");
        }
    }
}

#[test]
fn a_large_buffer_is_no_credit() {
    let credit = |room| {
        let mut world = World::new(Server::new(2_000.0, room), &[10_000.0]);
        world.run(seconds(2.0));
        world.meter.credit() + world.meter.room().length
    };
    let (small, large) = (credit(208 << 10), credit(16 << 20));
    assert!(small.abs_diff(large) <= 4, "{small} {large}");
}

#[test]
fn a_server_that_becomes_slow_has_a_short_queue_again_at_once() {
    let mut world = World::new(Server::new(20_000.0, 4 << 20), &[100_000.0]);
    world.run(seconds(1.0));
    world.server.capacity = 1_000.0;
    world.run(seconds(0.5));
    let longest = world.run(seconds(1.0));
    assert!(longest < DELAY, "{longest}");
    // And when it has its processor back, it is used.
    world.server.capacity = 20_000.0;
    world.run(seconds(0.5));
    let taken = world.server.taken;
    world.run(seconds(1.0));
    assert!(world.server.taken - taken > 18_000, "{}", world.server.taken - taken);
}

#[test]
fn a_stopped_server_has_no_credit_and_one_that_goes_on_has() {
    let mut world = World::new(Server::new(5_000.0, 208 << 10), &[50_000.0]);
    world.run(seconds(1.0));
    world.server.capacity = 0.0;
    world.run(seconds(0.3));
    let sent = world.balancers[0].sent;
    assert_eq!(world.meter.credit(), 0);
    world.run(seconds(1.0));
    assert_eq!(world.balancers[0].sent, sent);
    assert!(world.server.drops == 0 && world.server.queued > 0);
    world.server.capacity = 5_000.0;
    world.run(seconds(0.5));
    let taken = world.server.taken;
    world.run(seconds(1.0));
    assert!(world.server.taken - taken > 4_500, "{}", world.server.taken - taken);
}

#[test]
fn a_server_that_others_fill_reports_drops_and_grants_nothing_until_asked() {
    let mut world = World::new(Server::new(1_000.0, 64 << 10), &[1_000.0]);
    world.run(seconds(1.0));
    assert_eq!(world.meter.dropped(), 0);
    world.server.arrive(500);
    let lost = world.server.drops;
    assert!(lost > 400);
    world.run(STEP * 2);
    // What was on its way is lost, too.
    assert!(world.meter.dropped() >= u64::from(lost));
    let balancer = &world.balancers[0];
    assert_eq!(balancer.account.credit(world.now, balancer.sent), Some(0));
    assert!(balancer.account.report(world.now).is_some_and(|report| report.drops >= u64::from(lost)));
}

#[test]
fn balancers_share_by_what_they_have_to_send() {
    let mut world = World::new(Server::new(10_000.0, 208 << 10), &[60_000.0, 2_000.0, 0.0]);
    world.run(seconds(1.0));
    let before: Vec<u64> = world.balancers.iter().map(|balancer| balancer.sent).collect();
    let longest = world.run(seconds(2.0));
    let sent: Vec<u64> =
        world.balancers.iter().zip(before).map(|(balancer, before)| balancer.sent - before).collect();
    assert!(sent.iter().sum::<u64>() > 18_000, "{sent:?}");
    // Who wants little gets it, though another would take everything.
    assert!(sent[1] > 2_000 && sent[0] > sent[1], "{sent:?}");
    assert!(world.server.drops == 0 && longest < DELAY, "{longest} {}", world.server.drops);
    // One that begins late begins all the same.
    world.balancers[2].demand = 60_000.0;
    world.run(seconds(0.5));
    let before = world.balancers[2].sent;
    world.run(seconds(1.0));
    assert!(world.balancers[2].sent - before > 2_000, "{}", world.balancers[2].sent - before);
}

#[test]
fn a_drained_service_is_sent_nothing_more_and_takes_again() {
    let mut world = World::new(Server::new(1_000.0, 208 << 10), &[5_000.0]);
    world.run(seconds(0.5));
    world.meter.drain(true);
    world.run(STEP * 2);
    let sent = world.balancers[0].sent;
    world.run(seconds(0.5));
    let balancer = &world.balancers[0];
    assert_eq!(balancer.sent, sent);
    assert!(balancer.account.report(world.now).is_some_and(|report| report.draining));
    world.meter.drain(false);
    world.run(seconds(0.1));
    assert!(world.balancers[0].sent > sent);
}

#[test]
fn a_restarted_server_is_learned_anew() {
    let mut world = World::new(Server::new(50_000.0, 4 << 20), &[200_000.0]);
    world.run(seconds(1.0));
    let drops = world.meter.dropped();
    let last = world.server.drops;
    world.server = Server { inode: 2, ..Server::new(500.0, 4 << 20) };
    world.run(seconds(0.5));
    let longest = world.run(seconds(1.0));
    assert!(longest < DELAY && world.meter.dropped() == drops, "{longest} {last}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is lost on the way back, and however far the balancer is: what it sends finds room.
    #[test]
    fn what_balancers_send_by_credit_is_never_turned_away(
        capacity in 100.0..50_000.0_f64,
        room in (32_u64 << 10)..(1 << 20),
        demands in proptest::collection::vec(0.0..100_000.0_f64, 1..2),
        distance in 0..10_000_u64,
        loss in 0.0..0.9_f64,
        changes in proptest::collection::vec(0.0..50_000.0_f64, 0..4),
    ) {
        let mut world = World::new(Server::new(capacity, room), &demands);
        world.distance = Duration::from_micros(distance);
        world.loss = loss;
        world.run(seconds(0.5));
        for capacity in changes {
            world.server.capacity = capacity;
            world.run(seconds(0.3));
        }
        prop_assert_eq!(world.server.drops, 0);
    }
}
