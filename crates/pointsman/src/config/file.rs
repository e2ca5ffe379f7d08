//! Reading the configuration file: every key by its declaration, every mistake with its place.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use api::{Fault, Faults};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key, Section};
use super::kind::{Given, Kind, described, one_of};
use super::spec::{
    BalanceSpec, PartitionSpec, Place, Placed, PoolSpec, Present, PrimarySpec, ProbeSpec, RuleSpec,
    SecondarySpec, Spec, UpdaterSpec, ViewSpec,
};

/// Reads the text of the file at `path` into `spec`, over what is there, and adds what is wrong to `faults`
/// in the order of the file.
pub(crate) fn read(path: &Path, text: &str, spec: &mut Spec, faults: &mut Faults) {
    read_by(path, text, faults, |reader, document| reader.document(document, spec));
}

/// Reads a text by what takes the document apart, as [`read`] does.
pub(super) fn read_by(
    path: &Path,
    text: &str,
    faults: &mut Faults,
    document_by: impl FnOnce(&mut Reader, &DeTable<'_>),
) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let newlines = text.bytes().enumerate().filter(|(_, octet)| *octet == b'\n');
    let mut reader = Reader {
        path: path.to_string_lossy().into(),
        lines: std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect(),
        faults: Vec::new(),
    };
    let is_broken = !errors.is_empty();
    // After a broken line the rest is guesswork: faults of keys that are none would only distract.
    if !is_broken {
        document_by(&mut reader, document.get_ref());
    }
    for error in errors {
        let span = error.span().unwrap_or_default();
        let place = reader.place(span.start);
        reader.faults.push(match error.message() {
            "duplicate key" => {
                let key = text.get(span).unwrap_or_default();
                place.fault(format!("duplicate key {key}"), "each key once")
            }
            message => {
                let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
                place.fault(what, expected)
            }
        });
    }
    reader.faults.sort_by_key(|fault| (fault.line, fault.column));
    if is_broken {
        // The first of a line is the mistake, the others are what it leads to.
        reader.faults.dedup_by_key(|fault| fault.line);
    }
    for fault in reader.faults {
        faults.push(fault);
    }
}

/// Reads a default as it is declared.
///
/// # Errors
/// The declaration's mistake, as it would be told of a file.
pub(crate) fn read_default<S>(key: &Key<S>, value: &str, spec: &mut S) -> Result<(), String> {
    let value = DeValue::parse(value).map_err(|error| error.to_string())?;
    match value.get_ref() {
        DeValue::Array(elements) if key.kind.is_list() => elements
            .iter()
            .try_for_each(|element| key.kind.read(&Given::File(element.get_ref()), Place::Default, spec)),
        value => key.kind.read(&Given::File(value), Place::Default, spec),
    }
}

/// Takes a document apart.
pub(super) struct Reader {
    path: Arc<str>,
    /// Where each line begins.
    lines: Vec<usize>,
    faults: Vec<Fault>,
}

impl Reader {
    fn document(&mut self, document: &DeTable<'_>, spec: &mut Spec) {
        self.version(document);
        let sections: Vec<&str> = keys::SECTIONS.iter().map(|section| section.name).collect();
        let others = [
            keys::DNSTAP.name,
            keys::SECONDARY.name,
            keys::PRIMARY.name,
            keys::UPDATER.name,
            keys::VIEW.name,
            keys::PROBE.name,
            keys::PARTITION.name,
            keys::REVERSE.name,
            keys::BALANCE.name,
        ];
        let headings = [&sections[..], &others].concat();
        for (name, value) in document {
            if let Some(section) = keys::SECTIONS.iter().find(|section| section.name == name.get_ref()) {
                self.heading(value, section.name, |reader, table| reader.table(table, section, spec));
                continue;
            }
            match name.get_ref() {
                name if name == keys::DNSTAP.name => {
                    self.heading(value, name, |reader, table| {
                        reader.table(table, &keys::DNSTAP, &mut spec.dnstap);
                    });
                }
                name if name == keys::SECONDARY.name => {
                    spec.secondary =
                        self.headings(value, &keys::SECONDARY, |place, _| SecondarySpec::at(place));
                }
                name if name == keys::PRIMARY.name => {
                    spec.primary = self.headings(value, &keys::PRIMARY, PrimarySpec::at);
                }
                name if name == keys::UPDATER.name => {
                    spec.updater = self.headings(value, &keys::UPDATER, UpdaterSpec::at);
                }
                name if name == keys::VIEW.name => {
                    spec.view = self.headings(value, &keys::VIEW, ViewSpec::at);
                }
                name if name == keys::PROBE.name => {
                    spec.probe = self.headings(value, &keys::PROBE, ProbeSpec::at);
                }
                name if name == keys::PARTITION.name => {
                    spec.partition =
                        self.headings(value, &keys::PARTITION, |place, _| PartitionSpec::at(place));
                }
                name if name == keys::REVERSE.name => {
                    self.heading(value, name, |reader, table| {
                        reader.table(table, &keys::REVERSE, &mut spec.reverse);
                    });
                }
                name if name == keys::BALANCE.name => {
                    self.heading(value, name, |reader, table| reader.balance(table, &mut spec.balance));
                }
                _ => self.key(name, value, &keys::SERVER, &headings, spec),
            }
        }
    }

    /// That the document says which form it has.
    pub(super) fn version(&mut self, document: &DeTable<'_>) {
        if !document.contains_key(keys::SERVER.keys[0].name) {
            let what = "the key version is missing";
            self.faults.push(Fault::whole(&*self.path, what, "a line version = \"v1\""));
        }
    }

    /// What stands under a heading of this name, read by `read`.
    fn heading(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        name: &str,
        read: impl FnOnce(&mut Reader, &DeTable<'_>),
    ) {
        match value.get_ref() {
            DeValue::Table(table) => read(self, table),
            other => {
                // The last part is the key's own name.
                let key = name.rsplit('.').next().unwrap_or(name);
                self.wrong(value.span().start, key, &described(other), &format!("a heading [{name}]"));
            }
        }
    }

    /// The keys under a heading.
    fn table<S>(&mut self, table: &DeTable<'_>, section: &Section<S>, spec: &mut S) {
        for (name, value) in table {
            self.key(name, value, section, &[], spec);
        }
    }

    /// The keys of the balancer, and the headings below its own.
    fn balance(&mut self, table: &DeTable<'_>, spec: &mut BalanceSpec) {
        for (name, value) in table {
            match &**name.get_ref() {
                "dnstap" => self.heading(value, "balance.dnstap", |reader, table| {
                    reader.table(table, &keys::DNSTAP, &mut spec.dnstap);
                }),
                "pool" => spec.pool = self.headings(value, &keys::POOL, PoolSpec::at),
                "rule" => spec.rule = self.headings(value, &keys::RULE, RuleSpec::at),
                _ => self.key(name, value, &keys::BALANCE, &["pool", "rule", "dnstap"], spec),
            }
        }
    }

    /// What stands under each of several equal headings; `at` makes what nothing is known of yet, but for its place and the
    /// keys that stand there, whatever their values.
    pub(super) fn headings<S>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        section: &Section<S>,
        at: fn(Place, Present) -> S,
    ) -> Vec<S> {
        let name = section.name;
        let expected = format!("headings [[{name}]]");
        let mut specs = Vec::new();
        let DeValue::Array(elements) = value.get_ref() else {
            self.wrong(value.span().start, name, &described(value.get_ref()), &expected);
            return specs;
        };
        for element in elements {
            let start = element.span().start;
            match element.get_ref() {
                DeValue::Table(table) => {
                    let given = Present(table.keys().map(|key| key.get_ref().to_string()).collect());
                    let mut spec = at(self.place(start), given);
                    self.table(table, section, &mut spec);
                    specs.push(spec);
                }
                other => self.wrong(start, name, &described(other), &expected),
            }
        }
        specs
    }

    /// One key; `sections` are the headings that could stand in its stead.
    pub(super) fn key<S>(
        &mut self,
        name: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        section: &Section<S>,
        sections: &[&str],
        spec: &mut S,
    ) {
        let Some(key) = section.key(name.get_ref()) else {
            let known: Vec<&str> =
                section.keys.iter().map(|key| key.name).chain(sections.iter().copied()).collect();
            let place = self.place(name.span().start);
            let what = match section.name {
                "" => format!("unknown key {}", name.get_ref()),
                section => format!("unknown key {} in {section}", name.get_ref()),
            };
            self.faults.push(place.fault(what, one_of(&known)));
            return;
        };
        match value.get_ref() {
            DeValue::Table(table) if matches!(key.kind, Kind::Ranks(_)) => self.ranks(key, table, spec),
            DeValue::Array(elements) if key.kind.is_list() && !elements.is_empty() => {
                key.kind.clear(spec);
                for element in elements {
                    self.value(key, element, spec);
                }
            }
            DeValue::Array(_) if matches!(key.kind, Kind::Paths(_)) => key.kind.clear(spec),
            other if key.kind.is_list() => {
                let expected = format!("an array of {}", key.kind.expected());
                self.wrong(value.span().start, key.name, &described(other), &expected);
            }
            _ => self.value(key, value, spec),
        }
    }

    /// The entries of a table of ranks, each with its place.
    fn ranks<S>(&mut self, key: &Key<S>, table: &DeTable<'_>, spec: &mut S) {
        let Kind::Ranks(slots) = &key.kind else { return };
        for (name, value) in table {
            let start = value.span().start;
            let rank = match value.get_ref() {
                DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
                _ => None,
            };
            match rank.filter(|rank| *rank > 0) {
                Some(rank) => {
                    let place = self.place(start);
                    slots(spec).push(Placed { value: (name.get_ref().to_string(), rank), place });
                }
                None => {
                    let what = format!("the rank of {}", name.get_ref());
                    self.wrong(start, &what, &described(value.get_ref()), "a whole number from 1 on");
                }
            }
        }
    }

    fn value<S>(&mut self, key: &Key<S>, value: &Spanned<DeValue<'_>>, spec: &mut S) {
        let start = value.span().start;
        if let Err(found) = key.kind.read(&Given::File(value.get_ref()), self.place(start), spec) {
            self.wrong(start, key.name, &found, &key.kind.expected());
        }
    }

    fn wrong(&mut self, offset: usize, name: &str, found: &str, expected: &str) {
        let place = self.place(offset);
        self.faults.push(place.fault(format!("{name} is {found}"), expected));
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.lines.partition_point(|begin| *begin <= offset);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Place::File {
            path: self.path.clone(),
            line: count(line),
            column: count(offset - self.lines[line - 1] + 1),
        }
    }
}
