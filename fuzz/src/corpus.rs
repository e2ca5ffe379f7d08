//! Kept inputs: what a guided run found to reach code that the seeds do not.
//!
//! `corpus/TARGET` holds one input a line, in hexadecimal, so that a change of it can be read as a change.

use std::path::{Path, PathBuf};

use crate::run::from_hex;

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
