//! Third-party crates: each group says why it is here, and all of them together stay few.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;

use super::{BESIDE, Finding};
use crate::checkout::Checkout;

/// The most crates in the program's tree, our own included; each costs build time and an audit. 230, and 13 that come
/// with the reader of BGP tables (bgpkit-parser): formats with a well-kept library are not ours to read; 12 for stores in
/// PostgreSQL and MariaDB, with TLS (sqlx); one for clients over TLS (tokio-rustls); two for clients over QUIC (quinn, quinn-udp);
/// one that `domain` holds private keys in (secrecy); one with the memory and rings of sockets for frames (xdp); and `tap`, which
/// two of our programs share.
const CRATES_MAX: usize = 261;

/// `cargo tree` on a resolved workspace takes a second; the first one may fetch the crates.
const TREE_MAX: Duration = Duration::from_secs(300);

/// Finds dependencies without a reason, those that are not declared with the others, and a tree that has grown too large.
pub(super) fn find(checkout: &Checkout) -> Result<Vec<Finding>> {
    let mut findings = unexplained(&checkout.text("Cargo.toml")?);
    let crates = checkout.crate_folders()?.into_iter().map(|name| format!("crates/{name}"));
    for member in BESIDE.map(String::from).into_iter().chain(crates) {
        let path = format!("{member}/Cargo.toml");
        findings.extend(undeclared(&path, &checkout.text(&path)?));
    }
    let arguments = "tree --locked --package pointsman --edges normal,build --target x86_64-unknown-linux-gnu \
                     --prefix none --format {p}";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let count = distinct(&checkout.cargo_read(&arguments, TREE_MAX)?);
    println!("the program's tree has {count} crates, the limit is {CRATES_MAX}");
    if count > CRATES_MAX {
        let what = format!("the program's tree has {count} crates, the limit is {CRATES_MAX}");
        findings.push(Finding::new(
            what,
            "drop a dependency or its features: `cargo tree -p pointsman --duplicates`",
        ));
    }
    Ok(findings)
}

/// Lines of `[workspace.dependencies]` with no comment above them since the last blank line.
fn unexplained(manifest: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut inside, mut explained) = (false, false);
    for (index, line) in manifest.lines().map(str::trim).enumerate() {
        if line.starts_with('[') {
            inside = line.starts_with("[workspace.dependencies");
            explained = false;
        } else if line.is_empty() {
            explained = false;
        } else if line.starts_with('#') {
            explained = true;
        } else if inside && !explained {
            let name = line.split([' ', '=']).next().unwrap_or(line);
            let what = format!("Cargo.toml:{}: nothing says why {name} is here", index + 1);
            findings
                .push(Finding::new(what, "put a comment line above it or above its group: what it is for"));
        }
    }
    findings
}

/// Dependencies of a member that have a version of their own.
fn undeclared(path: &str, manifest: &str) -> Vec<Finding> {
    let mut inside = false;
    let mut findings = Vec::new();
    for (index, line) in manifest.lines().map(str::trim).enumerate() {
        if line.starts_with('[') {
            inside = line.contains("dependencies");
        }
        let is_entry = !line.is_empty() && !line.starts_with(['#', '[']);
        if inside && is_entry && !line.contains("workspace = true") {
            let what = format!("{path}:{}: this dependency is not one of the workspace's", index + 1);
            findings
                .push(Finding::new(what, "declare it in the root's Cargo.toml, with a line that says why"));
        }
    }
    findings
}

/// The number of different packages in the output of `cargo tree`, which repeats them marked with `(*)`.
fn distinct(tree: &str) -> usize {
    let packages =
        tree.lines().map(|line| line.trim_end_matches(" (*)").trim()).filter(|line| !line.is_empty());
    packages.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_needs_a_reason() {
        let manifest = "\
[workspace]
members = []

[workspace.dependencies]
# Why.
a = \"1\"
b = { version = \"1\" }

c = \"1\"

[profile.dev]
debug = false
";
        let whats: Vec<String> = unexplained(manifest).into_iter().map(|finding| finding.what).collect();
        assert_eq!(whats, ["Cargo.toml:9: nothing says why c is here"]);
    }

    #[test]
    fn members_have_no_versions_of_their_own() {
        let manifest = "[package]\nversion = \"1\"\n[dependencies]\n# Why.\na.workspace = true\nb = \"1\"\n\
                        c = { workspace = true, features = [\"d\"] }\n[dev-dependencies.e]\nversion = \"1\"\n[lints]\nf = 1\n";
        let whats: Vec<String> = undeclared("m", manifest).into_iter().map(|finding| finding.what).collect();
        assert_eq!(
            whats,
            [6, 9].map(|line| format!("m:{line}: this dependency is not one of the workspace's"))
        );
    }

    #[test]
    fn repeated_packages_count_once_and_versions_apart() {
        assert_eq!(distinct("a v1.0.0\nb v1.0.0\n\nb v1.0.0 (*)\nb v2.0.0\nc v1.0.0 (proc-macro)\n"), 4);
    }
}
