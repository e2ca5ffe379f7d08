//! Kept inputs: what a guided run found to reach code that the seeds do not.
//!
//! `corpus/TARGET` holds one input a line, in hexadecimal, so that a change of it can be read as a change.

use std::path::{Path, PathBuf};

/// The kept inputs of the target of this name; none where nothing was kept.
///
/// # Panics
/// Where the file cannot be read, or a line is not hexadecimal.
pub fn kept(target: &str) -> Vec<Vec<u8>> {
    let path = path(target);
    if !path.exists() {
        return Vec::new();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    text.lines()
        .enumerate()
        .map(|(index, line)| {
            from_hex(line)
                .unwrap_or_else(|| panic!("{}:{}: expected hexadecimal digits", path.display(), index + 1))
        })
        .collect()
}

/// Where the kept inputs of the target of this name are.
pub fn path(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Writes octets as lower-case hexadecimal digits.
pub fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Reads octets from hexadecimal digits; `None` for anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let (pairs, rest) = digits.as_ref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_there_and_back() {
        let octets = [0x00, 0x0f, 0xf0, 0xff];
        assert_eq!(to_hex(&octets), "000ff0ff");
        assert_eq!(from_hex("000fF0ff").as_deref(), Some(&octets[..]));
        assert_eq!(from_hex(""), Some(Vec::new()));
        for wrong in ["0", "0g", "é0"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
