//! How much of a file was read, on a terminal.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
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
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new(file: File, length: u64) -> Progress {
        let next = io::stderr().is_terminal().then(|| Instant::now() + AFTER);
        Progress { file, length, read: 0, next, is_shown: false }
    }
}

impl Read for Progress {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        if self.next.is_some_and(|next| Instant::now() >= next) {
            self.next = Some(Instant::now() + EVERY);
            self.is_shown = true;
            // A terminal that takes nothing is no reason to stop.
            let _ = write!(io::stderr(), "\r{}", bar(self.read, self.length));
        }
        Ok(read)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
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
