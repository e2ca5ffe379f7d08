//! Requests counted by top-level domain.

use std::collections::BTreeMap;

use serde_json::json;

/// Top-level domains that are counted one by one: there are some 1,500 today. What is beyond is counted together.
const DOMAINS_MAX: usize = 4096;

/// Requests by top-level domain.
#[derive(Default)]
pub(super) struct Domains {
    counts: BTreeMap<String, u64>,
    unknown: u64,
    other: u64,
}

impl Domains {
    pub(super) fn count(&mut self, name: Option<&str>) {
        let Some(domain) = name.and_then(|name| name.rsplit('.').next()) else { return self.unknown += 1 };
        if let Some(count) = self.counts.get_mut(domain) {
            *count += 1;
        } else if self.counts.len() < DOMAINS_MAX {
            self.counts.insert(domain.to_owned(), 1);
        } else {
            self.other += 1;
        }
    }

    /// All of them, the most frequent first, then what has no name and what was not counted on its own.
    fn rows(&self) -> Vec<(&str, u64)> {
        let mut rows: Vec<(&str, u64)> =
            self.counts.iter().map(|(domain, count)| (domain.as_str(), *count)).collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        rows.extend(
            [("(no name)", self.unknown), ("(other)", self.other)].iter().filter(|(_, count)| *count > 0),
        );
        rows
    }

    pub(super) fn table(&self) -> String {
        let rows = self.rows();
        let all = rows.iter().map(|(_, count)| count).sum::<u64>().max(1);
        let line = |(domain, count): &(&str, u64)| {
            format!("{count:>12} {:>6.2} % {domain}\n", *count as f64 * 100.0 / all as f64)
        };
        rows.iter().map(line).collect()
    }

    pub(super) fn json(&self) -> String {
        let domains: serde_json::Map<_, _> =
            self.counts.iter().map(|(domain, count)| (domain.clone(), json!(count))).collect();
        let all = json!({"top_level_domains": domains, "no_name": self.unknown, "other": self.other});
        all.to_string() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_counted_and_bounded() {
        let mut domains = Domains::default();
        for name in [Some("a.com"), Some("b.com"), Some("localhost"), None] {
            domains.count(name);
        }
        assert_eq!(domains.rows(), [("com", 2), ("localhost", 1), ("(no name)", 1)]);
        assert!(domains.table().starts_with("           2  50.00 % com\n"), "{}", domains.table());
        (0..2 * DOMAINS_MAX).for_each(|i| domains.count(Some(&format!("x.t{i}"))));
        assert_eq!((domains.counts.len(), domains.other), (DOMAINS_MAX, DOMAINS_MAX as u64 + 2));
    }
}
