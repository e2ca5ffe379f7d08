//! What is asked while nobody waits: popular names ahead of their end, and samples.

use learn::{Limits, Order, Repeats, Waiting};

use crate::front::Seen;

/// How many addresses wait for an interval that nobody needs: at 50 ms an interval, of half a minute.
const SPARE_MAX: usize = 600;

/// Addresses that wait for an interval that nobody needs, the one that was seen last first.
#[derive(Debug)]
pub(super) struct Spare(Waiting<Seen, (), ()>);

impl Spare {
    pub(super) fn new() -> Spare {
        let (repeats, order) = (Repeats::MoveToTop, Order::NewestFirst);
        Spare(Waiting::new(Limits { capacity: SPARE_MAX, per_client: SPARE_MAX, repeats, order }))
    }

    pub(super) fn push(&mut self, seen: Seen) {
        self.0.push(seen, (), ());
    }

    pub(super) fn pop(&mut self) -> Option<Seen> {
        self.0.pop(|()| true)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn leaks(&self) -> u64 {
        self.0.leaks()
    }
}
