//! EDNS(0) as far as a request needs it (RFC 6891), and client subnet (RFC 7871).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The option code of client subnet (RFC 7871 §6).
const CLIENT_SUBNET: u16 = 8;

/// The EDNS version that is spoken here (RFC 6891 §6.1.3).
pub const VERSION: u8 = 0;

/// What the OPT record of a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// The largest UDP payload that the asker takes, in octets, as sent; values under 512 mean 512.
    pub udp_payload_size: u16,
    /// The asker's version; anything over [`VERSION`] is answered BADVERS.
    pub version: u8,
    /// DNSSEC OK (RFC 3225).
    pub dnssec_ok: bool,
    /// Client subnet, where it was sent. Only the first is read.
    pub client_subnet: Option<ClientSubnet>,
}

impl Edns {
    /// Reads the options of an OPT record.
    ///
    /// `ttl` is the record's TTL field, which holds extended rcode, version and flags. `None` where the
    /// options do not fill `rdata` exactly, or client subnet breaks the format of RFC 7871 §6: the
    /// message is a format error. Unknown options are passed over.
    pub fn read(class: u16, ttl: u32, mut rdata: &[u8]) -> Option<Edns> {
        let mut edns = Edns {
            udp_payload_size: class,
            version: (ttl >> 16) as u8,
            dnssec_ok: ttl & 0x8000 != 0,
            client_subnet: None,
        };
        while !rdata.is_empty() {
            let (head, rest) = rdata.split_at_checked(4)?;
            let code = u16::from_be_bytes([head[0], head[1]]);
            let (data, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([head[2], head[3]])))?;
            if code == CLIENT_SUBNET && edns.client_subnet.is_none() {
                edns.client_subnet = Some(ClientSubnet::read(data)?);
            }
            rdata = rest;
        }
        Some(edns)
    }
}

/// A client's network as its resolver tells it (RFC 7871 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSubnet {
    family: u16,
    source: u8,
    address: [u8; 16],
}

impl ClientSubnet {
    /// The most octets that the option takes in a response, code and length included.
    pub const WRITTEN_MAX: usize = 4 + 4 + 16;

    /// A client subnet of `address` cut to `source` bits.
    ///
    /// # Panics
    /// Where `source` is over 32 for IPv4 or over 128 for IPv6.
    pub fn new(address: IpAddr, source: u8) -> ClientSubnet {
        let mut octets = [0; 16];
        let family = match address {
            IpAddr::V4(v4) => {
                assert!(source <= 32, "an IPv4 prefix has at most 32 bits");
                let mask = u32::MAX.checked_shl(32 - u32::from(source)).unwrap_or(0);
                octets[..4].copy_from_slice(&(u32::from(v4) & mask).to_be_bytes());
                1
            }
            IpAddr::V6(v6) => {
                assert!(source <= 128, "an IPv6 prefix has at most 128 bits");
                let mask = u128::MAX.checked_shl(128 - u32::from(source)).unwrap_or(0);
                octets = (u128::from(v6) & mask).to_be_bytes();
                2
            }
        };
        ClientSubnet { family, source, address: octets }
    }

    /// Reads the option's data.
    ///
    /// `None`, which means FORMERR, for an unknown family, too long a prefix, a scope other than 0, too
    /// few or too many address octets, or bits set beyond the prefix. Family 0 is taken with a prefix of
    /// 0 only: resolvers send it to say that no client is to be known.
    fn read(data: &[u8]) -> Option<ClientSubnet> {
        let (&[f0, f1, source, scope], address) = data.split_first_chunk::<4>()?;
        let family = u16::from_be_bytes([f0, f1]);
        let most = match family {
            0 => 0,
            1 => 32,
            2 => 128,
            _ => return None,
        };
        if source > most || scope != 0 || address.len() != usize::from(source).div_ceil(8) {
            return None;
        }
        if source % 8 != 0 && address.last()? << (source % 8) != 0 {
            return None;
        }
        let mut padded = [0; 16];
        padded[..address.len()].copy_from_slice(address);
        Some(ClientSubnet { family, source, address: padded })
    }

    /// The client's address, zero-padded beyond [`ClientSubnet::source`] bits; `None` where SOURCE is 0,
    /// by which a client asks not to be known (RFC 7871 §7.1.2).
    pub fn client(&self) -> Option<IpAddr> {
        if self.source == 0 {
            return None;
        }
        let a = &self.address;
        Some(match self.family {
            1 => Ipv4Addr::new(a[0], a[1], a[2], a[3]).into(),
            _ => Ipv6Addr::from(self.address).into(),
        })
    }

    /// SOURCE PREFIX-LENGTH in bits: 0 to 32 for IPv4, to 128 for IPv6.
    pub fn source(&self) -> u8 {
        self.source
    }

    /// Writes the option for a response: FAMILY, SOURCE and ADDRESS as asked, SCOPE as given.
    ///
    /// Returns how many octets were written. `None` where `out` is too short.
    pub fn write(&self, scope: u8, out: &mut [u8]) -> Option<usize> {
        let octets = usize::from(self.source).div_ceil(8);
        let out = out.get_mut(..8 + octets)?;
        out[..2].copy_from_slice(&CLIENT_SUBNET.to_be_bytes());
        out[2..4].copy_from_slice(&(4 + octets as u16).to_be_bytes());
        out[4..6].copy_from_slice(&self.family.to_be_bytes());
        out[6] = self.source;
        out[7] = scope;
        out[8..].copy_from_slice(&self.address[..octets]);
        Some(8 + octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(data: &[u8]) -> Option<ClientSubnet> {
        let option = [&[0, 8, 0, data.len() as u8], data].concat();
        Edns::read(1232, 0, &option).and_then(|edns| edns.client_subnet)
    }

    #[test]
    fn client_subnet_is_read_and_echoed() {
        let asked = [0, 1, 24, 0, 192, 0, 2];
        let read = subnet(&asked).unwrap();
        assert_eq!(read.client(), Some("192.0.2.0".parse().unwrap()));
        assert_eq!(read, ClientSubnet::new("192.0.2.77".parse().unwrap(), 24));
        let mut out = [0; ClientSubnet::WRITTEN_MAX];
        let length = read.write(20, &mut out).unwrap();
        assert_eq!(out[..length], [0, 8, 0, 7, 0, 1, 24, 20, 192, 0, 2]);
        let six = ClientSubnet::new("2001:db8:1234::1".parse().unwrap(), 44);
        let length = six.write(48, &mut out).unwrap();
        assert_eq!(out[4..length], [0, 2, 44, 48, 0x20, 1, 0x0d, 0xb8, 0x12, 0x30]);
    }

    #[test]
    fn source_zero_hides_the_client() {
        for asked in [[0, 1, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]] {
            assert_eq!(subnet(&asked).unwrap().client(), None);
        }
    }

    #[test]
    fn format_faults_of_rfc_7871_section_6() {
        for (what, bad) in [
            ("a bit beyond the prefix", &[0u8, 1, 23, 0, 192, 0, 3][..]),
            ("too few octets", &[0, 1, 24, 0, 192, 0]),
            ("too many octets", &[0, 1, 24, 0, 192, 0, 2, 0]),
            ("a scope in a query", &[0, 1, 24, 1, 192, 0, 2]),
            ("too long for IPv4", &[0, 1, 33, 0, 192, 0, 2, 1, 0]),
            ("an unknown family", &[0, 3, 0, 0]),
            ("family 0 with a prefix", &[0, 0, 8, 0, 10]),
            ("cut short", &[0, 1, 24]),
        ] {
            assert!(subnet(bad).is_none(), "{what}");
        }
    }

    #[test]
    fn options_must_fill_the_record() {
        assert!(Edns::read(512, 0, &[0, 10, 0, 9, 1]).is_none());
        assert!(Edns::read(512, 0, &[0, 10, 0]).is_none());
        let edns = Edns::read(512, 0x0001_8000, &[0, 10, 0, 1, 7, 0xff, 0xff, 0, 0]).unwrap();
        assert_eq!((edns.version, edns.dnssec_ok, edns.client_subnet), (1, true, None));
    }
}
