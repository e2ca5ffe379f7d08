//! How servers are probed: contradictions, and what the server is started with.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use api::Faults;
use nameserver::health::probe::NAME_MAX;
use nameserver::health::{Check, Http, Probe, Probes};
use net::tls::client::{self, Trust};

use super::lower::is_plain;
use super::spec::{Place, Placed, ProbeSpec};
use super::tls;

const INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(2);
const STATUS: RangeInclusive<u16> = 200..=399;
const RISE: u64 = 2;
const FALL: u64 = 3;

/// Lowers the probes, with the authorities from their files, and adds what is wrong to `faults`.
pub(crate) fn read(specs: &[ProbeSpec], faults: &mut Faults) -> Probes {
    let mut probes: Probes = BTreeMap::new();
    for spec in specs {
        let Some(probe) = probe(spec, faults) else { continue };
        if let Some(before) = probes.insert(probe.name.clone(), Arc::new(probe)) {
            let place = spec.name.as_ref().map_or(&spec.place, |name| &name.place);
            faults.push(place.fault(format!("the probe {} is given twice", before.name), "each name once"));
        }
    }
    probes
}

/// One probe; `None` with at least one fault.
fn probe(spec: &ProbeSpec, faults: &mut Faults) -> Option<Probe> {
    let name = name(spec, faults);
    let check = check(spec, faults);
    let interval = spec.interval.as_ref().map_or(INTERVAL, |interval| interval.value);
    let timeout = spec.timeout.as_ref().map_or(TIMEOUT.min(interval), |timeout| timeout.value);
    if timeout > interval {
        let place = spec.timeout.as_ref().map_or(&spec.place, |timeout| &timeout.place);
        faults.push(place.fault("timeout is longer than interval", "timeout <= interval"));
    }
    // The keys' ranges end below.
    let streak = |given: &Option<Placed<u64>>, default| {
        u32::try_from(given.as_ref().map_or(default, |given| given.value)).unwrap_or(u32::MAX)
    };
    let (rise, fall) = (streak(&spec.rise, RISE), streak(&spec.fall, FALL));
    Some(Probe { name: name?, check: check?, interval, timeout, rise, fall })
}

fn name(spec: &ProbeSpec, faults: &mut Faults) -> Option<String> {
    let Some(name) = &spec.name else {
        if spec.given.lacks("name") {
            faults.push(spec.place.fault("the probe has no name", "a line name = \"web\""));
        }
        return None;
    };
    is_plain(name, NAME_MAX, faults).then(|| name.value.clone())
}

fn check(spec: &ProbeSpec, faults: &mut Faults) -> Option<Check> {
    let Some(check) = &spec.check else {
        if spec.given.lacks("check") {
            let expected = "a line check = \"tcp\", \"http\", \"https\" or \"command\"";
            faults.push(spec.place.fault("the probe has no check", expected));
        }
        return None;
    };
    let mut found = Faults::default();
    let is_page = matches!(check.value, "http" | "https");
    let page_keys = [
        ("path", spec.path.as_ref().map(|path| &path.place)),
        ("host", spec.host.as_ref().map(|host| &host.place)),
        ("status", spec.status.as_ref().map(|status| &status.place)),
    ];
    let https_keys = [
        ("certificate", spec.certificate.as_ref().map(|certificate| &certificate.place)),
        ("authorities", spec.authorities.as_ref().map(|file| &file.place)),
    ];
    let port = [("port", spec.port.as_ref().map(|port| &port.place))];
    let command = [("command", spec.command.first().map(|word| &word.place))];
    let mut only = |keys: &[(&str, Option<&Place>)], is_right: bool, checks: &str| {
        for (key, place) in keys.iter().filter(|_| !is_right) {
            if let Some(place) = place {
                let what = format!("{key} beside check = {:?}", check.value);
                found.push(place.fault(what, format!("{key} only beside {checks}")));
            }
        }
    };
    only(&page_keys, is_page, "http and https");
    only(&https_keys, check.value == "https", "https");
    only(&port, check.value != "command", "tcp, http and https");
    only(&command, check.value == "command", "command");
    // The key's range ends there.
    let port = spec.port.as_ref().and_then(|port| u16::try_from(port.value).ok());
    let done = match check.value {
        "tcp" => {
            if spec.given.lacks("port") {
                found.push(spec.place.fault("a tcp probe has no port", "a line such as port = 443"));
            }
            port.map(Check::Tcp)
        }
        "command" => self::command(spec, &mut found),
        _ => http(spec, port, check.value == "https", &mut found),
    };
    let done = done.filter(|_| found.is_empty());
    faults.append(found);
    done
}

fn command(spec: &ProbeSpec, faults: &mut Faults) -> Option<Check> {
    match spec.command.first() {
        Some(program) if program.value.starts_with('/') => {
            Some(Check::Command(spec.command.iter().map(|word| word.value.clone()).collect()))
        }
        Some(program) => {
            let what = format!("the command is {:?}", program.value);
            faults.push(program.place.fault(what, "the program's full path, from its slash on"));
            None
        }
        None => {
            if spec.given.lacks("command") {
                let expected = "a line such as command = [\"/usr/bin/check\", \"{server}\"]";
                faults.push(spec.place.fault("a command probe has no command", expected));
            }
            None
        }
    }
}

fn http(spec: &ProbeSpec, port: Option<u16>, is_https: bool, faults: &mut Faults) -> Option<Check> {
    let path = spec.path.as_ref().map_or("/", |path| path.value.as_str());
    if !path.starts_with('/') || !path.bytes().all(|octet| octet.is_ascii_graphic()) {
        let place = spec.path.as_ref().map_or(&spec.place, |path| &path.place);
        faults.push(place.fault(format!("path is {path:?}"), "a path from its slash on, of visible ASCII"));
    }
    if let Some(Placed { value, place }) = &spec.host
        && client::host(value).is_none()
    {
        faults.push(place.fault(format!("host is {value:?}"), "the name of a host"));
    }
    let status = match &spec.status {
        None => Some(STATUS),
        Some(Placed { value, place }) => status(value).or_else(|| {
            let expected = "a status code or a range of them, such as 200 or 200-399";
            faults.push(place.fault(format!("status is {value:?}"), expected));
            None
        }),
    };
    let tls = if is_https { Some(trust(spec, faults)?) } else { None };
    Some(Check::Http(Http {
        port: port.unwrap_or(if is_https { 443 } else { 80 }),
        path: path.into(),
        host: spec.host.as_ref().map(|host| host.value.clone()),
        status: status?,
        tls,
    }))
}

fn trust(spec: &ProbeSpec, faults: &mut Faults) -> Option<Arc<rustls::ClientConfig>> {
    let is_any = spec.certificate.as_ref().is_some_and(|certificate| certificate.value == "any");
    if is_any {
        if let Some(file) = &spec.authorities {
            faults.push(file.place.fault("authorities beside certificate = \"any\"", "one of them"));
        }
        return client::config(&Trust::Anybody, None).ok();
    }
    let expected = "certificates in PEM form (Debian: ca-certificates), or certificate = \"any\"";
    tls::trusting(spec.authorities.as_ref(), None, (&spec.place, expected), faults)
}

fn status(text: &str) -> Option<RangeInclusive<u16>> {
    let code = |text: &str| text.trim().parse().ok().filter(|code| (200..=599).contains(code));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = code(first)?..=code(last)?;
    (!range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{file, spec::Spec};
    use super::*;

    /// Reads probes from the text of a file; or what is wrong with them.
    fn probes(text: &str) -> Result<Probes, Vec<String>> {
        let (mut spec, mut faults) = (Spec::default(), Faults::default());
        file::read(Path::new("/etc/p.toml"), &format!("version = \"v1\"\n{text}"), &mut spec, &mut faults);
        let probes = read(&spec.probe, &mut faults);
        let listed = |faults: Faults| faults.faults.iter().map(ToString::to_string).collect();
        faults.or(probes).map_err(listed)
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let read = probes(
            "[[probe]]\nname = \"web\"\ncheck = \"http\"\n\
             [[probe]]\nname = \"secure\"\ncheck = \"https\"\ncertificate = \"any\"\nhost = \"www.example.com\"\n\
             status = \"204\"\npath = \"/up?x\"\ninterval = \"1 s\"\nrise = 1\nfall = 5\n\
             [[probe]]\nname = \"ssh\"\ncheck = \"tcp\"\nport = 22\ntimeout = \"500 ms\"\n\
             [[probe]]\nname = \"own\"\ncheck = \"command\"\ncommand = [\"/bin/check\", \"-H\", \"{server}\"]\n",
        );
        let read = read.expect("all are right");
        assert_eq!(read.keys().collect::<Vec<_>>(), ["own", "secure", "ssh", "web"]);
        let web = &read["web"];
        assert_eq!((web.interval, web.timeout, web.rise, web.fall), (INTERVAL, TIMEOUT, 2, 3));
        let Check::Http(page) = &web.check else { panic!("{web:?}") };
        assert_eq!((page.port, page.path.as_str(), &page.host, &page.status), (80, "/", &None, &STATUS));
        assert!(page.tls.is_none());
        let secure = &read["secure"];
        assert_eq!(
            (secure.interval, secure.timeout, secure.rise, secure.fall),
            (Duration::from_secs(1), Duration::from_secs(1), 1, 5)
        );
        let Check::Http(page) = &secure.check else { panic!("{secure:?}") };
        assert_eq!((page.port, page.path.as_str(), &page.status), (443, "/up?x", &(204..=204)));
        assert!(page.tls.is_some() && page.host.as_deref() == Some("www.example.com"));
        assert!(matches!(read["ssh"].check, Check::Tcp(22)));
        assert_eq!(read["ssh"].timeout, Duration::from_millis(500));
        assert!(matches!(&read["own"].check, Check::Command(line) if line[1..] == ["-H", "{server}"]));
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        for (text, expected) in [
            ("", "2:1: the probe has no name"),
            ("name = \"a\"", "2:1: the probe has no check"),
            ("name = \"a b\"\ncheck = \"http\"", "3:8: name is \"a b\""),
            ("name = \"a\"\ncheck = \"icmp\"", "4:9: check is \"icmp\""),
            ("name = \"a\"\ncheck = \"tcp\"", "2:1: a tcp probe has no port"),
            ("name = \"a\"\ncheck = \"tcp\"\nport = 0", "5:8: port is the number 0"),
            ("name = \"a\"\ncheck = \"tcp\"\nport = 1\npath = \"/\"", "6:8: path beside check = \"tcp\""),
            ("name = \"a\"\ncheck = \"http\"\npath = \"up\"", "5:8: path is \"up\""),
            (
                "name = \"a\"\ncheck = \"http\"\npath = \"/a\\r\\nHost: b\"",
                "5:8: path is \"/a\\r\\nHost: b\"",
            ),
            ("name = \"a\"\ncheck = \"http\"\nhost = \"a\\r\\nb\"", "5:8: host is \"a\\r\\nb\""),
            ("name = \"a\"\ncheck = \"http\"\nstatus = \"404-200\"", "5:10: status is \"404-200\""),
            ("name = \"a\"\ncheck = \"http\"\nstatus = \"100\"", "5:10: status is \"100\""),
            (
                "name = \"a\"\ncheck = \"http\"\ncertificate = \"any\"",
                "5:15: certificate beside check = \"http\"",
            ),
            (
                "name = \"a\"\ncheck = \"https\"\nauthorities = \"nowhere.pem\"",
                "5:15: the authorities in /etc/nowhere.pem: it cannot be read",
            ),
            ("name = \"a\"\ncheck = \"command\"", "2:1: a command probe has no command"),
            ("name = \"a\"\ncheck = \"command\"\ncommand = [\"check\"]", "5:12: the command is \"check\""),
            (
                "name = \"a\"\ncheck = \"http\"\ncommand = [\"/bin/true\"]",
                "5:12: command beside check = \"http\"",
            ),
            (
                "name = \"a\"\ncheck = \"http\"\ninterval = \"1 s\"\ntimeout = \"2 s\"",
                "6:11: timeout is longer than interval",
            ),
            (
                "name = \"a\"\ncheck = \"http\"\n[[probe]]\nname = \"a\"\ncheck = \"http\"",
                "6:8: the probe a is given twice",
            ),
        ] {
            let told = probes(&format!("[[probe]]\n{text}\n")).expect_err(text);
            let found = told.iter().any(|line| line.starts_with(&format!("/etc/p.toml:{expected}")));
            assert!(found, "{text}: {told:#?} but expected {expected}");
            // Of nothing at all two keys are missing.
            assert!(told.len() == 1 || text.is_empty(), "{text} is told of more than once: {told:#?}");
        }
    }
}
