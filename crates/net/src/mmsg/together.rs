//! Which datagrams go as one message that the kernel cuts (`UDP_SEGMENT`, Linux 4.18).
//!
//! The way through the kernel is then gone once for all of them. Such a message has one sender and one receiver, and is
//! cut into datagrams of one length, but for the last, which may be shorter:
//! ```text
//! lengths of datagrams to one client   120 120 120 97 97 80 80 75
//! messages of the longest first        120 120 120 97 | 97 80 | 80 75
//! ```

use super::{ANSWER_MAX, BATCH_MAX};

/// The longest datagram that goes in such a message, in octets: it is not to be fragmented on any path (RFC 9715 §3.1).
pub(super) const MERGED_LENGTH_MAX: usize = 1232;

/// Octets of the longest message that the kernel cuts or puts together: that of IP's length field, headers included.
pub(super) const MERGED_MESSAGE_MAX: usize = 65_535;

/// Octets of the headers of IPv6 and UDP.
const HEADERS: usize = 48;

/// The place of an answer among those of its round, in one number: those of one client beside each other, the longest
/// first.
/// ```text
/// bits 63..18  its client, mixed
///      17..5   octets that it is shorter than the longest there can be
///      4..0    its number
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

const _: () = assert!(BATCH_MAX <= 1 << Place::NUMBER_BITS && ANSWER_MAX < 1 << Place::LENGTH_BITS);

impl Place {
    const NUMBER_BITS: u32 = 5;
    const LENGTH_BITS: u32 = 13;

    pub(super) fn new(client: u64, length: usize, number: usize) -> Place {
        let shorter = (ANSWER_MAX - length) as u64;
        let client = client >> (Self::LENGTH_BITS + Self::NUMBER_BITS);
        Place((client << Self::LENGTH_BITS | shorter) << Self::NUMBER_BITS | number as u64)
    }

    pub(super) fn number(self) -> usize {
        (self.0 & ((1 << Self::NUMBER_BITS) - 1)) as usize
    }

    pub(super) fn client(self) -> u64 {
        self.0 >> (Self::LENGTH_BITS + Self::NUMBER_BITS)
    }
}

/// How many datagrams of these lengths, from the first on, go as one message: those of one length, as far as it has room
/// for them, and a shorter one behind them; 1 where the first goes by itself.
pub(super) fn cuttable(lengths: impl Iterator<Item = usize>) -> usize {
    let mut lengths = lengths.peekable();
    let Some(first @ 1..=MERGED_LENGTH_MAX) = lengths.next() else { return 1 };
    let most = (MERGED_MESSAGE_MAX - HEADERS) / first;
    let mut count = 1;
    while count < most && lengths.next_if_eq(&first).is_some() {
        count += 1;
    }
    let has_last = count < most && lengths.next().is_some_and(|last| (1..first).contains(&last));
    count + usize::from(has_last)
}

/// Whether an error says that messages are not cut on this path, or for this device.
pub(super) fn cannot_cut(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_of_one_length_but_for_its_last() {
        for (lengths, expected) in [
            (&[120, 120, 120, 97, 97][..], 4),
            (&[97, 80, 80], 2),
            (&[80, 80], 2),
            (&[80, 81], 1),
            (&[80], 1),
            (&[80, 0], 1),
            (&[0, 0], 1),
            (&[1233, 1233], 1),
            (&[1233, 80], 1),
            (&[1232, 1232, 80], 3),
            (&[1232; 60], 53),
            (&[], 1),
        ] {
            assert_eq!(cuttable(lengths.iter().copied()), expected, "{lengths:?}");
        }
    }

    #[test]
    fn places_stand_by_client_and_then_the_longest_first() {
        let mut places = [
            (1 << 30, 10, 0),
            (1 << 40, 7, 1),
            (1 << 30, 12, 2),
            (1 << 40, ANSWER_MAX, 31),
            (1 << 30, 12, 4),
        ]
        .map(|(client, length, number)| Place::new(client, length, number));
        places.sort_unstable();
        assert_eq!(places.map(Place::number), [2, 4, 0, 31, 1]);
        assert!(places[0].client() == places[2].client() && places[2].client() != places[3].client());
    }
}
