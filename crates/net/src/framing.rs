//! DNS messages in a stream of octets (RFC 1035 §4.2.2, RFC 7766 §8).
//!
//! ```text
//! +----------------+----------------+------------------------+
//! | length, high   | length, low    | message, length octets |   a frame; the next one follows at once
//! +----------------+----------------+------------------------+
//! ```
//! Pure: octets in, messages out. What a message says is not looked at; one of length zero is a message too.

/// Octets of the length in front of each message.
pub const PREFIX_LEN: usize = 2;

/// Longest message, in octets: what the prefix can say.
pub const MESSAGE_MAX: usize = u16::MAX as usize;

/// Longest frame, in octets: prefix and message.
pub const FRAME_MAX: usize = PREFIX_LEN + MESSAGE_MAX;

/// Puts messages together that arrive in arbitrary pieces.
///
/// A message that lies whole in one piece is handed out where it lies. Only the beginning of a message whose
/// end has not come yet is copied. So an assembler that waits for a new message holds no memory, and one that
/// waits for the rest of a message holds at most twice what has arrived of it, never what its prefix merely
/// promises.
#[derive(Debug, Default)]
pub struct Assembler {
    /// What has arrived of a frame that was not whole in its piece.
    frame: Vec<u8>,
    /// Whether `frame` was handed out and is to be given back on the next call.
    handed_out: bool,
}

impl Assembler {
    /// Takes octets from the front of `piece` until a message is complete, and hands that message out.
    ///
    /// `None` means that all of `piece` is taken and that no message is complete; call again with the next
    /// piece.
    pub fn next<'a, 'b: 'a>(&'a mut self, piece: &mut &'b [u8]) -> Option<&'a [u8]> {
        self.release();
        if self.frame.is_empty()
            && let Some((message, rest)) = split_first(piece)
        {
            *piece = rest;
            return Some(message);
        }
        loop {
            let (taken, rest) = piece.split_at(self.missing().min(piece.len()));
            self.frame.extend_from_slice(taken);
            *piece = rest;
            if self.missing() == 0 {
                self.handed_out = true;
                return Some(&self.frame[PREFIX_LEN..]);
            }
            if rest.is_empty() {
                return None;
            }
        }
    }

    /// Gives back the memory of the message that was handed out last.
    pub fn release(&mut self) {
        if self.handed_out {
            *self = Self::default();
        }
    }

    /// Whether the beginning of a message has arrived and its end has not.
    pub fn is_partial(&self) -> bool {
        !self.frame.is_empty() && !self.handed_out
    }

    /// Octets that are certainly needed before the message in `frame` can be complete.
    fn missing(&self) -> usize {
        match self.frame.first_chunk() {
            None => PREFIX_LEN - self.frame.len(),
            Some(prefix) => PREFIX_LEN + message_len(*prefix) - self.frame.len(),
        }
    }
}

/// Splits the first message off, when it is complete: the message without its prefix, and what follows it.
pub fn split_first(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (prefix, rest) = octets.split_first_chunk()?;
    rest.split_at_checked(message_len(*prefix))
}

/// Returns the prefix of a message of `message_len` octets.
///
/// # Panics
/// When `message_len` is above [`MESSAGE_MAX`].
pub fn prefix(message_len: usize) -> [u8; PREFIX_LEN] {
    u16::try_from(message_len).expect("a message has at most 65,535 octets").to_be_bytes()
}

fn message_len(prefix: [u8; PREFIX_LEN]) -> usize {
    usize::from(u16::from_be_bytes(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream_of(messages: &[Vec<u8>]) -> Vec<u8> {
        messages.iter().flat_map(|message| [&prefix(message.len())[..], message].concat()).collect()
    }

    fn assemble<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Assembler) {
        let mut assembler = Assembler::default();
        let mut messages = Vec::new();
        for mut piece in pieces {
            let rest = &mut piece;
            while let Some(message) = assembler.next(rest) {
                messages.push(message.to_vec());
            }
            assert!(rest.is_empty(), "a piece is taken whole");
        }
        (messages, assembler)
    }

    #[test]
    fn messages_come_out_however_they_are_cut() {
        let longest = vec![7; MESSAGE_MAX];
        for messages in [
            vec![],
            vec![vec![]],
            vec![vec![1]],
            vec![vec![], vec![], vec![]],
            vec![vec![1; 300], vec![], vec![2; 12]],
            vec![longest.clone(), longest],
        ] {
            let stream = stream_of(&messages);
            for piece_len in [1, 2, 3, 13, 255, 256, 4096, 65_537, 1 << 20] {
                let (seen, assembler) = assemble(stream.chunks(piece_len));
                assert_eq!(seen, messages, "in pieces of {piece_len}");
                assert!(!assembler.is_partial());
            }
        }
    }

    #[test]
    fn a_whole_message_is_not_copied() {
        let stream = stream_of(&[vec![1; 40], vec![2; 40]]);
        let mut assembler = Assembler::default();
        let mut rest = &stream[..];
        assert_eq!(assembler.next(&mut rest).map(<[u8]>::as_ptr), Some(stream[2..].as_ptr()));
        assert_eq!(assembler.next(&mut rest).map(<[u8]>::as_ptr), Some(stream[44..].as_ptr()));
        assert_eq!(assembler.next(&mut rest), None);
        assert_eq!(assembler.frame.capacity(), 0);
    }

    #[test]
    fn memory_follows_what_arrived_and_is_given_back() {
        let mut assembler = Assembler::default();
        assert_eq!(assembler.next(&mut &[0xff, 0xff, 1][..]), None);
        assert!(assembler.is_partial());
        assert!(assembler.frame.capacity() < 64, "the prefix alone must not reserve memory");

        let rest = vec![1; MESSAGE_MAX - 1];
        let mut piece = &rest[..];
        assert_eq!(assembler.next(&mut piece).map(<[u8]>::len), Some(MESSAGE_MAX));
        assert!(assembler.frame.capacity() <= 2 * FRAME_MAX);
        assert!(!assembler.is_partial());
        assembler.release();
        assert_eq!(assembler.frame.capacity(), 0);
        assert_eq!(assembler.next(&mut piece), None);
    }

    #[test]
    fn split_first_needs_the_whole_frame() {
        let check = |octets: &[u8], expected: Option<(&[u8], &[u8])>| {
            assert_eq!(split_first(octets), expected, "{octets:?}");
        };
        check(&[], None);
        check(&[0], None);
        check(&[0, 0], Some((&[], &[])));
        check(&[0, 2, 9], None);
        check(&[0, 2, 9, 8], Some((&[9, 8], &[])));
        check(&[0, 1, 9, 8], Some((&[9], &[8])));
    }

    proptest! {
        #[test]
        fn any_cuts_give_the_same_messages(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
            cuts in prop::collection::vec(1..90_usize, 1..60),
            lost in 0..50_usize,
        ) {
            let stream = stream_of(&messages);
            let kept = &stream[..stream.len().saturating_sub(lost)];
            let mut whole = Vec::new();
            let mut rest = kept;
            while let Some((message, after)) = split_first(rest) {
                whole.push(message.to_vec());
                rest = after;
            }

            let mut pieces = Vec::new();
            let mut uncut = kept;
            for cut in cuts.iter().cycle() {
                if uncut.is_empty() {
                    break;
                }
                let (piece, after) = uncut.split_at((*cut).min(uncut.len()));
                pieces.push(piece);
                uncut = after;
            }
            let (seen, assembler) = assemble(pieces);
            prop_assert_eq!(assembler.is_partial(), !rest.is_empty());
            prop_assert_eq!(seen, whole);
        }
    }
}
