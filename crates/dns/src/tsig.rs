//! The TSIG record of a message: where it is and what it says (RFC 8945 §4.2). Nothing is verified here.

use std::borrow::Cow;

use domain::base::iana::{Class, Rtype};
use domain::base::{ParsedName, ToName};
use domain::dep::octseq::Parser;

use crate::name::Folded;
use crate::query::{HEADER, skip_name};

/// The octets of a record between its owner and its data.
const RECORD: usize = 10;

/// A TSIG record as it stands at the end of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tsig<'a> {
    /// Where the record begins: what is before it was signed.
    pub start: usize,
    /// The key's name, in the case in which it was sent.
    pub key: Cow<'a, [u8]>,
    /// The algorithm's name, as sent.
    pub algorithm: &'a [u8],
    /// When it was signed, in seconds since 1970-01-01 00:00 UTC; 48 bits.
    pub time: u64,
    /// By how many seconds the clocks may differ.
    pub fudge: u16,
    /// The message authentication code.
    pub mac: &'a [u8],
    /// The message's id when it was signed.
    pub original_id: u16,
    /// The error, in responses.
    pub error: u16,
    /// Other data: the server's time, where the error is BADTIME.
    pub other: &'a [u8],
}

/// A TSIG record that cannot be interpreted, is not the last one, or a message that breaks off: FORMERR (RFC 8945
/// §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Tsig<'a> {
    /// Finds and reads the TSIG record of a message; `None` where it has none.
    ///
    /// The algorithm's name must not be compressed (RFC 8945 §4.2); the key's is an owner, and may be. Octets after the last
    /// record are ignored.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(message: &'a [u8]) -> Result<Option<Tsig<'a>>, Malformed> {
        let Some(header) = message.first_chunk::<HEADER>() else { return Ok(None) };
        let count = |at: usize| u32::from(u16::from_be_bytes([header[at], header[at + 1]]));
        if count(10) == 0 {
            return Ok(None);
        }
        let mut at = HEADER;
        for _ in 0..count(4) {
            at = skip_name(message, at).ok_or(Malformed)? + 4;
        }
        for left in (0..count(6) + count(8) + count(10)).rev() {
            let fixed = skip_name(message, at).ok_or(Malformed)?;
            let head = message.get(fixed..fixed + RECORD).ok_or(Malformed)?;
            let end = fixed + RECORD + usize::from(u16::from_be_bytes([head[8], head[9]]));
            if head[..2] == Rtype::TSIG.to_int().to_be_bytes() {
                let data = message.get(fixed + RECORD..end).ok_or(Malformed)?;
                let is_in_place =
                    left == 0 && head[2..4] == Class::ANY.to_int().to_be_bytes() && head[4..8] == [0; 4];
                let tsig = owner(message, at, fixed).and_then(|key| Tsig::read_data(at, key, data));
                return tsig.filter(|_| is_in_place).map(Some).ok_or(Malformed);
            }
            at = end;
        }
        Ok(None)
    }

    fn read_data(start: usize, key: Cow<'a, [u8]>, data: &'a [u8]) -> Option<Tsig<'a>> {
        let (algorithm, rest) = data.split_at_checked(skip_name(data, 0)?)?;
        let (time, rest) = rest.split_first_chunk::<6>()?;
        let (fudge, rest) = number(rest)?;
        let (mac_length, rest) = number(rest)?;
        let (mac, rest) = rest.split_at_checked(usize::from(mac_length))?;
        let (original_id, rest) = number(rest)?;
        let (error, rest) = number(rest)?;
        let (other_length, other) = number(rest)?;
        let is_whole = is_name(algorithm) && other.len() == usize::from(other_length);
        let time = time.iter().fold(0, |time, octet| time << 8 | u64::from(*octet));
        is_whole.then_some(Tsig { start, key, algorithm, time, fudge, mac, original_id, error, other })
    }

    /// Writes the record behind a message of `length` octets and counts it in ADDITIONAL; returns the new length.
    ///
    /// `None` where `out` is too short; then nothing is changed.
    pub fn append(&self, out: &mut [u8], length: usize) -> Option<usize> {
        let end = length + self.written();
        if end > out.len() || length < HEADER {
            return None;
        }
        let data = self.written() - self.key.len() - RECORD;
        let mut at = length;
        let mut put = |octets: &[u8]| {
            out[at..at + octets.len()].copy_from_slice(octets);
            at += octets.len();
        };
        put(&self.key);
        put(&Rtype::TSIG.to_int().to_be_bytes());
        put(&Class::ANY.to_int().to_be_bytes());
        put(&[0; 4]);
        put(&(data as u16).to_be_bytes());
        put(self.algorithm);
        put(&self.time.to_be_bytes()[2..]);
        put(&self.fudge.to_be_bytes());
        put(&(self.mac.len() as u16).to_be_bytes());
        put(self.mac);
        put(&self.original_id.to_be_bytes());
        put(&self.error.to_be_bytes());
        put(&(self.other.len() as u16).to_be_bytes());
        put(self.other);
        let count = u16::from_be_bytes([out[10], out[11]]).wrapping_add(1);
        out[10..12].copy_from_slice(&count.to_be_bytes());
        Some(end)
    }

    /// The octets that the record takes in a message.
    pub fn written(&self) -> usize {
        self.key.len() + RECORD + self.algorithm.len() + 16 + self.mac.len() + self.other.len()
    }
}

/// The name that stands in a message from `at` to `end`, where it may end in a pointer.
fn owner(message: &[u8], at: usize, end: usize) -> Option<Cow<'_, [u8]>> {
    let sent = &message[at..end];
    if is_name(sent) {
        return Some(sent.into());
    }
    let mut parser = Parser::from_ref(message);
    parser.advance(at).ok()?;
    let name = ParsedName::parse(&mut parser).ok()?;
    Some(name.to_vec().into_octets().into())
}

/// Whether these octets are one whole name without compression.
fn is_name(wire: &[u8]) -> bool {
    Folded::read(wire).is_some_and(|name| name.wire_length() == wire.len())
}

fn number(octets: &[u8]) -> Option<(u16, &[u8])> {
    octets.split_first_chunk::<2>().map(|(number, rest)| (u16::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::rdata::RecordData;
    use domain::base::{Message, MessageBuilder, Name};
    use domain::rdata::{A, Tsig as Theirs};
    use proptest::prelude::*;

    const TSIG: Tsig<'static> = Tsig {
        start: 25,
        key: Cow::Borrowed(b"\x03Key\x07example\0"),
        algorithm: b"\x0bhmac-sha256\0",
        time: 0x0102_0304_0506,
        fudge: 300,
        mac: &[7; 32],
        original_id: 9,
        error: 18,
        other: &[0, 0, 1, 2, 3, 4],
    };

    fn plain() -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec().question();
        builder.push((&"example".parse::<Name<Vec<u8>>>().unwrap(), Rtype::SOA)).unwrap();
        builder.finish()
    }

    fn signed() -> Vec<u8> {
        let plain = plain();
        let mut out = vec![0; plain.len() + TSIG.written()];
        out[..plain.len()].copy_from_slice(&plain);
        assert_eq!(TSIG.append(&mut out, plain.len()), Some(plain.len() + TSIG.written()));
        out
    }

    #[test]
    fn what_is_written_reads_back_here_and_in_domain() {
        let message = signed();
        assert_eq!(Tsig::read(&message), Ok(Some(TSIG)));
        let theirs = Message::from_slice(&message).unwrap();
        let record = theirs.additional().unwrap().next().unwrap().unwrap();
        let record = record.to_record::<Theirs<_, _>>().unwrap().unwrap();
        let data = record.data();
        assert_eq!((data.rtype(), data.fudge(), data.original_id()), (Rtype::TSIG, 300, 9));
        assert_eq!((u64::from(data.time_signed()), *data.mac()), (TSIG.time, TSIG.mac));
        assert_eq!(Tsig::read(&plain()), Ok(None));
        let mut short = message.clone();
        assert_eq!(TSIG.append(&mut short[..TSIG.start + TSIG.written() - 1], TSIG.start), None);
    }

    #[test]
    fn what_cannot_be_interpreted_is_malformed() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut message = signed();
            change(&mut message);
            Tsig::read(&message).map(|_| ())
        };
        let class = TSIG.start + TSIG.key.len() + 2;
        assert_eq!(with(&|m| m.truncate(m.len() - 1)), Err(Malformed), "breaks off");
        assert_eq!(with(&|m| m[class + 1] = 1), Err(Malformed), "class IN");
        assert_eq!(with(&|m| m[class + 5] = 1), Err(Malformed), "a TTL");
        for pointer in [TSIG.start as u8, 200] {
            let changed = with(&|m| drop(m.splice(25..38, [0xc0, pointer])));
            assert_eq!(changed, Err(Malformed), "a key name that points to itself, or to what follows");
        }
        let algorithm = TSIG.start + TSIG.key.len() + RECORD;
        let compressed = with(&|m| {
            drop(m.splice(algorithm..algorithm + 13, [0xc0, 12]));
            m[algorithm - 1] -= 11;
        });
        assert_eq!(compressed, Err(Malformed), "a compressed algorithm");
        assert_eq!(with(&|m| (m[7], m[11]) = (1, 0)), Ok(()), "none in ADDITIONAL at all");
        let not_last = |m: &mut Vec<u8>| {
            m[11] = 2;
            m.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        };
        assert_eq!(with(&not_last), Err(Malformed), "OPT behind it");
        assert_eq!(with(&|m| m.extend_from_slice(b"junk")), Ok(()), "octets behind the message");
        let mut builder = MessageBuilder::new_vec().question().additional();
        builder.push((Name::root_ref(), 1, A::new([192, 0, 2, 1].into()))).unwrap();
        assert_eq!(Tsig::read(&builder.finish()), Ok(None));
    }

    #[test]
    fn the_name_of_a_key_may_be_compressed() {
        // As dnspython sends it: a label of its own, and the zone's name from the question.
        let mut message = signed();
        message.splice(29..38, [0xc0, 12]);
        assert_eq!(Tsig::read(&message), Ok(Some(TSIG)));
        message.splice(25..31, [0xc0, 12]);
        assert_eq!(
            Tsig::read(&message).map(|found| found.map(|tsig| tsig.key.to_vec())),
            Ok(Some(b"\x07example\0".to_vec()))
        );
    }

    proptest! {
        #[test]
        fn any_damage_is_read_without_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut message = signed();
            for (at, value) in changes {
                let at = at.index(message.len());
                message[at] = value;
            }
            let _ = Tsig::read(&message[..cut.index(message.len() + 1)]);
            if let Ok(Some(tsig)) = Tsig::read(&message) {
                // A compressed name takes fewer octets there than it has.
                prop_assert!(tsig.start + tsig.written() - tsig.key.len() < message.len() && tsig.key.len() <= 255);
            }
        }
    }
}
