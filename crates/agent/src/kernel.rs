//! Samples: what the kernel says of the sockets of a service, also where they are another program's.
//!
//! Two ways. Sockets are found, and looked at whole, through `NETLINK_SOCK_DIAG` ([`diag`]): it needs no rights, and
//! sees the sockets of the network namespace in which the agent runs. A list costs tens of microseconds, more where there
//! are many sockets; one socket alone a few. Where the agent may (root, or the server's own user where the kernel lets one process look into
//! another), it also takes a duplicate of a socket for a moment and asks that ([`duplicate`]): a few microseconds, so
//! that drops are seen within a few milliseconds. Then it also knows the server's process, and looks at the quota of its
//! control group ([`group`]).

pub mod diag;
pub mod duplicate;
pub mod group;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use credit::{Service, Transport};
use net::clock::Clock;

use crate::queue::{Queue, Sample, Waiting};
use crate::quota::Reading;
use diag::{Diag, Family, Found};
use duplicate::Duplicates;
use group::Group;

/// From one search for the processes that hold the sockets to the next, where the last one has failed: it reads the
/// descriptors of all processes, for which reports wait. Each failure doubles it.
const SEARCH_INTERVAL: Duration = Duration::from_secs(5);

/// The longest time from one such search to the next.
const SEARCH_INTERVAL_MAX: Duration = Duration::from_secs(600);

/// From one look at the list of sockets to the next, where less is enough: duplicates tell that the queues are empty, or
/// there is one socket alone. A server that opens a further socket is noticed so soon.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// From one look for a server's control group to the next: it may be moved, and get a quota at any time.
const GROUP_INTERVAL: Duration = Duration::from_secs(1);

/// The last search for the processes that hold the sockets.
#[derive(Debug)]
struct Search {
    inodes: Vec<u32>,
    at: Duration,
    /// How long it holds if it has failed.
    interval: Duration,
}

/// Takes samples of one service.
#[derive(Debug)]
pub struct Kernel {
    service: Service,
    diag: Diag,
    found: Vec<Found>,
    duplicates: Duplicates,
    searched: Option<Search>,
    listed: Option<Duration>,
    group: Option<Group>,
    grouped: Option<Duration>,
}

impl Kernel {
    /// Gets ready; the service need not be there yet.
    ///
    /// # Errors
    /// What the system says where it has no `sock_diag` for us.
    pub fn new(service: Service) -> io::Result<Self> {
        let diag = Diag::open()?;
        Ok(Self {
            service,
            diag,
            found: Vec::new(),
            duplicates: Duplicates::default(),
            searched: None,
            listed: None,
            group: None,
            grouped: None,
        })
    }

    /// Takes a whole sample at `now`.
    ///
    /// # Errors
    /// What the system says.
    pub fn sample(&mut self, now: Duration) -> io::Result<Sample> {
        let is_listed = self.listed.is_some_and(|at| now.saturating_sub(at) < LIST_INTERVAL);
        if is_listed
            && let Some(glance) = self.glance(now)
            && glance
                .queues
                .iter()
                .all(|queue| matches!(queue.waiting, Waiting::Datagrams { charged: 0, .. }))
        {
            // What is charged is what waits: nothing.
            return Ok(glance);
        }
        if is_listed && let Some(sample) = self.one(now) {
            return Ok(sample);
        }
        self.list()?;
        self.listed = Some(now);
        self.search(now);
        Ok(Sample { at: now, queues: self.found.iter().map(|found| found.queue).collect() })
    }

    /// Takes a whole sample of the only socket; `None` where there are more, or it is another one now.
    fn one(&mut self, now: Duration) -> Option<Sample> {
        let [known] = self.found[..] else { return None };
        if self.service.transport() == Transport::Tcp {
            return None;
        }
        let found = self.diag.one(self.service.address()).ok()??;
        let is_same = found.queue.inode == known.queue.inode;
        is_same.then(|| Sample { at: now, queues: vec![found.queue] })
    }

    /// Takes a sample that is not whole, where that is cheap; `None` where duplicates are not to be had, or no longer.
    pub fn glance(&mut self, now: Duration) -> Option<Sample> {
        if self.service.transport() == Transport::Tcp || !self.has_duplicates() {
            return None;
        }
        let queues: io::Result<Vec<Queue>> =
            self.found.iter().map(|found| self.duplicates.look(found.queue.inode)).collect();
        match queues {
            Ok(queues) => Some(Sample { at: now, queues }),
            Err(_) => {
                // A socket was closed; the next whole sample lists what there is.
                self.duplicates = Duplicates::default();
                self.listed = None;
                None
            }
        }
    }

    /// What the server's control group counts; nothing where that cannot be seen, or it has no quota.
    pub fn used(&mut self, clock: &Clock) -> Option<Reading> {
        let now = clock.now().monotonic;
        if self.grouped.is_none_or(|at| now.saturating_sub(at) >= GROUP_INTERVAL) {
            self.grouped = Some(now);
            let group = self.duplicates.process().and_then(Group::of);
            let folder = |group: &Option<Group>| group.as_ref().map(|group| group.folder().to_owned());
            let (before, after) = (folder(&self.group), folder(&group));
            if before != after {
                let service = self.service;
                match after {
                    Some(folder) => {
                        tracing::info!(%service, folder = %folder.display(), "has a quota of processor time")
                    }
                    None => tracing::info!(%service, "has no quota of processor time that is seen any more"),
                }
            }
            self.group = group;
        }
        let read = self.group.as_ref()?.read(clock);
        read.unwrap_or_else(|_| {
            self.group = None;
            None
        })
    }

    /// Whether samples that are not whole can be had.
    pub fn has_duplicates(&self) -> bool {
        !self.found.is_empty() && self.duplicates.len() == self.found.len()
    }

    fn list(&mut self) -> io::Result<()> {
        let address = self.service.address();
        let families: &[Family] = match address {
            // A socket for IPv6 may take IPv4 as well.
            SocketAddr::V4(_) => &[Family::V4, Family::V6],
            SocketAddr::V6(_) => &[Family::V6],
        };
        let mut all = Vec::new();
        for family in families {
            self.diag.list(self.service.transport(), *family, address.port(), &mut all)?;
            self.found = diag::serving(&all, address);
            if !self.found.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Looks for the processes of sockets that are new.
    fn search(&mut self, now: Duration) {
        if self.has_duplicates() || self.found.is_empty() || self.service.transport() == Transport::Tcp {
            return;
        }
        let inodes: Vec<u32> = self.found.iter().map(|found| found.queue.inode).collect();
        let Some(interval) = due(self.searched.as_ref(), &inodes, now) else { return };
        self.duplicates = Duplicates::find(&inodes);
        self.searched = Some(Search { inodes, at: now, interval });
    }
}

/// How long a search for these holds if it fails, where one is due.
fn due(last: Option<&Search>, inodes: &[u32], now: Duration) -> Option<Duration> {
    let Some(last) = last.filter(|last| last.inodes == inodes) else { return Some(SEARCH_INTERVAL) };
    (now.saturating_sub(last.at) >= last.interval).then(|| (last.interval * 2).min(SEARCH_INTERVAL_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn searches_in_vain_become_seldom_and_other_sockets_are_looked_for_at_once() {
        let (mut last, mut at) = (None, Vec::new());
        for now in (0..2_000).map(Duration::from_secs) {
            if let Some(interval) = due(last.as_ref(), &[1, 2], now) {
                at.push(now.as_secs());
                last = Some(Search { inodes: vec![1, 2], at: now, interval });
            }
        }
        assert_eq!(at, [0, 5, 15, 35, 75, 155, 315, 635, 1_235, 1_835]);
        assert_eq!(due(last.as_ref(), &[1, 3], Duration::from_secs(1_836)), Some(SEARCH_INTERVAL));
    }

    #[test]
    fn without_duplicates_sockets_are_listed_no_more_often() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let address = socket.local_addr().expect("it is bound");
        let service = Service::new(Transport::Udp, address.ip(), address.port());
        let mut kernel = Kernel::new(service).expect("sock_diag is there");
        let at = Duration::from_millis;
        kernel.sample(at(0)).expect("a sample");
        // As where we may not look into the server.
        kernel.duplicates = Duplicates::default();
        for now in [20, 40, 60] {
            assert!(kernel.glance(at(now)).is_none());
            kernel.sample(at(now)).expect("a sample");
            assert_eq!(kernel.listed, Some(at(0)));
        }
        kernel.sample(LIST_INTERVAL).expect("a sample");
        assert_eq!(kernel.listed, Some(LIST_INTERVAL));
    }
}
