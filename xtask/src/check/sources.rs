//! Our own files: no markers of unfinished work, and no rooms whose name says nothing.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;
use crate::checkout::Checkout;

/// What unfinished work is marked with elsewhere; here it is an issue. Put together from halves, so that
/// this list does not find itself.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// File and folder names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "manager", "managers", "helper", "helpers", "core"];

/// Where rooms are named: the folders with our code.
const ROOMS: &[&str] = &["benches", "crates", "experiments", "fuzz", "python", "tests", "xtask"];

/// The kinds of files that people write here, by the end of their name.
const WRITTEN: &[&str] = &["c", "md", "py", "rs", "sh", "sql", "toml"];

/// Finds markers and empty names.
pub(super) fn find(checkout: &Checkout) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    visit(&checkout.root, Path::new(""), &mut findings)?;
    Ok(findings)
}

/// Looks at a folder's entries; `folder` is its path from the root.
fn visit(root: &Path, folder: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    let failed = || format!("failed to list {}", root.join(folder).display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(root.join(folder)).with_context(failed)? {
        entries.push(entry.with_context(failed)?);
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = folder.join(&*name);
        let kind = entry.file_type().with_context(failed)?;
        findings.extend(empty_name(&path));
        if kind.is_dir() {
            let built = name == "target" || name.starts_with('.');
            if !built {
                visit(root, &path, findings)?;
            }
        } else if kind.is_file() && is_written(&path) {
            let text =
                fs::read(root.join(&path)).with_context(|| format!("failed to read {}", path.display()))?;
            findings.extend(markers(&path, &String::from_utf8_lossy(&text)));
        }
    }
    Ok(())
}

fn is_written(path: &Path) -> bool {
    path.extension().and_then(|end| end.to_str()).is_some_and(|end| WRITTEN.contains(&end))
}

fn empty_name(path: &Path) -> Option<Finding> {
    let room = path.components().next()?.as_os_str().to_str()?;
    let stem = path.file_stem()?.to_str()?;
    let is_empty = ROOMS.contains(&room) && EMPTY_NAMES.contains(&stem);
    is_empty.then(|| {
        Finding::new(
            format!("{}: the name {stem} says nothing", path.display()),
            "name it after its subject, and move what is of another subject",
        )
    })
}

fn markers(path: &Path, text: &str) -> Vec<Finding> {
    let words = |line: &str| {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.find(|word| MARKERS.contains(word)).map(str::to_owned)
    };
    let marked =
        text.lines().enumerate().filter_map(|(index, line)| words(line).map(|word| (index + 1, word)));
    let what = |line, word| format!("{}:{line}: the marker {word}", path.display());
    marked
        .map(|(line, word)| Finding::new(what(line, word), "do it now, or open an issue and drop the marker"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_whole_words() {
        let [first, second, _] = MARKERS else { panic!("three markers") };
        let text = format!(
            "fine\n// {first}: later\nlet {}_x = 1; {second}IES\n# ({second})\n",
            first.to_lowercase()
        );
        let whats: Vec<String> =
            markers(Path::new("a.rs"), &text).into_iter().map(|finding| finding.what).collect();
        assert_eq!(whats, [format!("a.rs:2: the marker {first}"), format!("a.rs:4: the marker {second}")]);
    }

    #[test]
    fn empty_names_are_found_in_our_rooms_only() {
        for (path, found) in [
            ("crates/dns/src/util.rs", true),
            ("crates/core", true),
            ("crates/net/tests/common", true),
            ("xtask/src/helpers.rs", true),
            ("crates/dns/src/name.rs", false),
            ("crates/dns/src/utility_pole.rs", false),
            ("docs/common.md", false),
            ("Cargo.toml", false),
        ] {
            assert_eq!(empty_name(Path::new(path)).is_some(), found, "{path}");
        }
    }
}
