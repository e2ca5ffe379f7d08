//! The flags over keys, of whichever command: one for each key of its part of the configuration.

use std::ffi::OsStr;

use api::Faults;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use super::keys::{Default, Key, Section};
use super::kind::{Given, Kind};
use super::spec::Place;

/// A command's part of the configuration, with flags over its keys.
pub(crate) trait Flagged: Sized + 'static {
    /// The keys.
    const SECTION: &'static Section<Self>;

    /// Whether the flag over a boolean key says true when it is alone, as `--paper` does; `--paper=false` takes back what
    /// the file says. Else the value stands behind it, as in `--minimal-responses false`.
    const IS_TRUE_ALONE: bool = true;
}

/// What was given over the keys of a part; values are read when all of the configuration is.
#[derive(Debug)]
pub(crate) struct Over<S: 'static>(Vec<(&'static Key<S>, Vec<String>)>);

impl<S: Flagged> Over<S> {
    /// Reads the values into `spec`, each replacing what was there for its key, and adds what is wrong to `faults`.
    pub(crate) fn read(&self, spec: &mut S, faults: &mut Faults) {
        for (key, values) in &self.0 {
            key.kind.clear(spec);
            for value in values {
                read(key, value, spec, faults);
            }
        }
    }
}

impl<S: Flagged> Args for Over<S> {
    fn augment_args(command: Command) -> Command {
        command.args(S::SECTION.keys.iter().filter_map(|key| Some(over_key(key, key.flag?))))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Flagged> FromArgMatches for Over<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |key: &'static Key<S>| {
            key.flag?;
            Some((key, matches.get_many(key.name)?.cloned().collect()))
        };
        Ok(Over(S::SECTION.keys.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads the value of a key's flag into `spec`, and adds what is wrong to `faults`.
pub(super) fn read<S>(key: &Key<S>, value: &str, spec: &mut S, faults: &mut Faults) {
    let place = Place::Flag(key.flag.unwrap_or(key.name));
    if let Err(found) = key.kind.read(&Given::Flag(value), place.clone(), spec) {
        faults.push(place.fault(format!("{} is {found}", key.name), key.kind.expected()));
    }
}

fn over_key<S: Flagged>(key: &'static Key<S>, flag: &'static str) -> Arg {
    let default = match &key.default {
        Default::Required(_) => String::new(),
        Default::Value(value) => format!(" [default: {}]", value.trim_matches(['[', ']', '"'])),
        Default::Absent { means, .. } => format!(" [default: {means}]"),
    };
    let action = if key.kind.is_list() { ArgAction::Append } else { ArgAction::Set };
    let several = if key.kind.is_list() { " May be given several times." } else { "" };
    let expected = match key.kind {
        Kind::Boolean(_) | Kind::Integer(..) | Kind::Octets(..) | Kind::Choice(..) | Kind::Name(..) => {
            format!(" Expected: {}.", key.kind.expected())
        }
        _ => String::new(),
    };
    let hint = match key.kind {
        Kind::Path(_) | Kind::Paths(_) => ValueHint::FilePath,
        _ => ValueHint::Other,
    };
    let argument = Arg::new(key.name)
        .long(flag)
        .value_name(key.kind.value_name())
        .value_hint(hint)
        .value_parser(Text(key.kind.words()))
        .hide_possible_values(true)
        .allow_negative_numbers(true)
        .action(action)
        .help(format!("{}{default}", key.about.trim_end_matches('.')))
        .long_help(format!("{} {}{several}{expected}{default}", key.about, key.consequence));
    match key.kind {
        Kind::Boolean(_) if S::IS_TRUE_ALONE => {
            argument.num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        Kind::Resolvers(_) | Kind::BackEnds(_) => argument.value_delimiter(','),
        _ => argument,
    }
}

/// Takes any text, since values are read when all of the configuration is. Shells complete the words.
#[derive(Clone)]
pub(super) struct Text(pub(super) &'static [&'static str]);

impl TypedValueParser for Text {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = self.0.iter().map(|word| PossibleValue::new(*word));
        (!self.0.is_empty()).then(|| Box::new(words) as _)
    }
}
