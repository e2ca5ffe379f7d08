//! The folder of test data, which is not part of the project.

use std::path::PathBuf;

use crate::machine;
use crate::report::Report;

/// Finds a file of the test data: below `POINTSMAN_DATA`, by default `../shared/data` beside the checkout.
///
/// `None`, and a paragraph in the report that says so, where it is not there.
pub(crate) fn file(path: &str, report: &mut Report) -> Option<PathBuf> {
    let beside = machine::root().join("../shared/data");
    let file = std::env::var_os("POINTSMAN_DATA").map_or(beside, PathBuf::from).join(path);
    if file.exists() {
        return Some(file);
    }
    report.say(&format!("Left out: {path} is not here. POINTSMAN_DATA names the folder of the data."));
    None
}
