//! What is seen of a replay while it runs.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use replay::send::Live;

use crate::terminal;

/// The live line on a terminal.
pub(super) struct Line {
    began: Instant,
}

impl Line {
    /// Begins, where there is a terminal.
    pub(super) fn begin() -> Option<Line> {
        io::stderr().is_terminal().then(|| Line { began: Instant::now() })
    }

    /// Writes the numbers over those before.
    pub(super) fn show(&self, live: &Live) {
        let told = told(live, self.began.elapsed().as_secs_f64());
        // A terminal that takes nothing is no reason to stop.
        let _ = write!(io::stderr(), "\r\x1b[K{}", terminal::cut(&told, terminal::size_of(io::stderr()).0));
    }
}

/// The numbers, so many seconds after the beginning.
fn told(live: &Live, seconds: f64) -> String {
    let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
    let sent = read(&live.sent);
    format!(
        "{seconds:6.1} s  {sent} sent ({:.0}/s)  {} answered  {} lost  {} late  p99 of lateness {:.0} us",
        sent as f64 / seconds.max(f64::MIN_POSITIVE),
        read(&live.answered),
        read(&live.lost),
        read(&live.late),
        read(&live.lateness_p99) as f64 / 1e3,
    )
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_rate_what_came_of_it_and_lateness() {
        let live = Live::default();
        for (cell, value) in [
            (&live.sent, 500),
            (&live.answered, 480),
            (&live.lost, 7),
            (&live.late, 3),
            (&live.lateness_p99, 81_500),
        ] {
            cell.store(value, Ordering::Relaxed);
        }
        let expected = "   2.5 s  500 sent (200/s)  480 answered  7 lost  3 late  p99 of lateness 82 us";
        assert_eq!(told(&live, 2.5), expected);
    }
}
