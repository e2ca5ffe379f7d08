//! The flags of `balance`, one over each key, and from what was given to what the balancer is started with.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::{Fault, Faults};
use balancer::circle;
use balancer::client_address::ClientAddress;
use balancer::connections::Onward;
use balancer::front;
use balancer::rules::Rule;
use balancer::watch::{Probing, question};
use balancer::{Caching, Options, Server};
use clap::Args;
use dns::Rtype;
use net::tls::DOT;
use net::tls::identity::Identity;
use routing::Acl;
use rustls::ClientConfig;

use super::flags::{Flagged, Over};
use super::keys::{BALANCE, Section};
use super::lower::{TOKEN_FILE, apart, at, count, given, is_told, unguarded, without_effect};
use super::spec::{BackEndSpec, BalanceSpec, Place, Placed, resolve};
use super::tls::{self, Files};
use super::{dnstap, rules};
use crate::credit_key;
use crate::log::Form;
use crate::near::is_near;
use crate::token;

/// What `balance` was given on the command line; values are read when all of the configuration is.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[arg(
        long,
        value_name = "FILE",
        help = "The configuration file; flags replace what its [balance] says, and it alone has pools and rules"
    )]
    config: Option<PathBuf>,
    /// Read the configuration, list every fault, and end
    #[arg(long)]
    pub(crate) check: bool,
    #[arg(
        long,
        help = "First measure what each back end can do, and balance with weights that follow from it",
        long_help = "First measure what each back end can do, and balance with weights that follow from it. One after the \
            other is asked the question of --probe for 2.5 seconds, 32 at a time, at most 50,000 a second."
    )]
    pub(crate) measure_weights: bool,
    /// Measure addresses that are neither loopback nor private
    #[arg(long)]
    i_may_load_this_server: bool,
    #[command(flatten)]
    over: Over<BalanceSpec>,
}

impl Flags {
    /// Whether there is a configuration file, which may have rules.
    pub(crate) fn has_file(&self) -> bool {
        self.config.is_some()
    }
}

impl Flagged for BalanceSpec {
    const SECTION: &'static Section<BalanceSpec> = &BALANCE;
}

/// A configuration that holds together.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    /// What the balancer is started with.
    pub(crate) options: Options,
    /// What clients are shown over TLS, and where it stands.
    pub(crate) tls: Option<(Arc<Identity>, Files)>,
    /// The form of log lines.
    pub(crate) form: Form,
}

/// Reads file and flags; lists everything that is wrong, whichever it is in.
pub(crate) fn load(flags: &Flags) -> (Lowered, Faults) {
    let (mut spec, mut faults) = super::of_file(flags.config.as_deref());
    flags.over.read(&mut spec.balance, &mut faults);
    dnstap::check(&spec.balance.dnstap, &mut faults);
    let lowered = lower(spec.balance, &mut faults);
    if flags.measure_weights && !flags.i_may_load_this_server {
        for Server { address, .. } in &lowered.options.back_ends {
            if !is_near(address.ip()) {
                let what = format!("{address} is neither a loopback nor a private address");
                let expected = "--i-may-load-this-server where its operator agrees to the load";
                faults.push(Fault::whole("--measure-weights", what, expected));
            }
        }
    }
    (lowered, faults)
}

/// Reads the rules again, and lists everything that is wrong with the file or with them. Pools, by their names, stay as they are,
/// and one that is new is a fault.
pub(crate) fn load_rules(flags: &Flags, pools: &[String]) -> (Vec<Rule>, Faults) {
    let (mut spec, mut faults) = super::of_file(flags.config.as_deref());
    flags.over.read(&mut spec.balance, &mut faults);
    for name in spec.balance.pool.iter().filter_map(|pool| pool.name.as_ref()) {
        if !pools.contains(&name.value) {
            let what = format!("the pool {:?} is new, and pools are read at start", name.value);
            faults.push(name.place.fault(what, "a restart, or the pools that there were"));
        }
    }
    let rules = rules::rules(&spec.balance, pools, &mut faults);
    (rules, faults)
}

/// Lowers `spec`, in which every key with a default has a value, and adds what is wrong to `faults`.
fn lower(spec: BalanceSpec, faults: &mut Faults) -> Lowered {
    let trust = trust(&spec, faults);
    let (back_ends, pools) = rules::pools(&spec, trust.as_ref(), faults);
    addresses(&spec, faults);
    let rules = rules::rules(&spec, &pools, faults);
    let (probe, credit) = (probe(spec.probe.as_ref(), faults), credit(&spec, faults));
    let http = (("http", spec.http.is_some()), "token_file", at(&spec.token_file));
    without_effect([http], faults);
    let token = spec.token_file.as_ref().map(|file| token::read(&resolve(file)));
    let token = token.and_then(|read| read.map_err(|fault| faults.push(fault)).ok());
    let (certificate, key) = (spec.tls_certificate.as_ref(), spec.tls_key.as_ref());
    let encrypted = [&spec.tls_listen, &spec.https_listen, &spec.quic_listen];
    let listen = encrypted.into_iter().flatten().map(|listen| &listen.place).next();
    let addresses = "tls_listen (--tls-listen ADDR), https_listen (--https-listen ADDR) or quic_listen (--quic-listen ADDR)";
    let files = tls::files((listen, addresses), certificate, key, faults);
    let identity = tls::shown(files.as_ref(), faults);
    let encrypted = identity.iter().flat_map(|identity| {
        let tls = spec.tls_listen.iter().map(|listen| (listen.value, front::Over::Tls(identity.clone())));
        let https =
            spec.https_listen.iter().map(|listen| (listen.value, front::Over::Https(identity.clone())));
        tls.chain(https)
    });
    let over_quic = identity
        .iter()
        .flat_map(|identity| spec.quic_listen.iter().map(|listen| (listen.value, identity.clone())));
    let quic = over_quic.collect();
    let (cache, tap) = (caching(&spec, faults), dnstap::lower(&spec.dnstap, None, faults));
    let timeout = given(spec.timeout);
    let subnet = [spec.subnet_v4, spec.subnet_v6].map(|bits| u8::try_from(given(bits)).unwrap_or(u8::MAX));
    let client_address = client_address(given(spec.client_address), subnet);
    let allow = spec.allow.iter().map(|prefix| prefix.value).collect();
    let allow = (!spec.allow.is_empty()).then(|| Acl::new(allow));
    let options = Options {
        listen: spec.listen.iter().map(|placed| placed.value).collect(),
        back_ends,
        pools,
        rules,
        policy: given(spec.policy).into(),
        user: spec.user.map(|user| user.value),
        workers: spec.workers.map(|placed| count(placed.value)),
        timeout,
        tries: count(given(spec.tries)),
        sockets: count(given(spec.sockets)),
        outstanding_max: count(given(spec.outstanding_max)),
        // The key's range ends there.
        per_client_max: u16::try_from(given(spec.per_client_max)).unwrap_or(u16::MAX),
        onward: if given(spec.tcp) == "udp" { Onward::Datagrams } else { Onward::Connections },
        allow,
        client_address,
        cache,
        tap,
        tcp: net::tcp::Limits::default(),
        encrypted: encrypted.collect(),
        quic,
        probing: Probing {
            question: probe,
            client_address,
            is_strict: spec.probe.is_some(),
            interval: given(spec.probe_interval),
            timeout,
            slow_start: given(spec.slow_start),
        },
        trust,
        credit,
        http: spec.http.map(|placed| placed.value),
        token,
    };
    let form = Form::of(given(spec.log));
    Lowered { options, tls: identity.zip(files), form }
}

fn addresses(spec: &BalanceSpec, faults: &mut Faults) {
    if spec.backend.is_empty() && !is_told("backend", faults) {
        faults.push(Fault::whole("balance", "there is no back end", "backend (--backend ADDR)"));
    }
    for Placed { value: BackEndSpec { address, .. }, place } in rules::all(spec) {
        if circle::is_nowhere(*address) {
            let what = format!("{address} in backend is no server's address");
            faults.push(place.fault(what, "the address and port of one name server"));
        }
    }
    let bound = listened(spec).chain(over_udp(spec));
    for (key, Placed { value, place }) in bound.filter(|(_, bound)| circle::is_of_many(bound.value.ip())) {
        let what = format!("{value} in {key} is no host's address");
        faults.push(place.fault(what, "an address of this machine"));
    }
    unguarded("http", spec.http.as_ref(), (TOKEN_FILE, spec.token_file.is_some()), faults);
    let http = spec.http.iter().map(|http| ("http", http));
    let all = listened(spec).chain(http).map(|(key, Placed { value, place })| (key, *value, place));
    apart(all, faults);
    // Over UDP alone, so that the API, over TCP alone, may have the same port.
    let over_udp: Vec<_> =
        over_udp(spec).map(|(key, Placed { value, place })| (key, *value, place)).collect();
    apart(over_udp.iter().copied(), faults);
    for listen in &spec.listen {
        for bound in &over_udp {
            apart([("listen", listen.value, &listen.place), *bound].into_iter(), faults);
        }
    }
    no_circle("listen", &spec.listen, spec, |back_end| back_end.tls.is_none(), faults);
    no_circle("tls_listen", &spec.tls_listen, spec, |back_end| back_end.tls.is_some(), faults);
}

/// Adds a fault where one of these back ends is where the balancer takes queries, at the addresses of this key.
fn no_circle(
    key: &str,
    listen: &[Placed<SocketAddr>],
    spec: &BalanceSpec,
    of: impl Fn(&BackEndSpec) -> bool,
    faults: &mut Faults,
) {
    let back_ends = rules::all(spec).map(|placed| &placed.value).filter(|back_end| of(back_end));
    let back_ends: BTreeSet<SocketAddr> = back_ends.map(|back_end| back_end.address).collect();
    for Placed { value, place } in listen.iter().filter(|listen| listen.value.port() != 0) {
        for back_end in back_ends.iter().filter(|back_end| circle::leads_to(*value, **back_end)) {
            let what = if back_end == value {
                format!("{value} is in {key} and in backend: queries would go round in a circle")
            } else {
                format!("{value} in {key} has {back_end} in backend: queries would go round in a circle")
            };
            faults.push(place.fault(what, "another address for the balancer"));
        }
    }
}

/// All addresses that UDP alone is taken at, by their keys.
fn over_udp(spec: &BalanceSpec) -> impl Iterator<Item = (&'static str, &Placed<SocketAddr>)> {
    let quic = spec.quic_listen.iter().map(|listen| ("quic_listen", listen));
    quic.chain(spec.credit.iter().map(|credit| ("credit", credit)))
}

/// All addresses that queries are taken at over TCP, by their keys; those of listen over UDP, too.
fn listened(spec: &BalanceSpec) -> impl Iterator<Item = (&'static str, &Placed<SocketAddr>)> {
    let BalanceSpec { listen, tls_listen, https_listen, .. } = spec;
    let all = [("listen", listen), ("tls_listen", tls_listen), ("https_listen", https_listen)];
    all.into_iter().flat_map(|(key, listen)| listen.iter().map(move |placed| (key, placed)))
}

/// Whose certificates are believed of back ends over TLS, of those that there are and of those that come over HTTP.
fn trust(spec: &BalanceSpec, faults: &mut Faults) -> Option<Arc<ClientConfig>> {
    let over_tls = rules::all(spec).find(|placed| placed.value.tls.is_some());
    if spec.client_address.as_ref().is_some_and(|way| way.value == "proxy") {
        if let Some(Placed { place, .. }) = over_tls {
            let what = "with client_address = \"proxy\" each query would be a connection over TLS";
            faults.push(
                place.fault(what, "client_address = \"hidden\" or \"subnet\", or a back end without #NAME"),
            );
        }
        return None;
    }
    let place = over_tls.map_or(&Place::Default, |placed| &placed.place);
    let (expected, mut wrong) = ("certificates in PEM form (Debian: ca-certificates)", Faults::default());
    let trust = tls::trusting(spec.authorities.as_ref(), Some(DOT), (place, expected), &mut wrong);
    // Without a back end over TLS nobody needs to have what nobody named.
    if over_tls.is_some() || spec.authorities.is_some() {
        faults.append(wrong);
    }
    trust
}

/// How back ends learn whose query it is; the bits are within the ranges of their keys.
fn client_address(way: &str, [v4_bits, v6_bits]: [u8; 2]) -> ClientAddress {
    match way {
        "subnet" => ClientAddress::Subnet { v4_bits, v6_bits },
        "proxy" => ClientAddress::Proxy,
        _ => ClientAddress::Hidden,
    }
}

/// Which answers are given again; not where back ends know whose query it is, for then answers may differ.
fn caching(spec: &BalanceSpec, faults: &mut Faults) -> Option<Caching> {
    let cache = spec.cache.as_ref()?;
    if spec.client_address.as_ref().is_some_and(|way| way.value == "proxy") {
        let what =
            "there is a cache, and with client_address = \"proxy\" answers may be for one client alone";
        faults.push(cache.place.fault(what, "client_address = \"hidden\" or \"subnet\", or no cache"));
    }
    let [fresh_max, stale_max, failures_for] =
        [&spec.cache_ttl_max, &spec.cache_stale, &spec.cache_failures].map(|time| given(time.clone()));
    Some(Caching { memory: cache.value, fresh_max, stale_max, failures_for })
}

/// Reads the question of probes. A resolver may refuse the one that nobody has chosen, and is there all the same; one that
/// was chosen it is to work for.
fn probe(given: Option<&Placed<String>>, faults: &mut Faults) -> Vec<u8> {
    let unchosen = question(b"\0", Rtype::NS.to_int(), false);
    let Some(Placed { value, place }) = given else { return unchosen };
    let parts = value.split_once(' ').and_then(|(name, rtype)| {
        Some((dns::name::folded_from_text(name).ok()?, rtype.trim().parse::<Rtype>().ok()?))
    });
    let Some((name, rtype)) = parts else {
        faults.push(
            place.fault(format!("probe is {value:?}"), "a name and a type, such as \"example.com SOA\""),
        );
        return unchosen;
    };
    if !is_asked(rtype) {
        let expected = "a type of records, such as SOA";
        faults.push(place.fault(format!("probe asks for {rtype}, which no datagram answers"), expected));
    }
    question(&name, rtype.to_int(), true)
}

/// Whether a question of this type has one answer: those of transfers have many, OPT and the rest below ANY belong to
/// messages and are never asked for (RFC 6895 §3.1).
fn is_asked(rtype: Rtype) -> bool {
    !matches!(rtype.to_int(), 0 | 128..=254) && rtype != Rtype::OPT
}

/// Reads the key; where there is one, there is an address, and the other way round.
fn credit(spec: &BalanceSpec, faults: &mut Faults) -> Option<(SocketAddr, credit::Key)> {
    match (&spec.credit, &spec.key) {
        (None, None) => None,
        (Some(credit), None) => {
            faults.push(credit.place.fault("there is credit and no key", "a key (--key FILE)"));
            None
        }
        (None, Some(key)) => {
            faults.push(
                key.place.fault("there is a key and no credit", "an address for agents (--credit ADDR)"),
            );
            None
        }
        (Some(credit), Some(key)) => {
            let path = resolve(key);
            let told =
                |fault: Fault| key.place.fault(format!("{}: {}", path.display(), fault.what), fault.expected);
            let read = credit_key::read(&path).map_err(|fault| faults.push(told(fault)));
            Some((credit.value, read.ok()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{defaults, file, page};
    use ::tests::certificate::Certificate;
    use ::tests::folder::Folder;
    use clap::Parser;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Duration;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    /// Reads a file's text and flags, as `load` does.
    fn lowered(text: &str, flags: &[&str]) -> Result<Lowered, String> {
        let (mut faults, mut spec) = (Faults::default(), defaults());
        file::read(Path::new("/etc/p.toml"), text, &mut spec, &mut faults);
        let line = Line::try_parse_from(["balance"].iter().chain(flags)).expect("flags are only read later");
        line.flags.over.read(&mut spec.balance, &mut faults);
        let lowered = lower(spec.balance, &mut faults);
        faults.or(lowered).map_err(|faults| faults.to_string())
    }

    #[test]
    fn flags_replace_what_the_file_says() {
        let text = "version = \"v1\"\n[balance]\nbackend = [\"192.0.2.1\", \"[2001:db8::1]:5300=3\"]\npolicy = \"p2c\"\n\
                    timeout = \"250 ms\"\n";
        let file = lowered(text, &[]).expect("it is right").options;
        let at = |text: &str| text.parse().expect("an address");
        let weights = |options: &Options| -> Vec<(SocketAddr, u32)> {
            options.back_ends.iter().map(|server| (server.address, server.weight)).collect()
        };
        assert_eq!(weights(&file), [(at("192.0.2.1:53"), 1), (at("[2001:db8::1]:5300"), 3)]);
        assert_eq!((file.policy.as_str(), file.timeout.as_millis(), file.tries), ("p2c", 250, 2));
        assert_eq!(file.allow, None, "everybody may ask");
        let flags = [
            "--backend",
            "192.0.2.7,192.0.2.8=2",
            "--policy",
            "wrr",
            "--log",
            "json",
            "--allow",
            "10.0.0.0/8",
            "--allow",
            "192.0.2.1",
        ];
        let over = lowered(text, &flags).expect("it is right");
        assert!(over.form == Form::Json && over.options.policy == "wrr");
        assert_eq!(weights(&over.options), [(at("192.0.2.7:53"), 1), (at("192.0.2.8:53"), 2)]);
        let allow = ["10.0.0.0/8", "192.0.2.1/32"].map(|text| text.parse().expect("a prefix"));
        assert_eq!(over.options.allow, Some(Acl::new(allow.to_vec())));
    }

    #[test]
    fn answers_are_kept_where_they_are_for_all_clients() {
        let text = "version = \"v1\"\n[balance]\nbackend = [\"192.0.2.1\"]\n";
        assert_eq!(lowered(text, &[]).expect("it is right").options.cache, None);
        let flags = ["--cache", "2 MiB", "--cache-stale", "1 h"];
        let (memory, fresh_max) = (2 << 20, Duration::from_secs(86_400));
        let (stale_max, failures_for) = (Duration::from_secs(3_600), Duration::from_secs(5));
        let expected = Caching { memory, fresh_max, stale_max, failures_for };
        assert_eq!(lowered(text, &flags).expect("it is right").options.cache, Some(expected));
        let subnet = [&flags[..], &["--client-address", "subnet"]].concat();
        assert_eq!(lowered(text, &subnet).expect("it is right").options.cache, Some(expected));
        let proxy = [&flags[..], &["--client-address", "proxy"]].concat();
        let told = lowered(text, &proxy).expect_err("answers may differ");
        assert!(told.starts_with("--cache: there is a cache, and with client_address = \"proxy\""), "{told}");
    }

    #[test]
    fn back_ends_over_tls_have_names() {
        let folder = Folder::new();
        let made = Certificate::new(&folder);
        let text = format!(
            "version = \"v1\"\n[balance]\nbackend = [\"192.0.2.1#dns.example.com\", \"[2001:db8::1]:8853#2001:db8::1=3\", \
             \"192.0.2.2\"]\nauthorities = \"{}\"\n",
            made.authority
        );
        let options = lowered(&text, &[]).expect("it is right").options;
        let written: Vec<_> = options.back_ends.iter().map(ToString::to_string).collect();
        assert_eq!(
            written,
            ["192.0.2.1:853#dns.example.com", "[2001:db8::1]:8853#2001:db8::1", "192.0.2.2:53"]
        );
        assert_eq!((options.back_ends[1].weight, options.trust.is_some()), (3, true));
        let pool = "[[balance.pool]]\nname = \"b\"\nbackend = [\"192.0.2.1:853#other.example\"]\n";
        for (text, expected) in [
            (
                format!("{text}client_address = \"proxy\"\n"),
                "3:12: with client_address = \"proxy\" each query",
            ),
            (format!("{text}tls_listen = [\"0.0.0.0:853\"]\n"), "there is TLS and no certificate"),
            (
                text.replace(&made.authority, "/no/file"),
                "4:15: the authorities in /no/file: it cannot be read",
            ),
            (text.replace(&made.authority, &made.key), "hold no certificate"),
            (text.replace("#dns.example.com", "#a b"), "3:12: backend is \"192.0.2.1#a b\""),
            (text.replace("#dns.example.com", "#"), "3:12: backend is \"192.0.2.1#\""),
            (text.clone() + pool, "7:12: 192.0.2.1:853 is asked otherwise than in another pool"),
        ] {
            let told = lowered(&text, &[]).expect_err("it is wrong");
            assert!(told.contains(expected), "{told}\nhas no\n{expected}");
        }
        let shown = ["--tls-listen", "127.0.0.1:853", "--tls-certificate", &made.certificate];
        let around = ["--tls-key", &made.key, "--backend", "127.0.0.1#dns.example.com"];
        let circle = lowered(&text, &[&shown[..], &around].concat()).expect_err("it is a circle");
        assert!(
            circle.starts_with("--tls-listen: 127.0.0.1:853 is in tls_listen and in backend"),
            "{circle}"
        );
        let plain = ["--listen", "127.0.0.1:853", "--backend", "127.0.0.1#dns.example.com"];
        assert!(lowered(&text, &plain).is_ok(), "a resolver may answer over TLS at this port");
    }

    #[test]
    fn everything_wrong_is_listed_at_once_with_its_place() {
        let text = "version = \"v1\"\n[balance]\nlisten = [\"192.0.2.1:53\", \"0.0.0.0:53\"]\n\
                    backend = [\"192.0.2.1\", \"192.0.2.1:53\", \"192.0.2.2=0\", \"192.0.2.3:0\", \"[::ffff:192.0.2.1]:53\"]\n\
                    policy = \"fastest\"\nspeed = 9\ntimeout = \"1 h\"\n";
        let found = lowered(text, &["--tries", "0"]).expect_err("much is wrong");
        let expected = [
            "/etc/p.toml:4:41: backend is \"192.0.2.2=0\"; expected IP addresses, with a port where it is not 53, #NAME \
             of the certificate over TLS (port 853), and =WEIGHT where it is not 1 (from 1 to 10000)",
            "/etc/p.toml:5:10: policy is \"fastest\"; expected pressure, wrr,",
            "/etc/p.toml:6:1: unknown key speed in balance; expected listen,",
            "/etc/p.toml:7:11: timeout is \"1 h\"; expected a time from 1 ms to 30 s",
            "--tries: tries is \"0\"; expected a whole number from 1 to 8",
            "/etc/p.toml:4:25: backend has 192.0.2.1:53 twice; expected each server once",
            "/etc/p.toml:4:71: backend has 192.0.2.1:53 twice; expected each server once",
            "/etc/p.toml:4:56: 192.0.2.3:0 in backend is no server's address; expected the address and port of one",
            "/etc/p.toml:3:27: listen has 0.0.0.0:53 and 192.0.2.1:53, one of which has the other within it",
            "/etc/p.toml:3:11: 192.0.2.1:53 is in listen and in backend",
        ];
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{found}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}\nis not\n{expected}");
        }
        let text = "version = \"v1\"\n[balance]\nbackend = [\"192.0.2.1\"]\nprobe = \"example.com\"\n\
                    credit = \"127.0.0.1:1\"\nhttp = \"0.0.0.0:80\"\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n";
        let found = lowered(text, &[]).expect_err("four things are wrong");
        let lines: Vec<&str> = found.lines().collect();
        let expected = [
            "/etc/p.toml:6:8: http is 0.0.0.0:80, which other machines reach, and there is no token; expected a \
             token_file (--token-file), or a loopback address",
            "/etc/p.toml:5:10: credit and listen are both 127.0.0.1:1",
            "/etc/p.toml:4:9: probe is \"example.com\"",
            "/etc/p.toml:5:10: there is credit and no key",
        ];
        assert!(
            lines.len() == 4 && lines.iter().zip(expected).all(|(line, start)| line.starts_with(start)),
            "{found}"
        );
        let text = "version = \"v1\"\n[balance]\nbackend = [\"0.0.0.0\", \"224.0.0.1\", \"[::]:53\", \"[ff02::1]:53\"]\n\
                    listen = [\"224.0.0.1:5300\", \"0.0.0.0:5300\"]\ncredit = \"255.255.255.255:5380\"\n";
        let found = lowered(text, &[]).expect_err("eight things are wrong");
        let expected = [
            "/etc/p.toml:3:12: 0.0.0.0:53 in backend is no server's address",
            "/etc/p.toml:3:23: 224.0.0.1:53 in backend is no server's address",
            "/etc/p.toml:3:36: [::]:53 in backend is no server's address",
            "/etc/p.toml:3:47: [ff02::1]:53 in backend is no server's address",
            "/etc/p.toml:4:11: 224.0.0.1:5300 in listen is no host's address; expected an address of this machine",
            "/etc/p.toml:5:10: 255.255.255.255:5380 in credit is no host's address",
            "/etc/p.toml:4:29: listen has 0.0.0.0:5300 and 224.0.0.1:5300",
            "/etc/p.toml:5:10: there is credit and no key",
        ];
        let lines: Vec<&str> = found.lines().collect();
        assert!(
            lines.len() == 8 && lines.iter().zip(expected).all(|(line, start)| line.starts_with(start)),
            "{found}"
        );
        for (probe, is_right) in [
            ("example.com SOA", true),
            ("example.com ANY", true),
            ("example.com TYPE65280", true),
            ("x AXFR", false),
            ("x IXFR", false),
            ("x OPT", false),
            ("x TSIG", false),
            ("x TKEY", false),
            ("x TYPE0", false),
        ] {
            let text =
                format!("version = \"v1\"\n[balance]\nbackend = [\"192.0.2.1\"]\nprobe = \"{probe}\"\n");
            let found = lowered(&text, &[]).err().unwrap_or_default();
            assert_eq!(found.starts_with("/etc/p.toml:4:9: probe asks for "), !is_right, "{probe}: {found}");
        }
        let text = "version = \"v1\"\n[balance]\nbackend = [\"192.0.2.1\"]\n";
        for (flags, recursion_desired) in [(&[][..], 0), (&["--probe", "example.com SOA"], 1)] {
            let question = lowered(text, flags).expect("it is right").options.probing.question;
            assert_eq!(question[2], recursion_desired);
        }
        let text = "version = \"v1\"\n[balance]\nlisten = [\"0.0.0.0:53\"]\nbackend = [\"127.0.0.1\"]\n";
        let circle = lowered(text, &[]).expect_err("queries would come back");
        assert!(
            circle.starts_with("/etc/p.toml:3:11: 0.0.0.0:53 in listen has 127.0.0.1:53 in backend"),
            "{circle}"
        );
        let none = lowered("version = \"v1\"\n", &[]).expect_err("nobody answers");
        assert_eq!(none, "balance: there is no back end; expected backend (--backend ADDR)");
        let wrong = lowered("version = \"v1\"\n", &["--backend", "ns.example"]).expect_err("no address");
        assert!(wrong.starts_with("--backend: backend is \"ns.example\"; expected IP addresses"), "{wrong}");
        assert_eq!(wrong.lines().count(), 1, "{wrong}");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = std::env::temp_dir().join(format!("pointsman-balance-key-{}", std::process::id()));
        fs::create_dir(&folder).expect("there is room for temporary folders");
        let path = folder.join("credit.key");
        fs::write(&path, "0a".repeat(32)).expect("the folder can be written");
        let text = format!(
            "version = \"v1\"\n[balance]\nlisten = [\"127.0.0.1:0\"]\nbackend = [\"127.0.0.1:53\"]\n\
             credit = \"127.0.0.1:0\"\nkey = \"{}\"\n",
            path.display()
        );
        for (mode, wrong) in [(0o644, Some("/etc/p.toml:6:7: ")), (0o600, None)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            let found = lowered(&text, &[]).err();
            match wrong {
                None => assert_eq!(found, None),
                Some(place) => assert!(
                    found
                        .as_ref()
                        .is_some_and(|found| found.starts_with(place) && found.contains("mode 644")),
                    "{found:?}"
                ),
            }
        }
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn other_machines_reach_http_where_it_asks_for_a_token() {
        let folder = std::env::temp_dir().join(format!("pointsman-balance-token-{}", std::process::id()));
        fs::create_dir(&folder).expect("there is room for temporary folders");
        let path = folder.join("token");
        fs::write(&path, "secret\n").expect("the folder can be written");
        let (at, line) = (path.display().to_string(), format!("token_file = \"{}\"\n", path.display()));
        let (open, secret) = (format!("{at}: the file holds secrets"), Ok(Some("secret")));
        let unguarded =
            "/etc/p.toml:4:8: http is 0.0.0.0:8055, which other machines reach, and there is no token";
        for (mode, text, flags, expected) in [
            (0o600, "http = \"127.0.0.1:8055\"\n".into(), &[][..], Ok(None)),
            (0o600, "http = \"0.0.0.0:8055\"\n".into(), &[], Err(unguarded)),
            (0o600, format!("http = \"0.0.0.0:8055\"\n{line}"), &[], secret),
            (0o600, "http = \"0.0.0.0:8055\"\n".into(), &["--token-file", &at], secret),
            (0o600, line.clone(), &[], Err("/etc/p.toml:4:14: token_file without http has no effect")),
            (0o640, format!("http = \"127.0.0.1:8055\"\n{line}"), &[], secret),
            (0o644, format!("http = \"127.0.0.1:8055\"\n{line}"), &[], Err(&open[..])),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            let text = format!("version = \"v1\"\n[balance]\nbackend = [\"127.0.0.1:53\"]\n{text}");
            let found = lowered(&text, flags).map(|lowered| lowered.options.token);
            match (&found, expected) {
                (Ok(token), Ok(expected)) => assert_eq!(token.as_deref(), expected, "{text}"),
                (Err(told), Err(start)) => {
                    assert!(told.starts_with(start) && told.lines().count() == 1, "{told} is not {start}");
                }
                _ => panic!("{text}: {found:?} is not {expected:?}"),
            }
        }
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn tls_has_an_address_a_certificate_and_a_key_or_nothing() {
        let told = |flags: &[&str]| {
            let found = lowered("version = \"v1\"\n[balance]\nbackend = [\"192.0.2.1\"]\n", flags);
            let found = found.expect_err("something is missing");
            found
                .lines()
                .map(|line| line.split("; expected ").next().unwrap_or(line).to_string())
                .collect::<Vec<_>>()
        };
        let (listen, certificate, key) = (
            ["--tls-listen", "127.0.0.1:853"],
            ["--tls-certificate", "/no/c.pem"],
            ["--tls-key", "/no/k.pem"],
        );
        let https = ["--https-listen", "127.0.0.1:443"];
        assert_eq!(
            told(&[https, certificate].concat()),
            ["--https-listen: there is TLS and no key"],
            "it is shown there, too"
        );
        assert_eq!(
            told(&listen),
            ["--tls-listen: there is TLS and no certificate", "--tls-listen: there is TLS and no key"]
        );
        assert_eq!(
            told(&key),
            ["--tls-key: there is TLS and no address for it", "--tls-key: there is TLS and no certificate"]
        );
        assert_eq!(told(&[listen, certificate].concat()), ["--tls-listen: there is TLS and no key"]);
        let all = told(&[listen, certificate, key].concat());
        assert!(all.len() == 1 && all[0].starts_with("/no/c.pem: it cannot be read"), "{all:?}");
        let twice = told(&[listen, certificate, key, ["--listen", "127.0.0.1:853"]].concat());
        assert!(twice[0].contains("tls_listen and listen are both 127.0.0.1:853"), "{twice:?}");
        let quic = ["--quic-listen", "127.0.0.1:853"];
        assert_eq!(told(&quic)[0], "--quic-listen: there is TLS and no certificate");
        let twice = told(&[listen, quic, certificate, key, ["--listen", "127.0.0.1:853"]].concat());
        assert!(twice.iter().any(|told| told.contains("quic_listen and listen are both")), "{twice:?}");
        let both = told(&[listen, quic, certificate, key].concat());
        assert!(
            both.len() == 1 && both[0].starts_with("/no/c.pem"),
            "TLS and QUIC may share a port: {both:?}"
        );
        let twice = told(&[listen, ["--https-listen", "127.0.0.1:853"], certificate, key].concat());
        assert!(twice[0].contains("https_listen and tls_listen are both 127.0.0.1:853"), "{twice:?}");
    }

    #[test]
    fn the_template_holds_when_uncommented() {
        let template = page::template();
        let (_, part) = template.split_once("#[balance]\n").expect("a part of its own");
        let setting =
            |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
        let settings: Vec<String> = part.lines().filter_map(setting).collect();
        let below = settings.iter().position(|setting| setting.starts_with("[[")).expect("pools and rules");
        assert_eq!(below, BALANCE.keys.len());
        let text = format!("version = \"v1\"\n[balance]\n{}\n", settings.join("\n"));
        // Authorities, key, token and certificate are read, and are not there.
        let found = lowered(&text, &[]).expect_err("no such files");
        let missing = ["authorities.pem", "credit.key", "token", "fullchain.pem"]
            .map(|name| format!("/etc/pointsman/{name}: it cannot be read"));
        let lines: Vec<&str> = found.lines().collect();
        assert!(
            lines.len() == 4 && lines.iter().zip(missing).all(|(line, missing)| line.contains(&missing)),
            "{found}"
        );
        let text = [
            "credit",
            "key",
            "token_file",
            "tls_listen",
            "https_listen",
            "quic_listen",
            "designate",
            "tls_certificate",
            "tls_key",
            "authorities",
        ]
        .iter()
        .fold(text, |text, key| text.replace(&format!("\n{key} = "), &format!("\n#{key} = ")));
        let options = lowered(&text, &[]).expect("what the template shows is right").options;
        assert_eq!([options.back_ends.len(), options.pools.len(), options.rules.len()], [3, 2, 3]);
        assert!(options.tap.is_some(), "dnstap stands below");
    }
}
