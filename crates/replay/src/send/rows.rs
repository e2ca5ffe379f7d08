//! The log: one row a query.

use std::fmt::{self, Write as _};
use std::time::Duration;

use dns::query::HEADER;
use dns::{Folded, name};

use super::carrier::Carrier;
use super::pending::Asked;
use super::{Log, nanos};

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
    push_number(text, planned.index);
    let latency = answered.map(|at| at.saturating_sub(planned.due));
    for time in [Some(planned.due), Some(asked.sent), latency] {
        text.push('\t');
        match time {
            Some(nanos) => push_micros(text, nanos),
            None => text.push('-'),
        }
    }
    write!(text, "\t{}\t", planned.message.client.ip())?;
    push_number(text, planned.copy.into());
    let first = if asked.is_retry { Carrier::Udp } else { asked.carrier };
    let again = if asked.is_retry { "+tcp" } else { "" };
    write!(text, "\t{}{again}\t{result}\t", first.name())?;
    let mut name = Folded::root();
    match planned.message.query(&mut name) {
        Some(query) => {
            name::push_text(text, &query.head[HEADER..HEADER + query.name.wire_length()]);
            write!(text, "\t{}\t", query.rtype)?;
        }
        None => text.push_str("-\t-\t"),
    }
    push_number(text, nanos(round_trip) / 1_000);
    text.push('\n');
    Ok(())
}

/// Adds a number: in a row there are many, and formatting takes several times as long.
fn push_number(text: &mut String, number: u64) {
    text.push_str(itoa::Buffer::new().format(number));
}

/// Adds nanoseconds as microseconds with three decimals.
fn push_micros(text: &mut String, nanos: u64) {
    push_number(text, nanos / 1_000);
    text.push('.');
    // A number with a digit before those that are wanted.
    text.push_str(&itoa::Buffer::new().format(1_000 + nanos % 1_000)[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Planned;
    use crate::trace::{PORT, Trace};

    #[test]
    fn a_row_has_all_of_a_query() {
        let line = "1.5 192.0.2.1:5353 udp WWW.ex\\009ample. MX rd,edns=1232\n";
        let mut trace = Trace::read(line.as_bytes(), PORT).expect("a line");
        let message = trace.next().expect("a query").expect("it is one");
        let planned = Planned {
            due: 5_000,
            index: 12,
            client: 0,
            copy: 3,
            source: None,
            message: message.into(),
            recorded: None,
        };
        let mut asked = Asked {
            planned,
            sent: 7_089,
            until: 0,
            question: None,
            is_retry: false,
            again: 0,
            is_quiet: true,
            carrier: Carrier::Tls,
            slot: None,
        };
        let shown = |asked: &Asked, answered, result: &str, millis| {
            let mut text = String::new();
            row(&mut text, asked, answered, result, Duration::from_millis(millis))
                .expect("a String takes all");
            text
        };
        let name = "WWW.ex\\009ample.";
        assert_eq!(
            shown(&asked, Some(1_005_000), "NXDOMAIN", 20),
            format!("12\t5.000\t7.089\t1000.000\t192.0.2.1\t3\ttls\tNXDOMAIN\t{name}\tMX\t20000\n")
        );
        asked.is_retry = true;
        assert_eq!(
            shown(&asked, None, "timeout", 0),
            format!("12\t5.000\t7.089\t-\t192.0.2.1\t3\tudp+tcp\ttimeout\t{name}\tMX\t0\n")
        );
    }

    #[test]
    fn nanoseconds_are_microseconds_with_decimals() {
        for (nanos, shown) in [(0, "0.000"), (7, "0.007"), (1_000, "1.000"), (12_345_678, "12345.678")] {
            let mut text = String::new();
            push_micros(&mut text, nanos);
            assert_eq!(text, shown);
        }
    }
}
