//! With `unsafe` code, as no crate makes these calls without bringing a reader of object files along: the program
//! that the kernel runs for each frame, loaded and attached with `bpf(2)`.
//!
//! The program is a few comparisons, so it is written here as instructions; the kernel proves before it loads them that
//! they end and read nothing beyond a frame.
//!
//! ```text
//! whole IPv4 datagram without options, or IPv6 without extensions, of UDP,
//! to one of our addresses and its port -> the queue's socket, where there is one
//! all else                             -> the kernel's own way
//! ```

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::frame::{ETHERNET, IPV4, IPV6, PROTOCOL_UDP, TYPE_IPV4, TYPE_IPV6, UDP};

/// What the kernel names the program and its map in its lists.
const NAME: &[u8; 16] = b"pointsman\0\0\0\0\0\0\0";

/// Octets of what the kernel says of a program that it refuses; only its end is shown.
const LOG_MAX: usize = 64 << 10;

/// The longest end of it that an error has, in octets.
const LOG_SHOWN: usize = 400;

/// `BPF_MAP_CREATE`, `BPF_MAP_UPDATE_ELEM`, `BPF_PROG_LOAD` and `BPF_LINK_CREATE` (linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

/// `BPF_MAP_TYPE_XSKMAP`, `BPF_PROG_TYPE_XDP` and `BPF_XDP`.
const MAP_OF_SOCKETS: u32 = 17;
const FOR_FRAMES: u32 = 6;
const AT_INTERFACE: u32 = 37;

/// `XDP_PASS`.
const PASS: i32 = 2;

/// `bpf_redirect_map`.
const REDIRECT: i32 = 51;

/// Where a program stands in a frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes anything of a frame.
    Native,
    /// Behind the driver, with any: works everywhere, and may be slower than sockets.
    Generic,
}

impl Mode {
    /// `XDP_FLAGS_DRV_MODE` or `XDP_FLAGS_SKB_MODE`.
    fn flags(self) -> u32 {
        match self {
            Mode::Native => 4,
            Mode::Generic => 2,
        }
    }

    /// What a log says.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }
}

/// A program in the kernel, and the sockets by queue that it gives frames to.
#[derive(Debug)]
pub(super) struct Program {
    program: OwnedFd,
    sockets: OwnedFd,
}

impl Program {
    /// Loads the program for these addresses, with room for sockets of so many queues.
    ///
    /// # Errors
    /// What the kernel says: mostly that we may not.
    pub(super) fn load(addresses: &[SocketAddr], queues: u32) -> io::Result<Program> {
        let sockets = create_map(queues)?;
        let program = load(&picking(addresses, |to| to.redirect(&sockets)))?;
        Ok(Program { program, sockets })
    }

    /// Has frames of a queue go to a socket from now on.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn give(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let mut attributes = MapUpdate {
            map: self.sockets.as_raw_fd() as u32,
            _pad: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: the key and the value are of the sizes that the map was created with, and outlive the call.
        unsafe { bpf(MAP_UPDATE, &mut attributes) }.map(|_| ())
    }

    /// Puts the program in the way of an interface's frames for as long as what is returned is held, also where the process
    /// is killed.
    ///
    /// # Errors
    /// What the kernel says: that the driver knows no such mode, that there is another program.
    pub(super) fn attach(&self, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
        let mut attributes = LinkCreate {
            program: self.program.as_raw_fd() as u32,
            interface,
            kind: AT_INTERFACE,
            flags: mode.flags(),
            _rest: [0; 4],
        };
        // SAFETY: the call has no pointers.
        let link = unsafe { bpf(LINK_CREATE, &mut attributes) }?;
        // SAFETY: the kernel has just made it for us.
        Ok(unsafe { OwnedFd::from_raw_fd(link) })
    }
}

/// One instruction (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// The destination in the lower half, the source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The union that `bpf(2)` takes, for each command as far as it is used here.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attached_as: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
    _rest: [u64; 4],
}

/// Calls `bpf(2)`.
///
/// # Safety
/// The attributes must be those of the command, and what they point to must be valid for it.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let pointer: *mut T = attributes;
    // SAFETY: the size is that of what is pointed to; the rest is the caller's.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

fn create_map(entries: u32) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate {
        kind: MAP_OF_SOCKETS,
        key_size: 4,
        value_size: 4,
        entries,
        flags: 0,
        inner: 0,
        node: 0,
        name: *NAME,
    };
    // SAFETY: the call has no pointers.
    let map = unsafe { bpf(MAP_CREATE, &mut attributes) }?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(map) })
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut log = vec![0u8; LOG_MAX];
    let license = c"MIT";
    let mut attributes = ProgramLoad {
        kind: FOR_FRAMES,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 1,
        log_size: LOG_MAX as u32,
        log: log.as_mut_ptr() as u64,
        kernel: 0,
        flags: 0,
        name: *NAME,
        interface: 0,
        attached_as: AT_INTERFACE,
    };
    // SAFETY: there are `count` instructions, the licence ends with a zero, and the log has its size; all of them outlive the
    // call.
    match unsafe { bpf(PROGRAM_LOAD, &mut attributes) } {
        // SAFETY: the kernel has just made it for us.
        Ok(program) => Ok(unsafe { OwnedFd::from_raw_fd(program) }),
        Err(cause) => {
            let said = log.split(|octet| *octet == 0).next().unwrap_or_default();
            let shown = String::from_utf8_lossy(&said[said.len().saturating_sub(LOG_SHOWN)..]);
            match shown.trim() {
                "" => Err(cause),
                shown => Err(io::Error::new(cause.kind(), format!("{cause}: {shown}"))),
            }
        }
    }
}

/// Where a jump goes that is not yet known in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Ipv6,
    Take,
    Pass,
    /// The comparisons with the address of this number.
    Address(usize),
}

/// Instructions in the making: labels, and who jumps to them.
#[derive(Default)]
struct Assembly {
    instructions: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

/// Registers; the kernel gives the context in the first one, and takes arguments in 1 to 3 and the verdict in 0.
const VERDICT: u8 = 0;
const CONTEXT: u8 = 1;
const FRAME: u8 = 2;
const END: u8 = 3;
const BEYOND: u8 = 4;
const VALUE: u8 = 5;

/// Where `struct xdp_md` has the frame, its end, and the number of the queue.
const AT_FRAME: i16 = 0;
const AT_END: i16 = 4;
const AT_QUEUE: i16 = 16;

/// Loads of one, two and four octets, in the machine's order.
const LOAD_1: u8 = 0x71;
const LOAD_2: u8 = 0x69;
const LOAD_4: u8 = 0x61;

impl Assembly {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.instructions.len()));
    }

    /// Compares [`VALUE`], as 32 bits, and jumps where it is another (or the same).
    fn jump(&mut self, to: Label, where_same: bool, value: u32) {
        self.jumps.push((self.instructions.len(), to));
        self.put(if where_same { 0x16 } else { 0x56 }, VALUE, 0, 0, value as i32);
    }

    /// Loads from the frame, and jumps where that is not `octets`.
    fn expect<const N: usize>(&mut self, at: usize, octets: [u8; N], otherwise: Label) {
        self.load(at, N);
        self.jump(otherwise, false, in_machine_order(octets));
    }

    fn load(&mut self, at: usize, octets: usize) {
        let code = match octets {
            1 => LOAD_1,
            2 => LOAD_2,
            _ => LOAD_4,
        };
        self.put(code, VALUE, FRAME, at as i16, 0);
    }

    /// Passes frames that are shorter.
    fn at_least(&mut self, octets: usize) {
        self.put(0xbf, BEYOND, FRAME, 0, 0);
        self.put(0x07, BEYOND, 0, 0, octets as i32);
        self.jumps.push((self.instructions.len(), Label::Pass));
        self.put(0x2d, BEYOND, END, 0, 0);
    }

    /// One comparison after the other with addresses of one family, and the port of each.
    fn addresses(&mut self, addresses: &[(usize, SocketAddr)], at: usize, port_at: usize) {
        for (place, (number, address)) in addresses.iter().enumerate() {
            let next = addresses.get(place + 1).map_or(Label::Pass, |(number, _)| Label::Address(*number));
            self.label(Label::Address(*number));
            match address.ip() {
                IpAddr::V4(ip) => self.expect(at, ip.octets(), next),
                IpAddr::V6(ip) => {
                    for (part, octets) in ip.octets().as_chunks::<4>().0.iter().enumerate() {
                        self.expect(at + 4 * part, *octets, next);
                    }
                }
            }
            self.load(port_at, 2);
            self.jump(Label::Take, true, in_machine_order(address.port().to_be_bytes()));
        }
        self.jumps.push((self.instructions.len(), Label::Pass));
        self.put(0x05, 0, 0, 0, 0);
    }

    /// Gives the frame to the socket of its queue; where there is none, the kernel goes on.
    fn redirect(&mut self, sockets: &OwnedFd) {
        self.put(LOAD_4, FRAME, CONTEXT, AT_QUEUE, 0);
        // Two instructions: the map, by its descriptor.
        self.put(0x18, CONTEXT, 1, 0, sockets.as_raw_fd());
        self.put(0, 0, 0, 0, 0);
        self.put(0xb7, END, 0, 0, PASS);
        self.put(0x85, 0, 0, 0, REDIRECT);
        self.put(0x95, 0, 0, 0, 0);
    }

    fn done(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.labels.iter().find(|(known, _)| *known == label);
            let to = place.expect("each label that is jumped to is put").1;
            self.instructions[at].offset = i16::try_from(to - at - 1).expect("the program is short");
        }
        self.instructions
    }
}

/// What a load of these octets gives.
fn in_machine_order<const N: usize>(octets: [u8; N]) -> u32 {
    let mut whole = [0; 4];
    if cfg!(target_endian = "little") {
        whole[..N].copy_from_slice(&octets);
    } else {
        whole[4 - N..].copy_from_slice(&octets);
    }
    u32::from_ne_bytes(whole)
}

/// The program: frames to these addresses, of which there is one at least, are taken, which what `take` puts is to do.
fn picking(addresses: &[SocketAddr], take: impl FnOnce(&mut Assembly)) -> Vec<Instruction> {
    let numbered: Vec<(usize, SocketAddr)> = addresses.iter().copied().enumerate().collect();
    let (ipv4, ipv6): (Vec<_>, Vec<_>) = numbered.into_iter().partition(|(_, address)| address.is_ipv4());
    let mut to = Assembly::default();
    to.put(LOAD_4, FRAME, CONTEXT, AT_FRAME, 0);
    to.put(LOAD_4, END, CONTEXT, AT_END, 0);
    to.at_least(ETHERNET + IPV4 + UDP);
    to.expect(12, TYPE_IPV4.to_be_bytes(), Label::Ipv6);
    // The version, and a header without options.
    to.expect(ETHERNET, [0x45], Label::Pass);
    to.expect(ETHERNET + 9, [PROTOCOL_UDP], Label::Pass);
    // More fragments, or not the first one.
    to.load(ETHERNET + 6, 2);
    to.put(0x54, VALUE, 0, 0, in_machine_order([0x3f, 0xff]) as i32);
    to.jump(Label::Pass, false, 0);
    to.addresses(&ipv4, ETHERNET + 16, ETHERNET + IPV4 + 2);
    to.label(Label::Ipv6);
    to.expect(12, TYPE_IPV6.to_be_bytes(), Label::Pass);
    to.at_least(ETHERNET + IPV6 + UDP);
    to.expect(ETHERNET + 6, [PROTOCOL_UDP], Label::Pass);
    to.addresses(&ipv6, ETHERNET + 24, ETHERNET + IPV6 + 2);
    to.label(Label::Pass);
    to.put(0xb7, VERDICT, 0, 0, PASS);
    to.put(0x95, 0, 0, 0, 0);
    to.label(Label::Take);
    take(&mut to);
    to.done()
}

#[cfg(test)]
mod tests {
    use ::tests::data::skip;
    use etherparse::PacketBuilder;
    use fastrand::Rng;

    use super::*;
    use crate::xdp::frame::{Fault, read};

    /// `BPF_PROG_TEST_RUN` and `XDP_DROP`.
    const TEST_RUN: libc::c_int = 10;
    const DROP: i32 = 1;

    #[repr(C)]
    struct TestRun {
        program: u32,
        verdict: u32,
        frame_len: u32,
        out_len: u32,
        frame: u64,
        out: u64,
        repeat: u32,
        duration: u32,
        _rest: [u64; 5],
    }

    /// A program that drops what it would take; `None` where we may load none.
    fn dropping(addresses: &[SocketAddr]) -> Option<OwnedFd> {
        let instructions = picking(addresses, |to| {
            to.put(0xb7, VERDICT, 0, 0, DROP);
            to.put(0x95, 0, 0, 0, 0);
        });
        match load(&instructions) {
            Ok(program) => Some(program),
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                skip(&format!("no program can be loaded: {cause}"));
                None
            }
            Err(cause) => panic!("{cause}"),
        }
    }

    /// Whether the kernel's run of a program takes the frame.
    fn takes(program: &OwnedFd, frame: &[u8]) -> bool {
        let mut attributes = TestRun {
            program: program.as_raw_fd() as u32,
            verdict: 0,
            frame_len: frame.len() as u32,
            out_len: 0,
            frame: frame.as_ptr() as u64,
            out: 0,
            repeat: 1,
            duration: 0,
            _rest: [0; 5],
        };
        // SAFETY: the frame has its length and outlives the call; nothing is written out.
        unsafe { bpf(TEST_RUN, &mut attributes) }.expect("a frame is run");
        match attributes.verdict as i32 {
            PASS => false,
            DROP => true,
            other => panic!("verdict {other}"),
        }
    }

    fn frame(client: &str, server: &str) -> Vec<u8> {
        let [client, server] = [client, server].map(|text| text.parse::<SocketAddr>().expect("an address"));
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let packet = match (client.ip(), server.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 9),
            (IpAddr::V6(from), IpAddr::V6(to)) => ethernet.ipv6(from.octets(), to.octets(), 9),
            _ => panic!("one family"),
        };
        let mut frame = Vec::new();
        packet.udp(client.port(), server.port()).write(&mut frame, b"a query").expect("a vector takes it");
        frame
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn frames_to_our_addresses_are_taken_and_no_others() {
        let ours = ["192.0.2.53:53", "192.0.2.54:5353", "[2001:db8::53]:53", "[2001:db8::1:53]:5353"];
        let others = [
            "192.0.2.53:54",
            "192.0.2.54:53",
            "192.0.3.53:53",
            "208.0.2.53:53",
            "[2001:db8::53]:5353",
            "[2001:db8::54]:53",
            "[2001:db9::53]:53",
            "[2001:db8:0:1::53]:53",
        ];
        // Each family alone, and both.
        for kept in [0..4, 0..2, 2..4, 1..3] {
            let ours = &ours[kept];
            let Some(program) = dropping(&addresses(ours)) else { return };
            for server in [ours, &others].concat() {
                let client = if server.starts_with('[') { "[2001:db8::1]:1234" } else { "192.0.2.1:1234" };
                let whole = frame(client, server);
                assert_eq!(takes(&program, &whole), ours.contains(&server), "{server} {ours:?}");
            }
        }
        let most: Vec<String> =
            (0..crate::xdp::ADDRESSES_MAX).map(|n| format!("[2001:db8::{n:x}]:53")).collect();
        let most: Vec<&str> = most.iter().map(String::as_str).collect();
        let Some(program) = dropping(&addresses(&most)) else { return };
        assert!(takes(&program, &frame("[2001:db8::1]:1234", most[most.len() - 1])));
    }

    #[test]
    fn what_is_no_whole_datagram_goes_on() {
        let Some(program) = dropping(&addresses(&["192.0.2.53:53", "[2001:db8::53]:53"])) else { return };
        let ipv4 = frame("192.0.2.1:1234", "192.0.2.53:53");
        let ipv6 = frame("[2001:db8::1]:1234", "[2001:db8::53]:53");
        let changed = |whole: &[u8], at: usize, to: &[u8]| {
            let mut frame = whole.to_vec();
            frame[at..at + to.len()].copy_from_slice(to);
            takes(&program, &frame)
        };
        assert!(changed(&ipv4, 0, &[]) && changed(&ipv6, 0, &[]) && changed(&ipv4, ETHERNET + 6, &[0x40]));
        for (what, whole, at, to) in [
            ("a VLAN's tag", &ipv4, 12, &[0x81, 0x00][..]),
            ("another protocol on the link", &ipv4, 12, &[0x08, 0x06]),
            ("options", &ipv4, ETHERNET, &[0x46]),
            ("TCP", &ipv4, ETHERNET + 9, &[6]),
            ("more fragments", &ipv4, ETHERNET + 6, &[0x20, 0]),
            ("a later fragment", &ipv4, ETHERNET + 6, &[0, 1]),
            ("an extension", &ipv6, ETHERNET + 6, &[44]),
        ] {
            assert!(!changed(whole, at, to), "{what}");
        }
        // The kernel takes no frame that is shorter than its header.
        assert!((ETHERNET..ETHERNET + IPV4 + UDP).all(|length| !takes(&program, &ipv4[..length])));
        assert!((ETHERNET..ETHERNET + IPV6 + UDP).all(|length| !takes(&program, &ipv6[..length])));
    }

    #[test]
    fn what_is_taken_can_be_read() {
        let ours = addresses(&["192.0.2.53:53", "[2001:db8::53]:53"]);
        let Some(program) = dropping(&ours) else { return };
        let wholes =
            [frame("192.0.2.1:1234", "192.0.2.53:53"), frame("[2001:db8::1]:1234", "[2001:db8::53]:53")];
        let mut rng = Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut frame = wholes[rng.usize(..2)].clone();
            for _ in 0..rng.usize(1..3) {
                let at = rng.usize(12..frame.len());
                frame[at] = if rng.bool() { rng.u8(..) } else { frame[at] ^ 1 << rng.u8(..8) };
            }
            let is_taken = takes(&program, &frame);
            match read(&frame) {
                Ok(datagram) => assert_eq!(is_taken, ours.contains(&datagram.server), "{frame:x?}"),
                // Lengths and sums are looked at by who reads.
                Err(Fault::Checksum | Fault::Source | Fault::Malformed) => {}
            }
        }
    }
}
