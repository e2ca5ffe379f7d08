//! Sockets, clock and threads: everything of the operating system that the rooms above need.
//!
//! This crate is the rim of the data plane. It knows nothing of what a DNS message says, only how long it may
//! be and that TCP puts two octets of length in front of it (RFC 1035 §4.2.2). Both transports have the same
//! shape: the crate receives, calls a plain function with the octets of the query and room for the answer,
//! and sends what that function wrote.
//!
//! - [`udp`]: one blocking socket per thread, a batch received and sent with one system call each.
//! - [`accept`]: connections of a listener, and the tasks that serve them; [`admission`] says who may have a place.
//! - [`tcp`]: DNS over them, with limits on everything that a client can hold; [`framing`] is its pure part; [`linger`]:
//!   how one ends; [`patient`]: one whose client is to take what it is sent.
//! - [`client`]: the sockets of who asks: datagrams in batches from many source addresses, connections, and one
//!   place to wait for all of them.
//! - [`tls`]: connections that nobody on the way reads, and who trusts whom there.
//! - [`listen`]: one address for both; [`bind_error`]: why an address could not be bound, and how to go on.
//! - [`count`]: a number that one thread counts and others read; [`histogram`]: how many were how large.
//! - [`clock`]: the time as a plain value, to be passed on.
//! - [`shutdown`]: one token that ends waiting tasks and blocked threads alike.
//! - [`thread`]: pinning to a core, coming soon, standing back, resting; [`awake`]: cores that do not rest.
//! - [`group`]: a command, and all that it starts.
//! - [`descriptors`]: as many files and sockets as the system allows.
//! - [`privileges`]: giving root away after the ports are bound.
//! - [`netlink`]: questions to the kernel; [`hop`]: whom a frame on its way to an address goes to first.
//! - [`whole`]: a file that is put whole in its place, held against others.
//! - [`mapped`]: a file as memory, and memory in large pages; [`memory`]: what the kernel says of a socket's.
//!
//! - [`xdp`]: queries taken from an interface as frames, past the network stack.
//!
//! Only Linux is supported. The modules with `unsafe` code are `mmsg`, `mapped`, `scheduling` and three of `xdp`.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Pointsman runs on Linux only: it needs recvmmsg, SO_REUSEPORT and thread affinity as Linux has them"
);

pub mod accept;
pub mod admission;
pub mod awake;
pub mod bind_error;
pub mod client;
pub mod clock;
pub mod count;
pub mod descriptors;
pub mod framing;
pub mod group;
pub mod histogram;
pub mod hop;
pub mod linger;
pub mod listen;
// What is mapped is a raw pointer, and the crates that wrap it are unsafe for files all the same.
#[allow(unsafe_code)]
pub mod mapped;
pub mod memory;
pub mod netlink;
pub mod patient;
pub mod privileges;
pub mod shutdown;
pub mod tcp;
pub mod thread;
pub mod tls;
pub mod udp;
pub mod whole;
pub mod xdp;

// The batched calls take raw pointers, and no crate wraps them without preparing all headers for each call.
#[allow(unsafe_code)]
mod mmsg;
// One system call of two directions, of which no crate has the whole.
#[allow(unsafe_code)]
mod scheduling;
mod sockaddr;
