//! From what was given to what the server is started with: contradictions are found here.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::Faults;
use nameserver::book::check_name;
use nameserver::external;
use nameserver::generation::{NSID_MAX, Settings};
use nameserver::import::{Import, Layer};
use nameserver::rate_limit;
use nameserver::service::Options;

use super::keys::{PRIMARY, UPDATER};
use super::spec::{Place, Placed, PrimarySpec, ProbeSpec, SecondarySpec, Spec, UpdaterSpec, resolve};
use super::{dnstap, layer, tls, view};
use crate::log::{Form, Log};

/// A configuration that holds together; only the token, the certificate and the keys are still in their files.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    /// What the server is started with, without the token.
    pub(crate) options: Options,
    /// Where the token is, where the API asks for one.
    pub(crate) token_file: Option<Placed<PathBuf>>,
    /// Where the TSIG keys are.
    pub(crate) tsig_keys: Vec<Placed<PathBuf>>,
    /// The files of the private parts of zones' keys.
    pub(crate) signing_keys: Vec<Placed<PathBuf>>,
    /// Where what clients are shown over TLS is, where they may come so.
    pub(crate) tls_files: Option<tls::Files>,
    /// Who follows our zones, with the names of their keys.
    pub(crate) secondaries: Vec<SecondarySpec>,
    /// Who gives us zones, with the names of their keys.
    pub(crate) primaries: Vec<PrimarySpec>,
    /// Who changes our zones, with the names of their keys.
    pub(crate) updaters: Vec<UpdaterSpec>,
    /// How servers are probed; whose certificates they believe is still in files.
    pub(crate) probes: Vec<ProbeSpec>,
    /// What is logged.
    pub(crate) log: Log,
    /// What was given, to hold against it what is read again.
    pub(crate) spec: Spec,
}

/// Lowers `spec`, in which every key with a default has a value, and adds what is wrong to `faults`.
pub(crate) fn lower(spec: Spec, faults: &mut Faults) -> Lowered {
    addresses(&spec, faults);
    limits(&spec, faults);
    idle(&spec, faults);
    protocol(&spec, faults);
    let (rate_limit, tap, external) =
        (rate_limit(&spec), dnstap::lower(&spec.dnstap, spec.nsid.as_ref(), faults), external(&spec));
    frames(&spec, faults);
    secondaries(&spec, faults);
    primaries(&spec, faults);
    updaters(&spec, faults);
    let (views, imports) = (view::lower(&spec.view, faults), imports(&spec, faults));
    let tsig_keys =
        spec.tsig_keys.iter().map(|file| Placed { value: resolve(file), place: file.place.clone() });
    let signing_keys = spec
        .signing_keys
        .iter()
        .map(|file| Placed { value: resolve(file), place: file.place.clone() })
        .collect();
    let (tsig_keys, secondaries) = (tsig_keys.collect(), spec.secondary.clone());
    let (primaries, updaters) = (spec.primary.clone(), spec.updater.clone());
    let (certificate, key) = (spec.tls_certificate.as_ref(), spec.tls_key.as_ref());
    let listen = spec.tls_listen.first().map(|listen| &listen.place);
    let tls_files = tls::files((listen, "tls_listen (--tls-listen ADDR)"), certificate, key, faults);
    let (probes, given_all) = (spec.probe.clone(), spec.clone());
    let token_file = spec.token_file.map(|placed| Placed { value: resolve(&placed), place: placed.place });
    let options = Options {
        listen: spec.listen.iter().map(|placed| placed.value).collect(),
        api: given(spec.api),
        token: None,
        store: store(&given_placed(spec.store)),
        xdp: spec.xdp.into_iter().map(|placed| placed.value).collect(),
        workers: spec.workers.map(|placed| count(placed.value)),
        settings: Settings {
            minimal_responses: given(spec.minimal_responses),
            // The key's range ends below.
            udp_payload_max: u16::try_from(given(spec.udp_payload_max)).unwrap_or(u16::MAX),
            require_cookies: given(spec.cookies.clone()) == "require",
            nsid: spec.nsid.map(|placed| placed.value.into()),
            hide_version: given(spec.hide_version),
        },
        cookies: given(spec.cookies) != "off",
        rate_limit,
        tap,
        external,
        imports,
        signing_keys: Arc::default(),
        transfer: nameserver::transfer::Config::default(),
        probes: nameserver::health::Probes::new(),
        views,
        tls: None,
        user: spec.user.map(|placed| placed.value),
        seed: spec.seed.map(|placed| placed.value),
        tcp: net::tcp::Limits {
            connections_max: count(given(spec.connections_max)),
            per_client_max: count(given(spec.per_client_max)),
            idle: given(spec.idle),
            idle_when_crowded: given(spec.idle_when_crowded),
            message: given(spec.message),
            lifetime: given(spec.lifetime),
        },
    };
    let form = Form::of(given(spec.log));
    Lowered {
        options,
        token_file,
        tsig_keys,
        signing_keys,
        tls_files,
        secondaries,
        primaries,
        updaters,
        probes,
        log: Log { form, level: level(given(spec.log_level)) },
        spec: given_all,
    }
}

fn addresses(spec: &Spec, faults: &mut Faults) {
    let listen = spec.listen.iter().map(|listen| ("listen", listen.value, &listen.place));
    let tls = spec.tls_listen.iter().map(|listen| ("tls_listen", listen.value, &listen.place));
    let api = spec.api.iter().map(|api| ("api", api.value, &api.place));
    apart(listen.chain(tls).chain(api), faults);
    unguarded("api", spec.api.as_ref(), (TOKEN_FILE, spec.token_file.is_some()), faults);
}

/// What a token is given by where both a file and a flag may.
pub(super) const TOKEN_FILE: &str = "a token_file (--token-file)";

/// Finds what other machines reach and asks for no token; `token` is what one is given by, and whether it is.
pub(crate) fn unguarded(
    key: &str,
    address: Option<&Placed<SocketAddr>>,
    token: (&str, bool),
    faults: &mut Faults,
) {
    let (by, is_given) = token;
    let reached = address.filter(|address| !address.value.ip().is_loopback() && !is_given);
    if let Some(Placed { value, place }) = reached {
        let what = format!("{key} is {value}, which other machines reach, and there is no token");
        faults.push(place.fault(what, format!("{by}, or a loopback address")));
    }
}

/// Finds listeners that cannot be beside each other, each told with the key that has it.
pub(super) fn apart<'a>(
    all: impl Iterator<Item = (&'static str, SocketAddr, &'a Place)>,
    faults: &mut Faults,
) {
    let all: Vec<_> = all.collect();
    for (index, (key, value, place)) in all.iter().enumerate() {
        let Some((before, other, _)) = all[..index].iter().find(|(_, other, _)| collide(*other, *value))
        else {
            continue;
        };
        faults.push(match (before == key, other == value) {
            (true, true) => place.fault(format!("{key} has {value} twice"), "each address once"),
            (true, false) => {
                let what = format!("{key} has {value} and {other}, one of which has the other within it");
                place.fault(what, "one for all interfaces, or one for each")
            }
            (false, true) => {
                place.fault(format!("{key} and {before} are both {value}"), "another port for one of them")
            }
            (false, false) => {
                let what = format!("{key} is {value}, and {before} {other} at the same port");
                place.fault(what, "another port for one of them")
            }
        });
    }
}

/// Whether two sockets cannot have these addresses: they are the same, or one is for all interfaces. Port 0 is any free
/// port, of which there can be several.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let interface = |at: SocketAddr| match at {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let is_same = one.ip() == other.ip() && interface(one) == interface(other);
    let meet = is_same || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && meet
}

/// Finds what cannot be told by a frame's addresses.
fn frames(spec: &Spec, faults: &mut Faults) {
    for (index, Placed { value, place }) in spec.xdp.iter().enumerate() {
        if spec.xdp[..index].iter().any(|before| before.value == *value) {
            faults.push(place.fault(format!("xdp has {value:?} twice"), "each interface once"));
        }
    }
    if spec.xdp.is_empty() {
        return;
    }
    for Placed { value, place } in spec.listen.iter().filter(|listen| listen.value.ip().is_unspecified()) {
        let what = format!("listen has {value}, which stands for all addresses, beside xdp");
        faults.push(place.fault(what, "the addresses that xdp is to take queries to, one by one"));
    }
}

fn secondaries(spec: &Spec, faults: &mut Faults) {
    for secondary in &spec.secondary {
        if secondary.from.is_empty() && secondary.key.is_none() {
            let what = "the secondary has neither from nor key: everybody could take the zones";
            faults.push(secondary.place.fault(what, "from, key or both"));
        }
    }
}

fn primaries(spec: &Spec, faults: &mut Faults) {
    let mut given = HashSet::new();
    for primary in &spec.primary {
        PRIMARY.required(&primary.given, &primary.place, faults);
        if primary.zones.is_empty() && primary.catalogs.is_empty() {
            let what = "the primary has neither zones nor catalogs: it gives nothing";
            faults.push(primary.place.fault(what, "zones, catalogs or both"));
        }
        for Placed { value, place } in primary.zones.iter().chain(&primary.catalogs) {
            if !given.insert(value.wire().to_vec()) {
                let what = format!("{value:?} is given by a primary already");
                faults.push(place.fault(what, "each zone once, with all addresses that have it"));
            }
        }
    }
}

fn updaters(spec: &Spec, faults: &mut Faults) {
    for updater in &spec.updater {
        UPDATER.required(&updater.given, &updater.place, faults);
    }
}

fn limits(spec: &Spec, faults: &mut Faults) {
    let at_most = |small: &Option<Placed<u64>>, large: &Option<Placed<u64>>, names: [&str; 2]| {
        let (small, large) = (small.as_ref()?, large.as_ref()?);
        let what = format!("{} is {}, {} only {}", names[0], small.value, names[1], large.value);
        // A default is never to blame for what was given.
        let place = if small.place == Place::Default { &large.place } else { &small.place };
        (small.value > large.value).then(|| place.fault(what, format!("{} <= {}", names[0], names[1])))
    };
    let per_client =
        at_most(&spec.per_client_max, &spec.connections_max, ["per_client_max", "connections_max"]);
    per_client.into_iter().for_each(|fault| faults.push(fault));
    let ms = |time: &Option<Placed<Duration>>| {
        time.as_ref().map(|t| Placed { value: t.value.as_millis() as u64, place: t.place.clone() })
    };
    let idle = at_most(&ms(&spec.idle), &ms(&spec.lifetime), ["idle in ms", "lifetime in ms"]);
    idle.into_iter().for_each(|fault| faults.push(fault));
    // The lesser of the two counts, so that a low idle needs no lower one beside it.
    let crowded = spec.idle_when_crowded.clone().filter(|time| time.place != Place::Default);
    let crowded = at_most(&ms(&crowded), &ms(&spec.idle), ["idle_when_crowded in ms", "idle in ms"]);
    crowded.into_iter().for_each(|fault| faults.push(fault));
}

/// Finds keys that were given and matter only beside another that was not.
fn idle(spec: &Spec, faults: &mut Faults) {
    let limited = ("responses_per_second", spec.responses_per_second.is_some());
    let asked = ("service", spec.external_service.is_some());
    let keys = [
        (limited, "window", at(&spec.window)),
        (limited, "slip", at(&spec.slip)),
        (limited, "ipv4_prefix_bits", at(&spec.ipv4_prefix_bits)),
        (limited, "ipv6_prefix_bits", at(&spec.ipv6_prefix_bits)),
        (asked, "ttl", at(&spec.external_ttl)),
        (asked, "life", at(&spec.external_life)),
        (asked, "known", at(&spec.external_known)),
        (asked, "waiting", at(&spec.external_waiting)),
        (asked, "interval", at(&spec.external_interval)),
        (asked, "timeout", at(&spec.external_timeout)),
    ];
    without_effect(keys, faults);
}

/// Adds a fault for each key that has a place and not what it needs: what that is and whether it is there, the key, its place.
pub(super) fn without_effect<'a>(
    keys: impl IntoIterator<Item = ((&'a str, bool), &'a str, Option<&'a Place>)>,
    faults: &mut Faults,
) {
    for ((needed, is_given), key, place) in keys {
        if let Some(place) = place.filter(|_| !is_given) {
            faults.push(place.fault(format!("{key} without {needed} has no effect"), "both or neither"));
        }
    }
}

/// Whether a name is one of letters, digits, '-' and '_', at most so many octets.
pub(super) fn is_plain(name: &Placed<String>, most: usize, faults: &mut Faults) -> bool {
    let Placed { value, place } = name;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_plain = value.len() <= most && value.chars().all(plain);
    if !is_plain {
        let expected = format!("at most {most} letters, digits, '-' or '_'");
        faults.push(place.fault(format!("name is {value:?}"), expected));
    }
    is_plain
}

/// Finds the first of too many.
pub(super) fn at_most<'a>(
    most: usize,
    what: &str,
    mut places: impl Iterator<Item = &'a Place>,
    faults: &mut Faults,
) {
    if let Some(place) = places.nth(most) {
        faults.push(place.fault(format!("there are more than {most} {what}"), "fewer"));
    }
}

/// Where a value was given; `None` for a default.
pub(super) fn at<'a, T: 'a>(value: impl IntoIterator<Item = &'a Placed<T>>) -> Option<&'a Place> {
    value.into_iter().next().map(|placed| &placed.place).filter(|place| **place != Place::Default)
}

fn protocol(spec: &Spec, faults: &mut Faults) {
    if let Some(Placed { value, place }) = &spec.nsid
        && value.len() > NSID_MAX
    {
        let what = format!("nsid has {} octets", value.len());
        faults.push(place.fault(what, format!("at most {NSID_MAX}")));
    }
    if let Some(secrets) = &spec.cookie_secrets
        && spec.cookies.as_ref().is_some_and(|cookies| cookies.value == "off")
    {
        let what = "there are cookie_secrets, and cookies are off";
        faults.push(secrets.place.fault(what, "cookies on, or no cookie_secrets"));
    }
}

fn rate_limit(spec: &Spec) -> Option<rate_limit::Limits> {
    // The keys' ranges end far below.
    let small = |number: &Option<Placed<u64>>| u32::try_from(given(number.clone())).unwrap_or(u32::MAX);
    let bits = |number| u8::try_from(small(number)).unwrap_or(u8::MAX);
    spec.responses_per_second.as_ref()?;
    Some(rate_limit::Limits {
        per_second: small(&spec.responses_per_second),
        window: given(spec.window.clone()),
        slip: small(&spec.slip),
        ipv4_prefix: bits(&spec.ipv4_prefix_bits),
        ipv6_prefix: bits(&spec.ipv6_prefix_bits),
    })
}

fn external(spec: &Spec) -> Option<external::Config> {
    let service = spec.external_service.as_ref()?.value;
    Some(external::Config {
        service,
        ttl: given(spec.external_ttl.clone()),
        life: given(spec.external_life.clone()),
        known: count(given(spec.external_known.clone())),
        waiting: count(given(spec.external_waiting.clone())),
        interval: given(spec.external_interval.clone()),
        timeout: given(spec.external_timeout.clone()),
    })
}

fn imports(spec: &Spec, faults: &mut Faults) -> Vec<Import> {
    let zones = spec.zone.iter().map(|zone| Import::Zone(resolve(zone)));
    let mut imports: Vec<Import> = zones.collect();
    // In the order in which their names come first.
    let mut partitions: Vec<(&str, Vec<Layer>)> = Vec::new();
    for partition in &spec.partition {
        let name = partition.name.as_ref().map_or("default", |name| &name.value);
        if let (Some(name), Err(fault)) = (&partition.name, check_name(name)) {
            faults.push(name.place.fault(fault.what, fault.expected));
            continue;
        }
        let at = partitions.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            partitions.push((name, Vec::new()));
            partitions.len() - 1
        });
        if partitions[at].1.last() == Some(&Layer::Ask) {
            let what = format!("the partition {name} has a layer behind ask");
            faults.push(partition.place.fault(what, "ask as the last one: it leaves nothing for others"));
        }
        partitions[at].1.extend(layer::lower(partition, spec.external_service.is_some(), faults));
    }
    // One without layers has a fault, which is told.
    partitions.retain(|(_, layers)| !layers.is_empty());
    imports
        .extend(partitions.into_iter().map(|(name, layers)| Import::Partition { name: name.into(), layers }));
    imports.extend(spec.policy.iter().map(|policy| Import::Policy(resolve(policy))));
    imports.extend(spec.cookie_secrets.iter().map(|secrets| Import::CookieSecrets(resolve(secrets))));
    imports
}

fn store(url: &Placed<String>) -> String {
    let Some(path) = url.value.strip_prefix("sqlite:") else { return url.value.clone() };
    let path = resolve(&Placed { value: path.into(), place: url.place.clone() });
    format!("sqlite:{}", path.display())
}

fn level(word: &str) -> tracing::Level {
    match word {
        "error" => tracing::Level::ERROR,
        "warn" => tracing::Level::WARN,
        "debug" => tracing::Level::DEBUG,
        "trace" => tracing::Level::TRACE,
        _ => tracing::Level::INFO,
    }
}

/// Whether a value of `key` has been found wrong: that there is none follows from it.
pub(super) fn is_told(key: &str, faults: &Faults) -> bool {
    faults
        .faults
        .iter()
        .any(|fault| fault.what.strip_prefix(key).is_some_and(|rest| rest.starts_with(" is ")))
}

pub(super) fn given<T>(value: Option<Placed<T>>) -> T {
    given_placed(value).value
}

fn given_placed<T>(value: Option<Placed<T>>) -> Placed<T> {
    value.expect("a key with a default always has a value")
}

pub(super) fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
