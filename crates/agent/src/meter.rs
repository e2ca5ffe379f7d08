//! One service: samples and hellos in, reports out. Pure; time is an argument.
//!
//! What a balancer may have sent is what it says it has, and what there is room for on top of that:
//!
//! ```text
//! limit = sent + min(free - margin, target delay x drain rate - queue length)
//! ```
//!
//! The first keeps the queue from overflowing, the second from becoming long: so a large buffer is no credit. Both are
//! looked up when a hello comes, behind the queries that it counts. A report without a new hello repeats the limit: the
//! kernel counts nothing that is received, so what came since is not known. Where it has turned something away, nothing
//! more is granted until the next hello.

use std::time::Duration;

use credit::{Hello, INTRODUCTION, Report, Service, Transport};

use crate::charge::Charge;
use crate::drain::Drain;
use crate::link::{self, Link};
use crate::queue::{Drops, Room, Sample, Waiting};
use crate::quota::{Quota, Reading};

/// How many are granted where the queue is empty, however slow the service is believed to be: with less than some it
/// could never show that it is faster.
const CREDIT_MIN: u64 = 4;

/// One part of so many of what is free is kept back, and one more: what others send between two hellos.
const MARGIN: u64 = 8;

/// How much later than after an interval a report is sent that no hello has asked for: the next hello may be late.
const PATIENCE: Duration = Duration::from_millis(5);

/// The longest queue delay that is reported: that of a service that takes nothing.
pub const DELAY_MAX: Duration = Duration::from_secs(10);

/// How a service is metered.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// For how long a query should wait in the queue at most.
    pub target_delay: Duration,
    /// From one report to the next.
    pub interval: Duration,
    /// For how long a report is valid.
    pub lease: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { target_delay: Duration::from_millis(20), interval: credit::INTERVAL, lease: credit::LEASE }
    }
}

/// What is known of a service.
#[derive(Clone, Debug)]
pub struct Meter {
    service: Service,
    settings: Settings,
    charge: Charge,
    drain: Drain,
    drops: Drops,
    quota: Quota,
    links: Vec<Link>,
    /// How many queries of all balancers were answered since this was made.
    answered: u64,
    /// The inodes of the last sample.
    sockets: Vec<u32>,
    /// When the last whole sample was taken.
    sampled: Option<Duration>,
    room: Room,
    /// What all balancers have sent since this was made and the kernel took, up to the last hello that was answered.
    arrived: u64,
    /// What has become of the last hello that was answered.
    since: Since,
    is_draining: bool,
    /// Whether reports go out without being due.
    is_urgent: bool,
    /// Whether a glance has shown what only a whole sample tells.
    is_doubtful: bool,
}

/// What was seen since a hello was answered.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    /// What all balancers have sent, and what was turned away of it and of what others sent.
    sent: u64,
    dropped: u64,
    /// Octets that were charged then.
    charged: u64,
    /// Octets that waited then.
    queued: u64,
    /// How many were granted then, to all.
    granted: u64,
    /// By how many more are sent and not answered, as the hellos after it say.
    unanswered: i64,
    /// Whether a balancer has used half of its credit.
    is_wanted: bool,
    /// Whether nothing is granted before the next hello: something was turned away, or the kernel told nothing.
    is_closed: bool,
    /// Whether half of what was granted is in the queues.
    is_half_filled: bool,
}

impl Meter {
    /// Makes a meter that knows nothing, for as many balancers as there are sequences to begin reports with.
    pub fn new(service: Service, settings: Settings, first: impl IntoIterator<Item = u64>) -> Self {
        Self {
            service,
            settings,
            charge: Charge::default(),
            drain: Drain::default(),
            drops: Drops::default(),
            quota: Quota::default(),
            answered: 0,
            links: first.into_iter().map(Link::new).collect(),
            sockets: Vec::new(),
            sampled: None,
            room: Room::default(),
            arrived: 0,
            since: Since::default(),
            is_draining: false,
            is_urgent: false,
            is_doubtful: false,
        }
    }

    /// Takes a hello of a balancer; whether it counts. If so, a whole [`sample`](Self::sample) is due.
    ///
    /// # Panics
    /// Where there is no such balancer.
    pub fn hear(&mut self, balancer: usize, hello: &Hello, now: Duration) -> bool {
        let Some(told) = self.links[balancer].hear(hello, now) else { return false };
        self.since.sent += told.sent;
        let answered = i64::try_from(told.sent).unwrap_or(i64::MAX).saturating_sub(told.unanswered);
        self.answered = self.answered.saturating_add(answered.max(0).cast_unsigned());
        self.since.unanswered = self.since.unanswered.saturating_add(told.unanswered);
        self.since.is_wanted |= told.is_half_used;
        true
    }

    /// Takes what the server's control group counts; nothing where it has no quota of processor time, or that is not known.
    pub fn used(&mut self, reading: Option<Reading>) {
        self.quota.take(reading, self.answered);
    }

    /// What its quota leaves the server at `now`, where enough is known of it.
    pub fn quota(&self, now: Duration) -> Option<credit::Quota> {
        self.quota.told(now)
    }

    /// When what the group counts should be looked at, beside each whole sample.
    pub fn next_reading(&self) -> Option<Duration> {
        self.quota.next_look()
    }

    /// Whether a hello waits for an answer.
    pub fn is_owing(&self) -> bool {
        self.links.iter().any(|link| link.is_owed)
    }

    /// Whether a whole sample is due at `now`: for a hello, for what a glance has shown, or since the last one is old.
    pub fn is_due(&self, now: Duration) -> bool {
        let due = self.settings.interval + PATIENCE;
        self.is_owing() || self.is_doubtful || self.sampled.is_none_or(|at| now.saturating_sub(at) >= due)
    }

    /// Whether glances are worth it: something waits, and they could show what is to be reported at once. Once something was
    /// turned away, nothing is granted, and nothing more is told before the next hello.
    pub fn wants_glances(&self) -> bool {
        !self.since.is_closed && self.room.length > 0
    }

    /// Takes a sample that is not whole.
    pub fn glance(&mut self, sample: &Sample) {
        self.observe(sample);
        let filled = charged(sample).saturating_sub(self.since.charged) / u64::from(self.charge.octets());
        if self.since.granted > 0 && filled >= self.since.granted.div_ceil(2) && !self.since.is_half_filled {
            self.since.is_half_filled = true;
            self.is_urgent = true;
            // What waits and what is only charged is told apart first.
            self.is_doubtful = true;
        }
    }

    /// Takes a whole sample.
    pub fn sample(&mut self, sample: &Sample) {
        let (before, was_closed) = (self.since.queued, self.since.is_closed);
        self.observe(sample);
        let inodes: Vec<u32> = sample.queues.iter().map(|queue| queue.inode).collect();
        let is_another = inodes != self.sockets;
        if is_another {
            self.sockets = inodes;
            self.drain = Drain::default();
            self.is_urgent = true;
        }
        let now = queued(sample);
        let is_owing = self.is_owing();
        self.sampled = Some(sample.at);
        self.is_doubtful = false;
        if is_owing && !is_another && !was_closed && !self.since.is_closed {
            let unanswered = self.since.unanswered.max(0).cast_unsigned();
            self.charge.observe_growth(now.saturating_sub(before), unanswered);
        }
        self.room = Room::of(&sample.queues, self.charge.octets());
        if is_owing {
            // Of what was turned away the service has taken nothing.
            self.arrived += self.since.sent.saturating_sub(self.since.dropped);
            self.drain.observe(sample.at, self.arrived, self.room.length, self.since.is_wanted);
            self.since = Since { charged: charged(sample), queued: now, ..Since::default() };
        }
    }

    /// Takes it that the kernel told nothing at `at`: nothing is granted, and all balancers are told so. What is known of
    /// the service stays known.
    pub fn miss(&mut self, at: Duration) {
        self.sampled = Some(at);
        self.is_doubtful = false;
        self.room = Room::default();
        self.close(at);
    }

    /// Takes back what was granted and not used. Where there is none, nobody is told before the next hello: a service that
    /// stays full would be reported twice as often as any other.
    fn close(&mut self, at: Duration) {
        self.since.is_closed = true;
        for link in &mut self.links {
            let is_heard = link.heard(at, self.settings.lease).is_some();
            // Who is owed an answer is told with it.
            self.is_urgent |= link.take_back() && is_heard && !link.is_owed;
        }
    }

    /// Takes what each sample tells.
    fn observe(&mut self, sample: &Sample) {
        let dropped = self.drops.observe(&sample.queues);
        self.since.dropped += dropped;
        if dropped > 0 && !self.since.is_closed {
            self.close(sample.at);
        }
        for queue in &sample.queues {
            if let Waiting::Datagrams { charged, queued, .. } = queue.waiting {
                self.charge.observe(charged);
                self.charge.observe(queued);
            }
        }
    }

    /// Begins to drain, or takes again: all balancers are told at once.
    pub fn drain(&mut self, is_draining: bool) {
        self.is_urgent |= self.is_draining != is_draining;
        self.is_draining = is_draining;
    }

    /// Makes the reports that are due at `now`, and introductions, each for a balancer; `send` tells whether it was sent.
    pub fn reports(&mut self, now: Duration, mut send: impl FnMut(usize, &Report) -> bool) {
        let credit = self.credit();
        let Settings { interval, lease, .. } = self.settings;
        let demands: Vec<f64> = self
            .links
            .iter()
            .filter(|link| link.heard(now, lease).is_some())
            .map(|link| link.demand)
            .collect();
        let is_urgent = std::mem::take(&mut self.is_urgent);
        for balancer in 0..self.links.len() {
            let link = &mut self.links[balancer];
            let silence = link.reported.map_or(Duration::MAX, |at| now.saturating_sub(at));
            let hello = link.heard(now, lease).copied();
            let is_due = match hello {
                Some(_) => link.is_owed || is_urgent || silence >= interval + PATIENCE,
                None => silence >= INTRODUCTION,
            };
            let is_owed = std::mem::take(&mut link.is_owed);
            if !is_due {
                continue;
            }
            if let Some(hello) = &hello {
                if is_owed {
                    let granted = link::share(credit, link.demand, &demands);
                    link.limit = hello.sent.saturating_add(granted);
                    self.since.granted += granted;
                }
                if self.is_draining {
                    link.limit = hello.sent;
                }
            }
            let report = self.report(balancer, hello.as_ref(), now);
            self.links[balancer].reports += u64::from(send(balancer, &report));
        }
    }

    /// How many datagrams or connections all balancers together may send on top of what they had sent at the last
    /// whole sample.
    pub fn credit(&self) -> u64 {
        let Room { free, length, .. } = self.room;
        let timed = (self.settings.target_delay.as_secs_f64() * self.drain.rate()) as u64;
        let timed = timed.saturating_sub(length).max(if length == 0 { CREDIT_MIN } else { 0 });
        free.saturating_sub(free / MARGIN + 1).min(timed)
    }

    fn report(&mut self, balancer: usize, hello: Option<&Hello>, now: Duration) -> Report {
        let (queue_delay, quota) = (self.queue_delay(), self.quota(now));
        let link = &mut self.links[balancer];
        let sequence = link.next;
        link.next += 1;
        link.reported = Some(now);
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Report {
            balancer: hello.map_or(0, |hello| hello.balancer),
            nonce: hello.map_or(0, |hello| hello.nonce),
            service: self.service,
            sequence,
            hello: hello.map_or(0, |hello| hello.sequence),
            sent: hello.map_or(0, |hello| hello.sent),
            limit: hello.map_or(0, |_| link.limit),
            queue_delay,
            drops: self.drops.total(),
            backlog: count(self.room.length),
            backlog_limit: count(self.room.limit),
            lease: self.settings.lease,
            draining: self.is_draining,
            quota: hello.and(quota),
        }
    }

    /// How long the last in the queue will wait, at most [`DELAY_MAX`].
    pub fn queue_delay(&self) -> Duration {
        match self.room.length {
            0 => Duration::ZERO,
            length => Duration::try_from_secs_f64(length as f64 / self.drain.rate())
                .map_or(DELAY_MAX, |delay| delay.min(DELAY_MAX)),
        }
    }

    /// Which service it is.
    pub fn service(&self) -> Service {
        self.service
    }

    /// For how long a report and a hello are valid.
    pub fn lease(&self) -> Duration {
        self.settings.lease
    }

    /// The room in the queues at the last whole sample.
    pub fn room(&self) -> Room {
        self.room
    }

    /// How many sockets there are.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// All that was turned away since the meter was made.
    pub fn dropped(&self) -> u64 {
        self.drops.total()
    }

    /// Octets that a datagram is charged, once that was learned; nothing for connections.
    pub fn charge(&self) -> Option<u32> {
        (self.service.transport() == Transport::Udp && self.charge.is_learned()).then(|| self.charge.octets())
    }

    /// Datagrams or connections that are taken from the queues in a second, once that was measured.
    pub fn drain_rate(&self) -> Option<f64> {
        self.drain.is_known().then(|| self.drain.rate())
    }

    /// Whether it is being drained.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// The links, in the order of the balancers.
    pub fn links(&self) -> &[Link] {
        &self.links
    }
}

fn charged(sample: &Sample) -> u64 {
    let octets = sample.queues.iter().map(|queue| match queue.waiting {
        Waiting::Datagrams { charged, .. } => u64::from(charged),
        Waiting::Connections { .. } => 0,
    });
    octets.sum()
}

fn queued(sample: &Sample) -> u64 {
    let octets = sample.queues.iter().map(|queue| match queue.waiting {
        Waiting::Datagrams { queued, .. } => u64::from(queued),
        Waiting::Connections { .. } => 0,
    });
    octets.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;

    const STEP: Duration = Duration::from_millis(20);

    fn service() -> Service {
        "udp:192.0.2.1:53".parse().expect("a service")
    }

    /// An empty queue that has turned away so many.
    fn sample(at: Duration, drops: u32) -> Sample {
        let waiting = Waiting::Datagrams { charged: 0, queued: 0, room: 208 << 10 };
        Sample { at, queues: vec![Queue { inode: 1, waiting, drops }] }
    }

    /// A meter that both of two balancers have asked, and that has granted something to each.
    fn granted() -> Meter {
        let mut meter = Meter::new(service(), Settings::default(), [1, 1]);
        for step in 1..=3 {
            for balancer in 0..2 {
                let _ = hear(&mut meter, balancer, step);
            }
            meter.sample(&sample(STEP * step, 0));
            let _ = told(&mut meter, STEP * step);
        }
        assert!(meter.links().iter().all(|link| link.limit > 30), "{:?}", meter.links());
        meter
    }

    /// Says hello at this step, ten queries further on at each.
    fn hear(meter: &mut Meter, balancer: usize, step: u32) -> bool {
        let (sequence, heard) = (u64::from(step), meter.links()[balancer].next - 1);
        let sent = sequence * 10;
        let hello =
            Hello { balancer: 7, nonce: 5, service: service(), sequence, heard, sent, answered: sent };
        meter.hear(balancer, &hello, STEP * step)
    }

    /// Who is told what limit.
    fn told(meter: &mut Meter, now: Duration) -> Vec<(usize, u64)> {
        let mut told = Vec::new();
        meter.reports(now, |balancer, report| {
            told.push((balancer, report.limit));
            true
        });
        told
    }

    #[test]
    fn drops_that_one_balancers_hello_shows_end_the_credit_of_all() {
        let mut meter = granted();
        let _ = hear(&mut meter, 0, 4);
        meter.sample(&sample(STEP * 4, 9));
        let told = told(&mut meter, STEP * 4);
        assert!(matches!(told[..], [(0, 40..), (1, 30)]), "{told:?}");
    }

    #[test]
    fn glances_are_wanted_while_something_waits_until_something_is_turned_away() {
        let mut meter = granted();
        assert!(!meter.wants_glances(), "nothing waits");
        let octets = meter.charge.octets();
        let waits = |at, drops| {
            let waiting = Waiting::Datagrams { charged: 9 * octets, queued: 9 * octets, room: 200 * octets };
            Sample { at, queues: vec![Queue { inode: 1, waiting, drops }] }
        };
        let _ = hear(&mut meter, 0, 4);
        meter.sample(&waits(STEP * 4, 0));
        let _ = told(&mut meter, STEP * 4);
        assert!(meter.wants_glances());
        meter.glance(&waits(STEP * 4 + STEP / 5, 1));
        assert!(!meter.wants_glances(), "all is taken back until the next hello");
        let _ = hear(&mut meter, 0, 5);
        meter.sample(&waits(STEP * 5, 1));
        assert!(meter.wants_glances());
    }

    #[test]
    fn what_was_turned_away_was_not_taken() {
        let mut meter = Meter::new(service(), Settings::default(), [1]);
        let octets = meter.charge.octets();
        // Of a hundred in 20 ms eighty find no room, and as many wait as before.
        for step in 0..20_u32 {
            let at = STEP * step;
            let sent = u64::from(step) * 100;
            let (nonce, sequence, heard) = (5, u64::from(step) + 1, meter.links()[0].next - 1);
            let hello = Hello { balancer: 7, nonce, service: service(), sequence, heard, sent, answered: 0 };
            let _ = meter.hear(0, &hello, at);
            let waiting =
                Waiting::Datagrams { charged: 100 * octets, queued: 100 * octets, room: 200 * octets };
            meter.sample(&Sample { at, queues: vec![Queue { inode: 1, waiting, drops: 80 * step }] });
            let _ = told(&mut meter, at);
        }
        assert_eq!(meter.drain_rate().map(f64::round), Some(1_000.0));
    }

    #[test]
    fn what_the_kernel_does_not_tell_ends_the_credit_of_all_and_is_not_learned_from() {
        let mut meter = granted();
        let rate = meter.drain_rate();
        let now = STEP * 3 + Duration::from_millis(2);
        meter.miss(now);
        assert_eq!(told(&mut meter, now), [(0, 30), (1, 30)]);
        // Once is enough.
        meter.miss(now);
        assert_eq!(told(&mut meter, now), []);
        let _ = hear(&mut meter, 0, 4);
        meter.miss(STEP * 4);
        assert_eq!(told(&mut meter, STEP * 4), [(0, 40)]);
        assert_eq!((meter.drain_rate(), meter.sockets()), (rate, 1));
        let _ = hear(&mut meter, 0, 5);
        meter.sample(&sample(STEP * 5, 0));
        assert!(meter.credit() > 0);
    }
}
