//! What probes found of one server, and what follows from it: pure, time is an argument.

use std::time::Duration;

use api::{ProbeResult, ProbeVerdict};

/// The longest detail of a result that is kept, in characters: a line of a table.
pub const DETAIL_MAX: usize = 120;

/// Why a probe passed or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The connection was made.
    Connected,
    /// The status code of the answer decided.
    Status,
    /// The exit code of the command decided.
    Exit,
    /// The connection was refused.
    Refused,
    /// There is no way to the server.
    Unreachable,
    /// It took too long.
    Timeout,
    /// The connection ended before the answer did.
    Closed,
    /// TLS was not agreed on, or the certificate is not valid.
    Tls,
    /// The answer is none.
    Malformed,
    /// A signal ended the command.
    Signal,
    /// The command could not be started.
    NotStarted,
}

impl Reason {
    /// The word for it, as the API and metrics have it.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Connected => "connected",
            Reason::Status => "status",
            Reason::Exit => "exit",
            Reason::Refused => "refused",
            Reason::Unreachable => "unreachable",
            Reason::Timeout => "timeout",
            Reason::Closed => "closed",
            Reason::Tls => "tls",
            Reason::Malformed => "malformed",
            Reason::Signal => "signal",
            Reason::NotStarted => "not_started",
        }
    }
}

/// What came of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it passed.
    pub passed: bool,
    /// What it passed or failed by.
    pub reason: Reason,
    /// The same at length.
    pub detail: String,
}

impl Outcome {
    /// A probe that passed.
    pub fn passed(reason: Reason, detail: impl Into<String>) -> Outcome {
        Outcome { passed: true, reason, detail: detail.into() }
    }

    /// A probe that failed.
    pub fn failed(reason: Reason, detail: impl Into<String>) -> Outcome {
        Outcome { passed: false, reason, detail: detail.into() }
    }
}

/// What is held of a server by one probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whether the server may be drawn, as far as this probe goes.
    pub verdict: ProbeVerdict,
    /// Since when, in seconds since 1970; 0 while unknown.
    pub since: u64,
    /// What the last probe found.
    pub last: Option<ProbeResult>,
    /// Why there is nothing to probe with.
    pub message: Option<String>,
    /// How many results in a row spoke against the verdict.
    against: u32,
}

impl Record {
    /// What was held before this process began.
    pub fn remembered(failing: bool, since: u64) -> Record {
        let verdict = if failing { ProbeVerdict::Failing } else { ProbeVerdict::Passing };
        Record { verdict, since, ..Record::default() }
    }

    /// Takes a result that came at `at`, in seconds since 1970, after `took`; returns whether the verdict changed.
    ///
    /// The first result of a server of which nothing is known decides alone; after that it takes `rise` passes in a
    /// row, or `fall` failures.
    pub fn note(&mut self, outcome: Outcome, took: Duration, at: u64, (rise, fall): (u32, u32)) -> bool {
        let Outcome { passed, reason, detail } = outcome;
        let said = if passed { ProbeVerdict::Passing } else { ProbeVerdict::Failing };
        let needed = match self.verdict {
            ProbeVerdict::Unknown => 1,
            ProbeVerdict::Failing => rise,
            ProbeVerdict::Passing => fall,
        };
        self.message = None;
        self.last = Some(ProbeResult {
            passed,
            reason: reason.word().into(),
            detail: shortened(&detail),
            at,
            took_ms: took.as_millis() as u64,
        });
        self.against = if said == self.verdict { 0 } else { self.against + 1 };
        if self.against == 0 || self.against < needed {
            return false;
        }
        (self.verdict, self.since, self.against) = (said, at, 0);
        true
    }

    /// Forgets the verdict, for there is nothing any more to probe with; returns whether it was another one.
    pub fn give_up(&mut self, message: &str) -> bool {
        let before = std::mem::take(self);
        self.message = Some(message.into());
        before.verdict != ProbeVerdict::Unknown
    }
}

/// One line of at most [`DETAIL_MAX`] characters, whatever a server or a command sent.
fn shortened(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DETAIL_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds results, `+` passed and `-` failed, a second each; returns the verdict after each: u, p or f.
    fn verdicts(mut record: Record, results: &str, rise: u32, fall: u32) -> String {
        let mut at = 0;
        let mut said = String::new();
        for result in results.chars() {
            at += 1;
            let (before, since) = (record.verdict, record.since);
            let outcome = match result {
                '+' => Outcome::passed(Reason::Connected, ""),
                _ => Outcome::failed(Reason::Refused, ""),
            };
            let changed = record.note(outcome, Duration::ZERO, at, (rise, fall));
            assert_eq!(changed, record.verdict != before);
            assert_eq!(record.since, if changed { at } else { since });
            said.push(record.verdict.word().chars().next().expect("a word"));
        }
        said
    }

    #[test]
    fn rise_and_fall_count_results_in_a_row() {
        let unknown = Record::default;
        for (record, results, rise, fall, expected) in [
            (unknown(), "+", 3, 3, "p"),
            (unknown(), "-", 3, 3, "f"),
            (unknown(), "+--+---", 2, 3, "ppppppf"),
            (unknown(), "-+-++", 2, 3, "ffffp"),
            (unknown(), "+-+-+-", 1, 1, "pfpfpf"),
            (unknown(), "+---++-+++", 3, 2, "ppfffffffp"),
            (Record::remembered(true, 9), "++", 2, 3, "fp"),
            (Record::remembered(false, 9), "--+---", 2, 3, "pppppf"),
        ] {
            assert_eq!(verdicts(record, results, rise, fall), expected, "{results} rise {rise} fall {fall}");
        }
    }

    #[test]
    fn a_detail_is_one_short_line_and_a_probe_that_is_gone_leaves_no_verdict() {
        let mut record = Record::default();
        let detail = format!("\x1b[31mCRITICAL\t{}\nmore", "é".repeat(500));
        record.note(Outcome::failed(Reason::Exit, detail), Duration::from_millis(1_500), 7, (1, 1));
        let last = record.last.clone().expect("a result");
        assert_eq!(last.detail.chars().count(), DETAIL_MAX);
        assert!(last.detail.starts_with(" [31mCRITICAL é"), "{}", last.detail);
        assert_eq!((last.took_ms, last.at, last.reason.as_str()), (1_500, 7, "exit"));
        assert!(record.give_up("gone") && !record.give_up("gone"));
        assert_eq!(
            (record.verdict, record.last, record.message.as_deref()),
            (ProbeVerdict::Unknown, None, Some("gone"))
        );
    }
}
