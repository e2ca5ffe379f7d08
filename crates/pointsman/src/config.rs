//! The configuration of `serve`, `reverse`, `balance` and `control`: defaults < file < flags.
//!
//! - [`keys`]: every key, declared once; [`kind`]: what values may be.
//! - [`mod@file`] and [`flags`] read them into a [`spec`], with the place of each value; [`serve`]: the flags of `serve`.
//! - [`mod@lower`]: contradictions, and what the server is started with; [`layer`]: of what its partitions are made.
//! - [`change`]: what is given otherwise while the server runs.
//! - [`dnstap`]: what it tells, and where that goes, looked at beforehand.
//! - [`transfer`]: keys from their files, and who follows our zones; [`probe`]: how servers are probed.
//! - [`tls`]: what clients are shown, from its files.
//! - [`view`]: which zones are answered from at which addresses.
//! - [`mod@reverse`]: the flags of `reverse`, and what the service is started with.
//! - [`balance`]: the same of `balance`; [`designate`]: how its clients learn where it speaks encrypted.
//! - [`control`]: the file of `control`, which is one of its own.
//! - [`page`]: the template and the manual's page, from the declarations.

pub(crate) mod balance;
pub(crate) mod change;
pub(crate) mod control;
mod designate;
mod dnstap;
pub(crate) mod file;
pub(crate) mod flags;
pub(crate) mod keys;
pub(crate) mod kind;
mod layer;
pub(crate) mod lower;
pub(crate) mod page;
pub(crate) mod probe;
pub(crate) mod reverse;
mod rules;
pub(crate) mod serve;
mod signing;
pub(crate) mod spec;
pub(crate) mod tls;
pub(crate) mod transfer;
mod view;

use std::path::Path;

use api::Faults;
use api::file::{WRITTEN_MAX, read_text};

use keys::{Default, Section};
use lower::Lowered;
use serve::Flags;
use spec::Spec;

/// Reads file and flags; lists everything that is wrong, whichever it is in.
///
/// What is wrong is left at its default, so that the rest can be looked at.
pub(crate) fn load(flags: &Flags) -> (Lowered, Faults) {
    let (spec, mut faults) = given(flags);
    dnstap::check(&spec.dnstap, &mut faults);
    let mut lowered = lower(spec, &mut faults);
    if let Some(file) = &lowered.token_file {
        match crate::token::read(&file.value) {
            Ok(token) => lowered.options.token = Some(token),
            Err(fault) => faults.push(fault),
        }
    }
    (lowered, faults)
}

/// As [`load`], while the server runs: without what only a start needs, the token and a look at where dnstap goes.
pub(crate) fn load_again(flags: &Flags) -> (Lowered, Faults) {
    let (spec, mut faults) = given(flags);
    (lower(spec, &mut faults), faults)
}

/// What flags and file say over the defaults.
fn given(flags: &Flags) -> (Spec, Faults) {
    let (mut spec, mut faults) = of_file(flags.config.as_deref());
    flags.read(&mut spec, &mut faults);
    (spec, faults)
}

/// Lowers `spec`, with the keys, the certificate and the authorities of probes from their files.
fn lower(spec: Spec, faults: &mut Faults) -> Lowered {
    let mut lowered = lower::lower(spec, faults);
    lowered.options.transfer = transfer::read(
        &lowered.tsig_keys,
        &lowered.secondaries,
        &lowered.primaries,
        &lowered.updaters,
        faults,
    );
    lowered.options.signing_keys = signing::read(&lowered.signing_keys, faults);
    lowered.options.probes = probe::read(&lowered.probes, faults);
    let addresses = lowered.spec.tls_listen.iter().map(|listen| listen.value).collect();
    lowered.options.tls =
        tls::shown(lowered.tls_files.as_ref(), faults).map(|identity| (addresses, identity));
    lowered
}

/// What the file says over the defaults, with what is wrong in it.
fn of_file(path: Option<&Path>) -> (Spec, Faults) {
    let (mut spec, mut faults) = (defaults(), Faults::default());
    if let Some(path) = path {
        match read_text(
            path,
            WRITTEN_MAX,
            "a configuration file, such as `pointsman serve --template` prints",
        ) {
            Ok(text) => file::read(path, &text, &mut spec, &mut faults),
            Err(fault) => faults.push(fault),
        }
    }
    (spec, faults)
}

/// The configuration of an empty file without flags.
fn defaults() -> Spec {
    let mut spec = Spec::default();
    for section in keys::SECTIONS.into_iter().chain([&keys::SERVER]) {
        read_defaults(section, &mut spec);
    }
    read_defaults(&keys::DNSTAP, &mut spec.dnstap);
    read_defaults(&keys::REVERSE, &mut spec.reverse);
    read_defaults(&keys::BALANCE, &mut spec.balance);
    read_defaults(&keys::DNSTAP, &mut spec.balance.dnstap);
    spec
}

fn read_defaults<S>(section: &Section<S>, spec: &mut S) {
    for key in section.keys {
        if let Default::Value(value) = key.default {
            file::read_default(key, value, spec).expect("a declared default is one of its kind");
        }
    }
}

#[cfg(test)]
mod tests;
