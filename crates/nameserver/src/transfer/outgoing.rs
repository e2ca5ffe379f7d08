//! A zone on its way out, or what changed of it: the messages of a transfer, one at a time (RFC 5936, RFC 1995).

use std::sync::Arc;

use dns::edns::Options;
use dns::query::Query;
use dns::writer::End;
use dns::{Folded, Rtype, Section, Suffixes, Writer};
use net::admission::Place;
use net::tcp::Next;

use super::answering::Beside;
use super::counters::{Counters, count};
use super::signature::Signer;
use crate::zone::{Cursor, Difference, Zone};

/// The octets of a message that records are packed into: a compression pointer reaches no farther than 16 KiB
/// (RFC 1035 §4.1.4).
pub const MESSAGE_TARGET: usize = 16 * 1024;

/// A transfer: a zone of one generation, which stays as it is until the last record is out.
pub struct Outgoing {
    zone: Arc<Zone>,
    /// What is given of it, one by one; the zone itself where there is none.
    differences: Vec<Arc<Difference>>,
    /// The query without its signature: each message begins as it does.
    query: Vec<u8>,
    udp_payload_max: u16,
    /// What each message says beside the records, but for the name of this server.
    options: Options<'static>,
    nsid: Option<Box<[u8]>>,
    signer: Option<Signer>,
    at: At,
    counters: Arc<Counters>,
    /// Counts this transfer for as long as it lasts.
    _place: Option<Place>,
}

/// How far a transfer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Nothing is out.
    First,
    /// The names before the cursor are out, and so much of the one at it.
    Names(Cursor, Within),
    /// The differences before this one are out, and of it the records before a place.
    Differences(usize, usize),
    /// Everything but the last SOA record is out.
    Last,
    /// Everything is out.
    Done,
}

/// How much of a name is out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Within {
    /// RRsets, those of signatures too.
    sets: usize,
    /// The place of the next record in the next one.
    place: usize,
}

impl Outgoing {
    /// Begins a transfer in answer to `query`, a well-formed message without signature: of `differences` that led to the
    /// zone where there are any, else of the zone. `signer` signs each message (RFC 8945 §5.3.1 asks for one in a hundred
    /// at least).
    pub(super) fn new(
        (zone, differences): (Arc<Zone>, Vec<Arc<Difference>>),
        query: Vec<u8>,
        beside: &Beside<'_>,
        signer: Option<Signer>,
        counters: Arc<Counters>,
        place: Option<Place>,
    ) -> Outgoing {
        let Options { cookie, nsid, tcp_keepalive } = beside.options;
        Outgoing {
            zone,
            differences,
            query,
            udp_payload_max: beside.udp_payload_max,
            options: Options { cookie, nsid: None, tcp_keepalive },
            nsid: nsid.map(Box::from),
            signer,
            at: At::First,
            counters,
            _place: place,
        }
    }

    /// Writes the next message; `unix` is the time in seconds.
    ///
    /// Each has the query's id and question (RFC 5936 §2.2), and at least one record.
    pub fn next(&mut self, unix: u64, out: &mut [u8]) -> Next {
        if self.at == At::Done {
            count(&self.counters.finished);
            return Next::End;
        }
        let room = out.len().saturating_sub(self.signer.as_ref().map_or(0, Signer::room));
        // A record that is larger than the target has a message for itself.
        for limit in [MESSAGE_TARGET.min(room), room] {
            let Some((length, records)) = self.fill(&mut out[..room], limit) else { return Next::Broken };
            if records == 0 {
                continue;
            }
            return match &mut self.signer {
                None => Next::Message(length),
                Some(signer) => signer.sign(out, length, unix).map_or(Next::Broken, Next::Message),
            };
        }
        // Not even alone: a record of nearly 64 KiB cannot be sent at all.
        Next::Broken
    }

    /// Packs what fits into one message; returns its length and how many records it has.
    fn fill(&mut self, out: &mut [u8], limit: usize) -> Option<(usize, u16)> {
        let (mut name, mut suffixes) = (Folded::root(), Suffixes::new());
        let query = Query::read(&self.query, &mut name).ok()?;
        let mut writer = Writer::new(out, &query, limit, &mut suffixes)?;
        let options = Options { nsid: self.nsid.as_deref(), ..self.options };
        writer.keep_case();
        writer.keep_room(&options);
        self.at = pack(&self.zone, &self.differences, self.at, &mut writer);
        let records = writer.count(Section::Answer);
        Some((writer.finish(&query, end(self.udp_payload_max)), records))
    }
}

/// Answers with the SOA record alone: there is nothing newer, or the rest is to be had over TCP (RFC 1995 §2).
///
/// Returns the length; `None` where there is no room.
pub(super) fn soa_alone(
    zone: &Zone,
    query: &Query<'_>,
    beside: &Beside<'_>,
    out: &mut [u8],
) -> Option<usize> {
    let mut suffixes = Suffixes::new();
    let mut writer = beside.writer(query, &mut suffixes, out)?;
    let soa = zone.soa();
    soa.data().try_for_each(|data| writer.answer_asked(Rtype::SOA, soa.ttl, data)).ok()?;
    Some(writer.finish(query, end(beside.udp_payload_max)))
}

fn end(udp_payload_max: u16) -> End {
    End { authoritative: true, ..End::new(udp_payload_max) }
}

/// Writes records until the message is full or all are written; returns how far that came.
fn pack(zone: &Zone, differences: &[Arc<Difference>], mut at: At, writer: &mut Writer<'_>) -> At {
    let soa = zone.soa();
    let origin = zone.origin().wire();
    let push_soa = |writer: &mut Writer<'_>| {
        soa.data()
            .try_for_each(|data| writer.push(Section::Answer, origin, Rtype::SOA, soa.ttl, data))
            .is_ok()
    };
    loop {
        match at {
            At::First if push_soa(writer) => {
                at = match differences {
                    [] => At::Names(Cursor::default(), Within::default()),
                    _ => At::Differences(0, 0),
                };
            }
            At::Last if push_soa(writer) => return At::Done,
            At::First | At::Last | At::Done => return at,
            At::Differences(index, place) => {
                let Some(difference) = differences.get(index) else {
                    at = At::Last;
                    continue;
                };
                for (place, record) in difference.records(place) {
                    if writer
                        .push(Section::Answer, record.owner, record.rtype, record.ttl, record.data)
                        .is_err()
                    {
                        return At::Differences(index, place);
                    }
                }
                at = At::Differences(index + 1, 0);
            }
            At::Names(mut cursor, within) => {
                let Some((owner, sets)) = zone.owner_at(&mut cursor) else {
                    at = At::Last;
                    continue;
                };
                let left = sets.enumerate().skip(within.sets).filter(|(_, set)| set.rtype != Rtype::SOA);
                for (sets, set) in left {
                    let from = if sets == within.sets { within.place } else { 0 };
                    for (place, data) in set.data_from(from) {
                        if writer.push(Section::Answer, owner, set.rtype, set.ttl, data).is_err() {
                            return At::Names(cursor, Within { sets, place });
                        }
                    }
                }
                at = At::Names(cursor.next(), Within::default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NameHash;
    use crate::zone::read;
    use domain::base::{Message, MessageBuilder, Name};
    use domain::rdata::AllRecordData;
    use proptest::prelude::*;

    fn zone(text: &str) -> Arc<Zone> {
        let include = |_: &str| Err("nothing is included".to_string());
        let source = read::Source {
            name: "t",
            text: text.as_bytes(),
            origin: Some(b"\x07example\0"),
            include: &include,
        };
        Arc::new(Zone::build(&read::read(&source).unwrap(), "t", &NameHash::new(1)).unwrap())
    }

    fn query(edns: bool) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(77);
        let mut builder = builder.question();
        builder.push((&"eXample".parse::<Name<Vec<u8>>>().unwrap(), Rtype::AXFR)).unwrap();
        let mut builder = builder.additional();
        if edns {
            builder.opt(|_| Ok(())).unwrap();
        }
        builder.finish()
    }

    fn messages(zone: &Arc<Zone>, edns: bool) -> Vec<Vec<u8>> {
        messages_with(zone, edns, Options::default())
    }

    fn messages_with(zone: &Arc<Zone>, edns: bool, options: Options<'_>) -> Vec<Vec<u8>> {
        let beside = Beside { udp_payload_max: 1232, options };
        all_of(Outgoing::new((zone.clone(), vec![]), query(edns), &beside, None, Arc::default(), None))
    }

    fn all_of(mut outgoing: Outgoing) -> Vec<Vec<u8>> {
        let mut out = vec![0; 65_535];
        let mut messages = Vec::new();
        loop {
            match outgoing.next(0, &mut out) {
                Next::Message(length) => messages.push(out[..length].to_vec()),
                Next::End => return messages,
                Next::Broken => panic!("the zone can be sent"),
            }
        }
    }

    #[test]
    fn a_transfer_is_finished_when_its_end_is_asked_for() {
        let (zone, counters) =
            (zone("$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\n"), Arc::<Counters>::default());
        let beside = Beside { udp_payload_max: 1232, options: Options::default() };
        let mut outgoing = Outgoing::new((zone, vec![]), query(false), &beside, None, counters.clone(), None);
        let mut out = vec![0; 65_535];
        for (is_last, finished) in [(false, 0), (true, 1)] {
            let next = outgoing.next(0, &mut out);
            assert_eq!(matches!(next, Next::End), is_last);
            assert_eq!(counters.finished.load(std::sync::atomic::Ordering::Relaxed), finished);
        }
    }

    #[test]
    fn each_message_says_what_the_querys_options_ask_for() {
        let many: String = (0..2_000).map(|i| format!("a{i} TXT \"{i:0100}\"\n")).collect();
        let zone = zone(&format!("$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\n{many}"));
        let options =
            Options { cookie: Some(([1; 8], [2; 16])), nsid: Some(b"fra1"), tcp_keepalive: Some(300) };
        let mut written = vec![0; options.length()];
        options.write(&mut written);
        let messages = messages_with(&zone, true, options);
        assert!(messages.len() > 5 && messages.iter().all(|message| message.ends_with(&written)));
    }

    /// The records of all messages, as text.
    fn records(messages: &[Vec<u8>]) -> Vec<String> {
        let mut lines = Vec::new();
        for message in messages {
            let message = Message::from_slice(message).unwrap();
            assert_eq!((message.header().id(), message.header().aa()), (77, true));
            assert_eq!(message.sole_question().unwrap().qname().to_string(), "eXample");
            for record in message.answer().unwrap().limit_to::<AllRecordData<_, _>>() {
                let record = record.unwrap();
                let (owner, ttl) = (record.owner(), record.ttl().as_secs());
                lines.push(format!("{owner}. {ttl} {} {}", record.rtype(), record.data()));
            }
        }
        lines
    }

    fn check(zone: &Arc<Zone>) {
        for edns in [false, true] {
            let sent = messages(zone, edns);
            let mut lines = records(&sent);
            assert!(lines.len() == zone.records() + 1 && lines[0] == lines[lines.len() - 1]);
            assert!(lines[0].contains(" SOA "), "{}", lines[0]);
            lines.pop();
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            assert_eq!(self::zone(&text).to_text(), zone.to_text());
        }
    }

    #[test]
    fn a_zone_comes_out_as_it_is() {
        let small = zone(
            "$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS ns\n@ NS ns.sub\nns A 192.0.2.1\n*.w MX 5 ns\n\
                          sub NS ns.sub\nns.sub A 192.0.2.2\nns.sub AAAA 2001:db8::2\nd DNAME w\na.b.c A 192.0.2.3\n",
        );
        check(&small);
        assert_eq!(messages(&small, false).len(), 1);
        let least = zone("@ 60 SOA ns hm 7 2 3 4 5\n@ 60 NS ns.other.\n");
        check(&least);
    }

    #[test]
    fn a_signed_zone_comes_out_with_its_signatures_and_proofs() {
        let hashed = ["0p9mhaveqvm6t7vbl5lop2u3t2rp3tom", "2vptu5timamqttgl4luu9kg21e0aor3s"];
        let sign = |owner: &str, rtype: &str, labels: u8| {
            format!("{owner} RRSIG {rtype} 13 {labels} 60 20300101000000 20200101000000 1 example. AAAA\n")
        };
        let text = [
            "$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS ns\n@ DNSKEY 257 3 13 AAAA\n@ NSEC3PARAM 1 0 0 -\n".into(),
            "ns A 192.0.2.1\n".into(),
            ["SOA", "NS", "DNSKEY", "NSEC3PARAM"].map(|rtype| sign("@", rtype, 1)).concat(),
            sign("ns", "A", 2),
            format!("{} NSEC3 1 0 0 - {} NS SOA RRSIG DNSKEY NSEC3PARAM\n", hashed[0], hashed[1]),
            format!("{} NSEC3 1 0 0 - {} A RRSIG\n", hashed[1], hashed[0]),
            hashed.map(|owner| sign(owner, "NSEC3", 2)).concat(),
        ]
        .concat();
        let zone = zone(&text);
        check(&zone);
        let lines = records(&messages(&zone, true));
        let of = |rtype: &str| lines.iter().filter(|line| line.split(' ').nth(2) == Some(rtype)).count();
        assert_eq!((of("SOA"), of("NSEC3"), of("RRSIG"), lines.len()), (2, 2, 7, 15), "{lines:#?}");
        for owner in hashed {
            let all: Vec<_> = lines.iter().filter(|line| line.starts_with(owner)).collect();
            assert!(all.len() == 2 && all.iter().any(|line| line.contains(" RRSIG NSEC3 ")), "{all:?}");
        }
    }

    #[test]
    fn large_records_and_large_sets_take_several_messages() {
        let strings = |count: usize| vec![format!("\"{}\"", "x".repeat(255)); count].join(" ");
        let large = format!("big TXT {}\nbig TXT a\n", strings(200));
        let many: String = (0..3000).map(|i| format!("many TXT {i}\n")).collect();
        let names: String = (0..3000).map(|i| format!("n{i}.sub{} A 192.0.2.1\n", i % 7)).collect();
        let zone = zone(&format!("$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS ns\n{large}{many}{names}"));
        check(&zone);
        let sizes: Vec<usize> = messages(&zone, true).iter().map(Vec::len).collect();
        assert_eq!(sizes.iter().filter(|size| **size > MESSAGE_TARGET).count(), 1, "{sizes:?}");
        assert!(
            sizes.len() > 5 && sizes.iter().filter(|size| **size < MESSAGE_TARGET - 200).count() <= 3,
            "{sizes:?}"
        );
    }

    /// A zone at each serial number from 1, by what stands below its apex.
    fn versions(texts: &[String]) -> Arc<Zone> {
        let mut last: Option<Arc<Zone>> = None;
        for (index, text) in texts.iter().enumerate() {
            let head = format!("$TTL 60\n@ SOA ns hm {} 2 3 4 5\n@ NS ns\n", index + 1);
            let mut next = Zone::clone(&zone(&(head + text)));
            if let Some(before) = &last {
                next.remember(before, None, &NameHash::new(1));
            }
            last = Some(Arc::new(next));
        }
        last.expect("there is a version")
    }

    fn changes(zone: &Arc<Zone>, serial: u32) -> Vec<Vec<u8>> {
        let differences = zone.since(serial).expect("it is known").to_vec();
        let beside = Beside { udp_payload_max: 1232, options: Options::default() };
        all_of(Outgoing::new((zone.clone(), differences), query(true), &beside, None, Arc::default(), None))
    }

    #[test]
    fn what_changed_comes_out_step_by_step() {
        let zone = versions(&["a A 192.0.2.1\n", "a A 192.0.2.2\n", "b TXT x\n"].map(String::from));
        let soa = |serial: u32| format!("example. 60 SOA ns.example. hm.example. {serial} 2 3 4 5");
        let (first, second) =
            ("a.example. 60 A 192.0.2.1".to_string(), "a.example. 60 A 192.0.2.2".to_string());
        let third = "b.example. 60 TXT \"x\"".to_string();
        let latest = [soa(2), second.clone(), soa(3), third];
        let lines = |serial| records(&changes(&zone, serial));
        assert_eq!(lines(2), [&[soa(3)][..], &latest, &[soa(3)]].concat());
        assert_eq!(lines(1), [&[soa(3), soa(1), first, soa(2), second][..], &latest, &[soa(3)]].concat());
    }

    #[test]
    fn what_changed_is_cut_into_messages_anywhere() {
        let many: String = (0..20_000).map(|i| format!("n{i} TXT \"{i:050}\"\n")).collect();
        let zone = versions(&[many.clone(), many.replacen("\"0", "\"1", 2_000), many]);
        let sent = changes(&zone, 1);
        assert!(sent.len() > 10, "{}", sent.len());
        let lines = records(&sent);
        assert_eq!(lines.len(), 2 * (2 + 2 * 2_000) + 2);
        // The first SOA record, then what went, behind that of its version; in the next step it comes back.
        let (went, came) = (&lines[2..2_002], &lines[6_005..8_005]);
        assert!(went.iter().all(|line| line.contains("TXT \"0")) && went == came, "{} {}", went[0], came[0]);
    }

    proptest! {
        #[test]
        fn any_zone_is_packed_whole(
            names in prop::collection::vec(("[a-d]{1,3}(\\.[a-d]{1,2}){0,3}", 1..20_u16, 0..300_usize), 1..30),
        ) {
            let mut text = "$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS ns\n".to_string();
            for (name, records, length) in &names {
                for record in 0..*records {
                    text += &format!("{name} TXT {record} {}\n", "y".repeat((*length).clamp(1, 255)));
                }
            }
            check(&zone(&text));
        }
    }
}
