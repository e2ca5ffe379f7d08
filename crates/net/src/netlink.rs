//! Questions to the kernel over `netlink(7)`, and its answers.
//!
//! What the messages say is the asker's: here are the socket, and which answer belongs to which question.

use std::io::{self, Read as _};
use std::time::Duration;

use libc::AF_NETLINK;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use socket2::{Domain, Protocol, Socket, Type};

/// How much of an answer is received at once, in octets: what the kernel puts together at most.
const ANSWER_MAX: usize = 32 * 1024;

/// How long the kernel may take: it answers within the call, so this is only in case it does not.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// A socket to a part of the kernel.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    answer: Vec<u8>,
    sequence: u32,
}

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// One thing: the answer has one message.
    One,
    /// All that there are.
    List,
}

impl Netlink {
    /// Opens a socket to the part that this protocol of netlink names, such as `NETLINK_ROUTE`.
    ///
    /// # Errors
    /// What the system says: it was built without, or forbids it.
    pub fn open(protocol: i32) -> io::Result<Self> {
        let kind = Type::RAW.cloexec();
        let socket = Socket::new(Domain::from(AF_NETLINK), kind, Some(Protocol::from(protocol)))?;
        socket.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Self { socket, answer: vec![0; ANSWER_MAX], sequence: 0 })
    }

    /// Asks, and hands on each message of the answer.
    ///
    /// # Errors
    /// What the kernel says, and [`InvalidData`](io::ErrorKind::InvalidData) for what cannot be read.
    pub fn ask<M>(&mut self, question: M, asked: Asked, mut each: impl FnMut(M)) -> io::Result<()>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&written(question, asked, self.sequence))?;
        loop {
            let length = (&self.socket).read(&mut self.answer)?;
            let heard = read(&self.answer[..length], self.sequence, &mut each)?;
            if heard == Heard::End || (heard, asked) == (Heard::Some, Asked::One) {
                return Ok(());
            }
        }
    }
}

/// What was received at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Nothing of the answer.
    Nothing,
    /// Some of it, or all where one thing was asked for.
    Some,
    /// The end of a list.
    End,
}

fn written<M: NetlinkSerializable>(question: M, asked: Asked, sequence: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | if asked == Asked::List { NLM_F_DUMP } else { 0 };
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    octets
}

fn read<M: NetlinkDeserializable>(
    mut octets: &[u8],
    sequence: u32,
    each: &mut impl FnMut(M),
) -> io::Result<Heard> {
    let broken = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut heard = Heard::Nothing;
    while !octets.is_empty() {
        let message = NetlinkMessage::<M>::deserialize(octets).map_err(|why| broken(why.to_string()))?;
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX).next_multiple_of(4);
        octets = octets.get(length.max(1)..).unwrap_or_default();
        // What is left of a question that was given up.
        if message.header.sequence_number != sequence {
            continue;
        }
        match message.payload {
            NetlinkPayload::InnerMessage(message) => {
                each(message);
                heard = Heard::Some;
            }
            // The kernel broke off what it had begun to list.
            NetlinkPayload::Done(done) if done.code < 0 => {
                return Err(io::Error::from_raw_os_error(done.code.saturating_neg()));
            }
            NetlinkPayload::Done(_) => return Ok(Heard::End),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message that is all octets.
    #[derive(Debug, PartialEq, Eq)]
    struct Plain(Vec<u8>);

    impl NetlinkSerializable for Plain {
        fn message_type(&self) -> u16 {
            100
        }

        fn buffer_len(&self) -> usize {
            self.0.len()
        }

        fn serialize(&self, buffer: &mut [u8]) {
            buffer.copy_from_slice(&self.0);
        }
    }

    impl NetlinkDeserializable for Plain {
        type Error = io::Error;

        fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, io::Error> {
            Ok(Self(payload.to_vec()))
        }
    }

    fn heard(octets: &[u8], sequence: u32) -> (Option<Heard>, Vec<Plain>) {
        let mut messages = Vec::new();
        (read(octets, sequence, &mut |message| messages.push(message)).ok(), messages)
    }

    #[test]
    fn only_what_answers_the_question_is_handed_on() {
        let question = |octet, sequence| written(Plain(vec![octet; 4]), Asked::One, sequence);
        let both = [question(1, 6), question(2, 7)].concat();
        assert_eq!(heard(&both, 7), (Some(Heard::Some), vec![Plain(vec![2; 4])]));
        assert_eq!(heard(&both, 8), (Some(Heard::Nothing), vec![]));
        // The kernel tells its refusal with the question's sequence number: length, type 2, flags, sequence, port, error.
        let refused = [20, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff];
        let error = read::<Plain>(&refused, 7, &mut |_| {}).expect_err("it is refused");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_list_that_breaks_off_is_no_empty_list() {
        // Length, type 3, flags, sequence, port, error: the end of a list.
        let done = |code: i32| {
            let head = [20, 0, 0, 0, 3, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0];
            read::<Plain>(&[&head[..], &code.to_ne_bytes()].concat(), 7, &mut |_| {})
        };
        assert_eq!(done(0).expect("it is whole"), Heard::End);
        for errno in [libc::EINTR, libc::ENOMEM, libc::EBUSY] {
            assert_eq!(done(-errno).expect_err("it is not whole").raw_os_error(), Some(errno));
        }
        assert!(done(i32::MIN).is_err());
    }

    #[test]
    fn what_the_kernel_never_sends_is_an_error() {
        for octets in [&[1, 2, 3][..], &[0; 16], &[0xff; 64]] {
            assert_eq!(heard(octets, 1), (None, vec![]), "{octets:?}");
        }
        assert_eq!(heard(&[], 1), (Some(Heard::Nothing), vec![]));
    }
}
