//! What a worker counts: plain cells that only one thread writes, read by whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::answer::Why;

/// How many response codes fit a header (RFC 1035 §4.1.1).
pub const RCODES: usize = 16;

/// One worker's counts since start.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counters {
    /// Messages that came in.
    pub queries: Count,
    /// Answers by the header's response code.
    pub answers: [Count; RCODES],
    /// Answers with TC set.
    pub truncated: Count,
    /// Messages that were no query: shorter than a header, or responses.
    pub no_query: Count,
    /// Queries whose question did not fit what may be sent back.
    pub no_room: Count,
    /// Answers that the system did not take.
    pub send_failed: Count,
    /// Batches that were received.
    pub batches: Count,
    /// Queries that made the code panic; each was dropped.
    pub panicked: Count,
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to the count. Only the thread that owns the counter may do so: this is no atomic addition.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// Counts an answer by its own header.
    #[inline]
    pub fn answered(&self, message: &[u8]) {
        if let Some(header) = message.first_chunk::<4>() {
            self.answers[usize::from(header[3] & 0x0f)].add(1);
            self.truncated.add(u64::from(header[2] >> 1 & 1));
        }
    }

    /// Counts a message that gets no answer.
    #[inline]
    pub fn dropped(&self, why: Why) {
        match why {
            Why::NoQuery => self.no_query.add(1),
            Why::NoRoom => self.no_room.add(1),
        }
    }
}
