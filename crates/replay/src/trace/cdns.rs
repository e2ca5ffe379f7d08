//! C-DNS (RFC 8618): queries and responses in pairs, in blocks with tables of what they share.
//!
//! - [`Pairs`]: the file, a block at a time, the next one made ready in a thread of its own.
//! - `cbor`: the items of its notation, from a stream.
//! - `tables`: what the pairs of a block share; `pair`: a pair as it is stored; `rebuilt`: as DNS messages.
//! - `block`: one block, its pairs in the order of time.

mod block;
mod cbor;
mod pair;
mod rebuilt;
mod tables;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use minicbor::decode::{Decoder, Error};

use super::Damage;
use super::message::Message;
use super::skipped::Skipped;
use super::source::Source;
use block::{Block, Parameters};
use cbor::{Items, each_entry, each_item};

/// The longest block in octets. Blocks of 5,000 to 10,000 pairs, as capturing programs write them, have some
/// 100 octets a pair; the whole block must be read before its first pair can be.
const BLOCK_MAX: usize = 32 << 20;

/// The longest file preamble in octets: it has a few hundred for each set of parameters.
const PREAMBLE_MAX: usize = 1 << 20;

/// The most sets of block parameters; a file has one for each change of how it was captured.
const PARAMETERS_MAX: usize = 1_024;

/// The version of the format that is read (RFC 8618 §7.3.1); minor versions add only.
const MAJOR: u64 = 1;

/// A stream of queries and responses.
pub(super) struct Pairs {
    blocks: Receiver<Next>,
    block: Block,
    /// Octets before the block that was read last.
    offset: u64,
    /// Pairs of all blocks so far, and of those before the last.
    pairs: u64,
    before: u64,
    /// Which pair the last message is half of, from 1.
    pair: u64,
}

/// The blocks of a file. To read one and to put it in order takes milliseconds, for which no query that is due is to wait.
struct Blocks {
    items: Items,
    parameters: Vec<Parameters>,
    /// How many are left, where the file says so.
    left: Option<u64>,
}

/// What comes next in a file.
struct Next {
    /// Octets before it.
    offset: u64,
    /// A block, or the end, or what is wrong there.
    block: Result<Option<Block>, String>,
    /// What it has that gives no message.
    skipped: Skipped,
}

impl Pairs {
    /// Begins to read a file whose first octets are those of C-DNS.
    pub(super) fn new(source: Source) -> Result<Pairs, Damage> {
        let mut items = Items::new(source);
        let read = |items: &mut Items| {
            items.begin_array()?;
            items.item(PREAMBLE_MAX)?;
            let preamble = items.item(PREAMBLE_MAX)?;
            let parameters = parameters(&preamble)?;
            Ok((parameters, items.begin_array()?))
        };
        let damage = |offset, what| Damage { packet: 0, offset, what };
        let (parameters, left) = read(&mut items)
            .map_err(|what: String| damage(items.offset(), format!("the C-DNS file's preamble: {what}")))?;
        let offset = items.offset();
        // No place to wait in: one is used, and the next one is ready or under way.
        let (to, blocks) = sync_channel(0);
        let all = Blocks { items, parameters, left };
        thread::Builder::new()
            .name("blocks-ahead".into())
            .spawn(move || all.read(&to))
            .map_err(|cause| damage(offset, format!("the system gives no thread to read it: {cause}")))?;
        Ok(Pairs { blocks, block: Block::default(), offset, pairs: 0, before: 0, pair: 0 })
    }

    /// How many pairs were read, whole or half ones.
    pub(super) fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Which pair the message that was given last is half of, 1 for the first.
    pub(super) fn pair(&self) -> u64 {
        self.pair
    }

    /// Reads on to the next message, and gives it. `false` after the last block.
    ///
    /// # Errors
    /// What is wrong with the next block; there are no more.
    pub(super) fn next(
        &mut self,
        port: u16,
        skipped: &mut Skipped,
        take: impl FnOnce(Message),
    ) -> Result<bool, Damage> {
        if let Some((pair, next)) = self.block.next(port) {
            self.pair = self.before + u64::from(pair) + 1;
            match next {
                Ok(message) => take(message),
                Err(skip) => skipped.count(skip),
            }
            return Ok(true);
        }
        self.next_block(skipped).map_err(|what| Damage { packet: self.pairs + 1, offset: self.offset, what })
    }

    fn next_block(&mut self, skipped: &mut Skipped) -> Result<bool, String> {
        // Its panic was told where it happened.
        let next = self.blocks.recv().map_err(|_| "the thread that reads ahead has failed")?;
        self.offset = next.offset;
        skipped.merge(&next.skipped);
        let Some(block) = next.block? else { return Ok(false) };
        self.block = block;
        self.before = self.pairs;
        self.pairs += self.block.pairs();
        Ok(true)
    }
}

impl Blocks {
    /// Reads until the end, or until nobody wants any more.
    fn read(mut self, to: &SyncSender<Next>) {
        // Where this is refused, it has as much of a core as others.
        let _ = net::thread::stand_back();
        loop {
            let (offset, mut skipped) = (self.items.offset(), Skipped::default());
            let block = self.next(&mut skipped);
            let is_last = !matches!(block, Ok(Some(_)));
            if to.send(Next { offset, block, skipped }).is_err() || is_last {
                return;
            }
        }
    }

    fn next(&mut self, skipped: &mut Skipped) -> Result<Option<Block>, String> {
        let is_last = match &mut self.left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => self.items.is_break()?,
        };
        if is_last {
            // What the compression finds wrong at its end would not be seen otherwise.
            return self.items.finish().map(|()| None);
        }
        let octets = self.items.item(BLOCK_MAX)?;
        Block::read(octets, &self.parameters, skipped).map(Some)
    }
}

/// Reads the file preamble (RFC 8618 §7.3.1).
fn parameters(preamble: &[u8]) -> Result<Vec<Parameters>, String> {
    let (mut major, mut parameters) = (None, Vec::new());
    each_entry(&mut Decoder::new(preamble), |key, value| {
        match key {
            0 => major = Some(value.u64()?),
            3 => each_item(value, |set| {
                if parameters.len() == PARAMETERS_MAX {
                    return Err(Error::message("too many sets of parameters"));
                }
                parameters.push(one_set(set)?);
                Ok(())
            })?,
            _ => value.skip()?,
        }
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    match major {
        Some(MAJOR) => {}
        Some(major) => return Err(format!("version {major} of C-DNS is not read, expected {MAJOR}")),
        None => return Err("it has no version".into()),
    }
    if parameters.is_empty() {
        return Err("it has no block parameters".into());
    }
    Ok(parameters)
}

fn one_set(set: &mut Decoder<'_>) -> Result<Parameters, Error> {
    let mut ticks_per_second = 0;
    each_entry(set, |key, value| match key {
        0 => each_entry(value, |key, value| match key {
            0 => {
                ticks_per_second = value.u64()?;
                Ok(())
            }
            _ => value.skip(),
        }),
        _ => value.skip(),
    })?;
    match ticks_per_second {
        0 => Err(Error::message("no ticks per second")),
        ticks_per_second => Ok(Parameters { ticks_per_second }),
    }
}

#[cfg(test)]
mod tests;
