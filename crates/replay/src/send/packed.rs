//! What came of a run as octets, from one process of it to another of the same program.
//!
//! ```text
//! words of 64 bits, little-endian: counters, lists and distributions behind their lengths
//! texts: a length, then octets
//! ```

use std::io;
use std::time::Duration;

use super::Done;
use super::tally::{SECONDS_MAX, Tally};
use crate::mutate::Mutation;
use crate::schedule::Met;
use crate::trace::Damage;

/// The longest text, in octets.
const TEXT_MAX: u64 = 64 << 10;

/// The most values of a distribution: buckets that a histogram of nanoseconds can have.
const VALUES_MAX: u64 = 1 << 20;

/// Packs what came of a run; differing pairs and the observed server are not part of it.
pub fn pack(done: &Done) -> Vec<u8> {
    let mut to = Packer(Vec::new());
    let mut tally = done.tally.clone();
    to.words(tally.counters().into_iter().map(|counter| *counter));
    for seconds in tally.seconds() {
        to.word(seconds.len() as u64);
        to.words(seconds.iter().copied());
    }
    for times in tally.histograms() {
        let values: Vec<(u64, u64)> =
            times.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
        to.word(values.len() as u64);
        to.words(values.into_iter().flat_map(|(value, count)| [value, count]));
    }
    let met = &done.met;
    to.words([
        met.queries,
        met.responses,
        met.unmatched,
        met.jumps,
        met.crowded,
        met.sharing,
        met.unnumbered,
    ]);
    to.words(met.skipped.counts);
    to.words([u64::try_from(done.time.as_nanos()).unwrap_or(u64::MAX), u64::from(done.interrupted)]);
    to.word(u64::try_from(done.stolen.as_nanos()).unwrap_or(u64::MAX));
    to.option(met.damage.as_ref(), |to, damage| {
        to.words([damage.packet, damage.offset]);
        to.text(&damage.what);
    });
    to.option(done.tls_error.as_ref(), |to, text| to.text(text));
    to.option(done.log_error.as_ref(), |to, error| to.text(&error.to_string()));
    to.0
}

/// Takes apart what [`pack`] has packed, of a run with the same changes to queries.
///
/// # Errors
/// It is not what [`pack`] packs.
pub fn unpack(octets: &[u8], mutation: Option<&Mutation>) -> io::Result<Done> {
    let mut from = Unpacker(octets);
    read(&mut from, mutation).filter(|_| from.0.is_empty()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "another process of this run tells something else")
    })
}

fn read(from: &mut Unpacker<'_>, mutation: Option<&Mutation>) -> Option<Done> {
    let mut tally = Tally::new(mutation);
    for counter in tally.counters() {
        *counter = from.word()?;
    }
    for seconds in tally.seconds() {
        let length = from.length(SECONDS_MAX as u64)?;
        *seconds = (0..length).map(|_| from.word()).collect::<Option<_>>()?;
    }
    for times in tally.histograms() {
        for _ in 0..from.length(VALUES_MAX)? {
            let (value, count) = (from.word()?, from.word()?);
            times.saturating_record_n(value, count);
        }
    }
    let mut met = Met::default();
    let Met { queries, responses, skipped, unmatched, jumps, crowded, sharing, unnumbered, damage: _ } =
        &mut met;
    let counts = [queries, responses, unmatched, jumps, crowded, sharing, unnumbered];
    for count in counts.into_iter().chain(&mut skipped.counts) {
        *count = from.word()?;
    }
    let (time, interrupted) = (Duration::from_nanos(from.word()?), from.word()? != 0);
    let stolen = Duration::from_nanos(from.word()?);
    met.damage =
        from.option(|from| Some(Damage { packet: from.word()?, offset: from.word()?, what: from.text()? }))?;
    let tls_error = from.option(Unpacker::text)?;
    let log_error = from.option(Unpacker::text)?.map(io::Error::other);
    let (differing, server_seconds) = (None, None);
    Some(Done { tally, met, time, interrupted, tls_error, log_error, differing, stolen, server_seconds })
}

/// Adds what another process of the same run tells.
pub fn merge(all: &mut Done, other: Done) {
    all.tally.merge(other.tally);
    // Each has read the whole trace.
    all.met = other.met;
    all.time = all.time.max(other.time);
    // Each has read the same machine.
    all.stolen = all.stolen.max(other.stolen);
    all.interrupted |= other.interrupted;
    all.tls_error = all.tls_error.take().or(other.tls_error);
    all.log_error = all.log_error.take().or(other.log_error);
}

struct Packer(Vec<u8>);

impl Packer {
    fn word(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    fn words(&mut self, words: impl IntoIterator<Item = u64>) {
        words.into_iter().for_each(|word| self.word(word));
    }

    fn text(&mut self, text: &str) {
        let end = text.floor_char_boundary(TEXT_MAX as usize);
        self.word(end as u64);
        self.0.extend(&text.as_bytes()[..end]);
    }

    fn option<T>(&mut self, option: Option<T>, some: impl FnOnce(&mut Packer, T)) {
        self.word(u64::from(option.is_some()));
        if let Some(value) = option {
            some(self, value);
        }
    }
}

struct Unpacker<'a>(&'a [u8]);

impl Unpacker<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn length(&mut self, most: u64) -> Option<usize> {
        self.word().filter(|length| *length <= most).and_then(|length| usize::try_from(length).ok())
    }

    fn text(&mut self) -> Option<String> {
        let length = self.length(TEXT_MAX)?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn option<T>(&mut self, some: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.word()? == 0 { Some(None) } else { some(self).map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::carrier::Carrier;
    use super::super::tally::Cause;
    use super::*;
    use crate::trace::Skipped;
    use dns::OptRcode;

    fn done(seed: u64, mutation: &Mutation) -> Done {
        let mut tally = Tally::new(Some(mutation));
        for at in 0..500 * seed {
            let due = at * 3_000_000;
            tally.due(due, Carrier::ALL[(at % 5) as usize]);
            tally.sent(due, due + at * seed);
            let rcode = OptRcode::masked_from_int((at % 32) as u16);
            tally.answered(due, due + at, due + 1_000 * at, rcode, at % 3 == 0);
        }
        tally.lost(Cause::Status);
        if let Some(changes) = &mut tally.mutation {
            (changes.queries, changes.changes[1].drawn) = (7 * seed, 3);
        }
        let what = "it ends in the middle of a packet".into();
        let mut skipped = Skipped::default();
        skipped.counts[5] = 3;
        Done {
            tally,
            met: Met {
                queries: 1_000,
                responses: 5,
                skipped,
                jumps: seed,
                sharing: 4_466,
                unnumbered: 8,
                damage: Some(Damage { packet: 9, offset: 77, what }),
                ..Met::default()
            },
            time: Duration::from_nanos(123 * seed),
            interrupted: seed == 2,
            tls_error: None,
            log_error: Some(io::Error::other("the disk is full")),
            differing: None,
            stolen: Duration::from_millis(10 * seed),
            server_seconds: None,
        }
    }

    #[test]
    fn what_is_packed_is_the_same_unpacked() {
        let mutation = Mutation::parse("do=100%,edns=1232@50%", 1).expect("changes");
        let (one, other) = (done(1, &mutation), done(2, &mutation));
        let octets = pack(&one);
        let unpacked = unpack(&octets, Some(&mutation)).expect("it was packed");
        assert_eq!(pack(&unpacked), octets);
        assert_eq!(unpacked.met, one.met);
        assert_eq!(unpacked.log_error.map(|error| error.to_string()).as_deref(), Some("the disk is full"));
        // Merged from octets is merged.
        let mut all = unpack(&octets, Some(&mutation)).expect("it was packed");
        merge(&mut all, unpack(&pack(&other), Some(&mutation)).expect("it was packed"));
        let mut expected = one;
        merge(&mut expected, other);
        assert_eq!(pack(&all), pack(&expected));
        assert_eq!((all.tally.queries, all.interrupted, all.met.jumps), (1_500, true, 2));
        assert_eq!(all.stolen, Duration::from_millis(20), "from all of one machine");
        assert_eq!(all.tally.lateness.max(), expected.tally.lateness.max());
    }

    #[test]
    fn anything_else_is_refused() {
        let mutation = Mutation::parse("do=100%", 1).expect("changes");
        let octets = pack(&done(1, &Mutation::parse("do=100%,edns=1232@50%", 1).expect("changes")));
        assert!(unpack(&octets, Some(&mutation)).is_err(), "of other changes");
        for end in [0, 7, octets.len() / 2, octets.len() - 1] {
            assert!(unpack(&octets[..end], Some(&mutation)).is_err(), "{end}");
        }
        assert!(unpack(&[0xff; 4_096], None).is_err());
    }
}
