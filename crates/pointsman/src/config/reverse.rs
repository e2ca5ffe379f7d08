//! The flags of `reverse`, one over each key, and from what was given to what the service is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::file::{WRITTEN_MAX, read_text};
use api::{Fault, Faults};
use balancer::circle;
use clap::Args;
use hyper::header::HeaderName;
use net::whole;
use nix::unistd::geteuid;
use reverse::backend::{Behaviour, Kept, Paper, Ttl};
use reverse::face::http::check::{Check, NotYet};
use reverse::face::{dns, mmdb};
use reverse::service::UPSTREAMS_MAX;
use reverse::{Crawlers, Options};

use super::flags::{Flagged, Over};
use super::keys::{REVERSE, Section};
use super::kind;
use super::lower::{apart, at, count, given, without_effect};
use super::spec::{Placed, ReverseSpec, resolve};
use crate::log::Form;
use routing::{Acl, Prefix};

/// The longest time for which names are kept or served: longer than anybody's.
pub(super) const LIFE_CEILING: Duration = Duration::from_secs(365 * 24 * 3600);

/// What `reverse` was given on the command line; values are read when all of the configuration is.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[arg(long, value_name = "FILE", help = "The configuration file; flags replace what its [reverse] says")]
    config: Option<PathBuf>,
    /// Read the configuration, list every fault, and end
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    over: Over<ReverseSpec>,
}

impl Flagged for ReverseSpec {
    const SECTION: &'static Section<ReverseSpec> = &REVERSE;
}

/// A configuration that holds together.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    /// What the service is started with.
    pub(crate) options: Options,
    /// The form of log lines.
    pub(crate) form: Form,
}

/// Reads file and flags; lists everything that is wrong, whichever it is in.
pub(crate) fn load(flags: &Flags) -> (Lowered, Faults) {
    let (mut spec, mut faults) = super::of_file(flags.config.as_deref());
    flags.over.read(&mut spec.reverse, &mut faults);
    // Root could write anywhere; whether the user whom the service becomes can, the command asks.
    if spec.reverse.user.is_none() || !geteuid().is_root() {
        files(&spec.reverse, &mut faults);
    }
    (lower(spec.reverse, &mut faults), faults)
}

/// Adds to `faults` why a file that is to be written could not be.
fn files(spec: &ReverseSpec, faults: &mut Faults) {
    for (key, given) in [("snapshot", &spec.snapshot), ("mmdb", &spec.mmdb)] {
        let Some(given) = given else { continue };
        let path = resolve(given);
        if let Err(cause) = whole::check(&path) {
            let what = format!("{key} is {}, and it cannot be written: {cause}", path.display());
            faults.push(given.place.fault(what, "a file in a folder that this user may write to"));
        }
    }
}

/// Lowers `spec`, in which every key with a default has a value, and adds what is wrong to `faults`.
fn lower(spec: ReverseSpec, faults: &mut Faults) -> Lowered {
    addresses(&spec, faults);
    if let (Some(Placed { value: true, place }), Some(Placed { value: true, .. })) =
        (&spec.confirm, &spec.paper)
    {
        let expected =
            "one of the two: Rapid DNS did not ask if names lead back, and with paper nothing does";
        faults.push(place.fault("confirm and paper are both chosen", expected));
    }
    if let (Some(snapshot), Some(mmdb)) = (&spec.snapshot, &spec.mmdb)
        && resolve(snapshot) == resolve(mmdb)
    {
        faults.push(mmdb.place.fault("mmdb and snapshot are the same file", "a file for each"));
    }
    idle(&spec, faults);
    let ttl = spec.ttl.as_ref().map(|placed| (ttl(&placed.value), placed));
    let ttl = match ttl {
        Some((Err(expected), placed)) => {
            faults.push(placed.place.fault(format!("ttl is {:?}", placed.value), expected));
            Ttl::Fixed(Duration::ZERO)
        }
        Some((Ok(ttl), _)) => ttl,
        None => Ttl::Fixed(Duration::ZERO),
    };
    let small = |number: Option<Placed<u64>>| u32::try_from(given(number)).unwrap_or(u32::MAX);
    let plain = |all: &[Placed<SocketAddr>]| all.iter().map(|placed| placed.value).collect::<Vec<_>>();
    let acl = |all: &[Placed<Prefix>]| Acl::new(all.iter().map(|prefix| prefix.value).collect());
    let check = Check {
        header: header(spec.client_header.as_ref(), faults),
        believed: acl(&spec.believe),
        // The words are those of the key.
        not_yet: NotYet::from_word(given(spec.not_yet)).unwrap_or(NotYet::Allow),
    };
    let paper = given(spec.paper);
    let stack = count(given(spec.stack));
    let cores = net::thread::cores().map_or(1, |cores| cores.len());
    let workers = spec.workers.map_or(cores, |workers| count(workers.value));
    let wait = given(spec.wait);
    let (mmdb_interval, mmdb_size) = (given(spec.mmdb_interval), count(given(spec.mmdb_size)));
    let snapshot_interval = given(spec.snapshot_interval);
    let crawlers = Arc::new(crawlers(spec.crawlers.as_ref(), faults));
    let options = Options {
        user: spec.user.map(|user| user.value),
        upstreams: plain(&spec.upstream),
        behaviour: Behaviour {
            interval: given(spec.interval),
            burst: small(spec.burst),
            stack,
            per_client: spec.per_client.map_or(stack.div_ceil(2), |most| count(most.value)),
            timeout: given(spec.timeout),
            tries: small(spec.tries),
            ttl,
            negative: !given(spec.no_negative),
            confirm: given(spec.confirm),
            prefixes: !given(spec.no_prefixes),
            paper: paper.then(Paper::default),
        },
        ahead: !given(spec.no_ahead),
        sample_one_in: given(spec.sample),
        memory: count(given(spec.memory)),
        stale: if paper { Duration::ZERO } else { given(spec.stale) },
        kept: spec.snapshot.map(|path| Kept { path: resolve(&path), interval: snapshot_interval }),
        acl: acl(&spec.allow),
        crawlers,
        dns: spec
            .dns
            .iter()
            .map(|Placed { value: (address, own), .. }| dns::Options {
                address: *address,
                wait: own.unwrap_or(wait),
                workers,
            })
            .collect(),
        resp: plain(&spec.resp),
        rapid: plain(&spec.rapid),
        http: plain(&spec.http),
        check,
        mmdb: spec.mmdb.map(|path| mmdb::Options {
            path: resolve(&path),
            interval: mmdb_interval,
            size: mmdb_size,
        }),
    };
    let form = Form::of(given(spec.log));
    Lowered { options, form }
}

/// Finds keys that were given and matter only beside another that was not.
fn idle(spec: &ReverseSpec, faults: &mut Faults) {
    let (dns, http) = (("dns", !spec.dns.is_empty()), ("http", !spec.http.is_empty()));
    let (mmdb, snapshot) = (("mmdb", spec.mmdb.is_some()), ("snapshot", spec.snapshot.is_some()));
    let keys = [
        (dns, "wait", at(&spec.wait)),
        (dns, "workers", at(&spec.workers)),
        (http, "client_header", at(&spec.client_header)),
        (http, "believe", at(&spec.believe)),
        (http, "not_yet", at(&spec.not_yet)),
        (http, "crawlers", at(&spec.crawlers)),
        (mmdb, "mmdb_interval", at(&spec.mmdb_interval)),
        (mmdb, "mmdb_size", at(&spec.mmdb_size)),
        (snapshot, "snapshot_interval", at(&spec.snapshot_interval)),
    ];
    without_effect(keys, faults);
}

fn addresses(spec: &ReverseSpec, faults: &mut Faults) {
    // What could not be read may be what is missing.
    let is_read = faults.is_empty();
    let mut whole = |what: &str, expected: &str| {
        if is_read {
            faults.push(Fault::whole("reverse", what, expected));
        }
    };
    if spec.upstream.is_empty() {
        whole("there is nobody to ask", "upstream (--upstream ADDR)");
    }
    let faces = || {
        let dns = spec.dns.iter().map(|Placed { value: (address, _), place }| ("dns", *address, place));
        let others = [("resp", &spec.resp), ("rapid", &spec.rapid), ("http", &spec.http)];
        dns.chain(
            others.into_iter().flat_map(|(key, face)| face.iter().map(move |at| (key, at.value, &at.place))),
        )
    };
    if faces().next().is_none() && spec.mmdb.is_none() {
        let expected = "dns, resp, rapid, http or mmdb (--dns ADDR, --resp ADDR, --rapid ADDR, --http ADDR or --mmdb FILE)";
        whole("there is nowhere to answer", expected);
    }
    if let Some(beyond) = spec.upstream.get(UPSTREAMS_MAX) {
        faults.push(beyond.place.fault("there are too many upstreams", format!("{UPSTREAMS_MAX} at most")));
    }
    for (index, Placed { value, place }) in spec.upstream.iter().enumerate() {
        if spec.upstream[..index].iter().any(|before| before.value == *value) {
            faults.push(place.fault(format!("upstream has {value} twice"), "each resolver once"));
        }
        if value.ip().is_unspecified() || value.ip().is_multicast() || value.port() == 0 {
            faults.push(place.fault(format!("{value} is no resolver's address"), "an address and a port"));
        }
    }
    apart(faces(), faults);
    for (_, value, place) in faces() {
        if !value.ip().is_loopback() && spec.allow.is_empty() {
            let what = format!("{value} is not loopback, and there is nobody who may ask there");
            faults.push(place.fault(what, "allow (--allow PREFIX) for each network of clients"));
        }
    }
    // Its own "not yet" would be learned as "no name".
    for Placed { value: (address, _), place } in spec.dns.iter().filter(|dns| dns.value.0.port() != 0) {
        for upstream in spec.upstream.iter().filter(|upstream| circle::leads_to(*address, upstream.value)) {
            let what = format!(
                "{address} in dns has {} in upstream: questions would go round in a circle",
                upstream.value
            );
            faults.push(place.fault(what, "another address for the service"));
        }
    }
}

/// Reads the name of the header that says who a client is.
fn header(name: Option<&Placed<String>>, faults: &mut Faults) -> HeaderName {
    let Some(name) = name else { return HeaderName::from_static("x-real-ip") };
    name.value.parse().unwrap_or_else(|_| {
        let expected = "the name of a header such as x-real-ip or x-forwarded-for";
        faults.push(name.place.fault(format!("client_header is {:?}", name.value), expected));
        HeaderName::from_static("x-real-ip")
    })
}

/// Reads the file of crawlers; without one, none is known.
fn crawlers(file: Option<&Placed<PathBuf>>, faults: &mut Faults) -> Crawlers {
    let Some(file) = file else { return Crawlers::default() };
    let path = resolve(file);
    let text = match read_text(&path, WRITTEN_MAX, "") {
        Ok(text) => text,
        Err(fault) => {
            faults.push(file.place.fault(fault.to_string(), ""));
            return Crawlers::default();
        }
    };
    match Crawlers::read(&text, &path.to_string_lossy()) {
        Ok(crawlers) => crawlers,
        Err(found) => {
            faults.append(found);
            Crawlers::default()
        }
    }
}

fn ttl(text: &str) -> Result<Ttl, String> {
    let expected = "a time such as 7 d, or LEAST..MOST such as 1 min..1 d";
    let time = |text| kind::time(text).map_err(|_| expected.to_owned());
    let ttl = match text.split_once("..") {
        None => Ttl::Fixed(time(text)?),
        Some((least, most)) => {
            let (least, most) = (time(least.trim_end())?, time(most.trim_start())?);
            if least > most {
                return Err("the longer time behind the shorter one".into());
            }
            Ttl::Record(least, most)
        }
    };
    // Expiry is counted in seconds: with less, no name would ever be known.
    if (Duration::from_secs(1)..=LIFE_CEILING).contains(&ttl.longest()) {
        Ok(ttl)
    } else {
        Err(format!("names to be kept from 1 s to {} d", LIFE_CEILING.as_secs() / 86_400))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{defaults, file, page};
    use clap::Parser;
    use std::path::Path;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    /// Reads a file's text and flags, as `load` does.
    fn lowered(text: &str, flags: &[&str]) -> Result<Lowered, String> {
        let (mut faults, mut spec) = (Faults::default(), defaults());
        file::read(Path::new("/etc/p.toml"), text, &mut spec, &mut faults);
        let line = Line::try_parse_from(["reverse"].iter().chain(flags)).expect("flags are only read later");
        line.flags.over.read(&mut spec.reverse, &mut faults);
        let lowered = lower(spec.reverse, &mut faults);
        faults.or(lowered).map_err(|faults| faults.to_string())
    }

    #[test]
    fn flags_replace_what_the_file_says() {
        let text = "version = \"v1\"\n[reverse]\nupstream = [\"192.0.2.53\"]\ndns = [\"127.0.0.1:5353\"]\n\
                    ttl = \"1 min..1 d\"\npaper = true\nsnapshot = \"names.cache\"\nmemory = \"64MiB\"\n";
        let file = lowered(text, &[]).expect("it is right").options;
        assert_eq!(file.upstreams, ["192.0.2.53:53".parse().expect("an address")]);
        assert!(file.behaviour.paper.is_some() && file.stale.is_zero() && file.memory == 64 << 20);
        assert_eq!(file.behaviour.ttl, Ttl::Record(Duration::from_secs(60), Duration::from_secs(86_400)));
        assert_eq!(file.kept.expect("it is kept").path, Path::new("/etc/names.cache"));
        let flags = [
            "--upstream",
            "[2001:db8::1]:5300,192.0.2.1",
            "--paper=false",
            "--ttl",
            "7d",
            "--log",
            "json",
            "--wait",
            "1s",
            "--dns",
            "127.0.0.1:5353",
            "--dns",
            "127.0.0.1:5354+200ms",
            "--dns",
            "[::1]:5353+0ms",
        ];
        let over = lowered(text, &flags).expect("it is right");
        assert!(over.form == Form::Json && over.options.behaviour.paper.is_none());
        assert_eq!(over.options.upstreams.len(), 2);
        assert_eq!(over.options.behaviour.ttl, Ttl::Fixed(Duration::from_secs(7 * 86_400)));
        let waits: Vec<u128> = over.options.dns.iter().map(|dns| dns.wait.as_millis()).collect();
        assert_eq!(waits, [1_000, 200, 0]);
        assert_eq!(over.options.stale, Duration::from_secs(86_400));
    }

    #[test]
    fn everything_wrong_is_listed_at_once_with_its_place() {
        let text = "version = \"v1\"\n[reverse]\nupstream = \"192.0.2.53\"\ndns = [\"0.0.0.0:53\"]\nwait = \"9 s\"\n\
                    memory = \"1 MiB\"\nttl = \"1 d..1 h\"\nspeed = 9\n[tcp]\nidle = 10\n";
        let found = lowered(text, &["--tries", "0"]).expect_err("much is wrong");
        let expected = [
            "/etc/p.toml:3:12: upstream is \"192.0.2.53\"; expected an array of IP addresses",
            "/etc/p.toml:5:8: wait is \"9 s\"; expected a time from 0 s to 4 s",
            "/etc/p.toml:6:10: memory is \"1 MiB\"; expected a size from 4 MiB to 1024 GiB, in KiB, MiB or GiB",
            "/etc/p.toml:8:1: unknown key speed in reverse; expected upstream,",
            "/etc/p.toml:10:8: idle is the number 10 without a unit",
            "--tries: tries is \"0\"; expected a whole number from 1 to 10",
            "/etc/p.toml:4:8: 0.0.0.0:53 is not loopback, and there is nobody who may ask there",
            "/etc/p.toml:7:7: ttl is \"1 d..1 h\"; expected the longer time behind the shorter one",
        ];
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{found}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}\nis not\n{expected}");
        }
    }

    #[test]
    fn what_would_have_no_effect_is_a_fault() {
        let text = "version = \"v1\"\n[reverse]\nupstream = [\"192.0.2.53\"]\nresp = [\"127.0.0.1:6379\"]\nwait = \"1 s\"\n\
                    believe = [\"192.0.2.80\"]\nmmdb_size = \"32 MiB\"\n";
        let found = lowered(text, &["--snapshot-interval", "1h"]).expect_err("four keys have no effect");
        let expected = [
            "/etc/p.toml:5:8: wait without dns has no effect; expected both or neither",
            "/etc/p.toml:6:12: believe without http has no effect; expected both or neither",
            "/etc/p.toml:7:13: mmdb_size without mmdb has no effect; expected both or neither",
            "--snapshot-interval: snapshot_interval without snapshot has no effect; expected both or neither",
        ];
        assert_eq!(found.lines().collect::<Vec<_>>(), expected);
        let faces = ["--dns", "127.0.0.1:5353", "--http", "127.0.0.1:8054", "--mmdb", "/tmp/names.mmdb"];
        assert!(lowered(text, &faces).is_ok());
    }

    #[test]
    fn what_excludes_each_other_is_refused_wherever_it_is_said() {
        let text = "version = \"v1\"\n[reverse]\nupstream = [\"192.0.2.53\"]\ndns = [\"127.0.0.1:5353\"]\n";
        let both = format!("{text}confirm = true\npaper = true\n");
        let paper = format!("{text}paper = true\nconfirm = false\n");
        for (text, flags, place) in [
            (both.as_str(), &[][..], Some("/etc/p.toml:5:11")),
            (text, &["--paper", "--confirm"], Some("--confirm")),
            (&paper, &["--confirm"], Some("--confirm")),
            (&both, &["--paper=false"], None),
            (&both, &["--confirm=false"], None),
            (&paper, &[], None),
        ] {
            let found = lowered(text, flags).err();
            let expected =
                place.map(|place| format!("{place}: confirm and paper are both chosen; expected one"));
            let is_it = match (&found, &expected) {
                (Some(found), Some(expected)) => {
                    found.starts_with(expected.as_str()) && found.lines().count() == 1
                }
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_it, "{flags:?}: {found:?}");
        }
        let found = lowered(&format!("{text}snapshot = \"names\"\n"), &["--mmdb", "/etc/names"]);
        let expected = "--mmdb: mmdb and snapshot are the same file; expected a file for each";
        assert_eq!(found.err().as_deref(), Some(expected));
        assert!(lowered(text, &["--snapshot", "names.cache", "--mmdb", "names.mmdb"]).is_ok());
    }

    #[test]
    fn upstreams_and_times_that_cannot_be_are_refused() {
        let told = |flags: &[&str]| {
            let flags = [&["--upstream", "192.0.2.53", "--dns", "127.0.0.1:0"], flags].concat();
            lowered("version = \"v1\"\n", &flags).err()
        };
        for upstream in ["192.0.2.53:0", "0.0.0.0:53", "[::]:53", "224.0.0.1:53"] {
            let expected =
                format!("--upstream: {upstream} is no resolver's address; expected an address and a port");
            assert_eq!(told(&["--upstream", upstream]), Some(expected));
        }
        let twice = "--upstream: upstream has 192.0.2.53:53 twice; expected each resolver once";
        assert_eq!(told(&["--upstream", "192.0.2.53"]).as_deref(), Some(twice));
        for (ttl, is_refused) in [
            ("0s", true),
            ("999ms", true),
            ("1s", false),
            ("365d", false),
            ("366d", true),
            ("0s..0s", true),
            ("0s..1s", false),
            ("1d..366d", true),
        ] {
            let expected = format!("--ttl: ttl is {ttl:?}; expected names to be kept from 1 s to 365 d");
            assert_eq!(told(&["--ttl", ttl]), is_refused.then_some(expected));
        }
    }

    #[test]
    fn nobody_asks_itself() {
        let told = |upstream: &str, dns: &str| {
            lowered("version = \"v1\"\n", &["--upstream", upstream, "--dns", dns, "--allow", "192.0.2.0/24"])
                .err()
        };
        for (upstream, dns) in [("127.0.0.1", "127.0.0.1:53"), ("127.0.0.1:5300", "0.0.0.0:5300")] {
            let found = told(upstream, dns).expect("questions would come back");
            assert!(found.starts_with(&format!("--dns: {dns} in dns has 127.0.0.1:")), "{found}");
        }
        for (upstream, dns) in
            [("127.0.0.1:5300", "127.0.0.1:53"), ("192.0.2.1", "127.0.0.1:53"), ("127.0.0.1", "127.0.0.1:0")]
        {
            assert_eq!(told(upstream, dns), None, "{upstream} {dns}");
        }
    }

    #[test]
    fn crawlers_are_read_and_their_faults_have_places() {
        let path = std::env::temp_dir().join(format!("pointsman-crawlers-{}", std::process::id()));
        let at = path.to_string_lossy().into_owned();
        let flags = ["--upstream", "192.0.2.53", "--http", "127.0.0.1:8054", "--crawlers", &at];
        let missing = lowered("version = \"v1\"\n", &flags).expect_err("it is not there");
        assert!(missing.contains("--crawlers") && missing.contains("cannot be read"), "{missing}");
        std::fs::write(&path, "goodbot goodbot.example 192.0.2.0/24\n").expect("it is ours");
        let read = lowered("version = \"v1\"\n", &flags).expect("it is right");
        assert_ne!(*read.options.crawlers, Crawlers::default());
        std::fs::write(&path, "goodbot 192.0.2.0/99\n").expect("it is ours");
        let wrong = lowered("version = \"v1\"\n", &flags).expect_err("no such prefix");
        assert!(wrong.starts_with(&format!("{at}:1:")), "{wrong}");
        std::fs::remove_file(path).expect("it is ours");
    }

    #[test]
    fn the_template_holds_when_uncommented() {
        let template = page::template();
        let (_, part) = template.split_once("#[reverse]\n").expect("a part of its own");
        let (part, _) = part.split_once("\n#[").expect("another part follows");
        let setting =
            |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
        let settings: Vec<String> = part.lines().filter_map(setting).collect();
        assert_eq!(settings.len(), REVERSE.keys.len());
        // A file of crawlers is read, and this one is not there.
        let settings: Vec<String> =
            settings.into_iter().filter(|setting| !setting.starts_with("crawlers")).collect();
        let text = format!("version = \"v1\"\n[reverse]\n{}\n", settings.join("\n"));
        assert_eq!(lowered(&text, &[]).expect("what the template shows is right").options.memory, 400 << 20);
    }
}
