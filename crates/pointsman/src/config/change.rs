//! What a configuration that is read again has otherwise, and only a start takes.

use super::keys::{DNSTAP, PROBE, RELOADED, SECTIONS, SERVER, Section};
use super::spec::Spec;

/// The keys that differ and that nothing changes by before a restart, as a log names them.
pub(crate) fn kept(started: &Spec, read: &Spec) -> Vec<String> {
    let (mut started, mut read) = (started.clone(), read.clone());
    let mut kept: Vec<String> = differing(&SERVER, &mut started, &mut read)
        .filter(|key| !RELOADED.contains(key))
        .map(String::from)
        .collect();
    for section in SECTIONS {
        let keys = differing(section, &mut started, &mut read);
        kept.extend(keys.map(|key| format!("{key} in [{}]", section.name)));
    }
    let keys = differing(&DNSTAP, &mut started.dnstap, &mut read.dnstap);
    kept.extend(keys.map(|key| format!("{key} in [{}]", DNSTAP.name)));
    let (ours, theirs) = (&mut started.probe, &mut read.probe);
    let are_same = ours.len() == theirs.len()
        && ours.iter_mut().zip(theirs).all(|(one, other)| differing(&PROBE, one, other).next().is_none());
    if !are_same {
        kept.push(format!("[[{}]]", PROBE.name));
    }
    kept
}

fn differing<S>(section: &Section<S>, one: &mut S, other: &mut S) -> impl Iterator<Item = &'static str> {
    section.keys.iter().filter(|key| !key.kind.is_same(one, other)).map(|key| key.name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use api::Faults;

    use super::super::{defaults, file};
    use super::*;

    #[test]
    fn what_only_a_start_takes_is_named_wherever_it_stands() {
        let read = |text: &str| {
            let (mut spec, mut faults) = (defaults(), Faults::default());
            file::read(Path::new("p.toml"), &format!("version = \"v1\"\n{text}"), &mut spec, &mut faults);
            assert!(faults.is_empty(), "{faults}");
            spec
        };
        let probe = "[[probe]]\nname = \"a\"\ncheck = \"tcp\"\nport = 1\n";
        let key = "[[secondary]]\nkey = \"k\"\n";
        for (one, other, expected) in [
            ("", "\n\nudp_payload_max = \"1232 B\"", &[][..]),
            ("zone = [\"a\"]", "policy = [\"b\"]\ncookie_secrets = \"c\"\ntsig_keys = [\"d\"]", &[]),
            ("", key, &[]),
            (key, "[[partition]]\ncsv = \"e\"", &[]),
            (probe, &format!("workers = 1\n{probe}"), &["workers"]),
            ("[dnstap]\nfile = \"a\"", "[dnstap]\nfile = \"b\"", &["file in [dnstap]"]),
            ("[tcp]\nidle = \"9 s\"", "listen = [\"[::1]:53\"]", &["listen", "idle in [tcp]"]),
            (probe, "", &["[[probe]]"]),
            (probe, &probe.replace('1', "2"), &["[[probe]]"]),
        ] {
            assert_eq!(kept(&read(one), &read(other)), expected, "{one} {other}");
            assert_eq!(kept(&read(other), &read(one)), expected, "{other} {one}");
        }
    }
}
