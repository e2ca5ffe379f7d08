//! Requests for zones and notifications, signed and not; zones that come; notifications' answers; messages out of a stream.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use dns::{Folded, Tsig};
use domain::base::iana::{Opcode, Rtype};
use domain::base::{Message, MessageBuilder, Name, Serial, ToName, Ttl};
use domain::rdata::{A, AllRecordData, Soa};
use nameserver::answer::{Answered, Asked, Reply, Transport};
use nameserver::book::Edit;
use nameserver::fast::Fast;
use nameserver::transfer::incoming::{self, Came, Incoming};
use nameserver::transfer::keys::{Algorithm, Key};
use nameserver::transfer::signature::Signer;
use nameserver::transfer::{
    Config, Given, Keys, Primaries, Primary, Secondaries, Secondary, Transfers, Updater, Updaters, notifier,
};
use net::clock::Clock;
use net::framing::{Assembler, FRAME_MAX, prefix};
use net::tcp::Next;

/// What the first octet of an input says: over TCP; to be signed by us, with the right key; from an address that
/// no rule has.
const OVER_TCP: u8 = 1;
const SIGNED: u8 = 2;
const STRANGER: u8 = 4;

/// A connection on which nobody waits.
pub(super) const TCP: Transport = Transport::Tcp { idle: Duration::ZERO };

/// The octets of a header.
const HEADER: usize = 12;

/// The longest piece of a stream, in octets.
const PIECE_MAX: usize = 40;

/// More messages than the zone can have.
const MESSAGES_MAX: usize = 10;

static KEY: LazyLock<Arc<Key>> =
    LazyLock::new(|| Arc::new(Key::new(b"\x01k\0", Algorithm::Sha256, b"0123456789abcdef")));

pub(super) static TRANSFERS: LazyLock<Transfers> = LazyLock::new(|| {
    let mut keys = Keys::default();
    keys.read("keys", "hmac-sha256:k:MDEyMzQ1Njc4OWFiY2RlZg==").expect("a key");
    let rule = |from: &str, key| Secondary {
        from: if from.is_empty() { Vec::new() } else { vec![from.parse().expect("a prefix")] },
        key,
        ..Secondary::default()
    };
    let secondaries = Secondaries(vec![rule("127.0.0.0/8", None), rule("", Some(KEY.clone()))]);
    let zones = [b"\x05given\0".to_vec()].into();
    let addresses = vec!["127.0.0.1:53".parse().expect("an address")];
    let primaries = Primaries(vec![Primary { zones, addresses, ..Primary::default() }]);
    let updaters = Updaters(vec![Updater { key: Some(KEY.clone()), ..Updater::default() }]);
    Transfers::new(Config { keys, secondaries, primaries, updaters })
});

/// Whoever asks for a zone, or signs: what comes back is well-formed, signed where the request was, and a zone is
/// whole.
pub(super) fn transfer(octets: &[u8]) {
    let Some((how, query)) = octets.split_first() else { return };
    let (now, generation) = (Clock::new().now(), super::zone::generation());
    let mut query = query.to_vec();
    let signer = if how & SIGNED == 0 { None } else { sign(&mut query, now.unix.as_secs()) };
    let is_over_tcp = how & OVER_TCP != 0;
    let asked = Asked {
        query: &query,
        client: IpAddr::from(if how & STRANGER == 0 { [127, 0, 0, 1] } else { [192, 0, 2, 1] }),
        local: IpAddr::from([127, 0, 0, 1]),
        transport: if is_over_tcp { TCP } else { Transport::Udp },
    };
    let (mut rng, mut out) = (fastrand::Rng::with_seed(1), vec![0; FRAME_MAX]);
    let out = &mut out[..if is_over_tcp { FRAME_MAX - 2 } else { 1_232 }];
    match TRANSFERS.answer(generation, &asked, Fast::default(), now, &mut rng, out) {
        None | Some(Given::Answered(Answered { reply: Reply::Drop(_), .. })) => {}
        Some(Given::Answered(Answered { reply: Reply::Send(length), .. })) => {
            check(&out[..length], &query);
            if let Some(signer) = &signer {
                let tsig = Tsig::read(&out[..length]).expect("it reads").expect("it is signed");
                let unix = now.unix.as_secs();
                assert!(signer.verify_answer(&out[..length], &tsig, unix).is_ok(), "we believe ourselves");
            }
        }
        Some(Given::Update(_)) => assert!(signer.is_some(), "nobody else may"),
        Some(Given::Outgoing(mut outgoing)) => {
            assert!(is_over_tcp, "a datagram is one message");
            let mut types = Vec::new();
            for count in 0.. {
                assert!(count < MESSAGES_MAX, "the zone is small");
                match outgoing.next(now.unix.as_secs(), out) {
                    Next::Message(length) => {
                        let answer = check(&out[..length], &query);
                        let records = answer.answer().expect("a section");
                        types.extend(records.map(|record| record.expect("a record").rtype()));
                        assert_eq!(signer.is_some(), Tsig::read(&out[..length]).expect("it reads").is_some());
                    }
                    Next::End => break,
                    Next::Broken => panic!("every record fits"),
                }
            }
            let soas = types.iter().filter(|rtype| **rtype == Rtype::SOA).count();
            let ends = [types.first(), types.last()].map(|rtype| rtype == Some(&Rtype::SOA));
            assert!(types.len() > 2 && soas == 2 && ends == [true; 2], "{types:?}");
        }
    }
}

/// Signs a message in place, where there is one.
pub(super) fn sign(message: &mut Vec<u8>, unix: u64) -> Option<Signer> {
    let length = message.len();
    if length < HEADER || message[10..HEADER] == [0xff; 2] {
        return None;
    }
    let mut signer = Signer::request(KEY.clone());
    message.resize(length + signer.room(), 0);
    let signed = signer.sign(message, length, unix);
    message.truncate(signed.unwrap_or(length));
    // What has a signature inside, or no end, is no signed message.
    signed.filter(|_| matches!(Tsig::read(message), Ok(Some(tsig)) if tsig.start == length)).map(|_| signer)
}

fn check<'a>(answer: &'a [u8], query: &[u8]) -> &'a Message<[u8]> {
    let message = Message::from_slice(answer).expect("a header");
    assert!(message.header().qr() && answer[..2] == query[..2]);
    for record in message.iter() {
        record.expect("a record that reads");
    }
    message
}

fn notification(zone: &str) -> Vec<u8> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_opcode(Opcode::NOTIFY);
    let mut message = message.question();
    message.push((&zone.parse::<Name<Vec<u8>>>().expect("a name"), Rtype::SOA)).expect("room in a vector");
    message.finish()
}

/// The id of the answers that bring a zone.
const ID: u16 = 7;

/// Whoever gives us a zone, or what changed of it, in frames: what is taken is a master file that reads, or has faults.
pub(super) fn incoming(octets: &[u8]) {
    let generation = super::zone::generation();
    let zone = Folded::read(b"\x06signed\0").expect("a name");
    let here = generation.zones.all().get(&zone, &generation.hash).expect("it is here");
    for since in [None, Some(here.serial())] {
        let mut coming = Incoming::new(zone.clone(), since);
        let (mut assembler, mut piece) = (Assembler::default(), octets);
        let mut is_well = true;
        while let Some(message) = assembler.next(&mut piece).filter(|_| is_well) {
            let _ = incoming::version(&zone, ID, message);
            is_well = coming.take(ID, message).is_ok();
        }
        let Some((came, version)) = coming.finish().filter(|_| is_well) else { continue };
        let hash = &generation.hash;
        let edit = match came {
            Came::Zone(text) => Edit::given_zone("given", &zone, text.as_bytes(), hash),
            Came::Changes(differences) => {
                assert!(since.is_some(), "nobody asked for it");
                Edit::given_changes("given", here, &differences, hash)
            }
        };
        match edit {
            Ok(Edit::PutZone { zone, .. } | Edit::ChangeZone { zone, .. }) => {
                assert_eq!(zone.serial(), version.serial);
            }
            Ok(_) => panic!("it puts a zone or changes one"),
            Err(faults) => assert!(!faults.to_string().is_empty()),
        }
    }
}

/// What we give ourselves, in one message and in a message each record; and what changes, in which a record goes, comes as
/// another, and the other way round.
pub(super) fn given() -> Vec<Vec<u8>> {
    let (now, generation) = (Clock::new().now(), super::zone::generation());
    let zone = Folded::read(b"\x06signed\0").expect("a name");
    let query = incoming::question(&zone, Rtype::AXFR, ID);
    let local = IpAddr::from([127, 0, 0, 1]);
    let asked = Asked { query: &query, client: local, local, transport: TCP };
    let (mut rng, mut out) = (fastrand::Rng::with_seed(1), vec![0; FRAME_MAX]);
    let given = TRANSFERS.answer(generation, &asked, Fast::default(), now, &mut rng, &mut out);
    let Some(Given::Outgoing(mut outgoing)) = given else { panic!("this machine may have it") };
    let mut whole = Vec::new();
    while let Next::Message(length) = outgoing.next(now.unix.as_secs(), &mut out) {
        whole.push(out[..length].to_vec());
    }
    let frame = |message: &[u8]| [&prefix(message.len())[..], message].concat();
    let mut parsed = Vec::new();
    for message in &whole {
        let message = Message::from_slice(message).expect("a header");
        parsed.extend(message.answer().expect("a section").map(|record| record.expect("a record")));
    }
    let read = parsed.iter().map(|record| record.to_any_record::<AllRecordData<_, _>>().expect("it reads"));
    let records: Vec<_> = read.collect();
    let begin = || {
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_id(ID);
        message.header_mut().set_qr(true);
        message.header_mut().set_aa(true);
        message.answer()
    };
    let mut single = Vec::new();
    for record in &records {
        let mut one = begin();
        one.push(record).expect("room in a vector");
        single.extend(frame(&one.finish()));
    }
    let AllRecordData::Soa(soa) = records[0].data() else { panic!("it begins with the SOA record") };
    let version = |later: u32| {
        let serial = Serial::from(soa.serial().into_int() + later);
        let data = Soa::new(
            soa.mname(),
            soa.rname(),
            serial,
            soa.refresh(),
            soa.retry(),
            soa.expire(),
            soa.minimum(),
        );
        (records[0].owner(), records[0].ttl(), data)
    };
    let other = records.iter().find(|record| record.rtype() == Rtype::A).expect("an address");
    let address = || (other.owner(), other.ttl(), A::from_octets(192, 0, 2, 99));
    let mut changes = begin();
    let full = "room in a vector";
    changes.push(version(2)).expect(full);
    changes.push(version(0)).expect(full);
    changes.push(other).expect(full);
    changes.push(version(1)).expect(full);
    changes.push(address()).expect(full);
    changes.push(version(1)).expect(full);
    changes.push(address()).expect(full);
    changes.push(version(2)).expect(full);
    changes.push(other).expect(full);
    changes.push(version(2)).expect(full);
    vec![whole.iter().flat_map(|message| frame(message)).collect(), single, frame(&changes.finish())]
}

pub(super) fn requests() -> Vec<Vec<u8>> {
    let ask = |name: &str, rtype: Rtype, known: Option<u32>| {
        let name: Name<Vec<u8>> = name.parse().expect("a name");
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_id(0x1234);
        let mut message = message.question();
        message.push((&name, rtype)).expect("room in a vector");
        let mut message = message.authority();
        if let Some(serial) = known {
            let times = [Ttl::from_secs(1); 4];
            let soa = Soa::new(&name, &name, Serial::from(serial), times[0], times[1], times[2], times[3]);
            message.push((&name, 1, soa)).expect("room in a vector");
        }
        message.finish()
    };
    let messages = [
        ask("signed", Rtype::AXFR, None),
        ask("signed", Rtype::IXFR, Some(0)),
        ask("signed", Rtype::IXFR, Some(1)),
        ask("example", Rtype::AXFR, None),
        ask("nowhere", Rtype::AXFR, None),
        ask("a.signed", Rtype::A, None),
        notification("given"),
        notification("signed"),
    ];
    let hows = [0, OVER_TCP, SIGNED, SIGNED | OVER_TCP, OVER_TCP | STRANGER, SIGNED | OVER_TCP | STRANGER];
    let mut seeds: Vec<Vec<u8>> = hows
        .iter()
        .flat_map(|how| messages.iter().map(move |message| [&[*how], &message[..]].concat()))
        .collect();
    // As it comes in: with a signature that is right but for its time, and with a key that nobody knows.
    for key in [KEY.clone(), Arc::new(Key::new(b"\x01x\0", Algorithm::Sha512, b"0123456789abcdef"))] {
        let mut message = messages[0].clone();
        let mut signer = Signer::request(key);
        message.resize(messages[0].len() + signer.room(), 0);
        signer.sign(&mut message, messages[0].len(), 1_700_000_000).expect("there is room");
        seeds.extend([[&[OVER_TCP], &message[..]].concat(), [&[0], &message[..]].concat()]);
    }
    seeds
}

/// The answer to a notification is read as `domain` reads it.
pub(super) fn notified(octets: &[u8]) {
    let Some((zone, id, rcode)) = notifier::read(octets) else { return };
    let message = Message::from_slice(octets).expect("a header");
    let (header, question) = (message.header(), message.sole_question().expect("one question"));
    assert!(header.qr() && question.qtype() == Rtype::SOA);
    assert_eq!((header.id(), header.rcode()), (id, rcode));
    assert!(question.qname().to_vec().as_slice().eq_ignore_ascii_case(&zone));
}

pub(super) fn notifications() -> Vec<Vec<u8>> {
    let head = |flags: u8| [0, 7, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let question = b"\x07Example\x03org\0\0\x06\0\x01";
    [0xa4, 0x24, 0x84].map(|flags| [&head(flags), &question[..]].concat()).into()
}

/// The first octet says in what pieces the rest comes: however that is, the same messages come out.
pub(super) fn framing(octets: &[u8]) {
    let Some((&seed, stream)) = octets.split_first() else { return };
    let (whole, is_partial) = assemble(std::iter::once(stream));
    let (mut rng, mut rest) = (fastrand::Rng::with_seed(seed.into()), stream);
    let pieces = std::iter::from_fn(|| {
        if rest.is_empty() {
            return None;
        }
        let (piece, left) = rest.split_at(rng.usize(..=rest.len().min(PIECE_MAX)));
        rest = left;
        Some(piece)
    });
    assert_eq!(assemble(pieces), (whole.clone(), is_partial));
    let taken: Vec<u8> =
        whole.iter().flat_map(|message| [&prefix(message.len())[..], message].concat()).collect();
    assert!(stream.starts_with(&taken) && is_partial == (taken.len() < stream.len()));
}

/// The messages in these pieces, and whether the beginning of another follows.
fn assemble<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, bool) {
    let (mut assembler, mut messages) = (Assembler::default(), Vec::new());
    for mut piece in pieces {
        while let Some(message) = assembler.next(&mut piece) {
            messages.push(message.to_vec());
        }
        assert!(piece.is_empty(), "a piece is taken whole");
    }
    (messages, assembler.is_partial())
}

pub(super) fn streams() -> Vec<Vec<u8>> {
    let frame = |message: &[u8]| [&prefix(message.len())[..], message].concat();
    let frames = [frame(b"one"), frame(b""), frame(&[7; 300])].concat();
    vec![[&[1_u8], &frames[..]].concat(), [&[2_u8], &frames[..frames.len() - 3]].concat(), vec![3, 0xff]]
}
