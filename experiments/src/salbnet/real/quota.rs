//! A share of one processor, as a control group of ours, of version 1 or 2, has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// From one refill to the next, where the share allows it: short beside the times that are measured.
const PERIOD: Duration = Duration::from_millis(10);

/// The kernel takes no smaller quota (`min_cfs_quota_period`), so that small shares have a longer period.
const QUOTA_MIN: Duration = Duration::from_millis(1);

/// A group with a quota; removed when dropped.
#[derive(Debug)]
pub(super) struct Quota {
    folder: PathBuf,
    is_unified: bool,
}

impl Quota {
    /// Makes a group that may use this share of one processor.
    ///
    /// # Errors
    /// Where there are no such groups here, or they are not ours to make.
    pub(super) fn new(name: &str, share: f64) -> Result<Quota> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
        let (root, is_unified) =
            hierarchy(&mounts).context("no control groups for processor time are mounted")?;
        if is_unified {
            let switch = root.join("cgroup.subtree_control");
            fs::write(&switch, "+cpu").with_context(|| format!("{}", switch.display()))?;
        }
        let folder = root.join(format!("pointsman-{}-{name}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("{}", folder.display()))?;
        let quota = Quota { folder, is_unified };
        quota.set(share)?;
        Ok(quota)
    }

    /// Changes the share.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn set(&self, share: f64) -> Result<()> {
        let (quota, period) = micros(share);
        if self.is_unified {
            return self.write("cpu.max", &format!("{quota} {period}"));
        }
        // The kernel refuses a group that may have more than it may, also in between.
        self.write("cpu.cfs_quota_us", "-1")?;
        self.write("cpu.cfs_period_us", &period.to_string())?;
        self.write("cpu.cfs_quota_us", &quota.to_string())
    }

    /// Puts a process into the group, with all that it begins.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn take(&self, process: u32) -> Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, text).with_context(|| format!("{}: {text}", path.display()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Its processes have ended before: who is in it goes first.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Quota and period in microseconds.
pub(super) fn micros(share: f64) -> (u128, u128) {
    let period = PERIOD.max(QUOTA_MIN.div_f64(share));
    (period.mul_f64(share).max(QUOTA_MIN).as_micros(), period.as_micros())
}

/// Where groups for processor time are, and whether they are of version 2.
fn hierarchy(mounts: &str) -> Option<(PathBuf, bool)> {
    let mounted = |kind: &str, wanted: fn(&Path, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, its_kind, options) = (Path::new(words.next()?), words.next()?, words.next()?);
            (its_kind == kind && wanted(place, options)).then(|| place.to_path_buf())
        })
    };
    let first = mounted("cgroup", |_, options| options.split(',').any(|option| option == "cpu"));
    let second = || {
        mounted("cgroup2", |place, _| {
            let controllers = fs::read_to_string(place.join("cgroup.controllers"));
            controllers.is_ok_and(|text| text.split_whitespace().any(|one| one == "cpu"))
        })
    };
    first.map(|place| (place, false)).or_else(|| second().map(|place| (place, true)))
}

/// Whether quotas can be had here.
///
/// # Errors
/// Why not.
pub(super) fn are_there() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("it needs root, for control groups");
    }
    Quota::new("try", 0.5).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_have_a_longer_period() {
        for (share, expected) in [(0.2, (2_000, 10_000)), (0.1, (1_000, 10_000)), (0.05, (1_000, 20_000))] {
            assert_eq!(micros(share), expected, "{share}");
        }
    }

    #[test]
    fn groups_of_version_1_are_found_among_mounts() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /groups/memory cgroup rw,memory 0 0\n\
                      cgroup /groups/cpu cgroup rw,cpu,cpuacct 0 0\n";
        assert_eq!(hierarchy(mounts), Some((PathBuf::from("/groups/cpu"), false)));
        assert_eq!(hierarchy("proc /proc proc rw 0 0\ncgroup2 /nowhere cgroup2 rw 0 0\n"), None);
    }
}
