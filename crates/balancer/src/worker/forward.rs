//! The way of a query: to a back end, to another where that one does not answer, and its answer back to the client.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use dns::edns::Edns;
use dns::query::Refusal;
use dns::relay::{Added, add_subnet, take_out_added, take_out_cookies, take_out_of_one_hop};
use dns::reuse;
use dns::writer::without_question;
use dns::{Folded, Query, Rcode};
use net::udp::DATAGRAM_MAX;

use super::{Bench, asked_at};
use crate::cache::{Asked, in_pool};
use crate::client_address::{ClientAddress, Transport};
use crate::exchange::NoAnswer;
use crate::field::Standing;
use crate::health::is_failure;
use crate::lines::place_of;
use crate::message::{Says, UDP_PAYLOAD, answer, datagram_max, rcode};
use crate::pending::{Asker, Index, To, Unmatched, Waiting};
use crate::picker::Picker;
use crate::relay::Carried;
use crate::rules::{Arrival, Verdict};

impl Bench {
    /// Takes in what a client has sent.
    pub(super) fn take_query(&mut self, octets: &[u8], client: SocketAddr, local: Option<IpAddr>, now: u64) {
        // Nothing at all to strangers: an answer would be sent to whomever they name.
        if self.worker.allow.as_ref().is_some_and(|allow| !allow.allows(client.ip())) {
            return self.worker.counters.strangers.add(1);
        }
        let to = To { client, local, tapped: self.worker.tell_query(octets, client, local) };
        let subnet = self.worker.limits.client_address.subnet(client.ip());
        let picker = &self.worker.picker;
        let (key, question_end, edns, verdict) = match Query::read(octets, &mut self.name) {
            Ok(query) => {
                let arrival = Arrival { client: client.ip(), is_datagram: true, now_ns: now };
                let verdict = picker.rules().judge(&query, arrival, || picker.hash_client(client.ip()));
                if self.worker.cache.is_some() {
                    reuse::key(&query, octets, subnet.as_ref(), &mut self.cache_key);
                }
                (picker.hash_question(&query), query.head.len(), query.edns, verdict)
            }
            Err(Refusal::Silence) => return self.worker.counters.no_query.add(1),
            Err(refusal) => {
                let rcode = match refusal {
                    Refusal::Rcode(rcode) => rcode,
                    _ => Rcode::FORMERR,
                };
                self.worker.counters.malformed.add(1);
                if let Some(length) = without_question(octets, rcode, UDP_PAYLOAD, &mut self.room[..]) {
                    self.send_answer(length, to);
                }
                return;
            }
        };
        let id = u16::from_be_bytes([octets[0], octets[1]]);
        let pool = match verdict {
            Verdict::Pool(pool) => pool,
            Verdict::Says(says) => {
                self.worker.counters.ruled.add(1);
                let length = answer(octets, question_end, edns.as_ref(), id, says, &mut self.room[..]);
                return self.send_answer(length, to);
            }
            Verdict::Nothing => return self.worker.counters.ruled.add(1),
        };
        in_pool(&mut self.cache_key, pool);
        if let Some(length) = self.find(octets, question_end, edns.as_ref(), now) {
            return self.send_answer(length, to);
        }
        let Some(counted_at) = self.clients.take(self.worker.picker.hash_client(client.ip())) else {
            return self.worker.counters.full_client.add(1);
        };
        let asker = Asker { to, id, counted_at, added: Added::Nothing };
        match self.pending.take(asker, octets, question_end, key) {
            Ok(index) => {
                let waiting = self.pending.get_mut(index);
                waiting.pool = pool;
                waiting.cache_key.extend_from_slice(&self.cache_key);
                let query = &mut waiting.query;
                if edns.as_ref().is_some_and(|edns| edns.tcp_keepalive) {
                    let length = take_out_of_one_hop(query, question_end);
                    query.truncate(length);
                }
                // For all queries, so that a client does not find that some answers lack what others have.
                if self.worker.cache.is_some() && edns.as_ref().is_some_and(|edns| edns.cookie.is_some()) {
                    let length = take_out_cookies(query, question_end);
                    query.truncate(length);
                }
                if let Some(subnet) = subnet {
                    waiting.asker.added = add_subnet(query, question_end, edns.as_ref(), &subnet);
                }
                self.dispatch(index, false, now);
            }
            Err(_) => {
                self.clients.give_back(counted_at);
                self.worker.counters.full.add(1);
            }
        }
    }

    /// Writes the answer to a query that is kept to the room, if there is one; returns its length.
    fn find(&mut self, message: &[u8], question_end: usize, edns: Option<&Edns>, now: u64) -> Option<usize> {
        let cache = self.worker.cache.as_ref()?;
        let key = Some(&self.cache_key[..]).filter(|key| !key.is_empty())?;
        let asked = Asked { key, message, question_end, length_max: datagram_max(edns) };
        let found = cache.find(asked, now, &mut self.room[..]);
        self.worker.counters.count_found(found.map(|(_, kept)| kept));
        found.map(|(length, _)| length)
    }

    /// Takes in what came back on a line, and passes it on to who has asked.
    pub(super) fn take_reply(&mut self, line: u16, place: usize, octets: &[u8], now: u64) {
        let index = match self.pending.matching(line, octets) {
            Ok(index) => index,
            Err(why) => return self.take_stray(place, octets, why, now),
        };
        let waiting = self.pending.get(index);
        let (key, load) = (waiting.key, waiting.load);
        let (is_answered, counted_at) = (waiting.is_answered, waiting.asker.counted_at);
        let latency = now.saturating_sub(waiting.sent_ns);
        self.worker.picker.answered(place, key, load, rcode(octets).to_int(), latency, now);
        if !is_answered {
            self.deliver(index, octets, now);
            self.clients.give_back(counted_at);
        }
        self.pending.end(index);
    }

    /// Takes in a reply that no query waits for at this back end. One that is good and only late goes to its client,
    /// where that still waits for another back end, which is measured on.
    fn take_stray(&mut self, place: usize, octets: &[u8], why: Unmatched, now: u64) {
        if let Some(cells) = self.worker.picker.cells(place) {
            match why {
                Unmatched::Alien => cells.alien.add(1),
                Unmatched::Late(_) => cells.late.add(1),
                Unmatched::WrongQuestion => cells.wrong_question.add(1),
            }
        }
        if let Unmatched::Late(Some(index)) = why
            && !is_failure(rcode(octets).to_int())
        {
            self.deliver(index, octets, now);
            self.worker.counters.late_answers.add(1);
            let waiting = self.pending.get_mut(index);
            waiting.is_answered = true;
            self.clients.give_back(waiting.asker.counted_at);
        }
    }

    /// Takes in what has come back of queries to back ends over TLS.
    pub(super) fn take_carried(&mut self) {
        let now = self.now();
        for Carried { line, id, reply } in self.lines.take_carried() {
            match reply {
                Ok(reply) => self.take_reply(line, place_of(line), &reply, now),
                Err(error) => self.take_no_answer(line, id, NoAnswer::of(&error), now),
            }
        }
    }

    /// A query could not be carried to its back end, or nothing came back: it goes to another one.
    fn take_no_answer(&mut self, line: u16, id: u16, why: NoAnswer, now: u64) {
        let Some(index) = self.pending.waiting_over(line, id) else { return };
        let Waiting { load, is_answered, .. } = *self.pending.get(index);
        let place = place_of(line);
        if why == NoAnswer::Unreached {
            self.doubt(place, now);
        }
        self.worker.picker.unanswered(place, why, load, now, &self.worker.counters);
        if is_answered {
            self.pending.end(index);
        } else {
            self.pending.unsent(index);
            self.go_on(index, why != NoAnswer::Ended, now);
        }
    }

    /// Passes a back end's answer to a query on to who has asked, and keeps it where it may be kept. An answer that is kept,
    /// fresh or stale, is better than a failure (RFC 8767 §5).
    fn deliver(&mut self, index: Index, octets: &[u8], now: u64) {
        let asker = self.pending.get(index).asker;
        let is_failed = is_failure(rcode(octets).to_int());
        let kept = if is_failed { self.find_after_failure(index, now) } else { None };
        if let Some(length) = kept {
            self.send_answer(length, asker.to);
        } else if octets.len() >= DATAGRAM_MAX {
            // Its end may be lost.
            let length = self.answer(index, Says::Truncated);
            self.send_answer(length, asker.to);
        } else if asker.added == Added::Nothing {
            self.keep(index, octets, now);
            self.pass_on(octets, asker.id, asker.to);
        } else {
            self.room[..octets.len()].copy_from_slice(octets);
            self.room[..2].copy_from_slice(&asker.id.to_be_bytes());
            let question_end = self.pending.get(index).question_end;
            let length = take_out_added(&mut self.room[..octets.len()], question_end, asker.added);
            self.keep(index, &self.room[..length], now);
            self.send_answer(length, asker.to);
        }
        self.worker.counters.answers.add(1);
    }

    /// Keeps an answer as its client gets it, if it may be given to others.
    fn keep(&self, index: Index, answer: &[u8], now: u64) {
        let waiting = self.pending.get(index);
        if let Some(cache) = &self.worker.cache {
            cache.keep(&waiting.cache_key, answer, waiting.question_end, now);
        }
    }

    /// Goes on with queries whose back ends did not answer in time.
    pub(super) fn expire(&mut self, now: u64) {
        let timeout = self.worker.limits.timeout_ns;
        while let Some(index) = self.pending.first_sent_before(now.saturating_sub(timeout)) {
            let waiting = self.pending.get(index);
            self.worker.picker.timed_out(waiting.back_end, waiting.key, waiting.load, now);
            self.dispatch_again(index, now);
        }
        self.pending.forget_late(now, timeout);
    }

    /// Comes to doubt whoever is said to be gone: a packet can have said so, that no way leads there too.
    pub(super) fn doubt_gone(&mut self, now: u64) {
        for place in self.lines.take_gone().iter() {
            self.doubt(place, now);
        }
    }

    /// Goes on with queries of back ends that are gone: nobody is there, so nobody answers.
    pub(super) fn bury(&mut self, now: u64) {
        self.doubt_gone(now);
        let picker = &self.worker.picker;
        let gone = self.doubts.settle(|place| heard(picker, place), now);
        for place in gone.iter() {
            if let Some(back_end) = self.worker.picker.back_end(place) {
                if back_end.standing() == Standing::Up {
                    tracing::warn!(back_end = %back_end.address, "nobody listens at the back end, or no way leads there");
                }
                back_end.set_down(true);
            }
            self.look(now);
            self.abandon(place, now);
        }
    }

    /// Comes to doubt that a back end is there, and has that found out.
    fn doubt(&mut self, place: usize, now: u64) {
        let picker = &self.worker.picker;
        let (Some(back_end), Some(cells)) = (picker.back_end(place), picker.cells(place)) else { return };
        // A packet that answers nothing that was sent means nothing.
        if cells.in_flight() > 0 && self.doubts.begin(place, heard(picker, place), now) {
            cells.doubts.add(1);
            back_end.is_doubted.store(true, Ordering::Relaxed);
            self.worker.doubted.notify_one();
        }
    }

    /// Goes on with the queries that wait at lines of ours that are closed, for which no back end is to blame.
    pub(super) fn send_elsewhere(&mut self, place: usize, now: u64) {
        for index in self.pending.waiting_for(place) {
            self.worker.picker.unsent(place);
            self.dispatch_again(index, now);
        }
        self.pending.forget_late_of(place);
    }

    /// Sends a query that has waited in vain to another back end, or gives it up.
    pub(super) fn dispatch_again(&mut self, index: Index, now: u64) {
        if self.pending.get(index).is_answered {
            return self.pending.lapse(index);
        }
        self.pending.time_out(index);
        self.go_on(index, false, now);
    }

    /// Goes on with the queries that the system refused to send; whether there were some. No back end is to blame, or
    /// has worked for them.
    pub(super) fn redirect(&mut self, now: u64) -> bool {
        let refused = self.lines.take_refused();
        for (line, index) in &refused {
            if !self.pending.waits_over(*index, *line) {
                continue;
            }
            self.worker.picker.unsent(place_of(*line));
            if self.pending.get(*index).is_answered {
                self.pending.end(*index);
            } else {
                self.pending.unsent(*index);
                self.go_on(*index, true, now);
            }
        }
        !refused.is_empty()
    }

    /// Sends a query that no longer waits to another back end, out of what may be sent again unless it `is_free`, or
    /// gives it up.
    fn go_on(&mut self, index: Index, is_free: bool, now: u64) {
        let Waiting { pool, tried, .. } = *self.pending.get(index);
        let picker = &self.worker.picker;
        if tried.len() < self.worker.limits.tries && picker.has_others(pool, tried.or(self.lines.closed())) {
            if is_free || picker.may_retry() {
                return self.dispatch(index, is_free, now);
            }
            self.worker.counters.retries_denied.add(1);
        }
        self.worker.counters.failed.add(1);
        self.give_up(index, Some(Says::Rcode(Rcode::SERVFAIL)), now);
    }

    /// Goes on with the queries that wait for a back end.
    pub(super) fn abandon(&mut self, place: usize, now: u64) {
        for index in self.pending.waiting_for(place) {
            let load = self.pending.get(index).load;
            self.worker.picker.refused(place, load, now);
            self.dispatch_again(index, now);
        }
    }

    /// Sends a query to a back end, for the first time or again.
    fn dispatch(&mut self, index: Index, is_free: bool, now: u64) {
        let waiting = self.pending.get(index);
        let (pool, key, client, tried) =
            (waiting.pool, waiting.key, waiting.asker.to.client.ip(), waiting.tried);
        let closed = self.lines.closed();
        let (worker, mut passed_over) = (&mut self.worker, tried.or(closed));
        let doubted = passed_over.or(self.doubts.all());
        if worker.picker.has_others(pool, doubted) {
            passed_over = doubted;
        }
        let Some(place) = worker.picker.pick(pool, key, client, passed_over, now, &worker.counters) else {
            let (servfail, has_others) =
                (Says::Rcode(Rcode::SERVFAIL), worker.picker.has_others(pool, passed_over));
            let says = if !has_others && !closed.is_empty() {
                worker.counters.no_socket.add(1);
                worker.counters.failed.add(1);
                Some(servfail)
            } else if !has_others || !tried.is_empty() {
                worker.counters.failed.add(1);
                Some(servfail)
            } else if worker.limits.steers && worker.picker.has_connections(pool, now) {
                worker.counters.steered.add(1);
                Some(Says::Truncated)
            } else {
                worker.counters.shed.add(1);
                None
            };
            return self.give_up(index, says, now);
        };
        // What follows from the back end is set before it waits, for then its place in the order is fixed.
        let waiting = self.pending.get_mut(index);
        (waiting.back_end, waiting.sent_ns, waiting.tried) = (place, now, tried.with(place));
        let (pending, rng) = (&mut self.pending, worker.picker.rng());
        let line = self.lines.of(place).find(|line| pending.sent(index, *line, rng).is_ok());
        let Some(line) = line else {
            self.worker.counters.no_id.add(1);
            self.worker.counters.failed.add(1);
            return self.give_up(index, Some(Says::Rcode(Rcode::SERVFAIL)), now);
        };
        if !self.push(line, index) {
            // What we lack here is no back end's fault, and uses up nothing that it grants.
            self.worker.counters.send_failed.add(1);
            self.worker.counters.failed.add(1);
            self.pending.unsent(index);
            return self.give_up(index, Some(Says::Rcode(Rcode::SERVFAIL)), now);
        }
        let picker = &mut self.worker.picker;
        self.worker.counters.retries.add(u64::from(!tried.is_empty()));
        self.pending.get_mut(index).load = match (tried.is_empty(), is_free) {
            (true, _) => picker.sent(place, now),
            (false, true) => picker.sent_for_free(place, now),
            (false, false) => picker.sent_again(place, now),
        };
    }

    /// A query that does not wait is answered by us, or not at all; where it is not sent to TCP, an answer that is kept, fresh or
    /// stale, is better than that.
    fn give_up(&mut self, index: Index, says: Option<Says<'_>>, now: u64) {
        let asker = self.pending.get(index).asker;
        let kept = if says == Some(Says::Truncated) { None } else { self.find_after_failure(index, now) };
        if let Some(length) = kept.or_else(|| says.map(|says| self.answer(index, says))) {
            self.send_answer(length, asker.to);
        }
        self.clients.give_back(asker.counted_at);
        self.pending.give_back(index);
    }

    /// Writes an answer that is kept, fresh or stale, to the query in a place.
    fn find_after_failure(&mut self, index: Index, now: u64) -> Option<usize> {
        let waiting = self.pending.get(index);
        let cache = self.worker.cache.as_ref().filter(|_| !waiting.cache_key.is_empty())?;
        let edns = edns(waiting, &mut self.name);
        let asked = Asked {
            key: &waiting.cache_key,
            message: &waiting.query,
            question_end: waiting.question_end,
            length_max: datagram_max(edns.as_ref()),
        };
        let (length, kept) = cache.find_after_failure(asked, now, &mut self.room[..])?;
        self.room[..2].copy_from_slice(&waiting.asker.id.to_be_bytes());
        self.worker.counters.count_after_failure(kept);
        Some(length)
    }

    /// Writes an answer of ours to the query in a place.
    fn answer(&mut self, index: Index, says: Says<'_>) -> usize {
        let waiting = self.pending.get(index);
        let edns = edns(waiting, &mut self.name);
        answer(
            &waiting.query,
            waiting.question_end,
            edns.as_ref(),
            waiting.asker.id,
            says,
            &mut self.room[..],
        )
    }

    fn push(&mut self, line: u16, index: Index) -> bool {
        let waiting = self.pending.get(index);
        let mut octets = &waiting.query;
        let way = self.worker.limits.client_address;
        if way == ClientAddress::Proxy {
            let To { client, local, .. } = waiting.asker.to;
            let local = asked_at(&self.worker.listener, local);
            self.prefaced.clear();
            way.preface(Transport::Datagram, client, local, &mut self.prefaced);
            self.prefaced.extend_from_slice(&waiting.query);
            octets = &self.prefaced;
        }
        self.lines.push(line, index, octets, &self.worker.counters.send_failed)
    }

    /// Sends what the room holds, with the other answers of this turn.
    fn send_answer(&mut self, length: usize, to: To) {
        self.make_room();
        self.answers.push(&self.room[..length], Some(to.client), to.local);
        self.worker.tell_answer(to, &self.room[..length]);
    }

    /// Sends an answer in the same way, with the id that the client gave.
    fn pass_on(&mut self, octets: &[u8], id: u16, to: To) {
        self.make_room();
        let passed_on = self.answers.push(octets, Some(to.client), to.local);
        passed_on[..2].copy_from_slice(&id.to_be_bytes());
        self.worker.tell_answer(to, passed_on);
    }

    fn make_room(&mut self) {
        if self.answers.is_full() {
            self.send_answers();
        }
        if self.answers.is_full() {
            self.worker.counters.send_failed.add(self.answers.len() as u64);
            self.answers.clear();
        }
    }
}

/// The client's EDNS, without what was put into its query.
fn edns(waiting: &Waiting, name: &mut Folded) -> Option<Edns> {
    match waiting.asker.added {
        Added::Record => None,
        _ => Query::read(&waiting.query, name).ok().and_then(|query| query.edns),
    }
}

/// How much this thread has heard from a back end, and its probes.
fn heard(picker: &Picker, place: usize) -> u64 {
    let here = picker.cells(place).map_or(0, |cells| cells.answers() + cells.late.get());
    here + picker.back_end(place).map_or(0, |back_end| back_end.replied.load(Ordering::Relaxed))
}
