//! The server while it is asked: processor time, memory and sockets of its processes, as Linux tells them.
//!
//! The kernel does not tell on which core a process used its time: that of a thread counts for the core on which the
//! thread was last seen.
//!
//! - `sockets`: which are theirs, their states, their memory.

mod sockets;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use api::replay::ServerSecond;

pub use sockets::TIME_WAIT;

/// Clock ticks a second in what the kernel tells programs, the same on all architectures of today (USER_HZ).
const TICKS: f64 = 100.0;

/// The most processes of a tree: a server with more is none that is replayed to.
const PROCESSES_MAX: usize = 4_096;

/// The most threads of which is told on which core they ran.
const THREADS_MAX: usize = 16_384;

/// The most cores: what Linux can be built for.
const CORES_MAX: usize = 8_192;

/// A process and all that it began, read again and again.
#[derive(Debug)]
pub struct Observer {
    pid: u32,
    /// Ticks of each process until the last reading: user, system.
    ticks: HashMap<u32, [u64; 2]>,
    /// Ticks of each thread until the last reading, user and system together.
    threads: HashMap<u32, u64>,
    /// What each core of the host had done until the last reading.
    cores: Vec<Spent>,
}

/// What cores have done since the machine was started; the kernel counts it in hundredths of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// They worked for programs, the kernel and interrupts. The kernel looks every few milliseconds what it is, and under
    /// a hypervisor many of these looks are missing.
    pub busy: Duration,
    /// They did nothing, also while disks were waited for.
    pub idle: Duration,
    /// The machine's host had them.
    pub stolen: Duration,
}

impl Observer {
    /// Begins with a first reading.
    ///
    /// # Errors
    /// Those of [`Observer::second`].
    pub fn new(pid: u32) -> io::Result<Observer> {
        let mut observer =
            Observer { pid, ticks: HashMap::new(), threads: HashMap::new(), cores: Vec::new() };
        observer.second(1.0)?;
        Ok(observer)
    }

    /// Reads what is there now; processor time counts since the reading before, so many seconds ago.
    ///
    /// # Errors
    /// There is no such process any more, or its descriptors are not ours to read.
    pub fn second(&mut self, since: f64) -> io::Result<ServerSecond> {
        let tree = tree(self.pid)?;
        let mut second = ServerSecond { processes: tree.len() as u64, ..ServerSecond::default() };
        let mut sockets = HashSet::new();
        let mut ticks = HashMap::new();
        let (_, host) = spent().unwrap_or_default();
        second.host_cores = host.iter().enumerate().map(|(core, now)| self.busy(core, *now)).collect();
        second.cores = vec![0.0; host.len()];
        self.cores = host;
        let mut threads = HashMap::new();
        for (pid, now) in tree {
            for (thread, now, core) in threads_of(pid, THREADS_MAX.saturating_sub(threads.len())) {
                let before = self.threads.get(&thread).copied().unwrap_or_default();
                if let Some(cores) = second.cores.get_mut(core) {
                    *cores += now.saturating_sub(before) as f64 / TICKS / since;
                }
                threads.insert(thread, now);
            }
            let before = self.ticks.get(&pid).copied().unwrap_or_default();
            second.user += now[0].saturating_sub(before[0]) as f64 / TICKS / since;
            second.system += now[1].saturating_sub(before[1]) as f64 / TICKS / since;
            ticks.insert(pid, now);
            // Of the first process all must be there; another one may have ended meanwhile.
            match (resident(pid), sockets::held(pid)) {
                (Ok(octets), Ok(held)) => {
                    second.resident_octets += octets;
                    sockets.extend(held);
                }
                (Err(error), _) | (_, Err(error)) if pid == self.pid => return Err(error),
                _ => {}
            }
        }
        (self.ticks, self.threads) = (ticks, threads);
        second.tcp = sockets::states(self.pid, &sockets);
        second.socket_octets = sockets::octets(self.pid, &sockets).ok();
        second.host_tcp_pages = sockets::host_pages(self.pid).unwrap_or(0);
        Ok(second)
    }
}

impl Observer {
    /// The share of the time since the last reading in which a core did something.
    fn busy(&self, core: usize, now: Spent) -> f64 {
        now.since(self.cores.get(core).copied().unwrap_or_default()).in_use()
    }
}

impl Spent {
    /// What has been done since `before`.
    pub fn since(self, before: Spent) -> Spent {
        Spent {
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }

    /// The share of all in which something was done, here or by the host; 0 of nothing.
    pub fn in_use(self) -> f64 {
        let used = self.busy + self.stolen;
        if used.is_zero() { 0.0 } else { used.div_duration_f64(used + self.idle) }
    }
}

/// What the machine's host has taken from its cores since it was started; zero where nothing tells.
pub fn stolen() -> Duration {
    spent().unwrap_or_default().0.stolen
}

/// What all cores of the machine together have done, and each of them by the kernel's number; one that is offline has
/// done nothing.
///
/// # Errors
/// `/proc` cannot be read.
pub fn spent() -> io::Result<(Spent, Vec<Spent>)> {
    Ok(spent_of(&fs::read_to_string("/proc/stat")?))
}

/// The same from a reading of `/proc/stat` (proc(5)).
fn spent_of(stat: &str) -> (Spent, Vec<Spent>) {
    let spent = |ticks: &str| {
        let mut words = ticks.split_whitespace().map(|ticks| ticks.parse::<u64>().unwrap_or(0));
        let mut next = || Duration::from_secs_f64(words.next().unwrap_or(0) as f64 / TICKS);
        // Guests, which come behind, are part of the first.
        let (user, nice, system, idle, disks) = (next(), next(), next(), next(), next());
        let (interrupts, soft, stolen) = (next(), next(), next());
        Spent { busy: user + nice + system + interrupts + soft, idle: idle + disks, stolen }
    };
    let (mut all, mut cores) = (Spent::default(), Vec::new());
    for (core, ticks) in stat.lines().filter_map(|line| line.strip_prefix("cpu")?.split_once(' ')) {
        match core.parse::<usize>() {
            Ok(core) if core < CORES_MAX => {
                cores.resize(cores.len().max(core + 1), Spent::default());
                cores[core] = spent(ticks);
            }
            Ok(_) => {}
            Err(_) => all = spent(ticks),
        }
    }
    (all, cores)
}

/// The threads of a process: number, ticks, and the core on which each was last seen.
fn threads_of(pid: u32, most: usize) -> Vec<(u32, u64, usize)> {
    let tasks = fs::read_dir(of(pid, "task")).into_iter().flatten().flatten().take(most);
    let read = tasks.filter_map(|task| {
        let thread = task.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (_, [user, system]) = stat_of(&stat)?;
        Some((thread, user + system, core_of(&stat)?))
    });
    read.collect()
}

/// The core on which a thread was last seen, from its `stat`.
fn core_of(stat: &str) -> Option<usize> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

fn of(pid: u32, what: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{what}"))
}

/// A process and its descendants, each with its ticks.
fn tree(root: u32) -> io::Result<Vec<(u32, [u64; 2])>> {
    let read = |pid| fs::read_to_string(of(pid, "stat")).map(|stat| stat_of(&stat));
    let (_, ticks) = read(root)?.ok_or_else(|| io::Error::other("/proc is not as expected"))?;
    let mut children: HashMap<u32, Vec<(u32, [u64; 2])>> = HashMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Ok(Some((parent, ticks))) = read(pid)
        {
            children.entry(parent).or_default().push((pid, ticks));
        }
    }
    let mut tree = vec![(root, ticks)];
    let mut at = 0;
    while let Some((pid, _)) = tree.get(at) {
        let more = children.remove(pid).unwrap_or_default();
        tree.extend(more.into_iter().take(PROCESSES_MAX.saturating_sub(at)));
        at += 1;
    }
    tree.truncate(PROCESSES_MAX);
    Ok(tree)
}

/// The parent of a process and its ticks, from `/proc/PID/stat`.
fn stat_of(stat: &str) -> Option<(u32, [u64; 2])> {
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = [fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?];
    Some((fields.get(1)?.parse().ok()?, ticks))
}

fn resident(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(of(pid, "status"))?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    Ok(kilobytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let stat = "7 (a) b (c) S 3 7 7 0 -1 4194560 100 0 0 0 25 50 0 0 20 0 1 0 5 0 0";
        assert_eq!(stat_of(stat), Some((3, [25, 50])));
        assert_eq!(stat_of("7 (a"), None);
        assert_eq!(core_of(&format!("7 (a) S {}3 0 0", "1 ".repeat(35))), Some(3));
        assert_eq!(core_of(stat), None);
        let host = "cpu  9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 1 1\ncpu1 10 0 0 90 0 0 0 0 0 0\nintr 5\n";
        let spent = |ticks: [u64; 3]| {
            let [busy, idle, stolen] = ticks.map(|ticks| Duration::from_millis(10 * ticks));
            Spent { busy, idle, stolen }
        };
        let (all, cores) = spent_of(host);
        assert_eq!((all, &cores[..]), (spent([27, 9, 0]), &[spent([19, 45, 8]), spent([10, 90, 0])][..]));
        assert_eq!(cores.iter().map(|core| core.in_use()).collect::<Vec<_>>(), [27.0 / 72.0, 0.1]);
        assert_eq!(cores[1].since(cores[0]), spent([0, 45, 0]), "counts of other cores go back");
        assert_eq!(spent_of("cpu  1 2 3 4 5 6 7 80 9 9\ncpu0 1 2 3 4 5 6 7 8\n").0.stolen.as_millis(), 800);
        assert_eq!(spent_of("cpu  no\n"), (Spent::default(), vec![]));
        let (_, cores) = spent_of("cpu0 1 0 0 1\ncpu2 2 0 0 2\ncpu99999 9 0 0 9\n");
        assert_eq!(cores, [spent([1, 1, 0]), Spent::default(), spent([2, 2, 0])], "one is offline");
        assert_eq!(Spent::default().in_use(), 0.0);
    }

    #[test]
    fn this_process_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback binds");
        let second = Observer::new(std::process::id()).and_then(|mut observer| observer.second(1.0));
        let second = second.expect("it is there");
        assert!(second.processes >= 1 && second.resident_octets > 0, "{second:?}");
        assert!(second.tcp["listen"] >= 1 && second.socket_octets.is_some(), "{second:?}");
        assert!(!second.cores.is_empty() && second.cores.len() == second.host_cores.len(), "{second:?}");
        assert!(second.host_cores.iter().all(|busy| (0.0..=1.0).contains(busy)), "{second:?}");
        drop(listener);
        assert!(Observer::new(u32::MAX).is_err());
    }
}
