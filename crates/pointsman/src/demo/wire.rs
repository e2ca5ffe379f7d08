//! A client's queries and what it reads from the answers, in the words of the `domain` crate, so that the
//! server's own reading and writing is not checked by itself.

use std::net::IpAddr;
use std::str::FromStr;

use dns::edns::UDP_PAYLOAD;
use domain::base::iana::{Class, Rcode};
use domain::base::opt::subnet::ClientSubnet;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};
use routing::Prefix;

use super::sample::NAME;

/// The two questions for addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    fn rtype(self) -> Rtype {
        match self {
            Family::V4 => Rtype::A,
            Family::V6 => Rtype::AAAA,
        }
    }
}

/// Writes a query for [`NAME`] on behalf of a client.
pub(super) fn query(id: u16, family: Family, client: Prefix) -> Vec<u8> {
    const FITS: &str = "a query is far shorter than a message may be";
    let mut query = MessageBuilder::new_vec();
    query.header_mut().set_id(id);
    let mut query = query.question();
    query.push((&name(), family.rtype(), Class::IN)).expect(FITS);
    let mut query = query.additional();
    let options = query.opt(|opt| {
        opt.set_udp_payload_size(UDP_PAYLOAD);
        opt.client_subnet(client.length(), 0, client.address())
    });
    options.expect(FITS);
    query.finish()
}

/// The id of a message.
pub(super) fn id(message: &[u8]) -> Option<u16> {
    message.first_chunk().map(|id| u16::from_be_bytes(*id))
}

/// Reads the one address that answers a query.
///
/// # Errors
/// What is wrong with the answer.
pub(super) fn address(message: &[u8], family: Family, client: Prefix) -> Result<IpAddr, String> {
    let message = Message::from_octets(message).map_err(|_| "shorter than a header")?;
    let header = message.header();
    if !header.qr() {
        return Err("no response".into());
    }
    if header.rcode() != Rcode::NOERROR {
        return Err(format!("response code {}", header.rcode()));
    }
    if !header.aa() || header.tc() {
        return Err("not authoritative, or truncated".into());
    }
    let question = message.sole_question().map_err(|cause| format!("the question: {cause}"))?;
    if question.qname() != &name() || question.qtype() != family.rtype() {
        return Err(format!("another question: {} {}", question.qname(), question.qtype()));
    }
    let subnet = message.opt().and_then(|opt| opt.opt().client_subnet()).ok_or("no client subnet")?;
    let expected = ClientSubnet::new(client.length(), subnet.scope_prefix_len(), client.address());
    if subnet != expected {
        return Err(format!("another client subnet: {subnet}"));
    }
    let answer = message.answer().map_err(|cause| format!("the answer: {cause}"))?;
    let mut addresses = Vec::new();
    for record in answer {
        let record = record.map_err(|cause| format!("a record: {cause}"))?;
        if record.owner() != name() {
            return Err(format!("a record of {}", record.owner()));
        }
        let address = match family {
            Family::V4 => record.to_record::<A>().ok().flatten().map(|a| a.data().addr().into()),
            Family::V6 => record.to_record::<Aaaa>().ok().flatten().map(|aaaa| aaaa.data().addr().into()),
        };
        addresses.push(address.ok_or_else(|| format!("a record of type {}", record.rtype()))?);
    }
    match addresses[..] {
        [address] => Ok(address),
        _ => Err(format!("{} addresses", addresses.len())),
    }
}

fn name() -> Name<Vec<u8>> {
    Name::from_str(NAME).expect("a test reads the name")
}

#[cfg(test)]
mod tests {
    use domain::base::Ttl;

    use super::*;

    fn client() -> Prefix {
        "10.1.2.0/24".parse().expect("a prefix")
    }

    /// Answers `query` with addresses and a client subnet.
    fn answer(query: &[u8], rcode: Rcode, addresses: &[[u8; 4]], subnet: &str) -> Vec<u8> {
        let query = Message::from_octets(query).expect("a query");
        let mut answer =
            MessageBuilder::new_vec().start_answer(&query, rcode).expect("the answer fits into memory");
        answer.header_mut().set_aa(true);
        for [a, b, c, d] in addresses {
            let record = (name(), Class::IN, Ttl::from_secs(30), A::from_octets(*a, *b, *c, *d));
            answer.push(record).expect("the record fits");
        }
        let mut answer = answer.additional();
        let subnet: Prefix = subnet.parse().expect("a prefix");
        answer.opt(|opt| opt.client_subnet(subnet.length(), 11, subnet.address())).expect("the options fit");
        answer.finish()
    }

    #[test]
    fn an_answer_is_read_or_refused() {
        let query = query(0x1234, Family::V4, client());
        assert_eq!(id(&query), Some(0x1234));
        let ours = "10.1.2.0/24";
        for (message, family, expected) in [
            (answer(&query, Rcode::NOERROR, &[[192, 0, 2, 10]], ours), Family::V4, Ok("192.0.2.10")),
            (answer(&query, Rcode::NOERROR, &[], ours), Family::V4, Err("0 addresses")),
            (answer(&query, Rcode::NOERROR, &[[1; 4], [2; 4]], ours), Family::V4, Err("2 addresses")),
            (answer(&query, Rcode::SERVFAIL, &[], ours), Family::V4, Err("response code SERVFAIL")),
            (
                answer(&query, Rcode::NOERROR, &[[1; 4]], ours),
                Family::V6,
                Err("another question: www.demo.example A"),
            ),
            (
                answer(&query, Rcode::NOERROR, &[[1; 4]], "10.1.3.0/24"),
                Family::V4,
                Err("another client subnet: 10.1.3.0/24/11"),
            ),
            (query.clone(), Family::V4, Err("no response")),
            (vec![0x12, 0x34], Family::V4, Err("shorter than a header")),
        ] {
            let found = address(&message, family, client()).map(|address| address.to_string());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned));
        }
        assert_eq!(id(&[1]), None);
    }

    #[test]
    fn what_is_asked_is_what_the_server_reads() {
        for (family, client) in [(Family::V4, "10.1.2.0/24"), (Family::V6, "3fff:100:0:4500::/56")] {
            let client: Prefix = client.parse().expect("a prefix");
            let query = query(7, family, client);
            let message = Message::from_octets(&query[..]).expect("a message");
            let asked = message.sole_question().expect("one question");
            assert_eq!((asked.qname().to_string() + ".", asked.qtype()), (NAME.into(), family.rtype()));
            let subnet = message.opt().and_then(|opt| opt.opt().client_subnet()).expect("a client subnet");
            assert_eq!(subnet, ClientSubnet::new(client.length(), 0, client.address()));
        }
    }
}
