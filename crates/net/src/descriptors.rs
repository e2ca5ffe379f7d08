//! How many files and sockets the process may have open.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit on open descriptors to the most that the system allows this process; returns it.
///
/// Where the system refuses, the limit stays as it was, and that is returned.
///
/// # Errors
/// Only where the limit cannot even be read.
pub fn raise() -> Result<u64, Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= hard {
        return Ok(soft);
    }
    Ok(if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft })
}
