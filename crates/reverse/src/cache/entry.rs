//! What is known of an address.

use std::time::Duration;

/// What is known of an address, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether there is a name, none, or nothing known yet.
    pub state: State,
    /// Until when, in seconds since 1970.
    pub expiry: u32,
    /// For how long it was to be known when it was learned, in seconds; kept to about 1/8192.
    pub life: u32,
    /// Failures in a row, 0 to 15; 15 stands for all beyond.
    pub failures: u8,
    /// Whether the name leads back to the address; [`Verdict::NotYet`] for all that is no name.
    pub verdict: Verdict,
}

/// Whether a name leads back to its address: what makes a name worth more than its owner's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody was asked, or nobody has answered.
    NotYet,
    /// The address is among those of the name.
    Confirmed,
    /// The name has other addresses, or none.
    Mismatch,
}

impl Verdict {
    /// The verdicts in the order in which they are counted.
    pub const ALL: [Verdict; 3] = [Verdict::NotYet, Verdict::Confirmed, Verdict::Mismatch];

    /// As the faces and the metrics say it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::NotYet => "not_yet",
            Verdict::Confirmed => "confirmed",
            Verdict::Mismatch => "mismatch",
        }
    }
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has a name.
    Name,
    /// It has none, says who should know.
    NoName,
    /// It was asked for; there is no answer yet. Rapid DNS's "empty entry".
    Asked,
    /// It could not be learned.
    Failed(Why),
}

/// Why a name could not be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No answer came.
    Timeout,
    /// The upstream said SERVFAIL.
    Servfail,
    /// The upstream said REFUSED, or another code that is no answer.
    Refused,
    /// What came back was no answer to the question.
    Malformed,
    /// There is a name, but none that is kept ([`crate::name`]).
    Unusable,
}

impl Why {
    /// The reasons in the order in which they are counted.
    pub const ALL: [Why; 5] = [Why::Timeout, Why::Servfail, Why::Refused, Why::Malformed, Why::Unusable];

    /// As the faces and the metrics say it.
    pub fn word(self) -> &'static str {
        match self {
            Why::Timeout => "timeout",
            Why::Servfail => "servfail",
            Why::Refused => "refused",
            Why::Malformed => "malformed",
            Why::Unusable => "unusable",
        }
    }
}

impl Entry {
    /// An entry that is learned at `now`, in seconds since 1970, for so long.
    pub fn new(state: State, now: u32, life: Duration) -> Entry {
        let life = u32::try_from(life.as_secs()).unwrap_or(u32::MAX).min(LIFE_MAX);
        let expiry = now.saturating_add(life);
        Entry { state, expiry, life, failures: 0, verdict: Verdict::NotYet }
    }

    /// Seconds from when it was learned to `now`, in seconds since 1970.
    pub fn age(&self, now: u32) -> u32 {
        now.saturating_sub(self.expiry.saturating_sub(self.life))
    }

    /// Seconds from `now`, in seconds since 1970, until it expires; zero once it has.
    pub fn left(&self, now: u32) -> u32 {
        self.expiry.saturating_sub(now)
    }

    /// Whether it is in the last tenth of its life.
    pub fn is_ending(&self, now: u32) -> bool {
        self.left(now) <= self.life / 10
    }

    /// Whether it has expired at `now`, in seconds since 1970; also where the clock was set back since it was learned, so
    /// that it would be known for longer than it was to be.
    pub fn is_stale(&self, now: u32) -> bool {
        now >= self.expiry || self.expiry - now > self.life.saturating_add(self.life / 4096 + SET_BACK)
    }

    /// Whether what it says is told at `now`, in seconds since 1970: until it expires, and for `stale` seconds after, also
    /// where it could not be renewed.
    pub fn is_told(&self, now: u32, stale: u32) -> bool {
        let is_fresh = !self.is_stale(now) && self.failures == 0;
        is_fresh || stale > 0 && now < self.expiry.saturating_add(stale)
    }

    /// Whether it stays in the cache at `now`, in seconds since 1970, where names and absences do for `stale` seconds
    /// after they have expired: as long as it may be told, whatever the clock said before.
    pub(super) fn is_kept(&self, now: u32, stale: u32) -> bool {
        let kept = match self.state {
            State::Name | State::NoName => stale,
            State::Failed(_) => FAILURES_KEPT,
            State::Asked => 0,
        };
        now < self.expiry.saturating_add(kept)
    }

    /// The same entry, which could not be renewed at `now`, in seconds since 1970, and is left alone for `wait` seconds; its
    /// age goes on.
    ///
    /// Of a long life some bits are lost each time that it is kept. So it is rounded up or down by the seconds of the
    /// clock: over many failures, ages come out right.
    pub fn postponed(&self, now: u32, wait: u32, failures: u8) -> Entry {
        let life = self.age(now).saturating_add(wait).min(LIFE_MAX);
        let step = 1 << (32 - life.leading_zeros()).saturating_sub(13);
        let life = life.saturating_add(now % step) / step * step;
        Entry { expiry: now.saturating_add(wait), life, failures, ..*self }
    }
}

/// How many seconds a failure is remembered beyond its time, so that the next one in a row waits longer: the
/// longest back-off of RFC 9520.
const FAILURES_KEPT: u32 = 300;

/// By how many seconds a clock may be set back without an effect: clocks that are kept right move less.
const SET_BACK: u32 = 60;

/// The longest life that an entry can have, in seconds: more than four years.
pub const LIFE_MAX: u32 = 8191 << 14;

/// What a slot may hold, in four bits of its word; 0 stands for nothing, and nothing was there.
pub(super) const GONE: u64 = 1;
pub(super) const BUSY: u64 = 2;
const NAME: u64 = 3;
const NO_NAME: u64 = 4;
const ASKED: u64 = 5;
const FAILED: u64 = 6;
const CONFIRMED: u64 = 11;
const MISMATCH: u64 = 12;

/// ```text
/// bits 63..56  version: one more with each change of the slot
///      55..52  failures
///      51..48  what it holds
///      47..32  life: exponent 4 bits, fraction 12 bits
///      31..0   expiry
/// ```
pub(super) fn pack(entry: &Entry, version: u64) -> u64 {
    let kind = match entry.state {
        State::Name => match entry.verdict {
            Verdict::NotYet => NAME,
            Verdict::Confirmed => CONFIRMED,
            Verdict::Mismatch => MISMATCH,
        },
        State::NoName => NO_NAME,
        State::Asked => ASKED,
        State::Failed(why) => FAILED + why as u64,
    };
    let life = u64::from(pack_life(entry.life));
    version << 56
        | u64::from(entry.failures.min(15)) << 52
        | kind << 48
        | life << 32
        | u64::from(entry.expiry)
}

/// `None` for a slot that holds no entry.
#[inline]
pub(super) fn unpack(word: u64) -> Option<Entry> {
    let (state, verdict) = MEANINGS[kind(word) as usize]?;
    Some(Entry {
        state,
        expiry: word as u32,
        life: unpack_life((word >> 32) as u16),
        failures: (word >> 52) as u8 & 15,
        verdict,
    })
}

/// What a slot holds, by its four bits: a table, for no processor foresees what the next slot holds.
const MEANINGS: [Option<(State, Verdict)>; 16] = {
    let mut all = [None; 16];
    all[NAME as usize] = Some((State::Name, Verdict::NotYet));
    all[CONFIRMED as usize] = Some((State::Name, Verdict::Confirmed));
    all[MISMATCH as usize] = Some((State::Name, Verdict::Mismatch));
    all[NO_NAME as usize] = Some((State::NoName, Verdict::NotYet));
    all[ASKED as usize] = Some((State::Asked, Verdict::NotYet));
    let mut why = 0;
    while why < Why::ALL.len() {
        all[FAILED as usize + why] = Some((State::Failed(Why::ALL[why]), Verdict::NotYet));
        why += 1;
    }
    all
};

#[inline]
pub(super) fn kind(word: u64) -> u64 {
    word >> 48 & 15
}

pub(super) fn version(word: u64) -> u64 {
    word >> 56
}

fn pack_life(life: u32) -> u16 {
    let life = life.min(LIFE_MAX);
    let exponent = (32 - life.leading_zeros()).saturating_sub(12);
    match exponent {
        0 => life as u16,
        _ => (exponent << 12) as u16 | (life >> (exponent - 1)) as u16 & 0xfff,
    }
}

#[inline]
fn unpack_life(packed: u16) -> u32 {
    let (exponent, fraction) = (u32::from(packed >> 12), u32::from(packed & 0xfff));
    let highest = u32::from(exponent > 0) << 12;
    (highest | fraction) << exponent.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_lives_are_kept_to_the_second() {
        for life in [0, 1, 60, 4095, 4096, 8191, 8192, 86_400, 7 * 86_400, 300, 120] {
            assert_eq!(unpack_life(pack_life(life)), life, "{life}");
        }
        assert_eq!(unpack_life(pack_life(u32::MAX)), LIFE_MAX);
    }

    #[test]
    fn ages_and_what_is_left() {
        let entry = Entry::new(State::Name, 1000, Duration::from_secs(100));
        assert_eq!((entry.age(1030), entry.left(1030), entry.is_stale(1099)), (30, 70, false));
        assert_eq!((entry.age(1150), entry.left(1150), entry.is_stale(1100)), (150, 0, true));
    }

    #[test]
    fn a_clock_that_is_set_back_lengthens_no_life() {
        for life in [0, 1, 10_001, 86_399, LIFE_MAX] {
            let now = 1_000_000_000;
            let entry = Entry::new(State::Failed(Why::Timeout), now, Duration::from_secs(life.into()));
            let kept = unpack(pack(&entry, 0)).unwrap();
            assert_eq!(
                [now, now - 60, now - 3600 - life / 2000].map(|now| kept.is_stale(now)),
                [life == 0, false, true]
            );
        }
    }

    #[test]
    fn ages_go_on_over_many_failures() {
        for life in [1u32, 86_400, 7 * 86_400, 30 * 86_400] {
            let mut entry = Entry::new(State::Name, 1_000_000, Duration::from_secs(life.into()));
            let end = entry.expiry + 3 * 86_400;
            while entry.expiry < end {
                entry = unpack(pack(&entry.postponed(entry.expiry + 7, 300, 1), 0)).unwrap();
            }
            let (age, expected) = (entry.age(end), end - 1_000_000);
            assert!(age.abs_diff(expected) < 86_400 / 4, "{life}: {age} and not {expected}");
        }
    }

    proptest! {
        #[test]
        fn an_entry_is_packed_and_unpacked(
            expiry: u32, life in 0..=LIFE_MAX, failures in 0..16u8, state in 0..10usize, version: u8,
        ) {
            let (state, verdict) = match state {
                0..3 => (State::Name, Verdict::ALL[state]),
                3 => (State::NoName, Verdict::NotYet),
                4 => (State::Asked, Verdict::NotYet),
                n => (State::Failed(Why::ALL[n - 5]), Verdict::NotYet),
            };
            let word = pack(&Entry { state, expiry, life, failures, verdict }, u64::from(version));
            let read = unpack(word).unwrap();
            prop_assert_eq!((read.state, read.expiry, read.failures, read.verdict), (state, expiry, failures, verdict));
            prop_assert!(read.life <= life && life - read.life <= life / 4096);
        }

        #[test]
        fn any_word_is_read(word: u64) {
            unpack(word);
        }
    }
}
