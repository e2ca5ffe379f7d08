//! Queries made ready before they are due: what costs time is done while there is some, so that a burst leaves as fast as
//! the kernel takes it.

use std::net::{IpAddr, SocketAddr};

use super::super::carrier::Carrier;
use super::super::pending::{Asked, Key};
use super::{Worker, endpoint};
use crate::mutate::{self, Outcome};
use crate::schedule::Planned;
use crate::schedule::draw::{self, For};
use crate::trace::Message;
use crate::trace::message::question;

/// Queries that are ready at most: what they touch stays in a core's cache.
const PREPARED_MAX: usize = 2_048;

/// How long before its time a query may be made ready, in nanoseconds: what is known of its client is of about then.
const PREPARED_BEFORE: u64 = 100_000_000;

/// Ids that are looked at one after the other where the four of a draw are taken: with nine in ten taken, the
/// chance that none of so many is free is nil. Beyond, the socket counts as full.
const ID_PROBES: u16 = 1_024;

/// A query that only its time is missing to.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) asked: Box<Asked>,
    /// As it is sent, with the recorded id; `None` where that is as it was recorded.
    pub(super) octets: Option<Vec<u8>>,
    pub(super) server: SocketAddr,
    /// Where from; `None` where the system chooses.
    pub(super) source: Option<IpAddr>,
    /// At a shared socket: where its answer will come from, if nobody takes that before.
    pub(super) key: Option<Key>,
    /// What came of the changes to it, where any are asked for.
    pub(super) outcome: Option<Outcome>,
    /// It has a name of its own where it was to have one.
    pub(super) has_its_name: bool,
}

impl Worker<'_> {
    /// When the next query of the schedule is due, prepared or not.
    pub(super) fn due(&self) -> Option<u64> {
        let prepared = self.prepared.front().map(|prepared| prepared.asked.planned.due);
        prepared.or_else(|| self.ahead.front().map(|planned| planned.due))
    }

    /// The next query of the schedule, ready.
    pub(super) fn next_prepared(&mut self, now: u64) -> Option<Prepared> {
        self.prepared.pop_front().or_else(|| {
            let planned = self.ahead.pop_front()?;
            Some(self.prepared(planned, now))
        })
    }

    /// Makes one query ready, if there is one that may be now.
    pub(super) fn prepare(&mut self, now: u64) -> bool {
        let is_near = |planned: &Planned| planned.due <= now.saturating_add(PREPARED_BEFORE);
        if self.prepared.len() >= PREPARED_MAX || !self.ahead.front().is_some_and(is_near) {
            return false;
        }
        let Some(planned) = self.ahead.pop_front() else { return false };
        let prepared = self.prepared(planned, now);
        self.prepared.push_back(prepared);
        true
    }

    fn prepared(&mut self, planned: Planned, now: u64) -> Prepared {
        let options = self.with.options;
        let carrier = options.carriers.of(planned.client, planned.message.transport, options.seed);
        let is_quiet = self.clients.is_quiet(planned.client, now);
        self.addressed(Box::new(Asked {
            sent: now,
            until: now,
            question: None,
            is_retry: false,
            again: 0,
            is_quiet,
            carrier,
            slot: None,
            planned,
        }))
    }

    /// What is sent of a query, from where and whither.
    pub(super) fn addressed(&mut self, mut asked: Box<Asked>) -> Prepared {
        let options = self.with.options;
        let planned = &asked.planned;
        let (octets, outcome, has_its_name) = self.wire(planned);
        let server = options.ports.of(asked.carrier, self.server(planned.client));
        let source = planned.source;
        let is_shared = asked.carrier == Carrier::Udp;
        let shared = source.filter(|_| is_shared).map(|source| endpoint(source, server));
        let key = shared.and_then(|endpoint| self.key(endpoint));
        asked.question = question(octets.as_ref().unwrap_or(&planned.message.octets));
        Prepared { asked, octets, server, source, key, outcome, has_its_name }
    }

    /// The query as it is sent where that is not as it was recorded, what came of the changes to it, and whether it has the
    /// name that it is to have.
    fn wire(&self, planned: &Planned) -> (Option<Vec<u8>>, Option<Outcome>, bool) {
        let options = self.with.options;
        let has_own_name = options.unique_names && planned.copy > 0;
        if options.mutation.is_none() && !has_own_name {
            return (None, None, true);
        }
        let message = Message::clone(&planned.message);
        let (mut message, outcome) = match &options.mutation {
            Some(mutation) => {
                let (changed, outcome) = mutation.apply(planned.index, message);
                (changed, Some(outcome))
            }
            None => (message, None),
        };
        let has_its_name = !has_own_name || mutate::labelled(&mut message, &format!("c{}", planned.copy));
        (Some(message.octets), outcome, has_its_name)
    }

    /// A key of an endpoint with an id on which nothing waits; `None` where next to all 65,536 wait.
    pub(super) fn key(&mut self, endpoint: u64) -> Option<Key> {
        self.ids += 1;
        let seed = self.with.options.seed ^ self.share;
        let drawn = draw::draw(seed, For::Id, self.ids);
        let tries = (0..4).map(|at| (drawn >> (16 * at)) as u16);
        let rest = (0..ID_PROBES).map(|step| (drawn as u16).wrapping_add(step));
        tries.chain(rest).map(|id| Key { endpoint, id }).find(|key| self.pending.is_free(*key))
    }
}
