//! The folder of test data, which is not part of the project.

use std::path::PathBuf;

use crate::machine;
use crate::report::Report;

/// Finds a file of the test data; `None`, and a paragraph in the report that says so, where it is not there.
pub(crate) fn file(path: &str, report: &mut Report) -> Option<PathBuf> {
    let found = machine::data(path);
    if found.is_err() {
        report.say(&format!("Left out: {path} is not here. POINTSMAN_DATA names the folder of the data."));
    }
    found.ok()
}
