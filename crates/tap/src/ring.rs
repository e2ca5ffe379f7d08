//! A ring of octets between one thread that puts records in and one that takes them out.
//!
//! Neither ever waits for the other: there is no lock, and no system call. A record that does not fit is not taken.
//!
//! ```text
//! words:  | length | octets, padded to whole words | length | ...
//!           ^ read: the next to take                          ^ written: where the next goes
//! ```
//! Both numbers count words since the beginning; their places are the remainders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Octets of a word.
const WORD: usize = size_of::<u64>();

struct Ring {
    /// A power of two of them.
    words: Box<[AtomicU64]>,
    written: Alone,
    read: Alone,
}

/// A number on a cache line of its own, for its writer is not the other one's.
#[repr(align(64))]
struct Alone(AtomicUsize);

/// The end that puts records in.
pub(super) struct Sender {
    ring: Arc<Ring>,
    written: usize,
    /// What was read when we looked last: the other end's line is looked at only when this does not suffice.
    read: usize,
}

/// The end that takes records out.
pub(super) struct Receiver {
    ring: Arc<Ring>,
    read: usize,
}

/// Makes a ring with room for `octets`, rounded up to a power of two.
pub(super) fn ring(octets: usize) -> (Sender, Receiver) {
    let words = octets.div_ceil(WORD).next_power_of_two();
    let words = (0..words).map(|_| AtomicU64::new(0)).collect();
    let [written, read] = [0, 0].map(|number| Alone(AtomicUsize::new(number)));
    let ring = Arc::new(Ring { words, written, read });
    (Sender { ring: ring.clone(), written: 0, read: 0 }, Receiver { ring, read: 0 })
}

impl Sender {
    /// Puts a record in; `false`, and nothing changes, where there is no room for it.
    pub(super) fn push(&mut self, record: &[u8]) -> bool {
        let needed = 1 + record.len().div_ceil(WORD);
        if self.room() < needed {
            self.read = self.ring.read.0.load(Ordering::Acquire);
            if self.room() < needed {
                return false;
            }
        }
        self.put(record.len() as u64);
        for part in record.chunks(WORD) {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            self.put(u64::from_ne_bytes(word));
        }
        self.ring.written.0.store(self.written, Ordering::Release);
        true
    }

    fn room(&self) -> usize {
        self.ring.words.len() - self.written.wrapping_sub(self.read)
    }

    fn put(&mut self, word: u64) {
        self.ring.word(self.written).store(word, Ordering::Relaxed);
        self.written = self.written.wrapping_add(1);
    }
}

impl Receiver {
    /// Takes the oldest record out and appends it; `false` where there is none.
    pub(super) fn pop(&mut self, out: &mut Vec<u8>) -> bool {
        if self.ring.written.0.load(Ordering::Acquire) == self.read {
            return false;
        }
        let length = usize::try_from(self.take()).expect("it was a usize");
        let end = out.len() + length;
        for _ in 0..length.div_ceil(WORD) {
            out.extend_from_slice(&self.take().to_ne_bytes());
        }
        out.truncate(end);
        self.ring.read.0.store(self.read, Ordering::Release);
        true
    }

    fn take(&mut self) -> u64 {
        let word = self.ring.word(self.read).load(Ordering::Relaxed);
        self.read = self.read.wrapping_add(1);
        word
    }
}

impl Ring {
    fn word(&self, number: usize) -> &AtomicU64 {
        &self.words[number & (self.words.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_fit_is_not_taken_and_what_fits_keeps_its_order() {
        let (mut sender, mut receiver) = ring(64);
        // Each takes two words of eight.
        let taken: Vec<bool> = (0..6).map(|number| sender.push(&[number; 3])).collect();
        assert_eq!(taken, [true, true, true, true, false, false]);
        let mut out = Vec::new();
        assert!(receiver.pop(&mut out));
        assert!(sender.push(&[6; 8]) && !sender.push(&[7]));
        while receiver.pop(&mut out) {}
        let expected = [&[0; 3][..], &[1; 3], &[2; 3], &[3; 3], &[6; 8]].concat();
        assert_eq!(out, expected);
        assert!(!sender.push(&[8; 57]), "larger than the ring");
    }

    #[test]
    fn two_threads_agree_on_every_octet() {
        const RECORDS: u64 = 20_000;
        let (mut sender, mut receiver) = ring(512);
        let record = |number: u64| vec![number as u8; (number % 60) as usize];
        let sending = std::thread::spawn(move || {
            for number in 0..RECORDS {
                while !sender.push(&record(number)) {
                    std::thread::yield_now();
                }
            }
        });
        let mut out = Vec::new();
        for number in 0..RECORDS {
            out.clear();
            while !receiver.pop(&mut out) {
                std::thread::yield_now();
            }
            assert_eq!(out, record(number));
        }
        sending.join().expect("the sender does not panic");
    }

    proptest! {
        #[test]
        fn it_is_a_queue_of_records(
            steps in proptest::collection::vec(proptest::option::of(0usize..40), 0..200),
        ) {
            let (mut sender, mut receiver) = ring(128);
            let (mut model, mut out) = (VecDeque::new(), Vec::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(length) => {
                        let record = vec![number as u8; length];
                        if sender.push(&record) {
                            model.push_back(record);
                        } else {
                            let held: usize = model.iter().map(|r: &Vec<u8>| 1 + r.len().div_ceil(WORD)).sum();
                            prop_assert!(held + 1 + length.div_ceil(WORD) > 16);
                        }
                    }
                    None => {
                        out.clear();
                        let expected = model.pop_front();
                        prop_assert_eq!(receiver.pop(&mut out), expected.is_some());
                        prop_assert_eq!(&out, &expected.unwrap_or_default());
                    }
                }
            }
        }
    }
}
