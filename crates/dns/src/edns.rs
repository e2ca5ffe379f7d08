//! EDNS(0) as far as a server needs it (RFC 6891): the options of a query, those of its response, and client
//! subnet (RFC 7871).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The option code of NSID (RFC 5001 §4).
const NSID: u16 = 3;

/// The option code of client subnet (RFC 7871 §6).
pub const CLIENT_SUBNET: u16 = 8;

/// The option code of cookies (RFC 7873 §4).
pub(crate) const COOKIE: u16 = 10;

/// The option code of TCP keepalive (RFC 7828 §3.1).
const TCP_KEEPALIVE: u16 = 11;

/// The option code of extended errors (RFC 8914 §2).
const EXTENDED_ERROR: u16 = 15;

/// The octets of an OPT record without options: the root's name, type, class, TTL and length (RFC 6891 §6.1.2).
pub const OPT: usize = 11;

/// The octets of an option's code and length.
pub const OPTION: usize = 4;

/// The largest UDP payload that crosses any network unfragmented, in octets: what is announced and sent unless an operator
/// chooses otherwise (DNS flag day 2020; RFC 9715 §3).
pub const UDP_PAYLOAD: u16 = 1232;

/// The largest UDP payload of who has not said that they take more, in octets (RFC 1035 §4.2.1).
pub const UDP_PLAIN_PAYLOAD: u16 = 512;

/// The octets of a client's cookie (RFC 7873 §4).
pub const CLIENT_COOKIE: usize = 8;

/// The octets of a server's cookie as servers agree to make them (RFC 9018 §4); RFC 7873 allows 8 to 32.
pub const SERVER_COOKIE: usize = 16;

/// The EDNS version that is spoken here (RFC 6891 §6.1.3).
pub const VERSION: u8 = 0;

/// DNSSEC OK in the TTL field of an OPT record (RFC 3225 §3).
pub(crate) const DNSSEC_OK: u32 = 0x8000;

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
    /// The cookie, where one was sent. Only the first is read (RFC 7873 §5.2).
    pub cookie: Option<Cookie>,
    /// Whether the server's identifier is asked for (RFC 5001 §2.1).
    pub nsid: bool,
    /// Whether the connection's idle timeout is asked for (RFC 7828), whatever is said of it; over UDP this is to be ignored.
    pub tcp_keepalive: bool,
}

impl Edns {
    /// Reads the options of an OPT record.
    ///
    /// `ttl` is the record's TTL field, which holds extended rcode, version and flags. `None` where the
    /// options do not fill `rdata` exactly, client subnet breaks the format of RFC 7871 §6, or a cookie has
    /// octets that no cookie has (RFC 7873 §5.2.2): the message is a format error. Unknown options are passed over.
    /// Where the version is not ours, `rdata` is not looked at: what stands there, and how, is not known here.
    pub fn read(class: u16, ttl: u32, mut rdata: &[u8]) -> Option<Edns> {
        let mut edns = Edns {
            udp_payload_size: class,
            version: (ttl >> 16) as u8,
            dnssec_ok: ttl & DNSSEC_OK != 0,
            client_subnet: None,
            cookie: None,
            nsid: false,
            tcp_keepalive: false,
        };
        while edns.version == VERSION && !rdata.is_empty() {
            let (head, rest) = rdata.split_at_checked(OPTION)?;
            let code = u16::from_be_bytes([head[0], head[1]]);
            let (data, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([head[2], head[3]])))?;
            rdata = rest;
            match code {
                CLIENT_SUBNET if edns.client_subnet.is_none() => {
                    edns.client_subnet = Some(ClientSubnet::read(data)?);
                }
                COOKIE if edns.cookie.is_none() => edns.cookie = Some(Cookie::read(data)?),
                NSID => edns.nsid = true,
                TCP_KEEPALIVE => edns.tcp_keepalive = true,
                _ => {}
            }
        }
        Some(edns)
    }

    /// Whether the response may need [`Options`].
    #[inline]
    pub fn asks(&self) -> bool {
        self.cookie.is_some() || self.nsid || self.tcp_keepalive
    }
}

/// A cookie as a client sends it (RFC 7873 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// The client's own part, which every answer repeats.
    pub client: [u8; CLIENT_COOKIE],
    /// The part that it says it has from us.
    pub server: ServerCookie,
}

/// The server's part of a cookie as a client sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCookie {
    /// The client has none yet.
    Absent,
    /// One as long as those that are made here.
    Present([u8; SERVER_COOKIE]),
    /// One of another length that RFC 7873 allows: no server of ours has made it.
    Foreign,
}

impl Cookie {
    /// Reads the option's data; `None` for a length that RFC 7873 §5.2.2 does not know.
    fn read(data: &[u8]) -> Option<Cookie> {
        let (&client, server) = data.split_first_chunk()?;
        let server = match server.len() {
            0 => ServerCookie::Absent,
            SERVER_COOKIE => ServerCookie::Present(*server.first_chunk()?),
            8..=32 => ServerCookie::Foreign,
            _ => return None,
        };
        Some(Cookie { client, server })
    }
}

/// What a response says in its OPT record beside client subnet and extended errors; both are not known before the
/// response is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    /// The client's cookie and the server's.
    pub cookie: Option<([u8; CLIENT_COOKIE], [u8; SERVER_COOKIE])>,
    /// The server's identifier (RFC 5001 §2.3), at most 255 octets.
    pub nsid: Option<&'a [u8]>,
    /// For how long a connection may be idle, in units of 100 ms (RFC 7828 §3.1).
    pub tcp_keepalive: Option<u16>,
}

impl Options<'_> {
    /// The octets that [`Options::write`] writes.
    pub fn length(&self) -> usize {
        self.cookie.map_or(0, |_| OPTION + CLIENT_COOKIE + SERVER_COOKIE)
            + self.nsid.map_or(0, |nsid| OPTION + nsid.len())
            + self.tcp_keepalive.map_or(0, |_| OPTION + 2)
    }

    /// Writes the options; returns how many octets they took.
    ///
    /// # Panics
    /// Where `out` is shorter than [`Options::length`].
    pub fn write(&self, out: &mut [u8]) -> usize {
        let mut length = 0;
        if let Some((client, server)) = &self.cookie {
            length += option(COOKIE, &[client, server], &mut out[length..]);
        }
        if let Some(nsid) = self.nsid {
            length += option(NSID, &[nsid], &mut out[length..]);
        }
        if let Some(idle) = self.tcp_keepalive {
            length += option(TCP_KEEPALIVE, &[&idle.to_be_bytes()], &mut out[length..]);
        }
        length
    }
}

/// What a response's code alone does not tell, as an INFO-CODE (RFC 8914); no text goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExtendedError {
    /// The answer is older than it should be (RFC 8914 §4.4).
    StaleAnswer = 3,
    /// The answer is the operator's, and not that of whose name it is (RFC 8914 §4.5).
    ForgedAnswer = 4,
    /// An earlier failure is remembered (RFC 8914 §4.14).
    CachedError = 13,
    /// The answer is not known yet (RFC 8914 §4.15).
    NotReady = 14,
    /// Such a question is answered for nobody, by the operator's will (RFC 8914 §4.16).
    Blocked = 15,
    /// Such a question is not for this client (RFC 8914 §4.19).
    Prohibited = 18,
    /// The asked name is in no zone here (RFC 8914 §4.21).
    NotAuthoritative = 20,
    /// Such a question is answered for nobody (RFC 8914 §4.22).
    NotSupported = 21,
    /// None of the servers that would know has answered (RFC 8914 §4.23).
    NoReachableAuthority = 22,
    /// The zone is too old to be answered from (RFC 8914 §4.25).
    InvalidData = 24,
}

impl ExtendedError {
    /// The octets that [`ExtendedError::write`] writes.
    pub const LENGTH: usize = OPTION + 2;

    /// Writes the option where there is room; returns how many octets it took.
    pub fn write(self, out: &mut [u8]) -> usize {
        if out.len() < ExtendedError::LENGTH {
            return 0;
        }
        option(EXTENDED_ERROR, &[&[0, self as u8]], out)
    }
}

/// Writes one option, its data in parts.
fn option(code: u16, parts: &[&[u8]], out: &mut [u8]) -> usize {
    let mut length = OPTION;
    for part in parts {
        out[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    out[..2].copy_from_slice(&code.to_be_bytes());
    out[2..OPTION].copy_from_slice(&((length - OPTION) as u16).to_be_bytes());
    length
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

    /// How many octets the option takes in a response, code and length included.
    pub fn written(&self) -> usize {
        8 + usize::from(self.source).div_ceil(8)
    }

    /// Writes the option for a response: FAMILY, SOURCE and ADDRESS as asked, SCOPE as given.
    ///
    /// Returns how many octets were written. `None` where `out` is too short.
    pub fn write(&self, scope: u8, out: &mut [u8]) -> Option<usize> {
        let written = self.written();
        let out = out.get_mut(..written)?;
        out[..2].copy_from_slice(&CLIENT_SUBNET.to_be_bytes());
        out[2..4].copy_from_slice(&(written as u16 - 4).to_be_bytes());
        out[4..6].copy_from_slice(&self.family.to_be_bytes());
        out[6] = self.source;
        out[7] = scope;
        out[8..].copy_from_slice(&self.address[..written - 8]);
        Some(written)
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
        let edns = Edns::read(512, 0x8000, &[0, 9, 0, 1, 7, 0xff, 0xff, 0, 0]).unwrap();
        assert_eq!((edns.version, edns.dnssec_ok, edns.client_subnet), (0, true, None));
    }

    #[test]
    fn options_of_another_version_mean_nothing_here() {
        let edns = Edns::read(512, 0x0001_0000, &[0, 10, 0, 1, 7, 0, 3, 0, 0]).unwrap();
        assert_eq!((edns.version, edns.cookie, edns.nsid), (1, None, false));
        assert!(Edns::read(512, 0x0001_0000, &[0, 10, 0, 9, 1]).is_some(), "whatever form they have");
    }

    #[test]
    fn cookies_have_the_lengths_of_rfc_7873_section_4() {
        for length in 0..50usize {
            let option = [&[0, 10, 0, length as u8][..], &(0..length as u8).collect::<Vec<_>>()].concat();
            let read = Edns::read(1232, 0, &option).map(|edns| edns.cookie.expect("it was sent").server);
            let expected = match length {
                8 => Some(ServerCookie::Absent),
                24 => Some(ServerCookie::Present(std::array::from_fn(|i| 8 + i as u8))),
                16..=40 => Some(ServerCookie::Foreign),
                _ => None,
            };
            assert_eq!(read, expected, "{length} octets");
        }
        let two = [&[0, 10, 0, 8][..], &[1; 8], &[0, 10, 0, 8], &[2; 8]].concat();
        assert_eq!(Edns::read(1232, 0, &two).unwrap().cookie.unwrap().client, [1; 8], "the first counts");
    }

    #[test]
    fn keepalive_and_nsid_are_seen() {
        for (option, expected) in [
            (&[0, 11, 0, 0][..], Some((true, false))),
            (&[0, 11, 0, 2, 0, 100], Some((true, false))),
            (&[0, 11, 0, 1, 0], Some((true, false))),
            (&[0, 3, 0, 0], Some((false, true))),
            (&[0, 3, 0, 1, 7], Some((false, true))),
        ] {
            let read = Edns::read(1232, 0, option).map(|edns| (edns.tcp_keepalive, edns.nsid));
            assert_eq!(read, expected, "{option:?}");
        }
    }

    #[test]
    fn options_are_written() {
        let mut out = [0; 64];
        let options = Options {
            cookie: Some(([1; CLIENT_COOKIE], [2; SERVER_COOKIE])),
            nsid: Some(b"fra1"),
            tcp_keepalive: Some(100),
        };
        let length = options.write(&mut out);
        assert_eq!(length, options.length());
        let cookie = [&[0, 10, 0, 24][..], &[1; 8], &[2; 16]].concat();
        assert_eq!(out[..length], [&cookie[..], b"\0\x03\0\x04fra1", &[0, 11, 0, 2, 0, 100]].concat());
        assert_eq!((Options::default().length(), Options::default().write(&mut out)), (0, 0));
    }

    #[test]
    fn extended_errors_are_written_whole_or_not_at_all() {
        let mut out = [0; 6];
        assert_eq!(ExtendedError::NotAuthoritative.write(&mut out[..5]), 0);
        assert_eq!((ExtendedError::NotAuthoritative.write(&mut out), out), (6, *b"\0\x0f\0\x02\0\x14"));
    }
}
