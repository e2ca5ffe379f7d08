//! Back ends that are said to be gone, as nobody listens there or no way leads there, until that is sure. Pure.
//!
//! The system believes every ICMP message that names the two addresses and ports of a socket, and anybody can send one who
//! guesses them; that a host on the way refuses, it tells in the same words as that it knows no way itself. But who is
//! gone does not answer: so it is believed once nothing has come from there for a while, neither an answer nor a reply
//! to the probe that is sent at once. Until then others are preferred, who cost nothing.

use routing::balance::{BACK_ENDS_MAX, Set};

/// How long nothing comes from a back end before it is believed to be gone, in nanoseconds: longer than a container with a
/// quota stands still in each tenth of a second, and soon enough for clients, who ask again after 400 ms.
pub const DOUBT_NS: u64 = 100_000_000;

/// One thread's doubts.
#[derive(Debug)]
pub struct Doubts {
    all: Set,
    begun_ns: [u64; BACK_ENDS_MAX],
    heard: [u64; BACK_ENDS_MAX],
}

impl Doubts {
    /// None yet.
    #[expect(clippy::new_without_default, reason = "named as what stands beside it")]
    pub fn new() -> Doubts {
        Doubts { all: Set::EMPTY, begun_ns: [0; BACK_ENDS_MAX], heard: [0; BACK_ENDS_MAX] }
    }

    /// The back ends in doubt.
    pub fn all(&self) -> Set {
        self.all
    }

    /// A back end is said to be gone, from which so much has been heard so far; whether that is new.
    pub fn begin(&mut self, place: usize, heard: u64, now_ns: u64) -> bool {
        let is_new = !self.all.contains(place);
        if is_new {
            self.all = self.all.with(place);
            (self.begun_ns[place], self.heard[place]) = (now_ns, heard);
        }
        is_new
    }

    /// Another back end is in this place, or none.
    pub fn forget(&mut self, place: usize) {
        self.all = self.all.without(place);
    }

    /// Ends the doubts about those that were `heard` meanwhile, and about those that are surely gone, which are returned.
    pub fn settle(&mut self, heard: impl Fn(usize) -> u64, now_ns: u64) -> Set {
        let mut gone = Set::EMPTY;
        for place in self.all.iter() {
            let is_heard = heard(place) != self.heard[place];
            let is_over = now_ns.saturating_sub(self.begun_ns[place]) >= DOUBT_NS;
            if is_heard || is_over {
                self.all = self.all.without(place);
            }
            if is_over && !is_heard {
                gone = gone.with(place);
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_heard_is_not_gone_and_who_is_not_heard_is() {
        let mut doubts = Doubts::new();
        assert!(doubts.begin(3, 7, 1) && doubts.begin(5, 0, 1) && !doubts.begin(5, 9, 50));
        let (nothing, something) =
            (|place| if place == 3 { 7 } else { 0 }, |place| if place == 3 { 8 } else { 0 });
        assert_eq!(doubts.settle(nothing, DOUBT_NS), Set::EMPTY);
        assert_eq!(doubts.all(), Set::EMPTY.with(3).with(5));
        assert_eq!(doubts.settle(something, DOUBT_NS + 1), Set::EMPTY.with(5));
        assert!(doubts.all().is_empty() && doubts.begin(5, 0, 1));
        doubts.forget(5);
        assert!(doubts.settle(|_| 0, u64::MAX).is_empty());
    }
}
