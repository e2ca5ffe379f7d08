//! Addresses with names: real ones of 2017, and as many more like them as are wanted.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use reverse::NameText;

use crate::machine;

/// The most addresses that are made of one row: its /23.
const OF_ROW_MAX: u32 = 512;

/// An address and its name, if it has one.
pub(crate) type Named = (Ipv4Addr, Option<NameText>);

/// The rows of `ptr-2017-08.csv.xz`; names that are not kept count as none.
///
/// # Errors
/// Where the file is not there or cannot be read.
pub(crate) fn real() -> Result<Vec<Named>> {
    let path = machine::data("reverse/ptr-2017-08.csv.xz")?;
    let failed = || format!("{}", path.display());
    let mut text = String::new();
    lzma_rust2::XzReader::new(File::open(&path).with_context(failed)?, true)
        .read_to_string(&mut text)
        .with_context(failed)?;
    let row = |line: &str| {
        let (address, name) = line.split_once(',')?;
        Some((address.parse().ok()?, NameText::from_text(name.as_bytes())))
    };
    Ok(text.lines().skip(1).filter_map(row).collect())
}

/// So many different addresses: of each real row the address and others of its /23, with names of the same form.
///
/// Octets of the address in a name become those of the other address. A name without all four of them becomes another
/// name of the same length below the same domain, so that names which no address explains stay as many as they are.
pub(crate) fn many(rows: &[Named], count: usize, mut each: impl FnMut(Ipv4Addr, Option<NameText>)) {
    let mut seen = HashSet::with_capacity(count);
    for step in 0..OF_ROW_MAX {
        for (address, name) in rows {
            let other = Ipv4Addr::from_bits(address.to_bits() ^ step);
            if seen.len() == count {
                return;
            }
            if seen.insert(other.to_bits()) {
                each(other, name.map(|name| moved(&name, address.octets(), other.octets(), step)));
            }
        }
    }
}

/// The name of another address, `step` away.
fn moved(name: &NameText, from: [u8; 4], to: [u8; 4], step: u32) -> NameText {
    if step == 0 {
        return *name;
    }
    let text = name.as_str();
    let (mut written, mut rest, mut found) = (String::new(), text, [false; 4]);
    while let Some(first) = rest.chars().next() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            written.push(first);
            rest = &rest[1..];
            continue;
        }
        let run = &rest[..digits];
        // The first that is not used up, so that 1-1-2-3 is read in order.
        let octet = (0..4).find(|i| !found[*i] && run.parse() == Ok(from[*i]));
        match octet {
            Some(i) if run.len() == 3 => written += &format!("{:03}", to[i]),
            Some(i) => written += &to[i].to_string(),
            None => written += run,
        }
        octet.into_iter().for_each(|i| found[i] = true);
        rest = &rest[digits..];
    }
    if found != [true; 4] {
        written = other_host(text, step);
    }
    NameText::from_text(written.as_bytes()).unwrap_or(*name)
}

/// The name with the end of its first label replaced by two letters.
fn other_host(name: &str, step: u32) -> String {
    let letter = |value: u32| char::from_digit(value % 36, 36).unwrap_or('x');
    let (label, domain) = name.split_once('.').unwrap_or((name, "example"));
    let kept = &label[..label.len().saturating_sub(2)];
    format!("{kept}{}{}.{domain}", letter(step / 36), letter(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_move_with_their_address() {
        for (name, moved_name) in [
            ("ip-10-0-1-9.pool.example", "ip-10-0-1-8.pool.example"),
            ("9.1.0.10.example", "8.1.0.10.example"),
            ("h010000001009.example", "h010000001001.example"),
            ("www.example", "w01.example"),
        ] {
            let name = NameText::from_text(name.as_bytes()).expect("a name");
            assert_eq!(moved(&name, [10, 0, 1, 9], [10, 0, 1, 8], 1).as_str(), moved_name);
        }
    }

    #[test]
    fn there_are_as_many_as_wanted() {
        let row = |d| (Ipv4Addr::new(10, 0, 0, d), NameText::from_text(b"a.example"));
        let mut made = Vec::new();
        many(&[row(1), row(2)], 100, |address, _| made.push(address));
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), 100);
    }
}
