//! A server on a virtual clock: its queue, what it works on, and what is left of its quota.

use std::collections::VecDeque;

use agent::queue::{Queue, Waiting};
use agent::quota::Reading;

use super::{MS, time};

/// What a queued query is charged, in octets: as over loopback.
const CHARGE: u32 = 832;

/// From one look of the scheduler at who has used up its quota to the next, as long as they do not sleep: a kernel with
/// 250 ticks a second.
const SCHEDULER_NS: u64 = 4 * MS;

/// How a server works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    /// On one query after the other, so many nanoseconds for each in the mean: half of it fixed, half by chance.
    Busy(u64),
    /// It reads at once. Of its queries this share is in the cache; the others wait for others, at least so long and
    /// as long again in the mean.
    Waits(f64, u64),
    /// As [`Busy`](Work::Busy) as long as its quota lasts, which is the same in each period of so many nanoseconds: a
    /// control group. What it uses beyond it until somebody looks is taken off the next ones.
    Limited { mean_ns: u64, quota_ns: u64, period_ns: u64 },
}

/// What a server is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) work: Work,
    /// Slots of its queue.
    pub(crate) slots: usize,
    /// How many it takes out of its queue at once, where so many are there, to work on them one after the other: the kernel
    /// knows nothing more of them.
    pub(crate) takes: usize,
    /// What it costs it to be woken, or to look again, and to take them out, in nanoseconds.
    pub(crate) take_ns: u64,
    /// What `wrr` is told about it where it is told the truth.
    pub(crate) capacity: u32,
}

/// What chance makes of a query's work, whichever server gets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    /// Below the share of cached answers it is one of them; from 0 to 1.
    pub(super) rank: f64,
    /// How much longer it takes than the least, in means.
    pub(super) more: f64,
}

/// What becomes of a query that is begun.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Begun {
    /// It is done after so many nanoseconds.
    For(u64),
    /// Not before this time, as the quota is used up.
    NotBefore(u64),
}

/// A server that runs.
pub(super) struct Running {
    pub(super) server: Server,
    /// Numbers of queries. With one queue for all servers, only what it works on.
    pub(super) queue: VecDeque<usize>,
    has_own_queue: bool,
    /// How many at its front were taken out.
    taken: usize,
    /// Changes with each that is begun or broken off, so that what was to end before is not.
    pub(super) run: u64,
    pub(super) is_busy: bool,
    pub(super) slowed: f64,
    pub(super) fails: bool,
    pub(super) gone: bool,
    budget: Budget,
    /// What the kernel has turned away at its socket, and which socket that is.
    pub(super) drops: u32,
    socket: u32,
}

/// What is left of a quota.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    left_ns: i64,
    /// The period in which it was last filled, and the tick at which it was last looked at.
    period: u64,
    tick: u64,
    /// How long after the begin of a period the first one has begun.
    begun_ns: u64,
    /// What was used in all, and until when the last of it lasts.
    used_ns: u64,
    until_ns: u64,
}

impl Running {
    /// At rest. Its quota's first period has begun so long before.
    pub(super) fn new(server: Server, has_own_queue: bool, begun_ns: u64) -> Running {
        Running {
            server,
            queue: VecDeque::new(),
            has_own_queue,
            taken: 0,
            run: 0,
            is_busy: false,
            slowed: 1.0,
            fails: false,
            gone: false,
            budget: Budget { begun_ns, ..Budget::default() },
            drops: 0,
            socket: 1,
        }
    }

    /// Begins with the first in its queue, whose work this is, or rests where there is none.
    pub(super) fn begin(&mut self, first: Option<Drawn>, now: u64) -> Option<Begun> {
        let was_busy = std::mem::replace(&mut self.is_busy, first.is_some());
        self.run += 1;
        let first = first?;
        let (mean, limit) = match self.server.work {
            Work::Busy(mean) => (mean, None),
            Work::Limited { mean_ns, quota_ns, period_ns } => (mean_ns, Some((quota_ns, period_ns))),
            Work::Waits(..) => return None,
        };
        // One queue for all is a bound: whoever is awake has the next one at once.
        let takes = self.taken == 0 && (self.has_own_queue || !was_busy);
        let take = if takes { self.server.take_ns as f64 } else { 0.0 };
        let time = ((take + mean as f64 / 2.0 * (1.0 + first.more)) * self.slowed) as u64;
        if let Some((quota, period)) = limit
            && let Some(until) = self.budget.spend(now, time, quota, period, was_busy)
        {
            return Some(Begun::NotBefore(until));
        }
        if self.taken == 0 {
            self.taken = self.queue.len().min(self.server.takes);
        }
        Some(Begun::For(time))
    }

    /// The query that it has worked on is done.
    pub(super) fn done(&mut self) -> Option<usize> {
        let query = self.queue.pop_front()?;
        self.taken -= 1;
        Some(query)
    }

    /// It is ended, with its queue, or started again, with another socket.
    pub(super) fn go(&mut self, gone: bool) {
        self.gone = gone;
        self.socket += u32::from(gone);
        self.queue.clear();
        self.taken = 0;
        self.is_busy = false;
        self.run += 1;
    }

    /// How many wait in its queue.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.taken
    }

    /// What the kernel says of its socket; a resolver reads at once.
    pub(super) fn queues(&self) -> Vec<Queue> {
        if self.gone {
            return Vec::new();
        }
        let octets = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(CHARGE);
        let (waiting, room) = (octets(self.waiting()), octets(self.server.slots));
        let waiting = Waiting::Datagrams { charged: waiting, room, queued: waiting };
        vec![Queue { inode: self.socket, waiting, drops: self.drops }]
    }

    /// What the kernel says of its quota.
    pub(super) fn reading(&self, now: u64) -> Option<Reading> {
        let Work::Limited { quota_ns, period_ns, .. } = self.server.work else { return None };
        let used_ns = self.budget.used_ns - self.budget.until_ns.saturating_sub(now);
        Some(Reading {
            from: time(now),
            at: time(now),
            quota: time(quota_ns),
            period: time(period_ns),
            periods: (now + self.budget.begun_ns) / period_ns,
            used: time(used_ns),
        })
    }

    /// What it has used in all, and what it may in so long, in nanoseconds; none without a quota.
    pub(super) fn used_of(&self, length_ns: u64) -> Option<(f64, f64)> {
        let Work::Limited { quota_ns, period_ns, .. } = self.server.work else { return None };
        Some((self.budget.used_ns as f64, quota_ns as f64 / period_ns as f64 * length_ns as f64))
    }
}

impl Budget {
    /// Spends the time of a query that begins now; or says when the next period begins that leaves something for it.
    fn spend(&mut self, now: u64, time: u64, quota: u64, period: u64, was_busy: bool) -> Option<u64> {
        let (quota, tick) = (quota.cast_signed(), now / SCHEDULER_NS);
        let index = (now + self.begun_ns) / period;
        let filled = (index - self.period).min(1_000).cast_signed() * quota;
        (self.left_ns, self.period) = ((self.left_ns + filled).min(quota), index);
        // As long as it neither sleeps nor a tick comes, nobody looks.
        let is_seen = !was_busy || tick != self.tick;
        self.tick = tick;
        if is_seen && self.left_ns <= 0 {
            let periods = 1 + (-self.left_ns / quota).cast_unsigned();
            return Some((index + periods) * period - self.begun_ns);
        }
        self.left_ns -= time.cast_signed();
        self.used_ns += time;
        self.until_ns = now + time;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it takes for each of these rounds of queries that come together, 10 ns of work each and 3 to take them out.
    fn times(has_own_queue: bool, rounds: &[usize]) -> Vec<u64> {
        let server = Server { work: Work::Busy(10), slots: 9, takes: 2, take_ns: 3, capacity: 1 };
        let (mut running, mut times) = (Running::new(server, has_own_queue, 0), Vec::new());
        for round in rounds {
            running.queue.extend(0..*round);
            while let Some(Begun::For(time)) =
                running.begin(running.queue.front().map(|_| Drawn { rank: 0.0, more: 1.0 }), 0)
            {
                times.push(time);
                running.done();
            }
        }
        times
    }

    #[test]
    fn queries_that_are_taken_out_together_cost_that_once() {
        assert_eq!(times(true, &[1, 1]), [13, 13]);
        assert_eq!(times(true, &[3, 2]), [13, 10, 13, 13, 10]);
    }

    #[test]
    fn from_one_queue_for_all_they_cost_it_only_who_is_woken() {
        assert_eq!(times(false, &[3, 1]), [13, 10, 10, 13]);
    }

    #[test]
    fn what_is_used_beyond_a_quota_is_taken_off_the_next_ones() {
        let work = Work::Limited { mean_ns: 10 * MS, quota_ns: MS, period_ns: 10 * MS };
        let server = Server { work, slots: 9, takes: 2, take_ns: 0, capacity: 1 };
        let mut running = Running::new(server, true, 10 * MS);
        running.queue.extend(0..3);
        let query = Some(Drawn { rank: 0.0, more: 0.0 });
        // Half of the mean is fixed.
        assert_eq!(running.begin(query, 0), Some(Begun::For(5 * MS)));
        running.done();
        assert_eq!(running.begin(query, 5 * MS), Some(Begun::NotBefore(50 * MS)), "it owes four of five");
        assert_eq!(running.begin(query, 50 * MS), Some(Begun::For(5 * MS)));
        assert_eq!(running.used_of(100 * MS), Some((10.0 * MS as f64, 10.0 * MS as f64)));
    }
}
