//! A share of one processor, as a control group of ours has it, of version 1 or 2; and what the group has used.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

/// From one refill to the next, where nothing else is said: short beside the times that are measured.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

/// The kernel takes no smaller quota (`min_cfs_quota_period`), so that small shares have a longer period.
const QUOTA_MIN: Duration = Duration::from_millis(1);

/// What the names of our groups begin with; the process and a name follow.
const OURS: &str = "pointsman-";

/// A group with a quota; removed when dropped.
#[derive(Debug)]
pub(crate) struct Quota {
    /// Where its quota is and where its use is counted, which are two groups in version 1, and where both are one.
    folders: Vec<PathBuf>,
    counter: Counter,
    is_unified: bool,
    period: Duration,
}

/// Where the kernel counts the processor time of a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counter {
    pub(crate) file: PathBuf,
    /// The text behind which the count stands.
    pub(crate) after: &'static str,
    /// Counts in a second of one processor.
    pub(crate) per_second: f64,
}

/// Where groups are made.
#[derive(Debug, PartialEq, Eq)]
struct Roots {
    quota: PathBuf,
    counter: PathBuf,
    is_unified: bool,
}

/// Sees whether groups with quotas can be made here; groups of runs that were broken off are removed.
///
/// # Errors
/// Why not.
pub(crate) fn are_there() -> Result<()> {
    let roots = Roots::here()?;
    for root in [&roots.quota, &roots.counter] {
        for entry in fs::read_dir(root).with_context(|| root.display().to_string())?.flatten() {
            if is_left_over(&entry.file_name().to_string_lossy()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
    Quota::new("try", 0.5, PERIOD).map(drop)
}

impl Quota {
    /// Makes a group that may use this share of one processor, refilled each period, or less often where the share is small.
    ///
    /// # Errors
    /// Where there are no such groups here, or they are not ours to make.
    pub(crate) fn new(name: &str, share: f64, period: Duration) -> Result<Quota> {
        let roots = Roots::here()?;
        if roots.is_unified {
            write(&roots.quota.join("cgroup.subtree_control"), "+cpu")?;
        }
        let name = format!("{OURS}{}-{name}", std::process::id());
        let group = |root: &Path| root.join(&name);
        let is_unified = roots.is_unified;
        let counter = counter(&group(&roots.counter), is_unified);
        let mut quota = Quota { folders: Vec::new(), counter, is_unified, period };
        let mut folders = vec![group(&roots.quota), group(&roots.counter)];
        folders.dedup();
        for folder in folders {
            fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
            quota.folders.push(folder);
        }
        quota.set(share)?;
        Ok(quota)
    }

    /// Changes how much of a processor the group may use: 1 is all of one.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn set(&self, share: f64) -> Result<()> {
        let (quota, period) = micros(share, self.period);
        let to = |file: &str, text: &str| write(&self.folders[0].join(file), text);
        if self.is_unified {
            return to("cpu.max", &format!("{quota} {period}"));
        }
        // The kernel refuses a group that may have more than it may, also in between.
        to("cpu.cfs_quota_us", "-1")?;
        to("cpu.cfs_period_us", &period.to_string())?;
        to("cpu.cfs_quota_us", &quota.to_string())
    }

    /// Puts a process into the group, with all that it begins.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn take(&self, process: u32) -> Result<()> {
        self.folders.iter().try_for_each(|folder| write(&folder.join("cgroup.procs"), &process.to_string()))
    }

    /// Where its use is counted.
    pub(crate) fn counter(&self) -> &Counter {
        &self.counter
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Its processes have ended before: who is in it goes first.
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

impl Counter {
    /// The processor time that was used so far, in seconds.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) fn seconds(&self) -> Result<f64> {
        let text = fs::read_to_string(&self.file).with_context(|| self.file.display().to_string())?;
        let count = counted(&text, self.after).with_context(|| format!("{}: {text}", self.file.display()))?;
        Ok(count / self.per_second)
    }
}

impl Roots {
    fn here() -> Result<Roots> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
        Roots::among(&mounts).context("no control groups for processor time are mounted")
    }

    fn among(mounts: &str) -> Option<Roots> {
        let mounted = |kind: &str, is_wanted: &dyn Fn(&Path, &str) -> bool| {
            mounts.lines().find_map(|line| {
                let mut words = line.split(' ').skip(1);
                let (place, its_kind, options) = (Path::new(words.next()?), words.next()?, words.next()?);
                (its_kind == kind && is_wanted(place, options)).then(|| place.to_path_buf())
            })
        };
        let of =
            |wanted: &str| mounted("cgroup", &|_, options| options.split(',').any(|option| option == wanted));
        if let (Some(quota), Some(counter)) = (of("cpu"), of("cpuacct")) {
            return Some(Roots { quota, counter, is_unified: false });
        }
        let unified = mounted("cgroup2", &|place, _| {
            let controllers = fs::read_to_string(place.join("cgroup.controllers"));
            controllers.is_ok_and(|text| text.split_whitespace().any(|one| one == "cpu"))
        })?;
        Some(Roots { quota: unified.clone(), counter: unified, is_unified: true })
    }
}

fn counter(group: &Path, is_unified: bool) -> Counter {
    if is_unified {
        return Counter { file: group.join("cpu.stat"), after: "usage_usec", per_second: 1e6 };
    }
    Counter { file: group.join("cpuacct.usage"), after: "", per_second: 1e9 }
}

fn counted(text: &str, after: &str) -> Option<f64> {
    text.split_once(after)?.1.split_whitespace().next()?.parse().ok()
}

/// Quota and period in microseconds.
fn micros(share: f64, period: Duration) -> (u128, u128) {
    let period = period.max(QUOTA_MIN.div_f64(share));
    (period.mul_f64(share).max(QUOTA_MIN).as_micros(), period.as_micros())
}

/// Whether this is a group of ours, of a process that is no more.
fn is_left_over(group: &str) -> bool {
    let process = group.strip_prefix(OURS).and_then(|rest| rest.split('-').next());
    let process = process.filter(|number| number.parse::<u32>().is_ok());
    process.is_some_and(|number| !Path::new("/proc").join(number).exists())
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("{}: {text}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_have_a_longer_period() {
        for (share, expected) in [(0.2, (2_000, 10_000)), (0.1, (1_000, 10_000)), (0.05, (1_000, 20_000))] {
            assert_eq!(micros(share, PERIOD), expected, "{share}");
        }
    }

    #[test]
    fn groups_of_version_1_are_found_among_mounts() {
        let roots = |quota: &str, counter: &str| {
            Some(Roots { quota: quota.into(), counter: counter.into(), is_unified: false })
        };
        for (mounts, expected) in [
            ("cgroup /g/memory cgroup rw,memory 0 0\ncgroup /g/cpu cgroup rw,cpu 0 0\n", None),
            ("cgroup /g/a cgroup rw,cpuacct 0 0\ncgroup /g/c cgroup rw,cpu 0 0\n", roots("/g/c", "/g/a")),
            (
                "tmpfs /g tmpfs rw 0 0\ncgroup /g/both cgroup rw,cpu,cpuacct 0 0\n",
                roots("/g/both", "/g/both"),
            ),
            ("proc /proc proc rw 0 0\ncgroup2 /nowhere cgroup2 rw 0 0\n", None),
        ] {
            assert_eq!(Roots::among(mounts), expected, "{mounts}");
        }
    }

    #[test]
    fn what_was_used_is_read_in_both_versions() {
        assert_eq!(counted("1500000000\n", ""), Some(1.5e9));
        assert_eq!(counted("usage_usec 2500\nuser_usec 2000\n", "usage_usec"), Some(2_500.0));
        assert_eq!(counted("user_usec 2000\n", "usage_usec"), None);
    }

    #[test]
    fn only_groups_of_processes_that_are_no_more_are_left_over() {
        assert!(is_left_over("pointsman-4294967295-127.0.0.1"));
        let ours = format!("pointsman-{}-try", std::process::id());
        for other in [&*ours, "pointsman-", "pointsman-serve", "system.slice"] {
            assert!(!is_left_over(other), "{other}");
        }
    }
}
