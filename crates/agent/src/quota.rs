//! What a server's quota of processor time leaves it, learned from what its control group counts. Pure.
//!
//! The kernel tells how much a group may use in each period, how much it has used, and how many periods it has been through;
//! not when they begin. They begin at the same time in each, also after a rest. So of two looks between which the count rose
//! by one, one period began between them; looks in the middle of where that may be halve it, until it is known to a
//! millisecond.

use std::time::Duration;

/// The shortest period that is reported: while something is used there is a look in each, and in one of half the time from one
/// report to the next what is left is no longer true when a balancer hears it.
pub const PERIOD_MIN: Duration = Duration::from_millis(10);

/// How well the begin of a period is to be known.
const BEGIN_WIDTH: Duration = Duration::from_millis(1);

/// How well it must be known for anything to be told: one part of so many of a period.
const BEGIN_PARTS: u32 = 20;

/// Over how many answers the cost of a query is averaged: a second of a slow server's.
const COST_ANSWERS: f64 = 100.0;

/// How many answers must have been seen for a cost to be told.
const COST_ANSWERS_MIN: f64 = 10.0;

/// After how long without an answer what was used since the last one is not for the next.
const COST_SILENCE: Duration = Duration::from_secs(1);

/// How many quotas can be owed: a kernel that looks every 4 ms or 10 whether one is used up takes what was too much off the next
/// ones.
const OWED_MAX: i64 = 10;

/// What a control group counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Just before it was looked at.
    pub from: Duration,
    /// Just after that.
    pub at: Duration,
    /// How much it may use in each period; not 0.
    pub quota: Duration,
    /// From one refill to the next; not 0.
    pub period: Duration,
    /// How many periods it has been through; it rests where nothing is used.
    pub periods: u64,
    /// What it has used since it was made.
    pub used: Duration,
}

/// What is learned of one quota.
#[derive(Clone, Debug, Default)]
pub struct Quota {
    last: Option<Reading>,
    begin: Option<Begin>,
    left_ns: i64,
    /// When something was used last.
    used_at: Duration,
    cost: Cost,
}

/// Between which two times a period begins: not at the first, perhaps at the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begin {
    after: Duration,
    until: Duration,
}

/// What queries use.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Of those that count, older ones less.
    used_ns: f64,
    answers: f64,
    /// What was used since the last answer, when that was, and how many all are.
    open_ns: f64,
    answered_at: Duration,
    answered: u64,
}

impl Quota {
    /// Takes what the group counts, where `answered` queries have been answered in all; nothing where the server has no quota,
    /// or nothing is told of it.
    pub fn take(&mut self, reading: Option<Reading>, answered: u64) {
        let Some(reading) = reading.filter(|reading| reading.period >= PERIOD_MIN) else {
            *self = Quota::default();
            return;
        };
        let last = self.last.replace(reading);
        let is_same = |last: &Reading| {
            last.period == reading.period && last.periods <= reading.periods && last.used <= reading.used
        };
        let Some(last) = last.filter(is_same) else {
            let cost = Cost { answered, ..self.cost };
            *self = Quota { last: Some(reading), left_ns: ns(reading.quota), cost, ..Quota::default() };
            return;
        };
        let elapsed = reading.at.saturating_sub(last.from);
        if reading.periods == last.periods + 1 && elapsed < reading.period {
            let seen = Begin { after: last.from, until: reading.at };
            self.begin = Some(self.begin.map_or(seen, |begin| begin.narrowed(seen, reading.period)));
        }
        let used = ns(reading.used - last.used);
        if used > 0 {
            self.used_at = reading.at;
        }
        self.cost.take(used, answered, reading.at);
        self.spend(used, &last, &reading);
    }

    /// When another look tells most: before a period is over, where a period may begin, or just after it has begun; nothing
    /// while nothing is used.
    pub fn next_look(&self) -> Option<Duration> {
        let last = self.last.as_ref()?;
        let at = match self.begin {
            None => last.at + last.period / 2,
            Some(begin) if begin.width() > BEGIN_WIDTH => next(begin.middle(), last.period, last.at),
            Some(begin) => next(begin.until, last.period, last.at),
        };
        // Where its quota is used up it stands still until the next period.
        (last.at.saturating_sub(self.used_at) < last.period * 2).then_some(at)
    }

    /// What a report says at `now`; nothing before enough is known.
    pub fn told(&self, now: Duration) -> Option<credit::Quota> {
        let (begin, last, cost) = (self.begin?, self.last.as_ref()?, self.cost.told()?);
        if begin.width() > (last.period / BEGIN_PARTS).max(BEGIN_WIDTH) {
            return None;
        }
        let left_us = (self.left_ns / 1_000).clamp(i32::MIN.into(), i32::MAX.into());
        Some(credit::Quota {
            quota: last.quota,
            period: last.period,
            refill: next(begin.middle(), last.period, now).saturating_sub(now),
            left_us: i32::try_from(left_us).expect("it was cut to that"),
            cost,
        })
    }

    /// Brings what is left up to a reading.
    fn spend(&mut self, used: i64, last: &Reading, reading: &Reading) {
        let quota = ns(reading.quota);
        let begun = self.begin.map(|begin| next(begin.middle(), reading.period, last.at));
        let begun = begun.filter(|begun| *begun <= reading.at);
        // When in between it was used nobody tells: evenly, but for what was not there.
        let elapsed = reading.at.saturating_sub(last.at).as_secs_f64();
        let part = |time: Duration| (used as f64 * (time.as_secs_f64() / elapsed).clamp(0.0, 1.0)) as i64;
        self.left_ns = match begun {
            None => self.left_ns - used,
            Some(begun) if reading.at - begun < reading.period => {
                let before = part(begun.saturating_sub(last.at)).min(self.left_ns.max(0));
                (self.left_ns - before + quota).min(quota) - (used - before)
            }
            Some(begun) => {
                let since = (reading.at - begun).as_nanos() % reading.period.as_nanos();
                quota - part(Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX)))
            }
        };
        self.left_ns = self.left_ns.max(-quota.saturating_mul(OWED_MAX));
    }
}

impl Begin {
    fn width(&self) -> Duration {
        self.until.saturating_sub(self.after)
    }

    fn middle(&self) -> Duration {
        self.after + self.width() / 2
    }

    /// What this and what was seen later have in common, in the period that was seen; what was seen, where that is nothing.
    fn narrowed(&self, seen: Begin, period: Duration) -> Begin {
        let (middle, width) = (seen.middle(), self.width());
        // The one whose middle is nearest.
        let later = next(self.middle(), period, middle.saturating_sub(period / 2));
        let this = Begin { after: later.saturating_sub(width / 2), until: later + (width - width / 2) };
        let both = Begin { after: this.after.max(seen.after), until: this.until.min(seen.until) };
        if both.after < both.until { both } else { seen }
    }
}

impl Cost {
    fn take(&mut self, used_ns: i64, answered: u64, at: Duration) {
        self.open_ns += used_ns as f64;
        let answers = answered.saturating_sub(self.answered) as f64;
        self.answered = answered;
        if answers > 0.0 {
            let kept = COST_ANSWERS / (COST_ANSWERS + answers);
            self.used_ns = self.used_ns * kept + self.open_ns;
            self.answers = self.answers * kept + answers;
        }
        if answers > 0.0 || at.saturating_sub(self.answered_at) >= COST_SILENCE {
            (self.open_ns, self.answered_at) = (0.0, at);
        }
    }

    fn told(&self) -> Option<Duration> {
        let cost = Duration::from_nanos((self.used_ns / self.answers) as u64);
        (self.answers >= COST_ANSWERS_MIN && !cost.is_zero()).then_some(cost)
    }
}

/// The first of these times, a period from each to the next, that is later than `now`.
fn next(at: Duration, period: Duration, now: Duration) -> Duration {
    let whole = |by: u128| Duration::from_nanos(u64::try_from(by).unwrap_or(u64::MAX));
    let period_ns = period.as_nanos();
    match now.checked_sub(at) {
        Some(since) => now + whole(period_ns - since.as_nanos() % period_ns),
        None => {
            now + whole(match (at - now).as_nanos() % period_ns {
                0 => period_ns,
                until => until,
            })
        }
    }
}

fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A group that may use 20 ms of each 100, whose periods begin 37.4 ms after each tenth of a second; a query uses 2 ms.
    struct Group {
        period: Duration,
        begin: Duration,
        used: Duration,
        left: Duration,
        /// From which on it wants to work, and to which.
        busy: std::ops::Range<Duration>,
        looked: Duration,
    }

    impl Group {
        fn new(busy: std::ops::Range<Duration>) -> Group {
            let (period, begin) = (100 * MS, Duration::from_micros(37_400));
            Group { period, begin, used: Duration::ZERO, left: 20 * MS, busy, looked: Duration::ZERO }
        }

        /// Goes on to a time, in steps of a tenth of a millisecond.
        fn look(&mut self, at: Duration) -> Reading {
            let step = MS / 10;
            while self.looked + step <= at {
                self.looked += step;
                let since = self.looked.saturating_sub(self.begin).as_micros();
                if since.is_multiple_of(self.period.as_micros()) {
                    self.left = 20 * MS;
                }
                if self.busy.contains(&self.looked) && self.left >= step {
                    self.left -= step;
                    self.used += step;
                }
            }
            let since =
                at.checked_sub(self.begin).map_or(0, |since| 1 + since.as_micros() / self.period.as_micros());
            let periods = u64::try_from(since).expect("it is short");
            Reading { from: at, at, quota: 20 * MS, period: self.period, periods, used: self.used }
        }

        fn answered(&self) -> u64 {
            u64::try_from(self.used.as_millis() / 2).expect("it is short")
        }
    }

    /// Looks each 20 ms and where it is asked to.
    fn watch(group: &mut Group, quota: &mut Quota, from: Duration, until: Duration) {
        let (mut now, mut hello) = (from, from);
        while now < until {
            let reading = group.look(now);
            quota.take(Some(reading), group.answered());
            if now >= hello {
                hello += 20 * MS;
            }
            now = quota.next_look().map_or(hello, |look| look.min(hello)).max(now + MS / 10);
        }
    }

    #[test]
    fn it_learns_when_there_will_be_more_and_what_is_left() {
        let (mut group, mut quota) = (Group::new(50 * MS..5_000 * MS), Quota::default());
        watch(&mut group, &mut quota, Duration::ZERO, 1_000 * MS);
        let mut watched = 1_000;
        for (at, left_us) in [(1_040, 17_400), (1_050, 7_400), (1_075, 0), (1_130, 0), (1_240, 17_400)] {
            watch(&mut group, &mut quota, watched * MS, at * MS);
            watched = at;
            let reading = group.look(at * MS);
            quota.take(Some(reading), group.answered());
            let told = quota.told(at * MS).expect("it is known");
            assert_eq!((told.quota, told.period), (20 * MS, 100 * MS));
            let refill = told.refill.as_secs_f64() * 1e3;
            let expected = 100.0 - (f64::from(at) - 37.4).rem_euclid(100.0);
            assert!((refill - expected).abs() <= 1.0, "at {at} ms: {refill} ms, not {expected}");
            assert!(
                (told.left_us - left_us).abs() <= 1_500,
                "at {at} ms: {} us, not {left_us}",
                told.left_us
            );
            assert!((told.cost.as_secs_f64() * 1e3 - 2.0).abs() < 0.1, "{:?}", told.cost);
        }
    }

    #[test]
    fn after_a_rest_it_is_whole_and_begins_when_it_did() {
        let (mut group, mut quota) = (Group::new(50 * MS..1_000 * MS), Quota::default());
        watch(&mut group, &mut quota, Duration::ZERO, 3_000 * MS);
        assert_eq!(quota.next_look(), None, "nothing is used");
        let told = quota.told(3_000 * MS).expect("it is known");
        assert_eq!(told.left_us, 20_000);
        assert!((told.refill.as_secs_f64() * 1e3 - 37.4).abs() <= 1.0, "{:?}", told.refill);
    }

    #[test]
    fn what_it_does_not_know_it_does_not_tell() {
        let mut quota = Quota::default();
        assert_eq!(quota.told(MS), None);
        // A period that is too short, and none.
        for period in [5 * MS, 9 * MS] {
            let mut group = Group { period, ..Group::new(Duration::ZERO..5_000 * MS) };
            watch(&mut group, &mut quota, Duration::ZERO, 1_000 * MS);
            assert_eq!((quota.told(1_000 * MS), quota.next_look()), (None, None));
        }
        // Nobody was answered.
        let mut group = Group::new(Duration::ZERO..5_000 * MS);
        for now in 0..100 {
            let reading = group.look(now * 20 * MS);
            quota.take(Some(reading), 0);
        }
        assert_eq!(quota.told(2_000 * MS), None);
        // It has no quota any more.
        watch(&mut group, &mut quota, 2_000 * MS, 3_000 * MS);
        assert!(quota.told(3_000 * MS).is_some());
        quota.take(None, 500);
        assert_eq!(quota.told(3_000 * MS), None);
    }

    #[test]
    fn another_group_or_period_is_learned_anew() {
        let (mut group, mut quota) = (Group::new(Duration::ZERO..9_000 * MS), Quota::default());
        watch(&mut group, &mut quota, Duration::ZERO, 1_000 * MS);
        let before = quota.told(1_000 * MS).expect("it is known");
        let mut other = Group::new(1_000 * MS..9_000 * MS);
        other.begin = 80 * MS;
        quota.take(Some(other.look(1_000 * MS)), group.answered());
        assert_eq!(quota.told(1_000 * MS), None, "its counts are lower");
        watch(&mut other, &mut quota, 1_000 * MS, 3_000 * MS);
        let after = quota.told(3_000 * MS).expect("it is known");
        assert!((after.refill.as_secs_f64() * 1e3 - 80.0).abs() <= 1.0, "{before:?} {after:?}");
        // And where the begins of the same group are others all at once, as after a change of its quota.
        let mut moved = Group { begin: 15 * MS, used: other.used, ..Group::new(3_000 * MS..9_000 * MS) };
        moved.looked = 3_000 * MS;
        watch(&mut moved, &mut quota, 3_000 * MS, 5_000 * MS);
        let moved = quota.told(5_000 * MS).expect("it is known");
        assert!((moved.refill.as_secs_f64() * 1e3 - 15.0).abs() <= 1.0, "{moved:?}");
    }

    #[test]
    fn what_was_used_while_nobody_looked_is_not_owed() {
        let (mut group, mut quota) = (Group::new(50 * MS..9_000 * MS), Quota::default());
        watch(&mut group, &mut quota, Duration::ZERO, 1_000 * MS);
        quota.take(Some(group.look(4_000 * MS)), group.answered());
        // Of 600 ms in three seconds what falls to the 62.6 ms since the last begin.
        let left_us = quota.told(4_000 * MS).expect("it is known").left_us;
        assert!((7_000..8_000).contains(&left_us), "{left_us} us");
    }

    #[test]
    fn times_are_found_before_and_after() {
        let at = |micros| Duration::from_micros(micros);
        for (time, now, expected) in
            [(10, 0, 10), (10, 9, 10), (10, 10, 110), (10, 235, 310), (510, 40, 110), (510, 110, 210)]
        {
            assert_eq!(next(at(time), at(100), at(now)), at(expected), "{time} {now}");
        }
    }
}
