//! `pointsman reverse filter`: names in the place of addresses in a log, from a running service's cache.
//!
//! Lines are taken in batches; the different addresses of one are asked for at once over the Redis protocol, and its lines
//! are written in order. Nothing is waited for but the service's answers, which come at once.
//!
//! - [`lines`]: what is read, in batches; [`service`]: who is asked for names;
//! - [`noted`]: how far it came, for `--resume`; [`domains`]: what `--summary` counts.

mod domains;
mod lines;
mod noted;
mod service;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use replay::remarks::counted;

use crate::command::trace::progress::Progress;
use crate::failure::Failure;
use domains::Domains;
use lines::{Batch, LINE_MAX, Lines, is_within};
use noted::Noted;
use service::{RESTART_MAX, Service};

/// The arguments of `reverse filter`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  pointsman reverse filter < access.log > named.log")]
pub(crate) struct Filter {
    /// A running service's address for the Redis protocol (`pointsman reverse --resp ADDR`)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6379")]
    resp: SocketAddr,
    /// Which field of a line is the address; fields are separated by blanks
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    field: u16,
    /// How long the lines of a batch wait for names that are not known yet
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = crate::config::kind::time)]
    wait: Duration,
    /// Note in this file how far it came, and go on from there; stdin and stdout must be files
    #[arg(long, value_name = "FILE", conflicts_with = "summary")]
    resume: Option<PathBuf>,
    /// Instead of lines, print requests by top-level domain
    #[arg(long, value_name = "BY", value_parser = ["tld"])]
    summary: Option<String>,
    /// Print the summary as JSON
    #[arg(long, requires = "summary")]
    json: bool,
}

impl Filter {
    /// Names stdin's lines.
    ///
    /// # Errors
    /// [`Failure`]; what was written until then is whole lines.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut service = Service::connect(self.resp, RESTART_MAX)?;
        let (mut lines, mut out, mut noted) = self.begin()?;
        let (mut domains, mut batch) = (Domains::default(), Batch::default());
        'input: while lines.batch(&mut batch).map_err(unreadable)? {
            let named = service.names(&batch.addresses(self.field), self.wait);
            let names = named.map_err(|failure| unanswered(failure, lines.held(&batch)))?;
            for line in &batch.lines {
                // What is still being written is named when it is whole.
                if noted.is_some() && line.is_unfinished() {
                    break 'input;
                }
                let place = line.address(self.field);
                let name = place.as_ref().and_then(|(ip, _)| names.get(ip)).map(String::as_str);
                if self.summary.is_some() {
                    if line.is_request() {
                        domains.count(name);
                    }
                    continue;
                }
                let named = match (place, name) {
                    (Some((_, at)), Some(name)) => {
                        &[&line.octets[..at.start], name.as_bytes(), &line.octets[at.end..]].concat()
                    }
                    _ => &line.octets,
                };
                out.write_all(named).map_err(|cause| Failure::output(&cause))?;
                if let Some(noted) = &mut noted {
                    noted.input += line.octets.len() as u64;
                    noted.output += named.len() as u64;
                }
            }
            // Whoever reads a pipe has lines as they come.
            out.flush().map_err(|cause| Failure::output(&cause))?;
            if let (Some(noted), Some(path)) = (&mut noted, &self.resume) {
                noted.note(path, &mut out, false)?;
            }
        }
        // With it ends the progress bar.
        drop(lines);
        if self.summary.is_some() {
            let text = if self.json { domains.json() } else { domains.table() };
            out.write_all(text.as_bytes()).map_err(|cause| Failure::output(&cause))?;
        }
        if let (Some(noted), Some(path)) = (&mut noted, &self.resume) {
            noted.note(path, &mut out, true)?;
        }
        out.flush().map_err(|cause| Failure::output(&cause))?;
        service.tell_restarts();
        Ok(())
    }

    /// Opens stdin and stdout, with `--resume` where it was noted that a run before had come.
    fn begin(&self) -> Result<Begun, Failure> {
        let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(unreadable)?);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(|c| Failure::output(&c))?);
        let length = input.metadata().map(|file| if file.is_file() { file.len() } else { 0 });
        let length = length.map_err(unreadable)?;
        let noted = match &self.resume {
            Some(path) => Some(Noted::begin(path, &mut input, &output, length)?),
            None => None,
        };
        let begin = noted.as_ref().map_or(0, |noted| noted.input);
        let within = is_within(&input, begin).map_err(unreadable)?;
        let progress = Progress::new(input, length.saturating_sub(begin));
        let lines = Lines { from: BufReader::with_capacity(LINE_MAX, progress), within };
        Ok((lines, BufWriter::with_capacity(LINE_MAX, output), noted))
    }
}

/// What is read, what is written to, and how far it is noted that this has come.
type Begun = (Lines<Progress>, BufWriter<File>, Option<Noted>);

fn unreadable(cause: io::Error) -> Failure {
    Failure::Failed(format!("stdin cannot be read: {cause}"))
}

/// A service that does not answer, and how many lines that leaves without an answer.
fn unanswered(failure: Failure, lines: u64) -> Failure {
    match failure {
        Failure::Unreachable(what) => {
            Failure::Unreachable(format!("{what}; {} of stdin not answered", counted(lines, "line")))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lines::LINES_MAX;

    #[test]
    fn lines_without_an_answer_are_told() {
        for (text, expected) in [
            ("192.0.2.1 a\n", "1 line"),
            ("192.0.2.1 a\n192.0.2.2 b", "2 lines"),
            // A batch and what was read ahead.
            (&"192.0.2.1\n".repeat(LINES_MAX + 7), "1031 lines"),
        ] {
            let from = BufReader::with_capacity(LINE_MAX, text.as_bytes());
            let (mut lines, mut batch) = (Lines { from, within: false }, Batch::default());
            assert!(lines.batch(&mut batch).unwrap());
            let failure = unanswered(Failure::Unreachable("it is away".into()), lines.held(&batch));
            assert_eq!(failure.messages(), [format!("it is away; {expected} of stdin not answered")]);
        }
    }
}
