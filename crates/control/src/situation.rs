//! What an algorithm decides from, and what it decides.

use crate::load::Load;

/// How probable each server is for the clients of each region: `shares[region][server]`, each row with the sum 1.
pub type Shares = Vec<Vec<f64>>;

/// A server as an algorithm sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    /// How much it can take beside the others, above 0; any unit, the same for all.
    pub capacity: f64,
    /// Its load; `None` where nobody knows.
    pub load: Option<Load>,
}

/// What is known when a decision is due.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The servers of the policy, in the order of all other lists here.
    pub servers: &'a [Server],
    /// `ranks[region][server]`: how near a server is to a region, from 1, the nearest; not unique.
    pub ranks: &'a [Vec<u32>],
    /// The shares that serve now; each row has the sum 1.
    pub present: &'a Shares,
}

impl Situation<'_> {
    /// Lets `decide` share out a region's clients among the servers of known load, and leaves each of the others what
    /// it has: a server of which nothing is known neither gains nor loses.
    ///
    /// `decide` is given the region's ranks and returns weights of any scale, of which those of unknown servers are not
    /// looked at. Where no server is known, or all of a region's clients go to unknown ones, the row stays as it is.
    pub fn shared_out(&self, mut decide: impl FnMut(usize, &[u32]) -> Vec<f64>) -> Shares {
        let rows = self.present.iter().zip(self.ranks).enumerate();
        rows.map(|(region, (present, ranks))| self.row(present, &decide(region, ranks))).collect()
    }

    /// A row of `weights`, beside what servers of unknown load have at `present`.
    fn row(&self, present: &[f64], weights: &[f64]) -> Vec<f64> {
        let known = || self.servers.iter().map(|server| server.load.is_some());
        let sum = |row: &[f64], of: bool| -> f64 {
            row.iter().zip(known()).filter(|(_, known)| *known == of).map(|(share, _)| share).sum()
        };
        let (free, total) = (1.0 - sum(present, false), sum(weights, true));
        if free <= 0.0 || total <= 0.0 {
            return present.to_vec();
        }
        let shares = weights.iter().zip(present).zip(known());
        shares
            .map(|((weight, present), known)| if known { free * weight / total } else { *present })
            .collect()
    }

    /// The servers that share where there is nothing to tell them apart: the known ones, by capacity.
    pub fn by_capacity(&self) -> Vec<f64> {
        let share = |server: &Server| if server.load.is_some() { server.capacity } else { 0.0 };
        self.servers.iter().map(share).collect()
    }
}

/// What a test's table says of a server: capacity and load.
#[cfg(test)]
pub(crate) fn server(capacity: f64, relative: f64, room: f64) -> Server {
    Server { capacity, load: Some(Load { relative, room }) }
}

/// Holds what was decided against a table, to a thousandth.
#[cfg(test)]
pub(crate) fn assert_rows(found: &Shares, expected: &[&[f64]]) {
    let near = |a: &f64, b: &f64| (a - b).abs() < 0.0005;
    let same = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| {
            found.len() == expected.len() && found.iter().zip(*expected).all(|(a, b)| near(a, b))
        });
    assert!(same, "{found:?} is not {expected:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_neither_gains_nor_loses() {
        let unknown = Server { capacity: 1.0, load: None };
        let servers = [server(1.0, 0.5, 1.0), unknown, server(1.0, 0.5, 1.0)];
        let ranks = vec![vec![1, 1, 1]; 3];
        let present = vec![vec![0.25, 0.5, 0.25], vec![0.0, 1.0, 0.0], vec![1.0, 0.0, 0.0]];
        let situation = Situation { servers: &servers, ranks: &ranks, present: &present };
        // The unknown server's own weight does not count, however large it is.
        let shares = situation.shared_out(|_, _| vec![1.0, 99.0, 3.0]);
        assert_rows(&shares, &[&[0.125, 0.5, 0.375], &[0.0, 1.0, 0.0], &[0.25, 0.0, 0.75]]);
        let nobody = [unknown; 3];
        let situation = Situation { servers: &nobody, ..situation };
        assert_eq!(situation.shared_out(|_, _| situation.by_capacity()), present);
    }
}
