//! The sockets of processes.
//!
//! Those that a descriptor of theirs holds, and of TCP those that the kernel keeps without one (TIME_WAIT) where one of
//! theirs listens.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use net::netlink::{Asked, Netlink};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::nlas::{MemInfo, Nla};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};

use super::of;

/// The name of the state of TCP in which sockets have no descriptor any more.
pub const TIME_WAIT: &str = "time-wait";

const LISTEN: &str = "listen";

/// The names of TCP's states by their numbers in `/proc/net/tcp`, from 1.
const STATES: [&str; 12] = [
    "established",
    "syn-sent",
    "syn-received",
    "fin-wait-1",
    "fin-wait-2",
    TIME_WAIT,
    "close",
    "close-wait",
    "last-ack",
    LISTEN,
    "closing",
    "new-syn-received",
];

/// The number of questions about the kernel's sockets (`NETLINK_SOCK_DIAG`, sock_diag(7)).
const SOCK_DIAG: i32 = 4;

/// The inodes of a process's sockets.
///
/// # Errors
/// There is no such process, or its descriptors are not ours to read.
pub(super) fn held(pid: u32) -> io::Result<Vec<u64>> {
    let links = fs::read_dir(of(pid, "fd"))?.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode = |link: PathBuf| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    Ok(links.filter_map(inode).collect())
}

/// TCP sockets by state, of those with our inodes in the network namespace of a process.
pub(super) fn states(pid: u32, ours: &HashSet<u64>) -> BTreeMap<String, u64> {
    let mut states = BTreeMap::new();
    for table in ["tcp", "tcp6"] {
        // There is none of the second without IPv6.
        let table = fs::read_to_string(of(pid, "net").join(table)).unwrap_or_default();
        count(&table, ours, &mut states);
    }
    states
}

/// The memory of the TCP and UDP sockets with our inodes, as the kernel charges it: what waits to be received and sent,
/// and what is set aside for more.
///
/// # Errors
/// The process is in another network namespace than this one, of which the kernel tells us nothing, or what the kernel says.
pub(super) fn octets(pid: u32, ours: &HashSet<u64>) -> io::Result<u64> {
    if fs::read_link(of(pid, "ns/net"))? != fs::read_link("/proc/self/ns/net")? {
        return Err(io::Error::other("another network namespace"));
    }
    let mut kernel = Netlink::open(SOCK_DIAG)?;
    let mut octets = 0;
    for family in [AF_INET, AF_INET6] {
        for protocol in [IPPROTO_TCP, IPPROTO_UDP] {
            let question = InetRequest {
                family,
                protocol,
                extensions: ExtensionFlags::SKMEMINFO,
                states: StateFlags::all().difference(StateFlags::TIME_WAIT),
                socket_id: SocketId {
                    source_address: Ipv4Addr::UNSPECIFIED.into(),
                    destination_address: Ipv4Addr::UNSPECIFIED.into(),
                    ..SocketId::new_v4()
                },
            };
            kernel.ask(SockDiagMessage::InetRequest(question), Asked::List, |message| {
                if let SockDiagMessage::InetResponse(socket) = message
                    && ours.contains(&socket.header.inode.into())
                {
                    octets += socket.nlas.iter().map(charged).sum::<u64>();
                }
            })?;
        }
    }
    Ok(octets)
}

/// The pages of memory that TCP takes of the whole host.
pub(super) fn host_pages(pid: u32) -> Option<u64> {
    pages(&fs::read_to_string(of(pid, "net").join("sockstat")).ok()?)
}

/// What a socket is charged.
fn charged(attribute: &Nla) -> u64 {
    let Nla::MemInfo(memory) = attribute else { return 0 };
    let MemInfo {
        receive_queue, send_queue, bottom_send_queues, cache, options, backlog_queue_length, ..
    } = *memory;
    // What TCP has passed down is still in its send queue; UDP has none.
    let sent = send_queue.max(bottom_send_queues);
    // It is a debt for a moment where the kernel takes room before it has it.
    let cache = u32::try_from(cache.cast_signed()).unwrap_or(0);
    [receive_queue, sent, cache, options, backlog_queue_length].into_iter().map(u64::from).sum()
}

/// Counts the sockets with our inodes, and those in TIME_WAIT at an address and port where one of ours listens.
fn count(table: &str, ours: &HashSet<u64>, states: &mut BTreeMap<String, u64>) {
    let sockets = || table.lines().skip(1).filter_map(socket);
    let listening = sockets().filter(|(_, state, inode)| *state == LISTEN && ours.contains(inode));
    let listening: BTreeSet<(&str, &str)> = listening.map(|(local, ..)| local).collect();
    let is_listened = |(address, port): (&str, &str)| {
        let is_any = |at: &str| at.bytes().all(|digit| digit == b'0');
        listening.iter().any(|(at, to)| port == *to && (address == *at || is_any(at)))
    };
    for (local, state, inode) in sockets() {
        if ours.contains(&inode) || (state == TIME_WAIT && is_listened(local)) {
            *states.entry(state.into()).or_default() += 1;
        }
    }
}

/// A line of the kernel's table: address and port of this end, the state's name, the inode.
fn socket(line: &str) -> Option<((&str, &str), &'static str, u64)> {
    let mut fields = line.split_whitespace();
    let (local, state, inode) = (fields.nth(1)?, fields.nth(1)?, fields.nth(5)?);
    let state = usize::from_str_radix(state, 16).ok()?.checked_sub(1)?;
    Some((local.split_once(':')?, *STATES.get(state)?, inode.parse().ok()?))
}

/// The pages of TCP's memory, from `/proc/net/sockstat`.
fn pages(sockstat: &str) -> Option<u64> {
    let tcp = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    tcp.split_whitespace().skip_while(|word| *word != "mem").nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::fs::MetadataExt as _;
    use std::{process, slice};

    use super::*;

    #[test]
    fn states_are_those_of_our_sockets() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:0035 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 71 1 0\n   \
             1: 0100007F:0035 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 72 1 0\n   \
             2: 0100007F:0035 0100007F:1235 01 00000000:00000000 00:00000000 00000000     0        0 99 1 0\n   \
             3: 0100007F:0035 0100007F:1236 06 00000000:00000000 03:000012B0 00000000     0        0 0 3 0\n   \
             4: 0100007F:1237 0100007F:0035 06 00000000:00000000 03:000012B0 00000000     0        0 0 3 0\n   \
             5: 00000000:0355 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 73 1 0\n   \
             6: 0200007F:0355 0100007F:1238 06 00000000:00000000 03:000012B0 00000000     0        0 0 3 0\n   \
             7: 0200007F:0035 0100007F:1239 06 00000000:00000000 03:000012B0 00000000     0        0 0 3 0\n";
        let counted = |ours: &[u64]| {
            let mut states = BTreeMap::new();
            count(table, &ours.iter().copied().collect(), &mut states);
            states.into_iter().map(|(state, count)| format!("{state}={count}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(counted(&[71, 72]), "established=1 listen=1 time-wait=1");
        // One that listens at all addresses.
        assert_eq!(counted(&[73]), "listen=1 time-wait=1");
        assert_eq!(counted(&[72]), "established=1", "who does not listen has none");
        assert_eq!(pages("sockets: used 21\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 9\n"), Some(9));
        assert_eq!(pages("TCP: inuse 1\n"), None);
    }

    #[test]
    fn memory_is_that_of_our_sockets_alone() {
        const SENT: u64 = 30_000;
        let of = |inode: u64| {
            let ours = slice::from_ref(&inode).iter().copied().collect();
            octets(process::id(), &ours).expect("the kernel tells")
        };
        let inode = |socket: &dyn std::os::fd::AsRawFd| {
            fs::metadata(of_this(socket.as_raw_fd())).expect("it is open").ino()
        };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (server, idle) = (UdpSocket::bind(address), UdpSocket::bind(address));
            let (server, idle) = (server.expect("loopback binds"), idle.expect("loopback binds"));
            let to = server.local_addr().expect("it is bound");
            for _ in 0..SENT / 1_000 {
                idle.send_to(&[1; 1_000], to).expect("loopback sends");
            }
            assert!(of(inode(&server)) >= SENT, "{address}");
            assert!(of(inode(&idle)) < SENT, "{address}");
            let listener = TcpListener::bind(address).expect("loopback binds");
            let mut client =
                TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
            let (taken, _) = listener.accept().expect("a client");
            client.write_all(&vec![1; SENT as usize]).expect("loopback sends");
            // What has arrived waits at one end, the rest at the other.
            assert!(of(inode(&taken)) + of(inode(&client)) >= SENT, "{address}");
        }
        assert!(octets(u32::MAX, &HashSet::new()).is_err());
    }

    /// The entry of one of our own descriptors.
    fn of_this(descriptor: i32) -> PathBuf {
        of(process::id(), "fd").join(descriptor.to_string())
    }
}
