//! What a file is, from its first octets.

use super::Error;

/// What [`super::Trace`] reads, for messages to people.
pub(super) const SUPPORTED: &str = "pcap, pcapng, C-DNS, dnstap, the text lines of `trace convert` and query files (NAME TYPE), each plain or compressed \
     with gzip, xz, zstd or lz4";

/// A format that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Pcap,
    Pcapng,
    Text,
    Cdns,
    Dnstap,
}

impl Format {
    /// Tells the format from the first octets of the unpacked file: 32, or all there are.
    pub(super) fn of(head: &[u8]) -> Result<Format, Error> {
        match head {
            [] => Err(Error::Empty),
            [0xa1, 0xb2, 0xc3, 0xd4, ..]
            | [0xd4, 0xc3, 0xb2, 0xa1, ..]
            | [0xa1, 0xb2, 0x3c, 0x4d, ..]
            | [0x4d, 0x3c, 0xb2, 0xa1, ..] => Ok(Format::Pcap),
            [0x0a, 0x0d, 0x0d, 0x0a, ..] => Ok(Format::Pcapng),
            [0x34, 0xcd, 0xb2, 0xa1, ..] | [0xa1, 0xb2, 0xcd, 0x34, ..] => {
                Err(Error::Unsupported("Kuznetzov's modified pcap"))
            }
            [b'B', b'Z', b'h', ..] => Err(Error::Unsupported("bzip2")),
            // Frame Streams begin with the escape and the length of a control frame of at most 512 octets.
            [0, 0, 0, 0, 0, 0, 0 | 1, _, ..] => Ok(Format::Dnstap),
            // RFC 8618 §7.2: an array of three that begins with the text "C-DNS".
            [0x83 | 0x9f, 0x65, b'C', b'-', b'D', b'N', b'S', ..] => Ok(Format::Cdns),
            [b's', b'n', b'o', b'o', b'p', 0, ..] => Err(Error::Unsupported("snoop")),
            [b'P', b'A', b'R', b'1', ..] => Err(Error::Unsupported("Parquet")),
            _ if head.iter().all(|octet| matches!(octet, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..)) => {
                Ok(Format::Text)
            }
            _ => Err(Error::Unknown),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
            Format::Text => "text",
            Format::Cdns => "C-DNS",
            Format::Dnstap => "dnstap",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_first_octets() {
        let told = |head: &[u8]| match Format::of(head) {
            Ok(format) => format.name().to_owned(),
            Err(error) => error.to_string(),
        };
        let cases: [(&[u8], &str); 10] = [
            (b"", "the file is empty"),
            (b"\xa1\xb2\xc3\xd4", "pcap"),
            (b"\x4d\x3c\xb2\xa1", "pcap"),
            (b"\x0a\x0d\x0d\x0a", "pcapng"),
            (b"www.example A\n", "text"),
            (b"\x83\x65C-DNS", "C-DNS"),
            (b"BZh9", "bzip2 is not supported"),
            (b"\0\0\0\0\0\0\0\x22\0\0\0\x02", "dnstap"),
            (b"\x7fELF\x02", "the format is not known"),
            (b"\x01", "the format is not known"),
        ];
        for (head, expected) in cases {
            assert!(told(head).starts_with(expected), "{head:02x?} is told as {}", told(head));
        }
    }
}
