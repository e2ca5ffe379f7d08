//! Nothing between a query's octets and its answer's allocates, nor does a worker that receives and sends them.
//!
//! In a test program of its own, for it brings its own allocator.
#![allow(unsafe_code, reason = "an allocator can be written in no other way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use nameserver::answer::{Asked, Reply, Transport};
use nameserver::book::{Book, Condition, Edit};
use nameserver::cookies::Secrets;
use nameserver::fast::Fast;
use nameserver::generation::{Generation, Settings};
use nameserver::rate_limit::{Limits, RateLimit};
use nameserver::zone::View;
use net::clock::Now;
use net::udp::{self, BATCH_MAX, Batch, Sent};
use routing::external::{Asking, NOTES_MAX};
use routing::policy::Context;
use routing::{Down, External, Family, Partition, Policy, RegionId, Rotation, State, Why, route};
use tap::{Config, Destination, Kinds, Talk, Writer};
use tests::query::{Answer, Question};

/// A connection with ten seconds for the next query.
const TCP: Transport = Transport::Tcp { idle: Duration::from_secs(10) };

/// The system's allocator, which counts calls per thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // None while the thread ends; nothing is counted then.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every method passes its arguments on to the system's allocator unchanged and returns what that returns.
// Counting allocates nothing: the thread-local is constant and needs no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are those of this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are those of this call.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are those of this call.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
@ NS ns.other.test.
ns A 192.0.2.53
ns AAAA 2001:db8::53
static A 192.0.2.1
static A 192.0.2.2
*.wild TXT wild
c1 CNAME c2
c2 CNAME c3
c3 CNAME www
out CNAME www.other.test.
loop1 CNAME loop2
loop2 CNAME loop1
d DNAME wild
sub NS ns.sub
sub NS ns.peer
ns.sub A 192.0.2.54
peer NS ns.peer
ns.peer A 192.0.2.55
big TXT 0123456789012345678901234567890123456789012345678901234567890123456789
";

/// Signed in form: an answer's signatures and proofs are copied, whatever they are.
const NSEC_ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ RRSIG SOA 13 2 300 20300101000000 20200101000000 1 example. AAAA
@ NS ns
@ RRSIG NS 13 2 300 20300101000000 20200101000000 1 example. AAAA
@ DNSKEY 257 3 13 AAAA
@ NSEC ns NS SOA RRSIG NSEC DNSKEY
*.wild TXT wild
*.wild RRSIG TXT 13 3 300 20300101000000 20200101000000 1 example. AAAA
*.wild NSEC nsec.example.com. TXT RRSIG NSEC
ns A 192.0.2.53
ns RRSIG A 13 3 300 20300101000000 20200101000000 1 example. AAAA
ns NSEC sub A RRSIG NSEC
sub NS ns.sub
sub NSEC *.wild NS RRSIG NSEC
ns.sub A 192.0.2.54
";

/// With the hashes of RFC 5155 Appendix A, and names that are missing for Opt-Out.
const NSEC3_ZONE: &str = "\
$TTL 300
@ SOA ns1 hm 1 7200 600 86400 60
@ RRSIG SOA 13 2 300 20300101000000 20200101000000 1 example. AAAA
@ NS ns1
@ DNSKEY 257 3 13 AAAA
@ NSEC3PARAM 1 0 12 aabbccdd
0p9mhaveqvm6t7vbl5lop2u3t2rp3tom NSEC3 1 1 12 aabbccdd 2t7b4g4vsa5smi47k61mv5bv1a22bojr NS SOA RRSIG
2t7b4g4vsa5smi47k61mv5bv1a22bojr NSEC3 1 1 12 aabbccdd k8udemvp1j2f7eg6jebps17vp3n8i58h A RRSIG
k8udemvp1j2f7eg6jebps17vp3n8i58h NSEC3 1 1 12 aabbccdd r53bq7cc2uvmubfu5ocmm6pers9tk9en
r53bq7cc2uvmubfu5ocmm6pers9tk9en NSEC3 1 1 12 aabbccdd 0p9mhaveqvm6t7vbl5lop2u3t2rp3tom MX RRSIG
ns1 A 192.0.2.53
ns1 RRSIG A 13 3 300 20300101000000 20200101000000 1 example. AAAA
*.w MX 10 ns1
c NS ns1.c
ns1.c A 192.0.2.54
";

const POLICY: &str = r#"{"answers": 0, "names": ["www.example.com", "*.cdn.example.com"], "servers": [
    {"address": "192.0.2.11", "default": {"probability": 0.5}, "regions": {"europe": {"probability": 0.1}}},
    {"address": "192.0.2.12", "default": {"probability": 0.5}, "regions": {"europe": {"probability": 0.9}}},
    {"address": "192.0.2.13"},
    {"address": "2001:db8::11", "regions": {"europe": {"probability": 0.9}}}
]}"#;

const ALIAS: &str = r#"{"names": ["alias.example.com", "*.alias.example.com"], "servers": [
    {"cname": "www.example.com", "default": {"probability": 1}}, {"cname": "www.other.test", "default": {"probability": 0}}]}"#;

const EMPTY: &str = r#"{"when_all_down": "empty", "servers": [{"address": "192.0.2.66"}]}"#;

const NOW: Now = Now { monotonic: Duration::ZERO, unix: Duration::ZERO };

/// A generation like those that are served, by way of the same edits.
fn book() -> Book {
    let mut book = Book::empty(1, Settings { minimal_responses: false, ..Settings::default() });
    let zone =
        Edit::zone("example.com", ZONE.as_bytes(), Condition::Always, &book.generation.hash).expect("a zone");
    book.apply(Edit::AddRegion { name: "europe".into() }).expect("a name");
    let lines = "10.0.0.0/8,europe\n10.1.0.0/16,-\n2001:db8::/32,europe\n";
    let partition =
        Edit::partition("default", "partition", lines.into(), Condition::Always, book.regions.clone());
    let policy = |owner: &str, text: &str| {
        Edit::policy(Some(owner), "policy", text.into(), Condition::Always).expect("a policy")
    };
    let signed = |origin, text: &str| {
        Edit::zone(origin, text.as_bytes(), Condition::Always, &book.generation.hash).expect("a zone")
    };
    for edit in [
        zone,
        signed("nsec.example.com", NSEC_ZONE),
        signed("example", NSEC3_ZONE),
        partition.expect("a partition"),
        policy("www.example.com", POLICY),
        policy("alias.example.com", ALIAS),
        policy("empty.example.com", EMPTY),
        Edit::SetServer { server: "192.0.2.12".parse().expect("an address"), up: false },
        Edit::SetServer { server: "192.0.2.66".parse().expect("an address"), up: false },
    ] {
        book.apply(edit).expect("the edit is good");
    }
    book
}

#[test]
fn answering_allocates_nothing() {
    let plain = book().generation;
    let mut viewed = plain.clone();
    let addresses = vec!["192.0.2.53".parse().expect("an address")];
    let zones = plain.zones.all().iter().map(|zone| zone.origin().wire().to_vec()).collect();
    viewed.choose_views([View { addresses, zones }].into());
    for (generation, local) in
        [(&plain, "127.0.0.1"), (&viewed, "192.0.2.53"), (&viewed, "::ffff:192.0.2.53")]
    {
        answer_all(generation, local.parse().expect("an address"));
    }
    assert!(ALLOCATIONS.get() > 0, "the allocator does not count");
}

/// Has queries of every kind, which come to an address of ours, answered without an allocation.
fn answer_all(generation: &Generation, local: IpAddr) {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut out = vec![0; 65_535];
    let client: IpAddr = "127.0.0.1".parse().expect("an address");
    for (name, rtype, rcode, answers) in [
        ("static.example.com", "A", "NOERROR", 2),
        ("static.example.com", "ANY", "NOERROR", 2),
        ("example.com", "NS", "NOERROR", 2),
        ("www.example.com", "A", "NOERROR", 2),
        ("www.example.com", "AAAA", "NOERROR", 1),
        ("www.example.com", "ANY", "NOERROR", 2),
        ("a.b.cdn.example.com", "A", "NOERROR", 2),
        ("alias.example.com", "A", "NOERROR", 3),
        ("alias.example.com", "CNAME", "NOERROR", 1),
        ("x.alias.example.com", "MX", "NOERROR", 1),
        ("empty.example.com", "A", "NOERROR", 0),
        ("static.example.com", "AAAA", "NOERROR", 0),
        ("nowhere.example.com", "A", "NXDOMAIN", 0),
        ("x.wild.example.com", "TXT", "NOERROR", 1),
        ("x.sub.example.com", "A", "NOERROR", 0),
        ("c1.example.com", "A", "NOERROR", 5),
        ("out.example.com", "A", "NOERROR", 1),
        ("loop1.example.com", "A", "NOERROR", 2),
        ("x.d.example.com", "TXT", "NOERROR", 3),
        ("example.net", "A", "REFUSED", 0),
        ("static.example.com", "AXFR", "NOTAUTH", 0),
    ] {
        let question = Question::new(name, rtype);
        for question in [
            question.clone(),
            question.clone().edns(),
            question.clone().dnssec_ok(),
            question.clone().subnet("10.2.0.0/16"),
            question.subnet("2001:db8::/56"),
        ] {
            for transport in [Transport::Udp, TCP] {
                let query = question.message();
                let asked = Asked { query: &query, client, local, transport };
                let before = ALLOCATIONS.get();
                let reply = generation.answer(&asked, NOW, &mut rng, &mut out);
                assert_eq!(ALLOCATIONS.get(), before, "allocations for {question:?}");
                let Reply::Send(length) = reply else { panic!("{question:?} is answered") };
                // So that each case is the one it is meant to be.
                let answer = Answer::read(&out[..length]);
                assert_eq!((answer.rcode.as_str(), answer.answer.len()), (rcode, answers), "{question:?}");
            }
        }
    }
}

#[test]
fn signatures_and_proofs_allocate_nothing() {
    let book = book();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut out = vec![0; 65_535];
    let client: IpAddr = "127.0.0.1".parse().expect("an address");
    for (name, rtype, rcode, answers, authorities) in [
        ("ns.nsec.example.com", "A", "NOERROR", 2, 0),
        ("ns.nsec.example.com", "RRSIG", "NOERROR", 1, 0),
        ("ns.nsec.example.com", "TXT", "NOERROR", 0, 3),
        ("other.nsec.example.com", "A", "NXDOMAIN", 0, 4),
        ("x.wild.nsec.example.com", "TXT", "NOERROR", 2, 1),
        ("x.wild.nsec.example.com", "A", "NOERROR", 0, 3),
        ("x.sub.nsec.example.com", "A", "NOERROR", 0, 2),
        ("ns1.example", "A", "NOERROR", 2, 0),
        ("ns1.example", "TXT", "NOERROR", 0, 3),
        ("a.b.example", "A", "NXDOMAIN", 0, 4),
        ("x.w.example", "MX", "NOERROR", 1, 1),
        ("x.w.example", "A", "NOERROR", 0, 5),
        ("x.c.example", "A", "NOERROR", 0, 3),
    ] {
        let query = Question::new(name, rtype).dnssec_ok().message();
        let asked = Asked { query: &query, client, local: client, transport: TCP };
        let before = ALLOCATIONS.get();
        let reply = book.generation.answer(&asked, NOW, &mut rng, &mut out);
        assert_eq!(ALLOCATIONS.get(), before, "allocations for {name} {rtype}");
        let Reply::Send(length) = reply else { panic!("{name} {rtype} is answered") };
        let answer = Answer::read(&out[..length]);
        assert_eq!((answer.rcode.as_str(), answer.answer.len()), (rcode, answers), "{name} {rtype}");
        // NS records come with positive answers here.
        assert!(answer.authority.len() >= authorities, "{name} {rtype}: {:?}", answer.authority);
    }
}

#[test]
fn options_and_rates_allocate_nothing() {
    let mut book = book();
    book.apply(Edit::CookieSecrets(Secrets::one([7; 16]))).expect("the edit is good");
    book.generation.settings.nsid = Some("fra1".into());
    let limits = Limits { per_second: 3, slip: 2, ..Limits::default() };
    let limit = RateLimit::new(limits, [1; 16]);
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut out, mut limited) = (vec![0; 65_535], vec![0; 65_535]);
    let fast = Fast { limit: Some(&limit), ..Fast::default() };
    let client: IpAddr = "127.0.0.1".parse().expect("an address");
    let new = Question::new("static.example.com", "A").option(3, &[]).option(11, &[]).option(10, &[1; 8]);
    let bad = new.clone().option(10, &[2; 24]);
    let alone = [&[0; 11][..], &[1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8], &[1; 8]].concat();
    let texts = [("version.bind", 3), ("id.server", 3)].map(|(name, class)| {
        let mut message = Question::new(name, "TXT").edns().message();
        message[12 + name.len() + 5] = class;
        message
    });
    let mut verdicts = [0; 4];
    for query in [new.message(), bad.message(), alone].iter().chain(&texts) {
        for transport in [Transport::Udp, TCP] {
            let asked = Asked { query, client, local: client, transport };
            for _ in 0..9 {
                let before = ALLOCATIONS.get();
                let reply = book.generation.answer(&asked, NOW, &mut rng, &mut out);
                let answered = book.generation.answer_counted(&asked, fast, NOW, &mut rng, &mut limited);
                assert_eq!(ALLOCATIONS.get(), before, "allocations for {query:02x?}");
                verdicts[answered.verdict as usize] += 1;
                let Reply::Send(length) = reply else { panic!("{query:02x?} is answered") };
                let answer = Answer::read(&out[..length]);
                assert!(answer.options.len() < 4 && answer.rcode == "NOERROR", "{answer:?}");
            }
        }
    }
    let [within, exempt, slipped, dropped] = verdicts;
    assert!(within > 0 && exempt == 0 && slipped > 0 && dropped > 0, "{verdicts:?}");
}

#[test]
fn tapping_allocates_nothing() {
    let destination = Destination::Socket("/nowhere".into());
    let config = Config {
        destination,
        file_max: 1 << 30,
        sample: 2,
        queries: true,
        responses: true,
        identity: "fra1".into(),
    };
    let mut tap = Writer::new(config, Kinds::AUTH).tap();
    let query = Question::new("static.example.com", "A").message();
    let longest = vec![0; 65_535];
    let server = "127.0.0.1:53".parse().expect("an address");
    let mut dropped = 0;
    for transport in [Transport::Udp, TCP] {
        for response in [None, Some(&longest[..])] {
            let time = Duration::from_secs(1);
            let talk = Talk { client: server, server, protocol: transport.protocol(), time };
            let before = ALLOCATIONS.get();
            // Until the ring is full, and on.
            for _ in 0..50 {
                if tap.takes(&query) {
                    dropped += tap.query(&talk, &query);
                    dropped += response.map_or(0, |response| tap.response(&talk, time, response));
                }
            }
            assert_eq!(ALLOCATIONS.get(), before, "allocations for {transport:?}");
        }
    }
    assert!(dropped > 0, "the ring became full");
}

#[test]
fn what_is_malformed_or_does_not_fit_allocates_nothing() {
    let book = book();
    let mut rng = fastrand::Rng::with_seed(1);
    let client: IpAddr = "127.0.0.1".parse().expect("an address");
    let good = Question::new("big.example.com", "TXT").subnet("10.2.0.0/16").message();
    let mut out = vec![0; 512];
    for length in 0..=good.len() {
        for room in [0, 11, 12, 40, 80, 512] {
            let (query, out) = (&good[..length], &mut out[..room]);
            let asked = Asked { query, client, local: client, transport: Transport::Udp };
            let before = ALLOCATIONS.get();
            book.generation.answer(&asked, NOW, &mut rng, out);
            assert_eq!(ALLOCATIONS.get(), before, "{length} octets into {room}");
        }
    }
}

#[test]
fn routing_allocates_nothing() {
    let europe = RegionId::new(1).expect("not too large");
    let prefix = "10.0.0.0/8".parse().expect("a prefix");
    let partition = Arc::new(Partition::compile([(prefix, europe)]));
    let origin = api::place::Origin { source: "policy", text: None };
    let mut rng = fastrand::Rng::with_seed(1);
    let rotation = Rotation::new();
    for order in ["weighted", "fixed", "rotate", "nearest"] {
        let spec = POLICY.replacen('{', &format!("{{\"order\": \"{order}\", "), 1);
        let spec = api::Policy::read("policy", &spec).expect("a policy");
        let context = Context { region: &|_| Some(europe), partition: &|_| Some(partition.clone()) };
        let policy = Policy::compile(&spec, origin, &context).expect("it compiles");
        let mut chosen = 0;
        for down in ["192.0.2.11", "192.0.2.99"] {
            let servers: Down = [down.parse().expect("an address")].into_iter().collect();
            for client in ["10.1.2.3", "192.0.2.1", "2001:db8::1"] {
                let client = client.parse().expect("an address");
                for family in [Family::V4, Family::V6] {
                    let state = servers.state().with_turns(Some(rotation.of(1)));
                    let before = ALLOCATIONS.get();
                    let choice = route(&policy, family, client, state, &mut rng);
                    assert_eq!(ALLOCATIONS.get(), before, "allocations for {client}");
                    chosen += choice.order().len();
                }
            }
        }
        assert_eq!(chosen, 3 * (2 + 1) + 3 * (3 + 1), "every choice was made");
    }
}

#[test]
fn what_an_external_service_knows_is_found_and_noted_without_allocating() {
    let europe = RegionId::new(1).expect("not too large");
    let entries = [("10.0.0.0/8", europe), ("0.0.0.0/0", RegionId::ASK)];
    let entries = entries.map(|(prefix, region)| (prefix.parse().expect("a prefix"), region));
    let partition = Arc::new(Partition::compile(entries));
    let context = Context { region: &|_| Some(europe), partition: &|_| Some(partition.clone()) };
    let spec = api::Policy::read("policy", POLICY).expect("a policy");
    let origin = api::place::Origin { source: "policy", text: None };
    let policy = Policy::compile(&spec, origin, &context).expect("it compiles");
    let external = External::new(16, Duration::from_secs(60), 10, [1; 16]);
    external.learn("192.0.2.0/24".parse().expect("a prefix"), europe, NOW.monotonic);
    let asker = Some("198.51.100.1".parse().expect("an address"));
    let mut rng = fastrand::Rng::with_seed(1);
    let mut reasons = [0; 3];
    // More clients of whom nothing is known than there is room to note them.
    for host in 0..3 * NOTES_MAX as u32 {
        let asking = Asking { external: &external, now: NOW.monotonic, source: 24, asker };
        let state = State::ALL_UP.with_asking(Some(asking));
        for (client, reason) in [[10, 1, 2, 3], [192, 0, 2, 1], (0xcb00_0000 + (host << 8)).to_be_bytes()]
            .into_iter()
            .zip(&mut reasons)
        {
            let before = ALLOCATIONS.get();
            let choice = route(&policy, Family::V4, client.into(), state, &mut rng);
            assert_eq!(ALLOCATIONS.get(), before, "allocations for {client:?}");
            *reason += u32::from(choice.why == Why::NotYet);
        }
    }
    assert_eq!(reasons, [0, 0, 3 * NOTES_MAX as u32]);
    assert!(external.lost() > 0, "the notes became full");
}

#[test]
fn a_worker_that_receives_and_sends_allocates_nothing() {
    let listener = udp::bind("0.0.0.0:0".parse().expect("an address"), None).expect("loopback binds");
    let asked = ([127, 0, 0, 1], listener.local_address().port());
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    let mut batch = Batch::new(1232);
    let mut sent = Sent::default();
    let mut seen = 0;
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the allocator does not count");
    for _ in 0..50 {
        for _ in 0..BATCH_MAX {
            client.send_to(b"a query of some length", SocketAddr::from(asked)).expect("loopback sends");
            seen += 1;
        }
        let mut left = BATCH_MAX;
        while left > 0 {
            left -= batch.receive(&listener).expect("datagrams are there");
            batch.answer_each(|datagram, out| {
                out[..datagram.bytes.len()].copy_from_slice(datagram.bytes);
                Some(datagram.bytes.len())
            });
            let now = batch.send(&listener);
            sent = Sent { sent: sent.sent + now.sent, failed: sent.failed + now.failed };
        }
    }
    assert_eq!(ALLOCATIONS.get(), before, "allocations in the loop");
    assert_eq!(sent, Sent { sent: seen, failed: 0 });
}
