//! The head of an HTTP answer (RFC 9112 §4), as far as a probe needs it: the status code.

/// The longest head that is read, in octets; servers send a few hundred.
pub const HEAD_MAX: usize = 16 << 10;

/// The most fields of a head; servers send a few dozen.
const FIELDS_MAX: usize = 256;

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

/// Reads the status code once the head is whole; interim answers (1xx) before it are passed over, and fields are not judged.
pub fn head(mut octets: &[u8]) -> Head {
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true).ignore_invalid_headers_in_responses(true);
    loop {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let end = match config.parse_response(&mut response, octets) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) if octets.len() < HEAD_MAX => return Head::Partial,
            Ok(httparse::Status::Partial) | Err(_) => return Head::Malformed,
        };
        match response.code {
            // 101 is another protocol's beginning, and ends this one.
            Some(100 | 102..200) => octets = &octets[end..],
            Some(status @ (101 | 200..)) => return Head::Status(status),
            Some(..100) | None => return Head::Malformed,
        }
    }
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
            ("HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nno field\r\n: \u{1}\r\n\r\n", Status(200)),
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
