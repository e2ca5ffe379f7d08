//! Every target passes a fixed number of executions from a fixed seed, its kept inputs first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many inputs each target is tried on: about a minute for all of them on two cores, unoptimised.
const EXECUTIONS: u64 = 30_000;

const SEED: u64 = 1;

#[test]
fn every_target_passes() {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        while let Some(target) = fuzz::TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let failure = fuzz::run(target, SEED, 0..EXECUTIONS).err();
            failures.extend(failure.map(|failure| failure.report(target.name)));
        }
        failures
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("failures are caught")).collect()
    });
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}
