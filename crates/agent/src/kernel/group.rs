//! The control group of a server's process, which may have a quota of processor time: version 1 and 2.
//!
//! Limits of all groups above hold too: the one that leaves the least of a processor is looked at. Files stay open, as a look
//! comes with each hello.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use net::clock::Clock;
use rustix::process::Pid;

use crate::quota::Reading;

/// The most octets that are read of a file: `cpu.stat` has some hundreds.
const FILE_MAX: usize = 4096;

/// How many groups above one are looked at: as many as systemd and Kubernetes nest, and some more.
const DEPTH_MAX: usize = 32;

/// A group that has a quota.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
    files: Files,
}

#[derive(Debug)]
enum Files {
    /// `cpu.cfs_quota_us`, `cpu.cfs_period_us`, `cpu.stat`, and `cpuacct.usage` in another hierarchy.
    V1 { quota: File, period: File, stat: File, used: File },
    /// `cpu.max` and `cpu.stat`.
    V2 { max: File, stat: File },
}

/// Where a group is: its folder, and the top of what can be seen of its hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    folder: PathBuf,
    top: PathBuf,
}

impl Group {
    /// The group with the tightest quota of those that a process is in; `None` where there is none, or none that can be seen.
    pub fn of(process: Pid) -> Option<Group> {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_nonzero())).ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        Group::among(&groups, &mounts)
    }

    fn among(groups: &str, mounts: &str) -> Option<Group> {
        if let Some(place) = Place::find(groups, mounts, "cpu") {
            let used = Place::find(groups, mounts, "cpuacct")?;
            return tightest(&place, |folder| {
                let folder = folder.strip_prefix(&place.top).ok()?;
                Files::v1(&place.top.join(folder), &used.top.join(folder))
            });
        }
        tightest(&Place::find(groups, mounts, "")?, Files::v2)
    }

    /// What it counts now; nothing where it has no quota any more.
    ///
    /// # Errors
    /// Where the group is not there any more, or the kernel tells something unheard of.
    pub fn read(&self, clock: &Clock) -> io::Result<Option<Reading>> {
        let from = clock.now().monotonic;
        let counted = self.files.counted()?;
        let Some((quota, period)) = self.files.quota()? else { return Ok(None) };
        let at = clock.now().monotonic;
        let (periods, used) = counted;
        Ok(Some(Reading { from, at, quota, period, periods, used }))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Of a group and those above it the one whose quota is the least of its period.
fn tightest(place: &Place, open: impl Fn(&Path) -> Option<Files>) -> Option<Group> {
    let groups = place.folder.ancestors().take_while(|folder| folder.starts_with(&place.top)).take(DEPTH_MAX);
    let with_quotas = groups.filter_map(|folder| {
        let files = open(folder)?;
        let (quota, period) = files.quota().ok()??;
        Some((quota.as_secs_f64() / period.as_secs_f64(), Group { folder: folder.into(), files }))
    });
    with_quotas.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, group)| group)
}

impl Place {
    /// The group in the hierarchy with this controller, by the lines of `/proc/PID/cgroup` and `/proc/self/mountinfo`; an empty
    /// name is that of version 2.
    fn find(groups: &str, mounts: &str, controller: &str) -> Option<Place> {
        let group = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|one| one == controller).then_some(path)
        })?;
        mounts.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let is_it = match (controller, kind.next()?) {
                ("", kind) => kind == "cgroup2",
                (_, "cgroup") => kind.nth(1)?.split(',').any(|option| option == controller),
                _ => false,
            };
            let mut mount = mount.split(' ').skip(3);
            let (root, top) = (mount.next()?, PathBuf::from(mount.next()?));
            is_it.then_some(())?;
            // Outside of what is mounted here, as in another container, there is nothing to be seen.
            let path = Path::new(group).strip_prefix(root).ok()?;
            let is_inside = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            is_inside.then(|| Place { folder: top.join(path), top })
        })
    }
}

impl Files {
    fn v1(folder: &Path, used: &Path) -> Option<Files> {
        let open = |folder: &Path, file: &str| File::open(folder.join(file)).ok();
        Some(Files::V1 {
            quota: open(folder, "cpu.cfs_quota_us")?,
            period: open(folder, "cpu.cfs_period_us")?,
            stat: open(folder, "cpu.stat")?,
            used: open(used, "cpuacct.usage")?,
        })
    }

    fn v2(folder: &Path) -> Option<Files> {
        let open = |file: &str| File::open(folder.join(file)).ok();
        Some(Files::V2 { max: open("cpu.max")?, stat: open("cpu.stat")? })
    }

    /// Quota and period; nothing where it has none.
    fn quota(&self) -> io::Result<Option<(Duration, Duration)>> {
        let (quota, period) = match self {
            Files::V1 { quota, period, .. } => (text(quota)?, text(period)?),
            Files::V2 { max, .. } => {
                let text = text(max)?;
                let (quota, period) = text.trim().split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
                (quota.to_owned(), period.to_owned())
            }
        };
        if matches!(quota.trim(), "max" | "-1") {
            return Ok(None);
        }
        let (quota, period) = (number(&quota)?, number(&period)?);
        let is_one = quota > 0 && period > 0;
        Ok(is_one.then(|| (Duration::from_micros(quota), Duration::from_micros(period))))
    }

    /// How many periods it has been through, and what it has used.
    fn counted(&self) -> io::Result<(u64, Duration)> {
        let (stat, used) = match self {
            Files::V1 { stat, used, .. } => (text(stat)?, Duration::from_nanos(number(&text(used)?)?)),
            Files::V2 { stat, .. } => {
                let stat = text(stat)?;
                let used = Duration::from_micros(entry(&stat, "usage_usec")?);
                (stat, used)
            }
        };
        Ok((entry(&stat, "nr_periods")?, used))
    }
}

/// The number behind a name, a line each.
fn entry(text: &str, name: &str) -> io::Result<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(its, _)| *its == name).ok_or(io::ErrorKind::InvalidData)?;
    number(value)
}

fn number(text: &str) -> io::Result<u64> {
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// What a file of the kernel says now.
fn text(file: &File) -> io::Result<String> {
    let mut octets = [0; FILE_MAX];
    let length = file.read_at(&mut octets, 0)?;
    String::from_utf8(octets[..length].to_vec()).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::tests::folder::Folder;

    const MOUNTS: &str = "\
24 1 0:22 / /proc rw,nosuid - proc proc rw
30 24 0:26 / TOP/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
31 24 0:27 / TOP/cpu rw,nosuid - cgroup cgroup rw,cpu
32 24 0:28 / TOP/acct rw,nosuid - cgroup cgroup rw,cpuacct
";

    fn group(folder: &Folder, mounts: &str, groups: &str) -> Option<Group> {
        let top = folder.path().display().to_string();
        Group::among(groups, &mounts.replace("TOP", &top))
    }

    #[test]
    fn of_version_2_the_tightest_above_is_read() {
        let folder = Folder::new();
        let write = |group: &str, max: &str| {
            let path = folder.path().join("unified").join(group);
            fs::create_dir_all(&path).expect("a folder");
            fs::write(path.join("cpu.max"), max).expect("a file");
            fs::write(path.join("cpu.stat"), "usage_usec 2500\nuser_usec 9\nnr_periods 7\nnr_throttled 1\n")
                .expect("a file");
        };
        write("pod", "30000 100000\n");
        write("pod/box", "50000 100000\n");
        write("pod/box/inner", "max 100000\n");
        let unified = MOUNTS.lines().take(2).collect::<Vec<_>>().join("\n");
        let found = group(&folder, &unified, "0::/pod/box/inner\n").expect("there is a quota");
        assert_eq!(found.folder(), folder.path().join("unified/pod"));
        let read = found.read(&Clock::new()).expect("it is there").expect("it has a quota");
        let micros = Duration::from_micros;
        assert_eq!((read.quota, read.period), (micros(30_000), micros(100_000)));
        assert_eq!((read.periods, read.used), (7, micros(2_500)));
        assert!(read.from <= read.at);
        // A limit that is lifted, and one that is nonsense.
        fs::write(folder.path().join("unified/pod/cpu.max"), "max 100000\n").expect("a file");
        assert_eq!(found.read(&Clock::new()).expect("it is there"), None);
        fs::write(folder.path().join("unified/pod/cpu.max"), "much\n").expect("a file");
        assert!(found.read(&Clock::new()).is_err());
        assert!(group(&folder, &unified, "0::/other\n").is_none());
        assert!(group(&folder, &unified, "0::/../pod\n").is_none(), "it is outside");
    }

    #[test]
    fn of_version_1_quota_and_use_are_in_two_hierarchies() {
        let folder = Folder::new();
        for (path, text) in [
            ("cpu/a/cpu.cfs_quota_us", "20000\n"),
            ("cpu/a/cpu.cfs_period_us", "100000\n"),
            ("cpu/a/cpu.stat", "nr_periods 12\nnr_throttled 3\nthrottled_time 5\n"),
            ("acct/a/cpuacct.usage", "1234567\n"),
            ("cpu/b/cpu.cfs_quota_us", "-1\n"),
            ("cpu/b/cpu.cfs_period_us", "100000\n"),
            ("cpu/b/cpu.stat", "nr_periods 0\n"),
            ("acct/b/cpuacct.usage", "1\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let found =
            group(&folder, MOUNTS, "5:cpuset:/\n4:cpu:/a\n3:cpuacct:/a\n0::/\n").expect("there is a quota");
        let read = found.read(&Clock::new()).expect("it is there").expect("it has a quota");
        assert_eq!((read.quota.as_millis(), read.period.as_millis()), (20, 100));
        assert_eq!((read.periods, read.used), (12, Duration::from_nanos(1_234_567)));
        assert!(group(&folder, MOUNTS, "4:cpu:/b\n3:cpuacct:/b\n0::/\n").is_none());
    }

    #[test]
    fn what_is_mounted_may_be_a_part() {
        let mounts = "30 24 0:26 /docker/7 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let place = |group: &str| Place::find(&format!("0::{group}\n"), mounts, "").map(|place| place.folder);
        assert_eq!(place("/docker/7/x"), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(place("/docker/8"), None);
    }
}
