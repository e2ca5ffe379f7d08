//! How much of a receive queue's room one datagram takes: learned, since it depends on path, size and kernel. Pure.
//!
//! The kernel tells octets, not datagrams, and charges each with all the memory that it holds: 832 octets for a small
//! query over loopback, more over other paths, in steps. But all octets that it tells are sums of such charges. Where
//! all datagrams are charged alike, the greatest common divisor of what was seen is the charge, exactly, and a few
//! different sums are enough. Where they are not, the divisor is too small for a charge; then what the queue grows by
//! is held against how many queries the balancers say were sent and not answered meanwhile.

/// What is assumed before anything was seen, in octets: what the largest query without fragments is charged, so that
/// the room is taken for too small rather than too large.
pub const START: u32 = 2304;

/// No datagram is charged less, in octets: its description alone takes more, on every kernel.
const LEAST: u32 = 512;

/// How many different sums are divided before the divisor is believed: that eight random multiples of a charge have a
/// common factor by chance happens once in 250 times, and the room is then taken for too small.
const SUMS: usize = 8;

/// How many sums are seen before the older half is forgotten, so that a change of the path is learned anew.
const SUMS_MAX: usize = 256;

/// By how many queries what is not answered must have grown to be held against the queue.
const GROWTH_MIN: u64 = 16;

/// The weight of a new estimate of the mean.
const WEIGHT: f64 = 0.25;

/// Learns the charge of a datagram.
#[derive(Clone, Debug, Default)]
pub struct Charge {
    now: Sums,
    before: Sums,
    last: u32,
    /// Octets per query by which a queue was seen to grow.
    mean: Option<f64>,
}

/// What was seen of sums of charges.
#[derive(Clone, Debug, Default)]
struct Sums {
    divisor: u32,
    least: Option<u32>,
    /// The first [`SUMS`] different ones.
    different: Vec<u32>,
    count: usize,
}

impl Charge {
    /// Takes a number of octets that the kernel tells of a queue.
    pub fn observe(&mut self, octets: u32) {
        // What repeats tells nothing more.
        if octets == 0 || std::mem::replace(&mut self.last, octets) == octets {
            return;
        }
        if self.now.count == SUMS_MAX {
            self.before = std::mem::take(&mut self.now);
        }
        self.now.observe(octets);
    }

    /// Takes that the queues grew by so many octets, without a drop, while `growth` more queries were sent than
    /// answered.
    pub fn observe_growth(&mut self, octets: u64, growth: u64) {
        if growth < GROWTH_MIN || octets == 0 {
            return;
        }
        let new = octets as f64 / growth as f64;
        // Most of them do not wait in the queue, but where the server has them, such as for others' answers.
        if new < f64::from(LEAST) {
            return;
        }
        self.mean = Some(self.mean.map_or(new, |mean| mean + (new - mean) * WEIGHT));
    }

    /// Octets that a datagram takes; never 0.
    pub fn octets(&self) -> u32 {
        let sums = if self.now.is_enough() || !self.before.is_enough() { &self.now } else { &self.before };
        let mean = self.mean.map(|mean| mean as u32);
        if sums.is_enough() {
            if sums.divisor >= LEAST {
                return sums.divisor;
            }
            // A mixture.
            return mean.unwrap_or(START);
        }
        match sums.least {
            // Too little for two datagrams.
            Some(least) if least < 2 * LEAST => least.max(LEAST),
            _ => mean.unwrap_or(START),
        }
    }

    /// Whether anything was learned.
    pub fn is_learned(&self) -> bool {
        let single = |sums: &Sums| sums.least.is_some_and(|least| least < 2 * LEAST);
        self.mean.is_some() || [&self.now, &self.before].iter().any(|sums| sums.is_enough() || single(sums))
    }
}

impl Sums {
    fn observe(&mut self, octets: u32) {
        self.count += 1;
        self.divisor = divisor(self.divisor, octets);
        self.least = Some(self.least.map_or(octets, |least| least.min(octets)));
        if self.different.len() < SUMS && !self.different.contains(&octets) {
            self.different.push(octets);
        }
    }

    fn is_enough(&self) -> bool {
        self.different.len() == SUMS
    }
}

/// The greatest common divisor; of 0 and another it is the other.
fn divisor(mut one: u32, mut other: u32) -> u32 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_seen_tells_the_charge() {
        for (what, sums, growth, charge) in [
            ("nothing", vec![], vec![], START),
            ("an empty queue", vec![0, 0, 0], vec![], START),
            ("one that cannot be two", vec![832], vec![], 832),
            ("the least of few", vec![1664, 832, 2496], vec![], 832),
            ("one that may be two", vec![1280], vec![], START),
            ("few, and the load", vec![12_800, 128_000], vec![(128_000, 100)], 1280),
            ("too little load", vec![12_800], vec![(12_800, 10)], START),
            ("a load that waits elsewhere", vec![12_800], vec![(1280, 180)], START),
            ("many", (10..18).map(|count| count * 1280).collect(), vec![], 1280),
            (
                "many, and foreign datagrams",
                (10..18).map(|count| count * 1280).collect(),
                vec![(256_000, 100)],
                1280,
            ),
            ("a mixture", (10..18).map(|count| count * 832 + 1280).collect(), vec![], START),
            (
                "a mixture and the load",
                (10..18).map(|count| count * 832 + 1280).collect(),
                vec![(90_000, 100)],
                900,
            ),
        ] {
            let mut seen = Charge::default();
            sums.iter().for_each(|octets| seen.observe(*octets));
            growth.iter().for_each(|(octets, growth)| seen.observe_growth(*octets, *growth));
            assert_eq!(seen.octets(), charge, "{what}");
        }
    }

    #[test]
    fn another_path_is_learned_anew() {
        let mut charge = Charge::default();
        (0..SUMS_MAX as u32).for_each(|count| charge.observe((count % 50 + 1) * 832));
        assert_eq!(charge.octets(), 832);
        (0..2 * SUMS_MAX as u32).for_each(|count| charge.observe((count % 50 + 1) * 1120));
        assert_eq!(charge.octets(), 1120);
    }

    proptest! {
        #[test]
        fn equal_charges_are_found_exactly(
            charge in (LEAST..9000).prop_map(|octets| octets / 64 * 64),
            counts in proptest::collection::hash_set(1..2000_u32, 12..40),
        ) {
            let mut seen = Charge::default();
            counts.iter().for_each(|count| seen.observe(count * charge));
            let found = seen.octets();
            // A factor that all counts share makes it larger, never smaller.
            prop_assert_eq!(found % charge, 0);
            prop_assert!(found == charge || counts.iter().all(|count| count % (found / charge) == 0));
        }

        #[test]
        fn whatever_is_seen_there_is_a_charge(octets: Vec<u32>, growth: Vec<(u64, u64)>) {
            let mut seen = Charge::default();
            octets.iter().for_each(|octets| seen.observe(*octets));
            growth.iter().for_each(|(octets, growth)| seen.observe_growth(*octets, *growth));
            prop_assert!(seen.octets() >= LEAST);
        }
    }
}
