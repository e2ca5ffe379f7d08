//! The configuration of `control`: a file of its own, since the process runs wherever it likes.
//!
//! - [`keys`]: every key, declared once; [`spec`]: what was given.

pub(crate) mod keys;
pub(crate) mod spec;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::control::algorithm::third::{Parameters, Third};
use ::control::load::Scale;
use ::control::source::text::Sample;
use ::control::source::{self, ADDRESS, Kind, Source};
use ::control::{Algorithm, Options, Rule, ServerOptions};
use api::file::{WRITTEN_MAX, read_text};
use api::{Fault, Faults, Target};
use toml::de::DeTable;
use web::client::{self, ANSWER_MAX, Asked, Client};

use super::file::{self, Reader};
use super::lower::{at, given, is_told, unguarded, without_effect};
use super::read_defaults;
use super::spec::{Place, Placed, resolve};
use crate::log::Form;
use crate::token;
use keys::{CONTROL, SERVER, SOURCE};
use spec::{ControlSpec, ServerSpec, SourceSpec};

/// The most sources, and the most servers: each pair is asked in every round.
const SOURCES_MAX: usize = 32;
const SERVERS_MAX: usize = 256;

/// The name server's API, as it is told where it does not answer.
const API: Asked = Asked { source: "api", token: "token_file", ..client::API };

/// How long the API may take: it gives up waiting for its workers after 5 s, and a stop waits for rows on their way.
const API_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a source may take where nothing is said and rounds are no closer: what answers at all does so in less.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How old a value may be where nothing is said, and in how many rounds at least: two of them may bring none.
const STALE: Duration = Duration::from_secs(30);
const STALE_ROUNDS: u32 = 3;

/// A configuration that holds together.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    /// What the process is started with.
    pub(crate) options: Options,
    /// How long apart rounds are.
    pub(crate) interval: Duration,
    /// Where the face is.
    pub(crate) listen: Option<SocketAddr>,
    /// The token that the face asks for; without one it takes no reports.
    pub(crate) report_token: Option<String>,
}

/// Reads the file at `path`; lists everything that is wrong, with its place. The form of log lines is known in any case, so
/// that the list can be told in it.
pub(crate) fn load(path: &Path) -> (Form, Result<Lowered, Faults>) {
    match read_text(path, WRITTEN_MAX, "a configuration file, such as `pointsman control --template` prints")
    {
        Ok(text) => read(path, &text),
        Err(fault) => (Form::Text, Err(fault.into())),
    }
}

fn read(path: &Path, text: &str) -> (Form, Result<Lowered, Faults>) {
    let (mut spec, mut faults) = (ControlSpec::default(), Faults::default());
    read_defaults(&CONTROL, &mut spec);
    file::read_by(path, text, &mut faults, |reader, document| document_of(reader, document, &mut spec));
    let form = Form::of(given(spec.log.clone()));
    if faults.faults.iter().any(|fault| fault.line.is_none()) {
        return (form, Err(faults));
    }
    let lowered = match lower(path, spec, &mut faults) {
        Some(lowered) => faults.or(lowered),
        None => Err(faults),
    };
    (form, lowered)
}

fn document_of(reader: &mut Reader, document: &DeTable<'_>, spec: &mut ControlSpec) {
    reader.version(document);
    for (name, value) in document {
        match name.get_ref() {
            section if section == SOURCE.name => {
                spec.source = reader.headings(value, &SOURCE, |place, given| {
                    let mut source = SourceSpec::at(place, given);
                    read_defaults(&SOURCE, &mut source);
                    source
                });
            }
            section if section == SERVER.name => {
                spec.server = reader.headings(value, &SERVER, |place, given| {
                    let mut server = ServerSpec::at(place, given);
                    read_defaults(&SERVER, &mut server);
                    server
                });
            }
            _ => reader.key(name, value, &CONTROL, &[SOURCE.name, SERVER.name], spec),
        }
    }
}

/// Lowers what was given, and adds what is wrong to `faults`; `None` with at least one fault.
fn lower(path: &Path, spec: ControlSpec, faults: &mut Faults) -> Option<Lowered> {
    let is_policy_told = is_told("policy", faults);
    let mut whole =
        |what: &str, expected: &str| faults.push(Fault::whole(path.to_string_lossy(), what, expected));
    if spec.policy.is_none() && !is_policy_told {
        whole("the key policy is missing", "a line policy = \"NAME\"");
    }
    if spec.source.is_empty() {
        whole("there is no source of loads", "a heading [[source]]");
    }
    if spec.server.is_empty() {
        whole("there is no server", "a heading [[server]]");
    }
    if let Some(source) = spec.source.get(SOURCES_MAX) {
        faults.push(source.place.fault("there are too many sources", format!("{SOURCES_MAX} at most")));
    }
    if let Some(server) = spec.server.get(SERVERS_MAX) {
        faults.push(server.place.fault("there are too many servers", format!("{SERVERS_MAX} at most")));
    }
    name(spec.policy.as_ref(), faults);
    times(&spec, faults);
    let client = client(&spec, faults);
    let algorithm = given(spec.algorithm.clone());
    let sources = sources(&spec, algorithm, faults);
    let (regions, servers) = servers(&spec.server, faults);
    let report_token = face(&spec, faults);
    let interval = given(spec.interval.clone());
    Some(Lowered {
        interval,
        listen: spec.listen.as_ref().map(|listen| listen.value),
        report_token,
        options: Options {
            client: client?,
            policy: spec.policy?.value,
            rule: Rule {
                algorithm: match algorithm {
                    "I" => Algorithm::First,
                    "II" => Algorithm::Second(given(spec.favour)),
                    _ => Algorithm::Third(Third::new(Parameters {
                        ttl: given(spec.ttl.clone()),
                        interval,
                        fill: given(spec.fill),
                        step: given(spec.step),
                        hysteresis: given(spec.hysteresis),
                    })),
                },
                // The key's range ends below.
                ttl: u32::try_from(given(spec.ttl).as_secs()).unwrap_or(u32::MAX),
                regions,
                servers,
            },
            timeout: spec.timeout.map_or(TIMEOUT.min(interval), |timeout| timeout.value),
            stale: spec.stale.map_or(STALE.max(interval * STALE_ROUNDS), |stale| stale.value),
            sources,
            dry_run: false,
        },
    })
}

/// The policy's name, which is one of a domain.
fn name(policy: Option<&Placed<String>>, faults: &mut Faults) {
    if let Some(policy) = policy
        && let Err(what) = dns::name::folded_from_text(&policy.value)
    {
        faults.push(policy.place.fault(format!("policy: {what}"), "a domain name such as www.example.com"));
    }
}

/// Times and steps that contradict each other, and a TTL that is none; a default is never to blame for what was given.
fn times(spec: &ControlSpec, faults: &mut Faults) {
    if let Some(ttl) = spec.ttl.as_ref().filter(|ttl| ttl.value.subsec_nanos() != 0) {
        faults.push(ttl.place.fault(format!("ttl is {:?}", ttl.value), "whole seconds"));
    }
    for (less, more, names) in [
        (&spec.timeout, &spec.interval, ["timeout", "interval"]),
        (&spec.interval, &spec.stale, ["interval", "stale"]),
    ] {
        let (Some(less), Some(more)) = (less, more) else { continue };
        if less.value > more.value {
            let what = format!("{} is {:?}, {} only {:?}", names[0], less.value, names[1], more.value);
            faults.push(blamed(less, more).fault(what, format!("{} <= {}", names[0], names[1])));
        }
    }
    if let (Some(hysteresis), Some(step)) = (&spec.hysteresis, &spec.step)
        && hysteresis.value >= step.value
    {
        let what = format!("hysteresis is {}, step only {}", hysteresis.value, step.value);
        faults.push(blamed(hysteresis, step).fault(what, "hysteresis < step"));
    }
}

fn blamed<'a, T>(first: &'a Placed<T>, second: &'a Placed<T>) -> &'a Place {
    if first.place == Place::Default { &second.place } else { &first.place }
}

fn client(spec: &ControlSpec, faults: &mut Faults) -> Option<Client> {
    let token = token_of(spec.token_file.as_ref(), faults);
    let url = spec.api.as_ref()?;
    Client::of(&url.value, token, API)
        .map(|client| client.within(API_TIMEOUT, ANSWER_MAX).keeping())
        .map_err(|fault| faults.push(url.place.fault(format!("api: {}", fault.what), fault.expected)))
        .ok()
}

fn token_of(file: Option<&Placed<PathBuf>>, faults: &mut Faults) -> Option<String> {
    let path = resolve(file?);
    token::read(&path).map_err(|fault| faults.push(fault)).ok()
}

/// The token of the face; what needs one has one.
fn face(spec: &ControlSpec, faults: &mut Faults) -> Option<String> {
    let pushed =
        spec.source.iter().find(|source| source.kind.as_ref().is_some_and(|kind| kind.value == "push"));
    if let Some(source) = pushed {
        for (is_given, key) in
            [(spec.listen.is_some(), "listen"), (spec.report_token_file.is_some(), "report_token_file")]
        {
            if !is_given {
                let what = format!("a source of kind push takes reports, and there is no {key}");
                faults.push(source.place.fault(what, format!("the key {key} above all headings")));
            }
        }
    }
    let token = ("a report_token_file", spec.report_token_file.is_some());
    unguarded("listen", spec.listen.as_ref(), token, faults);
    let listening = ("listen", spec.listen.is_some());
    without_effect([(listening, "report_token_file", at(&spec.report_token_file))], faults);
    token_of(spec.report_token_file.as_ref(), faults)
}

fn sources(spec: &ControlSpec, algorithm: &str, faults: &mut Faults) -> Vec<Source> {
    let mut names = BTreeSet::new();
    let mut sources = Vec::new();
    for source in &spec.source {
        if let Some(name) = &source.name
            && !names.insert(&name.value)
        {
            faults.push(
                name.place.fault(format!("the source {} is given twice", name.value), "each name once"),
            );
        }
        if source.given.lacks("name") {
            faults.push(source.place.fault("the source has no name", "the key name"));
        }
        let scale = scale(source, algorithm, faults);
        let kind = kind(source, spec.server.len() > 1, faults);
        if let (Some(name), Some(scale), Some(kind)) = (&source.name, scale, kind) {
            let per_second = given(source.per_second.clone());
            sources.push(Source { name: name.value.clone(), scale, per_second, kind });
        }
    }
    sources
}

/// What the source's values mean; `None` with at least one fault.
fn scale(source: &SourceSpec, algorithm: &str, faults: &mut Faults) -> Option<Scale> {
    let value = |key: &Option<Placed<f64>>| key.as_ref().map(|placed| placed.value);
    let (threshold, low, high) = (value(&source.threshold), value(&source.low), value(&source.high));
    let needed: &[(&str, bool)] = match algorithm {
        "II" => &[("low", source.given.lacks("low")), ("high", source.given.lacks("high"))],
        _ => &[("threshold", source.given.lacks("threshold"))],
    };
    let missing: Vec<&str> =
        needed.iter().filter(|(_, is_missing)| *is_missing).map(|(key, _)| *key).collect();
    for key in &missing {
        let what = format!("the source has no {key}, which Algorithm {algorithm} needs");
        faults.push(source.place.fault(what, format!("the key {key}")));
    }
    // What is missing is not crossed as well.
    let high = if algorithm == "II" { high } else { high.or(threshold) };
    let (threshold, high) = (threshold.or(high)?, high?);
    let low = low.unwrap_or(0.0);
    if low >= high {
        let place = source.low.as_ref().or(source.high.as_ref()).map_or(&source.place, |key| &key.place);
        let what = format!("the watermarks are crossed: low is {low}, high {high}");
        faults.push(place.fault(what, "low < high"));
        return None;
    }
    let scale = Scale { threshold, low, high, weight: given(source.weight.clone()) };
    missing.is_empty().then_some(scale)
}

/// Where the source's values are from; `None` with at least one fault. With `several` servers, each must be asked for
/// its own.
fn kind(source: &SourceSpec, several: bool, faults: &mut Faults) -> Option<Kind> {
    let Some(Placed { value: kind, .. }) = &source.kind else {
        if source.given.lacks("kind") {
            faults.push(source.place.fault("the source has no kind", "json, prometheus, command or push"));
        }
        return None;
    };
    let before = faults.faults.len() as u64 + faults.omitted;
    let command = source.command.first().map(|first| &first.place);
    let place_of = |key: &Option<Placed<String>>| key.as_ref().map(|placed| placed.place.clone());
    let keys = [
        ("url", place_of(&source.url), matches!(*kind, "json" | "prometheus"), true),
        ("pointer", place_of(&source.pointer), *kind == "json", false),
        ("metric", place_of(&source.metric), *kind == "prometheus", true),
        ("command", command.cloned(), *kind == "command", true),
        ("after", place_of(&source.after), *kind == "command", false),
    ];
    for (key, place, belongs, is_needed) in keys {
        match place {
            Some(place) if !belongs => {
                faults.push(place.fault(format!("{key} beside kind {kind}"), format!("no {key}")));
            }
            None if belongs && is_needed && source.given.lacks(key) => {
                let what = format!("the source of kind {kind} has no {key}");
                faults.push(source.place.fault(what, format!("the key {key}")));
            }
            _ => {}
        }
    }
    let texts = [&source.url, &source.pointer, &source.metric];
    let texts = texts.into_iter().flatten().chain(&source.command);
    if several && *kind != "push" && !texts.into_iter().any(|text| text.value.contains(ADDRESS)) {
        let what = "the source does not say whose load it is: all servers would have the same";
        faults.push(source.place.fault(what, "{address} in url, pointer, metric or command"));
    }
    if let Some(url) = &source.url
        && let Err(fault) = source::check(&url.value)
    {
        faults.push(url.place.fault(format!("url: {}", fault.what), fault.expected));
    }
    if let Some(pointer) = source.pointer.as_ref().filter(|pointer| !pointer.value.starts_with('/')) {
        faults.push(
            pointer.place.fault(format!("pointer is {:?}", pointer.value), "a text that begins with /"),
        );
    }
    let sample = source.metric.as_ref().and_then(|metric| {
        let sample = Sample::parse(&metric.value);
        let expected = "a metric such as node_load1 or requests_total{code=\"200\"}";
        sample.map_err(|what| faults.push(metric.place.fault(format!("metric: {what}"), expected))).ok()
    });
    if faults.faults.len() as u64 + faults.omitted > before {
        return None;
    }
    let text = |key: &Option<Placed<String>>| key.as_ref().map(|placed| placed.value.clone());
    Some(match *kind {
        "json" => Kind::Json { url: text(&source.url)?, pointer: text(&source.pointer).unwrap_or_default() },
        "prometheus" => Kind::Prometheus { url: text(&source.url)?, sample: sample? },
        "command" => Kind::Command {
            line: source.command.iter().map(|word| word.value.clone()).collect(),
            folder: resolve(&Placed { value: ".".into(), place: source.place.clone() }),
            after: text(&source.after).unwrap_or_default(),
        },
        _ => Kind::Pushed,
    })
}

/// The regions that have ranks, and the servers with a rank for each.
fn servers(specs: &[ServerSpec], faults: &mut Faults) -> (Vec<String>, Vec<ServerOptions>) {
    let regions: BTreeSet<&String> = specs.iter().flat_map(|s| &s.ranks).map(|rank| &rank.value.0).collect();
    let rank_max = regions.len().max(specs.len());
    let mut seen: BTreeSet<Target> = BTreeSet::new();
    let mut servers = Vec::new();
    for spec in specs {
        if spec.given.lacks("address") {
            faults.push(spec.place.fault("the server has no address", "the key address"));
        }
        if spec.address.as_ref().is_some_and(|address| address.value.is_cname())
            && let Some(also) = spec.also.first()
        {
            faults.push(also.place.fault("the server is a name", "also beside an address alone"));
        }
        let also = spec.also.iter().map(|also| (also.value.into(), &also.place));
        let address = spec.address.iter().map(|address| (address.value.clone(), &address.place));
        let targets: Vec<(Target, &Place)> = address.chain(also).collect();
        for (target, place) in &targets {
            if !seen.insert(target.clone()) {
                faults.push(place.fault(format!("{target} is given twice"), "each server once"));
            }
        }
        for rank in &spec.ranks {
            let (region, number) = &rank.value;
            if *number as usize > rank_max {
                let what = format!("the rank of {region} is {number}");
                faults.push(rank.place.fault(what, format!("a rank from 1 to {rank_max}")));
            }
        }
        let rank =
            |region: &&String| spec.ranks.iter().find(|rank| rank.value.0 == **region).map(|r| r.value.1);
        for region in regions.iter().filter(|region| rank(region).is_none()) {
            let what = format!("the server has no rank for {region}, which others have");
            faults.push(spec.place.fault(what, format!("ranks with {region}")));
        }
        servers.push(ServerOptions {
            targets: targets.into_iter().map(|(target, _)| target).collect(),
            capacity: given(spec.capacity.clone()),
            ranks: regions.iter().filter_map(rank).collect(),
        });
    }
    (regions.into_iter().cloned().collect(), servers)
}

#[cfg(test)]
mod tests;
