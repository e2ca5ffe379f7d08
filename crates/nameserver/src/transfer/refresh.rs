//! When which zone is asked for at its primary (RFC 1034 §4.3.5, RFC 1996 §3.11). Pure: the time and the draws are
//! arguments.
//!
//! ```text
//! known ─> due ─> asked for ─┬─ confirmed ─> after `refresh`, or when a notification comes
//!                            └─ failed ────> after `retry`; not confirmed for `expire`: expired, until it is
//! ```

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use fastrand::Rng;
use net::clock::Now;

/// The shortest wait from one time that a zone is asked for to the next, whatever its SOA record or notifications say.
pub const PAUSE: Duration = Duration::from_secs(1);

/// The longest wait, whatever the SOA record says: four weeks.
pub const LONGEST: Duration = Duration::from_secs(28 * 24 * 3_600);

/// The first wait after a failure where nothing is known of the zone; each further one is twice as long.
pub const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The longest of those.
pub const LAST_RETRY: Duration = Duration::from_secs(600);

/// The share of a wait, in percent, that is drawn, so that zones that came together are not asked for together for ever.
const DRAWN: u32 = 10;

/// What an SOA record says of when to ask (RFC 1035 §3.3.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// The wait after the zone was confirmed.
    pub refresh: Duration,
    /// The wait after a failure.
    pub retry: Duration,
    /// For how long an unconfirmed zone is answered from.
    pub expire: Duration,
}

impl Timers {
    /// What the data of an SOA record says, in the bounds of [`PAUSE`] and [`LONGEST`]; `None` where it is too short.
    pub fn of(soa: &[u8]) -> Option<Timers> {
        let numbers = soa.get(soa.len().checked_sub(16)?..)?;
        let seconds = |at: usize| {
            let number = numbers[at..at + 4].try_into().expect("four octets");
            Duration::from_secs(u32::from_be_bytes(number).into())
        };
        let wait = |at| seconds(at).clamp(PAUSE, LONGEST);
        let (refresh, retry) = (wait(0), wait(4));
        // A zone that expires before it is asked for again would come and go.
        Some(Timers { refresh, retry, expire: seconds(8).max(refresh + retry) })
    }
}

/// The zones that primaries give us.
#[derive(Debug, Default)]
pub struct Refreshes {
    zones: BTreeMap<Vec<u8>, Refresh>,
    /// Those that are not being asked for, in order of time.
    by_time: BTreeSet<(Duration, Vec<u8>)>,
}

/// How it stands with one zone.
#[derive(Clone, Debug)]
pub struct Refresh {
    /// What its SOA record says; absent where nothing of it is here.
    timers: Option<Timers>,
    /// When it expires unless it is confirmed before; absent where nothing of it is here.
    expires: Option<Duration>,
    /// When it was last confirmed, in Unix time in seconds; absent where it never was.
    confirmed_at: Option<u64>,
    /// What the store has of that.
    stored_at: Option<u64>,
    /// When it is asked for; what is being asked for has no such time.
    next: Option<Duration>,
    /// When it was last asked for.
    begun: Duration,
    /// How often in a row asking has failed.
    failures: u32,
    /// A notification came while it was being asked for.
    again: bool,
    /// Who sent the last notification since it was asked for: there the change is.
    told_by: Option<IpAddr>,
    is_expired: bool,
    /// Why asking has failed last; absent where it has not.
    why: Option<String>,
}

impl Refresh {
    /// When it was last confirmed, in Unix time in seconds; `None` where it never was.
    pub fn confirmed_at(&self) -> Option<u64> {
        self.confirmed_at
    }

    /// Whether it may not be answered from any more.
    pub fn is_expired(&self) -> bool {
        self.is_expired
    }

    /// Why asking has failed last; `None` where it has not.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// When it expires, where it has not.
    fn expires(&self) -> Option<Duration> {
        self.expires.filter(|_| !self.is_expired)
    }
}

/// A zone that is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What its SOA record says; absent where nothing of it is here.
    pub timers: Option<Timers>,
    /// When it was last confirmed as far as the store knows, in Unix time in seconds. Where it does not, the time to expire
    /// begins now.
    pub confirmed_at: Option<u64>,
}

impl Refreshes {
    /// Keeps these zones and forgets all others; new ones are due now, and so are those that were here and are not any more.
    /// Returns those of the forgotten that had expired: whose they are now, nobody has to confirm.
    #[must_use = "what had expired is answered from again"]
    pub fn keep<'z>(&mut self, zones: impl Iterator<Item = (&'z [u8], Kept)>, now: Now) -> Vec<Vec<u8>> {
        let mut kept = HashSet::new();
        for (zone, Kept { timers, confirmed_at }) in zones {
            kept.insert(zone.to_vec());
            let known = self.zones.get(zone);
            let is_gone = known.is_some_and(|known| known.timers.is_some() && timers.is_none());
            if known.is_none() || is_gone {
                // A clock that was set back since leaves it all its time.
                let age = confirmed_at.map_or(0, |at| now.unix.as_secs().saturating_sub(at));
                let left = timers.map(|timers| timers.expire.saturating_sub(Duration::from_secs(age)));
                let now = now.monotonic;
                let new = Refresh {
                    timers,
                    expires: left.map(|left| now.saturating_add(left)),
                    confirmed_at,
                    stored_at: confirmed_at,
                    next: Some(now),
                    begun: Duration::ZERO,
                    failures: 0,
                    again: false,
                    told_by: None,
                    is_expired: false,
                    why: None,
                };
                let before = self.zones.insert(zone.to_vec(), new);
                if let Some(next) = before.and_then(|before| before.next) {
                    self.by_time.remove(&(next, zone.to_vec()));
                }
                self.by_time.insert((now, zone.to_vec()));
            }
        }
        self.by_time.retain(|(_, zone)| kept.contains(zone));
        let forgotten = self.zones.extract_if(.., |zone, _| !kept.contains(zone));
        forgotten.filter(|(_, refresh)| refresh.is_expired).map(|(zone, _)| zone).collect()
    }

    /// All zones, by name in wire form.
    pub fn zones(&self) -> impl ExactSizeIterator<Item = (&[u8], &Refresh)> {
        self.zones.iter().map(|(zone, refresh)| (zone.as_slice(), refresh))
    }

    /// Whether a zone is one of these and may not be answered from any more.
    pub fn is_expired(&self, zone: &[u8]) -> bool {
        self.zones.get(zone).is_some_and(Refresh::is_expired)
    }

    /// When a zone is to be asked for next.
    pub fn next_due(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// When a zone expires next, as far as none is confirmed before.
    pub fn next_expired(&self) -> Option<Duration> {
        self.zones.values().filter_map(Refresh::expires).min()
    }

    /// A zone that is to be asked for now, and who told of it, where somebody did; [`confirmed`](Refreshes::confirmed) or
    /// [`failed`](Refreshes::failed) follows.
    pub fn due(&mut self, now: Duration) -> Option<(Vec<u8>, Option<IpAddr>)> {
        let (_, zone) = self.by_time.first().filter(|(at, _)| *at <= now)?.clone();
        self.by_time.pop_first();
        let refresh = self.zones.get_mut(&zone)?;
        (refresh.next, refresh.begun, refresh.again) = (None, now, false);
        Some((zone, refresh.told_by.take()))
    }

    /// A zone that expires now: it is told once.
    pub fn expired(&mut self, now: Duration) -> Option<Vec<u8>> {
        let is_due = |refresh: &Refresh| refresh.expires().is_some_and(|at| at <= now);
        let (zone, refresh) = self.zones.iter_mut().find(|(_, refresh)| is_due(refresh))?;
        refresh.is_expired = true;
        Some(zone.clone())
    }

    /// Has a zone asked for soon, as a notification came from this address; returns whether it is one of these.
    pub fn notified(&mut self, zone: &[u8], by: IpAddr, now: Duration) -> bool {
        let Some(refresh) = self.zones.get_mut(zone) else { return false };
        refresh.told_by = Some(by);
        match refresh.next {
            None => refresh.again = true,
            Some(next) => {
                let soon = now.max(refresh.begun.saturating_add(PAUSE)).min(next);
                self.by_time.remove(&(next, zone.to_vec()));
                self.by_time.insert((soon, zone.to_vec()));
                refresh.next = Some(soon);
            }
        }
        true
    }

    /// Notes that a zone is as its primary has it; returns whether it had expired.
    pub fn confirmed(&mut self, zone: &[u8], timers: Timers, now: Now, rng: &mut Rng) -> bool {
        let Some(refresh) = self.zones.get_mut(zone) else { return false };
        let had_expired = std::mem::take(&mut refresh.is_expired);
        (refresh.timers, refresh.expires) = (Some(timers), Some(now.monotonic.saturating_add(timers.expire)));
        refresh.confirmed_at = Some(now.unix.as_secs());
        (refresh.failures, refresh.why) = (0, None);
        self.wait(zone, now.monotonic, drawn(timers.refresh, rng));
        had_expired
    }

    /// What the store does not have yet: zones, and when they were last confirmed, in Unix time in seconds.
    pub fn unstored(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let unstored = self.zones.iter().filter(|(_, refresh)| refresh.confirmed_at != refresh.stored_at);
        unstored.filter_map(|(zone, refresh)| Some((zone.as_slice(), refresh.confirmed_at?)))
    }

    /// Notes that the store has a zone confirmed at this time.
    pub fn stored(&mut self, zone: &[u8], at: u64) {
        if let Some(refresh) = self.zones.get_mut(zone) {
            refresh.stored_at = Some(at);
        }
    }

    /// Notes that asking has failed, and why; returns whether this is the first time in a row, or another cause.
    pub fn failed(&mut self, zone: &[u8], why: String, now: Duration, rng: &mut Rng) -> bool {
        let Some(refresh) = self.zones.get_mut(zone) else { return false };
        let is_new = refresh.why.as_ref() != Some(&why);
        let wait = match refresh.timers {
            Some(timers) => timers.retry,
            None => FIRST_RETRY.saturating_mul(1 << refresh.failures.min(16)).min(LAST_RETRY),
        };
        (refresh.failures, refresh.why) = (refresh.failures.saturating_add(1), Some(why));
        self.wait(zone, now, drawn(wait, rng));
        is_new
    }

    fn wait(&mut self, zone: &[u8], now: Duration, wait: Duration) {
        let Some(refresh) = self.zones.get_mut(zone) else { return };
        let wait = if std::mem::take(&mut refresh.again) { PAUSE } else { wait.max(PAUSE) };
        let next = now.saturating_add(wait);
        if let Some(before) = refresh.next.replace(next) {
            self.by_time.remove(&(before, zone.to_vec()));
        }
        self.by_time.insert((next, zone.to_vec()));
    }
}

/// A wait that is shorter by up to [`DRAWN`] percent.
fn drawn(wait: Duration, rng: &mut Rng) -> Duration {
    wait - wait.mul_f64(rng.f64() * f64::from(DRAWN) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const A: &[u8] = b"\x01a\0";
    const B: &[u8] = b"\x01b\0";

    const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn due(zones: &mut Refreshes, now: Duration) -> Option<Vec<u8>> {
        zones.due(now).map(|(zone, _)| zone)
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(seconds: u64) -> Now {
        Now { monotonic: s(seconds), unix: s(1_700_000_000 + seconds) }
    }

    fn timers(refresh: u64, retry: u64, expire: u64) -> Timers {
        Timers { refresh: s(refresh), retry: s(retry), expire: s(expire) }
    }

    /// A zone with these timers, of which the store does not know when it was confirmed.
    fn unknown(timers: Option<Timers>) -> Kept {
        Kept { timers, confirmed_at: None }
    }

    fn within(at: Option<Duration>, wait: Duration) -> bool {
        at.is_some_and(|at| at <= wait && at >= wait.mul_f64(0.89))
    }

    #[test]
    fn a_zone_is_asked_for_as_its_soa_record_says() {
        let (mut zones, mut rng) = (Refreshes::default(), Rng::with_seed(1));
        assert!(zones.keep([(A, unknown(None))].into_iter(), at(0)).is_empty());
        assert_eq!(due(&mut zones, s(0)), Some(A.to_vec()));
        assert_eq!(due(&mut zones, s(0)), None, "it is being asked for");
        assert!(!zones.confirmed(A, timers(3600, 600, 86_400), at(0), &mut rng));
        assert!(within(zones.next_due(), s(3600)), "{:?}", zones.next_due());
        let next = zones.next_due().unwrap();
        assert_eq!(due(&mut zones, next - s(1)), None);
        assert_eq!(due(&mut zones, next), Some(A.to_vec()));
        assert!(zones.failed(A, "nobody answers".into(), next, &mut rng));
        assert!(within(zones.next_due().map(|later| later - next), s(600)), "{:?}", zones.next_due());
        let next = zones.next_due().unwrap();
        assert_eq!(due(&mut zones, next), Some(A.to_vec()));
        assert!(!zones.failed(A, "nobody answers".into(), next, &mut rng), "the same again");
        assert!(zones.failed(A, "it refuses".into(), next, &mut rng), "another cause");
        let (_, refresh) = zones.zones().next().unwrap();
        assert_eq!((refresh.confirmed_at(), refresh.why()), (Some(1_700_000_000), Some("it refuses")));
    }

    #[test]
    fn what_was_never_here_is_asked_for_ever_less_often() {
        let (mut zones, mut rng) = (Refreshes::default(), Rng::with_seed(2));
        assert!(zones.keep([(A, unknown(None))].into_iter(), at(0)).is_empty());
        let mut waits = Vec::new();
        let mut now = s(0);
        for _ in 0..12 {
            assert_eq!(due(&mut zones, now), Some(A.to_vec()));
            zones.failed(A, String::new(), now, &mut rng);
            let next = zones.next_due().unwrap();
            waits.push((next - now).as_secs_f64());
            now = next;
        }
        for (at, wait) in waits.iter().enumerate() {
            let wanted = 2f64.powi(at as i32).min(600.0);
            assert!(*wait <= wanted && *wait >= (wanted * 0.89).max(1.0), "{at}: {wait} of {wanted}");
        }
        assert_eq!(zones.expired(s(1_000_000_000)), None, "there is nothing to expire");
    }

    #[test]
    fn an_unconfirmed_zone_expires_once_and_comes_back() {
        let (mut zones, mut rng) = (Refreshes::default(), Rng::with_seed(3));
        let soa = timers(100, 50, 1_000);
        assert!(
            zones
                .keep(
                    [(A, unknown(Some(soa))), (B, unknown(Some(timers(100, 50, 2_000))))].into_iter(),
                    at(10)
                )
                .is_empty()
        );
        assert_eq!(zones.expired(s(1_009)), None);
        assert_eq!(zones.expired(s(1_010)).as_deref(), Some(A));
        assert_eq!(zones.expired(s(1_010)), None, "it is told once");
        assert!(zones.zones().find(|(zone, _)| *zone == A).unwrap().1.is_expired());
        for _ in 0..2 {
            zones.due(s(1_010));
        }
        assert!(zones.confirmed(A, soa, at(1_010), &mut rng), "it had expired");
        assert!(!zones.confirmed(B, soa, at(1_010), &mut rng));
        assert_eq!(zones.expired(s(2_009)), None);
        assert_eq!(zones.expired(s(2_010)).as_deref(), Some(A));
        assert_eq!(zones.expired(s(2_010)).as_deref(), Some(B));
        assert_eq!(zones.keep([(B, unknown(Some(soa)))].into_iter(), at(2_020)), [A], "its primary is gone");
        assert!(zones.is_expired(B) && !zones.is_expired(A));
    }

    #[test]
    fn a_zone_that_is_here_no_more_is_asked_for_at_once() {
        let (mut zones, mut rng) = (Refreshes::default(), Rng::with_seed(4));
        let soa = timers(100, 50, 1_000);
        assert!(zones.keep([(A, unknown(None))].into_iter(), at(10)).is_empty());
        assert_eq!(zones.due(s(10)), Some((A.to_vec(), None)));
        zones.confirmed(A, soa, at(10), &mut rng);
        assert!(zones.keep([(A, unknown(Some(soa)))].into_iter(), at(20)).is_empty());
        assert_eq!(zones.due(s(20)), None);
        assert!(zones.keep([(A, unknown(None))].into_iter(), at(30)).is_empty());
        assert_eq!(zones.due(s(30)), Some((A.to_vec(), None)));
        assert_eq!((zones.due(s(30)), zones.next_due(), zones.next_expired()), (None, None, None));
    }

    #[test]
    fn the_time_to_expire_goes_on_while_nobody_is_there() {
        let (mut zones, mut rng) = (Refreshes::default(), Rng::with_seed(6));
        let soa = timers(100, 50, 1_000);
        let ago =
            |seconds: u64| Kept { timers: Some(soa), confirmed_at: Some(at(5_000).unix.as_secs() - seconds) };
        let ahead = Kept { confirmed_at: Some(at(9_000).unix.as_secs()), ..ago(0) };
        let never = Kept { timers: None, ..ago(2_000) };
        let kept: [(&[u8], Kept); 4] =
            [(A, ago(1_000)), (B, ago(900)), (b"\x01c\0", ahead), (b"\x01d\0", never)];
        assert!(zones.keep(kept.into_iter(), at(5_000)).is_empty());
        assert_eq!(zones.expired(s(5_000)).as_deref(), Some(A));
        assert_eq!((zones.expired(s(5_099)), zones.next_expired()), (None, Some(s(5_100))));
        assert_eq!(zones.expired(s(5_100)).as_deref(), Some(B));
        assert_eq!(zones.next_expired(), Some(s(6_000)), "a clock that was set back leaves all the time");
        assert_eq!(zones.unstored().count(), 0, "it comes from the store");
        assert!(zones.confirmed(A, soa, at(5_200), &mut rng), "it had expired");
        assert_eq!(zones.unstored().collect::<Vec<_>>(), [(A, 1_700_005_200)]);
        zones.stored(A, 1_700_005_200);
        assert_eq!(zones.unstored().count(), 0);
    }

    #[test]
    fn notifications_hasten_but_not_beyond_the_pause() {
        let (mut zones, mut rng) = (Refreshes::default(), Rng::with_seed(4));
        assert!(zones.keep([(A, unknown(None))].into_iter(), at(0)).is_empty());
        zones.due(s(0));
        let soa = timers(3600, 600, 86_400);
        assert!(zones.notified(A, US, s(0)), "while it is being asked for");
        zones.confirmed(A, soa, at(2), &mut rng);
        assert_eq!(zones.next_due(), Some(s(2) + PAUSE), "what was told meanwhile may not be in it");
        assert_eq!(due(&mut zones, s(3)), Some(A.to_vec()));
        zones.confirmed(A, soa, at(3), &mut rng);
        assert!(zones.notified(A, US, s(3)));
        assert_eq!(zones.next_due(), Some(s(3) + PAUSE));
        assert!(zones.notified(A, US, s(3)), "a second one changes nothing");
        assert_eq!(zones.next_due(), Some(s(3) + PAUSE));
        assert_eq!(due(&mut zones, s(4)), Some(A.to_vec()));
        zones.confirmed(A, soa, at(4), &mut rng);
        assert!(zones.notified(A, US, s(1_000)));
        assert_eq!(zones.due(s(1_000)), Some((A.to_vec(), Some(US))), "at once");
        zones.confirmed(A, soa, at(1_000), &mut rng);
        assert_eq!(zones.due(s(5_000)), Some((A.to_vec(), None)), "nobody has told of anything since");
        assert!(!zones.notified(B, US, s(1_000)), "it is none of these");
    }

    #[test]
    fn zones_come_and_go() {
        let (mut zones, mut rng) = (Refreshes::default(), Rng::with_seed(5));
        assert!(zones.keep([(A, unknown(None)), (B, unknown(None))].into_iter(), at(0)).is_empty());
        zones.due(s(0));
        assert!(zones.keep([(B, unknown(None))].into_iter(), at(1)).is_empty());
        assert!(!zones.confirmed(A, timers(1, 1, 2), at(1), &mut rng), "it is none of these any more");
        assert_eq!(due(&mut zones, s(1)), Some(B.to_vec()));
        assert_eq!((zones.next_due(), zones.zones().len()), (None, 1));
    }

    #[test]
    fn the_record_is_held_to_bounds() {
        let soa = |numbers: [u32; 5]| -> Vec<u8> {
            [&b"\0\0"[..], &numbers.map(u32::to_be_bytes).concat()].concat()
        };
        assert_eq!(Timers::of(&soa([9, 7200, 600, 86_400, 60])), Some(timers(7200, 600, 86_400)));
        let least = Timers::of(&soa([9, 0, 0, 0, 0])).unwrap();
        assert_eq!(least, Timers { refresh: PAUSE, retry: PAUSE, expire: 2 * PAUSE });
        let most = Timers::of(&soa([9, u32::MAX, u32::MAX, 0, 0])).unwrap();
        assert_eq!(most, Timers { refresh: LONGEST, retry: LONGEST, expire: 2 * LONGEST });
        assert_eq!(Timers::of(&[0; 15]), None);
    }
}
