//! A block: tables, and pairs that point into them.

use std::time::Duration;

use minicbor::decode::{Decoder, Error};

use super::Parameters;
use super::cbor::{each_entry, each_item};
use super::rebuilt;
use crate::trace::message::Message;
use crate::trace::skipped::{Skip, Skipped};

/// The most pairs in a block: 100 times what capturing programs write.
const PAIRS_MAX: usize = 1 << 20;

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

/// A block's octets, and where in them what begins. Entries are read when a pair needs them, so that a table
/// takes four octets for each of its entries, which have one or more.
#[derive(Default)]
pub(super) struct Block {
    octets: Vec<u8>,
    tables: [Vec<u32>; TABLES],
    /// Where pairs begin.
    pairs: Vec<u32>,
    /// Last first.
    events: Vec<Event>,
}

/// One half of a pair.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: Duration,
    /// Which pair of the block, from 0.
    pair: u32,
    is_response: bool,
}

/// A query and its response, or one of them (RFC 8618 §7.3.2.4); indices into tables.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    pub(super) time_offset: Option<u64>,
    pub(super) client: Option<u64>,
    pub(super) client_port: u16,
    pub(super) id: u16,
    pub(super) signature: Option<u64>,
    pub(super) response_delay: Option<i64>,
    pub(super) name: Option<u64>,
    pub(super) query_sections: Sections,
    pub(super) response_sections: Sections,
}

/// Questions beyond the first, and records; indices into lists.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sections {
    pub(super) questions: Option<u64>,
    /// Answer, authority, additional.
    pub(super) records: [Option<u64>; 3],
}

impl Block {
    /// Finds what begins where, and the order of time.
    pub(super) fn read(
        octets: Vec<u8>,
        parameters: &[Parameters],
        skipped: &mut Skipped,
    ) -> Result<Block, String> {
        let mut block = Block { octets, ..Block::default() };
        let (mut index, mut earliest, mut pairs, mut malformed) = (0, None, Vec::new(), 0);
        let tables = &mut block.tables;
        each_entry(&mut Decoder::new(&block.octets), |key, value| match key {
            0 => each_entry(value, |key, value| match key {
                0 => {
                    earliest = Some(timestamp(value)?);
                    Ok(())
                }
                1 => {
                    index = value.u64()?;
                    Ok(())
                }
                _ => value.skip(),
            }),
            2 => each_entry(value, |key, value| {
                match usize::try_from(key).ok().and_then(|key| tables.get_mut(key)) {
                    Some(table) => starts(value, table, usize::MAX),
                    None => value.skip(),
                }
            }),
            3 => starts(value, &mut pairs, PAIRS_MAX),
            5 => each_item(value, |value| {
                malformed += 1;
                value.skip()
            }),
            _ => value.skip(),
        })
        .map_err(|error| format!("a block that is not as RFC 8618 has it: {error}"))?;
        skipped.add(Skip::Malformed, malformed);
        let parameters = usize::try_from(index).ok().and_then(|index| parameters.get(index));
        let parameters = parameters.ok_or("a block whose parameters are not in the file's preamble")?;
        block.pairs = pairs;
        // There are at most [`PAIRS_MAX`].
        for pair in 0..block.pairs.len() as u32 {
            if let Err(skip) = block.place(pair, earliest, parameters.ticks_per_second) {
                skipped.count(skip);
            }
        }
        // The sort is stable: at the same time, the query stands before its response.
        block.events.sort_by_key(|event| event.time);
        block.events.reverse();
        Ok(block)
    }

    /// How many pairs there are.
    pub(super) fn pairs(&self) -> u64 {
        self.pairs.len() as u64
    }

    /// The next message, or why it cannot be rebuilt, with the number of its pair, from 0; `None` after the last.
    pub(super) fn next(&mut self, port: u16) -> Option<(u32, Result<Message, Skip>)> {
        let event = self.events.pop()?;
        Some((event.pair, self.message(event, port)))
    }

    /// Where an entry of a table is read; one that is longer than any that makes sense ends early.
    pub(super) fn entry(&self, table: Table, index: u64) -> Result<Decoder<'_>, Skip> {
        let starts = &self.tables[table as usize];
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

    fn message(&self, event: Event, port: u16) -> Result<Message, Skip> {
        let pair = self.pair(event.pair)?;
        rebuilt::message(self, &pair, event.time, event.is_response, port)
    }

    /// Puts a pair's halves among the events.
    fn place(&mut self, number: u32, earliest: Option<(u64, u64)>, per_second: u64) -> Result<(), Skip> {
        let pair = self.pair(number)?;
        let signature = rebuilt::Signature::read(self, pair.signature.ok_or(Skip::NoQuestion)?)?;
        let (Some((seconds, ticks)), Some(offset)) = (earliest, pair.time_offset) else {
            return Err(Skip::NoTime);
        };
        let ticks = i128::from(ticks) + i128::from(offset);
        let at = |ticks| instant(seconds, ticks, per_second);
        if signature.has_query() {
            self.events.push(Event { time: at(ticks), pair: number, is_response: false });
        }
        if signature.has_response(&pair) {
            // Of a response alone, the offset is its own.
            let delay = if signature.has_query() { pair.response_delay.unwrap_or(0) } else { 0 };
            self.events.push(Event { time: at(ticks + i128::from(delay)), pair: number, is_response: true });
        }
        Ok(())
    }

    fn pair(&self, number: u32) -> Result<Pair, Skip> {
        let start = self.pairs.get(number as usize).ok_or(Skip::Damaged)?;
        Pair::read(&mut Decoder::new(&self.octets[*start as usize..])).map_err(|_| Skip::Damaged)
    }
}

impl Pair {
    fn read(decoder: &mut Decoder<'_>) -> Result<Pair, Error> {
        let mut pair = Pair::default();
        each_entry(decoder, |key, value| {
            match key {
                0 => pair.time_offset = Some(value.u64()?),
                1 => pair.client = Some(value.u64()?),
                2 => pair.client_port = value.u16()?,
                3 => pair.id = value.u16()?,
                4 => pair.signature = Some(value.u64()?),
                6 => pair.response_delay = Some(value.i64()?),
                7 => pair.name = Some(value.u64()?),
                11 => pair.query_sections = Sections::read(value)?,
                12 => pair.response_sections = Sections::read(value)?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(pair)
    }
}

impl Sections {
    fn read(decoder: &mut Decoder<'_>) -> Result<Sections, Error> {
        let mut sections = Sections::default();
        each_entry(decoder, |key, value| {
            match key {
                0 => sections.questions = Some(value.u64()?),
                1 => sections.records[0] = Some(value.u64()?),
                2 => sections.records[1] = Some(value.u64()?),
                3 => sections.records[2] = Some(value.u64()?),
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(sections)
    }
}

/// Notes where each item of an array begins.
fn starts(decoder: &mut Decoder<'_>, starts: &mut Vec<u32>, max: usize) -> Result<(), Error> {
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

/// Seconds, and ticks beyond them.
fn timestamp(decoder: &mut Decoder<'_>) -> Result<(u64, u64), Error> {
    let (mut parts, mut count) = ([0; 2], 0);
    each_item(decoder, |item| {
        let part = parts.get_mut(count).ok_or_else(|| Error::message("a time of more than two parts"))?;
        *part = item.u64()?;
        count += 1;
        Ok(())
    })?;
    Ok((parts[0], parts[1]))
}

/// What seconds and ticks mean; absurd ones become the nearest time that can be told.
fn instant(seconds: u64, ticks: i128, per_second: u64) -> Duration {
    const NANOS: i128 = 1_000_000_000;
    // Seconds have 64 bits, ticks 66 and a second's nanoseconds 30.
    let nanos = (i128::from(seconds) * NANOS + (ticks * NANOS).div_euclid(per_second.into())).max(0);
    match u64::try_from(nanos / NANOS) {
        Ok(seconds) => Duration::new(seconds, (nanos % NANOS) as u32),
        Err(_) => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_each_pair_names_is_read_only_as_far_as_makes_sense() {
        let signature = |unknown: u64| {
            let mut encoder = minicbor::Encoder::new(Vec::new());
            encoder.map(unknown).expect("memory takes it");
            for _ in 0..unknown {
                encoder.i64(-9).and_then(|e| e.u8(0)).expect("memory takes it");
            }
            let mut block = Block { octets: encoder.into_writer(), ..Block::default() };
            block.tables[Table::Signature as usize].push(0);
            rebuilt::Signature::read(&block, 0).err()
        };
        let most = (SHORT_MAX as u64 - 3) / 2;
        assert_eq!((signature(most), signature(most + 1)), (None, Some(Skip::Damaged)));
    }

    #[test]
    fn ticks_are_times_at_any_rate() {
        for (seconds, ticks, per_second, expected) in [
            (10, 500_000, 1_000_000, Duration::new(10, 500_000_000)),
            (10, -2, 1_000_000, Duration::new(9, 999_998_000)),
            (10, 2_500, 1_000, Duration::new(12, 500_000_000)),
            (0, 1, 3, Duration::new(0, 333_333_333)),
            (0, -1, 1, Duration::ZERO),
            (u64::MAX, 5, 1, Duration::MAX),
            (1, i128::from(u64::MAX) * 3, 1, Duration::MAX),
            (1, i128::from(u64::MAX), u64::MAX, Duration::from_secs(2)),
        ] {
            assert_eq!(instant(seconds, ticks, per_second), expected, "{seconds} + {ticks}/{per_second}");
        }
    }
}
