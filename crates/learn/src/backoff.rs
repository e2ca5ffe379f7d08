//! When to ask again after a failure.

use std::time::Duration;

/// How long a failure is believed: it doubles with each one in a row (RFC 9520 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure; RFC 9520 asks for 1 s or more.
    pub first: Duration,
    /// At most; RFC 9520 allows 5 min.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// How long to wait after so many failures in a row; zero after none.
    pub fn after(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        self.first.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_five_minutes() {
        let seconds = |failures| Backoff::default().after(failures).as_secs();
        let expected = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300];
        assert_eq!((0..12).map(seconds).collect::<Vec<_>>(), expected);
        assert_eq!([seconds(32), seconds(33), seconds(u32::MAX)], [300; 3]);
    }
}
