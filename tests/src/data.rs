//! The folder of test data, which is not part of the project.

use std::fs::File;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

/// Where a file of the test data is, if it is there: below `POINTSMAN_DATA`, by default `../shared/data` beside the
/// checkout.
pub fn place(path: &str) -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    std::env::var_os("POINTSMAN_DATA").map_or(beside, PathBuf::from).join(path)
}

/// Finds a file of the test data; `None`, and a line that says so, where it is not there.
pub fn file(path: &str) -> Option<PathBuf> {
    let file = place(path);
    if !file.exists() {
        skip(&format!("{} is not here; POINTSMAN_DATA names its folder", file.display()));
        return None;
    }
    Some(file)
}

/// Reads a text of the test data that is compressed with xz; `None` as [`file()`] has it.
///
/// # Panics
/// Where it is damaged, or no text.
pub fn xz_text(path: &str) -> Option<String> {
    let file = File::open(file(path)?).expect("the file is there");
    let mut text = String::new();
    lzma_rust2::XzReader::new(file, true).read_to_string(&mut text).expect("the file is whole");
    Some(text)
}

/// Says why a test, or a part of one, is skipped: past the test harness, which would keep it to itself.
pub fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
