//! A block: tables, and pairs that point into them, in the order of time.

use std::time::Duration;

use minicbor::decode::{Decoder, Error};

use super::cbor::{each_entry, each_item};
use super::pair::{Pair, Signature};
use super::rebuilt;
use super::tables::{Starts, Tables, starts};
use crate::trace::message::Message;
use crate::trace::skipped::{Skip, Skipped};

/// The most pairs in a block: 100 times what capturing programs write.
const PAIRS_MAX: usize = 1 << 20;

/// How times were stored in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    /// Never 0.
    pub(super) ticks_per_second: u64,
}

/// A block that is being read.
#[derive(Default)]
pub(super) struct Block {
    tables: Tables,
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

impl Block {
    /// Finds what begins where, and the order of time.
    pub(super) fn read(
        octets: Vec<u8>,
        parameters: &[Parameters],
        skipped: &mut Skipped,
    ) -> Result<Block, String> {
        let (mut index, mut earliest, mut malformed, mut discarded) = (0, None, 0, 0);
        let (mut tables, mut pairs) = (Starts::default(), Vec::new());
        each_entry(&mut Decoder::new(&octets), |key, value| match key {
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
            1 => each_entry(value, |key, value| match key {
                4 => {
                    discarded = value.u64()?;
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
        skipped.add(Skip::Dropped, discarded);
        let parameters = usize::try_from(index).ok().and_then(|index| parameters.get(index));
        let parameters = parameters.ok_or("a block whose parameters are not in the file's preamble")?;
        let mut block = Block { tables: Tables::new(octets, tables), pairs, events: Vec::new() };
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

    fn message(&self, event: Event, port: u16) -> Result<Message, Skip> {
        let pair = self.pair(event.pair)?;
        rebuilt::message(&self.tables, &pair, event.time, event.is_response, port)
    }

    /// Puts a pair's halves among the events.
    fn place(&mut self, number: u32, earliest: Option<(u64, u64)>, per_second: u64) -> Result<(), Skip> {
        let pair = self.pair(number)?;
        let signature = Signature::read(&self.tables, pair.signature.ok_or(Skip::NoQuestion)?)?;
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
        Pair::read(&mut self.tables.at(*start)).map_err(|_| Skip::Damaged)
    }
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
