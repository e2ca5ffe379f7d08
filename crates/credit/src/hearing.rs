//! The agent's end: which hellos count.
//!
//! Whoever records hellos can send them again. Under one nonce the sequence tells; that a nonce is new and not an
//! old one again is told by the report which the hello has heard: an agent's sequence begins at a drawn number, so
//! only who has just got a report can name it.

use std::ops::RangeInclusive;

use crate::message::Hello;

/// How many of the last reports to a balancer prove by being named that a hello is new: more than a second of them.
pub const REPORTS_RECENT: u64 = 64;

/// What an agent has heard of one balancer about one service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hearing {
    /// Nonce and sequence of the last hello that counted.
    last: Option<(u64, u64)>,
    /// The nonce before this one, to which nobody goes back.
    left: Option<u64>,
}

/// What became of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The first under a nonce: its counts are no continuation of those before.
    First,
    /// The next one under the same nonce.
    Next,
    /// Repeated, overtaken, or of a balancer that has not heard us: it counts for nothing.
    Old,
}

impl Hearing {
    /// Takes a hello; `reported` are the sequences of the last [`REPORTS_RECENT`] reports and introductions to this
    /// balancer.
    pub fn take(&mut self, hello: &Hello, reported: RangeInclusive<u64>) -> Heard {
        match self.last {
            Some((nonce, sequence)) if nonce == hello.nonce => {
                if hello.sequence <= sequence {
                    return Heard::Old;
                }
                self.last = Some((nonce, hello.sequence));
                Heard::Next
            }
            before => {
                if !reported.contains(&hello.heard) || self.left == Some(hello.nonce) {
                    return Heard::Old;
                }
                if let Some((nonce, _)) = before {
                    self.left = Some(nonce);
                }
                self.last = Some((hello.nonce, hello.sequence));
                Heard::First
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(nonce: u64, sequence: u64, heard: u64) -> Hello {
        let service = "udp:192.0.2.1:53".parse().expect("a service");
        Hello { balancer: 7, nonce, service, sequence, heard, sent: 0, answered: 0 }
    }

    #[test]
    fn only_who_has_heard_us_begins_and_nothing_counts_twice() {
        let mut hearing = Hearing::default();
        for (what, hello, heard) in [
            ("one that was recorded before we were started", hello(1, 500, 12), Heard::Old),
            ("of a balancer that has heard nothing yet", hello(1, 501, 0), Heard::Old),
            ("an answer to our introduction", hello(1, 502, 100), Heard::First),
            ("the next", hello(1, 503, 101), Heard::Next),
            ("reports were lost: the nonce is known", hello(1, 504, 90), Heard::Next),
            ("repeated", hello(1, 504, 101), Heard::Old),
            ("overtaken", hello(1, 503, 101), Heard::Old),
            ("another nonce that has not heard us", hello(2, 1, 90), Heard::Old),
            ("from the future", hello(2, 1, 111), Heard::Old),
            ("a restarted balancer", hello(2, 1, 102), Heard::First),
            ("what the old one has sent", hello(1, 505, 102), Heard::Old),
            ("and goes on", hello(2, 2, 0), Heard::Next),
        ] {
            assert_eq!(hearing.take(&hello, 95..=110), heard, "{what}");
        }
    }
}
