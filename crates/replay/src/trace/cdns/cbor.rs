//! CBOR (RFC 8949) as C-DNS has it: whole items from a stream, maps with integers for keys.

use std::io::Read;

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};

use crate::trace::source::{Failed, Source};

/// How deep items may stand in each other: C-DNS has nine levels.
const DEPTH_MAX: usize = 16;

/// The octets that are read at a time, until an item does not fit: then as many as are held.
const READ: usize = 64 << 10;

/// Items of a stream.
pub(super) struct Items {
    source: Source,
    failed: Failed,
    buffer: Vec<u8>,
    /// Where in the buffer the next item begins.
    at: usize,
    /// Octets before the buffer.
    before: u64,
}

impl Items {
    pub(super) fn new(source: Source) -> Items {
        Items { failed: source.failed(), source, buffer: Vec::new(), at: 0, before: 0 }
    }

    /// Octets before what is read next.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// The next item, whole, of at most about `max` octets.
    pub(super) fn item(&mut self, max: usize) -> Result<Vec<u8>, String> {
        loop {
            let mut decoder = Decoder::new(&self.buffer[self.at..]);
            match pass_over(&mut decoder, DEPTH_MAX) {
                Ok(()) => {
                    let from = self.at;
                    self.at += decoder.position();
                    return Ok(self.buffer[from..self.at].to_vec());
                }
                Err(error) if error.is_end_of_input() => self.more(max)?,
                Err(error) => return Err(format!("this is no CBOR: {error}")),
            }
        }
    }

    /// The head of an array: how many items it has, where it says so.
    pub(super) fn begin_array(&mut self) -> Result<Option<u64>, String> {
        loop {
            let mut decoder = Decoder::new(&self.buffer[self.at..]);
            match decoder.array() {
                Ok(length) => {
                    self.at += decoder.position();
                    return Ok(length);
                }
                Err(error) if error.is_end_of_input() => self.more(READ)?,
                Err(_) => return Err("an array is expected here".into()),
            }
        }
    }

    /// Whether an array of no told length ends here; its end is then passed over.
    pub(super) fn is_break(&mut self) -> Result<bool, String> {
        while self.at == self.buffer.len() {
            self.more(READ)?;
        }
        let is_break = self.buffer[self.at] == 0xff;
        self.at += usize::from(is_break);
        Ok(is_break)
    }

    /// Reads on after the last item, where nothing is expected.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        // A reader that fails tells so through `failed`.
        let more = self.source.read(&mut [0]).unwrap_or(0);
        match self.failed.take() {
            Some(error) => Err(error.to_string()),
            None if more > 0 || self.at < self.buffer.len() => {
                Err("something follows the last block: a file of C-DNS ends there".into())
            }
            None => Ok(()),
        }
    }

    fn more(&mut self, max: usize) -> Result<(), String> {
        self.before += self.at as u64;
        self.buffer.drain(..std::mem::take(&mut self.at));
        let held = self.buffer.len();
        if held >= max {
            return Err(format!("an item of more than {max} octets: the file is damaged here"));
        }
        self.buffer.resize(held + held.max(READ), 0);
        let read = self.source.read(&mut self.buffer[held..]).map_err(|error| error.to_string())?;
        self.buffer.truncate(held + read);
        if read > 0 {
            return Ok(());
        }
        let what = "the file ends within its blocks";
        Err(self.failed.take().map_or_else(|| what.into(), |error| format!("{what}: {error}")))
    }
}

/// Passes over an item. `minicbor`'s own way keeps a stack that may take 16 octets for each of the item's.
fn pass_over(decoder: &mut Decoder<'_>, depth: usize) -> Result<(), Error> {
    let (inner, each) = match decoder.datatype()? {
        Type::Array | Type::ArrayIndef => (decoder.array()?, 1),
        Type::Map | Type::MapIndef => (decoder.map()?, 2),
        Type::Tag => {
            decoder.tag()?;
            (Some(1), 1)
        }
        Type::Break | Type::Unknown(_) => return Err(Error::message("an item is expected here")),
        _ => return decoder.skip(),
    };
    let Some(depth) = depth.checked_sub(1) else { return Err(Error::message("items stand too deep")) };
    repeat(decoder, inner.map(|count| count.saturating_mul(each)), |decoder| pass_over(decoder, depth))
}

/// Gives each entry of a map whose keys are integers; `take` reads the value. Other keys are passed over.
pub(super) fn each_entry<'b>(
    decoder: &mut Decoder<'b>,
    mut take: impl FnMut(i64, &mut Decoder<'b>) -> Result<(), Error>,
) -> Result<(), Error> {
    let length = decoder.map()?;
    repeat(decoder, length, |decoder| match decoder.datatype()? {
        Type::String | Type::Bytes => {
            decoder.skip()?;
            decoder.skip()
        }
        _ => {
            let key = decoder.i64()?;
            take(key, decoder)
        }
    })
}

/// Gives each item of an array; `take` reads it.
pub(super) fn each_item<'b>(
    decoder: &mut Decoder<'b>,
    take: impl FnMut(&mut Decoder<'b>) -> Result<(), Error>,
) -> Result<(), Error> {
    let length = decoder.array()?;
    repeat(decoder, length, take)
}

/// Does it for each of `count` items, or up to the break that ends them.
fn repeat<'b>(
    decoder: &mut Decoder<'b>,
    count: Option<u64>,
    mut take: impl FnMut(&mut Decoder<'b>) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(count) = count else {
        while decoder.datatype()? != Type::Break {
            take(decoder)?;
        }
        return decoder.skip();
    };
    // An item takes an octet or more, so that the count cannot make this loop long.
    for _ in 0..count {
        take(decoder)?;
    }
    Ok(())
}
