//! What the balancer reads of back ends: replies to queries that wait.

use balancer::pending::{Asker, Pending, Unmatched, answers};
use domain::base::Message;
use fastrand::Rng;

/// The query that waits, but for its id, and where its question ends.
const QUERY: &[u8] =
    b"\0\0\x01\0\0\x01\0\0\0\0\0\x01\x03www\x07example\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
const QUESTION_END: usize = 29;

/// A reply matches where `domain` reads the same question behind a response's header, or an error alone, and nothing
/// else does.
pub(super) fn reply(octets: &[u8]) {
    let mut pending = Pending::new(1, 2);
    let asker = Asker { client: ([192, 0, 2, 1], 5353).into(), local: None, id: 7, counted_at: 0 };
    let index = pending.take(asker, QUERY, QUESTION_END, 1).expect("a place");
    pending.sent(index, 1, &mut Rng::with_seed(1)).expect("an id");
    let mut octets = octets.to_vec();
    if let Some(id) = octets.first_chunk_mut::<2>() {
        id.copy_from_slice(&pending.get(index).query[..2]);
    }
    assert_eq!(pending.matching(0, &octets), Err(Unmatched::Alien), "over another socket");
    let found = pending.matching(1, &octets);
    assert_eq!(found.is_ok(), answers(&octets, QUERY, QUESTION_END));
    if found.is_ok() {
        let message = Message::from_octets(&octets).expect("a header");
        assert!(message.header().qr() && message.header().id() == u16::from_be_bytes([octets[0], octets[1]]));
        if message.header_counts().qdcount() == 1 {
            let asked = Message::from_octets(QUERY).expect("a header");
            let (told, asked) = (message.sole_question(), asked.sole_question().expect("a question"));
            assert_eq!(told.expect("a question"), asked);
        }
    }
}

pub(super) fn replies() -> Vec<Vec<u8>> {
    let mut good = QUERY.to_vec();
    good[2] |= 0x80;
    let mut alone = good[..12].to_vec();
    (alone[3], alone[5], alone[11]) = (1, 0, 0);
    vec![good, alone, QUERY.to_vec()]
}
