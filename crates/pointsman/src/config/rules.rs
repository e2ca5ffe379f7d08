//! Pools of back ends and rules of `pointsman balance`: from what was given to what the balancer goes by.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use api::file::{WRITTEN_MAX, read_text};
use api::{Fault, Faults};
use balancer::Server;
use balancer::field::{DEFAULT_POOL, POOLS_MAX, Pools};
use balancer::message::ADDRESSES_MAX;
use balancer::rules::{NAMES_MAX, PREFIXES_MAX, RULES_MAX, Rule, Then};
use dns::Rtype;
use net::tls::client::Encrypted;
use routing::balance::BACK_ENDS_MAX;
use rustls::ClientConfig;

use super::designate;
use super::keys::{POOL, RULE};
use super::kind::one_of;
use super::lower::{at, at_most, is_plain};
use super::spec::{BackEndSpec, BalanceSpec, Placed, PoolSpec, RuleSpec, resolve};

/// The longest name of a pool or rule, in octets.
const NAME_MAX: usize = 63;

/// The back ends of all pools, each once, and the pools' names, by their numbers; `trust` says whose certificates are believed
/// of those over TLS, which is told where it is wrong.
pub(super) fn pools(
    spec: &BalanceSpec,
    trust: Option<&Arc<ClientConfig>>,
    faults: &mut Faults,
) -> (Vec<Server>, Vec<String>) {
    let mut servers = Servers { servers: Vec::new(), places: HashMap::new(), trust };
    let mut names = vec![DEFAULT_POOL.to_owned()];
    servers.add(0, &spec.backend, faults);
    at_most(POOLS_MAX - 1, "pools", spec.pool.iter().map(|pool| &pool.place), faults);
    for pool in spec.pool.iter().take(POOLS_MAX - 1) {
        POOL.required(&pool.given, &pool.place, faults);
        let name = pool.name.as_ref().filter(|name| is_own(name, &names, faults));
        // Also one without a good name has its number, so that its back ends are looked at.
        names.push(name.map_or_else(String::new, |name| name.value.clone()));
        servers.add(names.len() - 1, &pool.backend, faults);
    }
    if let Some(beyond) = all(spec).find(|placed| servers.is_beyond(placed.value.address)) {
        faults.push(beyond.place.fault("there are too many back ends", format!("{BACK_ENDS_MAX} at most")));
    }
    (servers.servers, names)
}

/// All back ends that are given, also such as are given twice.
pub(super) fn all(spec: &BalanceSpec) -> impl Iterator<Item = &Placed<BackEndSpec>> {
    spec.backend.iter().chain(spec.pool.iter().flat_map(|pool: &PoolSpec| &pool.backend))
}

/// The rules, with names from their files, behind those by which our own resolvers are told; `pools` are the names of pools, by
/// their numbers.
pub(super) fn rules(spec: &BalanceSpec, pools: &[String], faults: &mut Faults) -> Vec<Rule> {
    let mut rules = designate::rules(spec, faults);
    let (mut known, mut for_all) = (Vec::new(), None);
    let (mut left, rules_max) = (NAMES_MAX, RULES_MAX - rules.len());
    at_most(rules_max, "rules", spec.rule.iter().map(|rule| &rule.place), faults);
    let prefixes = spec.rule.iter().flat_map(|rule| &rule.clients).map(|prefix| &prefix.place);
    at_most(PREFIXES_MAX, "networks of clients in rules", prefixes, faults);
    for given in spec.rule.iter().take(rules_max) {
        RULE.required(&given.given, &given.place, faults);
        if let Some(before) = &for_all {
            let what = format!("no query comes to the rule: the rule {before} is for all of them");
            faults.push(given.place.fault(what, "a rule with conditions above it, or this one before it"));
        }
        let name = given.name.as_ref().filter(|name| is_own(name, &known, faults));
        let name = name.map_or_else(String::new, |name| name.value.clone());
        known.push(name.clone());
        let (names, types, then) =
            (names(given, &mut left, faults), types(&given.types, faults), then(given, pools, faults));
        let Some(then) = then else { continue };
        let rule = Rule {
            name,
            names,
            types,
            clients: given.clients.iter().map(|prefix| prefix.value).collect(),
            // The key's range ends below.
            per_second: given.per_second.as_ref().map(|rate| u32::try_from(rate.value).unwrap_or(u32::MAX)),
            then,
        };
        if given.is_for_all() && rule.then != Then::Truncated {
            for_all = Some(rule.name.clone());
        }
        rules.push(rule);
    }
    rules
}

/// Back ends, each with all pools that it is in.
struct Servers<'a> {
    servers: Vec<Server>,
    places: HashMap<SocketAddr, usize>,
    trust: Option<&'a Arc<ClientConfig>>,
}

impl Servers<'_> {
    fn add(&mut self, pool: usize, given: &[Placed<BackEndSpec>], faults: &mut Faults) {
        let mut here = HashSet::new();
        for Placed { value: BackEndSpec { address, tls, weight }, place } in given {
            if !here.insert(*address) {
                faults.push(place.fault(format!("backend has {address} twice"), "each server once"));
                continue;
            }
            let next = self.servers.len();
            let at = *self.places.entry(*address).or_insert(next);
            if at == next {
                let tls =
                    tls.clone().zip(self.trust.cloned()).map(|(name, config)| Encrypted { name, config });
                self.servers.push(Server { address: *address, tls, weight: *weight, pools: Pools::NONE });
            }
            let server = &mut self.servers[at];
            if server.weight != *weight {
                let what =
                    format!("{address} has the weight {weight} here and {} in another pool", server.weight);
                faults.push(place.fault(what, "one weight in all pools"));
            }
            if self.trust.is_some() && server.tls.as_ref().map(|tls| &tls.name) != tls.as_ref() {
                let what = format!("{address} is asked otherwise than in another pool");
                faults.push(place.fault(what, "the same #NAME of its certificate in all pools, or none"));
            }
            server.pools = server.pools.with(pool);
        }
    }

    /// Whether it is none of those that a balancer may have.
    fn is_beyond(&self, address: SocketAddr) -> bool {
        self.places.get(&address).is_some_and(|place| *place >= BACK_ENDS_MAX)
    }
}

impl RuleSpec {
    /// Whether it has no conditions.
    fn is_for_all(&self) -> bool {
        let conditions = ["names", "names_files", "types", "clients", "per_second"];
        conditions.into_iter().all(|condition| self.given.lacks(condition))
    }
}

/// Whether it is a name, and none of these.
fn is_own(name: &Placed<String>, others: &[String], faults: &mut Faults) -> bool {
    if !is_plain(name, NAME_MAX, faults) {
        return false;
    }
    let Placed { value, place } = name;
    if others.contains(value) {
        faults.push(place.fault(format!("name is {value:?}, which another one has"), "a name of its own"));
        return false;
    }
    true
}

/// The names that a rule is for, also where its files have none now; `left` is how many rules may still have.
fn names(spec: &RuleSpec, left: &mut usize, faults: &mut Faults) -> Option<Vec<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = spec.names.iter().map(|name| name.value.wire().to_vec()).collect();
    for file in &spec.names_files {
        names.extend(from_file(file, faults));
    }
    match left.checked_sub(names.len()) {
        Some(rest) => *left = rest,
        None => {
            let place = spec.names_files.first().map_or(&spec.place, |file| &file.place);
            faults.push(place.fault("the rules have too many names", format!("{NAMES_MAX} at most")));
            (*left, names) = (0, Vec::new());
        }
    }
    let is_given = !spec.given.lacks("names") || !spec.given.lacks("names_files");
    is_given.then_some(names)
}

/// The names of a file, one a line.
fn from_file(file: &Placed<PathBuf>, faults: &mut Faults) -> Vec<Vec<u8>> {
    const EXPECTED: &str = "a name a line, such as ads.example.com";
    let path = resolve(file);
    let text = match read_text(&path, WRITTEN_MAX, EXPECTED) {
        Ok(text) => text,
        Err(fault) => {
            faults.push(fault);
            return Vec::new();
        }
    };
    let mut names = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let given = text.split('#').next().unwrap_or_default();
        let name = given.trim();
        if name.is_empty() {
            continue;
        }
        match dns::name::folded_from_text(name) {
            Ok(name) => names.push(name),
            Err(_) => {
                let column = 1 + (given.len() - given.trim_start().len()) as u32;
                faults.push(Fault::at(
                    path.to_string_lossy(),
                    line,
                    column,
                    format!("{name:?} is no name"),
                    EXPECTED,
                ));
            }
        }
    }
    names
}

/// Types of records by their names; adds what is none to `faults`.
pub(crate) fn types(given: &[Placed<String>], faults: &mut Faults) -> Vec<Rtype> {
    let mut types = Vec::new();
    for Placed { value, place } in given {
        match value.parse() {
            Ok(rtype) => types.push(rtype),
            Err(_) => {
                faults.push(
                    place.fault(format!("types has {value:?}"), "a type of records, such as A or TYPE65"),
                );
            }
        }
    }
    types
}

/// What becomes of a rule's queries; `None` with at least one fault.
fn then(spec: &RuleSpec, pools: &[String], faults: &mut Faults) -> Option<Then> {
    const EXPECTED: &str = "one of pool, answer and addresses";
    let (pool, answer, addresses) = (at(&spec.pool), at(&spec.answer), at(&spec.addresses));
    let mut given = [pool, answer, addresses].into_iter().flatten();
    let (first, second) = (given.next(), given.next());
    if let Some(second) = second {
        faults.push(second.fault("the rule says twice what becomes of queries", EXPECTED));
        return None;
    }
    if first.is_none() && ["pool", "answer", "addresses"].into_iter().all(|key| spec.given.lacks(key)) {
        faults.push(spec.place.fault("the rule says not what becomes of queries", EXPECTED));
    }
    if let Some(Placed { value, place }) = &spec.pool {
        let number = pools.iter().position(|pool| pool == value);
        if number.is_none() {
            let known: Vec<&str> = pools.iter().map(|pool| &**pool).filter(|pool| !pool.is_empty()).collect();
            faults.push(place.fault(format!("there is no pool {value:?}"), one_of(&known)));
        }
        return number.map(Then::Pool);
    }
    if !spec.addresses.is_empty() {
        return Some(Then::Addresses(chosen(&spec.addresses, faults)));
    }
    Some(match spec.answer.as_ref()?.value {
        "nxdomain" => Then::Nxdomain,
        "nodata" => Then::Nodata,
        "truncated" => Then::Truncated,
        "nothing" => Then::Nothing,
        _ => Then::Refused,
    })
}

/// Addresses to answer, no more of a family than an answer has room for.
fn chosen(given: &[Placed<IpAddr>], faults: &mut Faults) -> Vec<IpAddr> {
    let addresses: Vec<IpAddr> = given.iter().map(|address| address.value.to_canonical()).collect();
    for is_ipv4 in [true, false] {
        let family = given.iter().zip(&addresses).filter(|(_, address)| address.is_ipv4() == is_ipv4);
        at_most(ADDRESSES_MAX, "addresses of one family", family.map(|(given, _)| &given.place), faults);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{defaults, file};
    use balancer::rules::Rule;
    use std::fs;
    use std::path::Path;

    type Read = (Vec<Server>, Vec<String>, Vec<Rule>);

    /// Reads what stands below a `[balance]` with two back ends, in a file of this folder.
    fn read(folder: &Path, text: &str) -> Result<Read, String> {
        let (mut faults, mut spec) = (Faults::default(), defaults());
        let head = "version = \"v1\"\n[balance]\nbackend = [\"192.0.2.1\", \"192.0.2.2=3\"]\n";
        file::read(&folder.join("p.toml"), &format!("{head}{text}"), &mut spec, &mut faults);
        let (servers, names) = pools(&spec.balance, None, &mut faults);
        let rules = rules(&spec.balance, &names, &mut faults);
        faults.or((servers, names, rules)).map_err(|faults| faults.to_string())
    }

    #[test]
    fn rules_are_read_with_their_pools_and_files() {
        let folder = std::env::temp_dir().join(format!("pointsman-rules-{}", std::process::id()));
        fs::create_dir(&folder).expect("there is room for temporary folders");
        fs::write(folder.join("block.txt"), "# all of these\n\n Ads.example # and below\ntrack.example.\n")
            .expect("the folder is ours");
        fs::write(folder.join("none.txt"), "# nothing now\n").expect("the folder is ours");
        let text = "[[balance.pool]]\nname = \"corp\"\nbackend = [\"192.0.2.2=3\", \"192.0.2.9\"]\n\
                    [[balance.rule]]\nname = \"ours\"\nnames = [\"corp.example\"]\nclients = [\"10.0.0.0/8\"]\npool = \"corp\"\n\
                    [[balance.rule]]\nname = \"ads\"\nnames = [\"more.example\"]\nnames_files = [\"block.txt\"]\nanswer = \"nxdomain\"\n\
                    [[balance.rule]]\nname = \"empty\"\nnames_files = [\"none.txt\"]\nanswer = \"refused\"\n\
                    [[balance.rule]]\nname = \"often\"\ntypes = [\"ANY\", \"TYPE65\"]\nper_second = 5\nanswer = \"truncated\"\n\
                    [[balance.rule]]\nname = \"portal\"\naddresses = [\"192.0.2.80\", \"::ffff:192.0.2.81\", \"2001:db8::1\"]\n";
        let found = read(&folder, text);
        fs::remove_dir_all(&folder).expect("it is ours");
        let (servers, names, rules) = found.expect("it is right");
        let both = Pools::DEFAULT.with(1);
        let expected = [
            ("192.0.2.1:53", 1, Pools::DEFAULT),
            ("192.0.2.2:53", 3, both),
            ("192.0.2.9:53", 1, Pools::NONE.with(1)),
        ];
        let found: Vec<_> =
            servers.iter().map(|server| (server.to_string(), server.weight, server.pools)).collect();
        assert_eq!(found, expected.map(|(address, weight, pools)| (address.to_string(), weight, pools)));
        assert_eq!(names, ["default", "corp"]);
        let wire = |name| dns::name::folded_from_text(name).expect("a name");
        let rule = |name: &str, then| Rule {
            name: name.into(),
            names: None,
            types: Vec::new(),
            clients: Vec::new(),
            per_second: None,
            then,
        };
        let addresses = ["192.0.2.80", "192.0.2.81", "2001:db8::1"];
        let addresses = addresses.map(|address| address.parse().expect("an address")).to_vec();
        let expected = [
            Rule {
                names: Some(vec![wire("corp.example")]),
                clients: vec!["10.0.0.0/8".parse().expect("a prefix")],
                ..rule("ours", Then::Pool(1))
            },
            Rule {
                names: Some(["more.example", "ads.example", "track.example"].map(wire).to_vec()),
                ..rule("ads", Then::Nxdomain)
            },
            Rule { names: Some(Vec::new()), ..rule("empty", Then::Refused) },
            Rule {
                types: vec![Rtype::ANY, Rtype::from_int(65)],
                per_second: Some(5),
                ..rule("often", Then::Truncated)
            },
            rule("portal", Then::Addresses(addresses)),
        ];
        assert_eq!(rules, expected);
    }

    #[test]
    fn what_is_wrong_with_pools_and_rules_is_listed() {
        let folder = std::env::temp_dir().join(format!("pointsman-wrong-rules-{}", std::process::id()));
        fs::create_dir(&folder).expect("there is room for temporary folders");
        fs::write(folder.join("block.txt"), "good.example\n  a..b\n").expect("the folder is ours");
        let told = |text: &str| {
            let found = read(&folder, text).expect_err("something is wrong");
            let here = format!("{}/", folder.display());
            found.lines().map(|line| line.replacen(&here, "", 1)).collect::<Vec<_>>()
        };
        let pool = |more: &str| format!("[[balance.pool]]\n{more}\n");
        let rule = |more: &str| format!("[[balance.rule]]\nname = \"a\"\n{more}\n");
        for (text, expected) in [
            (pool("name = \"x\""), "p.toml:4:1: the balance.pool has no backend"),
            (pool("backend = [\"192.0.2.3\"]"), "p.toml:4:1: the balance.pool has no name"),
            (
                pool("name = \"default\"\nbackend = [\"192.0.2.3\"]"),
                "p.toml:5:8: name is \"default\", which another one has",
            ),
            (
                pool("name = \"a b\"\nbackend = [\"192.0.2.3\"]"),
                "p.toml:5:8: name is \"a b\"; expected at most 63",
            ),
            (
                pool("name = \"x\"\nbackend = [\"192.0.2.2\"]"),
                "p.toml:6:12: 192.0.2.2:53 has the weight 1 here and 3 in another pool",
            ),
            (
                pool("name = \"x\"\nbackend = [\"192.0.2.3\", \"192.0.2.3:53\"]"),
                "p.toml:6:25: backend has 192.0.2.3:53 twice",
            ),
            (
                rule("types = [\"ANY\"]"),
                "p.toml:4:1: the rule says not what becomes of queries; expected one of pool,",
            ),
            (rule("answer = \"no\""), "p.toml:6:10: answer is \"no\"; expected refused, nxdomain,"),
            (
                rule("answer = \"refused\"\npool = \"default\""),
                "p.toml:6:10: the rule says twice what becomes of queries; expected one of pool, answer and",
            ),
            (rule("pool = \"corp\""), "p.toml:6:8: there is no pool \"corp\"; expected default"),
            (
                rule("types = [\"NONE\"]\npool = \"default\""),
                "p.toml:6:10: types has \"NONE\"; expected a type",
            ),
            (
                rule("per_second = 0\npool = \"default\""),
                "p.toml:6:14: per_second is the number 0; expected a whole",
            ),
            (
                rule(
                    "answer = \"refused\"\n[[balance.rule]]\nname = \"a\"\nanswer = \"nodata\"\ntypes = [\"A\"]",
                ),
                "p.toml:7:1: no query comes to the rule: the rule a is for all of them;|p.toml:8:8: name is \"a\", which another one has",
            ),
            (
                rule("names_files = [\"block.txt\", \"missing.txt\"]\nanswer = \"nodata\""),
                "block.txt:2:3: \"a..b\" is no name; expected a name a line|missing.txt: it cannot be read",
            ),
            (
                rule("speed = 1\npool = \"default\""),
                "p.toml:6:1: unknown key speed in balance.rule; expected name, names,",
            ),
            (
                "rule = 7\n".into(),
                "p.toml:4:8: balance.rule is the number 7; expected headings [[balance.rule]]",
            ),
        ] {
            let (told, expected): (_, Vec<&str>) = (told(&text), expected.split('|').collect());
            let are_same = told.len() == expected.len()
                && told.iter().zip(expected).all(|(told, expected)| told.starts_with(expected));
            assert!(are_same, "{text}: {told:#?}");
        }
        let many = |count, text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<String>();
        let rules = many(RULES_MAX + 1, &|n| {
            format!("[[balance.rule]]\nname = \"r{n}\"\ntypes = [\"A\"]\npool = \"default\"\n")
        });
        assert!(told(&rules)[0].ends_with("there are more than 64 rules; expected fewer"));
        let pools =
            many(POOLS_MAX, &|n| format!("[[balance.pool]]\nname = \"p{n}\"\nbackend = [\"192.0.2.1\"]\n"));
        assert!(told(&pools)[0].ends_with("there are more than 31 pools; expected fewer"));
        let servers: Vec<String> = (0..63).map(|last| format!("\"198.51.100.{last}\"")).collect();
        let beyond = pool(&format!("name = \"x\"\nbackend = [{}]", servers.join(", ")));
        assert!(told(&beyond)[0].ends_with("there are too many back ends; expected 64 at most"));
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
