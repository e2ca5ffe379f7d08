//! Names for addresses: the cache alone, and the service beside Redis, Unbound and dnsmasq.
//!
//! - [`cache`]: memory, look-ups, and how long it takes to be warm; [`names`]: what is in it.

mod cache;
mod names;

use anyhow::{Context, Result, bail};

use crate::machine;
use crate::options::Options;
use crate::report::Report;

/// What can be measured.
const PARTS: &[&str] = &["cache"];

/// Measures all parts that are wanted.
///
/// # Errors
/// Where a server does not start, a source fails, or a name in `--only` is none.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|name| !PARTS.contains(&name.as_str())) {
        bail!("{unknown} is no part; there are {}", PARTS.join(", "));
    }
    let folder = machine::root().join("target/bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    if options.wants("cache") {
        cache::run(options, &folder, report)?;
    }
    Ok(())
}
