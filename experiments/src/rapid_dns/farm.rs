//! The farm as figures 6 and 7 have it: three servers, and clients that send where the fewest of their requests wait.
//!
//! That choice is our client library's own ([`rapid::queues`]), also among servers that owe as much, of which the paper does
//! not speak: mostly none owes anything.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use rapid::queues::Queues;
use reverse::backend::Behaviour;

use super::model::{HOUR, Model, Page, Pages, SERVERS};
use super::server::{Counts, Server, scaled};

/// Client processes: about 250 connections to each server (section 8).
const CLIENTS: f64 = 250.0;

/// How long a server works for a request that finds an entry. Fitted: round trips take 2 ms on average (section 8).
const HIT: Duration = Duration::from_micros(1_500);

/// How long for one that finds none, and so locks and fills the stack and later costs a question and its answer.
/// Assumed: nothing was published.
const MISS: Duration = Duration::from_micros(3_000);

/// What one server saw in one hour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hour {
    /// What it counted, for the whole farm's size.
    pub(crate) counts: Counts,
    /// The sum of its round trips, in the model's time.
    round_trips: Duration,
}

impl Hour {
    /// The mean round trip in milliseconds, in the farm's time.
    pub(crate) fn round_trip_ms(&self, model: &Model) -> f64 {
        self.round_trips.as_secs_f64() * 1e3 / model.scale / self.counts.requests.max(1) as f64
    }
}

/// Runs three servers at a mean rate for each; gives their hours from `from` to `until`.
pub(crate) fn run(
    model: Model,
    behaviours: [Behaviour; SERVERS],
    per_second: f64,
    (from, until): (u32, u32),
) -> [Vec<Hour>; SERVERS] {
    let mut farm = Farm::new(model, behaviours);
    let mut hours: [Vec<Hour>; SERVERS] = Default::default();
    let mut pages = Pages::new(model, per_second, SERVERS).peekable();
    for hour in 0..until {
        let end = HOUR * (hour + 1);
        let before = farm.counts();
        farm.round_trips = Default::default();
        while let Some(page) = pages.next_if(|page| page.at < end) {
            farm.request(page);
        }
        if hour >= from {
            let after = farm.counts();
            for server in 0..SERVERS {
                let counts = after[server] - before[server];
                hours[server].push(Hour { counts, round_trips: farm.round_trips[server] });
            }
        }
    }
    hours
}

struct Farm {
    servers: [Server; SERVERS],
    scale: f64,
    /// When each server has done what it was sent.
    free: [Duration; SERVERS],
    /// Each client's queues.
    clients: Vec<Queues<()>>,
    /// Answers on their way: when, to whom, from which server, and for which address.
    coming: BinaryHeap<Reverse<(Duration, usize, usize, Ipv4Addr)>>,
    round_trips: [Duration; SERVERS],
    rng: Rng,
}

impl Farm {
    fn new(model: Model, behaviours: [Behaviour; SERVERS]) -> Farm {
        let servers = behaviours.map(|behaviour| {
            let mut rng = Rng::with_seed(model.seed ^ 0x7570);
            Server::new(scaled(behaviour, model.scale), Box::new(move |address| model.ask(address, &mut rng)))
        });
        Farm {
            servers,
            scale: model.scale,
            free: Default::default(),
            clients: std::iter::repeat_with(client)
                .take((CLIENTS / model.scale).round().max(1.0) as usize)
                .collect(),
            coming: BinaryHeap::new(),
            round_trips: Default::default(),
            rng: Rng::with_seed(model.seed ^ 0x6661_726d),
        }
    }

    fn counts(&self) -> [Counts; SERVERS] {
        std::array::from_fn(|server| self.servers[server].counts())
    }

    /// A request for a page.
    fn request(&mut self, Page { at, address }: Page) {
        while self.coming.peek().is_some_and(|Reverse((done, ..))| *done <= at) {
            let Some(Reverse((done, client, server, address))) = self.coming.pop() else { break };
            self.clients[client].answered(server, address, done);
        }
        let client = self.rng.usize(0..self.clients.len());
        // Where all queues are full, the client goes on without a name, and no server hears of it.
        let Ok(server) = self.clients[client].choose(address, at, ()) else { return };
        let begun = self.free[server].max(at);
        let (_, hit) = self.servers[server].look_up(begun, address);
        let work = if hit { HIT } else { MISS };
        let done = begun + work.mul_f64(self.scale);
        self.free[server] = done;
        self.round_trips[server] += done - at;
        self.coming.push(Reverse((done, client, server, address)));
    }
}

/// A client that is connected to all servers. Whether it still waits is not asked: what was given up is owed as before, and so
/// changes no choice of a server.
fn client() -> Queues<()> {
    let mut queues = Queues::new(SERVERS, Duration::MAX);
    (0..SERVERS).for_each(|server| queues.connected(server));
    queues
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rapid_dns::server::standard;

    #[test]
    fn equal_servers_get_equal_shares_and_all_requests() {
        let model = Model::fitted(1, 1_000.0);
        let hours = run(model, std::array::from_fn(|_| standard()), 98.0, (0, 48));
        let requests: Vec<u64> =
            hours.iter().map(|server| server.iter().map(|hour| hour.counts.requests).sum()).collect();
        let all: u64 = requests.iter().sum();
        let pages = Pages::new(model, 98.0, SERVERS).take_while(|page| page.at < 48 * HOUR).count();
        assert_eq!(all, pages as u64);
        for share in requests.iter().map(|requests| *requests as f64 / all as f64) {
            assert!((0.3..0.37).contains(&share), "{share}");
        }
    }
}
