//! The log: one row a query.

use std::fmt::{self, Write as _};
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
    pub(super) fn add(
        &mut self,
        asked: &Asked,
        answered: Option<u64>,
        result: impl fmt::Display,
        round_trip: Duration,
    ) {
        if !self.log.is_wanted {
            return;
        }
        // A String takes all that is written to it.
        let _ = row(&mut self.text, asked, answered, result, round_trip);
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

fn row(
    text: &mut String,
    asked: &Asked,
    answered: Option<u64>,
    result: impl fmt::Display,
    round_trip: Duration,
) -> fmt::Result {
    let planned = &asked.planned;
    write!(text, "{}\t{}\t{}\t", planned.index, Micros(planned.due), Micros(asked.sent))?;
    match answered {
        Some(at) => write!(text, "{}", Micros(at.saturating_sub(planned.due)))?,
        None => text.push('-'),
    }
    let first = if asked.is_retry { Carrier::Udp } else { asked.carrier };
    let again = if asked.is_retry { "+tcp" } else { "" };
    let client = planned.message.client.ip();
    write!(text, "\t{client}\t{}\t{}{again}\t{result}\t", planned.copy, first.name())?;
    let mut name = Folded::root();
    match planned.message.query(&mut name) {
        Some(query) => {
            let asked_name = &query.head[HEADER..HEADER + query.name.wire_length()];
            write!(text, "{}\t{}", name::to_text(asked_name).replace('\t', "\\009"), query.rtype)?;
        }
        None => text.push_str("-\t-"),
    }
    writeln!(text, "\t{}", round_trip.as_micros())
}

/// Nanoseconds, shown as microseconds with three decimals: exactly, and sooner than as a float.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_microseconds_with_decimals() {
        for (nanos, shown) in [(0, "0.000"), (7, "0.007"), (1_000, "1.000"), (12_345_678, "12345.678")] {
            assert_eq!(Micros(nanos).to_string(), shown);
        }
    }
}
