//! How many datagrams a worker asks the system for at once.
//!
//! Under load many wait, and a batch of them costs one system call. A lonely one is dearer in a batch: behind it the kernel
//! looks for the next one, which takes it a quarter as long again. A query and its reply are two of these, on the way of a
//! client who waits.

use net::udp::BATCH_MAX;

/// Batches in a row with one message at most, after which they are asked for one by one; then every so many-th is a batch
/// again, which sees when more have come together.
const CALM_AFTER: u32 = 16;

/// How it was of late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    /// Calls in a row that found one message at most.
    alone: u32,
}

impl Calm {
    /// How many messages to ask for next: one, or [`BATCH_MAX`].
    pub fn most(self) -> usize {
        if self.alone < CALM_AFTER || self.alone.is_multiple_of(CALM_AFTER) { BATCH_MAX } else { 1 }
    }

    /// Notes what was received of what was asked for.
    pub fn found(&mut self, received: usize) {
        // It begins anew once a number is at its end, after so many that it does no harm.
        self.alone = if received > 1 { 0 } else { self.alone.wrapping_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many calls ask for a batch, where each finds what is there.
    fn batches(calm: &mut Calm, calls: usize, there: usize) -> usize {
        (0..calls)
            .filter(|_| {
                let most = calm.most();
                calm.found(there.min(most));
                most == BATCH_MAX
            })
            .count()
    }

    #[test]
    fn lonely_ones_are_asked_for_alone_and_crowds_are_found() {
        let mut calm = Calm::default();
        assert_eq!(batches(&mut calm, 16, 1), 16);
        assert_eq!(batches(&mut calm, 160, 1), 10);
        // The next batch finds those that come now.
        calm.found(1);
        assert_eq!(batches(&mut calm, 32, 2), 17);
        assert_eq!(batches(&mut calm, 100, 40), 100);
        let mut ending = Calm { alone: u32::MAX };
        assert_eq!(batches(&mut ending, 17, 0), 16);
    }
}
