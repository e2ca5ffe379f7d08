//! The targets of `fuzz` under libFuzzer; started by `cargo run -p fuzz -- TARGET --guided`, which names the target
//! in the environment variable `POINTSMAN_FUZZ`.

#![no_main]

use std::panic;
use std::sync::LazyLock;

use fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    // libFuzzer's own hook ends the process at any panic; some readers guard against those of a library. What
    // leaves the target still ends it.
    panic::set_hook(Box::new(|_| {}));
    let name = std::env::var("POINTSMAN_FUZZ").unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).expect("POINTSMAN_FUZZ names a target")
});

fuzz_target!(|octets: &[u8]| (TARGET.run)(octets));
