//! The cache as lines of text: `address<TAB>expiry<TAB>name`, as Rapid DNS kept it.
//!
//! Expiry is in seconds since 1970; `-` stands for "no name". What failed or was only asked for is not written.

use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use super::{Entry, Reader, State, Writer};
use crate::name::NameText;

/// The longest line that is read, in octets: the longest address, time and name, with room for a line end.
pub const LINE_MAX: usize = 39 + 1 + 10 + 1 + 254 + 2;

/// The most octets of a line that is none: what has longer ones is no text, and is read no further.
const WRONG_LINE_MAX: u64 = 64 << 10;

/// After how many lines it is looked whether the cache is nearly full: names of fewer fit into what is left then, also
/// of the smallest cache.
const LINES_BETWEEN: u64 = 1000;

/// Writes all that is known at `now`; returns how many lines.
///
/// # Errors
/// What `out` says.
pub fn write(reader: &Reader, now: u32, out: &mut impl Write) -> io::Result<u64> {
    let mut lines = 0;
    let written = reader.try_for_each(|address, entry, name| {
        let name = match entry.state {
            State::Name => name.as_str(),
            State::NoName => "-",
            State::Asked | State::Failed(_) => return ControlFlow::Continue(()),
        };
        if !entry.is_stale(now) {
            if let Err(cause) = writeln!(out, "{address}\t{}\t{name}", entry.expiry) {
                return ControlFlow::Break(cause);
            }
            lines += 1;
        }
        ControlFlow::Continue(())
    });
    written.break_value().map_or(Ok(lines), Err)
}

/// Puts all lines that have not expired, and sweeps where the cache gets full; returns how many lines there are. Each that
/// is none goes to `wrong`, with its number, counted from 1, and what is wrong with it.
///
/// # Errors
/// What `from` says.
pub fn read(
    mut from: impl BufRead,
    now: u32,
    cache: &mut Writer,
    mut wrong: impl FnMut(u64, String),
) -> io::Result<u64> {
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        let length = io::Read::take(&mut from, WRONG_LINE_MAX).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(number - 1);
        }
        match parse(&line, now) {
            Ok((address, entry, name)) if !entry.is_stale(now) => cache.put(address, entry, &name),
            Ok(_) => {}
            Err(what) => wrong(number, what),
        }
        // Nobody else does meanwhile, and without it what is taken out frees no names.
        if number % LINES_BETWEEN == 0 && cache.is_nearly_full() {
            (0..2 * Writer::SWEEPS).for_each(|_| cache.sweep(now));
        }
        if length as u64 == WRONG_LINE_MAX && line.last() != Some(&b'\n') {
            return Ok(number);
        }
    }
}

fn parse(line: &[u8], now: u32) -> Result<(IpAddr, Entry, NameText), String> {
    if line.len() > LINE_MAX {
        return Err(format!("it is longer than {LINE_MAX} octets"));
    }
    let mut fields = line.trim_ascii_end().split(|octet| *octet == b'\t');
    let mut field = |what: &str| fields.next().ok_or(format!("there is no {what}"));
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let address = text(field("address")?);
    let address: IpAddr = address.parse().map_err(|_| format!("{address:?} is no address"))?;
    // As look-ups have it: ::ffff:192.0.2.1 is 192.0.2.1.
    let address = address.to_canonical();
    let expiry = text(field("expiry")?);
    let expiry: u32 = expiry.parse().map_err(|_| format!("{expiry:?} is no time in seconds since 1970"))?;
    let name = field("name")?;
    if fields.next().is_some() {
        return Err("there is more behind the name".into());
    }
    let life = Duration::from_secs(expiry.saturating_sub(now).into());
    let state = if name == b"-" { State::NoName } else { State::Name };
    let kept = match state {
        State::Name => {
            NameText::from_text(name).ok_or(format!("{:?} is no name that is kept", text(name)))?
        }
        _ => NameText::EMPTY,
    };
    Ok((address, Entry::new(state, now, life), kept))
}
