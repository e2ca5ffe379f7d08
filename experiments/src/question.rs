//! A question for the addresses of a name, and the first address of its answer (RFC 1035 §4.1).

use std::net::Ipv4Addr;

/// The header's length in octets.
const HEADER: usize = 12;

/// A query for the IPv4 addresses of a name without a final dot.
pub fn query(id: u16, name: &str) -> Vec<u8> {
    let mut query = id.to_be_bytes().to_vec();
    query.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    query
}

/// The first address of the answer to a query of any form, and its TTL in seconds; `None` where there is none.
///
/// # Panics
/// Never.
pub fn first(query: &[u8], answer: &[u8]) -> Option<(Ipv4Addr, u32)> {
    let question = HEADER + query.get(HEADER..)?.iter().position(|octet| *octet == 0)? + 5;
    let header = answer.get(..HEADER)?;
    let is_answer = header[..2] == query[..2] && header[2] & 0x80 != 0 && header[3] & 15 == 0;
    if !is_answer || answer.get(HEADER..question)? != query.get(HEADER..question)? {
        return None;
    }
    // A pointer to the name, type, class, TTL, length, address.
    let record = answer.get(question..question + 16)?;
    if record[..6] != [0xc0, HEADER as u8, 0, 1, 0, 1] || record[10..12] != [0, 4] {
        return None;
    }
    let four = |at: usize| <[u8; 4]>::try_from(&record[at..at + 4]).expect("four octets of sixteen");
    Some((four(12).into(), u32::from_be_bytes(four(6))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_of_an_answer_to_just_this_question_is_read() {
        let query = query(0x1234, "www.example.com");
        assert_eq!(query.len(), HEADER + 17 + 4);
        let record = |last: u8| [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, last];
        let answer = |id: u8, flags: u8| {
            let header = [0x12, id, 0x84, flags, 0, 1, 0, 2, 0, 0, 0, 0];
            [&header[..], &query[HEADER..], &record(7), &record(8)].concat()
        };
        assert_eq!(first(&query, &answer(0x34, 0)), Some((Ipv4Addr::new(192, 0, 2, 7), 30)));
        assert_eq!(first(&query, &answer(0x35, 0)), None, "another id");
        assert_eq!(first(&query, &answer(0x34, 2)), None, "SERVFAIL");
        assert_eq!(first(&query, &query), None, "no answer");
        for length in 0..query.len() + 16 {
            assert_eq!(first(&query, &answer(0x34, 0)[..length]), None, "{length} octets");
        }
    }
}
