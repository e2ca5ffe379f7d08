//! What was in force when, as far as it can be known from outside: which answers were allowed.
//!
//! ```text
//! before        |<---------------------------->|
//! after                    |<--------------------------- ...
//!                     call begins         call returns
//! ```
//! While a call is under way, either may be answered. Before it, only what was; behind it, only what it put.
//! Times are since the demo began.

use std::collections::VecDeque;
use std::time::Duration;

use super::in_force::InForce;

/// What was in force, oldest first.
#[derive(Debug)]
pub(super) struct Timeline {
    epochs: VecDeque<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    in_force: InForce,
    since: Duration,
    until: Option<Duration>,
}

/// What is to be thought of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing that was in force between the query and its answer has it.
    Forbidden,
    /// It is allowed by one of several, of which any may have been in force.
    Allowed,
    /// It is allowed by the only one that was in force.
    AllowedBy(InForce),
}

impl Timeline {
    /// A timeline in which `in_force` has been in force all the time.
    pub(super) fn new(in_force: InForce) -> Timeline {
        Timeline { epochs: [Epoch { in_force, since: Duration::ZERO, until: None }].into() }
    }

    /// What is in force, or will be when the call that is under way returns.
    pub(super) fn latest(&self) -> InForce {
        self.last().in_force
    }

    /// Begins a change, and forgets what was over before `oldest`, the time of the oldest query that may still be
    /// answered.
    pub(super) fn begin(&mut self, at: Duration, in_force: InForce, oldest: Duration) {
        self.epochs.retain(|epoch| epoch.until.is_none_or(|until| until >= oldest));
        self.epochs.push_back(Epoch { in_force, since: at, until: None });
    }

    /// Notes that the change begun last is in force everywhere since `at`.
    pub(super) fn returned(&mut self, at: Duration) {
        let others = self.epochs.len() - 1;
        for epoch in self.epochs.iter_mut().take(others) {
            epoch.until.get_or_insert(at);
        }
    }

    /// Judges an answer to a query that was sent at `sent` and answered at `received`.
    pub(super) fn judge(&self, sent: Duration, received: Duration, region: usize, site: usize) -> Verdict {
        let mut possible = self
            .epochs
            .iter()
            .filter(|epoch| epoch.since <= received && epoch.until.is_none_or(|until| sent <= until));
        let first = possible.next();
        match (first, possible.next()) {
            (Some(only), None) if only.in_force.allows(region, site) => Verdict::AllowedBy(only.in_force),
            (Some(first), Some(second)) => {
                let mut any = [first, second].into_iter().chain(possible);
                match any.any(|epoch| epoch.in_force.allows(region, site)) {
                    true => Verdict::Allowed,
                    false => Verdict::Forbidden,
                }
            }
            _ => Verdict::Forbidden,
        }
    }

    /// Whether only the change begun last can have made this answer.
    pub(super) fn tells(&self, region: usize, site: usize) -> bool {
        let mut latest = self.epochs.iter().rev();
        let (Some(after), Some(before)) = (latest.next(), latest.next()) else { return false };
        after.in_force.allows(region, site) && !before.in_force.allows(region, site)
    }

    fn last(&self) -> &Epoch {
        self.epochs.back().expect("a timeline begins with one epoch and keeps its last")
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{NEAREST, SITES};
    use super::*;

    const ASIA: usize = 2;
    const NEW_YORK: usize = 1;
    const SINGAPORE: usize = 2;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_change_is_allowed_from_its_call_on_and_required_from_its_return_on() {
        let up = InForce { matrix: &NEAREST, down: [false; SITES.len()] };
        let down = InForce { down: [false, false, true], ..up };
        let mut timeline = Timeline::new(up);
        assert!(!timeline.tells(ASIA, SINGAPORE));
        timeline.begin(ms(100), down, ms(90));
        assert_eq!(timeline.latest(), down);
        assert!(timeline.tells(ASIA, NEW_YORK));
        assert!(!timeline.tells(ASIA, SINGAPORE));
        let check = |timeline: &Timeline, sent, received, [singapore, new_york]: [Verdict; 2]| {
            let judge = |site| timeline.judge(ms(sent), ms(received), ASIA, site);
            assert_eq!([judge(SINGAPORE), judge(NEW_YORK)], [singapore, new_york], "{sent} {received}");
        };
        let (before, after) = (Verdict::AllowedBy(up), Verdict::AllowedBy(down));
        check(&timeline, 90, 99, [before, Verdict::Forbidden]);
        check(&timeline, 90, 101, [Verdict::Allowed, Verdict::Allowed]);
        timeline.returned(ms(110));
        check(&timeline, 90, 99, [before, Verdict::Forbidden]);
        check(&timeline, 90, 130, [Verdict::Allowed, Verdict::Allowed]);
        check(&timeline, 109, 130, [Verdict::Allowed, Verdict::Allowed]);
        check(&timeline, 111, 130, [Verdict::Forbidden, after]);

        // What was over before the oldest query is not needed again.
        timeline.begin(ms(200), up, ms(150));
        timeline.returned(ms(210));
        check(&timeline, 150, 160, [Verdict::Forbidden, after]);
        check(&timeline, 211, 212, [before, Verdict::Forbidden]);
        assert_eq!(timeline.epochs.len(), 2);
    }

    #[test]
    fn what_neither_allows_is_forbidden_at_any_time() {
        let up = InForce { matrix: &NEAREST, down: [false; SITES.len()] };
        let mut timeline = Timeline::new(up);
        timeline.begin(ms(100), InForce { down: [true, false, false], ..up }, ms(0));
        assert_eq!(timeline.judge(ms(90), ms(120), 0, SINGAPORE), Verdict::Forbidden);
    }
}
