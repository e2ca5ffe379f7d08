//! Response rate limiting: how many like answers one network gets a second.
//!
//! A query over UDP may come with a forged source, and its answer then floods somebody who never asked. So like
//! answers (a class, and the name they are about) to one prefix are counted, and what is over the rate is dropped, or
//! goes out truncated now and then, so that a real client comes again over TCP.
//!
//! The count is a [`Meter`]'s, whose accounts are chosen by a keyed hash.

use std::net::IpAddr;
use std::time::Duration;

use fastrand::Rng;
use routing::Meter;
use routing::meter::Rate;
use siphasher::sip::SipHasher13;

/// The most answers a second that can be chosen: beyond, no link is saved.
pub const PER_SECOND_MAX: u32 = 1_000_000;

/// The longest window: an account that was silent for as long may take all of it at once.
pub const WINDOW_MAX: Duration = Duration::from_secs(60);

/// What is limited, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Like answers to one network in a second, in the long run; 1 to [`PER_SECOND_MAX`].
    pub per_second: u32,
    /// For how long an account that was silent may save up: so many seconds of answers go out at once. At most
    /// [`WINDOW_MAX`].
    pub window: Duration,
    /// One in so many limited answers goes out truncated, the others are dropped; 0 drops all.
    pub slip: u32,
    /// The bits of an IPv4 address that are one network; 0 to 32.
    pub ipv4_prefix: u8,
    /// The bits of an IPv6 address that are one network; 0 to 128.
    pub ipv6_prefix: u8,
}

/// What an answer is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its class.
    pub class: Class,
    /// The hash of the name that it is about.
    pub name: u64,
    /// QTYPE, for positive answers; else 0.
    pub rtype: u16,
}

impl Account {
    /// What an answer is counted as that is about no name.
    pub const ERROR: Account = Account { class: Class::Error, name: 0, rtype: 0 };
}

/// A class of answers that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Records of a name, or of the wildcard or DNAME that they come from.
    Positive,
    /// A name without records of the type.
    Nodata,
    /// No such name in a zone.
    Nxdomain,
    /// A delegation.
    Referral,
    /// A response code that says no, whatever was asked.
    Error,
}

/// What response rate limiting says of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes out: it is within the rate, or nothing is limited.
    Within,
    /// It goes out, whatever the rate: the client's cookie is valid.
    Exempt,
    /// It is over the rate and goes out without its records.
    Slip,
    /// It is over the rate and does not go out.
    Drop,
}

/// The accounts of all networks, which all workers share.
pub struct RateLimit {
    limits: Limits,
    key: [u8; 16],
    rate: Rate,
    meter: Meter,
}

impl RateLimit {
    /// A table of which nothing is known yet; `key` should be secret.
    ///
    /// # Panics
    /// Where a rate or prefix is out of its range.
    pub fn new(limits: Limits, key: [u8; 16]) -> RateLimit {
        assert!((1..=PER_SECOND_MAX).contains(&limits.per_second), "a rate within its range");
        assert!(limits.ipv4_prefix <= 32 && limits.ipv6_prefix <= 128, "prefixes within addresses");
        assert!(limits.window <= WINDOW_MAX, "a window within its range");
        RateLimit { limits, key, rate: Rate::new(limits.per_second, limits.burst()), meter: Meter::new() }
    }

    /// Counts an answer to `client` at the monotonic time `now`, and says what becomes of it.
    #[inline]
    pub fn count(&self, client: IpAddr, account: Account, now: Duration, rng: &mut Rng) -> Verdict {
        // In 584 years it is too late.
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX / 2);
        if self.meter.is_within(self.hash(client, account), self.rate, now) {
            return Verdict::Within;
        }
        match self.limits.slip {
            0 => Verdict::Drop,
            slip if rng.u32(..slip) == 0 => Verdict::Slip,
            _ => Verdict::Drop,
        }
    }

    /// What nobody without the key can foresee of an account.
    fn hash(&self, client: IpAddr, account: Account) -> u64 {
        let (family, network) = match client {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.limits.ipv4_prefix)).unwrap_or(0);
                (4, u128::from(u32::from(v4) & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.limits.ipv6_prefix)).unwrap_or(0);
                (6, u128::from(v6) & mask)
            }
        };
        let mut hashed = [0; 28];
        hashed[..16].copy_from_slice(&network.to_ne_bytes());
        hashed[16..24].copy_from_slice(&account.name.to_ne_bytes());
        hashed[24..26].copy_from_slice(&account.rtype.to_ne_bytes());
        hashed[26..].copy_from_slice(&[family, account.class as u8]);
        SipHasher13::new_with_key(&self.key).hash(&hashed)
    }
}

impl Limits {
    /// How many like answers may go out at once: those of a window, and at least one.
    pub fn burst(&self) -> u64 {
        let answers = u128::from(self.per_second) * self.window.as_millis() / 1_000;
        u64::try_from(answers).unwrap_or(u64::MAX).max(1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits { per_second: 100, window: Duration::from_secs(1), slip: 2, ipv4_prefix: 24, ipv6_prefix: 56 }
    }
}

impl std::fmt::Debug for RateLimit {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimit").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    const ACCOUNT: Account = Account { class: Class::Positive, name: 7, rtype: 1 };

    fn table(limits: Limits) -> RateLimit {
        RateLimit::new(limits, [3; 16])
    }

    fn client(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// How many of `queries` at one moment are answered.
    fn answered(table: &RateLimit, from: &str, account: Account, now_ms: u64, queries: usize) -> usize {
        let (mut rng, now) = (Rng::with_seed(1), Duration::from_millis(now_ms));
        (0..queries).filter(|_| table.count(client(from), account, now, &mut rng) == Verdict::Within).count()
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let table = table(Limits { per_second: 10, ..Limits::default() });
        assert_eq!(answered(&table, "192.0.2.1", ACCOUNT, 0, 50), 10);
        assert_eq!(answered(&table, "192.0.2.1", ACCOUNT, 99, 50), 0);
        assert_eq!(answered(&table, "192.0.2.1", ACCOUNT, 100, 50), 1);
        assert_eq!(answered(&table, "192.0.2.1", ACCOUNT, 600, 50), 5);
        assert_eq!(answered(&table, "192.0.2.1", ACCOUNT, 60_000, 50), 10, "no more is saved up");
    }

    #[test]
    fn an_account_is_a_prefix_a_class_and_a_name() {
        let table = table(Limits { per_second: 5, ..Limits::default() });
        let ask = |from, account| answered(&table, from, account, 0, 9);
        assert_eq!(ask("192.0.2.1", ACCOUNT), 5);
        assert_eq!(ask("192.0.2.254", ACCOUNT), 0, "the same /24");
        assert_eq!(ask("192.0.3.1", ACCOUNT), 5);
        assert_eq!(ask("2001:db8::1", ACCOUNT), 5);
        assert_eq!(ask("2001:db8:0:ff::1", ACCOUNT), 0, "the same /56");
        assert_eq!(ask("2001:db8:0:100::1", ACCOUNT), 5);
        for other in [
            Account { class: Class::Nodata, ..ACCOUNT },
            Account { name: 8, ..ACCOUNT },
            Account { rtype: 28, ..ACCOUNT },
        ] {
            assert_eq!(ask("192.0.2.1", other), 5, "{other:?}");
        }
        let whole = super::RateLimit::new(Limits { ipv4_prefix: 0, ..table.limits }, [3; 16]);
        assert_eq!(answered(&whole, "192.0.2.1", ACCOUNT, 0, 3), 3);
        assert_eq!(answered(&whole, "10.0.0.1", ACCOUNT, 0, 9), 2, "all are one network");
    }

    #[test]
    fn one_in_slip_limited_answers_goes_out_truncated() {
        let over = |slip: u32| {
            let table = table(Limits { per_second: 1, slip, ..Limits::default() });
            let mut rng = Rng::with_seed(5);
            let mut slipped = 0;
            for _ in 0..=9_000 {
                let verdict = table.count(client("192.0.2.1"), ACCOUNT, Duration::ZERO, &mut rng);
                slipped += u32::from(verdict == Verdict::Slip);
            }
            slipped
        };
        assert_eq!((over(0), over(1)), (0, 9_000));
        for slip in [2, 3, 10] {
            let expected = 9_000 / slip;
            assert!(over(slip).abs_diff(expected) < expected / 5, "slip {slip}: {}", over(slip));
        }
    }

    #[test]
    fn threads_that_share_an_account_share_its_rate() {
        let table = table(Limits { per_second: 1_000, ..Limits::default() });
        let all: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| answered(&table, "192.0.2.1", ACCOUNT, 0, 2_000))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it counts")).sum()
        });
        assert_eq!(all, 1_000);
    }

    #[test]
    fn many_sources_hardly_disturb_one() {
        let table = table(Limits { per_second: 10, ..Limits::default() });
        let mut rng = Rng::with_seed(9);
        for _ in 0..200_000 {
            let forged = IpAddr::from(rng.u32(..).to_be_bytes());
            table.count(forged, ACCOUNT, Duration::ZERO, &mut rng);
        }
        let undisturbed =
            (0..100u8).filter(|i| answered(&table, &format!("10.0.{i}.1"), ACCOUNT, 0, 5) == 5).count();
        assert_eq!(undisturbed, 100);
    }

    /// The time between two answers at the rate, in nanoseconds.
    fn interval(limits: Limits) -> u64 {
        1_000_000_000 / u64::from(limits.per_second)
    }

    fn limits() -> impl Strategy<Value = Limits> {
        (1u32..200, 0u64..5_000).prop_map(|(per_second, window_ms)| Limits {
            per_second,
            window: Duration::from_millis(window_ms),
            ..Limits::default()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn who_stays_under_the_rate_is_never_limited(
            limits in limits(), gaps in proptest::collection::vec(0u64..3_000_000, 1..300),
        ) {
            let table = table(limits);
            let (mut rng, mut now) = (Rng::with_seed(1), 0);
            for gap in gaps {
                now += interval(limits) + gap;
                let verdict = table.count(client("192.0.2.1"), ACCOUNT, Duration::from_nanos(now), &mut rng);
                prop_assert_eq!(verdict, Verdict::Within);
            }
        }

        #[test]
        fn no_window_has_more_than_its_rate_and_a_burst(
            limits in limits(), gaps in proptest::collection::vec(0u64..40_000_000, 1..400),
        ) {
            let table = table(limits);
            let (mut rng, mut now) = (Rng::with_seed(1), 0);
            let mut times = Vec::new();
            for gap in gaps {
                now += gap;
                if table.count(client("192.0.2.1"), ACCOUNT, Duration::from_nanos(now), &mut rng) == Verdict::Within {
                    times.push(now);
                }
            }
            for (first, from) in times.iter().enumerate() {
                for (last, to) in times.iter().enumerate().skip(first) {
                    let most = limits.burst() + (to - from) / interval(limits);
                    prop_assert!((last - first + 1) as u64 <= most, "{} in {} ns", last - first + 1, to - from);
                }
            }
        }
    }
}
