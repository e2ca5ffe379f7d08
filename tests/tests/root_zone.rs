//! The signed root zone on us, NSD and Knot, and a minute of a root server's real queries to all three.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;

use domain::base::iana::{Class, Rtype};
use domain::base::name::FlattenInto;
use domain::base::{Message, Name, ParsedName, Record, Ttl};
use domain::rdata::{A, Aaaa, AllRecordData};
use replay::trace::{PORT, Trace, Transport};
use tests::folder::Folder;
use tests::peer::Peer;
use tests::query::{Question, connect, receive, send, socket};
use tests::serving::Serving;

/// How many queries over UDP the trace has.
const QUERIES: usize = 10_326;

/// How many queries are under way at once: few enough for any socket's buffer.
const WINDOW: usize = 64;

/// The queries of class CH (`hostname.bind`): what they are answered says who answers, not what is in a zone.
const CHAOS: usize = 4;

/// Every difference to a peer: what, in how many answers, and why.
const DIFFERENCES: &[(&str, &str, usize, &str)] = &[
    (
        "nsd",
        "TC",
        82,
        "NSD 4.6 does not know RFC 9471: in-domain glue that does not fit is left out in silence",
    ),
    (
        "nsd",
        "ADDITIONAL",
        355,
        "where not all fits, NSD takes A before AAAA, we server by server as they are named",
    ),
    (
        "knot",
        "ADDITIONAL",
        567,
        "where not all fits, Knot goes by RRset, we by server; it compresses less than we do",
    ),
    ("knot", "rcode", 1, "an UPDATE: we and NSD do not implement it, to Knot we are not authorized"),
    ("knot", "silence", 3, "broken queries: we and NSD say FORMERR, Knot nothing"),
];

#[test]
fn root_zone() {
    let Some(zone) = tests::data::xz_text("replay/root.zone.xz") else { return };
    let Some(trace) = tests::data::file("replay/nsd-live.raw.pcap.xz") else { return };
    let queries: Vec<Vec<u8>> = Trace::open(&trace, PORT)
        .expect("a capture")
        .map(|message| message.expect("the trace is whole"))
        .filter(|message| message.transport == Transport::Udp && !message.is_response())
        .map(|message| message.octets)
        .collect();
    assert_eq!(queries.len(), QUERIES);

    let folder = Folder::new();
    let file = folder.write("root.zone", &zone);
    let ours = Serving::start(&folder, &["--zone", &file]);
    let peers = [("nsd", Peer::nsd(&folder, ".", &file)), ("knot", Peer::knot(&folder, ".", &file))];
    let answers = ask(&queries, ours.dns());
    let theirs = peers.map(|(name, peer)| (name, ask(&queries, peer.dns)));

    let addresses = addresses(&zone);
    let mut differing: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    let mut chaos = 0;
    for (index, query) in queries.iter().enumerate() {
        let answer = answers[index].as_deref().unwrap_or_else(|| panic!("query {index} has no answer"));
        let seen = Seen::read(answer);
        check_glue(&seen, &addresses, index);
        if seen.tc && seen.is_empty() {
            check_too_large(query, answer.len(), ours.dns());
        }
        if seen.class == Some(Class::CH) {
            chaos += 1;
            continue;
        }
        for (name, theirs) in &theirs {
            let what =
                theirs[index].as_deref().map_or(vec!["silence"], |their| seen.differs(&Seen::read(their)));
            for what in what {
                differing.entry((name, what)).or_default().push(index);
            }
        }
    }
    assert_eq!(chaos, CHAOS);
    let counted: BTreeSet<_> =
        differing.iter().map(|((peer, what), all)| (*peer, *what, all.len())).collect();
    let listed: BTreeSet<_> =
        DIFFERENCES.iter().map(|(peer, what, count, _)| (*peer, *what, *count)).collect();
    assert_eq!(counted, listed, "{differing:?}");
    ours.stop();
}

/// Asks everything in windows; the id of each message says which it is.
///
/// Each server has one thread for one socket of ours, so that when a last question of a window is answered, so
/// are all before it, or they never will be.
fn ask(queries: &[Vec<u8>], server: SocketAddr) -> Vec<Option<Vec<u8>>> {
    const LAST: u16 = u16::MAX;
    let socket = socket(server);
    let with_id = |id: u16, query: &[u8]| [&id.to_be_bytes(), &query[2..]].concat();
    let last = with_id(LAST, &Question::new(".", "SOA").message());
    let mut answers = vec![None; queries.len()];
    let mut room = vec![0; 65_535];
    for (round, window) in queries.chunks(WINDOW).enumerate() {
        for (index, query) in window.iter().enumerate() {
            let id = u16::try_from(round * WINDOW + index).expect("an id for each");
            socket.send(&with_id(id, query)).expect("the server is there");
        }
        socket.send(&last).expect("the server is there");
        loop {
            let length = socket.recv(&mut room).expect("the last of a window is answered");
            match u16::from_be_bytes([room[0], room[1]]) {
                LAST => break,
                id => answers[usize::from(id)] = Some(room[..length].to_vec()),
            }
        }
    }
    answers
}

/// A name by itself, not compressed.
type Plain = Name<Vec<u8>>;

/// An answer, its records in canonical form (RFC 4034 §6.2), TTL and all, in no order.
struct Seen {
    class: Option<Class>,
    is_any: bool,
    rcode: String,
    /// The flags but TC, and of EDNS whether it is there and DO.
    flags: (String, Option<bool>),
    tc: bool,
    sections: [BTreeSet<Vec<u8>>; 3],
    /// Owner and target of the NS records of ANSWER and AUTHORITY.
    servers: Vec<(Plain, Plain)>,
    /// The owners of ADDITIONAL.
    additional: Vec<Plain>,
}

impl Seen {
    fn read(octets: &[u8]) -> Seen {
        let message = Message::from_slice(octets).expect("a message has a header");
        let question = message.sole_question().ok();
        let mut flags = message.header().flags();
        flags.tc = false;
        let mut seen = Seen {
            class: question.as_ref().map(|question| question.qclass()),
            is_any: question.is_some_and(|question| question.qtype() == Rtype::ANY),
            rcode: message.opt_rcode().to_string(),
            flags: (flags.to_string(), message.opt().map(|opt| opt.dnssec_ok())),
            tc: message.header().tc(),
            sections: Default::default(),
            servers: Vec::new(),
            additional: Vec::new(),
        };
        let (_, answer, authority, additional) = message.sections().expect("sections can be read");
        for (index, section) in [answer, authority, additional].into_iter().enumerate() {
            for record in section.limit_to::<AllRecordData<&[u8], ParsedName<&[u8]>>>() {
                let record = record.expect("records can be read");
                if record.rtype() == Rtype::OPT {
                    continue;
                }
                let flat =
                    |name: &ParsedName<&[u8]>| -> Plain { name.try_flatten_into().expect("there is room") };
                match record.data() {
                    AllRecordData::Ns(ns) => seen.servers.push((flat(record.owner()), flat(ns.nsdname()))),
                    _ if index == 2 => seen.additional.push(flat(record.owner())),
                    _ => {}
                }
                let mut canonical = Vec::new();
                record.compose_canonical(&mut canonical).expect("there is room");
                seen.sections[index].insert(canonical);
            }
        }
        seen
    }

    fn is_empty(&self) -> bool {
        self.sections.iter().all(BTreeSet::is_empty)
    }

    /// What is compared, as far as it differs: all where neither is truncated; of ANY, which may be answered with
    /// any of its records (RFC 8482), not the records.
    fn differs(&self, their: &Seen) -> Vec<&'static str> {
        if self.tc || their.tc {
            return if self.tc == their.tc { vec![] } else { vec!["TC"] };
        }
        let [answer, authority, additional] = [0, 1, 2].map(|i| self.sections[i] != their.sections[i]);
        [
            ("rcode", self.rcode != their.rcode),
            ("flags", self.flags != their.flags && self.rcode == their.rcode),
            ("ANSWER", answer && !self.is_any),
            ("AUTHORITY", authority && !self.is_any),
            ("ADDITIONAL", additional),
        ]
        .into_iter()
        .filter_map(|(what, differs)| differs.then_some(what))
        .collect()
    }
}

/// ADDITIONAL holds addresses that the zone has for servers that are named, and TC is set where those of servers in
/// the delegated domain are missing (RFC 9471 §3.1).
fn check_glue(seen: &Seen, addresses: &Addresses, index: usize) {
    for record in &seen.sections[2] {
        assert!(
            addresses.records.contains(record),
            "query {index}: what is in ADDITIONAL is not in the zone"
        );
    }
    for owner in &seen.additional {
        assert!(
            seen.servers.iter().any(|(_, server)| server == owner),
            "query {index}: {owner} is no server"
        );
    }
    let is_referral = seen.sections[0].is_empty() && !seen.servers.is_empty();
    if is_referral {
        let is_missing = seen.servers.iter().any(|(cut, server)| {
            let given = seen.additional.iter().filter(|owner| *owner == server).count();
            server.ends_with(cut) && given < addresses.of.get(server).copied().unwrap_or(0)
        });
        assert_eq!(seen.tc, is_missing, "query {index}: TC of a referral");
    } else {
        assert!(!seen.tc || seen.is_empty(), "query {index}: TC and records");
    }
}

/// What was truncated to nothing is too large for the asker.
fn check_too_large(query: &[u8], truncated: usize, server: SocketAddr) {
    let mut stream = connect(server);
    send(&mut stream, query).expect("the server takes it");
    let whole = receive(&mut stream).expect("an answer").len();
    let size = Message::from_slice(query).expect("a header").opt().map_or(512, |opt| opt.udp_payload_size());
    assert!(
        whole > usize::from(size.clamp(512, 1232)),
        "{whole} octets, {truncated} sent to who takes {size}"
    );
}

/// The zone's addresses.
struct Addresses {
    records: HashSet<Vec<u8>>,
    of: BTreeMap<Plain, usize>,
}

fn addresses(zone: &str) -> Addresses {
    let mut addresses = Addresses { records: HashSet::new(), of: BTreeMap::new() };
    for line in zone.lines() {
        let [owner, ttl, _, rtype, data] = line.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
            continue;
        };
        let data: AllRecordData<Vec<u8>, Plain> = match rtype {
            "A" => A::new(data.parse().expect("an address")).into(),
            "AAAA" => Aaaa::new(data.parse().expect("an address")).into(),
            _ => continue,
        };
        let owner: Plain = owner.parse().expect("a name");
        let ttl = Ttl::from_secs(ttl.parse().expect("a TTL"));
        let mut canonical = Vec::new();
        let record = Record::new(&owner, Class::IN, ttl, data);
        record.compose_canonical(&mut canonical).expect("there is room");
        addresses.records.insert(canonical);
        *addresses.of.entry(owner).or_default() += 1;
    }
    addresses
}
