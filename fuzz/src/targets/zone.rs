//! Master files, and answers from a zone that has everything in it.

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use dns::{Folded, Query};
use domain::base::Message;
use nameserver::answer::{Asked, Reply, Transport};
use nameserver::book::{Book, Condition, Edit};
use nameserver::cookies::Secrets;
use nameserver::generation::Settings;
use nameserver::names::NameHash;
use nameserver::zone::{Cursor, Zone, read};
use net::clock::Now;

const ORIGIN: &[u8] = b"\x07example\0";

const ZONE: &str = "\
$TTL 1h30m
@ SOA ns hm ( 1 2h 10m ; serial, refresh, retry
   1d 60 )
@ NS ns
ns A 192.0.2.53
  AAAA 2001:db8::53
www TXT \"a b\" \"\\200;\\\"\"
alias CNAME www.other
*.wild MX 10 ns
sub NS ns.sub
ns.sub A 192.0.2.54
d DNAME www
x TYPE65280 \\# 3 010203
s SRV 1 2 53 ns
$ORIGIN deep.example.
a.b.c CAA 0 issue \"ca.example\"
";

/// A zone with proofs of what is not there: by NSEC3 records, with Opt-Out.
const SIGNED: &str = "\
$TTL 60
@ SOA a b 1 1 1 1 1
@ RRSIG SOA 13 1 60 20300101000000 20200101000000 1 signed. AAAA
@ NS a
@ DNSKEY 257 3 13 AAAA
@ NSEC3PARAM 1 0 0 -
763cl53llkher4rem04io94e2kh2qm3l NSEC3 1 1 0 - h726tiu1tb2akc2ojr6mpg89lv1th5ht MX
h726tiu1tb2akc2ojr6mpg89lv1th5ht NSEC3 1 1 0 - om2mk6ka5bfakqdiv9jeck8a1knrm1bl NS SOA RRSIG
om2mk6ka5bfakqdiv9jeck8a1knrm1bl NSEC3 1 1 0 - q5cfkmvvc7pek595j86jc5tcalr3bf7r
q5cfkmvvc7pek595j86jc5tcalr3bf7r NSEC3 1 1 0 - 763cl53llkher4rem04io94e2kh2qm3l A
a A 192.0.2.53
*.w MX 10 a
c NS ns.c
ns.c A 192.0.2.54
";

/// Data of types whose text needs care, and data that no text of its type gives.
const ODD: &str = r##"
@ 60 SOA a @ 1 1 1 1 1
@ 60 NS @
a HTTPS 1 @ alpn="h2,h3" no-default-alpn port=1 ipv4hint=192.0.2.1 ech="AAAA" ipv6hint=::1
b SVCB 1 \"a dohpath="/q{?dns};a b" key667="a;(\"\001"
c TYPE64 \# 7 00010000050000
d TYPE257 \# 2 0000
e TYPE50 \# 6 010000000000
f TYPE47 \# 4 00000100
g CAA 128 iodef "mailto:a;b"
h NAPTR 1 1 "" @ "!a!;!" @
i RP \"a. b
j HINFO "" "a\"b"
k IPSECKEY 1 3 2 \"a. AAAA
l TLSA 3 1 1 ab
m SSHFP 1 1 ab
n TYPE61 \# 1 00
o TYPE35 \# 8 0000000000000000
p TYPE16 \# 1 00
q TYPE65000 \# 0
r CDNSKEY 0 3 0 AA==
s TYPE45 \# 3 000000
"##;

const POLICY: &str = r#"{"names":["www.example","*.p.example"],"answers":0,
    "servers":[{"address":"192.0.2.1"},{"address":"192.0.2.2"},{"address":"2001:db8::1"}]}"#;

const ALIAS: &str =
    r#"{"names":["to.example","*.to.example"],"servers":[{"cname":"www.example"},{"cname":"a.test"}]}"#;

/// All records of a zone, sorted: owner, type, TTL and data.
fn records(zone: &Zone) -> Vec<(Vec<u8>, u16, u32, Vec<u8>)> {
    let (mut cursor, mut records) = (Cursor::default(), Vec::new());
    while let Some((owner, sets)) = zone.owner_at(&mut cursor) {
        for set in sets {
            let row = |data: &[u8]| (owner.to_vec(), set.rtype.to_int(), set.ttl, data.to_vec());
            records.extend(set.data().map(row));
        }
        cursor = cursor.next();
    }
    records.sort_unstable();
    records
}

/// A zone is built or its faults are listed; what is built writes as text that builds the same.
pub(super) fn zone(octets: &[u8]) {
    let hash = NameHash::new(1);
    let build = |text: &[u8]| {
        let include = |_: &str| Err("nothing is included".to_string());
        let source = read::Source { name: "fuzz", text, origin: Some(ORIGIN), include: &include };
        read::read(&source).and_then(|master| Zone::build(&master, "fuzz", &hash))
    };
    match build(octets) {
        Ok(zone) => {
            let text = zone.to_text();
            let again = build(text.as_bytes()).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
            let stored =
                read::read_canonical("fuzz", text.as_bytes()).expect("canonical text is read as such");
            let stored =
                Zone::build(&stored, "fuzz", &hash).unwrap_or_else(|faults| panic!("{faults}\n{text}"));
            assert_eq!(records(&stored), records(&zone), "{text}");
            assert_eq!(records(&again), records(&zone), "{text}");
            assert_eq!(again.to_text(), text);
        }
        Err(faults) => {
            assert!(!faults.is_empty() && faults.faults.iter().all(|fault| !fault.what.is_empty()))
        }
    }
}

pub(super) fn zones() -> Vec<Vec<u8>> {
    let signed = "@ 60 SOA a b 1 1 1 1 1\n@ 60 NS a\n@ 60 DNSKEY 257 3 13 AAAA\nz 1 DS 1 8 2 00112233445566778899\
                  aabbccddeeff00112233445566778899aabbccddeeff\nh 1 HTTPS 1 . alpn=h2 port=443\n$INCLUDE other\n";
    vec![ZONE.into(), signed.into(), ODD.into()]
}

/// Text that is read as canonical is what the scanner reads in it, where it goes by what can be served; or has data in octets,
/// which the scanner does not take of any form, or a field that is empty or a list that ends with a comma, which older
/// programs took.
pub(super) fn canonical(octets: &[u8]) {
    fn rows(master: &read::Master<'_>) -> Vec<(Vec<u8>, u16, u32, Vec<u8>)> {
        let row = |record: &read::Record| {
            let (owner, data) = (master.owner(record).to_vec(), master.rdata(record).to_vec());
            (owner, record.rtype.to_int(), record.ttl, data)
        };
        let mut rows: Vec<_> = master.records.iter().map(row).collect();
        rows.sort_unstable();
        rows
    }
    let Some(master) = read::read_canonical("fuzz", octets) else { return };
    let include = |_: &str| Err("nothing is included".to_string());
    let source = read::Source { name: "fuzz", text: octets, origin: None, include: &include };
    match read::read_stored(&source) {
        Ok(scanned) => assert_eq!(rows(&master), rows(&scanned)),
        Err(faults) => {
            let has_octets = octets.windows(2).any(|pair| pair == b"\\#");
            let mut words = octets.split(u8::is_ascii_whitespace);
            let has_open_list = words.any(|word| word.ends_with(b",") || word.ends_with(b",\""));
            let has_empty_field = faults.to_string().contains(" is empty; expected all fields");
            assert!(has_octets || has_open_list || has_empty_field, "{faults}");
        }
    }
}

/// The zones of the other targets as they are stored, and lines of forms that are not stored.
pub(super) fn canonicals() -> Vec<Vec<u8>> {
    let hash = NameHash::new(1);
    let stored = |text: &str, origin| {
        let include = |_: &str| Err("nothing is included".to_string());
        let source = read::Source { name: "seed", text: text.as_bytes(), origin, include: &include };
        let master = read::read(&source).expect("the zone is right");
        Zone::build(&master, "seed", &hash).expect("the zone is right").to_text().into_bytes()
    };
    let others =
        "a. 60 IN TXT \"a; b\"\nb. 50 IN A 192.0.2.1\n 60 IN MX 1 c.\nb. IN TXT ( c )\n\td. 1 IN NS e.\n";
    vec![
        stored(ZONE, Some(ORIGIN)),
        stored(SIGNED, Some(b"\x06signed\0")),
        stored(ODD, Some(ORIGIN)),
        others.into(),
    ]
}

static BOOK: LazyLock<Book> = LazyLock::new(|| {
    let settings = Settings { nsid: Some("fuzz".into()), require_cookies: true, ..Settings::default() };
    let mut book = Book::empty(1, settings);
    let hash = book.generation.hash.clone();
    let zone = Edit::zone("example", ZONE.as_bytes(), Condition::Always, &hash).expect("the zone is right");
    let signed =
        Edit::zone("signed", SIGNED.as_bytes(), Condition::Always, &hash).expect("the zone is right");
    let policy =
        |text: &str| Edit::policy(None, "p", text.into(), Condition::Always).expect("the policy is right");
    for edit in [zone, signed, policy(POLICY), policy(ALIAS), Edit::CookieSecrets(Secrets::one([7; 16]))] {
        book.apply(edit).expect("the edit is right");
    }
    book
});

/// What the generation is of.
pub(super) fn book() -> &'static Book {
    &BOOK
}

/// The generation that queries are answered from.
pub(super) fn generation() -> &'static nameserver::generation::Generation {
    &BOOK.generation
}

/// Whatever is asked, the answer is well-formed, fits, and goes to the question that was asked.
pub(super) fn answer(octets: &[u8]) {
    let client = IpAddr::from([127, 0, 0, 1]);
    let now = Now { monotonic: Duration::ZERO, unix: Duration::ZERO };
    let mut out = vec![0; 65_535];
    let mut name = Folded::root();
    let said =
        Query::read(octets, &mut name).ok().and_then(|query| query.edns).map(|edns| edns.udp_payload_size);
    let taken = usize::from(said.map_or(512, |said| said.clamp(512, 1232)));
    for (transport, most) in [(Transport::Udp, taken), (Transport::Tcp { idle: Duration::ZERO }, 65_535)] {
        let asked = Asked { query: octets, client, local: client, transport };
        let mut rng = fastrand::Rng::with_seed(octets.len() as u64);
        let Reply::Send(length) = BOOK.generation.answer(&asked, now, &mut rng, &mut out) else { continue };
        assert!(length <= most, "{length} octets");
        let answer = Message::from_octets(&out[..length]).expect("a header");
        assert!(answer.header().qr() && octets[..2] == out[..2]);
        for record in answer.iter() {
            record.expect("a record that reads");
        }
    }
}
