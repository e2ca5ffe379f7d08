//! ARCHITECTURE.md: short, and its code map names exactly the crates that there are.

use std::collections::BTreeSet;

use anyhow::Result;

use super::Finding;
use crate::checkout::Checkout;

/// The longest ARCHITECTURE.md, in lines: it is to be read in one sitting.
const LINES_MAX: usize = 250;

/// Finds crates that the map leaves out, and crates on the map that are gone.
pub(super) fn find(checkout: &Checkout) -> Result<Vec<Finding>> {
    let page = match checkout.text("ARCHITECTURE.md") {
        Ok(page) => page,
        Err(error) => {
            return Ok(vec![Finding::new(format!("{error:#}"), "write it, with a section \"Code map\"")]);
        }
    };
    Ok(against_page(&page, &checkout.crate_folders()?))
}

fn against_page(page: &str, folders: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = page.lines().count();
    if lines > LINES_MAX {
        let what = format!("ARCHITECTURE.md has {lines} lines, the limit is {LINES_MAX}");
        findings.push(Finding::new(what, "shorten it, or move detail to docs/"));
    }
    let mapped = mapped(page);
    for folder in folders.iter().filter(|folder| !mapped.contains(folder.as_str())) {
        let mend = format!("describe `crates/{folder}` in the section \"Code map\"");
        findings.push(Finding::new(format!("ARCHITECTURE.md's code map leaves out crates/{folder}"), mend));
    }
    for gone in mapped.iter().filter(|name| !folders.iter().any(|folder| folder == *name)) {
        let what = format!("ARCHITECTURE.md's code map names crates/{gone}, which is not there");
        findings.push(Finding::new(what, "take it off the map; the map shows what is, not what is planned"));
    }
    findings
}

/// The names behind `crates/` in the section headed "Code map", its subsections included.
fn mapped(page: &str) -> BTreeSet<&str> {
    let level = |line: &str| line.bytes().take_while(|byte| *byte == b'#').count();
    let is_map =
        |line: &str| level(line) > 0 && line.trim_start_matches('#').trim().eq_ignore_ascii_case("code map");
    let mut lines = page.lines().skip_while(|line| !is_map(line));
    let own_level = lines.next().map_or(0, level);
    let section = lines.take_while(|line| level(line) == 0 || level(line) > own_level);
    let name_end = |rest: &str| rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)));
    section
        .flat_map(|line| line.split("crates/").skip(1))
        .map(|rest| &rest[..name_end(rest).unwrap_or(rest.len())])
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, expected: &[&str]) {
        let folders = ["dns".to_owned(), "net".to_owned()];
        let whats: Vec<String> =
            against_page(page, &folders).into_iter().map(|finding| finding.what).collect();
        assert_eq!(whats, expected, "for\n{page}");
    }

    #[test]
    fn map_and_crates_name_each_other() {
        check("# A\n## Code map\nall in `crates/`:\n- `crates/dns`: names\n### Rim\n- `crates/net/`\n", &[]);
        check(
            "# A\n`crates/dns`\n## Code map\n- `crates/net`, `crates/attic`\n## Later\n`crates/balancer`\n",
            &[
                "ARCHITECTURE.md's code map leaves out crates/dns",
                "ARCHITECTURE.md's code map names crates/attic, which is not there",
            ],
        );
        let absent = "ARCHITECTURE.md's code map leaves out crates/";
        check("# A\ncrates/dns crates/net\n", &[&format!("{absent}dns"), &format!("{absent}net")]);
    }

    #[test]
    fn the_page_is_short() {
        let map = "# Code map\ncrates/dns crates/net\n";
        check(&(map.to_owned() + &"\n".repeat(LINES_MAX - 2)), &[]);
        check(
            &(map.to_owned() + &"\n".repeat(LINES_MAX - 1)),
            &["ARCHITECTURE.md has 251 lines, the limit is 250"],
        );
    }
}
