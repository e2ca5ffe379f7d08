//! Every key of the configuration, declared once; here what a key is, below a room for each heading.
//!
//! From these tables come the reader of the file, the flags of `serve`, the defaults, the template
//! `etc/pointsman.template.toml` and the page `docs/reference/configuration.md`.

mod balance;
mod dnstap;
mod external;
mod limits;
mod partition;
mod primary;
mod probe;
mod reverse;
mod rules;
mod secondary;
mod server;
mod updater;
mod view;

use std::time::Duration;

use api::Faults;

use super::kind::Kind;
use super::spec::{Place, Present, Spec};

pub(crate) use balance::BALANCE;
pub(crate) use dnstap::DNSTAP;
pub(crate) use partition::PARTITION;
pub(crate) use primary::PRIMARY;
pub(crate) use probe::PROBE;
pub(crate) use reverse::REVERSE;
pub(crate) use rules::{POOL, RULE};
pub(crate) use secondary::SECONDARY;
pub(crate) use server::SERVER;
pub(crate) use updater::UPDATER;
pub(crate) use view::VIEW;

use external::EXTERNAL;
use limits::{RATE_LIMIT, TCP};

/// The sections of `serve` that appear once, in reading order; and dnstap's, which the balancer has, too.
pub(crate) const SECTIONS: [&Section<Spec>; 3] = [&TCP, &RATE_LIMIT, &EXTERNAL];

/// The keys above all headings that SIGHUP reads again, as it does `[[secondary]]`, `[[primary]]`, `[[updater]]`,
/// `[[view]]` and `[[partition]]`; all others hold from a start on.
pub(crate) const RELOADED: [&str; 7] =
    ["zone", "policy", "tsig_keys", "signing_keys", "cookie_secrets", "tls_certificate", "tls_key"];

/// The longest time that a limit of what others may take can be: longer ones protect nothing.
const TIME_CEILING: Duration = Duration::from_secs(24 * 3600);

/// The shortest: the way to a client and back takes as long.
const TIME_FLOOR: Duration = Duration::from_millis(100);

/// A key: what it is called, what it may be, and what follows from it.
#[derive(Debug)]
pub(crate) struct Key<S: 'static> {
    /// Its name in the file.
    pub(crate) name: &'static str,
    /// The flag over it, which is the name with hyphens.
    pub(crate) flag: Option<&'static str>,
    /// What its value may be.
    pub(crate) kind: Kind<S>,
    /// What holds where it is not given.
    pub(crate) default: Default,
    /// What it is, in one sentence.
    pub(crate) about: &'static str,
    /// What follows from choosing it.
    pub(crate) consequence: &'static str,
}

/// What holds where a key is not given; values as the file has them.
#[derive(Debug)]
pub(crate) enum Default {
    /// This value.
    Value(&'static str),
    /// No value, which means what is said; with a value to show how one is written.
    Absent { means: &'static str, example: &'static str },
    /// The key must be there, with such a value.
    Required(&'static str),
}

/// A part of the file: the keys under one heading.
pub(crate) struct Section<S: 'static> {
    /// The heading; empty for the keys above all headings.
    pub(crate) name: &'static str,
    /// What the keys are about.
    pub(crate) about: &'static str,
    /// The keys, in reading order.
    pub(crate) keys: &'static [Key<S>],
}

impl Default {
    /// The value as the template shows it.
    pub(crate) fn shown(&self) -> &'static str {
        match self {
            Default::Value(value) | Default::Required(value) => value,
            Default::Absent { example, .. } => example,
        }
    }
}

impl<S> Section<S> {
    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key<S>> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Finds the keys that must stand under a heading, and do not.
    pub(crate) fn required(&self, given: &Present, place: &Place, faults: &mut Faults) {
        let required = self.keys.iter().filter(|key| matches!(key.default, Default::Required(_)));
        for key in required.filter(|key| given.lacks(key.name)) {
            let expected = format!("a line such as {} = {}", key.name, key.default.shown());
            faults.push(place.fault(format!("the {} has no {}", self.name, key.name), expected));
        }
    }
}
