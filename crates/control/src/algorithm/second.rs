//! Algorithm II: watermarks (MyXDNS, section 5.2).
//!
//! For each region, in three passes over the servers:
//! 1. A weight by load: 1 up to the low watermark, 0 from the high one on, on a straight line between them.
//! 2. Higher ranks are favoured. The paper gives no formula; ours divides the weight by `rank^favour`. With 0 ranks
//!    do not matter, with 1 the second nearest counts half as much as the nearest, with 2 a quarter.
//! 3. The weights are divided by their sum. Where all are 0, all servers share by capacity.

use crate::situation::{Shares, Situation};

/// Decides from this moment's loads alone; `favour` is from 0 on.
pub fn decide(situation: &Situation<'_>, favour: f64) -> Shares {
    situation.shared_out(|_, ranks| {
        let weights =
            situation.servers.iter().zip(ranks).map(|(server, rank)| {
                server.load.map_or(0.0, |load| load.room) / f64::from(*rank).powf(favour)
            });
        let weights: Vec<f64> = weights.collect();
        if weights.iter().sum::<f64>() > 0.0 { weights } else { situation.by_capacity() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::situation::{assert_rows, server};

    /// Three servers, two regions, as for Algorithm I; what differs is the room that the first pass found.
    #[test]
    fn the_table_worked_by_hand() {
        let ranks = vec![vec![1, 2, 3], vec![2, 2, 1]];
        let present = vec![vec![1.0, 0.0, 0.0], vec![0.0, 0.0, 1.0]];
        let check = |rooms: [f64; 3], favour: f64, expected: &[&[f64]]| {
            let servers = [(1.0, rooms[0]), (2.0, rooms[1]), (1.0, rooms[2])]
                .map(|(capacity, room)| server(capacity, 0.5, room));
            let situation = Situation { servers: &servers, ranks: &ranks, present: &present };
            assert_rows(&decide(&situation, favour), expected);
        };
        // All have room: 1, 1/2 and 1/3 of 11/6; 1/2, 1/2 and 1 of 2.
        check([1.0, 1.0, 1.0], 1.0, &[&[6.0 / 11.0, 3.0 / 11.0, 2.0 / 11.0], &[0.25, 0.25, 0.5]]);
        // 0.5, 1/2, 0 and 0.5/2, 1/2, 0.
        check([0.5, 1.0, 0.0], 1.0, &[&[0.5, 0.5, 0.0], &[1.0 / 3.0, 2.0 / 3.0, 0.0]]);
        // 0.5, 1/4, 0.9/9 of 0.85; 0.5/4, 1/4, 0.9 of 1.275.
        check([0.5, 1.0, 0.9], 2.0, &[&[0.5882, 0.2941, 0.1176], &[0.0980, 0.1961, 0.7059]]);
        // Ranks do not matter.
        check([0.5, 1.0, 0.5], 0.0, &[&[0.25, 0.5, 0.25], &[0.25, 0.5, 0.25]]);
        // No room anywhere: all share, by capacity.
        check([0.0, 0.0, 0.0], 1.0, &[&[0.25, 0.5, 0.25], &[0.25, 0.5, 0.25]]);
    }
}
