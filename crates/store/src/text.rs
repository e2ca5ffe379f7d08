//! Long texts, compressed: the length in four bytes (little endian), then one LZ4 block; and a zone's, changed.

use std::collections::BTreeMap;

/// The longest text that is stored, in bytes: above the largest zones that one server is known to hold
/// as a single text, and low enough that text and compressed copy together fit a small machine's memory.
pub const TEXT_MAX: usize = 256 << 20;

/// Compresses `text`; `None` where it is longer than `limit` bytes.
pub(crate) fn pack(text: &str, limit: usize) -> Option<Vec<u8>> {
    (text.len() <= limit).then(|| lz4_flex::compress_prepend_size(text.as_bytes()))
}

/// Gives back the text that was packed, or says what is wrong with `packed`.
///
/// The length is checked before anything is allocated: what is read may be damaged.
pub(crate) fn unpack(packed: &[u8], limit: usize) -> Result<String, String> {
    let (size, _) = lz4_flex::block::uncompressed_size(packed).map_err(|e| e.to_string())?;
    if size > limit {
        return Err(format!("claims {size} bytes, more than {limit}"));
    }
    let text = lz4_flex::decompress_size_prepended(packed).map_err(|e| e.to_string())?;
    if text.len() != size {
        return Err(format!("claims {size} bytes and has {}", text.len()));
    }
    String::from_utf8(text).map_err(|e| e.to_string())
}

/// A zone's text with the lines of these owners in place of those that it has of them. They come last, by owner.
pub(crate) fn with_owners(text: &str, owners: &BTreeMap<String, String>) -> String {
    let more: usize = owners.values().map(String::len).sum();
    let mut changed = String::with_capacity(text.len() + more);
    for line in text.split_inclusive('\n') {
        let owner = line.split(' ').next().unwrap_or_default();
        if !owners.contains_key(owner) {
            changed.push_str(line);
        }
    }
    changed.extend(owners.values().map(String::as_str));
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_have_other_lines() {
        let owners = |changed: &[(&str, &str)]| {
            changed.iter().map(|(owner, lines)| (owner.to_string(), lines.to_string())).collect()
        };
        let text = "a. SOA x\na. NS b.a.\nb.a. A y\nc.a. TXT \"b.a. \"\n";
        assert_eq!(with_owners(text, &owners(&[])), text);
        let changed = with_owners(text, &owners(&[("d.a.", "d.a. A z\n"), ("b.a.", "")]));
        assert_eq!(changed, "a. SOA x\na. NS b.a.\nc.a. TXT \"b.a. \"\nd.a. A z\n");
        let changed = with_owners(&changed, &owners(&[("a.", "a. SOA y\n")]));
        assert_eq!(changed, "c.a. TXT \"b.a. \"\nd.a. A z\na. SOA y\n");
    }

    #[test]
    fn a_text_comes_back() {
        for text in ["", "a", "@ IN SOA . . 1 2 3 4 5\n", &"www A 192.0.2.1\n".repeat(10_000)] {
            let packed = pack(text, TEXT_MAX).expect("below the limit");
            assert_eq!(unpack(&packed, TEXT_MAX).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_text_above_the_limit_is_refused() {
        assert!(pack("12345", 5).is_some());
        assert_eq!(pack("123456", 5), None);
    }

    #[test]
    fn damage_is_told() {
        let good = pack("some text that is stored, some text that is stored", TEXT_MAX).unwrap();
        let mut longer = good.clone();
        longer[0] += 1;
        let mut huge = good.clone();
        huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let not_text = lz4_flex::compress_prepend_size(&[0xff, 0xfe]);
        for (what, bytes) in [
            ("empty", &[][..]),
            ("cut in the length", &good[..3]),
            ("cut in the block", &good[..good.len() - 2]),
            ("a longer length", &longer),
            ("a huge length", &huge),
            ("not UTF-8", &not_text),
        ] {
            assert!(unpack(bytes, TEXT_MAX).is_err(), "{what}");
        }
    }
}
