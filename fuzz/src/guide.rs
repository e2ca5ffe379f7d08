//! The guided run: libFuzzer on the targets (`guided/`), and what of its findings is kept.
//!
//! It is a program of its own, built with instrumentation that stable Rust has: counters at every branch, and
//! the operands of comparisons. Inputs that reach new code are damaged further; at the end the smallest set of
//! inputs that reaches all that was reached becomes the target's kept corpus.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::corpus;
use crate::corpus::to_hex;
use crate::mutate::INPUT_MAX;
use crate::targets::Target;

/// How many octets of inputs are kept for a target: what people still fetch and `cargo test` still runs without
/// thinking about it. The shortest inputs are kept first.
const KEPT_MAX: usize = 96 << 10;

/// The seconds that one input may take before it counts as an endless loop, where nothing else is said.
pub const PATIENCE_SECONDS: u32 = 10;

/// The memory in MiB that a target may take before it counts as growing without bound.
const MEMORY_MAX: u32 = 2_048;

const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The triple is named so that the instrumentation stays away from build scripts.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The instrumented program.
pub struct Guided {
    program: PathBuf,
    /// Where inputs live while it runs.
    folder: PathBuf,
}

/// What a guided run came to.
pub struct Done {
    /// How many executions there were.
    pub executions: u64,
    /// How many inputs are kept now.
    pub kept: usize,
}

impl Guided {
    /// Builds the instrumented program, in `target/fuzz`; it takes some minutes the first time, and needs `g++`.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn build() -> Result<Guided, String> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = own.join("../target/fuzz");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.env("RUSTFLAGS", INSTRUMENTED).args(["build", "--release", "--target", TRIPLE]);
        cargo.arg("--manifest-path").arg(own.join("guided/Cargo.toml")).arg("--target-dir").arg(&folder);
        succeed(&mut cargo)?;
        Ok(Guided { program: folder.join(TRIPLE).join("release/guided"), folder })
    }

    /// Runs a target for `executions`, but at most `seconds` unless they are 0, beginning with its seeds and its kept
    /// inputs, and keeps what is worth it.
    ///
    /// An input that takes `patience` seconds counts as an endless loop.
    ///
    /// # Errors
    /// What went wrong, as text; for a failing input, how to repeat it.
    pub fn run(&self, target: &Target, executions: u64, seconds: u32, patience: u32) -> Result<Done, String> {
        let inputs = self.fresh(&format!("{}.inputs", target.name))?;
        for (index, input) in (target.seeds)().into_iter().chain(corpus::kept(target.name)).enumerate() {
            put(&inputs.join(format!("seed-{index}")), &input)?;
        }
        let failed = self.fresh(&format!("{}.failed", target.name))?;
        let mut run = self.program(target);
        run.arg(&inputs).arg(format!("-runs={executions}")).arg(format!("-max_len={INPUT_MAX}"));
        run.arg(format!("-timeout={patience}")).arg(format!("-report_slow_units={patience}"));
        run.arg(format!("-rss_limit_mb={MEMORY_MAX}"));
        run.arg(format!("-artifact_prefix={}/", failed.display()));
        run.arg(format!("-max_total_time={seconds}"));
        run.args(["-seed=1", "-verbosity=0", "-print_final_stats=1"]);
        // What unpacks to megabytes would take nearly all of the time.
        run.arg("-entropic_scale_per_exec_time=1");
        let log = self.folder.join(format!("{}.log", target.name));
        let said = fs::File::create(&log).map_err(|cause| format!("{}: {cause}", log.display()))?;
        run.stderr(said);
        let ended = succeed(&mut run);
        let said = fs::read(&log).map_err(|cause| format!("{}: {cause}", log.display()))?;
        let said = String::from_utf8_lossy(&said);
        ended.map_err(|error| format!("{error}; it said:\n{said}")).map_err(|error| {
            match read_all(&failed) {
                Ok(found) if !found.is_empty() => {
                    let input = to_hex(&found[0]);
                    format!("{error}\n  repeat: cargo run -p fuzz -- {} --input '{input}'", target.name)
                }
                _ => error,
            }
        })?;

        let least = self.fresh(&format!("{}.least", target.name))?;
        succeed(self.program(target).args(["-merge=1", "-verbosity=0"]).arg(&least).arg(&inputs))?;
        let executions = executed(&said).ok_or("libFuzzer did not say how many executions there were")?;
        Ok(Done { executions, kept: self.keep(target, read_all(&least)?)? })
    }

    fn keep(&self, target: &Target, mut inputs: Vec<Vec<u8>>) -> Result<usize, String> {
        inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        let seeds = (target.seeds)();
        let mut room = KEPT_MAX;
        let lines: Vec<String> = inputs
            .iter()
            .filter(|input| !seeds.contains(input))
            .take_while(|input| {
                let fits = input.len() <= room;
                room = room.saturating_sub(input.len());
                fits
            })
            .map(|input| to_hex(input) + "\n")
            .collect();
        put(&corpus::path(target.name), lines.concat().as_bytes())?;
        Ok(lines.len())
    }

    fn program(&self, target: &Target) -> Command {
        let mut program = Command::new(&self.program);
        program.env("POINTSMAN_FUZZ", target.name);
        program
    }

    fn fresh(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.folder.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
        }
        fs::create_dir_all(&folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
        Ok(folder)
    }
}

/// The executions that libFuzzer's final statistics tell.
fn executed(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok())
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} ended with {status}")),
        Err(cause) => Err(format!("{program} could not be started: {cause}")),
    }
}

fn put(path: &Path, octets: &[u8]) -> Result<(), String> {
    let folder = path.parent().expect("every path here is in a folder");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, octets))
        .map_err(|cause| format!("{}: {cause}", path.display()))
}

fn read_all(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let read =
        || -> std::io::Result<_> { fs::read_dir(folder)?.map(|entry| fs::read(entry?.path())).collect() };
    read().map_err(|cause| format!("{}: {cause}", folder.display()))
}
