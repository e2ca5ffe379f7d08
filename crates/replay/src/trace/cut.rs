//! A part of a trace: by time, client, name and kind.

use std::str::FromStr;
use std::time::Duration;

use dns::Folded;
use dns::query::HEADER;
use routing::Prefix;

use super::message::Message;
use super::text;

/// What of a trace is kept. All that is said must hold; what is not said, does.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// From this time on.
    pub from: Option<When>,
    /// Up to this time, which is not kept.
    pub to: Option<When>,
    /// From or to a client in one of these networks; in any, where there are none.
    pub clients: Vec<Prefix>,
    /// With a question for a name that ends so, as [`suffix`] has it.
    pub suffix: Option<Vec<u8>>,
    /// Only queries.
    pub only_queries: bool,
}

/// A time in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Since 1970-01-01 00:00 UTC.
    At(Duration),
    /// Since the first message.
    After(Duration),
}

/// Reads a network of clients: an address, or one with the bits that count behind a slash.
///
/// # Errors
/// What was expected.
pub fn network(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("{text} is no network: expected one such as 192.0.2.0/24 or 2001:db8::/32");
    Prefix::read(text).ok_or_else(wrong)
}

/// Reads a name that others end in: in wire form in lower case.
///
/// # Errors
/// What is wrong with it.
pub fn suffix(text: &str) -> Result<Vec<u8>, String> {
    dns::name::folded_from_text(text)
}

impl Cut {
    /// Whether a message is kept; `first` is the time of the trace's first message, from which [`When::After`]
    /// counts.
    pub fn keeps(&self, message: &Message, first: Duration) -> bool {
        let at = |when: When| match when {
            When::At(time) => time,
            When::After(time) => first.saturating_add(time),
        };
        let client = message.client.ip().to_canonical();
        self.from.is_none_or(|from| at(from) <= message.time)
            && self.to.is_none_or(|to| message.time < at(to))
            && (self.clients.is_empty() || self.clients.iter().any(|network| network.contains(client)))
            && !(self.only_queries && message.is_response())
            && self.suffix.as_ref().is_none_or(|suffix| ends(message, suffix))
    }
}

/// Whether the question's name, which responses have too, ends so.
fn ends(message: &Message, suffix: &[u8]) -> bool {
    let has_question = message.octets[4..6] != [0, 0];
    let name = message.octets.get(HEADER..).filter(|_| has_question).and_then(Folded::read);
    name.is_some_and(|name| dns::name::is_within(name.wire(), suffix))
}

impl FromStr for When {
    type Err = String;

    /// Seconds since 1970, or with `+` before them since the first message.
    fn from_str(text: &str) -> Result<When, String> {
        match text.strip_prefix('+') {
            Some(seconds) => text::seconds(seconds).map(When::After),
            None => text::seconds(text).map(When::At),
        }
        .map_err(|_| {
            format!("{text} is no time: expected seconds since 1970, or +SECONDS since the first message")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::trace::{PORT, Trace};

    const LINES: &str = "\
10.5 192.0.2.1:1 udp www.Example.com. A rd
11 192.0.2.200:2 udp example.com. AAAA rd
12 [2001:db8::9]:3 tcp notexample.com. NS -
11.5 198.51.100.1:4 udp . NS -
";

    /// Which of the lines are kept, and of the same as responses.
    fn kept(cut: &Cut) -> [Vec<usize>; 2] {
        let read = |is_response: bool| {
            let trace = Trace::read(Cursor::new(LINES.as_bytes()), PORT).expect("lines");
            trace.map(move |message| {
                let mut message = message.expect("a line");
                message.octets[2] |= u8::from(is_response) << 7;
                message
            })
        };
        [false, true].map(|is_response| {
            (1..)
                .zip(read(is_response))
                .filter(|(_, message)| cut.keeps(message, Duration::from_millis(10_500)))
                .map(|(at, _)| at)
                .collect()
        })
    }

    #[test]
    fn what_is_asked_for_is_kept() {
        let when = |text: &str| Some(text.parse::<When>().expect("a time"));
        let clients =
            |networks: &[&str]| networks.iter().map(|text| network(text).expect("a network")).collect();
        let suffix = |name: &str| Some(super::suffix(name).expect("a name"));
        let cases: [(Cut, &[usize]); 9] = [
            (Cut::default(), &[1, 2, 3, 4]),
            (Cut { from: when("11"), ..Cut::default() }, &[2, 3, 4]),
            (Cut { from: when("+0.5"), to: when("12"), ..Cut::default() }, &[2, 4]),
            (Cut { to: when("+1"), ..Cut::default() }, &[1, 2]),
            (Cut { clients: clients(&["192.0.2.0/25"]), ..Cut::default() }, &[1]),
            (Cut { clients: clients(&["192.0.2.200", "2001:db8::/32"]), ..Cut::default() }, &[2, 3]),
            (Cut { clients: clients(&["0.0.0.0/0"]), ..Cut::default() }, &[1, 2, 4]),
            (Cut { suffix: suffix("EXAMPLE.com"), ..Cut::default() }, &[1, 2]),
            (Cut { suffix: suffix("."), from: when("+1"), ..Cut::default() }, &[3, 4]),
        ];
        for (cut, expected) in cases {
            assert_eq!(kept(&cut), [expected, expected], "{cut:?}");
        }
        assert_eq!(kept(&Cut { only_queries: true, ..Cut::default() }), [vec![1, 2, 3, 4], vec![]]);
    }

    #[test]
    fn what_is_no_time_and_no_network_is_told() {
        for text in ["", "+", "-1", "1s", "1e3", "+1.0000000001"] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
        for text in ["", "/8", "192.0.2.0/33", "::/129", "192.0.2.0/", "192.0.2.0/-1", "example"] {
            assert!(network(text).is_err(), "{text}");
        }
    }
}
