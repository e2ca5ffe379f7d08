//! The head of an HTTP answer (RFC 9112 §4), as far as a probe needs it: the status code.

/// The longest head that is read, in octets; servers send a few hundred.
pub const HEAD_MAX: usize = 16 << 10;

/// What the octets so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The whole head of an answer with this status code.
    Status(u16),
    /// The beginning of one.
    Partial,
    /// No answer of HTTP.
    Malformed,
}

/// Reads the status code once the head is whole; interim answers (1xx) before it are passed over.
pub fn head(mut octets: &[u8]) -> Head {
    loop {
        let line = octets.iter().position(|octet| *octet == b'\n');
        let status = match (status(&octets[..line.unwrap_or(octets.len())]), line) {
            (Some(status), Some(_)) => status,
            (None, None) if is_beginning(octets) => return Head::Partial,
            (Some(_), None) => return Head::Partial,
            (None, _) => return Head::Malformed,
        };
        let Some(end) = end(octets) else {
            return if octets.len() < HEAD_MAX { Head::Partial } else { Head::Malformed };
        };
        // 101 is another protocol's beginning, and ends this one.
        if !(100..200).contains(&status) || status == 101 {
            return Head::Status(status);
        }
        octets = &octets[end..];
    }
}

/// The code of `HTTP/1.x NNN reason`.
fn status(line: &[u8]) -> Option<u16> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [version, b' ', hundreds @ b'1'..=b'9', tens, ones, rest @ ..] = rest else { return None };
    let digits = [version, tens, ones].iter().all(|digit| digit.is_ascii_digit());
    let digit = |digit: &u8| u16::from(digit - b'0');
    (digits && matches!(rest, [] | [b' ', ..]))
        .then(|| digit(hundreds) * 100 + digit(tens) * 10 + digit(ones))
}

/// Whether a line without its end can still become a status line.
fn is_beginning(line: &[u8]) -> bool {
    const FORM: &[u8] = b"HTTP/1.";
    line.len() < b"HTTP/1.1 200\r".len() && line.iter().zip(FORM).all(|(got, wanted)| got == wanted)
}

/// Where the empty line behind the fields ends.
fn end(octets: &[u8]) -> Option<usize> {
    let ends = octets.iter().enumerate().filter(|(_, octet)| **octet == b'\n').map(|(at, _)| at + 1);
    ends.into_iter().find_map(|at| match &octets[at..] {
        [b'\n', ..] => Some(at + 1),
        [b'\r', b'\n', ..] => Some(at + 2),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_are_whole_or_begun_or_none() {
        use Head::{Malformed, Partial, Status};
        for (octets, expected) in [
            ("", Partial),
            ("HTT", Partial),
            ("HTTP/1.1 20", Partial),
            ("HTTP/1.1 200", Partial),
            ("HTTP/1.1 200 OK\r\nServer: x\r\n", Partial),
            ("HTTP/1.1 200 OK\r\nServer: x\r\n\r\n", Status(200)),
            ("HTTP/1.1 200 OK\r\n\r\n<html>", Status(200)),
            ("HTTP/1.0 503\n\nbody", Status(503)),
            ("HTTP/1.1 204 \r\n\r\n", Status(204)),
            ("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", Partial),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n", Status(404)),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", Status(101)),
            ("SSH-2.0-OpenSSH_10\r\n", Malformed),
            ("S", Malformed),
            ("HTTP/2 200\r\n\r\n", Malformed),
            ("HTTP/1.1 2000 OK\r\n\r\n", Malformed),
            ("HTTP/1.1 099 OK\r\n\r\n", Malformed),
            ("HTTP/1.1 2x0 OK\r\n\r\n", Malformed),
            ("HTTP/1.1  200 OK\r\n\r\n", Malformed),
        ] {
            assert_eq!(head(octets.as_bytes()), expected, "{octets:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(HEAD_MAX));
        assert_eq!(head(endless.as_bytes()), Malformed);
    }

    proptest! {
        /// However an answer is cut, it is one only when its head is whole, and never two different ones.
        #[test]
        fn what_comes_in_pieces_is_read_the_same(code in 200u16..600, fields in "[a-z: ]{0,40}", body in "(?s).{0,40}") {
            let whole = format!("HTTP/1.1 {code} x\r\nA: {fields}\r\n\r\n{body}");
            let ends = whole.find("\r\n\r\n").expect("it is there") + 4;
            for cut in 0..=whole.len() {
                let expected = if cut < ends { Head::Partial } else { Head::Status(code) };
                prop_assert_eq!(head(&whole.as_bytes()[..cut]), expected);
            }
        }

        #[test]
        fn any_octets_are_taken(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            head(&octets);
        }
    }
}
