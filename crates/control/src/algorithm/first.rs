//! Algorithm I: the nearest servers that are not overloaded (MyXDNS, section 5.2).
//!
//! For each region:
//! 1. Servers above their threshold are out.
//! 2. Of the others, those with the best rank stay.
//! 3. They share the clients by capacity times spare load.
//! 4. Where all are overloaded, all share by capacity.

use crate::situation::{Server, Shares, Situation};

/// Decides from this moment's loads alone.
pub fn decide(situation: &Situation<'_>) -> Shares {
    situation.shared_out(|_, ranks| {
        let calm = |server: &Server| server.load.is_some_and(|load| load.relative <= 1.0);
        let candidates = || situation.servers.iter().zip(ranks).filter(|(server, _)| calm(server));
        let Some(best) = candidates().map(|(_, rank)| *rank).min() else {
            return situation.by_capacity();
        };
        let kept = |server: &Server, rank: u32| calm(server) && rank == best;
        let weights = |of: fn(&Server) -> f64| -> Vec<f64> {
            let servers = situation.servers.iter().zip(ranks);
            servers.map(|(server, rank)| if kept(server, *rank) { of(server) } else { 0.0 }).collect()
        };
        let spare = weights(|server| server.capacity * server.load.map_or(0.0, |load| 1.0 - load.relative));
        // All that are kept may be just at their threshold.
        if spare.iter().sum::<f64>() > 0.0 { spare } else { weights(|server| server.capacity) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::situation::{assert_rows, server};

    /// Three servers, two regions; the second region ranks the first two alike.
    #[test]
    fn the_table_worked_by_hand() {
        let ranks = vec![vec![1, 2, 3], vec![2, 2, 1]];
        let present = vec![vec![1.0, 0.0, 0.0], vec![0.0, 0.0, 1.0]];
        let check = |loads: [f64; 3], expected: &[&[f64]]| {
            let capacities = [1.0, 2.0, 1.0];
            let servers: Vec<Server> =
                capacities.iter().zip(loads).map(|(capacity, load)| server(*capacity, load, 0.0)).collect();
            assert_rows(
                &decide(&Situation { servers: &servers, ranks: &ranks, present: &present }),
                expected,
            );
        };
        // Nobody is overloaded: the best ranked takes all.
        check([0.5, 0.5, 0.5], &[&[1.0, 0.0, 0.0], &[0.0, 0.0, 1.0]]);
        // At the threshold is not above it.
        check([1.0, 0.5, 0.5], &[&[1.0, 0.0, 0.0], &[0.0, 0.0, 1.0]]);
        // The third is out; in its region the others tie: 1 × (1 − 0.5) against 2 × (1 − 0.75) is one to one.
        check([0.5, 0.75, 1.1], &[&[1.0, 0.0, 0.0], &[0.5, 0.5, 0.0]]);
        // 1 × (1 − 0.7) = 0.3 against 2 × (1 − 0.4) = 1.2.
        check([0.7, 0.4, 1.1], &[&[1.0, 0.0, 0.0], &[0.2, 0.8, 0.0]]);
        // The first is out: its region goes to the next nearest.
        check([1.1, 0.4, 0.5], &[&[0.0, 1.0, 0.0], &[0.0, 0.0, 1.0]]);
        // Both of a tie are just at their thresholds: by capacity.
        check([1.0, 1.0, 1.5], &[&[1.0, 0.0, 0.0], &[1.0 / 3.0, 2.0 / 3.0, 0.0]]);
        // All are overloaded: all share, by capacity.
        check([1.1, 1.2, 9.0], &[&[0.25, 0.5, 0.25], &[0.25, 0.5, 0.25]]);
    }
}
