//! How a policy's rows are decided: a function of what serves, the loads and the time. No socket, no clock.

use std::time::Duration;

use api::{ControlRow, ControlShare, Policy, Target};

use crate::algorithm::Algorithm;
use crate::load::Load;
use crate::matrix::{self, Column};
use crate::situation::{Server, Shares, Situation};

/// The part of all capacity below which a demand is told as none: it is what is left of an estimate that decays.
const DEMAND_NONE: f64 = 1e-9;

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
    /// Its addresses, at least one, or the name that it is. Sources are asked with the first.
    pub targets: Vec<Target>,
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
        let targets: Vec<Vec<Target>> = self.servers.iter().map(|server| server.targets.clone()).collect();
        matrix::columns(policy, &targets)
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
        // Without any load there is nothing to decide from, and no reason to touch what serves.
        let nothing = seen.iter().all(|server| server.load.is_none());
        let demand = if nothing { Vec::new() } else { self.demand() };
        let rows = (0..shares.len()).map(|row| ControlRow {
            region: row.checked_sub(1).map(|region| self.regions[region].clone()),
            demand: demand.get(row).copied(),
            shares: shared(policy, columns, &present[row], &shares, row),
        });
        let rows = rows.collect();
        let decided = matrix::with(policy, columns, &self.regions, &shares, self.ttl);
        let is_same = nothing || matrix::is_same(policy, &decided);
        Decision { policy: if is_same { policy.clone() } else { decided }, rows }
    }

    /// The demand of each row as Algorithm III told it last; none under the others.
    fn demand(&self) -> Vec<f64> {
        let Algorithm::Third(third) = &self.algorithm else { return Vec::new() };
        let least = DEMAND_NONE * self.servers.iter().map(|server| server.capacity).sum::<f64>();
        let told = |demand: &f64| if *demand < least { 0.0 } else { *demand };
        third.demand().iter().map(told).collect()
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
        let target = policy.servers[column.places[0]].target.clone();
        ControlShare { target, before: *before, after: *after }
    };
    numbers.map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::third::{Parameters, Third};
    use crate::out::Out;

    #[test]
    fn who_is_left_out_is_given_nothing() {
        let targets = [1, 2, 3].map(|last| Target::from([192, 0, 2, last]));
        // The nearest is out, and idle since nobody is sent to it.
        let policy = r#"{"servers":[{"address":"192.0.2.1","default":{"probability":1}},{"address":"192.0.2.2"},
            {"address":"192.0.2.3"}]}"#;
        let policy = Policy::read("test", policy).expect("a policy");
        let server = |(ranks, target): (u32, &Target)| ServerOptions {
            targets: vec![target.clone()],
            capacity: 1.0,
            ranks: vec![ranks],
        };
        let parameters = Parameters::new(Duration::from_secs(30), Duration::from_secs(10));
        for algorithm in [Algorithm::First, Algorithm::Second(1.0), Algorithm::Third(Third::new(parameters))]
        {
            let servers = (1..).zip(&targets).map(server).collect();
            let mut rule = Rule { algorithm, ttl: 30, regions: vec!["europe".into()], servers };
            let mut columns = rule.columns(&policy);
            matrix::leave_out(&mut columns, &[Some(Out::Down), None, None]);
            let known = Some(Load { relative: 0.5, room: 1.0 });
            let decided = |rule: &mut Rule, loads: &[Option<Load>]| {
                let policy = rule.decide(Duration::from_secs(10), &policy, &columns, loads).policy;
                policy.servers.iter().map(|server| server.default.probability).collect::<Vec<_>>()
            };
            let shares = decided(&mut rule, &[None, known, known]);
            assert_eq!(shares, [Some(0.0), Some(0.5), Some(0.5)], "{:?}", rule.algorithm);
            let untouched = decided(&mut rule, &[None; 3]);
            assert_eq!(untouched, [Some(1.0), None, None], "{:?}", rule.algorithm);
        }
    }

    #[test]
    fn a_demand_that_has_gone_is_told_as_none() {
        let third = Third::new(Parameters::new(Duration::from_secs(30), Duration::from_secs(10)));
        let server = |last| ServerOptions {
            targets: vec![[192, 0, 2, last].into()],
            capacity: 1.0,
            ranks: Vec::new(),
        };
        let servers = vec![server(1), server(2)];
        let mut rule = Rule { algorithm: Algorithm::Third(third), ttl: 30, regions: Vec::new(), servers };
        let text = r#"{"servers":[{"address":"192.0.2.1"},{"address":"192.0.2.2"}]}"#;
        let policy = Policy::read("test", text).expect("a policy");
        let columns = rule.columns(&policy);
        // Half of the clients are with a server of unknown load: what is believed of them halves and halves.
        let unknown = rule.decide(Duration::ZERO, &policy, &columns, &[None, None]).rows;
        assert_eq!(unknown[0].demand, None, "nothing is estimated from nothing");
        let mut demand = |round: u64, relative: f64| {
            let loads = [Some(Load { relative, room: 1.0 }), None];
            let rows = rule.decide(Duration::from_secs(10 * round), &policy, &columns, &loads).rows;
            rows[0].demand.expect("III tells it")
        };
        assert!(demand(1, 0.5) > 0.5 && demand(2, 0.0) > 0.1);
        (3..20).for_each(|round| assert!(demand(round, 0.0) < 0.1));
        for round in 20..600 {
            assert_eq!(demand(round, 0.0), 0.0, "round {round}");
        }
        assert!(demand(600, 0.5) > 0.5, "it comes back at once");
    }
}
