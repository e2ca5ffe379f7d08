//! Messages as octets, and how either end finds the next one again when it has lost its place.
//!
//! ```text
//! request    A B C D FF             an address, and the separator
//! response   A B C D name 00 FF     the same address; its name, empty for "not known"
//! ```
//! A message is whole before its separator has come: who waits for that answers one message late. Separators may be
//! repeated and may come first, for no client's address begins with 255.
//!
//! Where another octet stands in a separator's place, all is passed over up to the next 255. As 255 may also be
//! inside an address, that may be the wrong one: messages count again once [`SURE`] in a row were separated as they
//! should be. The paper says "resync within a few requests" and not how.

use std::net::Ipv4Addr;

/// The octet that stands between messages; no address that is asked for begins with it.
pub const SEPARATOR: u8 = 0xFF;

/// Well separated messages in a row that are passed over before one counts again.
pub const SURE: u8 = 2;

/// The longest name, in octets: what DNS has room for, without the final dot.
pub const NAME_MAX: usize = 253;

/// Octets of an address.
const ADDRESS: usize = 4;

/// Writes a request; `None` for an address that begins with 255, which cannot be asked for.
pub fn request(address: Ipv4Addr) -> Option<[u8; ADDRESS + 1]> {
    let [a, b, c, d] = address.octets();
    (a != SEPARATOR).then_some([a, b, c, d, SEPARATOR])
}

/// Appends a response. `name` is empty for "not known", and has neither 0 nor 255 in it.
#[inline]
pub fn response(address: Ipv4Addr, name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&address.octets());
    out.extend_from_slice(name);
    out.extend_from_slice(&[0, SEPARATOR]);
}

/// Reads requests, as a server does.
#[derive(Clone, Debug, Default)]
pub struct Requests(Frames);

impl Requests {
    /// Takes the next request out of `input` from `taken` on, and moves `taken` behind it; `None` where none is
    /// whole, with `taken` at the beginning of what must be seen again with more behind it.
    #[inline]
    pub fn next(&mut self, input: &[u8], taken: &mut usize) -> Option<Ipv4Addr> {
        let found = self.0.next(input, taken, |rest| match rest.len() {
            0..ADDRESS => Body::Part,
            _ => Body::Whole(ADDRESS),
        });
        found.map(address)
    }

    /// How often the place was lost.
    pub fn losses(&self) -> u64 {
        self.0.losses
    }
}

/// Reads responses, as a client does.
#[derive(Clone, Debug, Default)]
pub struct Responses(Frames);

impl Responses {
    /// Takes the next response out of `input` from `taken` on, as [`Requests::next`] does.
    ///
    /// The name is `None` for "not known", and where it has anything but letters, digits, `-`, `_`, `/` and dots:
    /// it goes into logs and headers, and a server may be anybody's.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8], taken: &mut usize) -> Option<(Ipv4Addr, Option<&'a str>)> {
        let found = self.0.next(input, taken, |rest| {
            let name = &rest[rest.len().min(ADDRESS)..];
            match name.iter().take(NAME_MAX + 1).position(|octet| matches!(*octet, 0 | SEPARATOR)) {
                Some(end) => match name[end] {
                    0 => Body::Whole(ADDRESS + end + 1),
                    _ => Body::Separated(ADDRESS + end + 1),
                },
                None if name.len() <= NAME_MAX => Body::Part,
                None => Body::Endless,
            }
        });
        let found = found?;
        let name = std::str::from_utf8(&found[ADDRESS..found.len() - 1]).ok();
        Some((address(found), name.filter(|name| is_name(name))))
    }

    /// How often the place was lost.
    pub fn losses(&self) -> u64 {
        self.0.losses
    }
}

fn address(message: &[u8]) -> Ipv4Addr {
    Ipv4Addr::new(message[0], message[1], message[2], message[3])
}

fn is_name(text: &str) -> bool {
    let fits = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'/' | b'.');
    !text.is_empty() && text.bytes().all(fits)
}

/// What stands at the beginning of some octets.
enum Body {
    /// A message of so many octets, without its separator.
    Whole(usize),
    /// The beginning of one.
    Part,
    /// None: a separator ends so many octets.
    Separated(usize),
    /// None, and no end either.
    Endless,
}

/// Where a reader stands.
#[derive(Clone, Debug)]
struct Frames {
    place: Place,
    /// Well separated messages since the place was lost, to [`SURE`].
    good: u8,
    losses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before a message.
    Before,
    /// Behind one, where its separator belongs.
    Behind,
    /// Nobody knows.
    Lost,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { place: Place::Before, good: SURE, losses: 0 }
    }
}

impl Frames {
    #[inline]
    fn next<'a>(
        &mut self,
        input: &'a [u8],
        taken: &mut usize,
        body: impl Fn(&[u8]) -> Body,
    ) -> Option<&'a [u8]> {
        loop {
            let rest = &input[*taken..];
            let octet = *rest.first()?;
            match self.place {
                Place::Behind if octet == SEPARATOR => {
                    *taken += 1;
                    self.place = Place::Before;
                    self.good = SURE.min(self.good + 1);
                }
                Place::Behind => self.lose(Place::Lost),
                Place::Lost => match rest.iter().position(|octet| *octet == SEPARATOR) {
                    Some(separator) => {
                        *taken += separator + 1;
                        self.place = Place::Before;
                    }
                    None => {
                        *taken = input.len();
                        return None;
                    }
                },
                Place::Before if octet == SEPARATOR => *taken += 1,
                Place::Before => match body(rest) {
                    Body::Part => return None,
                    Body::Separated(length) => {
                        *taken += length;
                        self.lose(Place::Before);
                    }
                    Body::Endless => self.lose(Place::Lost),
                    Body::Whole(length) => {
                        *taken += length;
                        self.place = Place::Behind;
                        if self.good == SURE {
                            return Some(&rest[..length]);
                        }
                    }
                },
            }
        }
    }

    fn lose(&mut self, place: Place) {
        self.place = place;
        self.good = 0;
        self.losses += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const END: u8 = SEPARATOR;

    /// What a server reads that gets the octets in these pieces.
    fn requests(pieces: &[&[u8]]) -> (Vec<[u8; 4]>, u64) {
        let (mut reader, mut input, mut read) = (Requests::default(), Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            let mut taken = 0;
            while let Some(address) = reader.next(&input, &mut taken) {
                read.push(address.octets());
            }
            input.drain(..taken);
        }
        (read, reader.losses())
    }

    /// What a client reads.
    fn responses(octets: &[u8]) -> (Vec<(String, Option<String>)>, u64) {
        let (mut reader, mut taken, mut read) = (Responses::default(), 0, Vec::new());
        while let Some((address, name)) = reader.next(octets, &mut taken) {
            read.push((address.to_string(), name.map(Into::into)));
        }
        (read, reader.losses())
    }

    #[test]
    fn a_request_is_whole_at_its_fourth_octet() {
        assert_eq!(requests(&[&[10, 0, 0]]), (vec![], 0));
        assert_eq!(requests(&[&[10, 0, 0, 1]]), (vec![[10, 0, 0, 1]], 0));
        assert_eq!(requests(&[&[10, 0, 0, 1], &[END, 10, 0, 0, 2]]), (vec![[10, 0, 0, 1], [10, 0, 0, 2]], 0));
    }

    #[test]
    fn separators_may_come_first_and_be_repeated() {
        let octets = [END, END, 10, 0, 0, 1, END, END, END, 10, 0, 0, 2, END];
        assert_eq!(requests(&[&octets]), (vec![[10, 0, 0, 1], [10, 0, 0, 2]], 0));
    }

    #[test]
    fn addresses_with_the_separators_octet_are_read() {
        let octets = [10, 0, 0, 255, END, 10, 255, 255, 255, END, 10, 255, 0, 1, END];
        assert_eq!(requests(&[&octets]), (vec![[10, 0, 0, 255], [10, 255, 255, 255], [10, 255, 0, 1]], 0));
    }

    #[test]
    fn two_good_messages_are_needed_to_be_sure_again() {
        // An octet too many, then addresses of which one has the separator's octet in it.
        let octets =
            [[10, 0, 0, 1, 7, END].as_slice(), &[10, 0, 0, 2, END], &[10, 0, 0, 3, END], &[10, 0, 0, 4, END]]
                .concat();
        assert_eq!(requests(&[&octets]), (vec![[10, 0, 0, 1], [10, 0, 0, 4]], 1));
        let octets = [
            [10, 0, 0, 1, 7, 10, 0, 0, 255, END].as_slice(),
            &[10, 0, 0, 3, END],
            &[10, 0, 0, 4, END],
            &[10, 0, 0, 5, END],
        ]
        .concat();
        assert_eq!(requests(&[&octets]), (vec![[10, 0, 0, 1], [10, 0, 0, 5]], 1));
        // Text of another protocol: one answer at most, and none of it is taken for an address later.
        let (read, losses) = requests(&[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]);
        assert_eq!((read, losses), (vec![*b"GET "], 1));
    }

    #[test]
    fn responses_are_read_as_they_are_written() {
        let mut octets = Vec::new();
        response(Ipv4Addr::new(192, 0, 2, 1), b"www.example", &mut octets);
        assert_eq!(octets, b"\xC0\x00\x02\x01www.example\0\xFF");
        response(Ipv4Addr::new(192, 0, 2, 255), b"", &mut octets);
        let expected =
            vec![("192.0.2.1".to_owned(), Some("www.example".to_owned())), ("192.0.2.255".to_owned(), None)];
        assert_eq!(responses(&octets), (expected, 0));
        assert_eq!(request(Ipv4Addr::new(192, 0, 2, 1)), Some([192, 0, 2, 1, END]));
        assert_eq!(request(Ipv4Addr::BROADCAST), None);
    }

    #[test]
    fn a_clients_place_is_found_again() {
        let good = |octets: &mut Vec<u8>, last| response(Ipv4Addr::new(10, 0, 0, last), b"a.example", octets);
        for broken in [
            &b"\x0A\0\0\x01cut.exam\xFF"[..],
            b"\x0A\0\0\x01a\0\0\0\xFF",
            &[&[b'a'; 300][..], &[END]].concat(),
        ] {
            let mut octets = broken.to_vec();
            for last in 2..=4 {
                good(&mut octets, last);
            }
            let (read, losses) = responses(&octets);
            assert_eq!((read.last().map(|(address, _)| address.as_str()), losses), (Some("10.0.0.4"), 1));
        }
        for unreadable in ["a\r\nb", "a b", "é.example", "\u{1b}[1m"] {
            let mut octets = Vec::new();
            response(Ipv4Addr::new(10, 0, 0, 1), unreadable.as_bytes(), &mut octets);
            assert_eq!(responses(&octets), (vec![("10.0.0.1".into(), None)], 0), "{unreadable:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_is_read_however_it_is_cut(
            addresses in proptest::collection::vec((0..255u8, any::<[u8; 3]>()), 1..20),
            cuts in proptest::collection::vec(0..100usize, 0..10),
        ) {
            let asked: Vec<[u8; 4]> = addresses.iter().map(|(a, [b, c, d])| [*a, *b, *c, *d]).collect();
            let octets: Vec<u8> = asked.iter().flat_map(|a| request((*a).into()).unwrap()).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(octets.len())).collect();
            cuts.extend([0, octets.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &octets[cut[0]..cut[1]]).collect();
            prop_assert_eq!(requests(&pieces), (asked, 0));
        }

        #[test]
        fn a_place_is_found_again_within_a_few_requests(
            junk in proptest::collection::vec(any::<u8>(), 1..40),
            addresses in proptest::collection::vec((0..255u8, proptest::array::uniform3(0..255u8)), 8..12),
        ) {
            let asked: Vec<[u8; 4]> = addresses.iter().map(|(a, [b, c, d])| [*a, *b, *c, *d]).collect();
            let mut octets = junk;
            // Where the junk ends inside a message, the next separator ends that.
            octets.push(END);
            octets.extend(asked.iter().flat_map(|a| request((*a).into()).unwrap()));
            let (read, _) = requests(&[&octets]);
            prop_assert!(read.ends_with(&asked[4..]), "{:?} of {:?}", read, asked);
        }

        #[test]
        fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (mut reader, mut taken) = (Responses::default(), 0);
            while let Some((_, name)) = reader.next(&octets, &mut taken) {
                prop_assert!(name.is_none_or(|name| name.len() <= NAME_MAX && is_name(name)));
            }
            prop_assert!(taken <= octets.len());
        }
    }
}
