//! On what a run is made, and with what: the machine, the checkout, the test data.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use lzma_rust2::XzReader;
use replay::observe;

/// The checkout that this program was compiled in.
///
/// # Panics
/// Never: this crate is a folder of it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this is a folder of the root").to_path_buf()
}

/// Finds a file of the test data.
///
/// # Errors
/// Where it is not there.
pub fn data(file: &str) -> Result<PathBuf> {
    let path = tests::data::place(file);
    path.metadata().with_context(|| format!("{}: POINTSMAN_DATA names the folder", path.display()))?;
    Ok(path)
}

/// Reads a text that is packed as its name says: `.gz`, `.xz`, or not at all. What is no UTF-8 is replaced.
///
/// # Errors
/// Where it is not there or damaged.
pub fn unpacked(path: &Path) -> Result<String> {
    let read = || -> io::Result<String> {
        let file = File::open(path)?;
        let mut reader: Box<dyn Read> = match path.extension().and_then(|word| word.to_str()) {
            Some("gz") => Box::new(GzDecoder::new(file)),
            Some("xz") => Box::new(XzReader::new(file, true)),
            _ => Box::new(file),
        };
        let mut octets = Vec::new();
        reader.read_to_end(&mut octets)?;
        Ok(String::from_utf8_lossy(&octets).into_owned())
    };
    read().with_context(|| path.display().to_string())
}

/// The processor, its number of cores, the memory, the kernel, and the source; what it was `built` by stands among them.
pub fn description(built: (&'static str, String)) -> Vec<(&'static str, String)> {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    vec![
        ("processor", model.map_or("unknown", |(_, model)| model).to_owned()),
        ("cores", cores().to_string()),
        ("memory", total.trim().to_owned()),
        ("kernel", said("uname", &["-srm"])),
        built,
        ("revision", said("git", &["describe", "--always", "--dirty", "--exclude=*"])),
        ("time", said("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
    ]
}

/// What the machine's host takes from its cores, from a moment on.
#[derive(Debug)]
pub struct Stolen {
    since: Instant,
    before: Duration,
}

impl Stolen {
    /// Counts from now on.
    pub fn begin() -> Stolen {
        Stolen { since: Instant::now(), before: observe::stolen() }
    }

    /// How much it was until now, in words, as [`description`] says what the machine is.
    pub fn told(&self) -> (&'static str, String) {
        ("taken by its host", format!("{:.2} % of its cores' time", 100.0 * self.share()))
    }

    /// The same as a share of its cores' time.
    pub fn share(&self) -> f64 {
        let all = self.since.elapsed().as_secs_f64() * cores() as f64;
        let stolen = observe::stolen().saturating_sub(self.before).as_secs_f64();
        stolen / all.max(f64::MIN_POSITIVE)
    }
}

/// A name for the machine that says what kind it is, not whose.
pub fn name() -> String {
    format!("{}-{}core", std::env::consts::ARCH, cores())
}

/// The cores of the machine, also of those to which this thread is not bound.
fn cores() -> usize {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processors.lines().filter(|line| line.starts_with("processor")).count()
}

/// The first line that a program prints, whichever way it says it; `unknown` where there is none.
pub fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let text = output.map_or_else(|_| Vec::new(), |output| [output.stdout, output.stderr].concat());
    let text = String::from_utf8_lossy(&text);
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("unknown").trim().to_owned()
}
