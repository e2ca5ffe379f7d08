//! How a back end learns whose query it is: by client subnet (RFC 7871), by the PROXY protocol, or not at all.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dns::ClientSubnet;

/// The signature of the PROXY protocol, version 2 (§2.2 of its specification).
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, and that what follows is on behalf of somebody else.
const PROXY: u8 = 0x21;

/// Version 2, and that it is our own: a probe.
const LOCAL: u8 = 0x20;

/// How a back end learns whose query it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// Not at all: all queries come from the balancer.
    #[default]
    Hidden,
    /// By a client subnet of so many bits, in queries that have none.
    Subnet {
        /// Of IPv4, 1 to 32.
        v4_bits: u8,
        /// Of IPv6, 1 to 128.
        v6_bits: u8,
    },
    /// By a header of the PROXY protocol, version 2, before each datagram, and at the beginning of each connection.
    Proxy,
}

/// By which transport a query goes on, for the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over a connection.
    Stream = 1,
    /// As a datagram.
    Datagram = 2,
}

impl ClientAddress {
    /// The subnet to put into a client's query, where that is the way.
    #[inline]
    pub fn subnet(self, client: IpAddr) -> Option<ClientSubnet> {
        let ClientAddress::Subnet { v4_bits, v6_bits } = self else { return None };
        let client = client.to_canonical();
        Some(ClientSubnet::new(client, if client.is_ipv4() { v4_bits } else { v6_bits }))
    }

    /// What precedes a client's query, to `local`; nothing but for the PROXY protocol.
    pub fn preface(self, transport: Transport, client: SocketAddr, local: SocketAddr, out: &mut Vec<u8>) {
        if self != ClientAddress::Proxy {
            return;
        }
        out.extend_from_slice(&SIGNATURE);
        let (ports, transport) = ([client.port(), local.port()], transport as u8);
        match (client.ip().to_canonical(), local.ip().to_canonical()) {
            (IpAddr::V4(client), IpAddr::V4(local)) => {
                out.extend_from_slice(&[PROXY, 0x10 | transport, 0, 12]);
                out.extend_from_slice(&client.octets());
                out.extend_from_slice(&local.octets());
            }
            (client, local) => {
                out.extend_from_slice(&[PROXY, 0x20 | transport, 0, 36]);
                for address in [client, local] {
                    let address = match address {
                        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                        IpAddr::V6(v6) => v6,
                    };
                    out.extend_from_slice(&address.octets());
                }
            }
        }
        ports.iter().for_each(|port| out.extend_from_slice(&port.to_be_bytes()));
    }

    /// The subnet to put into a question of our own, where that is the way: that no client is to be known, so that who
    /// cannot be asked with a subnet cannot be asked so, either.
    pub fn own_subnet(self) -> Option<ClientSubnet> {
        matches!(self, ClientAddress::Subnet { .. })
            .then(|| ClientSubnet::new(Ipv4Addr::UNSPECIFIED.into(), 0))
    }

    /// What precedes a question of our own.
    pub fn own_preface(self) -> Vec<u8> {
        match self {
            ClientAddress::Proxy => [&SIGNATURE[..], &[LOCAL, 0, 0, 0]].concat(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preface_says_who_asks_whom() {
        let check = |transport, client: &str, local: &str, expected: &[u8]| {
            let mut out = Vec::new();
            let at = |text: &str| text.parse().expect("an address");
            ClientAddress::Proxy.preface(transport, at(client), at(local), &mut out);
            assert_eq!(out, [&SIGNATURE[..], expected].concat(), "{client}");
            ClientAddress::Hidden.preface(transport, at(client), at(local), &mut out);
            assert_eq!(out.len(), SIGNATURE.len() + expected.len());
        };
        let four = b"\x21\x12\0\x0c\xc0\0\x02\x01\x7f\0\0\x01\x14\xe9\0\x35";
        check(Transport::Datagram, "192.0.2.1:5353", "127.0.0.1:53", four);
        check(Transport::Datagram, "[::ffff:192.0.2.1]:5353", "127.0.0.1:53", four);
        let mut six = vec![0x21, 0x21, 0, 36, 0x20, 1, 0x0d, 0xb8];
        six.extend([0; 11]);
        six.push(7);
        six.extend([0; 15]);
        six.extend([1, 0, 9, 0, 53]);
        check(Transport::Stream, "[2001:db8::7]:9", "[::1]:53", &six);
        assert_eq!(ClientAddress::Proxy.own_preface(), [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat());
    }

    #[test]
    fn a_subnet_is_of_the_clients_family() {
        let way = ClientAddress::Subnet { v4_bits: 24, v6_bits: 56 };
        for (client, source, address) in [
            ("192.0.2.77", 24, "192.0.2.0"),
            ("::ffff:192.0.2.77", 24, "192.0.2.0"),
            ("2001:db8:1:2ff::1", 56, "2001:db8:1:200::"),
        ] {
            let subnet = way.subnet(client.parse().expect("an address")).expect("it is the way");
            assert_eq!((subnet.source(), subnet.client()), (source, address.parse().ok()), "{client}");
        }
        assert_eq!(ClientAddress::Proxy.subnet("192.0.2.1".parse().expect("an address")), None);
    }
}
