//! What is known of each back end: in flight, sent, latency, lease.

use super::quota::{Budget, Quota};
use super::{BACK_ENDS_MAX, Latency, Pace, Set};

/// How long after its end a lease still tells something, in nanoseconds: half a second is many times what a report takes,
/// and servers change within seconds.
pub const LAPSED_NS: u64 = 500_000_000;

/// The longest way there and back on which a report is prompt, in nanoseconds: half of the delay that agents aim at, so
/// that what has changed meanwhile fits the queue.
const PROMPT_NS: u64 = 10_000_000;

/// For how long a limit is hard, in nanoseconds: an interval of reports and half of one.
const HARD_NS: u64 = 30_000_000;

/// What an agent has granted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lease {
    /// The credit, absolute: queries may be sent until so many were, counted from the first.
    pub limit: u64,
    /// Until when the limit is hard, in nanoseconds of the monotonic clock: see [`Lease::reported`].
    pub hard_until_ns: u64,
    /// When it runs out; 0 before the first.
    pub until_ns: u64,
    /// How long a query waits in its queue, in nanoseconds.
    pub queue_ns: u64,
    /// How many its queue holds; 0 where that is not known.
    pub room: u64,
    /// How many waited in it when so many had been sent as `sent` says.
    pub backlog: u64,
    /// How many had been sent, counted as `limit` is.
    pub sent: u64,
}

/// What an agent says of its server's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// How long a query waits in it, in nanoseconds.
    pub delay_ns: u64,
    /// How many it holds; 0 where that is not known.
    pub room: u64,
    /// How many wait in it.
    pub backlog: u64,
    /// How many the balancer had sent, by its own count.
    pub sent: u64,
}

/// After how long at rest a back end is due for a look, in nanoseconds: ten queries a second are no load, and a server
/// that has recovered is found within a second.
const LOOK_NS: u64 = 100_000_000;

/// The weight of whether a hello was answered beside those before it.
const HELLO_WEIGHT: f32 = 0.1;

/// The share of hellos that must be answered promptly for limits to be hard.
const HEARD_LEAST: f32 = 0.7;

/// How well reports come: the share of hellos that were answered promptly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hearing(f32);

impl Hearing {
    /// A report has come, so long after the hello that it answers, and so many hellos before that were not answered.
    pub fn heard(&mut self, missed: u64, age_ns: u64) {
        // As many as a share forgets.
        for _ in 0..missed.min(64) {
            self.0 -= self.0 * HELLO_WEIGHT;
        }
        let is_prompt = age_ns <= PROMPT_NS;
        self.0 += (f32::from(u8::from(is_prompt)) - self.0) * HELLO_WEIGHT;
    }

    /// Whether most hellos are answered promptly.
    pub fn is_good(&self) -> bool {
        self.0 >= HEARD_LEAST
    }
}

impl Lease {
    /// Before the first report.
    pub const NONE: Lease =
        Lease { limit: 0, hard_until_ns: 0, until_ns: 0, queue_ns: 0, room: 0, backlog: 0, sent: 0 };

    /// The lease of a report that answers what was said at `from_ns`.
    ///
    /// Its limit is hard only while the next report is not overdue, and where reports come well: else that the credit is
    /// spent says more about the way of reports than about the queue, and one server's lost reports would drive its
    /// queries to others that have none to spare.
    pub fn reported(limit: u64, from_ns: u64, until_ns: u64, queue: Queue, hearing: &Hearing) -> Lease {
        let hard_until_ns = if hearing.is_good() { from_ns + HARD_NS } else { 0 };
        let Queue { delay_ns: queue_ns, room, backlog, sent } = queue;
        Lease { limit, hard_until_ns, until_ns, queue_ns, room, backlog, sent }
    }
}

/// What a balancer knows of its back ends, by their places.
///
/// One thread owns it. What other threads of the same balancer have sent is told by [`elsewhere`](Self::elsewhere).
#[derive(Clone, Debug)]
pub struct State {
    all: Set,
    weight: [u32; BACK_ENDS_MAX],
    in_flight: [u32; BACK_ENDS_MAX],
    sent: [u64; BACK_ENDS_MAX],
    in_flight_elsewhere: [u32; BACK_ENDS_MAX],
    sent_elsewhere: [u64; BACK_ENDS_MAX],
    ended_elsewhere: [u64; BACK_ENDS_MAX],
    latency: [Latency; BACK_ENDS_MAX],
    pace: [Pace; BACK_ENDS_MAX],
    lease: [Lease; BACK_ENDS_MAX],
    /// Who has told of a quota, and what is left of it.
    limited: Set,
    budget: [Budget; BACK_ENDS_MAX],
    /// When the last answer came, or the first query after a rest went.
    moved_ns: [u64; BACK_ENDS_MAX],
}

impl State {
    /// Knows no back end.
    #[expect(clippy::new_without_default, reason = "named as what stands beside it")]
    pub fn new() -> State {
        State {
            all: Set::EMPTY,
            weight: [0; BACK_ENDS_MAX],
            in_flight: [0; BACK_ENDS_MAX],
            sent: [0; BACK_ENDS_MAX],
            in_flight_elsewhere: [0; BACK_ENDS_MAX],
            sent_elsewhere: [0; BACK_ENDS_MAX],
            ended_elsewhere: [0; BACK_ENDS_MAX],
            latency: [Latency::UNKNOWN; BACK_ENDS_MAX],
            pace: [Pace::UNKNOWN; BACK_ENDS_MAX],
            lease: [Lease::NONE; BACK_ENDS_MAX],
            limited: Set::EMPTY,
            budget: [Budget::default(); BACK_ENDS_MAX],
            moved_ns: [0; BACK_ENDS_MAX],
        }
    }

    /// Puts a back end, of which nothing is known, in a place; a weight of 0 counts as 1.
    pub fn begin(&mut self, index: usize, weight: u32, now_ns: u64) {
        self.all = self.all.with(index);
        self.weight[index] = weight.max(1);
        self.in_flight[index] = 0;
        self.sent[index] = 0;
        self.in_flight_elsewhere[index] = 0;
        self.sent_elsewhere[index] = 0;
        self.ended_elsewhere[index] = 0;
        self.latency[index] = Latency::begun(now_ns);
        self.pace[index] = Pace::UNKNOWN;
        self.lease[index] = Lease::NONE;
        self.quota(index, Quota::NONE, now_ns);
        self.moved_ns[index] = now_ns;
    }

    /// Takes a back end out of its place.
    pub fn end(&mut self, index: usize) {
        self.all = self.all.without(index);
    }

    /// All back ends.
    pub fn all(&self) -> Set {
        self.all
    }

    /// What other threads of this balancer have in flight and have sent, and how much of that has ended. Over connections some
    /// may be in flight that count as none that were sent.
    pub fn elsewhere(&mut self, index: usize, in_flight: u32, sent: u64, ended: u64) {
        self.in_flight_elsewhere[index] = in_flight;
        self.sent_elsewhere[index] = sent;
        self.ended_elsewhere[index] = ended;
    }

    /// A report has come.
    pub fn lease(&mut self, index: usize, lease: Lease) {
        self.lease[index] = lease;
    }

    /// What its agent has told of its quota of processor time, which counts as long as the lease is valid; told again before
    /// picks, as what has ended since then is paid for, and a refill may have come.
    pub fn quota(&mut self, index: usize, quota: Quota, now_ns: u64) {
        let here = self.sent[index].saturating_sub(self.in_flight[index].into());
        let ended = here + self.ended_elsewhere[index];
        let budget = Budget::new(quota.at(ended, now_ns), now_ns);
        let others = self.limited.without(index);
        self.limited = if budget.is_some() { others.with(index) } else { others };
        self.budget[index] = budget.unwrap_or_default();
    }

    /// Those whose agents have told of a quota.
    #[inline]
    pub fn limited(&self) -> Set {
        self.limited
    }

    /// A query goes there.
    #[inline]
    pub fn sent(&mut self, index: usize, now_ns: u64) {
        if self.in_flight[index] == 0 {
            self.moved_ns[index] = now_ns;
        }
        self.sent[index] += 1;
        self.in_flight[index] += 1;
    }

    /// An answer has come; `load` is what was in flight, with it, when it was sent.
    #[inline]
    pub fn answered(&mut self, index: usize, load: u32, latency_ns: u64, now_ns: u64) {
        self.pace[index].answered(self.in_flight[index], now_ns.saturating_sub(self.moved_ns[index]));
        self.in_flight[index] = self.in_flight[index].saturating_sub(1);
        self.latency[index].observe(load, latency_ns, now_ns);
        self.moved_ns[index] = now_ns;
    }

    /// Nothing has come in time, or a failure has: it counts as what a failure costs, however fast it came.
    #[inline]
    pub fn failed(&mut self, index: usize, load: u32, cost_ns: u64, now_ns: u64) {
        self.in_flight[index] = self.in_flight[index].saturating_sub(1);
        self.latency[index].fail(load, cost_ns, now_ns);
        self.pace[index].failed(cost_ns);
        self.moved_ns[index] = now_ns;
    }

    /// A query is no longer waited for, and nothing follows from it.
    pub fn forgotten(&mut self, index: usize) {
        self.in_flight[index] = self.in_flight[index].saturating_sub(1);
    }

    /// The weight, from 1.
    #[inline]
    pub fn weight(&self, index: usize) -> u32 {
        self.weight[index]
    }

    /// How many queries are in flight there, of all threads.
    #[inline]
    pub fn in_flight(&self, index: usize) -> u32 {
        self.in_flight[index] + self.in_flight_elsewhere[index]
    }

    /// How many queries were ever sent there, by all threads.
    #[inline]
    pub fn sent_total(&self, index: usize) -> u64 {
        self.sent[index] + self.sent_elsewhere[index]
    }

    /// What its latency is.
    #[inline]
    pub fn latency(&self, index: usize) -> &Latency {
        &self.latency[index]
    }

    /// Whether its agent's reports come when they should, so that its limit is hard.
    #[inline]
    pub fn is_prompt(&self, index: usize, now_ns: u64) -> bool {
        now_ns < self.lease[index].hard_until_ns
    }

    /// Whether its lease has not run out.
    #[inline]
    pub fn is_leased(&self, index: usize, now_ns: u64) -> bool {
        now_ns < self.lease[index].until_ns
    }

    /// Whether it has, but not long ago.
    #[inline]
    pub fn has_lapsed(&self, index: usize, now_ns: u64) -> bool {
        let until = self.lease[index].until_ns;
        until != 0 && until <= now_ns && now_ns - until < LAPSED_NS
    }

    /// The credit that is left of the last lease, fresh or not.
    #[inline]
    pub fn credit(&self, index: usize) -> u64 {
        self.lease[index].limit.saturating_sub(self.sent_total(index))
    }

    /// How many may wait in its queue, and how many it holds, where a fresh report says that something waits in it.
    ///
    /// What has waited and what was sent since then, of which some may have been taken: and no more than are in flight, of
    /// which the server may have most, and wait for others itself.
    #[inline]
    pub fn queued(&self, index: usize, now_ns: u64) -> Option<(u64, u64)> {
        let Lease { queue_ns, room, backlog, sent, .. } = self.lease[index];
        let is_known = self.is_prompt(index, now_ns) && queue_ns > 0;
        let since = self.sent_total(index).saturating_sub(sent);
        let waiting = backlog.saturating_add(since).min(self.in_flight(index).into());
        is_known.then_some((waiting, if room == 0 { u64::MAX } else { room }))
    }

    /// How long it takes until all of this thread's are answered that are in flight there, and so many more, in nanoseconds:
    /// at the pace at which it works them off, and at least as long as it says nothing already.
    #[inline]
    pub fn worked_off_ns(&self, index: usize, more: u32, now_ns: u64) -> f32 {
        let in_flight = self.in_flight[index];
        let paced = (in_flight + more) as f32 * self.pace[index].ns();
        // Signed, for which a processor has an instruction.
        let silent = now_ns.saturating_sub(self.moved_ns[index]) as i64 as f32;
        paced.max(if in_flight == 0 { 0.0 } else { silent })
    }

    /// How long a query would take that is sent there now, in nanoseconds, by what was seen of answers.
    ///
    /// What was learned of latencies is a line, and what is in flight may be more than any load at which it was seen: so who
    /// has something in flight takes at least as long as it takes to work that off. Who has had nothing in flight for a while
    /// is due for a look: what was learned may be out of date.
    #[inline]
    pub fn expected_ns(&self, index: usize, now_ns: u64) -> f32 {
        // All of it is worked out each time: who is at rest is as good as chance, and to branch on it takes longer.
        let (latency, in_flight) = (&self.latency[index], self.in_flight(index));
        let expected = latency.at(in_flight + 1);
        let at_rest = if latency.age_ns(now_ns) < LOOK_NS { expected } else { 0.0 };
        let busy = expected.max(self.worked_off_ns(index, 1, now_ns));
        if in_flight == 0 { at_rest } else { busy }
    }

    /// The same, with what an agent tells of the server's quota of processor time.
    ///
    /// When the server will stand still is known then, and comes on top of what it takes; its pace, which is a mean over that,
    /// says nothing more. At rest it counts by how scarce is what is left.
    #[inline]
    pub fn expected_with_quota_ns(&self, index: usize, now_ns: u64) -> f32 {
        if !self.limited.contains(index) || !self.is_leased(index, now_ns) {
            return self.expected_ns(index, now_ns);
        }
        let (latency, budget) = (&self.latency[index], &self.budget[index]);
        let in_flight = self.in_flight(index);
        let expected = latency.at(in_flight + 1);
        let at_rest = if latency.age_ns(now_ns) < LOOK_NS { expected * budget.scarcity() } else { 0.0 };
        let works = if in_flight == 0 { at_rest } else { expected };
        works + budget.rests_ns((in_flight + 1) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_hard_only_where_reports_come_well() {
        let (mut hearing, prompt) = (Hearing::default(), PROMPT_NS);
        let reported = |hearing: &Hearing| Lease::reported(1, 5, 99, Queue::default(), hearing);
        let hard = |hearing: &Hearing| reported(hearing).hard_until_ns == 5 + HARD_NS;
        assert!(!hard(&hearing));
        (0..20).for_each(|_| hearing.heard(0, prompt));
        assert!(hard(&hearing));
        (0..40).for_each(|_| hearing.heard(1, prompt));
        assert!(!hard(&hearing), "half are lost");
        (0..20).for_each(|_| hearing.heard(0, prompt));
        assert!(hard(&hearing));
        (0..20).for_each(|_| hearing.heard(0, prompt + 1));
        assert!(!hard(&hearing), "they are late");
    }

    #[test]
    fn a_quota_that_is_told_again_is_paid_for_and_refilled() {
        let quota = Quota { quota_ns: 20, period_ns: 100, refill_ns: 60, left_ns: 5, cost_ns: 5, ended: 0 };
        let mut state = State::new();
        state.begin(0, 1, 0);
        state.lease(0, Lease { until_ns: 1_000, ..Lease::NONE });
        let expected = |state: &mut State, now_ns| {
            state.quota(0, quota, now_ns);
            state.expected_with_quota_ns(0, now_ns)
        };
        state.sent(0, 10);
        assert_eq!(expected(&mut state, 10), 45.0, "enough for the one that is in flight, for 5 of 50");
        state.answered(0, 1, 10, 20);
        assert_eq!(expected(&mut state, 20), 10.0 * 2.0 + 40.0, "nothing is left");
        assert_eq!(expected(&mut state, 60), 10.0, "as much as lasts until the next refill");
        state.quota(0, Quota::NONE, 60);
        assert!(state.limited().is_empty());
    }

    #[test]
    fn credit_is_absolute_and_runs_out_with_time() {
        let mut state = State::new();
        state.begin(3, 0, 0);
        let lease = Lease { limit: 2, hard_until_ns: 50, until_ns: 100, ..Lease::NONE };
        state.lease(3, lease);
        assert_eq!((state.credit(3), state.weight(3), state.is_leased(3, 99)), (2, 1, true));
        state.sent(3, 5);
        // The same report again changes nothing.
        state.lease(3, lease);
        assert_eq!(state.credit(3), 1);
        state.elsewhere(3, 4, 5, 1);
        assert!(state.is_prompt(3, 49) && !state.is_prompt(3, 50));
        assert_eq!((state.credit(3), state.in_flight(3), state.sent_total(3)), (0, 5, 6));
        assert!(!state.is_leased(3, 100) && state.has_lapsed(3, 100));
        assert!(!state.has_lapsed(3, 100 + LAPSED_NS));
        // An answer that was never asked for makes nothing negative.
        state.answered(3, 1, 5, 101);
        state.forgotten(3);
        state.forgotten(3);
        assert_eq!(state.in_flight[3], 0);
        state.begin(3, 7, 0);
        assert_eq!((state.sent_total(3), state.lease[3].until_ns), (0, 0));
    }
}
