//! What a run was made on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checkout that this program was compiled in.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this is a folder of the root").to_path_buf()
}

/// The processor, its number of cores, the kernel, and what was built.
pub(crate) fn description() -> Vec<(&'static str, String)> {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    vec![
        ("processor", model.map_or("unknown", |(_, model)| model).to_owned()),
        ("cores", std::thread::available_parallelism().map_or(0, usize::from).to_string()),
        ("memory", total.trim().to_owned()),
        ("kernel", said("uname", &["-srm"])),
        ("build", if cfg!(debug_assertions) { "not optimised" } else { "optimised" }.to_owned()),
        ("revision", said("git", &["describe", "--always", "--dirty", "--exclude=*"])),
        ("time", said("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
    ]
}

/// The first line that a program prints; `unknown` where there is none.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let line = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned();
    if line.is_empty() { "unknown".to_owned() } else { line }
}
