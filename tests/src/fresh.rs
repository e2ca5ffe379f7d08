//! Files that are written from declarations: a test holds each to what it should be.

use std::fs;
use std::path::Path;

/// The environment variable with which the tests write the files instead of comparing them.
const UPDATE: &str = "POINTSMAN_UPDATE";

/// Compares the file at `path`, from the checkout's root, with what it should hold.
///
/// # Panics
/// Where they differ.
pub fn check(path: &str, expected: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&file, expected).expect("the checkout can be written");
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    let differs = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "{path} is not fresh from line {} on: {UPDATE}=1 and this test write it",
        differs.map_or(found.lines().count().min(expected.lines().count()), |line| line) + 1,
    );
}
