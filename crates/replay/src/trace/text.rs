//! Queries as lines of text, for people and their scripts.
//!
//! ```text
//! TIME          CLIENT          TRANSPORT NAME         TYPE FLAGS
//! 10.000000001  192.0.2.1:5353  udp       example.com. A    rd,edns=1232,do
//! ```
//!
//! Time is in seconds since 1970-01-01 00:00 UTC with at most nine decimals; flags are `rd`, `ad`, `cd`, `do`
//! (beside `edns` only), `edns=SIZE` and `class=CLASS`, with commas between, or `-`. A line of two words,
//! `NAME TYPE`, is one of a query file of dnsperf: a query with RD from 0.0.0.0 at the time 0. Empty lines
//! and those that begin with `#` or `;` are passed over.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dns::query::HEADER;
use dns::{Class, Folded, Query, Rtype, name};

use super::message::{Message, Transport};
use super::source::{Failed, Source};
use super::{Damage, PORT};

/// The first line of a text that is written.
pub const HEADING: &str = "# time client transport name type flags";

/// The longest line in octets: a name of 255 octets, each written as four characters, and all other words.
const LINE_MAX: usize = 1_280;

/// Flags in the header's third and fourth octet.
const RD: u16 = 0x0100;
const AD: u16 = 0x0020;
const CD: u16 = 0x0010;

/// Writes name and type of a query as a line of a query file, as dnsperf reads it, without the line's end.
///
/// All else is lost. `None` as [`line()`] has it.
pub fn question(message: &Message) -> Option<String> {
    let mut name = Folded::root();
    let query = message.query(&mut name)?;
    Some(format!("{} {}", word(&query), query.rtype))
}

/// Writes a query as a line without its end.
///
/// What the line has no words for is lost: id, server, other flags, EDNS options and version, records behind
/// the question. `None` for responses and for queries that [`dns::Query::read`] refuses.
pub fn line(message: &Message) -> Option<String> {
    let mut name = Folded::root();
    let query = message.query(&mut name)?;
    let mut line = format!(
        "{}.{:09} {} {} {} {} ",
        message.time.as_secs(),
        message.time.subsec_nanos(),
        message.client,
        message.transport.name(),
        word(&query),
        query.rtype,
    );
    let flags = u16::from_be_bytes([message.octets[2], message.octets[3]]);
    let mut words: Vec<String> = [(RD, "rd"), (AD, "ad"), (CD, "cd")]
        .into_iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, word)| word.to_owned())
        .collect();
    if let Some(edns) = query.edns {
        words.push(format!("edns={}", edns.udp_payload_size));
        if edns.dnssec_ok {
            words.push("do".into());
        }
    }
    if query.class != Class::IN {
        words.push(format!("class={}", query.class));
    }
    let _ = match words.is_empty() {
        true => line.write_char('-'),
        false => line.write_str(&words.join(",")),
    };
    Some(line)
}

/// The name as it was asked, in upper and lower case; a word has no space in it and begins no comment.
fn word(query: &Query<'_>) -> String {
    let word = name::to_text(&query.head[HEADER..HEADER + query.name.wire_length()]).replace("\\ ", "\\032");
    match word.strip_prefix('#') {
        Some(rest) => format!("\\035{rest}"),
        None => word,
    }
}

/// The lines of a text, one query each.
pub(super) struct Lines {
    source: BufReader<Source>,
    failed: Failed,
    lines: u64,
    offset: u64,
    buffer: Vec<u8>,
}

impl Lines {
    pub(super) fn new(source: Source) -> Lines {
        let failed = source.failed();
        Lines { source: BufReader::new(source), failed, lines: 0, offset: 0, buffer: Vec::new() }
    }

    /// How many lines were read.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Reads a line, and gives its query, unless it is blank or a comment. `false` after the last one.
    ///
    /// # Errors
    /// What is wrong with the line; there are no more.
    pub(super) fn next(&mut self, take: impl FnOnce(Message)) -> Result<bool, Damage> {
        self.buffer.clear();
        let mut limited = self.source.by_ref().take(LINE_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.buffer);
        let damage = |what: String| Damage { packet: self.lines + 1, offset: self.offset, what };
        match read {
            Ok(0) => return self.failed.take().map_or(Ok(false), |error| Err(damage(error.to_string()))),
            Ok(length) if length > LINE_MAX => {
                return Err(damage(format!("a line of more than {LINE_MAX} octets")));
            }
            Ok(_) => {}
            Err(error) => return Err(damage(error.to_string())),
        }
        // What the file's compression breaks off in is half a line, which may look like another.
        if self.buffer.last() != Some(&b'\n')
            && let Some(error) = self.failed.take()
        {
            return Err(damage(error.to_string()));
        }
        match self.buffer.trim_ascii() {
            [] | [b'#' | b';', ..] => {}
            octets => {
                let text = str::from_utf8(octets).map_err(|_| damage("this is no text".into()))?;
                take(query(text).map_err(damage)?);
            }
        }
        self.lines += 1;
        self.offset += self.buffer.len() as u64;
        Ok(true)
    }
}

/// What EDNS a line asks for.
#[derive(Default)]
struct Flags {
    header: u16,
    class: Option<Class>,
    edns: Option<u16>,
    dnssec_ok: bool,
}

fn query(line: &str) -> Result<Message, String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let (time, client, transport, name, rtype, flags) = match words[..] {
        [name, rtype] => (
            Duration::ZERO,
            unspecified,
            Transport::Udp,
            name,
            rtype,
            Flags { header: RD, ..Flags::default() },
        ),
        [time, client, transport, name, rtype, flags] => (
            seconds(time)?,
            client.parse().map_err(|_| format!("{client} is no address with port"))?,
            match transport {
                "udp" => Transport::Udp,
                "tcp" => Transport::Tcp,
                _ => return Err(format!("{transport} is neither udp nor tcp")),
            },
            name,
            rtype,
            Flags::read(flags)?,
        ),
        _ => return Err("expected TIME CLIENT TRANSPORT NAME TYPE FLAGS, or NAME TYPE".into()),
    };
    let wire = name::from_text(name).map_err(|what| format!("{name}: {what}"))?;
    let rtype: Rtype = rtype.parse().map_err(|_| format!("{rtype} is no type"))?;
    let server = match client.ip() {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, PORT).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, PORT).into(),
    };
    Ok(Message { time, client, server, transport, octets: flags.message(&wire, rtype) })
}

/// Reads seconds with at most nine decimals.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is no time in seconds, such as 1475766000.000000001");
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !are_digits(whole) || !are_digits(decimals) || decimals.len() > 9 {
        return Err(wrong());
    }
    let nanos: u32 = format!("{decimals:0<9}").parse().map_err(|_| wrong())?;
    Ok(Duration::new(whole.parse().map_err(|_| wrong())?, nanos))
}

impl Flags {
    fn read(text: &str) -> Result<Flags, String> {
        let mut flags = Flags::default();
        for word in text.split(',').filter(|_| text != "-") {
            match word.split_once('=') {
                None if word == "rd" => flags.header |= RD,
                None if word == "ad" => flags.header |= AD,
                None if word == "cd" => flags.header |= CD,
                None if word == "do" => flags.dnssec_ok = true,
                Some(("edns", size)) => {
                    flags.edns =
                        Some(size.parse().map_err(|_| format!("{size} is no size from 0 to 65535"))?);
                }
                Some(("class", class)) => {
                    flags.class = Some(class.parse().map_err(|_| format!("{class} is no class"))?);
                }
                _ => return Err(format!("{word} is no flag: rd, ad, cd, do, edns=SIZE, class=CLASS")),
            }
        }
        if flags.dnssec_ok && flags.edns.is_none() {
            return Err("do needs edns=SIZE beside it".into());
        }
        Ok(flags)
    }

    fn message(&self, name: &[u8], rtype: Rtype) -> Vec<u8> {
        let mut octets = vec![0; HEADER];
        octets[2..4].copy_from_slice(&self.header.to_be_bytes());
        octets[5] = 1;
        octets.extend_from_slice(name);
        octets.extend_from_slice(&rtype.to_int().to_be_bytes());
        octets.extend_from_slice(&self.class.unwrap_or(Class::IN).to_int().to_be_bytes());
        if let Some(size) = self.edns {
            octets[11] = 1;
            // The root, OPT, the size, extended rcode and version, DO, no options (RFC 6891 §6.1.2).
            octets.extend_from_slice(&[0, 0, 41]);
            octets.extend_from_slice(&size.to_be_bytes());
            octets.extend_from_slice(&[0, 0, u8::from(self.dnssec_ok) << 7, 0, 0, 0]);
        }
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_written_as_they_were_read() {
        for text in [
            "10.000000001 192.0.2.1:5353 udp Example.com. A rd,edns=1232,do",
            "0.000000000 [2001:db8::1]:1 tcp . TYPE65280 -",
            "4294967295.999999999 10.0.0.1:0 udp a\\.b\\032c.example. ANY rd,ad,cd,edns=0,class=CH",
        ] {
            assert_eq!(line(&query(text).unwrap()).as_deref(), Some(text));
        }
        let from_query_file = line(&query("www.example MX").unwrap()).unwrap();
        assert_eq!(from_query_file, "0.000000000 0.0.0.0:0 udp www.example. MX rd");
        let to_query_file =
            question(&query("1 192.0.2.1:1 udp A\\032b.Example TYPE65280 -").unwrap()).unwrap();
        assert_eq!(to_query_file, "A\\032b.Example. TYPE65280");
        // What begins with `#` is a comment, and so is what begins with `;`.
        for (name, written) in [("#a#", "\\035a#. A"), ("\\;a", "\\;a. A")] {
            let asked = query(&format!("0 0.0.0.0:0 udp {name} A rd")).unwrap();
            assert_eq!(question(&asked).as_deref(), Some(written));
            assert_eq!(query(written).unwrap(), asked);
        }
    }

    #[test]
    fn comments_may_be_in_any_encoding_and_queries_may_not() {
        let file = b" # caf\xe9\r\n;\xff\n\na. A\n\xe9. A\n";
        let source = Source::unpacked(std::io::Cursor::new(file));
        let mut lines = Lines::new(source.expect("memory can be read"));
        let mut found = Vec::new();
        for _ in 0..4 {
            assert_eq!(lines.next(|message| found.push(message)), Ok(true));
        }
        assert_eq!(found.iter().map(question).collect::<Vec<_>>(), [Some("a. A".into())]);
        let damage = lines.next(|_| panic!("there is no query")).expect_err("no text");
        assert_eq!((damage.packet, damage.what.as_str()), (5, "this is no text"));
    }

    #[test]
    fn what_is_no_line_is_told() {
        for (text, expected) in [
            ("www.example", "expected TIME"),
            ("x 192.0.2.1:1 udp a. A -", "x is no time"),
            ("1.1234567890 192.0.2.1:1 udp a. A -", "1.1234567890 is no time"),
            ("99999999999999999999 192.0.2.1:1 udp a. A -", "99999999999999999999 is no time"),
            ("1 192.0.2.1 udp a. A -", "192.0.2.1 is no address"),
            ("1 192.0.2.1:1 tls a. A -", "tls is neither"),
            ("1 192.0.2.1:1 udp a..b A -", "a..b: "),
            ("1 192.0.2.1:1 udp a. HOUSE -", "HOUSE is no type"),
            ("1 192.0.2.1:1 udp a. A do", "do needs"),
            ("1 192.0.2.1:1 udp a. A rd,,cd", " is no flag"),
            ("1 192.0.2.1:1 udp a. A edns=65536", "65536 is no size"),
        ] {
            let what = query(text).unwrap_err();
            assert!(what.starts_with(expected), "{text}: {what}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_panic(text in "\\PC{0,80}") {
            if let Ok(message) = query(text.trim()) {
                let written = line(&message).expect("a line is a query");
                prop_assert_eq!(query(&written).expect("it was written by us"), message);
            }
        }
    }
}
