//! The flags of `serve`: one over each key, and those that make up partitions.

use std::ffi::OsStr;
use std::path::PathBuf;

use api::{Fault, Faults};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};

use super::keys::{Default, Key, PARTITION, SERVER};
use super::kind::{Given, Kind};
use super::spec::{PartitionSpec, Place, Placed, Spec};

/// What `serve` was given on the command line; values are read when all of the configuration is.
#[derive(Clone, Debug, std::default::Default)]
pub(crate) struct Flags {
    /// The configuration file.
    pub(crate) config: Option<PathBuf>,
    /// Tell what is wrong, and end.
    pub(crate) check: bool,
    /// Print the template, and end.
    pub(crate) template: bool,
    /// The values of the flags over [`SERVER`]'s keys, by the key's name.
    values: Vec<(&'static str, Vec<String>)>,
    partitions: Vec<String>,
    mmdbs: Vec<String>,
    regions: Vec<String>,
    fields: Vec<String>,
}

impl Flags {
    /// Reads the values into `spec`, each replacing what was there for its key, and adds what is wrong to `faults`.
    pub(crate) fn read(&self, spec: &mut Spec, faults: &mut Faults) {
        for (name, values) in &self.values {
            let key = SERVER.key(name).expect("only the names of keys are flags");
            let flag = key.flag.expect("only keys with a flag have values");
            key.kind.clear(spec);
            for value in values {
                read(key, flag, value, spec, faults);
            }
        }
        let partitions = self.partitions(faults);
        if !partitions.is_empty() {
            spec.partition = partitions;
        }
    }

    fn partitions(&self, faults: &mut Faults) -> Vec<PartitionSpec> {
        let mut partitions = Vec::new();
        for given in &self.partitions {
            let (name, file) = named(given);
            let mut partition = PartitionSpec::at(Place::Flag("partition"));
            partition.name = name.map(|name| placed(name.into(), "partition"));
            partition.csv = Some(placed(file.into(), "partition"));
            partitions.push(partition);
        }
        for (i, given) in self.mmdbs.iter().enumerate() {
            let (name, file) = named(given);
            let mut partition = PartitionSpec::at(Place::Flag("mmdb"));
            partition.name = name.map(|name| placed(name.into(), "mmdb"));
            partition.mmdb = Some(placed(file.into(), "mmdb"));
            partition.regions = self.regions.get(i).map(|file| placed(file.into(), "regions"));
            if let Some(word) = self.fields.get(i) {
                let key = PARTITION.key("field").expect("partitions have a field");
                read(key, "field", word, &mut partition, faults);
            }
            partitions.push(partition);
        }
        for (flag, given) in [("regions", self.regions.len()), ("field", self.fields.len())] {
            if given > self.mmdbs.len() {
                let what = format!("given {given} times, --mmdb {} times", self.mmdbs.len());
                let expected = format!("a --{flag} for an --mmdb, in the same order");
                faults.push(Fault::whole(format!("--{flag}"), what, expected));
            }
        }
        partitions
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("The configuration file; flags replace what it says");
        let check = Arg::new("check")
            .long("check")
            .action(ArgAction::SetTrue)
            .help("Read configuration and imports, list every fault, and end");
        let template = Arg::new("template")
            .long("template")
            .action(ArgAction::SetTrue)
            .exclusive(true)
            .help("Print a configuration file with every key and its default, and end");
        let keys = SERVER.keys.iter().filter_map(|key| key.flag.map(|flag| over_key(key, flag)));
        command.arg(config).arg(check).arg(template).args(keys).args(over_partitions())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let all = |name| matches.get_many(name).into_iter().flatten().cloned().collect::<Vec<String>>();
        let values = SERVER.keys.iter().filter(|key| key.flag.is_some()).map(|key| (key.name, all(key.name)));
        Ok(Flags {
            config: matches.get_one("config").cloned(),
            check: matches.get_flag("check"),
            template: matches.get_flag("template"),
            values: values.filter(|(_, values)| !values.is_empty()).collect(),
            partitions: all("partition"),
            mmdbs: all("mmdb"),
            regions: all("regions"),
            fields: all("field"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(super) fn over_key<S>(key: &'static Key<S>, flag: &'static str) -> Arg {
    let default = match &key.default {
        Default::Required(_) => String::new(),
        Default::Value(value) => format!(" [default: {}]", value.trim_matches(['[', ']', '"'])),
        Default::Absent { means, .. } => format!(" [default: {means}]"),
    };
    let action = if key.kind.is_list() { ArgAction::Append } else { ArgAction::Set };
    let several = if key.kind.is_list() { " May be given several times." } else { "" };
    let expected = match key.kind {
        Kind::Boolean(_) | Kind::Integer(..) | Kind::Octets(..) | Kind::Choice(..) => {
            format!(" Expected: {}.", key.kind.expected())
        }
        _ => String::new(),
    };
    let hint = match key.kind {
        Kind::Path(_) | Kind::Paths(_) => ValueHint::FilePath,
        _ => ValueHint::Other,
    };
    Arg::new(key.name)
        .long(flag)
        .value_name(key.kind.value_name())
        .value_hint(hint)
        .value_parser(Text(key.kind.words()))
        .hide_possible_values(true)
        .allow_negative_numbers(true)
        .action(action)
        .help(format!("{}{default}", key.about.trim_end_matches('.')))
        .long_help(format!("{} {}{several}{expected}{default}", key.about, key.consequence))
}

/// Takes any text, since values are read when all of the configuration is. Shells complete the words.
#[derive(Clone)]
struct Text(&'static [&'static str]);

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

fn over_partitions() -> [Arg; 4] {
    let several =
        |name: &'static str, value| Arg::new(name).long(name).value_name(value).action(ArgAction::Append);
    [
        several("partition", "[NAME=]CSV")
            .help("A partition to import, from lines `prefix,region` [default name: default]")
            .long_help(
                "A partition to import, from a file of lines `prefix,region`. Its name is default unless one \
                 stands before the file. May be given several times: those of one name are stacked, the first that \
                 has a region deciding.",
            ),
        several("mmdb", "[NAME=]FILE")
            .help("A partition to import from a MaxMind database; needs --regions")
            .long_help(
                "A partition to import from a MaxMind database, with the --regions given at the same place. Its \
                 name is default unless one stands before the file. May be given several times; where it has the name of \
                 another, it is stacked below it.",
            ),
        several("regions", "CSV")
            .help("Which region a code of --mmdb is in: lines `code,region`")
            .long_help("Which region a code of --mmdb is in: lines `code,region`. One for each --mmdb, in order."),
        several("field", "WORD")
            .value_parser(Text(PARTITION.key("field").map_or(&[], |key| key.kind.words())))
            .hide_possible_values(true)
            .help("What of --mmdb is the code: country, continent or asn [default: country]")
            .long_help(
                "What of --mmdb is the code: country, continent or asn. One for each --mmdb, in order; country \
                 where there is none.",
            ),
    ]
}

pub(super) fn read<S>(key: &Key<S>, flag: &'static str, value: &str, spec: &mut S, faults: &mut Faults) {
    let place = Place::Flag(flag);
    if let Err(found) = key.kind.read(&Given::Flag(value), place.clone(), spec) {
        faults.push(place.fault(format!("{} is {found}", key.name), key.kind.expected()));
    }
}

fn named(given: &str) -> (Option<&str>, &str) {
    match given.split_once('=') {
        Some((name, file)) => (Some(name), file),
        None => (None, given),
    }
}

fn placed<T>(value: T, flag: &'static str) -> Placed<T> {
    Placed { value, place: Place::Flag(flag) }
}
