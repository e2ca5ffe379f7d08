//! A policy as people write it: MyXDNS's matrix of probabilities and TTLs, and the names it serves.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fault::Faults;
use crate::reader::Reader;
use crate::target::Target;

/// The highest TTL, in seconds: 2^31 - 1 (RFC 2181 §8).
pub const TTL_MAX: u32 = i32::MAX as u32;

/// How a set of names resolves: the servers, and for each region how probable and for how long.
///
/// A region's row exists when any server has an entry for that region; the servers without one then
/// have probability 0 there. Without any entry, and always for region 0, the default column is used.
/// Each address family has rows of its own, of what is said of its servers.
///
/// The servers are addresses, or all of them are other names: then the names of the policy are aliases (CNAME records).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// How many servers an answer holds; 0 means all of them, the form of the MyXDNS paper. Where they are names it is 1.
    #[serde(default = "one")]
    pub answers: u16,
    /// In which order servers are answered, so that the first `answers` of them are.
    #[serde(default)]
    pub order: Order,
    /// What is answered while every server of the asked family is down or fails its probe.
    #[serde(default)]
    pub when_all_down: WhenAllDown,
    /// The partition that tells a client's region.
    #[serde(default = "default_partition")]
    pub partition: String,
    /// The owner names, in any case, with or without the final dot; the first is the policy's key.
    #[serde(default)]
    pub names: Vec<String>,
    /// The servers that the names may resolve to.
    pub servers: Vec<Server>,
}

/// A server and its column entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// What is answered: `address` or `cname`.
    #[serde(flatten)]
    pub target: Target,
    /// The name of the probe that tells whether the server can be used, one of the configuration's; without one
    /// it is taken to be well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "web")]
    pub probe: Option<String>,
    /// The entry of the default column, used for unclassified clients.
    #[serde(default)]
    pub default: Entry,
    /// The entries by region name.
    #[serde(default)]
    pub regions: BTreeMap<String, Entry>,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// How probable the server is, from 0; a row is normalised, so any scale will do. A column without
    /// any probability is uniform; in one that has some, a missing one is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// The TTL of an answer that this server leads, in seconds, at most 2^31 - 1; 360 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
}

/// In which order a name's servers are answered: what a row's probabilities are used for.
///
/// In each of them, servers of a row with probability 0 come after all others; a rank counts as a probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Drawn by the probabilities, without replacement: Algorithm 1 of the MyXDNS paper.
    #[default]
    Weighted,
    /// As the policy lists them, each time: the static policy.
    Fixed,
    /// As the policy lists them, each query of a name beginning one further: round-robin.
    Rotate,
    /// The most probable first; of those that are alike, each is as likely to be the first. Where the partition ranks
    /// servers for the client's region, and the policy has no row for that region, the ranks decide: the best first,
    /// whatever its probability, and those without a rank behind them by the default column. Where nothing tells one
    /// server from another, they come as the policy lists them.
    Nearest,
}

/// What a name answers while all servers of the asked family are down or fail their probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenAllDown {
    /// As if no probe failed; where an operator has set all of them down, as if all were up. A wrong guess is
    /// better than none.
    #[default]
    Answer,
    /// No address, nor a name: NODATA.
    Empty,
}

impl Order {
    /// All there are.
    pub const ALL: [Order; 4] = [Order::Weighted, Order::Fixed, Order::Rotate, Order::Nearest];

    /// The word for it, in JSON and in a store.
    pub fn word(self) -> &'static str {
        match self {
            Order::Weighted => "weighted",
            Order::Fixed => "fixed",
            Order::Rotate => "rotate",
            Order::Nearest => "nearest",
        }
    }

    /// The one with this word.
    pub fn of_word(word: &str) -> Option<Order> {
        Order::ALL.into_iter().find(|order| order.word() == word)
    }
}

impl WhenAllDown {
    /// All there are.
    pub const ALL: [WhenAllDown; 2] = [WhenAllDown::Answer, WhenAllDown::Empty];

    /// The word for it, in JSON and in a store.
    pub fn word(self) -> &'static str {
        match self {
            WhenAllDown::Answer => "answer",
            WhenAllDown::Empty => "empty",
        }
    }

    /// The one with this word.
    pub fn of_word(word: &str) -> Option<WhenAllDown> {
        WhenAllDown::ALL.into_iter().find(|what| what.word() == word)
    }
}

impl Policy {
    /// Reads a policy from JSON; `source` names the text in faults. What the values mean (whether a region
    /// exists, whether an address can be a server's) is checked when the policy is compiled.
    ///
    /// # Errors
    /// Everything that is wrong with the structure, with line and column: unknown, missing and repeated
    /// keys, wrong types, numbers out of range, addresses that are none. Where the text is not JSON, that
    /// alone.
    pub fn read(source: &str, text: &str) -> Result<Policy, Faults> {
        let mut reader = Reader::new(source, text)?;
        let policy = read_policy(&mut reader);
        reader.finish(policy)
    }
}

// Each of the following reports what is wrong and goes on, so that its result is only used when the
// reader has found nothing; what cannot be read is then left out or replaced by its default.

fn read_policy(reader: &mut Reader<'_>) -> Option<Policy> {
    let mut policy = Policy {
        answers: one(),
        order: Order::default(),
        when_all_down: WhenAllDown::default(),
        partition: default_partition(),
        names: Vec::new(),
        servers: Vec::new(),
    };
    let orders = Order::ALL.map(|order| (order.word(), order));
    let when_all_down = WhenAllDown::ALL.map(|what| (what.word(), what));
    let optional = ["answers", "order", "when_all_down", "partition", "names"];
    reader.object(&["servers"], &optional, |reader, key| match key {
        "answers" => policy.answers = reader.integer(0..=u16::MAX).unwrap_or_default(),
        "order" => policy.order = reader.choice(&orders).unwrap_or_default(),
        "when_all_down" => policy.when_all_down = reader.choice(&when_all_down).unwrap_or_default(),
        "partition" => policy.partition = reader.string().unwrap_or_default().into_owned(),
        "names" => reader.array(|reader| policy.names.extend(reader.string().map(Cow::into_owned))),
        _ => reader.array(|reader| policy.servers.extend(read_server(reader))),
    })?;
    Some(policy)
}

fn read_server(reader: &mut Reader<'_>) -> Option<Server> {
    let (mut probe, mut default, mut regions) = (None, Entry::default(), BTreeMap::new());
    let mut targets = Vec::new();
    let begin =
        reader.object(
            &[],
            &["address", "cname", "probe", "default", "regions"],
            |reader, key| match key {
                "address" => {
                    let address = reader.parsed("an IP address such as \"192.0.2.1\" or \"2001:db8::1\"");
                    targets.push(address.map(Target::Address));
                }
                "cname" => targets.push(reader.string().map(|name| Target::Cname(name.into_owned()))),
                "probe" => probe = reader.optional(Reader::string).map(Cow::into_owned),
                "default" => default = read_entry(reader),
                _ => reader.map(|reader, region| {
                    regions.insert(region.to_owned(), read_entry(reader));
                }),
            },
        )?;
    match targets.len() {
        0 => reader.fault(begin, "missing key 'address'", "address, or cname for an alias"),
        1 => {}
        _ => reader.fault(begin, "'address' and 'cname' stand here together", "one of them"),
    }
    Some(Server { target: targets.pop()??, probe, default, regions })
}

fn read_entry(reader: &mut Reader<'_>) -> Entry {
    let mut entry = Entry::default();
    let _ = reader.object(&[], &["probability", "ttl"], |reader, key| match key {
        "probability" => entry.probability = reader.optional(Reader::magnitude),
        _ => entry.ttl = reader.optional(|reader| reader.integer(0..=TTL_MAX)),
    });
    entry
}

fn one() -> u16 {
    1
}

fn default_partition() -> String {
    "default".into()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_documented_form() {
        let text = r#"{"answers":1,"when_all_down":"answer","partition":"default","names":["www.example.com."],
            "servers":[{"address":"192.0.2.1","probe":"web","default":{"probability":0.5,"ttl":30},
                        "regions":{"europe":{"probability":0.9,"ttl":60}}}]}"#;
        let policy = Policy::read("body", text).unwrap();
        assert_eq!(policy, serde_json::from_str(text).unwrap());
        assert_eq!(policy.servers[0].regions["europe"], Entry { probability: Some(0.9), ttl: Some(60) });
        let short = Policy::read("body", r#"{"servers":[{"address":"::1"}]}"#).unwrap();
        assert_eq!((short.answers, short.partition.as_str()), (1, "default"));
        assert_eq!((short.servers[0].default, &short.servers[0].probe), (Entry::default(), &None));
        assert_eq!(policy.servers[0].probe.as_deref(), Some("web"));
    }

    #[test]
    fn a_server_is_an_address_or_a_name() {
        let policy =
            Policy::read("body", r#"{"servers":[{"cname":"www.cdn.example","probe":"web"}]}"#).unwrap();
        assert_eq!(policy.servers[0].target, Target::Cname("www.cdn.example".into()));
        let written = serde_json::to_string(&policy.servers[0]).unwrap();
        assert_eq!(written, r#"{"cname":"www.cdn.example","probe":"web","default":{},"regions":{}}"#);
        let both = r#"{"servers":[{"cname":"a","address":"::1"},{"cname":5}]}"#;
        let expected = "body:1:13: 'address' and 'cname' stand here together; expected one of them\n\
                        body:1:52: a number is of the wrong type; expected a string";
        assert_eq!(Policy::read("body", both).unwrap_err().to_string(), expected);
    }

    #[test]
    fn zero_has_no_sign() {
        for zero in ["0", "0.0", "-0", "-0.0", "-0e9", "-1e-999"] {
            let text = format!(r#"{{"servers":[{{"address":"::1","default":{{"probability":{zero}}}}}]}}"#);
            let policy = Policy::read("body", &text).unwrap();
            let written = serde_json::to_string(&policy.servers[0].default).unwrap();
            assert_eq!(written, r#"{"probability":0.0}"#, "for {zero}");
        }
    }

    #[test]
    fn all_faults_at_once() {
        let text = r#"{
  "answers": 70000, "order": "random",
  "when_all_down": "maybe",
  "partition": 7,
  "names": ["a.example", 5],
  "colour": "red",
  "servers": [
    {"address": "192.0.2.300", "default": {"probability": -1, "ttl": 2147483648, "weight": 3}},
    {"default": {}},
    {"address": "192.0.2.1", "probe": 7, "regions": {"europe": {"ttl": 1.5}, "europe": [], "asia": {"ttl": null}}},
    "192.0.2.2"
  ]
}"#;
        let expected = [
            "body:2:14: 70000 is out of range; expected a whole number from 0 to 65535",
            "body:2:30: unknown value 'random'; expected \"weighted\", \"fixed\", \"rotate\" or \"nearest\"",
            "body:3:20: unknown value 'maybe'; expected \"answer\" or \"empty\"",
            "body:4:16: a number is of the wrong type; expected a string",
            "body:5:26: a number is of the wrong type; expected a string",
            "body:6:3: unknown key 'colour'; expected servers, answers, order, when_all_down, partition, names",
            "body:8:17: '192.0.2.300' cannot be read; \
             expected an IP address such as \"192.0.2.1\" or \"2001:db8::1\"",
            "body:8:59: -1 is out of range; expected a number from 0 on",
            "body:8:70: 2147483648 is out of range; expected a whole number from 0 to 2147483647",
            "body:8:82: unknown key 'weight'; expected probability, ttl",
            "body:9:5: missing key 'address'; expected address, or cname for an alias",
            "body:10:39: a number is of the wrong type; expected a string",
            "body:10:72: 1.5 is out of range; expected a whole number from 0 to 2147483647",
            "body:10:78: key 'europe' stands here twice; expected each key once",
            "body:10:88: an array is of the wrong type; expected an object",
            "body:11:5: a string is of the wrong type; expected an object",
        ];
        let faults = Policy::read("body", text).unwrap_err();
        assert_eq!(faults.to_string().lines().collect::<Vec<_>>(), expected);
        assert_eq!(
            Policy::read("body", "[]").unwrap_err().to_string(),
            "body:1:1: an array is of the wrong type; expected an object"
        );
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let probability = prop::option::of(prop_oneof![Just(0.0), 0.0..1e300, 0.0..1.0]);
        (probability, prop::option::of(0..=TTL_MAX)).prop_map(|(probability, ttl)| Entry { probability, ttl })
    }

    fn policy() -> impl Strategy<Value = Policy> {
        let regions = prop::collection::btree_map("[a-z/~\"]{0,5}", entry(), 0..4);
        let target = prop_oneof![any::<IpAddr>().prop_map(Target::Address), ".{0,9}".prop_map(Target::Cname)];
        let server = (target, prop::option::of(".{0,5}"), entry(), regions);
        let server =
            server.prop_map(|(target, probe, default, regions)| Server { target, probe, default, regions });
        let down = prop_oneof![Just(WhenAllDown::Answer), Just(WhenAllDown::Empty)];
        let order = prop::sample::select(vec![Order::Weighted, Order::Fixed, Order::Rotate, Order::Nearest]);
        let names = prop::collection::vec(".{0,9}", 0..3);
        let servers = prop::collection::vec(server, 0..4);
        (any::<u16>(), order, down, ".{0,9}", names, servers).prop_map(
            |(answers, order, when_all_down, partition, names, servers)| Policy {
                answers,
                order,
                when_all_down,
                partition,
                names,
                servers,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(policy in policy()) {
            let text = serde_json::to_string_pretty(&policy).unwrap();
            prop_assert_eq!(Policy::read("body", &text), Ok(policy));
        }

        /// A damaged policy is read as `serde` reads it, or refused where `serde` is too lenient.
        #[test]
        fn damage_is_a_fault(policy in policy(), at: prop::sample::Index, with in ".{0,3}") {
            let mut text: Vec<char> = serde_json::to_string(&policy).unwrap().chars().collect();
            let at = at.index(text.len());
            text.splice(at..at + 1, with.chars());
            let text: String = text.into_iter().collect();
            match (Policy::read("body", &text), serde_json::from_str::<Policy>(&text)) {
                (Ok(read), Ok(by_serde)) => {
                    // `serde_json` rounds the last digit of a number differently.
                    prop_assert_eq!((read.answers, read.names), (by_serde.answers, by_serde.names));
                    prop_assert_eq!(read.servers.len(), by_serde.servers.len());
                }
                (Ok(_), Err(error)) => prop_assert!(false, "{} {}", error, text),
                (Err(faults), _) => prop_assert!(!faults.is_empty()),
            }
        }

        #[test]
        fn any_text_is_taken(text in "(?s).{0,60}") {
            if let Err(faults) = Policy::read("body", &text) {
                prop_assert!(!faults.is_empty());
            }
        }
    }
}
