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
    /// When it was last told that it is gone, and whether it is not told yet that it is back.
    told_gone: Option<Duration>,
    is_told_gone: bool,
    /// Until when it is asked without EDNS, where it was found not to take that; until it is found to take it again.
    without_edns: Option<Duration>,
    counts: Arc<UpstreamCounts>,
}

/// How many time-outs in a row say that an upstream is gone, not just one zone's servers.
pub const GONE_AFTER: u32 = 8;

/// From one time that it is told of an upstream that it is gone to the next: strangers may choose addresses whose servers
/// do not answer.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);

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
            told_gone: None,
            is_told_gone: false,
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

    /// Notes and counts how one did, and how long it took; whether it answers, where that is to be told.
    pub fn answered(
        &mut self,
        index: usize,
        answered: &Answered,
        took: Duration,
        now: Duration,
    ) -> Option<bool> {
        let upstream = &mut self.all[index];
        upstream.counts.count(answered, took);
        if matches!(answered, Answered::Failed(Why::Timeout)) {
            // While it is left out, what times out was asked before, or for want of another: one pause is not lengthened by
            // how many questions were under way when it began.
            if now < upstream.until {
                return None;
            }
            upstream.failures = upstream.failures.saturating_add(1);
            if let Some(beyond) = upstream.failures.checked_sub(GONE_AFTER) {
                upstream.until = now + self.backoff.after(beyond + 1);
                let may_tell =
                    upstream.told_gone.is_none_or(|told| now.saturating_sub(told) >= TOLD_INTERVAL);
                if may_tell && !upstream.is_told_gone {
                    (upstream.told_gone, upstream.is_told_gone) = (Some(now), true);
                    return Some(false);
                }
            }
            None
        } else {
            (upstream.failures, upstream.until) = (0, Duration::ZERO);
            std::mem::take(&mut upstream.is_told_gone).then_some(true)
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
    fn it_is_told_once_that_an_upstream_is_gone_and_that_it_is_back() {
        let mut upstreams = Upstreams::new(&[("192.0.2.1:53".parse().unwrap(), Arc::default())]);
        let mut now = Duration::from_secs(100);
        let (silent, good) = (Answered::Failed(Why::Timeout), Answered::NoName(1));
        // What comes back so many seconds after what was before, how often, and what is told of the last one.
        for (turn, (answered, seconds, times, last)) in [
            (silent, 0, GONE_AFTER, Some(false)),
            (silent, 300, GONE_AFTER, None),
            (good, 0, 1, Some(true)),
            (good, 0, 1, None),
            // One that comes and goes is told of once a minute; what was not told then is told later.
            (silent, 0, GONE_AFTER, Some(false)),
            (good, 1, 1, Some(true)),
            (silent, 0, GONE_AFTER, None),
            (good, 1, 1, None),
            (silent, 0, GONE_AFTER, None),
            (silent, 57, 1, None),
            (silent, 2, 1, Some(false)),
        ]
        .into_iter()
        .enumerate()
        {
            for time in 1..=times {
                now += Duration::from_secs(seconds);
                let told = upstreams.answered(0, &answered, Duration::ZERO, now);
                assert_eq!(told, last.filter(|_| time == times), "{turn}");
            }
        }
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
