//! Updates of a zone, signed by who may change all of it.

use std::net::IpAddr;

use domain::base::iana::{Class, Opcode, Rtype};
use domain::base::rdata::UnknownRecordData;
use domain::base::{MessageBuilder, Name, Serial, Ttl};
use domain::rdata::{A, Cname, Ns, Soa, Txt};
use nameserver::answer::Asked;
use nameserver::book::{Edit, Unmade};
use nameserver::fast::Fast;
use nameserver::transfer::Given;
use nameserver::zone::Zone;
use nameserver::zone::read::{Source, read};
use net::clock::Clock;
use net::framing::FRAME_MAX;

use super::transfer::{TCP, TRANSFERS, sign};
use super::zone::book;

/// Whatever is changed, what comes of it is a zone with a later serial number, or has faults, which are told.
pub(super) fn update(octets: &[u8]) {
    let (now, book) = (Clock::new().now(), book());
    let mut message = octets.to_vec();
    if sign(&mut message, now.unix.as_secs()).is_none() {
        return;
    }
    let local = IpAddr::from([127, 0, 0, 1]);
    let asked = Asked { query: &message, client: local, local, transport: TCP };
    let (mut rng, mut out) = (fastrand::Rng::with_seed(1), vec![0; FRAME_MAX]);
    let given = TRANSFERS.answer(&book.generation, &asked, Fast::default(), now, &mut rng, &mut out);
    let Some(Given::Update(accepted)) = given else { return };
    let (origin, update) = accepted.wanted();
    let before = book.generation.zones.all().get(origin, &book.generation.hash).expect("it is here");
    match Edit::updated_zone(book, origin, update) {
        Ok(Some(edit)) => {
            let (zone, text) = match edit {
                Edit::PutZone { zone, text, .. } => (zone, text.expect("it is short")),
                Edit::ChangeZone { zone, renewal, .. } => (zone, before.renewed_text(&renewal).into()),
                _ => panic!("an update puts a zone or changes one"),
            };
            assert_eq!(&*text, zone.to_text());
            assert!((zone.serial().wrapping_sub(before.serial()) as i32) > 0);
            let again = zone.updated(update, &book.generation.hash);
            assert!(again.is_ok() || !update.prerequisites.is_empty());
            let include = |_: &str| Err("an update includes nothing".to_string());
            let source = Source { name: "update", text: text.as_bytes(), origin: None, include: &include };
            let master = read(&source).expect("a zone that was changed is read");
            let built = Zone::build(&master, "update", &book.generation.hash).expect("it can be built");
            assert_eq!(built.to_text(), zone.to_text());
        }
        Ok(None) | Err(Unmade::Unmet(_)) => {}
        Err(Unmade::Refused(why)) => assert!(!why.to_string().is_empty()),
    }
}

/// Each kind of prerequisite and of change, of the zone of the other targets and of others.
pub(super) fn updates() -> Vec<Vec<u8>> {
    let full = "room in a vector";
    let name = |text: &str| text.parse::<Name<Vec<u8>>>().expect("a name");
    let ttl = Ttl::from_secs;
    let begin = |zone: &str| {
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_opcode(Opcode::UPDATE);
        let mut message = message.question();
        message.push((name(zone), Rtype::SOA)).expect(full);
        message.answer()
    };
    let bare = |owner: &str, class, rtype| {
        let data = UnknownRecordData::from_octets(rtype, Vec::new()).expect("no octets are few");
        (name(owner), class, ttl(0), data)
    };
    let text = || Txt::<Vec<u8>>::build_from_slice(b"token").expect("it is short");
    let mut all = begin("example");
    all.push(bare("example", Class::ANY, Rtype::ANY)).expect(full);
    all.push(bare("none.example", Class::NONE, Rtype::ANY)).expect(full);
    all.push(bare("example", Class::ANY, Rtype::SOA)).expect(full);
    all.push(bare("none.example", Class::NONE, Rtype::A)).expect(full);
    let mut all = all.authority();
    all.push(bare("gone.example", Class::ANY, Rtype::ANY)).expect(full);
    all.push(bare("example", Class::ANY, Rtype::TXT)).expect(full);
    all.push((name("_acme-challenge.example"), Class::IN, ttl(60), text())).expect(full);
    all.push((name("_acme-challenge.example"), Class::NONE, ttl(0), text())).expect(full);
    all.push((name("new.example"), Class::IN, ttl(60), A::from_octets(192, 0, 2, 1))).expect(full);
    all.push((name("alias.example"), Class::IN, ttl(60), Cname::new(name("new.example")))).expect(full);
    all.push((name("sub.example"), Class::IN, ttl(60), Ns::new(name("ns.sub.example")))).expect(full);
    let soa =
        Soa::new(name("ns.example"), name("h.example"), Serial::from(99), ttl(1), ttl(2), ttl(3), ttl(4));
    all.push((name("example"), Class::IN, ttl(60), soa)).expect(full);
    let mut has = begin("example");
    has.push((name("none.example"), Class::IN, ttl(0), text())).expect(full);
    let outside = || {
        let mut outside = begin("example").authority();
        outside.push((name("elsewhere"), Class::IN, ttl(60), text())).expect(full);
        outside.finish()
    };
    vec![all.finish(), has.finish(), outside(), begin("signed").finish(), begin("nowhere").finish()]
}
