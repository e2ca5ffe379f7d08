//! How long a back end takes at which load: a line, learned from its answers.
//!
//! A server that works on one query after the other takes `b` for each that is in flight; one that waits for others
//! takes `a`, however many wait. So what is learned is `a + b * load`, by least squares over recent answers, older ones
//! counting less. Where answers were all at one load the line cannot be seen, and goes through the origin: a server
//! is taken to be busy rather than waiting, which errs on the side of spreading.

/// After how long an answer counts half as much beside a new one, in nanoseconds: some tens of answers even of a slow
/// server, and short beside the seconds in which servers change.
const HALF_NS: f32 = 200e6;

/// After how long without an answer a peak is half as high, in nanoseconds: a power of two near a quarter of a second.
const FADE_NS: u64 = 1 << 28;

/// What is left of what was learned, after however long a rest, in answers. One answer alone says little of a server whose
/// answers differ: of a resolver with four of five in its cache, four in a row are fast often, eight seldom.
const LEFT: f32 = 8.0;

/// What the line through the origin counts for beside what was seen, in answers at a load that differs by one.
const PRIOR: f32 = 20.0;

/// After how long without anything that ended, answered or not, nothing is known, in nanoseconds.
pub const UNKNOWN_NS: u64 = 2_000_000_000;

/// What was learned of one back end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// When the last answer came, or the back end did.
    last_ns: u64,
    /// How many answers count.
    weight: f32,
    mean_load: f32,
    mean_ns: f32,
    /// Squares of loads' distances from their mean, and their products with those of latencies.
    loads: f32,
    products: f32,
    /// Nanoseconds for one more in flight.
    slope: f32,
    /// The peak that decays: at once up, slowly down.
    peak_ns: f32,
    /// Whether the last was a failure.
    has_failed: bool,
}

impl Latency {
    /// Nothing.
    pub const UNKNOWN: Latency = Latency {
        last_ns: 0,
        weight: 0.0,
        mean_load: 0.0,
        mean_ns: 0.0,
        loads: 0.0,
        products: 0.0,
        slope: 0.0,
        peak_ns: 0.0,
        has_failed: false,
    };

    /// Nothing yet, since now.
    pub fn begun(now_ns: u64) -> Latency {
        Latency { last_ns: now_ns, ..Latency::UNKNOWN }
    }

    /// Learns from an answer; `load` is what was in flight, with it, when it was sent.
    pub fn observe(&mut self, load: u32, latency_ns: u64, now_ns: u64) {
        if std::mem::take(&mut self.has_failed) {
            *self = Latency { last_ns: self.last_ns, peak_ns: self.peak_ns, ..Latency::UNKNOWN };
        }
        let age = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let decay = HALF_NS / (HALF_NS + age as f32);
        let (load, ns) = (load.max(1) as f32, latency_ns as f32);
        self.weight = (self.weight * decay).max(self.weight.min(LEFT)) + 1.0;
        let (off_load, off_ns) = (load - self.mean_load, ns - self.mean_ns);
        self.mean_load += off_load / self.weight;
        self.mean_ns += off_ns / self.weight;
        self.loads = self.loads * decay + off_load * (load - self.mean_load);
        self.products = self.products * decay + off_load * (ns - self.mean_ns);
        let origin = self.mean_ns / self.mean_load;
        let slope = (self.products + PRIOR * origin) / (self.loads + PRIOR);
        // Steeper than through the origin would be a negative latency when idle; falling, a gift for being loaded.
        self.slope = slope.clamp(0.0, origin);
        self.peak_ns = if ns > self.peak_ns { ns } else { ns + (self.peak_ns - ns) * decay };
    }

    /// Whether answers have come lately.
    #[inline]
    pub fn is_known(&self, now_ns: u64) -> bool {
        self.weight > 0.0 && now_ns.saturating_sub(self.last_ns) < UNKNOWN_NS
    }

    /// What is expected of a query that makes the load so large, in nanoseconds; 0 where nothing is known, so that
    /// who is new is tried.
    #[inline]
    pub fn at(&self, load: u32) -> f32 {
        self.mean_ns + self.slope * (load as f32 - self.mean_load)
    }

    /// What answers took lately, in nanoseconds; 0 where nothing is known.
    #[inline]
    pub fn mean_ns(&self) -> f32 {
        self.mean_ns
    }

    /// How long ago the last answer came, in nanoseconds.
    #[inline]
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.last_ns)
    }

    /// A failure, which counts as so long. The first answer after it says how the server is now, whatever was before.
    pub fn fail(&mut self, load: u32, cost_ns: u64, now_ns: u64) {
        self.observe(load, cost_ns, now_ns);
        self.has_failed = true;
    }

    /// The peak of latencies, decaying, in nanoseconds.
    #[inline]
    pub fn peak_ns(&self, now_ns: u64) -> f32 {
        self.peak_ns * fade(now_ns.saturating_sub(self.last_ns))
    }

    /// What one more in flight costs, in nanoseconds.
    #[inline]
    pub fn slope_ns(&self) -> f32 {
        self.slope
    }
}

/// What an age leaves: half of it each [`FADE_NS`].
#[inline]
fn fade(age_ns: u64) -> f32 {
    1.0 / (1_u64 << (age_ns / FADE_NS).min(40)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Learns a line from loads that come and go, an answer a millisecond.
    fn learned(a: u64, b: u64, loads: &[u32]) -> (Latency, u64) {
        let mut latency = Latency::begun(0);
        let mut now = 0;
        for load in loads.iter().cycle().take(400) {
            now += MS;
            latency.observe(*load, a + b * u64::from(*load), now);
        }
        (latency, now)
    }

    #[test]
    fn a_busy_server_and_a_waiting_one_are_told_apart() {
        for (a, b, load, expected) in [
            (0, MS, 10, 10.0 * MS as f32),
            (20 * MS, 0, 50, 20.0 * MS as f32),
            (5 * MS, MS / 10, 20, 7.0 * MS as f32),
        ] {
            let (latency, _) = learned(a, b, &[1, 4, 9, 16, 3]);
            let found = latency.at(load);
            assert!((found - expected).abs() < expected * 0.05, "{a} + {b} * {load}: {found} {latency:?}");
        }
    }

    #[test]
    fn at_one_load_alone_the_line_goes_through_the_origin() {
        let (latency, _) = learned(8 * MS, 0, &[4]);
        assert!((latency.at(8) - 16.0 * MS as f32).abs() < MS as f32 * 0.1, "{latency:?}");
    }

    #[test]
    fn the_first_answer_after_failures_counts_alone() {
        let (mut latency, now) = learned(0, MS, &[1, 2, 3]);
        (0..50).for_each(|turn| latency.fail(1, 1_000 * MS, now + turn));
        assert!(latency.at(1) > 500.0 * MS as f32);
        latency.observe(1, 2 * MS, now + 60);
        assert_eq!(latency.at(1), 2.0 * MS as f32);
    }

    #[test]
    fn what_is_known_fades() {
        let (latency, now) = learned(0, MS, &[1, 2, 3]);
        assert!(latency.is_known(now + UNKNOWN_NS - 1) && !latency.is_known(now + UNKNOWN_NS));
        assert_eq!(latency.peak_ns(now + FADE_NS), latency.peak_ns(now) / 2.0);
        assert_eq!(Latency::begun(7).at(3), 0.0);
        assert!(!Latency::begun(7).is_known(8));
    }

    #[test]
    fn a_peak_is_taken_at_once_and_forgotten_slowly() {
        let (mut latency, now) = learned(MS, 0, &[1]);
        latency.observe(1, 100 * MS, now + MS);
        assert!(latency.peak_ns(now + MS) > 99.0 * MS as f32);
        latency.observe(1, MS, now + 2 * MS);
        assert!(latency.peak_ns(now + 2 * MS) > 90.0 * MS as f32);
    }
}
