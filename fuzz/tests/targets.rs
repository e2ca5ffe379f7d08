//! Every target passes a fixed number of executions from a fixed seed.

/// How many inputs each target is tried on: a few seconds in an unoptimised build.
const EXECUTIONS: u64 = 20_000;

const SEED: u64 = 1;

#[test]
fn every_target_passes() {
    let failures = fuzz::TARGETS
        .iter()
        .filter_map(|target| {
            fuzz::run(target, SEED, 0..EXECUTIONS).err().map(|failure| failure.report(target.name))
        })
        .collect::<Vec<_>>();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}
