use super::*;
use std::sync::Arc;
use std::time::Duration;

use domain::base::opt::ExtendedError;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;
use proptest::prelude::*;

use crate::cache::{self, Entry, State};
use crate::front::Wanted;
use crate::question::{Answered, Ask, question, read};
use tokio::sync::mpsc;

pub(crate) const NOW: u32 = 10_000;

/// A front with entries for 192.0.2.1 to .6, and the door behind it.
pub(crate) fn front() -> (Front, mpsc::Receiver<Wanted>) {
    let (mut cache, reader) = cache::new(cache::LIMIT_MIN, 3600, 1);
    let kept = NameText::from_text(b"www.example").unwrap();
    for (last, state, expiry) in [
        (1, State::Name, NOW + 100),
        (2, State::NoName, NOW + 50),
        (3, State::Failed(Why::Timeout), NOW + 7),
        (4, State::Failed(Why::Servfail), NOW + 8),
        (5, State::Name, NOW - 10),
        (6, State::Asked, NOW + 100),
    ] {
        let entry = Entry { expiry, ..Entry::new(state, NOW, Duration::from_secs(100)) };
        cache.put(IpAddr::from([192, 0, 2, last]), entry, &kept);
    }
    let (sender, door) = mpsc::channel(8);
    (Front::new(reader, sender, 3600, Arc::default()), door)
}

fn message(name: &str, rtype: Rtype, edns: bool) -> Vec<u8> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(7);
    let mut message = message.question();
    message.push((name.parse::<Name<Vec<u8>>>().unwrap(), rtype)).unwrap();
    let mut message = message.additional();
    if edns {
        message
            .opt(|opt| {
                opt.set_udp_payload_size(4096);
                Ok(())
            })
            .unwrap();
    }
    message.finish()
}

/// What is answered, in a line: rcode, answer, SOA's TTL and MINIMUM, extended error; and whether it is wanted.
fn said(name: &str, rtype: Rtype, edns: bool) -> (String, bool) {
    let (front, mut door) = front();
    let mut out = [0; 1232];
    let client = "127.0.0.1".parse().unwrap();
    let reply = answer(&front, &front.view(), &message(name, rtype, edns), client, NOW, None, &mut out);
    let (Reply::Send(length) | Reply::NotYet(length, _)) = reply else { panic!("an answer") };
    let message = Message::from_slice(&out[..length]).unwrap();
    let mut said = message.opt_rcode().to_string();
    for record in message.answer().unwrap().limit_to::<AllRecordData<_, _>>() {
        let record = record.unwrap();
        said += &format!(" {} {}", record.ttl().as_secs(), record.data());
    }
    for record in message.authority().unwrap().limit_to::<AllRecordData<_, _>>() {
        let record = record.unwrap();
        let AllRecordData::Soa(soa) = record.data() else { panic!("a SOA") };
        said += &format!(" {} {}/{}", record.owner(), record.ttl().as_secs(), soa.minimum().as_secs());
    }
    if let Some(opt) = message.opt() {
        said += " edns";
        for error in opt.opt().iter::<ExtendedError<_>>() {
            said += &format!(" {}", error.unwrap().code().to_int());
        }
    }
    (said, door.try_recv().is_ok())
}

#[test]
fn every_state_has_its_answer() {
    for (last, plain, error, wanted) in [
        (1, "NOERROR 100 www.example.", "", false),
        (2, "NXDOMAIN in-addr.arpa 50/50", "", false),
        (3, "NOERROR in-addr.arpa 7/7", " 22", false),
        (4, "NOERROR in-addr.arpa 8/8", " 13", false),
        (5, "NOERROR 30 www.example.", " 3", true),
        (6, "NOERROR in-addr.arpa 0/0", " 14", false),
        (7, "NOERROR in-addr.arpa 0/0", " 14", true),
    ] {
        let name = format!("{last}.2.0.192.in-addr.arpa");
        assert_eq!(said(&name, Rtype::PTR, false), (plain.to_owned(), wanted));
        assert_eq!(said(&name, Rtype::PTR, true), (format!("{plain} edns{error}"), wanted));
    }
    let six = format!("{}ip6.arpa", "0.".repeat(32));
    assert_eq!(said(&six, Rtype::PTR, false), ("NOERROR ip6.arpa 0/0".to_owned(), true));
}

#[test]
fn another_such_service_reads_what_is_not_known_as_that() {
    for (last, expected) in [
        (1, "www.example"),
        (2, "Nothing(50)"),
        (3, "Failed(Refused)"),
        (4, "Failed(Refused)"),
        (5, "www.example"),
        (6, "Failed(Refused)"),
        (7, "Failed(Refused)"),
    ] {
        let (front, _door) = front();
        let (address, client) = (IpAddr::from([192, 0, 2, last]), "127.0.0.1".parse().unwrap());
        let (asked, mut out) = (question(address, &Ask::Name, 7), [0; 1232]);
        let reply = answer(&front, &front.view(), &asked, client, NOW, None, &mut out);
        let (Reply::Send(length) | Reply::NotYet(length, _)) = reply else { panic!("an answer") };
        let told = match read(&out[..length], address, &Ask::Name, 7) {
            Answered::Name(name, _) => name.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!(told, expected, "{last}");
    }
}

#[test]
fn everything_else_is_refused() {
    for (name, rtype) in [
        ("www.example.com", Rtype::A),
        ("www.example.com", Rtype::PTR),
        ("2.0.192.in-addr.arpa", Rtype::PTR),
        ("1.2.0.192.in-addr.arpa", Rtype::TXT),
        ("in-addr.arpa", Rtype::SOA),
        (".", Rtype::NS),
    ] {
        assert_eq!(said(name, rtype, false), ("REFUSED".to_owned(), false), "{name} {rtype}");
    }
}

#[test]
fn whatever_is_no_question_is_counted_and_whatever_is_answered_says_that_recursion_is_there() {
    let question = message("1.2.0.192.in-addr.arpa", Rtype::PTR, false);
    let update = [&question[..2], &[0x28], &question[3..]].concat();
    let response = [&question[..2], &[0x80], &question[3..]].concat();
    for (message, refused, answered) in [
        (&question[..], 0, true),
        (&message("www.example.com", Rtype::A, true), 1, true),
        (&question[..12], 1, true),
        (&question[..question.len() - 1], 1, true),
        (&update, 1, true),
        (&response, 1, false),
        (&question[..11], 1, false),
    ] {
        let (front, _door) = front();
        let mut out = [0; 1232];
        let client = "127.0.0.1".parse().unwrap();
        let reply = answer(&front, &front.view(), message, client, NOW, None, &mut out);
        assert_eq!(front.counts().refused.load(Ordering::Relaxed), refused, "{message:?}");
        assert_eq!((reply != Reply::Drop, out[3] & 0x80 != 0), (answered, answered), "{message:?}");
    }
}

proptest! {
    #[test]
    fn any_message_is_answered_or_dropped(
        edns: bool, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), tcp: bool,
    ) {
        let (front, _door) = front();
        let mut message = message("7.2.0.192.in-addr.arpa", Rtype::PTR, edns);
        for (at, value) in changes {
            let at = at.index(message.len());
            message[at] = value;
        }
        let mut out = [0; 1232];
        let limit = tcp.then_some(1232);
        let client = "127.0.0.1".parse().unwrap();
        if let Reply::Send(length) | Reply::NotYet(length, _) =
            answer(&front, &front.view(), &message, client, NOW, limit, &mut out)
        {
            prop_assert_eq!(&out[..2], &message[..2]);
            let read = Message::from_slice(&out[..length]).unwrap();
            prop_assert!(read.header().qr());
            for record in read.authority().unwrap().limit_to::<AllRecordData<_, _>>() {
                record.unwrap();
            }
        }
    }
}
