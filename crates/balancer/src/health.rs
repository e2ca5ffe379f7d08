//! How healthy a back end is, by probes and by what really happens. Pure: counts and times in, a judgement out.
//!
//! Whether it answers is yes or no; how much it gets is not. Who has just come back begins with a tenth of its turns,
//! and who fails more often than the best of the others is asked as much less. Who is only slow is not gone: while anything
//! comes from a back end, even too late, neither timeouts nor a probe that stands in the same queue take it down. To the
//! others its queries would go, and back it would come with a tenth: of servers that can do no more, one after the other
//! would fall.

use std::time::Duration;

use crate::counters::GROUPS;

/// A share in thousandths: all of it.
pub const WHOLE: u32 = 1000;

/// Probes that fail in a row before a back end is down: one may be lost.
pub const FALL: u32 = 3;

/// Probes that are answered in a row before it is up again.
pub const RISE: u32 = 2;

/// Timeouts in a row of looks, with nothing heard of it, before it is down without waiting for probes.
const TIMEOUTS_MAX: u64 = 10;

/// The weight of a new share of failures beside the old one, a look each tenth of a second: a second's memory.
const WEIGHT: f32 = 0.1;

/// How many more failures than the best of the others are nobody's fault: names that nobody can resolve come by chance.
const SLACK: f32 = 0.1;

/// Of so many groups of questions the failures of one are left out, that which has most.
const LEFT_OUT: usize = 4;

/// With how few queries a look a group counts as having none.
const FORGOTTEN: f32 = 0.01;

/// The share that even a back end that only fails keeps, of [`WHOLE`]: else it could never show that it has recovered.
const LEAST_SHARE: f32 = 20.0;

/// What a back end that has just come up begins with, of [`WHOLE`].
pub const BEGIN_SHARE: u32 = WHOLE / 10;

/// Whether an answer says that the server could not do its work: SERVFAIL, NOTIMP and REFUSED (RFC 1035 §4.1.1).
pub fn is_failure(rcode: u8) -> bool {
    matches!(rcode, 2 | 4 | 5)
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It was answered.
    Answered,
    /// It was answered, and the answer says that the server fails; or the system says that nobody listens.
    Failed,
    /// Nothing came in time.
    Silent,
}

/// What was counted of a back end since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Answers in time, failures too.
    pub answers: u64,
    /// Answers that say that the server failed.
    pub failures: u64,
    /// Queries without an answer in time.
    pub timeouts: u64,
    /// Queries over connections that could not be delivered. Of datagrams this says that nobody is there at all.
    pub refused: u64,
    /// Answers that came after their timeout.
    pub late: u64,
    /// What became of questions by groups, where the same question goes to the same back end; else nothing.
    pub groups: [SeenOfGroup; GROUPS],
}

/// What was counted of the questions of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenOfGroup {
    /// Queries that were answered, or not in time.
    pub ended: u64,
    /// Those of them that failed.
    pub failed: u64,
}

impl Seen {
    /// What of this was counted since that was seen.
    pub fn since(&self, before: &Seen) -> Seen {
        let groups = std::array::from_fn(|group| SeenOfGroup {
            ended: self.groups[group].ended - before.groups[group].ended,
            failed: self.groups[group].failed - before.groups[group].failed,
        });
        Seen {
            answers: self.answers - before.answers,
            failures: self.failures - before.failures,
            timeouts: self.timeouts - before.timeouts,
            refused: self.refused - before.refused,
            late: self.late - before.late,
            groups,
        }
    }
}

/// The health of one back end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    /// Probes that were answered in a row, or failed in a row.
    answered: u32,
    failed: u32,
    is_down: bool,
    /// When it came up after having been down.
    up_at: Option<Duration>,
    failures: f32,
    groups: Groups,
    /// Timeouts since something was heard of it, and when that was.
    timeouts: u64,
    heard_at: Option<Duration>,
}

impl Health {
    /// That of a back end that has come up now.
    pub fn begun(now: Duration) -> Health {
        Health { up_at: Some(now), ..Health::default() }
    }

    /// Takes in what became of a probe; `patience` is how long an answer may take.
    pub fn probed(&mut self, probe: Probe, now: Duration, patience: Duration) {
        match probe {
            Probe::Answered => {
                (self.answered, self.failed) = (self.answered + 1, 0);
                (self.timeouts, self.heard_at) = (0, Some(now));
                if self.is_down && self.answered >= RISE {
                    (self.is_down, self.up_at) = (false, Some(now));
                }
            }
            Probe::Silent if !self.is_silent(now, patience) => {}
            Probe::Failed | Probe::Silent => {
                (self.answered, self.failed) = (0, self.failed + 1);
                self.is_down |= self.failed >= FALL;
            }
        }
    }

    /// Somebody else has found that nobody listens there.
    pub fn is_gone(&mut self) {
        if !self.is_down {
            (self.is_down, self.answered) = (true, 0);
        }
    }

    /// Looks at what was counted; `patience` is how long an answer may take.
    pub fn look(&mut self, seen: Seen, now: Duration, patience: Duration) {
        let (mut ended, mut failed) = (seen.answers + seen.timeouts, seen.failures + seen.timeouts);
        if seen.groups.iter().any(|group| group.ended > 0) {
            (ended, failed) = self.groups.look(&seen.groups);
        }
        (ended, failed) = (ended + seen.refused, failed + seen.refused);
        if ended > 0 {
            let share = failed as f32 / ended as f32;
            self.failures += (share - self.failures) * WEIGHT;
        }
        if seen.answers + seen.late > 0 {
            (self.timeouts, self.heard_at) = (0, Some(now));
        } else {
            self.timeouts += seen.timeouts;
        }
        if self.timeouts >= TIMEOUTS_MAX && self.is_silent(now, patience) {
            self.is_gone();
        }
    }

    /// Whether nothing has come from it for so long.
    fn is_silent(&self, now: Duration, patience: Duration) -> bool {
        self.heard_at.is_none_or(|at| now.saturating_sub(at) >= patience)
    }

    /// Whether it is down.
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// The share of its queries that fail, from 0 to 1: a mean over the last second or so.
    pub fn failures(&self) -> f32 {
        self.failures
    }

    /// The share of its turns that it gets, of [`WHOLE`]; `least` is the smallest share of failures of all back ends.
    pub fn share(&self, least: f32, now: Duration, slow_start: Duration) -> u32 {
        let more = (self.failures - least - SLACK).max(0.0) / (1.0 - SLACK);
        let begun = self.up_at.map_or(1.0, |up_at| {
            let since = now.saturating_sub(up_at).as_secs_f32() / slow_start.as_secs_f32().max(0.001);
            let begin = BEGIN_SHARE as f32 / WHOLE as f32;
            (begin + since * (1.0 - begin)).min(1.0)
        });
        // Steeper than in proportion: half of all failing is no half of a server.
        (WHOLE as f32 * (1.0 - more).powi(3) * begun).max(LEAST_SHARE) as u32
    }
}

/// What became of questions lately, by groups: a memory of [`WEIGHT`], as numbers of queries of one look.
#[derive(Clone, Copy, Debug, Default)]
struct Groups {
    ended: [f32; GROUPS],
    failed: [f32; GROUPS],
}

impl Groups {
    /// Takes in what was counted; returns how many queries ended and failed, without failures in the groups that have most.
    /// Where each question has its back end, a name that fails by itself would else count against that one alone; a back
    /// end that fails does so in all groups.
    fn look(&mut self, seen: &[SeenOfGroup; GROUPS]) -> (u64, u64) {
        for (group, seen) in seen.iter().enumerate() {
            self.ended[group] += (seen.ended as f32 - self.ended[group]) * WEIGHT;
            self.failed[group] += (seen.failed as f32 - self.failed[group]) * WEIGHT;
        }
        let mut worst: [usize; GROUPS] = std::array::from_fn(|group| group);
        worst.sort_unstable_by(|one, other| self.failed[*other].total_cmp(&self.failed[*one]));
        let some = self.ended.iter().filter(|ended| **ended > FORGOTTEN).count();
        let (left_out, kept) = worst.split_at(some.div_ceil(LEFT_OUT));
        let good = left_out.iter().map(|group| seen[*group].ended.saturating_sub(seen[*group].failed));
        let ended = good.sum::<u64>() + kept.iter().map(|group| seen[*group].ended).sum::<u64>();
        (ended, kept.iter().map(|group| seen[*group].failed).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn probes_take_it_down_and_up() {
        use Probe::{Answered, Failed, Silent};
        let mut health = Health::default();
        let probes = [Silent, Failed, Answered, Failed, Silent, Silent];
        for (at, probe) in (0..).zip(probes) {
            health.probed(probe, s(at), s(1));
            assert_eq!(health.is_down(), at == 5);
        }
        health.probed(Answered, s(6), s(1));
        assert!(health.is_down());
        health.probed(Answered, s(7), s(1));
        assert!(!health.is_down());
        let shares = [7, 12, 17, 99].map(|now| health.share(0.0, s(now), s(10)));
        assert_eq!(shares, [100, 550, 1000, 1000]);
        health.is_gone();
        assert!(health.is_down());
    }

    #[test]
    fn timeouts_alone_take_it_down() {
        let mut health = Health::default();
        let seen = Seen { timeouts: 6, ..Seen::default() };
        health.look(seen, s(1), s(1));
        assert!(!health.is_down());
        health.look(Seen { answers: 1, ..seen }, s(2), s(1));
        health.look(seen, s(3), s(1));
        assert!(!health.is_down(), "it has answered in between");
        health.look(seen, s(4), s(1));
        assert!(health.is_down());
    }

    #[test]
    fn timeouts_between_probes_that_are_answered_do_not_add_up() {
        let mut health = Health::default();
        for at in 0..100 {
            health.probed(Probe::Answered, s(4 * at), s(1));
            health.look(Seen { timeouts: 1, ..Seen::default() }, s(4 * at + 2), s(1));
            assert!(!health.is_down(), "after {at} names that nobody can resolve");
        }
    }

    /// A server with a quota that stands still for a tenth of a second, while all that waited too long times out.
    #[test]
    fn who_is_slow_is_not_gone() {
        let ms = Duration::from_millis;
        let mut health = Health::default();
        for at in (0..5_000).step_by(100) {
            let late = u64::from(at % 500 == 0);
            health.look(Seen { timeouts: 40, late, ..Seen::default() }, ms(at), s(1));
            health.probed(Probe::Silent, ms(at), s(1));
            assert!(!health.is_down(), "after {at} ms");
        }
        health.look(Seen { timeouts: 40, ..Seen::default() }, ms(5_500), s(1));
        assert!(health.is_down(), "nothing has come for a second");

        let mut health = Health::default();
        for at in 1..=3 {
            health.look(Seen { answers: 9, ..Seen::default() }, s(at), s(1));
            health.probed(Probe::Failed, s(at), s(1));
        }
        assert!(health.is_down(), "it says itself that it fails");
    }

    #[test]
    fn who_takes_no_connections_gets_less_and_is_not_down() {
        let mut health = Health::default();
        for at in 0..100 {
            health.look(Seen { answers: 5, refused: 5, ..Seen::default() }, s(at), s(1));
        }
        assert!(!health.is_down() && health.share(0.0, s(100), s(10)) < 500);
    }

    #[test]
    fn who_fails_more_than_others_gets_less_and_never_nothing() {
        let (mut bad, mut same) = (Health::default(), Health::default());
        for _ in 0..100 {
            let seen = |failures| Seen { answers: 10, failures, ..Seen::default() };
            bad.look(seen(10), s(1), s(1));
            same.look(seen(3), s(1), s(1));
        }
        assert_eq!(bad.share(0.0, s(1), s(10)), 20);
        assert_eq!(same.share(same.failures(), s(1), s(10)), 1000, "all fail alike");
        assert!((300..700).contains(&same.share(0.0, s(1), s(10))));
    }

    #[test]
    fn a_name_alone_neither_takes_a_back_ends_turns_nor_keeps_them_from_it() {
        let look = |health: &mut Health, groups| {
            let seen = Seen { answers: 10, groups, ..Seen::default() };
            (0..100).for_each(|_| health.look(seen, s(1), s(1)));
            health.failures()
        };
        let one = |failed| SeenOfGroup { ended: 10, failed };
        let mut groups = [SeenOfGroup::default(); GROUPS];
        groups[3] = one(10);
        assert_eq!(look(&mut Health::default(), groups), 0.0);
        groups[5] = one(10);
        let mut health = Health::default();
        assert!(look(&mut health, groups) > 0.99, "two groups are more than a name");
        // Who has failed is asked for one name from now on, and answers.
        groups = [SeenOfGroup::default(); GROUPS];
        groups[3] = one(0);
        assert!(look(&mut health, groups) < 0.01);
    }
}
