//! From what was given to what the server is started with: contradictions are found here.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Faults;
use nameserver::generation::{NSID_MAX, Settings};
use nameserver::import::Import;
use nameserver::rate_limit;
use nameserver::server::Options;
use nameserver::tap::{self, Destination};
use routing::proximity::mmdb::Field;

use super::spec::{PartitionSpec, Place, Placed, ProbeSpec, SecondarySpec, Spec};
use crate::log::{Form, Log};

/// A configuration that holds together; only the token and the keys are still in their files.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    /// What the server is started with, without the token.
    pub(crate) options: Options,
    /// Where the token is, where the API asks for one.
    pub(crate) token_file: Option<Placed<PathBuf>>,
    /// Where the TSIG keys are.
    pub(crate) tsig_keys: Vec<Placed<PathBuf>>,
    /// Who follows our zones, with the names of their keys.
    pub(crate) secondaries: Vec<SecondarySpec>,
    /// How servers are probed; whose certificates they believe is still in files.
    pub(crate) probes: Vec<ProbeSpec>,
    /// What is logged.
    pub(crate) log: Log,
}

/// Lowers `spec`, in which every key with a default has a value, and adds what is wrong to `faults`.
pub(crate) fn lower(spec: Spec, faults: &mut Faults) -> Lowered {
    addresses(&spec, faults);
    limits(&spec, faults);
    protocol(&spec, faults);
    let (rate_limit, tap) = (rate_limit(&spec), tap(&spec, faults));
    secondaries(&spec, faults);
    let imports = imports(&spec, faults);
    let tsig_keys =
        spec.tsig_keys.iter().map(|file| Placed { value: resolve(file), place: file.place.clone() });
    let (tsig_keys, secondaries) = (tsig_keys.collect(), spec.secondary.clone());
    let probes = spec.probe.clone();
    let token_file = spec.token_file.map(|placed| Placed { value: resolve(&placed), place: placed.place });
    let options = Options {
        listen: spec.listen.iter().map(|placed| placed.value).collect(),
        api: given(spec.api),
        token: None,
        store: store(&given_placed(spec.store)),
        workers: spec.workers.map(|placed| count(placed.value)),
        settings: Settings {
            minimal_responses: given(spec.minimal_responses),
            // The key's range ends below.
            udp_payload_max: u16::try_from(given(spec.udp_payload_max)).unwrap_or(u16::MAX),
            require_cookies: given(spec.cookies.clone()) == "require",
            nsid: spec.nsid.map(|placed| placed.value.into()),
            hide_version: given(spec.hide_version),
            tcp_idle: given(spec.idle.clone()),
        },
        cookies: given(spec.cookies) != "off",
        rate_limit,
        tap,
        imports,
        transfer: nameserver::transfer::Config::default(),
        probes: nameserver::health::Probes::new(),
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
    let form = if given(spec.log) == "json" { Form::Json } else { Form::Text };
    Lowered {
        options,
        token_file,
        tsig_keys,
        secondaries,
        probes,
        log: Log { form, level: level(given(spec.log_level)) },
    }
}

fn addresses(spec: &Spec, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for Placed { value, place } in &spec.listen {
        // Port 0 is any free port, of which there can be several.
        if value.port() != 0 && !seen.insert(value) {
            faults.push(place.fault(format!("listen has {value} twice"), "each address once"));
        }
    }
    let Some(api) = &spec.api else { return };
    if api.value.port() != 0 && seen.contains(&api.value) {
        let what = format!("api and listen are both {}", api.value);
        faults.push(api.place.fault(what, "another port for the API, such as 8053"));
    }
    if !is_loopback(api.value) && spec.token_file.is_none() {
        let what = format!("api is {}, which other machines reach, and there is no token_file", api.value);
        faults.push(api.place.fault(what, "a token_file (--token-file), or a loopback address"));
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

fn tap(spec: &Spec, faults: &mut Faults) -> Option<tap::Config> {
    let destination = match (&spec.dnstap_socket, &spec.dnstap_file) {
        (None, None) => return None,
        (Some(socket), None) => Destination::Socket(resolve(socket)),
        (None, Some(file)) => Destination::File(resolve(file)),
        (Some(_), Some(file)) => {
            faults.push(file.place.fault("dnstap has both socket and file", "one of them"));
            return None;
        }
    };
    if let Some(Placed { value, place }) = &spec.dnstap_identity
        && value.len() > NSID_MAX
    {
        let what = format!("identity has {} octets", value.len());
        faults.push(place.fault(what, format!("at most {NSID_MAX}")));
    }
    let has = |word| spec.dnstap_messages.iter().any(|message| message.value == word);
    let identity = spec.dnstap_identity.as_ref().or(spec.nsid.as_ref());
    Some(tap::Config {
        destination,
        file_max: given(spec.dnstap_file_max.clone()),
        // The key's range ends below.
        sample: u32::try_from(given(spec.dnstap_sample.clone())).unwrap_or(u32::MAX),
        queries: has("query"),
        responses: has("response"),
        identity: identity.map(|identity| identity.value.clone()).unwrap_or_default(),
    })
}

fn imports(spec: &Spec, faults: &mut Faults) -> Vec<Import> {
    let mut names = HashSet::new();
    let zones = spec.zone.iter().map(|zone| Import::Zone(resolve(zone)));
    let mut imports: Vec<Import> = zones.collect();
    for partition in &spec.partition {
        let name = partition.name.as_ref().map_or("default", |name| &name.value);
        if !names.insert(name) {
            let place = partition.name.as_ref().map_or(&partition.place, |name| &name.place);
            faults.push(place.fault(format!("the partition {name} is given twice"), "each name once"));
        }
        imports.extend(import(partition, name.into(), faults));
    }
    imports.extend(spec.policy.iter().map(|policy| Import::Policy(resolve(policy))));
    imports.extend(spec.cookie_secrets.iter().map(|secrets| Import::CookieSecrets(resolve(secrets))));
    imports
}

/// What a partition is imported from; `None` with at least one fault.
fn import(partition: &PartitionSpec, name: String, faults: &mut Faults) -> Option<Import> {
    let place = &partition.place;
    match (&partition.csv, &partition.mmdb, &partition.regions) {
        (Some(csv), None, regions) => {
            let only_mmdb = [regions.as_ref().map(|r| (&r.place, "regions")), partition.field_place()];
            for (place, key) in only_mmdb.into_iter().flatten() {
                faults.push(place.fault(format!("{key} beside csv"), format!("{key} only beside mmdb")));
            }
            Some(Import::Partition { name, path: resolve(csv) })
        }
        (None, Some(mmdb), Some(regions)) => {
            let field = match partition.field.as_ref().map(|field| field.value) {
                Some("continent") => Field::Continent,
                Some("asn") => Field::Asn,
                _ => Field::Country,
            };
            Some(Import::Mmdb { name, path: resolve(mmdb), regions: resolve(regions), field })
        }
        (None, Some(mmdb), None) => {
            let what = "there is an mmdb and no regions";
            faults.push(mmdb.place.fault(what, "a file of lines code,region (key regions, flag --regions)"));
            None
        }
        (Some(csv), Some(_), _) => {
            faults.push(csv.place.fault("there are both csv and mmdb", "one of them"));
            None
        }
        (None, None, _) => {
            faults.push(place.fault("the partition has no source", "csv, or mmdb and regions"));
            None
        }
    }
}

impl PartitionSpec {
    fn field_place(&self) -> Option<(&Place, &'static str)> {
        self.field.as_ref().map(|field| (&field.place, "field"))
    }
}

/// Takes a path of the file as relative to the file, and any other as relative to where we are.
pub(super) fn resolve(path: &Placed<PathBuf>) -> PathBuf {
    match &path.place {
        Place::File { path: file, .. } => {
            Path::new(&**file).parent().unwrap_or(Path::new("")).join(&path.value)
        }
        Place::Default | Place::Flag(_) => path.value.clone(),
    }
}

fn store(url: &Placed<String>) -> String {
    let Some(path) = url.value.strip_prefix("sqlite:") else { return url.value.clone() };
    let path = resolve(&Placed { value: path.into(), place: url.place.clone() });
    format!("sqlite:{}", path.display())
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
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

pub(super) fn given<T>(value: Option<Placed<T>>) -> T {
    given_placed(value).value
}

fn given_placed<T>(value: Option<Placed<T>>) -> Placed<T> {
    value.expect("a key with a default always has a value")
}

pub(super) fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
