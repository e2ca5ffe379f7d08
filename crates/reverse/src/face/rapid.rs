//! Rapid DNS over TCP, to the octet: addresses in, names out, for IPv4 only.
//!
//! An empty name says that there is none, that it could not be learned, or that it is not known yet: the protocol has
//! one word for all.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use net::clock::Clock;
use rapid::frame::{Requests, response};

use super::stream::{Conversation, OUTPUT_MAX, Step, Then};
use crate::backend::seconds;
use crate::cache::{TOGETHER, View};
use crate::front::Front;
use crate::known::Known;

/// A connection on the cache.
#[derive(Debug)]
pub struct Rapid {
    /// Where addresses are looked up.
    pub front: Front,
    /// The clock by which entries expire.
    pub clock: Clock,
    /// Who asks, and how far.
    pub session: Session,
}

/// What one connection has said.
#[derive(Clone, Debug)]
pub struct Session {
    client: IpAddr,
    requests: Requests,
}

impl Conversation for Rapid {
    fn answer(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step {
        if input.is_empty() {
            return Step { taken: 0, then: Then::Read };
        }
        self.session.answer(&self.front, &self.front.view(), seconds(self.clock.now()), input, out)
    }
}

impl Session {
    /// A connection of `client`.
    pub fn new(client: IpAddr) -> Session {
        Session { client, requests: Requests::default() }
    }

    /// Answers the requests at the beginning of `input` at `now`, in seconds since 1970. Where the place is lost,
    /// that counts as refused.
    pub fn answer(&mut self, front: &Front, view: &View, now: u32, input: &[u8], out: &mut Vec<u8>) -> Step {
        let (mut taken, losses) = (0, self.requests.losses());
        let (mut then, mut addresses) = (Then::Again, [self.client; TOGETHER]);
        while then == Then::Again && out.len() < OUTPUT_MAX {
            let asked = std::iter::from_fn(|| self.requests.next(input, &mut taken));
            let count = addresses.iter_mut().zip(asked).map(|(at, address)| *at = address.into()).count();
            if count < TOGETHER {
                then = Then::Read;
            }
            front.look_up_each(view, &addresses[..count], self.client, now, |address, known, name| {
                let name = if matches!(known, Known::Name(..)) { name.octets() } else { b"" };
                if let IpAddr::V4(address) = address {
                    response(address, name, out);
                }
            });
        }
        front.counts().refused.fetch_add(self.requests.losses() - losses, Ordering::Relaxed);
        Step { taken, then }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::dns::tests::{NOW, front};

    #[test]
    fn addresses_and_their_answers() {
        let (front, _door) = front();
        let mut session = Session::new("127.0.0.1".parse().unwrap());
        let mut said = |input: &[u8]| {
            let mut out = Vec::new();
            let step = session.answer(&front, &front.view(), NOW, input, &mut out);
            (out, step)
        };
        let read = |taken| Step { taken, then: Then::Read };
        // A name, none, a failure, nothing yet, and one that is stale: as far as its fourth octet each.
        assert_eq!(said(b"\xC0\0\x02\x01"), (b"\xC0\0\x02\x01www.example\0\xFF".to_vec(), read(4)));
        for last in [2, 3, 9] {
            let answer = vec![0xC0, 0, 2, last, 0, 0xFF];
            assert_eq!(said(&[0xFF, 0xC0, 0, 2, last]), (answer, read(5)));
        }
        assert_eq!(
            said(b"\xFF\xC0\0\x02\x05\xFF\xC0\0"),
            (b"\xC0\0\x02\x05www.example\0\xFF".to_vec(), read(6))
        );
        // Something else: two good ones are needed again.
        assert_eq!(said(b"\xC0\0\x02\x01GET /"), (b"\xC0\0\x02\x01www.example\0\xFF".to_vec(), read(9)));
        let good = b"\xFF\xC0\0\x02\x01".repeat(3);
        assert_eq!(said(&good), (b"\xC0\0\x02\x01www.example\0\xFF".to_vec(), read(15)));
        assert_eq!(front.counts().refused.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_batch_ends_when_its_room_is_full() {
        let (front, _door) = front();
        let mut session = Session::new("127.0.0.1".parse().unwrap());
        let (many, mut out) = (b"\xC0\0\x02\x01\xFF".repeat(OUTPUT_MAX / 17 + TOGETHER), Vec::new());
        let step = session.answer(&front, &front.view(), NOW, &many, &mut out);
        assert!(out.len() >= OUTPUT_MAX && step.taken < many.len() && step.then == Then::Again);
    }
}
