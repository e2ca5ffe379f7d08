//! A control group with a quota of processor time, of version 1 or 2, for a process of a test.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

/// A group; removed when it is dropped, which its processes have to leave before.
#[derive(Debug)]
pub struct Group {
    /// Where its quota is, and in version 1 where its use is counted, where that is another hierarchy.
    folders: Vec<PathBuf>,
    is_unified: bool,
}

impl Group {
    /// Makes a group that may use so many microseconds of each so many.
    ///
    /// # Errors
    /// Where there are no such groups here, or they are not ours to make.
    pub fn limited(quota_us: u32, period_us: u32) -> io::Result<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let of = |controller: &str| {
            mounts.lines().find_map(|line| {
                let [_, top, kind, options] = line.split(' ').collect::<Vec<_>>()[..4] else { return None };
                let has_it = kind == "cgroup" && options.split(',').any(|option| option == controller);
                has_it.then(|| PathBuf::from(top))
            })
        };
        let unified = || mounts.lines().find_map(|line| line.split_once(" cgroup2 ")?.0.split(' ').nth(1));
        let (tops, is_unified) = match (of("cpu"), of("cpuacct")) {
            (Some(quota), Some(used)) => (vec![quota, used], false),
            _ => (vec![PathBuf::from(unified().ok_or(io::ErrorKind::NotFound)?)], true),
        };
        if is_unified {
            fs::write(tops[0].join("cgroup.subtree_control"), "+cpu")?;
        }
        let name = format!("pointsman-test-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let mut group = Group { folders: Vec::new(), is_unified };
        for top in tops {
            let folder = top.join(&name);
            // Of one hierarchy with both it is there already.
            if !group.folders.iter().any(|made| is_same(made, &folder)) {
                fs::create_dir(&folder)?;
                group.folders.push(folder);
            }
        }
        group.limit(&quota_us.to_string(), period_us)?;
        Ok(group)
    }

    /// Puts a process into it.
    ///
    /// # Panics
    /// Where the system refuses it.
    pub fn take(&self, process: Pid) {
        self.put(&self.folders, process);
    }

    /// Takes a process out of it.
    ///
    /// # Panics
    /// Where the system refuses it.
    pub fn release(&self, process: Pid) {
        let above: Vec<PathBuf> =
            self.folders.iter().filter_map(|folder| folder.parent()).map(Path::to_owned).collect();
        self.put(&above, process);
    }

    fn put(&self, folders: &[PathBuf], process: Pid) {
        for folder in folders {
            fs::write(folder.join("cgroup.procs"), process.to_string()).expect("the process may be moved");
        }
    }

    fn limit(&self, quota: &str, period_us: u32) -> io::Result<()> {
        let to = |file: &str, text: &str| fs::write(self.folders[0].join(file), text);
        if self.is_unified {
            return to("cpu.max", &format!("{quota} {period_us}"));
        }
        to("cpu.cfs_period_us", &period_us.to_string())?;
        to("cpu.cfs_quota_us", quota)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Whether two paths lead to one folder, as links to one hierarchy do.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}
