//! How much of a file was read, on a terminal.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a command may take before it says how far it is, and how often it then does.
const AFTER: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

/// The bar's width in columns.
const WIDTH: u64 = 40;

/// A file that says on a terminal how much of it was read.
pub(crate) struct Progress {
    file: File,
    length: u64,
    read: u64,
    next: Option<Instant>,
    line: Line,
}

/// The line on the terminal; whoever has a copy can end it.
#[derive(Clone, Default)]
pub(crate) struct Line(Arc<Mutex<Shown>>);

#[derive(Default, PartialEq)]
enum Shown {
    #[default]
    NotYet,
    There,
    NoMore,
}

impl Line {
    /// Takes the line away for good, so that something else can be printed there.
    pub(crate) fn end(&self) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *shown, Shown::NoMore) == Shown::There {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn show(&self, text: &str) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != Shown::NoMore {
            *shown = Shown::There;
            // A terminal that takes nothing is no reason to stop.
            let _ = write!(io::stderr(), "\r{text}");
        }
    }
}

impl Progress {
    pub(crate) fn new(file: File, length: u64) -> Progress {
        let next = io::stderr().is_terminal().then(|| Instant::now() + AFTER);
        Progress { file, length, read: 0, next, line: Line::default() }
    }

    /// Its line, for whoever prints before all is read.
    pub(crate) fn line(&self) -> Line {
        self.line.clone()
    }
}

impl Read for Progress {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        if self.next.is_some_and(|next| Instant::now() >= next) {
            self.next = Some(Instant::now() + EVERY);
            self.line.show(&bar(self.read, self.length));
        }
        Ok(read)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.line.end();
    }
}

/// A bar; of what has no length, such as a pipe, the octets.
fn bar(read: u64, length: u64) -> String {
    if length == 0 {
        return format!("{} MB read", read / 1_000_000);
    }
    let read = read.min(length);
    let full = (u128::from(read) * u128::from(WIDTH) / u128::from(length)) as usize;
    let percent = read as f64 * 100.0 / length as f64;
    format!("[{}{}] {percent:3.0} %", "#".repeat(full), ".".repeat(WIDTH as usize - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_what_was_read() {
        for (read, length, expected) in [
            (0, 100, format!("[{}]   0 %", ".".repeat(40))),
            (50, 100, format!("[{}{}]  50 %", "#".repeat(20), ".".repeat(20))),
            (u64::MAX, u64::MAX, format!("[{}] 100 %", "#".repeat(40))),
            (200, 100, format!("[{}] 100 %", "#".repeat(40))),
            (12_345_678, 0, "12 MB read".into()),
        ] {
            assert_eq!(bar(read, length), expected);
        }
    }
}
