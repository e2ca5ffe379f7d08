//! What is seen of a replay while it runs.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::Instant;

use replay::send::Live;

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
        let read = |cell: &std::sync::atomic::AtomicU64| cell.load(Ordering::Relaxed);
        let (sent, seconds) = (read(&live.sent), self.began.elapsed().as_secs_f64());
        // A terminal that takes nothing is no reason to stop.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{seconds:6.1} s  {sent} sent ({:.0}/s)  {} answered  {} lost  {} late  p99 of lateness {:.0} us",
            sent as f64 / seconds.max(f64::MIN_POSITIVE),
            read(&live.answered),
            read(&live.lost),
            read(&live.late),
            read(&live.lateness_p99) as f64 / 1e3,
        );
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}
