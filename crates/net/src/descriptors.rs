//! How many files and sockets the process may have open, and room for them beforehand.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::close;
use std::io;

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

/// The most descriptors that [`reserve`] makes room for: 8 MiB of the kernel's memory.
pub const RESERVED_MAX: usize = 1 << 20;

/// Has the kernel make room for so many descriptors now, at most [`RESERVED_MAX`].
///
/// Else its table doubles whenever it is full, and a process with several threads then waits for all processors
/// to pass a point of rest: 5 to 15 ms in the middle of a schedule.
///
/// # Errors
/// What the system says; more than the limit of the process is refused.
pub fn reserve(count: usize) -> io::Result<()> {
    let highest = count.clamp(1, RESERVED_MAX) - 1;
    let any = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let highest = i32::try_from(highest).map_err(io::Error::other)?;
    let copy = fcntl(&any.0, FcntlArg::F_DUPFD_CLOEXEC(highest))?;
    Ok(close(copy)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_descriptors_is_made_within_the_limit() {
        let limit = raise().expect("it is read") as usize;
        reserve(limit.min(2_000)).expect("it is within the limit");
        let table = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let size = table.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("it has this line");
        assert!(size.trim().parse::<usize>().expect("a number") >= limit.min(2_000), "{size}");
        if limit < RESERVED_MAX {
            assert!(reserve(limit + 1).is_err());
        }
    }
}
