//! A server's process group: started, accounted for, killed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result};
use experiments::process::logged;
pub(crate) use experiments::process::read;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// A program and all that it started, in a process group of its own. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Child,
}

impl Group {
    /// Starts a program; what it says goes to `log`.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Group> {
        Ok(Group { leader: logged(command.process_group(0), log)? })
    }

    /// Whether the program that was started has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.leader.try_wait(), Ok(None))
    }

    /// User and system time of the whole group so far, to the kernel's tick (10 ms).
    ///
    /// # Errors
    /// Where /proc cannot be read.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let tick = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
        let ticks: u64 = self.members()?.iter().map(|member| member.ticks).sum();
        Ok(Duration::from_secs_f64(ticks as f64 / tick as f64))
    }

    /// Memory of the whole group in octets; pages that several share are counted once (PSS).
    ///
    /// # Errors
    /// Where /proc cannot be read.
    pub(crate) fn memory(&self) -> Result<u64> {
        let mut kib = 0;
        for member in self.members()? {
            let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", member.id)).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            kib += number.unwrap_or(0);
        }
        Ok(kib * 1024)
    }

    fn members(&self) -> Result<Vec<Member>> {
        let mut members = Vec::new();
        for entry in fs::read_dir("/proc").context("/proc")? {
            let entry = entry.context("/proc")?;
            // What is no process, or has ended by now, has no such file.
            let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
            members.extend(member(&text).filter(|member| member.group == self.leader.id()));
        }
        Ok(members)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.leader.id().cast_signed());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.leader.wait();
    }
}

/// What of `/proc/PID/stat` is needed.
#[derive(Debug, PartialEq, Eq)]
struct Member {
    id: u32,
    group: u32,
    ticks: u64,
}

/// Reads `/proc/PID/stat`, proc(5). The name in parentheses may hold anything, so what counts is the last one.
///
/// The time of children that have ended and been waited for is theirs no longer, so it is counted here.
fn member(text: &str) -> Option<Member> {
    let id = text.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some(Member { id, group: number(2)? as u32, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_accounting_is_read() {
        let line = "42 (a (b) c) S 1 40 40 0 -1 4194560 1 2 3 4 100 50 7 3 20 0 1 0 9 8 7";
        assert_eq!(member(line), Some(Member { id: 42, group: 40, ticks: 160 }));
        assert_eq!(member("no"), None);
    }
}
