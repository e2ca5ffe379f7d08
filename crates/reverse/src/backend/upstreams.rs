//! Whose turn it is to be asked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use learn::Backoff;

use super::counts::UpstreamCounts;
use crate::cache::Why;
use crate::question::Answered;

/// Those who are asked, in turn; one that fails is left out for a while, unless all do, and one that does not take EDNS is
/// asked without it for a while.
#[derive(Debug)]
pub struct Upstreams {
    all: Vec<Upstream>,
    turn: usize,
    backoff: Backoff,
}

#[derive(Debug)]
struct Upstream {
    address: SocketAddr,
    failures: u32,
    until: Duration,
    /// Until when it is asked without EDNS, where it was found not to take that; until it is found to take it again.
    without_edns: Option<Duration>,
    counts: Arc<UpstreamCounts>,
}

/// How many time-outs in a row say that an upstream is gone, not just one zone's servers.
const GONE_AFTER: u32 = 8;

/// How long an upstream that does not take EDNS is asked without it: RFC 6891 §6.2.2 speaks of a brief time. Nobody who
/// forges an error turns EDNS off for longer.
pub const WITHOUT_EDNS: Duration = Duration::from_secs(600);

impl Upstreams {
    /// These; at least one.
    pub fn new(all: &[(SocketAddr, Arc<UpstreamCounts>)]) -> Upstreams {
        let one = |(address, counts): &(SocketAddr, Arc<UpstreamCounts>)| Upstream {
            address: *address,
            failures: 0,
            until: Duration::ZERO,
            without_edns: None,
            counts: counts.clone(),
        };
        Upstreams { all: all.iter().map(one).collect(), turn: 0, backoff: Backoff::default() }
    }

    /// The index of the next one to ask.
    pub fn next(&mut self, now: Duration) -> usize {
        let count = self.all.len();
        let turns = (0..count).map(|step| (self.turn + step) % count);
        let chosen = turns.min_by_key(|index| self.all[*index].until.saturating_sub(now)).unwrap_or(0);
        self.turn = (chosen + 1) % count.max(1);
        chosen
    }

    /// Its address, and what it counts.
    pub fn at(&self, index: usize) -> (SocketAddr, Arc<UpstreamCounts>) {
        let Upstream { address, counts, .. } = &self.all[index];
        (*address, counts.clone())
    }

    /// Whether it is to be asked with EDNS.
    pub fn is_asked_with_edns(&self, index: usize, now: Duration) -> bool {
        self.all[index].without_edns.is_none_or(|until| until <= now)
    }

    /// Notes whether it takes EDNS, as an answer has shown; whether that is another than before. Until it is asked with EDNS
    /// again, answers to what was asked before change nothing.
    pub fn shown(&mut self, index: usize, takes_edns: bool, now: Duration) -> bool {
        if !self.is_asked_with_edns(index, now) {
            return false;
        }
        let upstream = &mut self.all[index];
        let before = upstream.without_edns;
        upstream.without_edns = (!takes_edns).then(|| now + WITHOUT_EDNS);
        upstream.counts.is_without_edns.store(!takes_edns, Ordering::Relaxed);
        before.is_none() != takes_edns
    }

    /// Notes and counts how one did, and how long it took.
    pub fn answered(&mut self, index: usize, answered: &Answered, took: Duration, now: Duration) {
        let upstream = &mut self.all[index];
        upstream.counts.count(answered, took);
        if matches!(answered, Answered::Failed(Why::Timeout)) {
            // While it is left out, what times out was asked before, or for want of another: one pause is not lengthened by
            // how many questions were under way when it began.
            if now < upstream.until {
                return;
            }
            upstream.failures = upstream.failures.saturating_add(1);
            if let Some(beyond) = upstream.failures.checked_sub(GONE_AFTER) {
                upstream.until = now + self.backoff.after(beyond + 1);
            }
        } else {
            (upstream.failures, upstream.until) = (0, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_take_edns_is_asked_without_for_a_while() {
        let counts = Arc::new(UpstreamCounts::default());
        let mut upstreams = Upstreams::new(&[("192.0.2.1:53".parse().unwrap(), counts.clone())]);
        let is_without = || counts.is_without_edns.load(Ordering::Relaxed);
        let (mut now, ms) = (Duration::from_secs(100), Duration::from_millis(1));
        assert!(!upstreams.shown(0, true, now), "as everybody is taken to");
        assert!(upstreams.is_asked_with_edns(0, now) && !is_without());
        for is_first in [true, false, false] {
            assert_eq!(upstreams.shown(0, false, now), is_first, "told when it changes, and not each time");
            // What was under way then neither lengthens it nor ends it.
            now += WITHOUT_EDNS - ms;
            assert!(!upstreams.shown(0, false, now) && !upstreams.shown(0, true, now));
            assert!(!upstreams.is_asked_with_edns(0, now) && is_without());
            now += ms;
            assert!(
                upstreams.is_asked_with_edns(0, now) && is_without(),
                "tried again, and not known to be mended"
            );
        }
        assert!(upstreams.shown(0, true, now));
        assert!(upstreams.is_asked_with_edns(0, now) && !is_without());
        assert!(!upstreams.shown(0, true, now));
    }

    #[test]
    fn an_upstream_that_is_gone_is_left_out_unless_all_are() {
        let counts = || Arc::new(UpstreamCounts::default());
        let all = [("192.0.2.1:53".parse().unwrap(), counts()), ("192.0.2.2:53".parse().unwrap(), counts())];
        let mut upstreams = Upstreams::new(&all);
        let (now, took) = (Duration::from_secs(100), Duration::from_millis(7));
        assert_eq!([upstreams.next(now), upstreams.next(now), upstreams.next(now)], [0, 1, 0]);
        // More than that were under way when it went.
        for _ in 0..3 * GONE_AFTER {
            upstreams.answered(0, &Answered::Failed(Why::Timeout), took, now);
        }
        assert_eq!([upstreams.next(now), upstreams.next(now)], [1, 1]);
        let later = now + Duration::from_secs(1);
        assert_eq!(upstreams.next(later), 0, "tried again after a second");
        upstreams.answered(0, &Answered::Failed(Why::Timeout), took, later);
        assert_eq!([upstreams.next(later + Duration::from_secs(1)), upstreams.next(later)], [1, 1]);
        assert_eq!(upstreams.next(later + Duration::from_secs(2)), 0, "and then after two");
        upstreams.answered(0, &Answered::NoName(1), took, now);
        assert_eq!([upstreams.next(now), upstreams.next(now)], [1, 0]);
        let within_10_ms = all[0].1.times.cells().find(|(bound, _)| *bound == Some(10_000));
        assert_eq!(within_10_ms, Some((Some(10_000), 26)));
    }
}
