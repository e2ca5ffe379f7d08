//! Duplicates of other processes' sockets, each for a moment (`pidfd_getfd`, Linux 5.6).
//!
//! A duplicate keeps a socket open: as long as it is held, a server that closes the socket has not closed it, and what
//! is sent to it is lost. So none is held. A look is three system calls: duplicate, ask, close.

use std::fs::{self, File};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use net::memory::Memory;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::queue::{Queue, Waiting};

/// How many descriptors are looked at in one search: those of a machine with many busy processes. A search for more
/// than that would be noticed.
const DESCRIPTORS_MAX: usize = 200_000;

/// Where to get duplicates of some sockets.
#[derive(Debug, Default)]
pub struct Duplicates(Vec<Place>);

#[derive(Debug)]
struct Place {
    inode: u32,
    number: Pid,
    process: OwnedFd,
    descriptor: RawFd,
}

impl Duplicates {
    /// Searches all processes for the sockets with these inodes; what we may not look into is passed over.
    pub fn find(inodes: &[u32]) -> Self {
        let mut places = Self::default();
        let mut left = DESCRIPTORS_MAX;
        let Ok(processes) = fs::read_dir("/proc") else { return places };
        for process in processes.flatten() {
            let number =
                process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(number) = number else { continue };
            places.search(inodes, number, &process.path().join("fd"), &mut left);
            if places.len() == inodes.len() || left == 0 {
                break;
            }
        }
        places
    }

    fn search(&mut self, inodes: &[u32], number: Pid, folder: &Path, left: &mut usize) {
        // Opened once something is found: most processes hold none of them.
        let mut process: Option<OwnedFd> = None;
        let Ok(descriptors) = fs::read_dir(folder) else { return };
        for descriptor in descriptors.flatten() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return;
            }
            let Some(inode) = fs::read_link(descriptor.path()).ok().and_then(|link| socket(link.to_str()?))
            else {
                continue;
            };
            if !inodes.contains(&inode) || self.0.iter().any(|place| place.inode == inode) {
                continue;
            }
            let Some(descriptor) = descriptor.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let opened = match &process {
                Some(process) => process.try_clone(),
                None => pidfd_open(number, PidfdFlags::empty()).map_err(io::Error::from),
            };
            let Ok(opened) = opened else { return };
            process = opened.try_clone().ok();
            let place = Place { inode, number, process: opened, descriptor };
            // Where we may not, it is not tried again a thousand times a second.
            if place.look().is_ok() {
                self.0.push(place);
            }
        }
    }

    /// A process that holds one of them.
    pub fn process(&self) -> Option<Pid> {
        self.0.first().map(|place| place.number)
    }

    /// How many sockets were found.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at a socket for datagrams.
    ///
    /// # Errors
    /// Where it is not there any more, or was not found.
    pub fn look(&self, inode: u32) -> io::Result<Queue> {
        let place = self.0.iter().find(|place| place.inode == inode);
        place.ok_or(io::ErrorKind::NotFound)?.look()
    }
}

impl Place {
    fn look(&self) -> io::Result<Queue> {
        let duplicate = File::from(pidfd_getfd(&self.process, self.descriptor, PidfdGetfdFlags::empty())?);
        // The number may be another file's by now.
        if duplicate.metadata()?.ino() != u64::from(self.inode) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let Memory { charged, room, drops } = Memory::of(&duplicate)?;
        let waiting = Waiting::Datagrams { charged, room, queued: charged };
        Ok(Queue { inode: self.inode, waiting, drops })
    }
}

/// The inode in what a descriptor of a socket leads to: `socket:[INODE]`.
fn socket(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn links_to_sockets() {
        for (link, inode) in
            [("socket:[4711]", Some(4711)), ("pipe:[4711]", None), ("socket:[]", None), ("/dev/null", None)]
        {
            assert_eq!(socket(link), inode, "{link}");
        }
    }

    /// Our own process may always be looked into; another one's is what the end-to-end tests try.
    #[test]
    fn a_socket_is_found_looked_at_and_let_go() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let at = server.local_addr().expect("it is bound");
        let file = File::from(server.as_fd().try_clone_to_owned().expect("descriptors are left"));
        let inode =
            u32::try_from(file.metadata().expect("it is open").ino()).expect("sockets have short inodes");
        drop(file);
        let duplicates = Duplicates::find(&[inode, u32::MAX]);
        assert_eq!(duplicates.len(), 1);
        assert!(duplicates.look(u32::MAX).is_err());
        let empty = duplicates.look(inode).expect("it is there");
        assert!(matches!(empty.waiting, Waiting::Datagrams { charged: 0, .. }), "{empty:?}");
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        client.send_to(&[1; 40], at).expect("loopback sends");
        let one = duplicates.look(inode).expect("it is there");
        assert!(matches!(one.waiting, Waiting::Datagrams { charged: 1.., .. }), "{one:?}");
        // Closed by its owner it is gone, and its port is free at once.
        drop(server);
        assert!(duplicates.look(inode).is_err());
        UdpSocket::bind(at).expect("nobody holds the port");
    }
}
