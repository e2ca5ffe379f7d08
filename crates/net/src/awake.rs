//! Cores that do not rest.
//!
//! A core that has nothing to do rests, and wakes when a timer ends or a packet comes: a deep rest of hardware takes some
//! hundred microseconds to end. A virtual machine's core goes back to the machine's host, and begins once the host has a core
//! for it: on a busy host that takes milliseconds, where a core that was kept begins within a tenth of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};

/// Where the kernel takes requests of how late a core may wake; one holds as long as the file is open, and the strictest
/// counts (pm_qos_interface.rst of Linux).
const REQUESTS: &str = "/dev/cpu_dma_latency";

/// What chooses how cores rest; `none` where nothing does.
const CHOOSER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

/// Keeps all cores of the machine from resting, as long as it is there.
///
/// The kernel looks for work in a loop instead. It takes no time from any program, and the power that a busy core takes.
#[derive(Debug)]
pub struct Awake {
    _request: File,
}

impl Awake {
    /// Keeps them from resting from now on.
    ///
    /// # Errors
    /// Where the kernel has no choice of how its cores rest, as in most virtual machines without `cpuidle-haltpoll`; without
    /// root; and in containers without the device.
    pub fn begin() -> io::Result<Awake> {
        let chooser = fs::read_to_string(CHOOSER).unwrap_or_default();
        if matches!(chooser.trim(), "" | "none") {
            let what = "this kernel has no choice of how its cores rest; in a guest of KVM \
                        `modprobe cpuidle-haltpoll force=1` gives it one";
            return Err(io::Error::new(ErrorKind::Unsupported, what));
        }
        let mut request = OpenOptions::new().write(true).open(REQUESTS).map_err(|cause| {
            let hint = if cause.kind() == ErrorKind::PermissionDenied { "; it is for root" } else { "" };
            io::Error::new(cause.kind(), format!("{REQUESTS}: {cause}{hint}"))
        })?;
        // Microseconds.
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Awake { _request: request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// How late a core may wake, by the strictest request, in microseconds.
    fn latest() -> i32 {
        let mut told = [0; 4];
        File::open(REQUESTS).and_then(|mut file| file.read_exact(&mut told)).expect("who may write may read");
        i32::from_ne_bytes(told)
    }

    #[test]
    fn cores_may_not_rest_as_long_as_it_is_there() {
        let kept = match Awake::begin() {
            Ok(kept) => kept,
            Err(cause) => {
                let expected = [ErrorKind::Unsupported, ErrorKind::PermissionDenied, ErrorKind::NotFound];
                assert!(expected.contains(&cause.kind()), "{cause}");
                eprintln!("skipped: {cause}");
                return;
            }
        };
        assert_eq!(latest(), 0);
        drop(kept);
        // Where another program asks for the same, nothing changes.
        assert!(latest() >= 0);
    }
}
