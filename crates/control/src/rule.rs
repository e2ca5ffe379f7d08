//! How a policy's rows are decided: a function of what serves, the loads and the time. No socket, no clock.

use std::net::IpAddr;
use std::time::Duration;

use api::{ControlRow, ControlShare, Policy};

use crate::algorithm::Algorithm;
use crate::load::Load;
use crate::matrix::{self, Column};
use crate::situation::{Server, Shares, Situation};

/// The algorithm, and what it is told beside loads.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The selection algorithm with its parameters and what it remembers.
    pub algorithm: Algorithm,
    /// The TTL of the rows, in seconds.
    pub ttl: u32,
    /// The names of the regions that have ranks; the rows of all others stay as they are.
    pub regions: Vec<String>,
    /// The servers of the configuration; at least one.
    pub servers: Vec<ServerOptions>,
}

/// A server of the configuration.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Its addresses; at least one. Sources are asked with the first.
    pub addresses: Vec<IpAddr>,
    /// How much it can take beside the others, above 0; any unit, the same for all.
    pub capacity: f64,
    /// Its rank for each region of [`Rule::regions`], in their order; from 1, the nearest.
    pub ranks: Vec<u32>,
}

/// The rows that were decided for a policy.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The policy with its rows; the one that serves where nothing is to change.
    pub policy: Policy,
    /// The rows before and after, for people.
    pub rows: Vec<ControlRow>,
}

impl Rule {
    /// The servers of a policy.
    pub fn columns(&self, policy: &Policy) -> Vec<Column> {
        let addresses: Vec<Vec<IpAddr>> =
            self.servers.iter().map(|server| server.addresses.clone()).collect();
        matrix::columns(policy, &addresses)
    }

    /// Decides the rows of `policy`, which serves; `now` never goes back from one call to the next.
    ///
    /// `loads` are those of [`Rule::servers`], `columns` are what [`Rule::columns`] tells of the policy.
    ///
    /// # Panics
    /// Where there are fewer loads than servers.
    pub fn decide(
        &mut self,
        now: Duration,
        policy: &Policy,
        columns: &[Column],
        loads: &[Option<Load>],
    ) -> Decision {
        let seen = columns.iter().map(|column| match column.configured {
            Some(server) => Server { capacity: self.servers[server].capacity, load: loads[server] },
            None => Server { capacity: 1.0, load: None },
        });
        let seen: Vec<Server> = seen.collect();
        // For the default column nobody is nearer than anybody else.
        let mut ranks = vec![vec![1; columns.len()]];
        ranks.extend((0..self.regions.len()).map(|region| {
            let rank = |column: &Column| column.configured.map_or(1, |s| self.servers[s].ranks[region]);
            columns.iter().map(rank).collect::<Vec<u32>>()
        }));
        let present = matrix::shares(policy, columns, &self.regions);
        let situation = Situation { servers: &seen, ranks: &ranks, present: &present };
        let shares = self.algorithm.decide(now, &situation);
        let demand = match &self.algorithm {
            Algorithm::Third(third) => Some(third.demand()),
            _ => None,
        };
        let rows = (0..shares.len()).map(|row| ControlRow {
            region: row.checked_sub(1).map(|region| self.regions[region].clone()),
            demand: demand.and_then(|demand| demand.get(row).copied()),
            shares: shared(policy, columns, &present[row], &shares, row),
        });
        let rows = rows.collect();
        // Without any load there is nothing to decide from, and no reason to touch what serves.
        let nothing = seen.iter().all(|server| server.load.is_none());
        let serves = matrix::serves(policy, columns, &self.regions, &shares, self.ttl);
        let policy = if nothing || serves {
            policy.clone()
        } else {
            matrix::with(policy, columns, &self.regions, &shares, self.ttl)
        };
        Decision { policy, rows }
    }
}

fn shared(
    policy: &Policy,
    columns: &[Column],
    before: &[f64],
    shares: &Shares,
    row: usize,
) -> Vec<ControlShare> {
    let numbers = columns.iter().zip(before).zip(&shares[row]);
    let share = |((column, before), after): ((&Column, &f64), &f64)| {
        let address = policy.servers[column.places[0]].address;
        ControlShare { address, before: *before, after: *after }
    };
    numbers.map(share).collect()
}
