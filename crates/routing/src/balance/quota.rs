//! For how long a server's quota of processor time makes it stand still.
//!
//! A container with a limit may use so much in each period; once that is used up it stands still until the next one begins,
//! for up to nearly a whole period of, mostly, 100 ms. Nothing that was seen of it says when: until then it is as fast as any.
//! So its agent tells what is left and when there will be more, and what was answered since has been paid for.
//!
//! Who will stand still is left alone until then. And of servers at rest goes the one that has saved most: what is not used
//! before the next refill is lost, and what is used too soon is missed when many queries come at once.

/// How much more or less a server counts that has used up its quota too soon, or has saved it: as much as one that has
/// queries in flight counts beside one at rest.
pub const SCARCITY_MAX: f32 = 2.0;

/// What an agent has told of its server's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// How much it may use in each period, in nanoseconds of processor time; 0 where it has no quota, or nothing is known.
    pub quota_ns: u64,
    /// From one refill to the next, in nanoseconds.
    pub period_ns: u64,
    /// When the next refill comes, in nanoseconds of the monotonic clock.
    pub refill_ns: u64,
    /// What was left when it was told, in nanoseconds; negative where it has used what was not there.
    pub left_ns: i64,
    /// What a query costs, in nanoseconds of processor time.
    pub cost_ns: u64,
    /// How many of all queries sent there had ended when it was told.
    pub ended: u64,
}

impl Quota {
    /// None, or none that is known.
    pub const NONE: Quota =
        Quota { quota_ns: 0, period_ns: 0, refill_ns: 0, left_ns: 0, cost_ns: 0, ended: 0 };

    /// How many processors it is; none without a quota.
    pub fn processors(&self) -> Option<f64> {
        let is_known = self.quota_ns > 0 && self.period_ns > 0;
        is_known.then(|| self.quota_ns as f64 / self.period_ns as f64)
    }

    /// The same at some time when so many have ended: these have been paid for, and where there was a refill, what was left
    /// is lost, and what is owed is not.
    #[must_use]
    pub fn at(self, ended: u64, now_ns: u64) -> Quota {
        if self.processors().is_none() {
            return self;
        }
        let paid_ns = ended.saturating_sub(self.ended).saturating_mul(self.cost_ns);
        let left_ns = self.left_ns.saturating_sub_unsigned(paid_ns);
        let paid = Quota { left_ns, ended: ended.max(self.ended), ..self };
        let Some(since_ns) = now_ns.checked_sub(self.refill_ns) else { return paid };
        let refills = (since_ns / self.period_ns).saturating_add(1);
        let most_ns = i64::try_from(self.quota_ns).unwrap_or(i64::MAX);
        let left_ns = left_ns.saturating_add_unsigned(refills.saturating_mul(self.quota_ns)).min(most_ns);
        let refill_ns = self.refill_ns.saturating_add(refills.saturating_mul(self.period_ns));
        Quota { left_ns, refill_ns, ..paid }
    }
}

/// What picks need of a [`Quota`] at some time, worked out beforehand: each pick looks at those of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// For how many queries there is enough, and for how many more when there is all of it again.
    affords: f32,
    refill_affords: f32,
    /// For how long it stands still before there is more, if it uses up what is left, in nanoseconds.
    rests_ns: f32,
    /// How long it stands still in a period in which it uses up all.
    still_ns: f32,
    scarcity: f32,
}

impl Budget {
    /// What it comes to at a time in nanoseconds of the monotonic clock; none without a quota.
    pub fn new(quota: Quota, now_ns: u64) -> Option<Budget> {
        let processors = quota.processors()? as f32;
        let (quota_ns, left_ns, cost_ns) =
            (quota.quota_ns as f32, quota.left_ns as f32, quota.cost_ns.max(1) as f32);
        // A quota of more than a period is that of several processors, which work on what is left at once.
        let working = processors.max(1.0);
        let refill_in_ns = quota.refill_ns.saturating_sub(now_ns) as f32;
        let scarcity = refill_in_ns * processors / left_ns.max(1.0);
        Some(Budget {
            affords: left_ns / cost_ns,
            refill_affords: quota_ns / cost_ns,
            rests_ns: (refill_in_ns - left_ns.max(0.0) / working).max(0.0),
            still_ns: (quota.period_ns as f32 - quota_ns / working).max(0.0),
            scarcity: scarcity.clamp(1.0 / SCARCITY_MAX, SCARCITY_MAX),
        })
    }

    /// For how long the server will stand still until it has answered so many, in nanoseconds.
    #[inline]
    pub fn rests_ns(&self, queries: f32) -> f32 {
        let lacking = queries - self.affords;
        if lacking <= 0.0 {
            return 0.0;
        }
        if lacking < self.refill_affords {
            return self.rests_ns;
        }
        self.rests_ns + (lacking / self.refill_affords).floor() * self.still_ns
    }

    /// How scarce it is: 1 where, evenly used, it lasts until the next refill, 2 where it is half of that; from
    /// 1 / [`SCARCITY_MAX`] to [`SCARCITY_MAX`].
    #[inline]
    pub fn scarcity(&self) -> f32 {
        self.scarcity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// 20 ms in each 100, of which 5 are left; the next refill comes at 1,060 ms. A query costs one.
    const QUOTA: Quota = Quota {
        quota_ns: 20 * MS,
        period_ns: 100 * MS,
        refill_ns: 1_060 * MS,
        left_ns: 5 * MS as i64,
        cost_ns: MS,
        ended: 700,
    };

    /// What is left of a quota when so many have ended.
    fn budget(quota: Quota, ended: u64, now_ms: u64) -> Budget {
        Budget::new(quota.at(ended, now_ms * MS), now_ms * MS).expect("it has a quota")
    }

    #[test]
    fn it_stands_still_from_when_nothing_is_left_to_the_next_refill() {
        for (what, queries, ended, now_ms, expected_ms) in [
            ("enough is left", 5_u8, 700, 1_000, 0.0),
            ("for one of them it is not", 6, 700, 1_000, 55.0),
            ("two have been paid for since", 4, 702, 1_000, 57.0),
            ("and all that was left", 1, 705, 1_010, 50.0),
            ("and more", 1, 708, 1_010, 50.0),
            ("there is more since then", 5, 705, 1_060, 0.0),
            ("what is left is not saved up", 21, 700, 1_060, 80.0),
            ("a period later", 21, 710, 1_170, 70.0),
            ("not even the next refill is enough", 26, 700, 1_000, 55.0 + 80.0),
        ] {
            let rests = budget(QUOTA, ended, now_ms).rests_ns(f32::from(queries)) / MS as f32;
            assert!((rests - expected_ms).abs() < 0.01, "{what}: {rests} ms");
        }
    }

    #[test]
    fn several_processors_use_up_what_is_left_sooner_and_hardly_rest() {
        let quota = Quota { quota_ns: 400 * MS, left_ns: 40 * MS as i64, ..QUOTA };
        let budget = budget(quota, 700, 1_000);
        let rests = [40.0, 41.0, 2_041.0].map(|queries| budget.rests_ns(queries) / MS as f32);
        assert_eq!(rests, [0.0, 50.0, 50.0]);
    }

    #[test]
    fn scarce_is_what_does_not_last() {
        for (what, ended, now_ms, expected) in [
            ("a quarter, for three fifths of a period", 700, 1_000, SCARCITY_MAX),
            ("a fifth, for a quarter", 701, 1_035, 1.25),
            ("a quarter, for a quarter", 700, 1_035, 1.0),
            ("a quarter, for a fifth", 700, 1_040, 0.8),
            ("a quarter, for less than an eighth", 700, 1_050, 1.0 / SCARCITY_MAX),
            ("nothing", 705, 1_059, SCARCITY_MAX),
            ("all, for all", 700, 1_060, 1.0),
        ] {
            let scarcity = budget(QUOTA, ended, now_ms).scarcity();
            assert!((scarcity - expected).abs() < 0.01, "{what}: {scarcity}");
        }
    }

    #[test]
    fn who_has_no_quota_has_nothing_left_of_it() {
        assert_eq!((Budget::new(Quota::NONE, 0), Quota::NONE.processors()), (None, None));
        assert_eq!(QUOTA.processors(), Some(0.2));
    }

    proptest! {
        #[test]
        fn whatever_is_told_is_a_time_and_a_share(
            quota_ns: u32, period_ns: u32, refill_ns: u64, left_ns: i32, cost_ns: u32, ended: u64,
            queries: u32, now_ended: u64, now_ns in 0..u64::MAX / 2,
        ) {
            let refill_ns = refill_ns / 2;
            let quota = Quota {
                quota_ns: quota_ns.into(), period_ns: period_ns.into(), refill_ns, left_ns: left_ns.into(),
                cost_ns: cost_ns.into(), ended,
            };
            if let Some(budget) = Budget::new(quota.at(now_ended, now_ns), now_ns) {
                let (rests, scarcity) = (budget.rests_ns(queries as f32), budget.scarcity());
                prop_assert!(rests >= 0.0 && rests.is_finite(), "{rests}");
                prop_assert!((1.0 / SCARCITY_MAX..=SCARCITY_MAX).contains(&scarcity), "{scarcity}");
            }
        }
    }
}
