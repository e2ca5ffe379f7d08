//! The targets, one function each, with the well-formed inputs that the loop damages.

mod balancer;
mod catalog;
mod credit;
mod dnstap;
mod frame;
mod load;
mod partition;
mod proximity;
mod rapid;
mod reverse;
mod trace;
mod transfer;
mod update;
mod zone;
mod zones;

use std::net::IpAddr;

use dns::query::HEADER;
use dns::writer::{End, without_question};
use dns::{Folded, OptRcode, Query, Rcode, Rtype, Suffixes, Writer};
use domain::base::iana::OptionCode;
use domain::base::opt::{OptRecord, UnknownOptData};
use domain::base::{Message, MessageBuilder, Name, ToName};
use nameserver::health::check::answer::{Head, head};
use nameserver::http::Tags;

/// A reader under test.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Takes any bytes; panics when the reader is wrong.
    pub run: fn(&[u8]),
    /// Makes the well-formed inputs that are damaged.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target; a new one is a line here and a function below.
pub const TARGETS: &[Target] = &[
    Target { name: "query", run: query, seeds: queries },
    Target { name: "name", run: name, seeds: names },
    Target { name: "policy", run: policy, seeds: policies },
    Target { name: "zone", run: zone::zone, seeds: zone::zones },
    Target { name: "canonical", run: zone::canonical, seeds: zone::canonicals },
    Target { name: "answer", run: zone::answer, seeds: queries },
    Target { name: "partition", run: partition::partition, seeds: partition::partitions },
    Target { name: "codes", run: partition::codes, seeds: partition::code_files },
    Target { name: "database", run: partition::database, seeds: partition::databases },
    Target { name: "mrt", run: proximity::mrt, seeds: proximity::tables },
    Target { name: "external", run: proximity::lines, seeds: proximity::said },
    Target { name: "trace", run: trace::trace, seeds: trace::traces },
    Target { name: "trace_cdns", run: trace::trace, seeds: trace::cdns },
    Target { name: "trace_dnstap", run: trace::trace, seeds: trace::dnstap },
    Target { name: "trace_packed", run: trace::trace, seeds: trace::packed },
    Target { name: "mutate", run: trace::mutate, seeds: trace::mutations },
    Target { name: "dnstap", run: dnstap::dnstap, seeds: dnstap::streams },
    Target { name: "reverse_answer", run: reverse::answer, seeds: reverse::answers },
    Target { name: "resp", run: reverse::resp, seeds: reverse::commands },
    Target { name: "rapid_requests", run: rapid::requests, seeds: rapid::asked },
    Target { name: "rapid_responses", run: rapid::responses, seeds: rapid::answered },
    Target { name: "bulk", run: reverse::bulk, seeds: reverse::bulks },
    Target { name: "snapshot", run: reverse::snapshot, seeds: reverse::snapshots },
    Target { name: "snapshot_content", run: reverse::snapshot_content, seeds: reverse::damages },
    Target { name: "import", run: reverse::import, seeds: reverse::imports },
    Target { name: "relay", run: balancer::relay, seeds: balancer::relayed },
    Target { name: "balancer_reply", run: balancer::reply, seeds: balancer::replies },
    Target { name: "body", run: body, seeds: bodies },
    Target { name: "transfer", run: transfer::transfer, seeds: transfer::requests },
    Target { name: "incoming", run: transfer::incoming, seeds: transfer::given },
    Target { name: "notified", run: transfer::notified, seeds: transfer::notifications },
    Target { name: "update", run: update::update, seeds: update::updates },
    Target { name: "catalog", run: catalog::catalog, seeds: catalog::catalogs },
    Target { name: "frame", run: frame::frame, seeds: frame::frames },
    Target { name: "framing", run: transfer::framing, seeds: transfer::streams },
    Target { name: "compare", run: trace::compare, seeds: trace::compared },
    Target { name: "zones", run: zones::made, seeds: zones::responses },
    Target { name: "host", run: host, seeds: hosts },
    Target { name: "credit_hello", run: credit::hello, seeds: credit::hellos },
    Target { name: "credit_report", run: credit::report, seeds: credit::reports },
    Target { name: "load", run: load::load, seeds: load::loads },
    Target { name: "tags", run: tags, seeds: tag_lists },
    Target { name: "probe", run: probe, seeds: probed },
];

/// The largest response that the `query` target writes, in octets: as over TCP.
const RESPONSE_MAX: usize = 65_535;

/// The view of a query agrees with `domain`'s reading of the same octets, and its response is well-formed.
fn query(octets: &[u8]) {
    let mut out = vec![0; RESPONSE_MAX];
    if let Some(length) = without_question(octets, Rcode::FORMERR, 1232, &mut out) {
        let response = Message::from_octets(&out[..length]).expect("a header");
        assert!(response.header().qr() && response.header().rcode() == Rcode::FORMERR);
        assert_eq!(response.opt().is_some(), length > HEADER);
        assert_eq!(response.header().id().to_be_bytes(), octets[..2]);
    }
    let mut name = Folded::root();
    let Ok(query) = Query::read(octets, &mut name) else { return };
    let theirs = Message::from_octets(octets).expect("a header");
    let question = theirs.sole_question().expect("one question");
    let name = question.qname().to_vec();
    assert!(name.as_octets().eq_ignore_ascii_case(query.name.wire()));
    assert_eq!((question.qtype(), question.qclass()), (query.rtype, query.class));
    match (query.edns, theirs.opt()) {
        (None, None) => {}
        (Some(ours), Some(theirs)) => {
            let told = (theirs.udp_payload_size(), theirs.version(), theirs.dnssec_ok());
            assert_eq!((ours.udp_payload_size, ours.version, ours.dnssec_ok), told);
        }
        // What options of another version look like is not known here.
        (Some(ours), None) if ours.version != dns::edns::VERSION => {}
        // A record's owner may be a pointer to nowhere: it is not followed here, since no such record is used.
        (Some(_), None) if theirs.iter().any(|record| record.is_err()) => {}
        (ours, theirs) => panic!("OPT: {ours:?} here, {:?} there", theirs.map(|opt| opt.version())),
    }

    let mut suffixes = Suffixes::new();
    let mut writer =
        Writer::new(&mut out, &query, RESPONSE_MAX, &mut suffixes).expect("room for the question");
    writer.answer_asked(Rtype::A, 60, &[192, 0, 2, 1]).expect("room for an address");
    let end = End {
        rcode: OptRcode::NOERROR,
        authoritative: true,
        truncated: false,
        scope: 0,
        udp_payload_size: 1232,
        extended_error: None,
    };
    let length = writer.finish(&query, end);
    let response = Message::from_octets(&out[..length]).expect("a header");
    assert_eq!(response.header().id(), query.id());
    assert_eq!(response.sole_question().expect("the question is echoed").qname(), question.qname());
    let answers = response.answer().expect("an answer section");
    let owners = answers.map(|record| record.expect("a whole record").owner().to_vec().into_octets());
    assert_eq!(owners.collect::<Vec<_>>(), [name.into_octets()]);
    assert_eq!(response.opt().is_some(), query.edns.is_some());
    // Options of another version are not read.
    if let (Some(sent), Some(asked)) = (response.opt(), theirs.opt())
        && asked.version() == dns::edns::VERSION
    {
        assert_eq!(subnet(&sent), subnet(&asked), "echoed with scope 0");
    }
}

/// The data of the first client subnet option.
fn subnet(opt: &OptRecord<&[u8]>) -> Option<Vec<u8>> {
    let options = opt.opt().iter::<UnknownOptData<_>>().map(|option| option.expect("a whole option"));
    let mut subnets = options.filter(|option| option.code() == OptionCode::CLIENT_SUBNET);
    subnets.next().map(|option| option.data().to_vec())
}

fn queries() -> Vec<Vec<u8>> {
    let ask = |name: &str, rtype, options: Option<&[u8]>| {
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_id(0x1234);
        let mut message = message.question();
        message.push((&name.parse::<Name<Vec<u8>>>().expect("a name"), rtype)).expect("room in a vector");
        let mut octets = message.additional().finish();
        if let Some(options) = options {
            octets[11] = 1;
            octets.extend_from_slice(&[0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0]);
            octets.extend_from_slice(&(options.len() as u16).to_be_bytes());
            octets.extend_from_slice(options);
        }
        octets
    };
    vec![
        ask("www.example.com", Rtype::A, None),
        ask(".", Rtype::NS, Some(&[])),
        ask("x.w.signed", Rtype::A, Some(&[])),
        ask("x.c.signed", Rtype::A, Some(&[])),
        ask("nowhere.signed", Rtype::A, Some(&[])),
        ask("WWW.Example.COM", Rtype::AAAA, Some(&[0, 8, 0, 7, 0, 1, 24, 0, 192, 0, 2])),
        ask(
            "a.b.c.d.e.f.example",
            Rtype::TXT,
            Some(&[0, 8, 0, 11, 0, 2, 56, 0, 0x20, 1, 0x0d, 0xb8, 0, 1, 2]),
        ),
        ask("a", Rtype::A, Some(&[&[0, 3, 0, 0, 0, 11, 0, 0, 0, 10, 0, 24][..], &[7; 24]].concat())),
        ask("example.org", Rtype::SOA, Some(&[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 8, 0, 4, 0, 0, 0, 0])),
    ]
}

/// A name that is read from text is the same when it is written and read again.
fn name(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    let Ok(wire) = dns::name::from_text(text) else { return };
    assert!(wire.len() <= 255, "a name of {} octets", wire.len());
    let written = dns::name::to_text(&wire);
    assert_eq!(dns::name::from_text(&written).as_ref(), Ok(&wire), "written as {written}");
    assert_eq!(dns::name::folded_from_text(text), Ok(wire.to_ascii_lowercase()));
}

fn names() -> Vec<Vec<u8>> {
    // The longest name, 255 octets on the wire.
    let long = format!("{}.{}", "a".repeat(53), ["b"; 100].join("."));
    let texts = [".", "www.example.com", "*.Example.COM.", r"a\.b\032c.\000\255.example.", &long];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A policy that is read is the same when it is written and read again; what the API refuses has its place.
fn policy(octets: &[u8]) {
    let Ok(text) = str::from_utf8(octets) else { return };
    match api::Policy::read("body", text) {
        Ok(read) => {
            let written = serde_json::to_string(&read).expect("a policy can be written");
            assert_eq!(api::Policy::read("body", &written).as_ref(), Ok(&read), "{written}");
            serde_json::from_str::<api::Policy>(text).expect("what the API takes is of the documented shape");
        }
        Err(faults) => {
            assert!(!faults.is_empty() && faults.faults.iter().all(|fault| !fault.what.is_empty()))
        }
    }
}

fn policies() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"servers":[]}"#,
        r#"{"answers":1,"when_all_down":"answer","partition":"default","names":["www.example.com."],
            "servers":[{"address":"192.0.2.1","default":{"probability":0.5,"ttl":30},
            "regions":{"europe":{"probability":0.9,"ttl":60}}}]}"#,
        r#"{"when_all_down":"empty","servers":[{"address":"2001:db8::1","regions":{"a":{"ttl":2147483647}}},
            {"address":"192.0.2.2","default":{"probability":1e3}}]}"#,
        r#"{"names":["a."],"servers":[{"cname":"www.cdn.example.","probe":"web"},{"cname":"b","regions":{"a":{}}}]}"#,
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A body of the API is read or refused as its shape says; what is read writes and reads back the same.
fn body(octets: &[u8]) {
    fn there_and_back<T: serde::de::DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug>(
        octets: &[u8],
    ) {
        if let Ok(read) = serde_json::from_slice::<T>(octets) {
            let written = serde_json::to_vec(&read).expect("what was read can be written");
            assert_eq!(serde_json::from_slice::<T>(&written).expect("what was written can be read"), read);
        }
    }
    there_and_back::<api::Explain>(octets);
    there_and_back::<api::NewRegion>(octets);
    there_and_back::<api::NewServerState>(octets);
}

fn bodies() -> Vec<Vec<u8>> {
    [
        r#"{"name":"www.example.","type":"AAAA","client":"2001:db8::1"}"#,
        r#"{"name":"europe"}"#,
        r#"{"up":false}"#,
    ]
    .map(|body| body.as_bytes().to_vec())
    .to_vec()
}

/// A host that counts as our own is an address or localhost, whatever port stands behind it.
fn host(octets: &[u8]) {
    let Ok(host) = str::from_utf8(octets) else { return };
    if web::host::is_local(host) {
        let without_digits = host.trim_end_matches(|end: char| end.is_ascii_digit());
        let without_port = without_digits.strip_suffix(':').unwrap_or(host);
        let is_address = [host, without_port].iter().any(|host| {
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            bare.parse::<IpAddr>().is_ok()
        });
        assert!(is_address || without_port.eq_ignore_ascii_case("localhost"), "{host:?}");
    }
}

fn hosts() -> Vec<Vec<u8>> {
    let hosts =
        ["127.0.0.1:8053", "[::1]:8053", "::1", "LocalHost", "localhost:80", "evil.example:80", "[::1"];
    hosts.map(|host| host.as_bytes().to_vec()).into()
}

/// A list of entity tags that is read is the same when it is written and read again.
fn tags(octets: &[u8]) {
    let Some(tags) = str::from_utf8(octets).ok().and_then(Tags::read) else { return };
    let written = match &tags {
        Tags::Any => "*".to_owned(),
        Tags::OneOf(tags) => {
            let tag = |(tag, weak): &(String, bool)| format!("{}\"{tag}\"", if *weak { "W/" } else { "" });
            tags.iter().map(tag).collect::<Vec<_>>().join(", ")
        }
    };
    assert_eq!(Tags::read(&written), Some(tags), "{written}");
}

fn tag_lists() -> Vec<Vec<u8>> {
    ["*", "\"a\"", "W/\"a\", \"b\" ,,\"\"", "\"a", "a"].map(|list| list.as_bytes().to_vec()).into()
}

/// A server's answer to a probe: what is one stays the same one, whatever comes behind, and is none before its end.
fn probe(octets: &[u8]) {
    let read = head(octets);
    if let Head::Status(status) = read {
        assert!((100..1000).contains(&status));
        assert_eq!(head(&[octets, b"HTTP/1.1 999\r\n\r\n"].concat()), read);
    }
    // What comes in pieces is not taken for another answer on the way.
    for cut in 0..octets.len().min(200) {
        let early = head(&octets[..cut]);
        assert!(early == Head::Partial || early == read, "{early:?} {read:?}");
    }
}

fn probed() -> Vec<Vec<u8>> {
    [
        "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 503 Service Unavailable\n\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ]
    .map(Vec::from)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that a reader refuses would have the loop look at its first line only.
    #[test]
    fn the_readers_take_their_seeds() {
        for seed in queries() {
            assert!(Query::read(&seed, &mut Folded::root()).is_ok(), "{seed:02x?}");
            assert!(
                Query::read(&seed[..seed.len() - 1], &mut Folded::root()).is_err(),
                "{seed:02x?} has octets after its end"
            );
        }
        for seed in names() {
            assert!(dns::name::from_text(std::str::from_utf8(&seed).expect("text")).is_ok(), "{seed:02x?}");
        }
        for seed in policies() {
            api::Policy::read("seed", str::from_utf8(&seed).expect("text")).expect("a policy");
        }
    }
}
