//! Whose turn it is to be asked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use learn::Backoff;

use super::counts::UpstreamCounts;
use crate::cache::Why;
use crate::question::Answered;

/// Those who are asked, in turn; one that fails is left out for a while, unless all do.
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
    counts: Arc<UpstreamCounts>,
}

/// How many time-outs in a row say that an upstream is gone, not just one zone's servers.
const GONE_AFTER: u32 = 8;

impl Upstreams {
    /// These; at least one.
    pub fn new(all: &[(SocketAddr, Arc<UpstreamCounts>)]) -> Upstreams {
        let one = |(address, counts): &(SocketAddr, Arc<UpstreamCounts>)| Upstream {
            address: *address,
            failures: 0,
            until: Duration::ZERO,
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
