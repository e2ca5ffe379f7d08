//! The log: one row a query.

use std::fmt::Write as _;
use std::time::Duration;

use dns::query::HEADER;
use dns::{Folded, name};

use super::Log;
use super::carrier::Carrier;
use super::pending::Asked;

/// Octets of rows that a thread collects before it writes them.
const ROWS: usize = 64 << 10;

/// The heading of the log.
pub const HEADING: &str =
    "index\tdue_us\tsent_us\tlatency_us\tclient\tcopy\ttransport\tresult\tname\ttype\trtt_us\n";

/// The rows of a thread that are not written yet.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    log: &'a Log,
    text: String,
}

impl<'a> Rows<'a> {
    /// None yet.
    pub(super) fn new(log: &'a Log) -> Rows<'a> {
        Rows { log, text: String::new() }
    }

    /// Adds the row of a query: when it was answered, and its code or why it was lost.
    pub(super) fn add(&mut self, asked: &Asked, answered: Option<u64>, result: &str, round_trip: Duration) {
        if !self.log.is_wanted {
            return;
        }
        let planned = &asked.planned;
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        let latency =
            answered.map_or("-".into(), |at| format!("{:.3}", micros(at.saturating_sub(planned.due))));
        let mut name = Folded::root();
        let (asked_name, rtype) = match planned.message.query(&mut name) {
            Some(query) => {
                let asked_name = &query.head[HEADER..HEADER + query.name.wire_length()];
                (name::to_text(asked_name).replace('\t', "\\009"), query.rtype.to_string())
            }
            None => ("-".into(), "-".into()),
        };
        let first = if asked.is_retry { Carrier::Udp } else { asked.carrier };
        let again = if asked.is_retry { "+tcp" } else { "" };
        let _ = writeln!(
            self.text,
            "{}\t{:.3}\t{:.3}\t{latency}\t{}\t{}\t{}{again}\t{result}\t{asked_name}\t{rtype}\t{}",
            planned.index,
            micros(planned.due),
            micros(asked.sent),
            planned.message.client.ip(),
            planned.copy,
            first.name(),
            round_trip.as_micros(),
        );
        if self.text.len() >= ROWS {
            self.write();
        }
    }

    /// Writes what is left.
    pub(super) fn write(&mut self) {
        self.log.write(self.text.as_bytes());
        self.text.clear();
    }
}
