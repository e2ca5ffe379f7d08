//! The decision for one client: which servers, in which order, for how long, and for whom else.

use std::net::IpAddr;

use api::{Order, WhenAllDown};
use fastrand::Rng;

use crate::partition::Leaf;
use crate::policy::{Family, Policy, SERVERS_MAX, Server};
use crate::region::RegionId;
use crate::selection::{draw, heaviest, listed};
use crate::servers::State;

/// What a client is answered.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    order: [u8; SERVERS_MAX],
    count: u16,
    /// The TTL in seconds: that of the first server drawn.
    pub ttl: u32,
    /// For how many leading bits of the client's address the same row decides; 0 where the policy has no
    /// regional entries (RFC 7871 §7.2.1).
    pub scope: u8,
    /// The client's region.
    pub region: RegionId,
    /// What decided.
    pub why: Why,
}

/// What decided a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The default column.
    Default,
    /// The default column, for a short time: an external proximity service has not said yet where the client is.
    NotYet,
    /// The region's row.
    Region,
    /// All servers of the family are down, and the policy answers as if none were.
    AllDown,
    /// All servers of the family that are up fail their probes, and the policy answers as if none did.
    AllFailing,
    /// All servers of the family are down or fail their probes, and the policy answers nothing.
    Empty,
    /// The policy has no server of the family.
    NoFamily,
}

impl Choice {
    /// The servers in their order, as indices into [`Policy::servers`] of the family.
    #[inline]
    pub fn order(&self) -> &[u8] {
        &self.order[..usize::from(self.count)]
    }
}

/// Decides for one client (section 4.2 of the MyXDNS paper, its lines 5 to 8 exchanged as the prose has it; the other
/// orders are those of [`api::Order`]).
///
/// `client` is the address that tells the region: the client's own where client subnet gave it, zero-padded
/// where that is shorter than the partition is fine. Nothing is allocated; the same arguments and randomness
/// choose the same. A policy that rotates takes a turn of `state`.
#[inline]
pub fn route(policy: &Policy, family: Family, client: IpAddr, state: State<'_>, rng: &mut Rng) -> Choice {
    let matrix = policy.matrix(family);
    let mut leaf = policy.has_regions(family).then(|| policy.partition.lookup(client));
    let mut ttl_max = u32::MAX;
    if let Some(leaf) = &mut leaf
        && leaf.region == RegionId::ASK
    {
        ttl_max = ask(leaf, client, state);
    }
    let region = leaf.map_or(RegionId::NONE, |leaf| leaf.region);
    let mut choice = Choice {
        order: [0; SERVERS_MAX],
        count: 0,
        ttl: 0,
        scope: leaf.map_or(0, |leaf| leaf.scope),
        region,
        why: Why::NoFamily,
    };
    let servers = matrix.servers.len();
    if servers == 0 {
        // No row could change this answer, so it holds for every client.
        choice.scope = 0;
        return choice;
    }
    let (weights, ttls, is_own) = matrix.row(region);
    choice.why = match (is_own, ttl_max) {
        (true, _) => Why::Region,
        (false, u32::MAX) => Why::Default,
        (false, _) => Why::NotYet,
    };
    let mut candidates = [0; SERVERS_MAX];
    let candidates = match usable(&matrix.servers, state, &mut candidates) {
        0 if policy.when_all_down == WhenAllDown::Empty => {
            (choice.why, choice.scope) = (Why::Empty, 0);
            return choice;
        }
        0 => {
            // What probes say may be wrong; what an operator said is not, while it leaves anything to answer.
            let (why, up) = match usable(&matrix.servers, state.without_health(), &mut candidates) {
                0 => (Why::AllDown, usable(&matrix.servers, State::ALL_UP, &mut candidates)),
                up => (Why::AllFailing, up),
            };
            choice.why = why;
            &mut candidates[..up]
        }
        up => &mut candidates[..up],
    };
    let wanted = if policy.answers == 0 { servers } else { usize::from(policy.answers).min(servers) };
    let order = &mut choice.order[..wanted];
    choice.count = match policy.order {
        Order::Weighted => draw(weights, candidates, order, rng),
        Order::Fixed => listed(weights, candidates, order, 0),
        Order::Rotate => {
            let row = if is_own { region } else { RegionId::NONE };
            let turn = state.turns().map_or_else(|| rng.u64(..), |turns| turns.take(family, row));
            listed(weights, candidates, order, turn)
        }
        Order::Nearest => heaviest(weights, candidates, order, rng),
    } as u16;
    choice.ttl = ttls[usize::from(choice.order[0])].min(ttl_max);
    choice
}

/// Puts what an external proximity service said of the client in the place of the partition's word; returns how long an
/// answer may be kept, in seconds.
#[inline(never)]
fn ask(leaf: &mut Leaf, client: IpAddr, state: State<'_>) -> u32 {
    let Some(asking) = state.asking() else {
        leaf.region = RegionId::NONE;
        return u32::MAX;
    };
    let told = asking.region(client, leaf.scope);
    *leaf = Leaf { region: told.region, scope: told.scope };
    if told.is_known { u32::MAX } else { asking.external.short_ttl() }
}

/// The probability that each server of a family is first for a region, as things stand; all 0 where nothing is
/// answered. In a rotation it is the share of turns.
pub fn probabilities(policy: &Policy, family: Family, region: RegionId, state: State<'_>) -> Vec<f64> {
    let matrix = policy.matrix(family);
    let (weights, _, _) = matrix.row(region);
    let as_of = |state: State<'_>| -> Vec<bool> {
        matrix.servers.iter().map(|server| is_usable(server, state)).collect()
    };
    let mut up = as_of(state);
    if policy.when_all_down == WhenAllDown::Answer {
        for state in [state.without_health(), State::ALL_UP] {
            if !up.contains(&true) {
                up = as_of(state);
            }
        }
    }
    let share = |weight: u32, up: bool| if up { f64::from(weight) } else { 0.0 };
    let mut shares: Vec<f64> = weights.iter().zip(&up).map(|(weight, up)| share(*weight, *up)).collect();
    let mut total: f64 = shares.iter().sum();
    if total == 0.0 {
        shares = up.iter().map(|up| f64::from(u8::from(*up))).collect();
        total = shares.iter().sum();
    }
    let only = |shares: &mut Vec<f64>, is_first: &dyn Fn(f64) -> bool| {
        shares.iter_mut().for_each(|share| *share = f64::from(u8::from(is_first(*share))));
        shares.iter().sum()
    };
    total = match policy.order {
        _ if total == 0.0 => 0.0,
        Order::Weighted => total,
        Order::Rotate => only(&mut shares, &|share| share > 0.0),
        Order::Fixed => {
            let first = shares.iter().position(|share| *share > 0.0);
            shares
                .iter_mut()
                .enumerate()
                .for_each(|(at, share)| *share = f64::from(u8::from(Some(at) == first)));
            1.0
        }
        Order::Nearest => {
            let most = shares.iter().copied().fold(0.0, f64::max);
            only(&mut shares, &|share| share == most)
        }
    };
    if total > 0.0 {
        shares.iter_mut().for_each(|share| *share /= total);
    }
    shares
}

/// Lists the servers that may be drawn; returns their number.
#[inline]
fn usable(servers: &[Server], state: State<'_>, candidates: &mut [u8; SERVERS_MAX]) -> usize {
    if !state.any_out() {
        for (index, candidate) in candidates[..servers.len()].iter_mut().enumerate() {
            *candidate = index as u8;
        }
        return servers.len();
    }
    let mut count = 0;
    for (index, server) in servers.iter().enumerate() {
        if is_usable(server, state) {
            candidates[count] = index as u8;
            count += 1;
        }
    }
    count
}

/// Whether a server may be drawn.
#[inline]
fn is_usable(server: &Server, state: State<'_>) -> bool {
    state.is_up(&server.target) && !state.is_failing(server.probe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::health::{Health, SlotId};
    use crate::partition::Partition;
    use crate::policy::Context;
    use crate::prefix::Prefix;
    use crate::servers::Down;
    use fastrand::Rng;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    fn policy(text: &str, entries: &[(&str, u32)]) -> Policy {
        let spec = api::Policy::read("p", text).unwrap();
        let entries = entries
            .iter()
            .map(|(prefix, region)| (prefix.parse::<Prefix>().unwrap(), RegionId::new(*region).unwrap()));
        let partition = Arc::new(Partition::compile(entries));
        let context = Context {
            region: &|name| name.parse().ok().and_then(RegionId::new),
            partition: &|_| Some(partition.clone()),
        };
        Policy::compile(&spec, api::place::Origin { source: "p", text: Some(text) }, &context).unwrap()
    }

    const TWO: &str = r#"{"servers":[
        {"address":"192.0.2.1","default":{"probability":1,"ttl":10},"regions":{"1":{"probability":1,"ttl":20}}},
        {"address":"192.0.2.2","default":{"probability":0,"ttl":11}},
        {"address":"2001:db8::1"}]}"#;

    fn down(addresses: &[&str]) -> Down {
        addresses.iter().map(|address| address.parse::<api::Target>().unwrap()).collect()
    }

    fn first(policy: &Policy, client: &str, state: State<'_>) -> (Option<u8>, u32, u8, Why) {
        let client = client.parse().unwrap();
        let choice = route(policy, Family::V4, client, state, &mut Rng::with_seed(1));
        (choice.order().first().copied(), choice.ttl, choice.scope, choice.why)
    }

    #[test]
    fn a_regions_row_or_the_default_column_decides() {
        let policy = policy(TWO, &[("10.0.0.0/8", 1), ("11.0.0.0/8", 2)]);
        assert_eq!(first(&policy, "10.1.2.3", State::ALL_UP), (Some(0), 20, 8, Why::Region));
        assert_eq!(first(&policy, "11.1.2.3", State::ALL_UP), (Some(0), 10, 8, Why::Default));
        assert_eq!(first(&policy, "192.0.2.1", State::ALL_UP), (Some(0), 10, 1, Why::Default));
    }

    #[test]
    fn what_is_said_of_one_family_narrows_no_answer_of_the_other() {
        let policy = policy(TWO, &[("10.0.0.0/8", 1), ("2001:db8::/32", 1)]);
        for client in ["10.1.2.3", "2001:db8::1"] {
            let choose = |family| {
                let client = client.parse().unwrap();
                let choice = route(&policy, family, client, State::ALL_UP, &mut Rng::with_seed(1));
                (choice.scope, choice.region.get(), choice.why)
            };
            let scope = if client.contains(':') { 32 } else { 8 };
            assert_eq!(choose(Family::V4), (scope, 1, Why::Region));
            assert_eq!(choose(Family::V6), (0, 0, Why::Default));
        }
    }

    #[test]
    fn a_server_that_is_down_is_not_drawn() {
        let policy = policy(TWO, &[("10.0.0.0/8", 1)]);
        let down = down(&["192.0.2.1"]);
        assert_eq!(first(&policy, "10.1.2.3", down.state()), (Some(1), 360, 8, Why::Region));
        let one = RegionId::new(1).unwrap();
        assert_eq!(probabilities(&policy, Family::V4, one, down.state()), [0.0, 1.0]);
    }

    #[test]
    fn an_alias_is_drawn_as_an_address_is() {
        let text = r#"{"servers":[{"cname":"a.example.","default":{"ttl":30},"regions":{"1":{"ttl":20}}},
            {"cname":"b.example.","default":{"probability":0}}]}"#;
        let policy = policy(text, &[("10.0.0.0/8", 1)]);
        assert!(policy.is_alias() && policy.servers(Family::V4).is_empty());
        let choose = |client: &str, state| {
            let choice =
                route(&policy, Family::Cname, client.parse().unwrap(), state, &mut Rng::with_seed(1));
            (choice.order().to_vec(), choice.ttl, choice.scope, choice.why)
        };
        assert_eq!(choose("10.1.2.3", State::ALL_UP), (vec![0], 20, 8, Why::Region));
        let down = down(&["a.example."]);
        assert_eq!(choose("10.1.2.3", down.state()), (vec![1], 360, 8, Why::Region));
        assert_eq!(probabilities(&policy, Family::Cname, RegionId::NONE, down.state()), [0.0, 1.0]);
    }

    #[test]
    fn all_down_is_the_policys_choice_for_every_region() {
        for (when, expected) in
            [("answer", (Some(0), 20, 8, Why::AllDown)), ("empty", (None, 0, 0, Why::Empty))]
        {
            let text = TWO.replacen('{', &format!("{{\"when_all_down\":\"{when}\","), 1);
            let policy = policy(&text, &[("10.0.0.0/8", 1)]);
            let down = down(&["192.0.2.1", "192.0.2.2"]);
            assert_eq!(first(&policy, "10.1.2.3", down.state()), expected, "{when}");
            let v6 = route(&policy, Family::V6, "::1".parse().unwrap(), down.state(), &mut Rng::with_seed(1));
            assert_eq!(v6.order(), [0], "the other family is up");
        }
    }

    #[test]
    fn probes_take_servers_out_but_not_what_the_operator_left() {
        let slot = |number| SlotId::new(number).unwrap();
        let [one, two]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let probes = |server: &api::Target| {
            if *server == one {
                slot(1)
            } else if *server == two {
                slot(2)
            } else {
                SlotId::NONE
            }
        };
        // Who is down, whose probe fails, and what is answered by policies that answer and that do not.
        let none = (None, 0, 0, Why::Empty);
        for (down, failing, answered, empty) in [
            (vec![], vec![], (Some(0), 20, 8, Why::Region), (Some(0), 20, 8, Why::Region)),
            (vec![], vec![1], (Some(1), 360, 8, Why::Region), (Some(1), 360, 8, Why::Region)),
            (vec![], vec![7], (Some(0), 20, 8, Why::Region), (Some(0), 20, 8, Why::Region)),
            (vec![], vec![1, 2], (Some(0), 20, 8, Why::AllFailing), none),
            (vec![one], vec![2], (Some(1), 360, 8, Why::AllFailing), none),
            (vec![one, two], vec![1], (Some(0), 20, 8, Why::AllDown), none),
        ] {
            for (when, expected) in [("answer", answered), ("empty", empty)] {
                let text = TWO.replacen('{', &format!("{{\"when_all_down\":\"{when}\","), 1);
                let mut policy = policy(&text, &[("10.0.0.0/8", 1)]);
                policy.heed_probes(probes);
                let down: Down = down.iter().map(|address| (*address).into()).collect();
                let health = Health::default();
                failing.iter().for_each(|number| health.set(slot(*number), true));
                let state = down.state().with_health(&health);
                let client = "10.1.2.3".parse().unwrap();
                let choice = route(&policy, Family::V4, client, state, &mut Rng::with_seed(1));
                let first = choice.order().first().copied();
                assert_eq!(
                    (first, choice.ttl, choice.scope, choice.why),
                    expected,
                    "{down:?} {failing:?} {when}"
                );
                let shares = probabilities(&policy, Family::V4, choice.region, state);
                let drawn = shares.iter().position(|share| *share > 0.0).map(|index| index as u8);
                assert_eq!(drawn, first, "{shares:?}");
            }
        }
    }

    #[test]
    fn answers_limits_the_list_and_0_means_all() {
        for (answers, expected) in [(0, 6), (1, 1), (4, 4), (9, 6)] {
            let list: Vec<String> = (1..=6).map(|n| format!("{{\"address\":\"192.0.2.{n}\"}}")).collect();
            let text = format!("{{\"answers\":{answers},\"servers\":[{}]}}", list.join(","));
            let policy = policy(&text, &[]);
            let choice =
                route(&policy, Family::V4, "::1".parse().unwrap(), State::ALL_UP, &mut Rng::with_seed(2));
            let mut drawn = choice.order().to_vec();
            assert_eq!((drawn.len(), choice.scope), (expected, 0));
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), expected, "each server once");
            let none =
                route(&policy, Family::V6, "::1".parse().unwrap(), State::ALL_UP, &mut Rng::with_seed(2));
            assert_eq!((none.order().len(), none.scope, none.why), (0, 0, Why::NoFamily));
        }
    }

    /// The orders of so many answers, servers by their last octet.
    fn answers(policy: &Policy, client: &str, state: State<'_>, count: usize) -> Vec<Vec<u8>> {
        let mut rng = Rng::with_seed(5);
        let client = client.parse().unwrap();
        let mut each = || route(policy, Family::V4, client, state, &mut rng).order().to_vec();
        (0..count).map(|_| each().iter().map(|index| index + 1).collect()).collect()
    }

    const FOUR: &str = r#"{"order":"ORDER","answers":2,"servers":[
        {"address":"192.0.2.1"},{"address":"192.0.2.2"},{"address":"192.0.2.3","regions":{"1":{"probability":1,"ttl":7}}},
        {"address":"192.0.2.4","regions":{"1":{"probability":1}}}]}"#;

    #[test]
    fn a_fixed_policy_answers_the_first_that_are_up() {
        let policy = policy(&FOUR.replace("ORDER", "fixed"), &[("10.0.0.0/8", 1)]);
        assert_eq!(answers(&policy, "192.0.2.9", State::ALL_UP, 3), vec![vec![1, 2]; 3]);
        assert_eq!(answers(&policy, "10.0.0.1", State::ALL_UP, 3), vec![vec![3, 4]; 3]);
        let down = down(&["192.0.2.1", "192.0.2.4"]);
        assert_eq!(answers(&policy, "192.0.2.9", down.state(), 3), vec![vec![2, 3]; 3]);
        assert_eq!(answers(&policy, "10.0.0.1", down.state(), 3), vec![vec![3, 2]; 3]);
        let one = RegionId::new(1).unwrap();
        assert_eq!(probabilities(&policy, Family::V4, one, down.state()), [0.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn a_rotation_begins_one_further_each_time() {
        let policy = policy(&FOUR.replace("ORDER", "rotate"), &[("10.0.0.0/8", 1)]);
        let rotation = crate::Rotation::new();
        let state = State::ALL_UP.with_turns(Some(rotation.of(1)));
        let expected = [[1, 2], [2, 3], [3, 4], [4, 1], [1, 2]];
        assert_eq!(answers(&policy, "192.0.2.9", state, 5), expected);
        assert_eq!(answers(&policy, "10.0.0.1", state, 3), [[3, 4], [4, 3], [3, 4]], "another row");
        let other = State::ALL_UP.with_turns(Some(rotation.of(2)));
        assert_eq!(answers(&policy, "192.0.2.9", other, 2), expected[..2], "another name");
        assert_eq!(probabilities(&policy, Family::V4, RegionId::NONE, state), [0.25; 4]);
        let down = down(&["192.0.2.2"]);
        let state = down.state().with_turns(Some(rotation.of(3)));
        assert_eq!(answers(&policy, "192.0.2.9", state, 4), [[1, 3], [3, 4], [4, 1], [1, 3]]);
    }

    /// A policy of a partition with regions 1 to 4, 10.1.0.0/16 to 10.4.0.0/16, and these ranks: region, server, rank.
    fn ranking(spec: &str, ranks: &[(u32, &str, u16)]) -> Policy {
        let ranks = ranks.iter().map(|&(region, server, rank)| crate::partition::Rank {
            region: RegionId::new(region).unwrap(),
            server: server.parse().unwrap(),
            rank,
        });
        let entries = (1..=4).map(|id| (Prefix::new([10, id, 0, 0].into(), 16).unwrap(), u32::from(id)));
        let entries = entries.map(|(prefix, id)| (prefix, RegionId::new(id).unwrap()));
        let partition = Arc::new(Partition::compile(entries).with_ranks(ranks.collect()));
        let context = Context {
            region: &|name| name.parse().ok().and_then(RegionId::new),
            partition: &|_| Some(partition.clone()),
        };
        let origin = api::place::Origin { source: "p", text: None };
        Policy::compile(&api::Policy::read("p", spec).unwrap(), origin, &context).unwrap()
    }

    #[test]
    fn who_has_no_rank_comes_by_the_default_column() {
        let spec = r#"{"order":"nearest","answers":0,"servers":[
            {"address":"192.0.2.1","default":{"probability":1}},{"address":"192.0.2.2","default":{"probability":0}},
            {"address":"192.0.2.3","default":{"probability":9}},{"address":"192.0.2.4","default":{"probability":0}}]}"#;
        let policy = ranking(spec, &[(1, "192.0.2.4", 1), (2, "2001:db8::1", 1), (3, "192.0.2.1", 10_000)]);
        let first = |client| answers(&policy, client, State::ALL_UP, 1).remove(0);
        assert_eq!(first("10.1.0.1"), [4, 3, 1, 2], "a rank goes before any probability");
        assert_eq!(first("10.2.0.1")[..2], [3, 1], "nobody is ranked");
        assert_eq!(first("10.3.0.1")[..2], [1, 3], "the worst rank is better than none");
    }

    #[test]
    fn a_row_of_one_family_leaves_the_ranks_of_the_other() {
        let spec = r#"{"order":"nearest","answers":0,"servers":[{"address":"192.0.2.1","regions":{"1":{}}},
            {"address":"192.0.2.2"},{"address":"2001:db8::1"},{"address":"2001:db8::2"}]}"#;
        let policy = ranking(spec, &[(1, "192.0.2.2", 1), (1, "2001:db8::2", 1)]);
        for (family, expected) in [(Family::V4, [0, 1]), (Family::V6, [1, 0])] {
            let client = "10.1.0.1".parse().unwrap();
            let choice = route(&policy, family, client, State::ALL_UP, &mut Rng::with_seed(1));
            assert_eq!((choice.order(), choice.why), (&expected[..], Why::Region));
        }
    }

    #[test]
    fn in_a_row_without_probabilities_the_nearest_are_those_with_an_entry() {
        let spec = r#"{"order":"nearest","answers":0,"servers":[{"address":"192.0.2.1"},
            {"address":"192.0.2.2","regions":{"1":{"ttl":60}}},{"address":"192.0.2.3","regions":{"1":{"ttl":50}}}]}"#;
        let policy = ranking(spec, &[]);
        let client = "10.1.0.1".parse().unwrap();
        let choice = route(&policy, Family::V4, client, State::ALL_UP, &mut Rng::with_seed(1));
        assert_eq!((choice.order(), choice.ttl), (&[1, 2, 0][..], 60));
    }

    #[test]
    fn the_nearest_are_answered_and_ties_are_even() {
        let ranks = [
            (1, "192.0.2.1", 1),
            (2, "192.0.2.2", 3),
            (2, "192.0.2.4", 1),
            (3, "192.0.2.1", 2),
            (3, "192.0.2.3", 1),
            (3, "192.0.2.4", 2),
            (4, "198.51.100.1", 1),
        ];
        let policy = ranking(&FOUR.replace("ORDER", "nearest"), &ranks);
        let state = State::ALL_UP;
        let seen = |client| {
            let mut counts = std::collections::BTreeMap::new();
            answers(&policy, client, state, 4_000)
                .into_iter()
                .for_each(|order| *counts.entry(order).or_insert(0u32) += 1);
            counts
        };
        let sure = |order: [u8; 2]| std::collections::BTreeMap::from([(order.to_vec(), 4_000u32)]);
        assert_eq!(seen("10.2.0.1"), sure([4, 2]), "by rank");
        assert_eq!(seen("10.4.0.1"), sure([1, 2]), "no server of ours is ranked: as they are listed");
        assert_eq!(seen("192.0.2.9"), sure([1, 2]), "no region: as they are listed");
        // The policy's own row goes before ranks, and its two servers are alike.
        for (client, both) in [("10.1.0.1", [[3, 4], [4, 3]]), ("10.3.0.1", [[3, 1], [3, 4]])] {
            let counts = seen(client);
            assert_eq!(counts.len(), 2, "{counts:?}");
            // Five deviations of 32.
            assert!(both.iter().all(|order| counts[&order.to_vec()].abs_diff(2_000) < 160), "{counts:?}");
        }
        let three = RegionId::new(3).unwrap();
        assert_eq!(probabilities(&policy, Family::V4, three, state), [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(
            probabilities(&policy, Family::V4, RegionId::new(1).unwrap(), state),
            [0.0, 0.0, 0.5, 0.5]
        );
    }

    #[test]
    fn who_is_not_known_yet_gets_the_default_column_for_a_short_time() {
        let entries = [("0.0.0.0/0", RegionId::ASK.get()), ("10.0.0.0/8", 1)];
        let spec = api::Policy::read("p", &TWO.replace("\"ttl\":10", "\"ttl\":300")).unwrap();
        let entries = entries.map(|(prefix, id)| {
            (prefix.parse::<Prefix>().unwrap(), RegionId::new(id).unwrap_or(RegionId::ASK))
        });
        let partition = Arc::new(Partition::compile(entries));
        let context = Context {
            region: &|name| name.parse().ok().and_then(RegionId::new),
            partition: &|_| Some(partition.clone()),
        };
        let origin = api::place::Origin { source: "p", text: None };
        let policy = Policy::compile(&spec, origin, &context).unwrap();
        let now = std::time::Duration::from_secs(1);
        let external = crate::External::new(16, std::time::Duration::from_secs(60), 10, [1; 16]);
        let asker: Option<IpAddr> = Some("198.51.100.1".parse().unwrap());
        let decide = |client: &str, source, asks: bool| {
            let asking = crate::external::Asking { external: &external, now, source, asker };
            let state = State::ALL_UP.with_asking(asks.then_some(asking));
            let choice = route(&policy, Family::V4, client.parse().unwrap(), state, &mut Rng::with_seed(1));
            (choice.ttl, choice.scope, choice.why)
        };
        assert_eq!(decide("10.1.2.3", 24, true), (20, 8, Why::Region), "the partition knows");
        assert_eq!(decide("192.0.2.1", 24, true), (10, 24, Why::NotYet));
        assert_eq!(decide("192.0.2.1", 32, true), (10, 32, Why::NotYet));
        assert_eq!(decide("192.0.2.1", 24, false), (300, 1, Why::Default), "nobody is there to be asked");
        let block: Prefix = "192.0.2.0/24".parse().unwrap();
        external.learn(block, RegionId::new(1).unwrap(), now);
        assert_eq!(decide("192.0.2.1", 16, true), (20, 24, Why::Region));
        external.learn(block, RegionId::NONE, now);
        assert_eq!(decide("192.0.2.1", 16, true), (300, 24, Why::Default), "known to be in no region");
    }

    proptest! {
        /// Nobody inside the scope of an answer could get another row: caches may share it.
        #[test]
        fn a_scope_is_honest(
            entries in proptest::collection::vec((any::<u32>(), 0u8..=32, 0u32..4), 0..12),
            client in any::<u32>(), inside in any::<u32>(),
        ) {
            let entries: Vec<(String, u32)> = entries
                .into_iter()
                .map(|(address, length, region)| {
                    (Prefix::new(std::net::Ipv4Addr::from(address).into(), length).unwrap().to_string(), region)
                })
                .collect();
            let entries: Vec<(&str, u32)> = entries.iter().map(|(prefix, region)| (prefix.as_str(), *region)).collect();
            let policy = policy(TWO, &entries);
            let choose = |address: u32| {
                let client = std::net::Ipv4Addr::from(address).into();
                route(&policy, Family::V4, client, State::ALL_UP, &mut Rng::with_seed(3))
            };
            let choice = choose(client);
            let mask = u32::MAX.checked_shl(32 - u32::from(choice.scope)).unwrap_or(0);
            let other = choose(client & mask | inside & !mask);
            prop_assert_eq!((choice.region, choice.scope, choice.ttl), (other.region, other.scope, other.ttl));
        }
    }
}
