//! What the reverse look-up service reads: answers of upstreams, its own snapshots, lines that are imported, and commands
//! of clients.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::{A, Cname, Ptr};
use reverse::cache::{self, Entry, LIMIT_MIN, State};
use reverse::face::http::names;
use reverse::face::resp::Session;
use reverse::face::resp::read::WORDS_MAX;
use reverse::face::stream::{OUTPUT_MAX, Then};
use reverse::question::{Answered, Ask, question, read};
use reverse::{Front, NameText};

/// The address and id of the question that the seeds answer.
const ASKED: (IpAddr, u16) = (IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)), 77);

/// Whatever comes back, a name that is taken from it breaks no line and no header.
pub(super) fn answer(octets: &[u8]) {
    let host = NameText::from_text(b"a.example").expect("a name");
    for ask in [Ask::Addresses(host), Ask::Prefix(24)] {
        assert!(!matches!(read(octets, ASKED.0, &ask, ASKED.1), Answered::Name(..) | Answered::Unusable(_)));
    }
    if let Answered::Name(name, _) = read(octets, ASKED.0, &Ask::Name, ASKED.1) {
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
    let asked = question(ASKED.0, &Ask::Name, ASKED.1);
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
    let asked =
        question(ASKED.0, &Ask::Addresses(NameText::from_text(b"a.example").expect("a name")), ASKED.1);
    let asked = Message::from_slice(&asked).expect("a question");
    let mut addresses =
        MessageBuilder::new_vec().start_answer(asked, Rcode::NOERROR).expect("room in a vector");
    addresses.push((name("a.example"), 60, A::from_octets(192, 0, 2, 7))).expect("room in a vector");
    vec![plain.finish(), aliased.finish(), addresses.finish(), begin(Rcode::NXDOMAIN).finish()]
}

/// A cache with one name, made once: making one takes longer than all else here.
static FRONT: LazyLock<Front> = LazyLock::new(|| {
    let (mut writer, reader) = cache::new(LIMIT_MIN, 0, 7);
    let entry = Entry::new(State::Name, 1000, Duration::from_secs(60));
    writer.put(ASKED.0, entry, &NameText::from_text(b"a.example").expect("a name"));
    let (door, _wanted) = tokio::sync::mpsc::channel(1);
    Front::new(reader, door, 0, Arc::default())
});

/// Whatever comes, answers stay within their room, and the same octets in two pieces have the same answers.
pub(super) fn resp(octets: &[u8]) {
    let whole = converse(&FRONT, &[octets]);
    let (first, second) = octets.split_at(octets.len() / 2);
    assert!(
        octets.to_ascii_uppercase().windows(4).any(|octets| octets == b"INFO")
            || whole == converse(&FRONT, &[first, second])
    );
}

/// The answers to octets that come in pieces.
fn converse(front: &Front, pieces: &[&[u8]]) -> Vec<u8> {
    let mut session = Session::new(ASKED.0, 7);
    let (mut input, mut answers) = (Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let mut out = Vec::new();
            let step = session.answer(front, &front.view(), 1001, &input, &mut out);
            assert!(out.len() < OUTPUT_MAX + WORDS_MAX * 300);
            answers.extend_from_slice(&out);
            input.drain(..step.taken);
            match step.then {
                Then::Read => break,
                Then::Again => assert!(step.taken > 0),
                Then::Close => return answers,
            }
        }
    }
    answers
}

pub(super) fn commands() -> Vec<Vec<u8>> {
    [
        "*2\r\n$3\r\nGET\r\n$9\r\n192.0.2.7\r\n*1\r\n$4\r\nPING\r\n",
        "*3\r\n$4\r\nMGET\r\n$9\r\n192.0.2.7\r\n$11\r\n2001:db8::1\r\n",
        "HELLO 3 SETNAME a\r\nEXISTS 192.0.2.7\r\nTTL 192.0.2.7\nCLIENT GETNAME\nQUIT\r\n",
        "*0\r\n*-1\r\n\r\nCOMMAND\nCONFIG GET save\nSELECT 0\n",
    ]
    .map(|commands| commands.as_bytes().to_vec())
    .to_vec()
}

/// Whatever comes, each line has an answer of its own, which is an object, or all are refused.
pub(super) fn bulk(octets: &[u8]) {
    let Ok(answers) = names::answer(&FRONT, &FRONT.view(), ASKED.0, 1001, octets) else { return };
    let lines = octets.split(|octet| *octet == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let answers = String::from_utf8(answers).expect("JSON is text");
    assert_eq!(lines.count(), answers.lines().count());
    for answer in answers.lines() {
        let answer: serde_json::Value = serde_json::from_str(answer).expect("an object");
        assert!(answer["state"].is_string() != answer["what"].is_string(), "{answer}");
    }
}

pub(super) fn bulks() -> Vec<Vec<u8>> {
    [
        "192.0.2.7\n\"192.0.2.7\"\n{\"address\": \"2001:db8::1\", \"more\": [1]}\n",
        "\n\r\n::ffff:192.0.2.7\r\nx",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Lines that are imported are put or told once each, in their order, and those that were put can be imported again.
pub(super) fn import(octets: &[u8]) {
    const NOW: u32 = 1000;
    let (mut writer, reader) = cache::new(LIMIT_MIN, 0, 7);
    let mut wrong = Vec::new();
    let lines = cache::text::read(octets, NOW, &mut writer, |number, _| wrong.push(number));
    let lines = lines.expect("memory can be read");
    assert!(wrong.is_sorted_by(|one, next| one < next) && wrong.last().is_none_or(|last| *last <= lines));
    let mut text = Vec::new();
    let written = cache::text::write(&reader, NOW, &mut text).expect("memory takes it");
    assert!(written + wrong.len() as u64 <= lines, "{written} and {} of {lines}", wrong.len());
    let (mut writer, _) = cache::new(LIMIT_MIN, 0, 7);
    let again = cache::text::read(&text[..], NOW, &mut writer, |number, what| panic!("{number}: {what}"));
    assert_eq!(again.expect("memory can be read"), written);
}

pub(super) fn imports() -> Vec<Vec<u8>> {
    [
        "192.0.2.7\t1060\tA.example\n2001:db8::1\t4000000000\tb.example.\r\n192.0.2.8\t1060\t-\n",
        "::ffff:192.0.2.9\t1060\tc.example\n192.0.2.7\t999\tgone.example\n\nx\n192.0.2.9\t1060\td.example",
    ]
    .map(Vec::from)
    .into()
}

/// A snapshot is refused, or every look-up and change in it ends well.
pub(super) fn snapshot(octets: &[u8]) {
    let Ok((mut writer, reader)) = cache::snapshot::read(octets, LIMIT_MIN, 0) else { return };
    let mut name = NameText::EMPTY;
    for last in 0..8 {
        let _ = reader.view().get(IpAddr::from([192, 0, 2, last]), &mut name);
    }
    reader.for_each(|_, _, name| assert!(name.as_str().len() <= 253));
    for last in 0..8 {
        let entry = Entry::new(State::Name, 1000, Duration::from_secs(60));
        writer.put(
            IpAddr::from([192, 0, 2, last]),
            entry,
            &NameText::from_text(b"a.example").expect("a name"),
        );
    }
}

/// A snapshot whose content is damaged, and whose checksum is right all the same, as a forger's is: all that is in it is
/// looked at, swept, collected and changed. The input is the damage: places and what stands there.
pub(super) fn snapshot_content(octets: &[u8]) {
    let mut file = CONTENT.clone();
    let end = file.len() - 8;
    for damage in octets.as_chunks::<5>().0.iter().take(DAMAGES_MAX) {
        let [a, b, c, d, value] = *damage;
        // Half of it goes to what comes before the slots, which is little.
        let place = u32::from_le_bytes([a, b, c, d]) as usize;
        let within = if place.is_multiple_of(2) { 4200.min(end) } else { end };
        file[place / 2 % within] = value;
    }
    let words = file[..end].as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    let sum = cache::snapshot::checksum(words);
    file[end..].copy_from_slice(&sum.to_ne_bytes());
    let Ok((mut writer, reader)) = cache::snapshot::read(&file, LIMIT_MIN, 0) else { return };
    let addresses: Vec<IpAddr> = (0..12).map(content_address).collect();
    let look = || reader.view().get_each(&addresses, |_, _, name| assert!(name.octets().len() <= 253));
    look();
    // Once over all, and the end of that: the names are collected, and those that are no names go.
    (0..=cache::Writer::SWEEPS).for_each(|_| writer.sweep(1001));
    reader.for_each(|_, _, name| {
        assert!(name.octets().is_empty() || NameText::from_text(name.octets()).is_some())
    });
    for address in &addresses {
        writer.put(
            *address,
            Entry::new(State::Name, 1001, Duration::from_secs(60)),
            &NameText::from_text(b"new.example").expect("a name"),
        );
    }
    look();
}

/// Damages of one input.
const DAMAGES_MAX: usize = 64;

/// A snapshot of some names, with both families and a prefix in it.
static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let (mut writer, reader) = cache::new(LIMIT_MIN, 0, 7);
    for number in 0..12 {
        let entry = Entry::new(State::Name, 1000, Duration::from_secs(60));
        let name = format!("ip-192-0-2-{number}.pool.example");
        writer.put(content_address(number), entry, &NameText::from_text(name.as_bytes()).expect("a name"));
    }
    let nothing = Entry::new(State::NoName, 1000, Duration::from_secs(60));
    writer.put_prefix(IpAddr::from([198, 51, 100, 1]), 24, nothing);
    let mut file = Vec::new();
    cache::snapshot::write(&reader.view(), 1000, &mut file).expect("memory takes it");
    file
});

fn content_address(number: u8) -> IpAddr {
    match number % 2 {
        0 => IpAddr::from([192, 0, 2, number]),
        _ => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)]),
    }
}

pub(super) fn damages() -> Vec<Vec<u8>> {
    let damage = |place: u32, value: u8| [&place.to_le_bytes()[..], &[value]].concat();
    // The number of slots and of segments, a slot, the length of a name.
    vec![
        Vec::new(),
        damage(2 * 32, 1),
        damage(2 * 40, 9),
        damage(2 * 4300 + 1, 0xff),
        damage(2 * 6000 + 1, 0xff),
    ]
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
