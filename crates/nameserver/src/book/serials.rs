//! Serial numbers of zones that other programs change in the store: they need not care for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Faults;
use store::Change;

use super::{Book, folded};
use crate::generation::Generation;
use crate::transfer::serial::is_greater;

/// What became of zones that were changed and have not got a greater serial number.
#[derive(Debug, Default, PartialEq)]
pub struct Raised {
    /// What has to be stored: zones that have the number after their last one now.
    pub changes: Vec<Change>,
    /// Zones that keep the number that they have: they are sealed ([`Zone::is_sealed`](crate::zone::Zone::is_sealed)).
    pub kept: Vec<String>,
}

impl Book {
    /// Holds zones to serial numbers that grow with each change (RFC 1982): a secondary that sees the same or a smaller
    /// one never takes the change. `before` has zones as they were published last, by name; `served` is what this name
    /// server has of them.
    ///
    /// Whether anybody follows a zone is not asked, for several name servers share the store, and each knows only its
    /// own secondaries.
    ///
    /// # Errors
    /// Where a zone cannot be read again.
    pub fn raise_serials(
        &mut self,
        before: &BTreeMap<String, String>,
        served: &Generation,
    ) -> Result<Raised, Faults> {
        let mut raised = Raised::default();
        for (name, text) in before {
            let origin = folded(name, "stored zone")?;
            let Some(zone) = self.generation.zones.all().get(&origin, &self.generation.hash) else {
                continue;
            };
            // What could not be read was not served.
            let Ok(last) = self.stored_zone(name, text) else { continue };
            if is_greater(zone.serial_given(), last.serial()) {
                continue;
            }
            let text = zone.to_text();
            if last.to_text() == text {
                continue;
            }
            if zone.is_sealed() {
                raised.kept.push(name.clone());
                continue;
            }
            let text = with_serial(&text, last.serial().wrapping_add(1));
            let served = served.zones.all().get(&origin, &served.hash);
            self.place_zone(self.stored_zone(name, &text)?, served.cloned(), None)?;
            self.remember_zone(&origin, served.map(Arc::as_ref), None);
            raised.changes.push(Change::PutZone { origin: name.clone(), text });
        }
        Ok(raised)
    }
}

/// Canonical text of a zone under another serial number.
fn with_serial(text: &str, serial: u32) -> String {
    // The SOA record is the first line, and the number the fifth word from its end (RFC 1035 §3.3.13).
    let (soa, rest) = text.split_once('\n').expect("a zone has an SOA record");
    let mut words: Vec<&str> = soa.split(' ').collect();
    let (serial, at) = (serial.to_string(), words.len() - 5);
    words[at] = &serial;
    format!("{}\n{rest}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{Condition, Edit};
    use crate::generation::Settings;

    /// A zone with a serial number and further records.
    fn zone(serial: u32, more: &str) -> String {
        format!("$ORIGIN a\\ b.example.\n$TTL 60\n@ SOA ns h\\.m {serial} 2 3 4 5\n@ NS ns\n{more}")
    }

    const NAME: &str = "a\\ b.example.";
    const KEY: &str = "@ DNSKEY 256 3 13 AAAA\n";
    const DIGEST: &str = "@ ZONEMD 1 1 241 00112233445566778899aabbccddeeff\n";

    #[test]
    fn a_zone_that_changes_without_its_serial_number_gets_the_next_one() {
        for (before, after, expected) in [
            (zone(7, ""), zone(7, "w TXT x\n"), Ok(8)),
            (zone(7, "w TXT x\n"), zone(7, ""), Ok(8)),
            (zone(7, ""), zone(3, "w TXT x\n"), Ok(8)),
            (zone(7, ""), zone(3, ""), Ok(8)),
            (zone(u32::MAX, ""), zone(u32::MAX, "w TXT x\n"), Ok(0)),
            (zone(0, ""), zone(1 << 31, "w TXT x\n"), Ok(1)),
            // It has got a greater one, or has not changed.
            (zone(7, ""), zone(8, "w TXT x\n"), Err(8)),
            (zone(7, ""), zone(99, ""), Err(99)),
            (zone(7, ""), zone(7, "; the same\n"), Err(7)),
            // It is sealed.
            (zone(7, KEY), zone(7, &format!("{KEY}w TXT x\n")), Err(7)),
            (zone(7, DIGEST), zone(7, &format!("{DIGEST}w TXT x\n")), Err(7)),
            (zone(7, KEY), zone(7, "w TXT x\n"), Ok(8)),
            // What it was before could not be served.
            ("nonsense".into(), zone(7, ""), Err(7)),
        ] {
            let mut book = Book::empty(1, Settings::default());
            book.load_zone(NAME, &after).unwrap();
            let policy = r#"{"names":["p.a\\032b.example"],"servers":[{"address":"192.0.2.1"}]}"#;
            let edit = Edit::policy(None, "policy", policy.into(), Condition::Always).unwrap();
            let is_steered = !after.contains(KEY);
            if is_steered {
                book.apply(edit).unwrap();
            }
            let served = book.generation.clone();
            let raised = book.raise_serials(&[(NAME.to_owned(), before.clone())].into(), &served).unwrap();
            let (stored, _) = book.zone(NAME).unwrap();
            let zone = book.generation.zones.all().iter().next().unwrap();
            let case = format!("{before}{after}{stored}");
            assert_eq!(
                (zone.serial(), zone.is_steered()),
                (expected.unwrap_or_else(|is| is), is_steered),
                "{case}"
            );
            let is_sealed = after.contains(KEY) || after.contains(DIGEST);
            let (changes, kept) = match expected {
                Ok(_) => (vec![Change::PutZone { origin: NAME.into(), text: stored.clone() }], vec![]),
                Err(_) => (vec![], if is_sealed { vec![NAME.to_owned()] } else { vec![] }),
            };
            assert_eq!(raised, Raised { changes, kept }, "{case}");
            // All else is as the program left it.
            let mut as_it_was = Book::empty(1, Settings::default());
            as_it_was.load_zone(NAME, &after).unwrap();
            let (text, _) = as_it_was.zone(NAME).unwrap();
            assert_eq!(stored, with_serial(&text, zone.serial()), "{case}");
        }
    }

    #[test]
    fn a_zone_that_is_no_more_has_no_serial_number() {
        let mut book = Book::empty(1, Settings::default());
        let served = book.generation.clone();
        let raised = book.raise_serials(&[(NAME.to_owned(), zone(7, ""))].into(), &served);
        assert_eq!(raised, Ok(Raised::default()));
    }
}
