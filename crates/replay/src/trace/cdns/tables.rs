//! A block's tables: what its pairs share, and point at.

use minicbor::decode::{Decoder, Error};

use super::cbor::each_item;
use crate::trace::skipped::Skip;

/// The longest list, name or data of a table that is read, in octets: a message has no room for half as much.
const LONG_MAX: usize = 128 << 10;

/// The longest other entry of a table, in octets: ten times what all that RFC 8618 knows of takes. Each pair may name the
/// same one, which is read anew each time.
const SHORT_MAX: usize = 1 << 10;

/// How many tables there are (RFC 8618 §7.3.2.3).
const TABLES: usize = 9;

/// A table, by its key in the block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    Address = 0,
    ClassType = 1,
    NameOrData = 2,
    Signature = 3,
    QuestionList = 4,
    Question = 5,
    RecordList = 6,
    Record = 7,
}

/// A block's octets, and where in them the entries of its tables begin. Entries are read when a pair needs them, so that a
/// table takes four octets for each of its entries, which have one or more.
#[derive(Default)]
pub(super) struct Tables {
    octets: Vec<u8>,
    starts: Starts,
}

/// Where entries begin, by the keys of their tables.
pub(super) type Starts = [Vec<u32>; TABLES];

impl Tables {
    /// Of a whole block.
    pub(super) fn new(octets: Vec<u8>, starts: Starts) -> Tables {
        Tables { octets, starts }
    }

    /// What is read from an octet of the block on.
    pub(super) fn at(&self, start: u32) -> Decoder<'_> {
        Decoder::new(&self.octets[start as usize..])
    }

    /// Where an entry of a table is read; one that is longer than any that makes sense ends early.
    pub(super) fn entry(&self, table: Table, index: u64) -> Result<Decoder<'_>, Skip> {
        let starts = &self.starts[table as usize];
        let start = usize::try_from(index).ok().and_then(|index| starts.get(index)).ok_or(Skip::Damaged)?;
        let octets = &self.octets[*start as usize..];
        let most = match table {
            Table::NameOrData | Table::QuestionList | Table::RecordList => LONG_MAX,
            Table::Address | Table::ClassType | Table::Signature | Table::Question | Table::Record => {
                SHORT_MAX
            }
        };
        Ok(Decoder::new(&octets[..octets.len().min(most)]))
    }
}

/// Notes where each item of an array begins.
pub(super) fn starts(decoder: &mut Decoder<'_>, starts: &mut Vec<u32>, max: usize) -> Result<(), Error> {
    starts.clear();
    each_item(decoder, |item| {
        if starts.len() == max {
            return Err(Error::message("too many items"));
        }
        // A block is shorter than 4 GiB.
        starts.push(item.position() as u32);
        item.skip()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_each_pair_names_is_read_only_as_far_as_makes_sense() {
        let is_whole = |unknown: u64| {
            let mut encoder = minicbor::Encoder::new(Vec::new());
            encoder.map(unknown).expect("memory takes it");
            for _ in 0..unknown {
                encoder.i64(-9).and_then(|e| e.u8(0)).expect("memory takes it");
            }
            let mut starts = Starts::default();
            starts[Table::Signature as usize].push(0);
            let tables = Tables::new(encoder.into_writer(), starts);
            tables.entry(Table::Signature, 0).is_ok_and(|mut entry| entry.skip().is_ok())
        };
        let most = (SHORT_MAX as u64 - 3) / 2;
        assert!(is_whole(most) && !is_whole(most + 1));
    }
}
