//! Which notification is sent when: repeated until it is acknowledged, with growing waits, then given up (RFC 1996
//! §3.6). Pure: time and ids are arguments.
//!
//! What is to be told is that a zone has a new serial number, so of several changes only the last is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// The most notifications that wait: a hundred thousand zones with one secondary, or fewer with more.
pub const NOTIFICATIONS_MAX: usize = 100_000;

/// How often a notification is sent at most. RFC 1996 §3.6 has five repetitions.
pub const ATTEMPTS_MAX: u32 = 6;

/// The wait for the first acknowledgement; each further one is twice as long, so the last attempt is given up after
/// about two minutes.
pub const FIRST_WAIT: Duration = Duration::from_secs(2);

/// Whom to tell of what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct To {
    /// The zone's name in wire form.
    pub zone: Vec<u8>,
    /// Who is told.
    pub address: SocketAddr,
}

/// All notifications that are not acknowledged yet.
#[derive(Debug)]
pub struct Notifications<S> {
    places: usize,
    waiting: BTreeMap<To, Waiting<S>>,
    /// The same, in order of time.
    by_time: BTreeSet<(Duration, To)>,
    /// The zones of those whose messages are out, by whom they went to and their ids. Where two have one id, only the later
    /// one is found.
    out: BTreeMap<(SocketAddr, u16), Vec<u8>>,
}

#[derive(Debug)]
struct Waiting<S> {
    due: Duration,
    attempts: u32,
    /// The id and signature of the message that is out.
    sent: Option<(u16, S)>,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Send it, and call [`Notifications::sent`].
    Send(To),
    /// It was sent [`ATTEMPTS_MAX`] times; it is forgotten.
    GivenUp(To),
}

impl<S> Notifications<S> {
    /// Nobody is to be told of anything; at most `places` notifications wait.
    pub fn new(places: usize) -> Self {
        Notifications { places, waiting: BTreeMap::new(), by_time: BTreeSet::new(), out: BTreeMap::new() }
    }

    /// The zone has changed: whoever waits to be told of an earlier change is told of this one. False where no place is
    /// left.
    pub fn changed(&mut self, to: To, now: Duration) -> bool {
        self.remove(&to);
        if self.waiting.len() >= self.places {
            return false;
        }
        self.by_time.insert((now, to.clone()));
        self.waiting.insert(to, Waiting { due: now, attempts: 0, sent: None });
        true
    }

    /// Whether half of the places are free, or more: so who found none may try again, and not each time that one is free.
    pub fn is_half_free(&self) -> bool {
        self.waiting.len() <= self.places / 2
    }

    /// When there is something to do next.
    pub fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(due, _)| *due)
    }

    /// What is to be done by now.
    pub fn due(&mut self, now: Duration) -> Option<Due> {
        let (due, to) = self.by_time.first()?;
        if *due > now {
            return None;
        }
        let to = to.clone();
        if self.waiting.get(&to).is_some_and(|waiting| waiting.attempts >= ATTEMPTS_MAX) {
            self.remove(&to);
            return Some(Due::GivenUp(to));
        }
        Some(Due::Send(to))
    }

    /// It was sent, as a message with this id; `signature` is what its answer is verified by.
    pub fn sent(&mut self, to: &To, id: u16, signature: S, now: Duration) {
        if let Some(waiting) = self.waiting.get_mut(to) {
            self.by_time.remove(&(waiting.due, to.clone()));
            waiting.due = now + FIRST_WAIT * 2_u32.pow(waiting.attempts.min(ATTEMPTS_MAX));
            waiting.attempts += 1;
            let before = waiting.sent.replace((id, signature));
            self.by_time.insert((waiting.due, to.clone()));
            self.forget(to, before);
            self.out.insert((to.address, id), to.zone.clone());
        }
    }

    /// The signature of the message with this id that is out; an answer that it verifies ends the repetitions.
    pub fn awaits(&self, to: &To, id: u16) -> Option<&S> {
        let (sent, signature) = self.waiting.get(to)?.sent.as_ref()?;
        (*sent == id).then_some(signature)
    }

    /// What is out to this address in a message with this id, and its signature.
    pub fn out_to(&self, address: SocketAddr, id: u16) -> Option<(To, &S)> {
        let to = To { zone: self.out.get(&(address, id))?.clone(), address };
        let signature = self.awaits(&to, id)?;
        Some((to, signature))
    }

    /// It was answered, or is not to be told any more.
    pub fn remove(&mut self, to: &To) {
        if let Some(waiting) = self.waiting.remove(to) {
            self.by_time.remove(&(waiting.due, to.clone()));
            self.forget(to, waiting.sent);
        }
    }

    /// A message is not out any more.
    fn forget(&mut self, to: &To, sent: Option<(u16, S)>) {
        if let Some((id, _)) = sent
            && self.out.get(&(to.address, id)) == Some(&to.zone)
        {
            self.out.remove(&(to.address, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(zone: &str) -> To {
        To { zone: zone.as_bytes().to_vec(), address: "192.0.2.1:53".parse().unwrap() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_is_repeated_with_growing_waits_and_given_up() {
        let mut notifications = Notifications::new(2);
        assert!(notifications.changed(to("a"), at(100)));
        let mut sent = Vec::new();
        while let Some(next) = notifications.next() {
            match notifications.due(next) {
                Some(Due::Send(to)) => {
                    notifications.sent(&to, sent.len() as u16, (), next);
                    sent.push(next.as_secs());
                }
                other => assert_eq!((other, next), (Some(Due::GivenUp(to("a"))), at(226))),
            }
        }
        assert_eq!(sent, [100, 102, 106, 114, 130, 162]);
        assert!(notifications.waiting.is_empty());
    }

    #[test]
    fn an_answer_to_the_last_message_ends_it() {
        let mut notifications = Notifications::new(2);
        notifications.changed(to("a"), at(0));
        assert_eq!(notifications.due(at(0)), Some(Due::Send(to("a"))));
        notifications.sent(&to("a"), 7, "first", at(0));
        assert_eq!((notifications.due(at(1)), notifications.due(at(2))), (None, Some(Due::Send(to("a")))));
        notifications.sent(&to("a"), 8, "second", at(2));
        assert_eq!(notifications.awaits(&to("a"), 7), None);
        assert_eq!(notifications.awaits(&to("b"), 8), None);
        assert_eq!(notifications.awaits(&to("a"), 8), Some(&"second"));
        let out_to = |id| notifications.out_to(to("a").address, id);
        assert_eq!((out_to(7), out_to(8)), (None, Some((to("a"), &"second"))));
        notifications.remove(&to("a"));
        assert_eq!((notifications.next(), notifications.awaits(&to("a"), 8)), (None, None));
        assert!(notifications.out.is_empty());
    }

    #[test]
    fn of_two_messages_with_one_id_the_later_one_is_found_by_it() {
        let mut notifications = Notifications::new(2);
        for zone in ["a", "b"] {
            notifications.changed(to(zone), at(0));
            notifications.sent(&to(zone), 7, (), at(0));
        }
        notifications.remove(&to("a"));
        assert_eq!(notifications.out_to(to("b").address, 7), Some((to("b"), &())));
    }

    #[test]
    fn a_newer_change_takes_the_place_of_an_older() {
        let mut notifications = Notifications::new(2);
        notifications.changed(to("a"), at(0));
        notifications.sent(&to("a"), 7, (), at(0));
        notifications.changed(to("b"), at(1));
        notifications.changed(to("a"), at(1));
        assert_eq!(notifications.awaits(&to("a"), 7), None, "it told of something older");
        assert_eq!((notifications.waiting.len(), notifications.by_time.len()), (2, 2));
        assert_eq!(notifications.due(at(1)), Some(Due::Send(to("a"))));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut notifications: Notifications<()> = Notifications::new(4);
        for zone in ["a", "b", "c", "d"] {
            assert!(notifications.changed(to(zone), at(0)));
        }
        assert!(!notifications.changed(to("one more"), at(0)));
        assert!(notifications.changed(to("c"), at(1)), "one that waits already has its place");
        notifications.remove(&to("a"));
        assert!(!notifications.is_half_free());
        notifications.remove(&to("b"));
        assert!(notifications.is_half_free());
        assert!(notifications.changed(to("one more"), at(2)));
    }
}
