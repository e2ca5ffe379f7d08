//! The flags of `serve`: one over each key above all headings, and those that make up partitions.

use std::path::PathBuf;

use api::{Fault, Faults};
use clap::Args;

use super::flags::{self, Flagged, Over, Text};
use super::keys::{Key, PARTITION, SERVER, Section};
use super::spec::{PartitionSpec, Place, Placed, Spec};

/// What `serve` was given on the command line; values are read when all of the configuration is.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// The configuration file; flags replace what it says
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Read configuration and imports, list every fault, and end
    #[arg(long)]
    pub(crate) check: bool,
    /// Print a configuration file with every key and its default, and end
    #[arg(long, exclusive = true)]
    pub(crate) template: bool,
    #[command(flatten)]
    over: Over<Spec>,
    #[command(flatten)]
    partitions: Partitions,
}

/// The flags that make up partitions.
#[derive(Args, Debug)]
struct Partitions {
    #[arg(
        long = "partition",
        value_name = "[NAME=]CSV",
        help = "A partition to import, from lines `prefix,region` [default name: default]",
        long_help = "A partition to import, from a file of lines `prefix,region`. Its name is default unless one stands \
            before the file. May be given several times: those of one name are stacked, the first that has a region \
            deciding."
    )]
    csvs: Vec<String>,
    #[arg(
        long = "mmdb",
        value_name = "[NAME=]FILE",
        help = "A partition to import from a MaxMind database; needs --regions",
        long_help = "A partition to import from a MaxMind database, with the --regions given at the same place. Its name \
            is default unless one stands before the file. May be given several times; where it has the name of another, \
            it is stacked below it."
    )]
    mmdbs: Vec<String>,
    #[arg(
        long,
        value_name = "CSV",
        help = "Which region a code of --mmdb is in: lines `code,region`",
        long_help = "Which region a code of --mmdb is in: lines `code,region`. One for each --mmdb, in order."
    )]
    regions: Vec<String>,
    #[arg(
        long = "field",
        value_name = "WORD",
        value_parser = Text(field().kind.words()),
        hide_possible_values = true,
        help = "What of --mmdb is the code: country, continent or asn [default: country]",
        long_help = "What of --mmdb is the code: country, continent or asn. One for each --mmdb, in order; country \
            where there is none."
    )]
    fields: Vec<String>,
}

impl Flagged for Spec {
    const SECTION: &'static Section<Spec> = &SERVER;
    const IS_TRUE_ALONE: bool = false;
}

impl Flags {
    /// Reads the values into `spec`, each replacing what was there for its key, and adds what is wrong to `faults`.
    pub(super) fn read(&self, spec: &mut Spec, faults: &mut Faults) {
        self.over.read(spec, faults);
        let partitions = self.partitions.read(faults);
        if !partitions.is_empty() {
            spec.partition = partitions;
        }
    }
}

impl Partitions {
    fn read(&self, faults: &mut Faults) -> Vec<PartitionSpec> {
        let mut partitions = Vec::new();
        for given in &self.csvs {
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
                flags::read(field(), word, &mut partition, faults);
            }
            partitions.push(partition);
        }
        for (flag, given) in [("regions", self.regions.len()), ("field", self.fields.len())] {
            if given > self.mmdbs.len() {
                let what = format!("given {}, --mmdb {}", times(given), times(self.mmdbs.len()));
                let expected = format!("a --{flag} for an --mmdb, in the same order");
                faults.push(Fault::whole(format!("--{flag}"), what, expected));
            }
        }
        partitions
    }
}

/// The key of partitions whose words --field takes.
fn field() -> &'static Key<PartitionSpec> {
    PARTITION.key("field").expect("partitions have a field")
}

fn times(count: usize) -> String {
    match count {
        0 => "not at all".into(),
        1 => "once".into(),
        _ => format!("{count} times"),
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
