//! Socket addresses and packet information as the kernel writes them.
//!
//! The kernel fills these in with a received datagram and reads the same octets for the reply, so they are
//! kept as octets and decoded by hand: cheaper than a conversion there and back, and without `unsafe`.
//!
//! ```text
//! sockaddr_in   family 2 | port 2, big-endian | address 4
//! sockaddr_in6  family 2 | port 2, big-endian | flow information 4 | address 16 | scope id 4
//! sockaddr_ll   family 2 | protocol 2 | device 4 | what nobody needs to send
//! cmsghdr       length | level 4 | type 4 | in_pktinfo:  interface 4 | source for a reply 4 | address asked 4
//!                                         | in6_pktinfo: address asked 16 | interface 4
//!                                         | timespec:    seconds | nanoseconds
//! ```

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

/// Room for the longer of the two addresses, rounded up to the alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Name([u8; 32]);

/// Octets of a [`Name`] that the kernel may fill.
pub(crate) const NAME_LEN: usize = size_of::<libc::sockaddr_in6>();

/// Room for the control messages of one datagram: the time of its arrival and the longer packet information.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Control([u8; CONTROL_LEN]);

/// Octets of a [`Control`].
pub(crate) const CONTROL_LEN: usize = HEADER + aligned(TIME_LEN) + HEADER + aligned(V6_LEN);

/// Where the data begins behind a control message's header (what `CMSG_DATA` finds).
const HEADER: usize = aligned(size_of::<libc::cmsghdr>());

const V4_INTERFACE: usize = offset_of!(libc::in_pktinfo, ipi_ifindex);
const V4_SOURCE: usize = offset_of!(libc::in_pktinfo, ipi_spec_dst);
const V4_ASKED: usize = offset_of!(libc::in_pktinfo, ipi_addr);
const V4_LEN: usize = size_of::<libc::in_pktinfo>();
const V6_ASKED: usize = offset_of!(libc::in6_pktinfo, ipi6_addr);
const V6_INTERFACE: usize = offset_of!(libc::in6_pktinfo, ipi6_ifindex);
const V6_LEN: usize = size_of::<libc::in6_pktinfo>();
const MERGED_LEN: usize = size_of::<libc::c_int>();
const TIME_LEN: usize = size_of::<libc::timespec>();

const _: () = assert!(NAME_LEN <= size_of::<Name>() && V4_LEN <= V6_LEN);
const _: () = assert!(size_of::<libc::sockaddr_ll>() <= size_of::<Name>());

impl Name {
    pub(crate) const ZERO: Self = Self([0; 32]);

    /// Decodes an address of which the kernel says that it has `len` octets; `None` for other families.
    #[inline]
    pub(crate) fn decode(&self, len: usize) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.octets(offset_of!(libc::sockaddr_in, sin_port)));
        match i32::from(u16::from_ne_bytes(self.octets(0))) {
            libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
                let address = Ipv4Addr::from(self.octets::<4>(offset_of!(libc::sockaddr_in, sin_addr)));
                Some(SocketAddr::from((address, port)))
            }
            libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
                let address = Ipv6Addr::from(self.octets::<16>(offset_of!(libc::sockaddr_in6, sin6_addr)));
                let scope_id = u32::from_ne_bytes(self.octets(offset_of!(libc::sockaddr_in6, sin6_scope_id)));
                Some(SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope_id)))
            }
            _ => None,
        }
    }

    /// Encodes an address; returns the octets in use too.
    #[inline]
    pub(crate) fn encode(address: SocketAddr) -> (Self, usize) {
        let mut name = Self::ZERO;
        let mut put = |at: usize, octets: &[u8]| name.0[at..at + octets.len()].copy_from_slice(octets);
        put(offset_of!(libc::sockaddr_in, sin_port), &address.port().to_be_bytes());
        let (family, len) = match address {
            SocketAddr::V4(v4) => {
                put(offset_of!(libc::sockaddr_in, sin_addr), &v4.ip().octets());
                (libc::AF_INET, size_of::<libc::sockaddr_in>())
            }
            SocketAddr::V6(v6) => {
                put(offset_of!(libc::sockaddr_in6, sin6_flowinfo), &v6.flowinfo().to_ne_bytes());
                put(offset_of!(libc::sockaddr_in6, sin6_addr), &v6.ip().octets());
                put(offset_of!(libc::sockaddr_in6, sin6_scope_id), &v6.scope_id().to_ne_bytes());
                (libc::AF_INET6, size_of::<libc::sockaddr_in6>())
            }
        };
        put(0, &(family as u16).to_ne_bytes());
        (name, len)
    }

    /// Encodes a device, for a socket that only sends; returns the octets in use too.
    pub(crate) fn device(number: u32) -> (Self, usize) {
        let mut name = Self::ZERO;
        name.0[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
        name.0[offset_of!(libc::sockaddr_ll, sll_ifindex)..][..4].copy_from_slice(&number.to_ne_bytes());
        (name, size_of::<libc::sockaddr_ll>())
    }

    /// Whether the first so many octets are the same.
    pub(crate) fn is_like(&self, other: &Self, len: usize) -> bool {
        self.0[..len.min(size_of::<Self>())] == other.0[..len.min(size_of::<Self>())]
    }

    /// A number that is the same for the same first octets, at most as many as the kernel may fill, and seldom for others.
    #[inline]
    pub(crate) fn mixed(&self, len: usize) -> u64 {
        let mut mixed = 0_u64;
        for at in (0..len.min(NAME_LEN)).step_by(8) {
            // Octets behind the address are not its.
            let behind = 64 - 8 * (len - at).min(8);
            let word = u64::from_le_bytes(self.octets(at)) << behind >> behind;
            mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        mixed
    }

    fn octets<const N: usize>(&self, at: usize) -> [u8; N] {
        octets(&self.0, at)
    }

    #[cfg(test)]
    pub(crate) fn from_octets(octets: &[u8]) -> Self {
        let mut name = Self::ZERO;
        name.0[..octets.len()].copy_from_slice(octets);
        name
    }
}

impl Control {
    pub(crate) const ZERO: Self = Self([0; CONTROL_LEN]);

    /// Encodes the address from which a datagram is to leave; returns the octets in use too.
    pub(crate) fn leaving_from(source: IpAddr) -> (Self, usize) {
        let mut data = [0; V6_LEN];
        match source {
            IpAddr::V4(address) => {
                data[V4_SOURCE..][..4].copy_from_slice(&address.octets());
                Self::message(libc::IPPROTO_IP, libc::IP_PKTINFO, &data[..V4_LEN])
            }
            IpAddr::V6(address) => {
                data[V6_ASKED..][..16].copy_from_slice(&address.octets());
                Self::message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data)
            }
        }
    }

    /// Encodes that a message is to be cut into datagrams of so many octets; returns the octets in use too.
    pub(crate) fn cut_at(octets: u16) -> (Self, usize) {
        Self::message(libc::SOL_UDP, libc::UDP_SEGMENT, &octets.to_ne_bytes())
    }

    /// The same control messages, of so many octets, and behind them that the message is to be cut into datagrams of
    /// `octets`; returns the octets in use too. `None` where there is no room for it.
    pub(crate) fn and_cut_at(&self, len: usize, octets: u16) -> Option<(Self, usize)> {
        let (mut control, at, data) = (*self, aligned(len), octets.to_ne_bytes());
        let has_room = at + HEADER + aligned(data.len()) <= CONTROL_LEN;
        has_room.then(|| {
            let end = control.put(at, libc::SOL_UDP, libc::UDP_SEGMENT, &data);
            (control, end)
        })
    }

    /// Whether the first so many octets are the same.
    pub(crate) fn is_like(&self, other: &Self, len: usize) -> bool {
        self.0[..len.min(CONTROL_LEN)] == other.0[..len.min(CONTROL_LEN)]
    }

    /// Encodes a control message; returns the octets in use too.
    fn message(level: i32, kind: i32, data: &[u8]) -> (Self, usize) {
        let mut control = Self::ZERO;
        let len = control.put(0, level, kind, data);
        (control, len)
    }

    /// Decodes how long each datagram is of those that the kernel has put together to one message; `None` where it has
    /// not.
    #[inline]
    pub(crate) fn merged_at(&self, len: usize) -> Option<usize> {
        let at = self.data(len, libc::SOL_UDP, libc::UDP_GRO, MERGED_LEN)?;
        usize::try_from(i32::from_ne_bytes(octets(&self.0, at))).ok().filter(|octets| *octets > 0)
    }

    /// Decodes when the kernel took the datagram from the interface, by the system's clock, from control messages of `len`
    /// octets; `None` where it does not say.
    #[inline]
    pub(crate) fn arrived(&self, len: usize) -> Option<Duration> {
        let at = self.data(len, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, TIME_LEN)?;
        let number = |at| i64::from_ne_bytes(octets(&self.0, at));
        let seconds = u64::try_from(number(at + offset_of!(libc::timespec, tv_sec))).ok()?;
        let nanos = u32::try_from(number(at + offset_of!(libc::timespec, tv_nsec))).ok()?;
        Some(Duration::from_secs(seconds) + Duration::from_nanos(nanos.into()))
    }

    /// Decodes the address that was asked from control messages of `len` octets; `None` when there is none.
    #[inline]
    pub(crate) fn asked(&self, len: usize) -> Option<IpAddr> {
        match self.information(len)? {
            (Kind::V4, at) => Some(Ipv4Addr::from(octets::<4>(&self.0, at + V4_ASKED)).into()),
            (Kind::V6, at) => Some(Ipv6Addr::from(octets::<16>(&self.0, at + V6_ASKED)).into()),
        }
    }

    /// Turns what was received into what a reply needs: the same local address, but any interface.
    ///
    /// The interface goes, for the way back may be another one than the way in. It stays for link-local
    /// addresses, which mean nothing without it.
    #[inline]
    pub(crate) fn unpin_interface(&mut self, len: usize) {
        let at = match self.information(len) {
            Some((Kind::V4, at)) => at + V4_INTERFACE,
            Some((Kind::V6, at)) => {
                if Ipv6Addr::from(octets::<16>(&self.0, at + V6_ASKED)).is_unicast_link_local() {
                    return;
                }
                at + V6_INTERFACE
            }
            None => return,
        };
        self.0[at..at + 4].fill(0);
    }

    /// Where packet information begins, and which it is.
    #[inline]
    fn information(&self, len: usize) -> Option<(Kind, usize)> {
        let v4 = self.data(len, libc::IPPROTO_IP, libc::IP_PKTINFO, V4_LEN).map(|at| (Kind::V4, at));
        v4.or_else(|| self.data(len, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, V6_LEN).map(|at| (Kind::V6, at)))
    }

    /// Where the data begins of the first control message of a kind that has so many octets at least.
    #[inline]
    fn data(&self, len: usize, level: i32, kind: i32, octets_min: usize) -> Option<usize> {
        let len = len.min(CONTROL_LEN);
        let mut at = 0;
        while at + HEADER <= len {
            let number = |field| i32::from_ne_bytes(octets(&self.0, at + field));
            let length = usize::from_ne_bytes(octets(&self.0, at + offset_of!(libc::cmsghdr, cmsg_len)));
            if length < HEADER || length > len - at {
                return None;
            }
            let is_it = number(offset_of!(libc::cmsghdr, cmsg_level)) == level
                && number(offset_of!(libc::cmsghdr, cmsg_type)) == kind;
            if is_it && length >= HEADER + octets_min {
                return Some(at + HEADER);
            }
            at += aligned(length);
        }
        None
    }

    /// Writes a control message at `at`; returns where it ends.
    fn put(&mut self, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
        let mut put = |place: usize, octets: &[u8]| {
            self.0[at + place..][..octets.len()].copy_from_slice(octets);
        };
        let len = HEADER + data.len();
        put(offset_of!(libc::cmsghdr, cmsg_len), &len.to_ne_bytes());
        put(offset_of!(libc::cmsghdr, cmsg_level), &level.to_ne_bytes());
        put(offset_of!(libc::cmsghdr, cmsg_type), &kind.to_ne_bytes());
        put(HEADER, data);
        at + aligned(len)
    }
}

const fn aligned(octets: usize) -> usize {
    octets.next_multiple_of(align_of::<usize>())
}

/// Which of the two packet informations is there.
enum Kind {
    V4,
    V6,
}

#[inline]
fn octets<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut octets = [0; N];
    octets.copy_from_slice(&from[at..at + N]);
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4_name() -> Name {
        Name::from_octets(&[&(libc::AF_INET as u16).to_ne_bytes()[..], &[0x14, 0xe9, 192, 0, 2, 9]].concat())
    }

    fn v6_name(address: Ipv6Addr, scope_id: u32) -> Name {
        let family = (libc::AF_INET6 as u16).to_ne_bytes();
        let port_and_flow = [0, 53, 1, 2, 3, 4];
        Name::from_octets(&[&family[..], &port_and_flow, &address.octets(), &scope_id.to_ne_bytes()].concat())
    }

    fn control(level: i32, kind: i32, data: &[u8]) -> Control {
        Control::message(level, kind, data).0
    }

    fn v6_control(address: Ipv6Addr) -> Control {
        control(
            libc::IPPROTO_IPV6,
            libc::IPV6_PKTINFO,
            &[&address.octets()[..], &7_i32.to_ne_bytes()].concat(),
        )
    }

    #[test]
    fn names_decode_to_addresses() {
        let link_local = "fe80::1".parse().expect("an address");
        assert_eq!(v4_name().decode(16), Some("192.0.2.9:5353".parse().expect("an address")));
        let scoped = SocketAddrV6::new(link_local, 53, 0, 3);
        assert_eq!(v6_name(link_local, 3).decode(28), Some(SocketAddr::V6(scoped)));
    }

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let link_local = SocketAddrV6::new("fe80::1".parse().expect("an address"), 53, 0, 3);
        for address in [
            "192.0.2.9:5353".parse().expect("v4"),
            "[2001:db8::9]:53".parse().expect("v6"),
            link_local.into(),
        ] {
            let (name, len) = Name::encode(address);
            assert_eq!(name.decode(len), Some(address));
            assert_eq!(len, socket2::SockAddr::from(address).len() as usize);
        }
    }

    #[test]
    fn short_or_foreign_names_are_none() {
        assert_eq!(v4_name().decode(15), None);
        assert_eq!(v6_name(Ipv6Addr::LOCALHOST, 0).decode(27), None);
        assert_eq!(Name::ZERO.decode(28), None);
        assert_eq!(Name::from_octets(&(libc::AF_UNIX as u16).to_ne_bytes()).decode(28), None);
    }

    #[test]
    fn v4_packet_information_gives_the_address_asked_and_loses_its_interface() {
        let data = [&5_i32.to_ne_bytes()[..], &[127, 0, 0, 2], &[127, 0, 0, 3]].concat();
        let mut control = control(libc::IPPROTO_IP, libc::IP_PKTINFO, &data);
        let len = HEADER + V4_LEN;
        assert_eq!(control.asked(len), Some(Ipv4Addr::new(127, 0, 0, 3).into()));
        assert_eq!(control.asked(len - 1), None);
        control.unpin_interface(len);
        assert_eq!(control.0[HEADER..len], [0, 0, 0, 0, 127, 0, 0, 2, 127, 0, 0, 3]);
    }

    #[test]
    fn v6_packet_information_keeps_its_interface_for_link_local_addresses_only() {
        for (address, interface) in [("2001:db8::1", 0), ("::1", 0), ("fe80::1", 7)] {
            let address: Ipv6Addr = address.parse().expect("an address");
            let mut control = v6_control(address);
            control.unpin_interface(HEADER + V6_LEN);
            assert_eq!(control.asked(HEADER + V6_LEN), Some(address.into()));
            assert_eq!(i32::from_ne_bytes(octets(&control.0, HEADER + V6_INTERFACE)), interface, "{address}");
        }
    }

    #[test]
    fn what_was_put_together_says_where_to_cut_it() {
        let merged = control(libc::SOL_UDP, libc::UDP_GRO, &40_i32.to_ne_bytes());
        assert_eq!(merged.merged_at(HEADER + MERGED_LEN), Some(40));
        assert_eq!((merged.merged_at(HEADER + MERGED_LEN - 1), merged.asked(CONTROL_LEN)), (None, None));
        for octets in [0, -1] {
            let merged = control(libc::SOL_UDP, libc::UDP_GRO, &i32::to_ne_bytes(octets));
            assert_eq!(merged.merged_at(CONTROL_LEN), None, "{octets}");
        }
        assert_eq!(v6_control(Ipv6Addr::LOCALHOST).merged_at(CONTROL_LEN), None);
    }

    #[test]
    fn the_time_of_arrival_stands_before_packet_information() {
        let time = [5_i64.to_ne_bytes(), 7_i64.to_ne_bytes()].concat();
        let address = Ipv6Addr::LOCALHOST;
        let information = [&address.octets()[..], &7_i32.to_ne_bytes()].concat();
        let mut control = Control::ZERO;
        let end = control.put(0, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time);
        let end = control.put(end, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &information);
        assert_eq!(end, CONTROL_LEN);
        assert_eq!(control.arrived(end), Some(Duration::new(5, 7)));
        assert_eq!(control.asked(end), Some(address.into()));
        assert_eq!((control.arrived(HEADER + 15), control.asked(end - 8)), (None, None));
        // A length that leads nowhere.
        for length in [0, HEADER - 1, CONTROL_LEN + 1, usize::MAX] {
            control.0[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            assert_eq!((control.arrived(end), control.asked(end)), (None, None), "{length}");
        }
    }

    #[test]
    fn other_control_messages_are_none() {
        let mut other = control(libc::SOL_SOCKET, libc::SO_TIMESTAMP, &[1; 16]);
        assert_eq!(other.asked(CONTROL_LEN), None);
        other.unpin_interface(CONTROL_LEN);
        assert_eq!(other.0[HEADER..][..16], [1; 16]);
        assert_eq!(other.arrived(CONTROL_LEN), None);
        assert_eq!(v6_control(Ipv6Addr::LOCALHOST).asked(0), None);
    }
}
