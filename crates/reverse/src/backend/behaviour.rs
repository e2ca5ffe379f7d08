//! How the back end learns, as an operator chooses it.

use std::time::Duration;

use learn::{Order, Repeats};

/// How the back end learns.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// How long after one question the next may be asked, in the long run.
    pub interval: Duration,
    /// How many questions may be asked at once after a pause.
    pub burst: u32,
    /// Addresses that wait at most.
    pub stack: usize,
    /// Addresses that wait for one client at most.
    pub per_client: usize,
    /// How long one question waits for its answer.
    pub timeout: Duration,
    /// How often an address is asked for before it has failed.
    pub tries: u32,
    /// How long names are kept.
    pub ttl: Ttl,
    /// Whether absences are kept as long as names, or only as long as an empty entry.
    pub negative: bool,
    /// Whether it is asked if names lead back to their address; not with `paper`.
    pub confirm: bool,
    /// Whether it is asked if there is anything in the prefix of an address without a name; only where `negative`, and
    /// not with `paper`.
    pub prefixes: bool,
    /// How Rapid DNS did it, instead of our way: one stack for all, no retries.
    pub paper: Option<Paper>,
}

/// What Rapid DNS did; the default is what was published, the rest is what its section 10 asks about.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// What becomes of an address that waits already; published: it waits twice.
    pub repeats: Repeats,
    /// Which address is asked for first; published: the one that was wanted last.
    pub order: Order,
    /// How long a SERVFAIL is kept; published: not at all.
    pub servfail: Option<Duration>,
}

impl Default for Paper {
    fn default() -> Paper {
        Paper { repeats: Repeats::Keep, order: Order::NewestFirst, servfail: None }
    }
}

/// How long names are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Always so long, whatever the record says: as Rapid DNS did, with 7 days.
    Fixed(Duration),
    /// As long as the record says, but not less and not more than this.
    Record(Duration, Duration),
}

impl Ttl {
    /// How long that is for a record with so many seconds.
    pub fn of(self, seconds: u32) -> Duration {
        match self {
            Ttl::Fixed(life) => life,
            Ttl::Record(least, most) => Duration::from_secs(seconds.into()).clamp(least, most.max(least)),
        }
    }

    /// The longest that a name is kept.
    pub fn longest(self) -> Duration {
        self.of(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_ttl_is_clamped() {
        let ttl = Ttl::Record(Duration::from_secs(60), Duration::from_secs(600));
        assert_eq!([5, 100, 9999].map(|seconds| ttl.of(seconds).as_secs()), [60, 100, 600]);
    }
}
