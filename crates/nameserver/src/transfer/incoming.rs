//! A zone on its way in: what a primary answers to SOA, AXFR (RFC 5936 §2.2) and IXFR (RFC 1995 §4). A whole zone is made a
//! master file, what changed are differences. Pure.
//!
//! Each record's data stands in the file in the form for any type (RFC 3597 §5), which the reader of zones takes for all.

use std::fmt::Write as _;

use dns::query::HEADER;
use dns::{Class, Folded, Rcode, Rtype, Tsig};
use domain::base::rdata::ComposeRecordData;
use domain::base::{Message, ParsedName, ParsedRecord, ToName};
use domain::rdata::AllRecordData;

use super::refresh::Timers;
use crate::zone::{Changed, Difference};

/// The most octets of messages that a zone may come in: what the API takes as text.
pub const OCTETS_MAX: usize = 64 << 20;

/// What an SOA record says of a zone's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The serial number.
    pub serial: u32,
    /// When to ask for it.
    pub timers: Timers,
}

/// The records that have come of a zone.
#[derive(Debug)]
pub struct Incoming {
    zone: Folded,
    /// The serial number since which what changed was asked for; absent where the zone was.
    since: Option<u32>,
    octets: usize,
    /// The data of the SOA record that it began with.
    soa: Option<Vec<u8>>,
    /// Whether nothing else has come.
    is_soa_alone: bool,
    /// The zone, as long as it is what comes.
    text: String,
    /// What changed, where that is what comes.
    differences: Vec<Difference>,
    /// The serial number that the last of them ends at; absent while its records still go.
    ends_at: Option<u32>,
    is_whole: bool,
}

/// What a primary gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// The zone, as a master file.
    Zone(String),
    /// What changed, step by step.
    Changes(Vec<Difference>),
}

/// Composes a question for a zone, without signature (RFC 1035 §4.1).
pub fn question(zone: &Folded, rtype: Rtype, id: u16) -> Vec<u8> {
    let mut message = [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0], zone.wire()].concat();
    message.extend_from_slice(&rtype.to_int().to_be_bytes());
    message.extend_from_slice(&Class::IN.to_int().to_be_bytes());
    message
}

/// Composes a question for what changed in a zone since the version with this SOA record, without signature (RFC 1995 §3).
///
/// # Panics
/// Where the data of the record is longer than that of any.
pub fn question_since(zone: &Folded, soa: &[u8], id: u16) -> Vec<u8> {
    let mut message = question(zone, Rtype::IXFR, id);
    message[9] = 1;
    // The record's name is the asked one.
    message.extend_from_slice(&[0xc0, HEADER as u8]);
    message.extend_from_slice(&Rtype::SOA.to_int().to_be_bytes());
    message.extend_from_slice(&Class::IN.to_int().to_be_bytes());
    message.extend_from_slice(&[0; 4]);
    let length = u16::try_from(soa.len()).expect("a SOA record is shorter");
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(soa);
    message
}

/// Reads the version out of the answer to a question for the SOA record.
///
/// # Errors
/// Why it says nothing of it.
pub fn version(zone: &Folded, id: u16, message: &[u8]) -> Result<Version, String> {
    let message = checked(id, message)?;
    if !message.header().aa() {
        return Err("it has no authority over the zone: it is no primary of it, or has not loaded it".into());
    }
    for record in message.answer().map_err(malformed)? {
        let record = record.map_err(malformed)?;
        if record.rtype() == Rtype::SOA && is_of(&record, zone) {
            return version_of(&data(&record)?);
        }
    }
    Err("its answer has no SOA record of the zone".into())
}

impl Incoming {
    /// Nothing has come of this zone, which was asked for whole or, with a serial number, for what changed since.
    pub fn new(zone: Folded, since: Option<u32>) -> Incoming {
        Incoming {
            zone,
            since,
            octets: 0,
            soa: None,
            is_soa_alone: false,
            text: String::new(),
            differences: Vec::new(),
            ends_at: None,
            is_whole: false,
        }
    }

    /// Takes the next message; returns whether the zone is whole with it.
    ///
    /// # Errors
    /// Why the transfer is worth nothing: a refusal, a malformed message, too many octets, or something other than a zone.
    pub fn take(&mut self, id: u16, message: &[u8]) -> Result<bool, String> {
        self.octets += message.len();
        if self.octets > OCTETS_MAX {
            return Err(format!("the zone is longer than {OCTETS_MAX} octets"));
        }
        let message = checked(id, message)?;
        let mut is_empty = true;
        for record in message.answer().map_err(malformed)? {
            let record = record.map_err(malformed)?;
            is_empty = false;
            if self.is_whole {
                return Err("records follow behind the last SOA record".into());
            }
            self.record(&record)?;
        }
        if is_empty { Err("a message has no records".into()) } else { Ok(self.is_whole) }
    }

    /// What came, and what the SOA record of the zone says; once it is whole.
    pub fn finish(self) -> Option<(Came, Version)> {
        let version = version_of(&self.soa.filter(|_| self.is_whole)?).ok()?;
        let came =
            if self.differences.is_empty() { Came::Zone(self.text) } else { Came::Changes(self.differences) };
        Some((came, version))
    }

    fn record(&mut self, record: &ParsedRecord<'_, [u8]>) -> Result<(), String> {
        let data = data(record)?;
        let is_soa = record.rtype() == Rtype::SOA && is_of(record, &self.zone);
        let serial = if is_soa { Some(version_of(&data)?.serial) } else { None };
        let Some(soa) = &self.soa else {
            if !is_soa {
                return Err("it does not begin with the zone's SOA record".into());
            }
            self.write(record, &data);
            (self.soa, self.is_soa_alone) = (Some(data), true);
            return Ok(());
        };
        let is_second = std::mem::take(&mut self.is_soa_alone);
        // What changed begins with the version that is here; a zone has no SOA record of another version (RFC 1995 §4).
        let is_changes = is_second && is_soa && serial == self.since;
        match (serial, self.differences.last_mut()) {
            (Some(serial), None) if is_changes => {
                self.text = String::new();
                self.begin(serial, record, &data);
            }
            (Some(_), None) if *soa == data => self.is_whole = true,
            (Some(_), None) => return Err("it has two SOA records that differ".into()),
            (None, None) => self.write(record, &data),
            (None, Some(last)) => push(last, record, &data),
            (Some(serial), Some(last)) => match self.ends_at {
                None => {
                    push(last, record, &data);
                    self.ends_at = Some(serial);
                }
                // The first SOA record once more, behind the step that leads to it, is the end.
                Some(end) if end == serial && *soa == data => self.is_whole = true,
                Some(end) if end == serial => self.begin(serial, record, &data),
                Some(end) => {
                    return Err(format!("what changed goes on at serial {serial}, but has come to {end}"));
                }
            },
        }
        Ok(())
    }

    /// Begins a step at the version of a serial number, with its SOA record.
    fn begin(&mut self, serial: u32, record: &ParsedRecord<'_, [u8]>, data: &[u8]) {
        let mut difference = Difference::new(serial);
        push(&mut difference, record, data);
        self.differences.push(difference);
        self.ends_at = None;
    }

    fn write(&mut self, record: &ParsedRecord<'_, [u8]>, data: &[u8]) {
        dns::name::push_text(&mut self.text, &owner(record));
        let (ttl, class, rtype) = (record.ttl().as_secs(), record.class().to_int(), record.rtype().to_int());
        let _ = write!(self.text, " {ttl} CLASS{class} TYPE{rtype} \\# {} ", data.len());
        for octet in data {
            let _ = write!(self.text, "{octet:02x}");
        }
        self.text.push('\n');
    }
}

/// Adds a record to a step of what changed.
fn push(difference: &mut Difference, record: &ParsedRecord<'_, [u8]>, data: &[u8]) {
    // No octet of a length is a letter.
    let owner = owner(record).to_ascii_lowercase();
    let (rtype, ttl) = (record.rtype(), record.ttl().as_secs());
    difference.push(&Changed { owner: &owner, rtype, ttl, data });
}

/// A message that answers our question and refuses nothing.
fn checked(id: u16, message: &[u8]) -> Result<&Message<[u8]>, String> {
    let header = message.first_chunk::<HEADER>().ok_or("a message is shorter than a header")?;
    if header[2] & 0x80 == 0 || header[..2] != id.to_be_bytes() {
        return Err("a message is no answer to our question".into());
    }
    let rcode = Rcode::masked_from_int(header[3]);
    if rcode != Rcode::NOERROR {
        let error = Tsig::read(message).ok().flatten().map_or(0, |tsig| tsig.error);
        let why = match error {
            0 => String::new(),
            16 => " (BADSIG: the key has another secret there)".into(),
            17 => " (BADKEY: it does not know the key)".into(),
            18 => " (BADTIME: one of the clocks is wrong)".into(),
            other => format!(" (TSIG error {other})"),
        };
        return Err(format!("it answers {rcode}{why}"));
    }
    if header[2] & 0x02 != 0 {
        return Err("an answer over TCP is truncated".into());
    }
    Message::from_slice(message).map_err(malformed)
}

fn malformed(_: impl std::fmt::Debug) -> String {
    "a message is malformed".into()
}

fn is_of(record: &ParsedRecord<'_, [u8]>, zone: &Folded) -> bool {
    owner(record).eq_ignore_ascii_case(zone.wire())
}

/// The owner's name in wire form.
pub(super) fn owner(record: &ParsedRecord<'_, [u8]>) -> Vec<u8> {
    record.owner().to_vec().as_slice().to_vec()
}

/// The data of a record in wire form, names in it whole.
///
/// # Errors
/// What is malformed.
pub(super) fn data(record: &ParsedRecord<'_, [u8]>) -> Result<Vec<u8>, String> {
    let parsed = record.to_any_record::<AllRecordData<&[u8], ParsedName<&[u8]>>>().map_err(|_| {
        let (owner, rtype) = (dns::name::to_text(&owner(record)), record.rtype());
        format!("the data of the {rtype} record of {owner} is malformed")
    })?;
    let mut data = Vec::new();
    parsed.data().compose_rdata(&mut data).expect("a vector takes all octets");
    Ok(data)
}

fn version_of(soa: &[u8]) -> Result<Version, String> {
    let short = "the data of the SOA record is malformed";
    let serial = soa.len().checked_sub(20).and_then(|at| soa[at..].first_chunk()).ok_or(short)?;
    Ok(Version { serial: u32::from_be_bytes(*serial), timers: Timers::of(soa).ok_or(short)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::iana::{Class, Rcode, Rtype};
    use domain::base::rdata::UnknownRecordData;
    use domain::base::{MessageBuilder, StaticCompressor};
    use domain::base::{Name, Serial, Ttl};
    use domain::rdata::{A, Mx, Soa, Txt};

    const ID: u16 = 77;

    fn name(text: &str) -> Name<Vec<u8>> {
        text.parse().unwrap()
    }

    fn zone() -> Folded {
        Folded::read(name("example").as_slice()).unwrap()
    }

    /// A message with these records: `S`OA of serial 1, `T` of 2, `U` of 3, `a`ddress, `m`ail with names that are pointers, `t`ext
    /// outside of the zone.
    fn message(records: &str) -> Vec<u8> {
        let mut builder = MessageBuilder::new_stream_vec();
        builder.header_mut().set_id(ID);
        builder.header_mut().set_qr(true);
        builder.header_mut().set_aa(true);
        let mut builder = builder.question();
        builder.push((name("example"), Rtype::AXFR)).unwrap();
        let mut builder = builder.answer();
        let seconds = Ttl::from_secs;
        for record in records.chars() {
            match record {
                'S' | 'T' | 'U' => {
                    let serial = Serial::from(record as u32 - u32::from(b'S') + 1);
                    let times = [7200, 600, 86_400, 60].map(seconds);
                    let soa = Soa::new(
                        name("ns.example"),
                        name("hm.example"),
                        serial,
                        times[0],
                        times[1],
                        times[2],
                        times[3],
                    );
                    builder.push((name("Example"), 300, soa)).unwrap();
                }
                'a' => builder.push((name("a.Example"), 60, A::from_octets(192, 0, 2, 1))).unwrap(),
                'm' => builder.push((name("a.Example"), 60, Mx::new(10, name("a.example")))).unwrap(),
                't' => {
                    let text = Txt::<Vec<u8>>::build_from_slice(b"\"a\"; b").unwrap();
                    builder.push((name("a.b"), 60, text)).unwrap();
                }
                other => panic!("{other}"),
            }
        }
        builder.as_slice().to_vec()
    }

    fn take(messages: &[Vec<u8>]) -> Result<Option<(String, Version)>, String> {
        let came = take_since(None, messages)?;
        Ok(came.map(|(came, version)| match came {
            Came::Zone(text) => (text, version),
            Came::Changes(changes) => panic!("nobody asked for {changes:?}"),
        }))
    }

    fn take_since(since: Option<u32>, messages: &[Vec<u8>]) -> Result<Option<(Came, Version)>, String> {
        let mut coming = Incoming::new(zone(), since);
        for message in messages {
            coming.take(ID, message)?;
        }
        Ok(coming.finish())
    }

    #[test]
    fn a_zone_comes_in_messages_that_are_cut_anywhere() {
        let records = ["S", "a", "m", "t", "S"];
        let (whole, version) = take(&[message("SamtS")]).unwrap().expect("it is whole");
        assert_eq!((version.serial, version.timers.retry.as_secs()), (1, 600));
        let lines: Vec<&str> = whole.lines().collect();
        assert_eq!(
            lines[1..3],
            [
                "a.Example. 60 CLASS1 TYPE1 \\# 4 c0000201",
                "a.Example. 60 CLASS1 TYPE15 \\# 13 000a0161076578616d706c6500",
            ]
        );
        assert!(lines[0].starts_with("Example. 300 CLASS1 TYPE6 \\# 44 026e73"), "{}", lines[0]);
        assert_eq!((lines.len(), lines[3]), (4, "a.b. 60 CLASS1 TYPE16 \\# 7 062261223b2062"));
        for cut in 1..records.len() {
            let (first, second) = records.split_at(cut);
            let taken = take(&[message(&first.concat()), message(&second.concat())]).unwrap();
            assert_eq!(taken.expect("it is whole").0, whole, "{cut}");
        }
        assert_eq!(take(&[message("Sam")]), Ok(None), "its end is missing");
    }

    /// Serial numbers at which steps begin, with how many records each has, its SOA records among them.
    fn steps(came: Came) -> Vec<(u32, usize)> {
        let Came::Changes(differences) = came else { panic!("a zone came: {came:?}") };
        differences.iter().map(|step| (step.from(), step.records(0).count())).collect()
    }

    #[test]
    fn what_changed_comes_step_by_step() {
        // From 1 to 2 an address goes and mail comes; from 2 to 3 text comes.
        let records = ["U", "S", "a", "T", "m", "T", "U", "t", "U"];
        for cut in 0..records.len() {
            let (first, second) = records.split_at(cut.max(1));
            let messages = [message(&first.concat()), message(&second.concat())];
            let (came, version) = take_since(Some(1), &messages).unwrap().expect("it is whole");
            assert_eq!((steps(came), version.serial), (vec![(1, 4), (2, 3)], 3));
        }
        assert_eq!(take_since(Some(1), &[message("USaTmTUt")]), Ok(None), "its end is missing");
        let (came, _) = take_since(Some(2), &[message("UTUtU")]).unwrap().unwrap();
        let Came::Changes(changes) = &came else { panic!("{came:?}") };
        let owners: Vec<_> =
            changes[0].records(0).map(|(_, record)| dns::name::to_text(record.owner)).collect();
        assert_eq!(owners, ["example.", "example.", "a.b."]);
        // Who cannot tell gives the zone, with the steps in no message (RFC 1995 §4).
        for since in [None, Some(1), Some(2)] {
            let came = take_since(since, &[message("Uam"), message("tU")]).unwrap().unwrap().0;
            assert!(matches!(came, Came::Zone(text) if text.lines().count() == 4), "{since:?}");
        }
    }

    #[test]
    fn what_is_no_step_is_refused() {
        for (since, messages, expected) in [
            (Some(2), "USaTmU", "it has two SOA records that differ"),
            (None, "USaTmU", "it has two SOA records that differ"),
            (Some(1), "USaTmU", "what changed goes on at serial 3, but has come to 2"),
            (Some(1), "USTTUUa", "records follow behind the last SOA record"),
            (Some(1), "USUS", "what changed goes on at serial 1, but has come to 3"),
        ] {
            assert_eq!(take_since(since, &[message(messages)]), Err(expected.into()), "{messages}");
        }
    }

    #[test]
    fn what_is_no_zone_is_refused() {
        for (messages, expected) in [
            (vec![message("aS")], "it does not begin with the zone's SOA record"),
            (vec![message("SaT")], "it has two SOA records that differ"),
            (vec![message("SaSa")], "records follow behind the last SOA record"),
            (vec![message("SaS"), message("a")], "records follow behind the last SOA record"),
            (vec![message("")], "a message has no records"),
        ] {
            assert_eq!(take(&messages), Err(expected.into()), "{expected}");
        }
        let with = |at: usize, octet: u8| {
            let mut message = message("SaS");
            message[at] = octet;
            take(&[message])
        };
        assert_eq!(with(3, 5), Err("it answers REFUSED".into()));
        assert_eq!(with(3, 9), Err("it answers NOTAUTH".into()));
        assert_eq!(with(1, 78), Err("a message is no answer to our question".into()));
        assert_eq!(with(2, 0x04), Err("a message is no answer to our question".into()));
        assert_eq!(with(2, 0x86), Err("an answer over TCP is truncated".into()));
        assert_eq!(take(&[vec![0; 5]]), Err("a message is shorter than a header".into()));
    }

    #[test]
    fn the_version_is_in_the_answer_of_an_authority() {
        assert_eq!(version(&zone(), ID, &message("T")).map(|version| version.serial), Ok(2));
        let mut lame = message("T");
        lame[2] = 0x80;
        assert!(version(&zone(), ID, &lame).is_err_and(|why| why.contains("no authority")));
        let none = version(&zone(), ID, &message("a"));
        assert_eq!(none, Err("its answer has no SOA record of the zone".into()));
    }

    #[test]
    fn no_damage_panics() {
        let whole = message("SamtS");
        for at in 0..whole.len() {
            for octet in [0, 1, 0x3f, 0x80, 0xc0, 0xff] {
                let mut message = whole.clone();
                message[at] = octet;
                let _ = take(&[message.clone()]);
                let _ = version(&zone(), ID, &message);
            }
            let _ = take(&[whole[..at].to_vec()]);
        }
        let changes = message("USaTmTUtU");
        for at in 0..changes.len() {
            for octet in [0, 1, 0x3f, 0x80, 0xc0, 0xff] {
                let mut message = changes.clone();
                message[at] = octet;
                let _ = take_since(Some(1), &[message]);
            }
        }
    }

    #[test]
    fn the_question_is_what_domain_composes() {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(ID);
        builder.header_mut().set_rcode(Rcode::NOERROR);
        let mut builder = builder.question();
        builder.push((name("example"), Rtype::AXFR, Class::IN)).unwrap();
        assert_eq!(question(&zone(), Rtype::AXFR, ID), builder.finish());

        let asked = message("T");
        let soa = Message::from_slice(&asked).unwrap().answer().unwrap().next().unwrap().unwrap();
        let soa = data(&soa).unwrap();
        let mut builder = MessageBuilder::from_target(StaticCompressor::new(Vec::new())).unwrap();
        builder.header_mut().set_id(ID);
        let mut builder = builder.question();
        builder.push((name("example"), Rtype::IXFR, Class::IN)).unwrap();
        let mut builder = builder.authority();
        let parsed = UnknownRecordData::from_octets(Rtype::SOA, &soa[..]).unwrap();
        builder.push((name("example"), 0, parsed)).unwrap();
        assert_eq!(question_since(&zone(), &soa, ID), builder.finish().into_target());
    }
}
