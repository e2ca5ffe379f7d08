//! How long threads were ready to run, and did not, as the kernel counts it (`schedstat`).

use std::collections::HashMap;
use std::fs;

use anyhow::{Context, Result};

/// What was counted of each thread of a process.
#[derive(Debug)]
pub(super) struct Waits(HashMap<String, u64>);

impl Waits {
    /// What is counted now.
    ///
    /// # Errors
    /// Where the process is not there, or the kernel does not count.
    pub(super) fn of(process: u32) -> Result<Waits> {
        let folder = format!("/proc/{process}/task");
        let mut waits = HashMap::new();
        for thread in fs::read_dir(&folder).with_context(|| folder.clone())?.flatten() {
            // A thread may have ended since.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            waits.insert(thread.file_name().to_string_lossy().into_owned(), waited(&text).context(text)?);
        }
        Ok(Waits(waits))
    }

    /// For how many seconds the thread that has waited most since then has waited.
    ///
    /// # Errors
    /// As of [`Waits::of`].
    pub(super) fn since(&self, process: u32) -> Result<f64> {
        let now = Waits::of(process)?;
        let since = |(thread, now): (&String, &u64)| now - self.0.get(thread).copied().unwrap_or(0).min(*now);
        Ok(now.0.iter().map(since).max().unwrap_or(0) as f64 / 1e9)
    }
}

/// The second number of three: nanoseconds spent in a queue of the scheduler.
fn waited(text: &str) -> Option<u64> {
    text.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_how_long_threads_wait() {
        assert_eq!(waited("326999 201360 3\n"), Some(201_360));
        assert_eq!(waited("326999"), None);
        let process = std::process::id();
        let waits = Waits::of(process).expect("it is us");
        assert!(!waits.0.is_empty());
        assert!(waits.since(process).expect("it is us") >= 0.0);
        let before = Waits(HashMap::from([("1".to_owned(), u64::MAX)]));
        assert!(before.since(process).is_ok());
    }
}
