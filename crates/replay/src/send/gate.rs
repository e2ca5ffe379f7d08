//! Where threads wait for one another, unless some never come.

use std::sync::{Condvar, Mutex, PoisonError};

/// A gate that opens once so many have come to it. Unlike a barrier it can be opened for those who are there.
#[derive(Debug)]
pub(super) struct Gate {
    /// How many are yet to come; `None` where all of them never will.
    missing: Mutex<Option<usize>>,
    opened: Condvar,
}

impl Gate {
    /// One that opens when so many have come.
    pub(super) fn new(count: usize) -> Gate {
        Gate { missing: Mutex::new(Some(count)), opened: Condvar::new() }
    }

    /// Waits until all have come; false where some never will.
    pub(super) fn wait(&self) -> bool {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = missing.map(|missing| missing.saturating_sub(1));
        self.opened.notify_all();
        let waits = |missing: &mut Option<usize>| missing.is_some_and(|missing| missing > 0);
        self.opened.wait_while(missing, waits).unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Lets all go on: some never come.
    pub(super) fn give_up(&self) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.opened.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_wait_for_all_or_for_none() {
        for come in [3, 2] {
            let gate = Gate::new(3);
            let went = thread::scope(|scope| {
                let waiting: Vec<_> = (0..come).map(|_| scope.spawn(|| gate.wait())).collect();
                if come < 3 {
                    gate.give_up();
                }
                waiting.into_iter().map(|thread| thread.join().expect("it waits")).collect::<Vec<_>>()
            });
            assert_eq!(went, vec![come == 3; come]);
        }
    }
}
