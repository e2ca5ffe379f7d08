//! The floors: a crate may depend only on crates of a lower floor.
//!
//! Two programs of one floor meet on the wire or through `api`, never by an import. Dependencies of
//! tests are free: a test may stand on any floor.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::{BESIDE, Finding};
use crate::checkout::Checkout;

/// Our crates and their floors; a crate that is not built yet may be listed already.
const FLOORS: &[(&str, u8)] = &[
    ("dns", 0),
    ("api", 0),
    ("net", 1),
    ("learn", 1),
    ("rapid", 1),
    ("credit", 1),
    ("tap", 1),
    ("routing", 2),
    ("store", 2),
    ("web", 2),
    ("nameserver", 3),
    ("control", 3),
    ("balancer", 3),
    ("agent", 3),
    ("reverse", 3),
    ("replay", 3),
    ("pointsman", 4),
];

/// `cargo tree` on a resolved workspace takes a second; the first one may fetch the crates.
const TREE_MAX: Duration = Duration::from_secs(300);

/// Finds crates without a floor, crates not named after their folder, and arrows that do not point down.
pub(super) fn find(checkout: &Checkout) -> Result<Vec<Finding>> {
    let arguments = "tree --locked --workspace --all-features --target x86_64-unknown-linux-gnu --no-dedupe \
                     --edges normal,build --depth 1 --prefix depth --format {p}";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let tree = checkout.cargo_read(&arguments, TREE_MAX)?;
    let mut findings = unnamed(&checkout.crate_folders()?, &tree);
    findings.extend(against_floors(&tree));
    Ok(findings)
}

/// Folders of `crates/` that hold no crate of the same name.
fn unnamed(folders: &[String], tree: &str) -> Vec<Finding> {
    let arrows = arrows(tree);
    let absent = folders.iter().filter(|folder| !arrows.contains_key(folder.as_str()));
    let what = |folder| format!("crates/{folder} holds no crate named {folder}");
    absent
        .map(|folder| Finding::new(what(folder), "name the crate as its folder, or remove the folder"))
        .collect()
}

fn against_floors(tree: &str) -> Vec<Finding> {
    let arrows = arrows(tree);
    let floor = |name: &str| FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor);
    let mut findings = Vec::new();
    for (&from, targets) in &arrows {
        let own = floor(from);
        if own.is_none() && !BESIDE.contains(&from) {
            let mend = "give it a floor in FLOORS, xtask/src/check/floors.rs";
            findings.push(Finding::new(format!("the crate {from} has no floor"), mend));
        }
        // Third-party crates are on no floor, and what is beside the house sees all of it.
        let Some(own) = own else { continue };
        for to in targets.iter().filter(|to| arrows.contains_key(*to)) {
            let mend = "move what is needed to a lower floor, or pass it in as an argument";
            match floor(to) {
                Some(below) if below < own => {}
                Some(level) => {
                    let what = format!("{from} (floor {own}) depends on {to} (floor {level})");
                    findings.push(Finding::new(what, mend));
                }
                None => findings
                    .push(Finding::new(format!("{from} depends on {to}, which is beside the house"), mend)),
            }
        }
    }
    findings
}

/// Each member of the workspace with its direct dependencies, from lines such as `0api v0.1.0 (/path)`.
fn arrows(tree: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut arrows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut member = None;
    for line in tree.lines() {
        let name = line.get(1..).and_then(|rest| rest.split(' ').next());
        match (line.as_bytes().first(), name) {
            (Some(b'0'), Some(name)) => {
                member = Some(name);
                arrows.entry(name).or_default();
            }
            (Some(b'1'), Some(name)) => {
                if let Some(targets) = member.and_then(|member| arrows.get_mut(member)) {
                    targets.push(name);
                }
            }
            _ => {}
        }
    }
    arrows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tree: &str, expected: &[&str]) {
        let whats: Vec<String> = against_floors(tree).into_iter().map(|finding| finding.what).collect();
        assert_eq!(whats, expected, "for\n{tree}");
    }

    #[test]
    fn only_downward_arrows_pass() {
        check(
            "0dns v0.1.0 (/r/crates/dns)\n1domain v0.12.3\n\n0routing v0.1.0 (/r)\n1dns v0.1.0 (/r)\n",
            &[],
        );
        check("0fuzz v0.1.0 (/r)\n1pointsman v0.1.0 (/r)\n\n0pointsman v0.1.0 (/r)\n1dns v0.1.0 (/r)\n", &[]);
        check(
            "0dns v0.1.0 (/r)\n1net v0.1.0 (/r)\n\n0net v0.1.0 (/r)",
            &["dns (floor 0) depends on net (floor 1)"],
        );
        check(
            "0dns v0.1.0 (/r)\n1api v0.1.0 (/r)\n\n0api v0.1.0 (/r)",
            &["dns (floor 0) depends on api (floor 0)"],
        );
        check(
            "0net v0.1.0 (/r)\n1fuzz v0.1.0 (/r)\n\n0fuzz v0.1.0 (/r)",
            &["net depends on fuzz, which is beside the house"],
        );
        check("0attic v0.1.0 (/r)\n1net v0.1.0 (/r)\n\n0net v0.1.0 (/r)", &["the crate attic has no floor"]);
    }

    #[test]
    fn a_third_party_crate_with_the_name_of_a_planned_one_is_no_arrow() {
        check("0dns v0.1.0 (/r)\n1agent v9.0.0\n", &[]);
    }

    #[test]
    fn a_folder_must_hold_the_crate_of_its_name() {
        let folders = ["dns".to_owned(), "net".to_owned()];
        let whats: Vec<String> =
            unnamed(&folders, "0dns v0.1.0 (/r)\n").into_iter().map(|found| found.what).collect();
        assert_eq!(whats, ["crates/net holds no crate named net"]);
    }
}
