//! How long answers at a shared socket may wait in the kernel while queries are due.

use net::udp::BATCH_MAX;

/// Queries that are sent, while others are due, before shared sockets are looked at again; fewer where one has no room for
/// so many answers.
const UNHEARD_MAX: usize = 2_048;

/// Queries whose answers may wait unread.
#[derive(Debug)]
pub(super) struct Unheard {
    /// Those sent since the sockets were empty, but for answers taken.
    sent: usize,
    most: usize,
}

impl Unheard {
    /// None yet, where a shared socket holds so many datagrams; with 0, answers never wait.
    pub(super) fn new(held: usize) -> Unheard {
        Unheard { sent: 0, most: held.min(UNHEARD_MAX) }
    }

    /// One more was sent.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }

    /// Whether there is room for the answers of all.
    pub(super) fn may_wait(&self) -> bool {
        self.sent < self.most
    }

    /// The sockets were looked at: read until they were empty, or a batch of what they hold. In the second case it is each
    /// turn from now on, until no more wait than there is room for.
    pub(super) fn heard(&mut self, is_all: bool) {
        self.sent = if is_all { 0 } else { self.sent.saturating_sub(BATCH_MAX) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_room_nothing_waits() {
        assert!(!Unheard::new(0).may_wait());
        assert!(Unheard::new(1).may_wait());
    }

    proptest! {
        /// A sender that is always behind: each turn it sends up to a batch, all of it is answered at once, and where answers
        /// may wait no longer it takes up to a batch of them.
        #[test]
        fn a_socket_never_overflows(
            held in BATCH_MAX..4_096_usize,
            turns in prop::collection::vec(0..=BATCH_MAX, 1..400),
        ) {
            let (mut unheard, mut waiting) = (Unheard::new(held), 0);
            for sent in turns {
                for _ in 0..sent {
                    unheard.sent();
                }
                waiting += sent;
                prop_assert!(waiting <= held + BATCH_MAX, "{waiting} wait where {held} have room");
                if !unheard.may_wait() {
                    let taken = waiting.min(BATCH_MAX);
                    waiting -= taken;
                    unheard.heard(taken < BATCH_MAX);
                }
            }
        }
    }
}
