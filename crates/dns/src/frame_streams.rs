//! Frame Streams: payloads in a stream of octets, as dnstap files and sockets carry them (the `fstrm` library's
//! protocol).
//!
//! ```text
//! data:     | length (4, not 0) | payload                                     |
//! control:  | 0 (4) | length (4) | kind (4) | fields: | 1 (4) | length (4) | content type |
//!
//! one-way (files):    START payload ... STOP
//! two-way (sockets):  writer READY, reader ACCEPT, writer START payload ... STOP, reader FINISH
//! ```
//! All numbers are big-endian. Pure: octets in, frames out; who reads keeps what is no whole frame yet, at most
//! [`FRAME_MAX`] octets.

use std::fmt;

/// The content type of streams of dnstap messages.
pub const DNSTAP: &[u8] = b"protobuf:dnstap.Dnstap";

/// The longest payload in octets: the two longest DNS messages with what dnstap says of them. A longer one is
/// no dnstap, and would have a reader keep whatever its length promises.
pub const PAYLOAD_MAX: usize = 256 << 10;

/// The longest frame in octets.
pub const FRAME_MAX: usize = LENGTH + PAYLOAD_MAX;

/// The longest body of a control frame in octets, as `fstrm` has it.
pub const CONTROL_MAX: usize = 512;

/// The longest content type in octets, as `fstrm` has it.
pub const CONTENT_TYPE_MAX: usize = 256;

/// Octets of a length, a kind and the escape.
const LENGTH: usize = 4;

/// The field of a control frame that holds a content type.
const CONTENT_TYPE: u32 = 1;

/// What a control frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The reader takes one of the offered content types.
    Accept = 1,
    /// Payloads follow.
    Start = 2,
    /// No payload follows.
    Stop = 3,
    /// The writer offers content types.
    Ready = 4,
    /// The reader has all that came before STOP.
    Finish = 5,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A payload.
    Payload(&'a [u8]),
    /// A control frame and the content types that it names.
    Control(Control, ContentTypes<'a>),
}

/// The content types of a control frame: well-formed, possibly none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentTypes<'a>(&'a [u8]);

/// Why octets are no stream of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A payload above [`PAYLOAD_MAX`].
    PayloadLength(u32),
    /// A control frame below 4 octets or above [`CONTROL_MAX`].
    ControlLength(u32),
    /// A control frame of a kind that there is not.
    ControlKind(u32),
    /// A control frame whose fields break off, are unknown or too long.
    Field,
    /// The stream does not begin with START and the content type that was asked for.
    Beginning,
    /// A control frame that has no place in a stream of one way.
    Unexpected(Control),
}

/// Reads a stream of one way: a file, or what follows the handshake of two ways.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    content_type: &'static [u8],
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    Within,
    Ended,
}

/// What [`Decoder::next`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A payload.
    Payload(&'a [u8]),
    /// No whole frame is there: more octets are needed, [`FRAME_MAX`] at most in all.
    Wanting,
    /// STOP came; octets that follow belong to nothing.
    Ended,
}

impl Decoder {
    /// A stream that has not begun, of payloads of one content type.
    pub fn new(content_type: &'static [u8]) -> Decoder {
        Decoder { content_type, state: State::Begin }
    }

    /// Takes frames from the front of `octets` until one is a payload.
    ///
    /// # Errors
    /// [`Malformed`]: nothing that follows can be read.
    pub fn next<'a>(&mut self, octets: &mut &'a [u8]) -> Result<Next<'a>, Malformed> {
        loop {
            if self.state == State::Ended {
                return Ok(Next::Ended);
            }
            let Some((frame, rest)) = split_first(octets)? else { return Ok(Next::Wanting) };
            *octets = rest;
            match (self.state, frame) {
                (State::Within, Frame::Payload(payload)) => return Ok(Next::Payload(payload)),
                (State::Within, Frame::Control(Control::Stop, _)) => self.state = State::Ended,
                (State::Within, Frame::Control(control, _)) => return Err(Malformed::Unexpected(control)),
                (State::Begin, Frame::Control(Control::Start, types)) if types.has(self.content_type) => {
                    self.state = State::Within;
                }
                _ => return Err(Malformed::Beginning),
            }
        }
    }
}

impl<'a> ContentTypes<'a> {
    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (found, after) = field(rest)?;
            rest = after;
            Some(found)
        })
    }

    /// Whether one of them is `content_type`.
    pub fn has(self, content_type: &[u8]) -> bool {
        self.iter().any(|found| found == content_type)
    }
}

/// Splits the first frame off, when it is complete: the frame, and what follows it.
///
/// # Errors
/// [`Malformed`], as soon as it can be seen.
pub fn split_first(octets: &[u8]) -> Result<Option<(Frame<'_>, &[u8])>, Malformed> {
    let Some((length, rest)) = number(octets) else { return Ok(None) };
    if length > 0 {
        if length as usize > PAYLOAD_MAX {
            return Err(Malformed::PayloadLength(length));
        }
        return Ok(rest
            .split_at_checked(length as usize)
            .map(|(payload, rest)| (Frame::Payload(payload), rest)));
    }
    let Some((length, rest)) = number(rest) else { return Ok(None) };
    if !(LENGTH..=CONTROL_MAX).contains(&(length as usize)) {
        return Err(Malformed::ControlLength(length));
    }
    let Some((body, rest)) = rest.split_at_checked(length as usize) else { return Ok(None) };
    let (kind, fields) = number(body).expect("the length is at least that of a number");
    let control = match kind {
        1 => Control::Accept,
        2 => Control::Start,
        3 => Control::Stop,
        4 => Control::Ready,
        5 => Control::Finish,
        other => return Err(Malformed::ControlKind(other)),
    };
    let mut unread = fields;
    while !unread.is_empty() {
        (_, unread) = field(unread).ok_or(Malformed::Field)?;
    }
    Ok(Some((Frame::Control(control, ContentTypes(fields)), rest)))
}

/// Appends a control frame; ACCEPT, START and READY name a content type, STOP and FINISH none.
///
/// # Panics
/// When the content type is longer than [`CONTENT_TYPE_MAX`].
pub fn push_control(out: &mut Vec<u8>, control: Control, content_type: Option<&[u8]>) {
    let fields = content_type.map_or(0, |content_type| 2 * LENGTH + content_type.len());
    for number in [0, length_of(LENGTH + fields), control as u32] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    if let Some(content_type) = content_type {
        assert!(content_type.len() <= CONTENT_TYPE_MAX, "a content type of {} octets", content_type.len());
        for number in [CONTENT_TYPE, length_of(content_type.len())] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(content_type);
    }
}

/// Appends a data frame whose payload `write` appends.
///
/// # Panics
/// When the payload is empty or above [`PAYLOAD_MAX`].
pub fn push_payload(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    write(out);
    let length = out.len() - start - LENGTH;
    assert!((1..=PAYLOAD_MAX).contains(&length), "a payload of {length} octets");
    out[start..start + LENGTH].copy_from_slice(&length_of(length).to_be_bytes());
}

fn number(octets: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = octets.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}

/// The content type at the front of a control frame's fields, and the fields behind it.
fn field(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (kind, rest) = number(octets)?;
    let (length, rest) = number(rest)?;
    if kind != CONTENT_TYPE || length as usize > CONTENT_TYPE_MAX {
        return None;
    }
    rest.split_at_checked(length as usize)
}

fn length_of(octets: usize) -> u32 {
    u32::try_from(octets).expect("frames are far shorter")
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::PayloadLength(length) => {
                write!(f, "a payload of {length} octets; at most {PAYLOAD_MAX} are expected")
            }
            Malformed::ControlLength(length) => {
                write!(f, "a control frame of {length} octets; {LENGTH} to {CONTROL_MAX} are expected")
            }
            Malformed::ControlKind(kind) => write!(f, "a control frame of kind {kind}; there are 1 to 5"),
            Malformed::Field => f.write_str("a control frame whose fields are not content types"),
            Malformed::Beginning => f.write_str("no START frame with the expected content type"),
            Malformed::Unexpected(control) => write!(f, "a control frame {control:?} among the payloads"),
        }
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        push_control(&mut out, Control::Start, Some(DNSTAP));
        for payload in payloads {
            push_payload(&mut out, |out| out.extend_from_slice(payload));
        }
        push_control(&mut out, Control::Stop, None);
        out
    }

    /// Reads a stream that comes in pieces of `piece` octets.
    fn read(octets: &[u8], piece: usize) -> Result<(Vec<Vec<u8>>, bool), Malformed> {
        let (mut decoder, mut payloads, mut kept) = (Decoder::new(DNSTAP), Vec::new(), Vec::new());
        for piece in octets.chunks(piece) {
            kept.extend_from_slice(piece);
            let mut rest = &kept[..];
            loop {
                match decoder.next(&mut rest)? {
                    Next::Payload(payload) => payloads.push(payload.to_vec()),
                    Next::Wanting => break,
                    Next::Ended => return Ok((payloads, true)),
                }
            }
            kept = rest.to_vec();
        }
        Ok((payloads, false))
    }

    #[test]
    fn the_octets_are_those_of_fstrm() {
        let mut start = vec![0, 0, 0, 0, 0, 0, 0, 34, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 22];
        start.extend_from_slice(DNSTAP);
        let expected = [&start[..], &[0, 0, 0, 1, 7], &[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3]].concat();
        assert_eq!(stream(&[vec![7]]), expected);
    }

    #[test]
    fn what_is_no_stream_is_refused_by_cause() {
        let start = || {
            let mut out = Vec::new();
            push_control(&mut out, Control::Start, Some(DNSTAP));
            out
        };
        let after_start = |octets: &[u8]| [&start(), octets].concat();
        let control = |control, content_type: Option<&[u8]>| {
            let mut out = Vec::new();
            push_control(&mut out, control, content_type);
            out
        };
        let cases = [
            (after_start(&[0xff; 4]), Malformed::PayloadLength(u32::MAX)),
            (after_start(&[0, 0, 0, 0, 0, 0, 0, 3]), Malformed::ControlLength(3)),
            (after_start(&[0, 0, 0, 0, 0, 0, 2, 1]), Malformed::ControlLength(513)),
            (after_start(&[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 6]), Malformed::ControlKind(6)),
            (after_start(&[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0]), Malformed::Field),
            (after_start(&control(Control::Ready, None)), Malformed::Unexpected(Control::Ready)),
            (control(Control::Start, Some(b"another")), Malformed::Beginning),
            (control(Control::Start, None), Malformed::Beginning),
            (control(Control::Stop, None), Malformed::Beginning),
            (vec![0, 0, 0, 1, 7], Malformed::Beginning),
        ];
        for (octets, expected) in cases {
            assert_eq!(read(&octets, usize::MAX), Err(expected), "{octets:02x?}");
        }
    }

    #[test]
    fn several_content_types_are_all_seen() {
        let mut out = Vec::new();
        push_control(&mut out, Control::Ready, Some(b"first"));
        let second = [&1u32.to_be_bytes()[..], &6u32.to_be_bytes(), b"second"].concat();
        out.extend_from_slice(&second);
        let length = (out.len() - 8) as u32;
        out[4..8].copy_from_slice(&length.to_be_bytes());
        let (frame, rest) = split_first(&out).expect("well-formed").expect("whole");
        let Frame::Control(Control::Ready, types) = frame else { panic!("{frame:?}") };
        assert_eq!(types.iter().collect::<Vec<_>>(), [&b"first"[..], b"second"]);
        assert!(types.has(b"second") && !types.has(b"third") && rest.is_empty());
    }

    proptest! {
        #[test]
        fn a_stream_reads_back_however_it_is_cut(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..5),
            piece in 1usize..100,
        ) {
            prop_assert_eq!(read(&stream(&payloads), piece), Ok((payloads, true)));
        }

        #[test]
        fn any_octets_are_read_without_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = split_first(&octets);
        }
    }
}
