//! What a run was made on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The checkout that this program was compiled in.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("benches is a folder of the root").to_path_buf()
}

/// The folder with test data.
pub(crate) fn data(file: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("POINTSMAN_DATA").map_or(root().join("../shared/data"), PathBuf::from);
    let path = folder.join(file);
    path.metadata().with_context(|| format!("{}: POINTSMAN_DATA names the folder", path.display()))?;
    Ok(path)
}

/// The processor, its number of cores, and the kernel.
pub(crate) fn description() -> Vec<(&'static str, String)> {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    vec![
        ("processor", model.map_or("unknown", |(_, model)| model).to_owned()),
        ("cores", cores().to_string()),
        ("memory", total.trim().to_owned()),
        ("kernel", said("uname", &["-srm"])),
        ("compiler", said("rustc", &["--version"])),
        ("revision", said("git", &["describe", "--always", "--dirty", "--exclude=*"])),
        ("time", said("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
    ]
}

/// A name for the machine that says what kind it is, not whose.
pub(crate) fn name() -> String {
    format!("{}-{}core", std::env::consts::ARCH, cores())
}

/// The cores of the machine, also of those to which this thread is not bound.
fn cores() -> usize {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processors.lines().filter(|line| line.starts_with("processor")).count()
}

/// The first line that a program prints, whichever way it says it; `unknown` where there is none.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let text = output.map_or_else(|_| Vec::new(), |output| [output.stdout, output.stderr].concat());
    let text = String::from_utf8_lossy(&text);
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("unknown").trim().to_owned()
}
