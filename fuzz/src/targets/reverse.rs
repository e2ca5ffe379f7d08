//! What the reverse look-up service reads: answers of upstreams, and its own snapshots.

use std::net::IpAddr;
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::{Cname, Ptr};
use reverse::NameText;
use reverse::cache::{self, Entry, LIMIT_MIN, State};
use reverse::question::{Answered, question, read};

/// The address and id of the question that the seeds answer.
const ASKED: (IpAddr, u16) = (IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)), 77);

/// Whatever comes back, a name that is taken from it breaks no line and no header.
pub(super) fn answer(octets: &[u8]) {
    if let Answered::Name(name, _) = read(octets, ASKED.0, ASKED.1) {
        let text = name.as_str();
        assert!(
            !text.is_empty()
                && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-_./".contains(&octet))
        );
        assert!(text.parse::<IpAddr>().is_err(), "{text}");
        let mut wire = [0; 255];
        let length = name.to_wire(&mut wire);
        assert_eq!(NameText::from_wire(&wire[..length]).expect("it was written so").as_str(), text);
    }
}

pub(super) fn answers() -> Vec<Vec<u8>> {
    let name = |text: &str| text.parse::<Name<Vec<u8>>>().expect("a name");
    let asked = question(ASKED.0, ASKED.1);
    let begin = |rcode| {
        let asked = Message::from_slice(&asked).expect("a question");
        MessageBuilder::new_vec().start_answer(asked, rcode).expect("room in a vector")
    };
    let mut plain = begin(Rcode::NOERROR);
    let mut aliased = begin(Rcode::NOERROR);
    for target in ["b.example", "a.example"] {
        plain.push((name("7.2.0.192.in-addr.arpa"), 60, Ptr::new(name(target)))).expect("room in a vector");
    }
    aliased
        .push((name("7.2.0.192.in-addr.arpa"), 60, Cname::new(name("7.0/25.example"))))
        .expect("room in a vector");
    aliased.push((name("7.0/25.example"), 60, Ptr::new(name("c.example")))).expect("room in a vector");
    vec![plain.finish(), aliased.finish(), begin(Rcode::NXDOMAIN).finish()]
}

/// A snapshot is refused, or every look-up and change in it ends well.
pub(super) fn snapshot(octets: &[u8]) {
    let Ok((mut writer, reader)) = cache::snapshot::read(octets, LIMIT_MIN, 0) else { return };
    let mut name = NameText::EMPTY;
    for last in 0..8 {
        let _ = reader.view().get(IpAddr::from([192, 0, 2, last]), &mut name);
    }
    reader.view().for_each(|_, _, name| assert!(name.as_str().len() <= 253));
    for last in 0..8 {
        let entry = Entry::new(State::Name, 1000, Duration::from_secs(60));
        writer.put(
            IpAddr::from([192, 0, 2, last]),
            entry,
            &NameText::from_text(b"a.example").expect("a name"),
        );
    }
}

pub(super) fn snapshots() -> Vec<Vec<u8>> {
    let (mut writer, reader) = cache::new(LIMIT_MIN, 0, 7);
    let write = || {
        let mut file = Vec::new();
        cache::snapshot::write(&reader.view(), 1001, &mut file).expect("memory takes it");
        file
    };
    let empty = write();
    writer.put(
        IpAddr::from([192, 0, 2, 1]),
        Entry::new(State::NoName, 1000, Duration::from_secs(60)),
        &NameText::EMPTY,
    );
    vec![empty, write()]
}
