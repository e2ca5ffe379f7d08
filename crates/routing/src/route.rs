//! The decision for one client: which servers, in which order, for how long, and for whom else.

use std::net::IpAddr;

use api::WhenAllDown;
use fastrand::Rng;

use crate::policy::{Family, Policy, SERVERS_MAX, Target};
use crate::region::RegionId;
use crate::selection::draw;
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
    /// The region's row.
    Region,
    /// All servers of the family are down, and the policy answers as if none were.
    AllDown,
    /// All servers of the family are down, and the policy answers nothing.
    Empty,
    /// The policy has no server of the family.
    NoFamily,
}

impl Choice {
    /// The servers in their order, as indices into [`Policy::targets`] of the family.
    #[inline]
    pub fn order(&self) -> &[u8] {
        &self.order[..usize::from(self.count)]
    }
}

/// Decides for one client (section 4.2 of the MyXDNS paper, its lines 5 to 8 exchanged as the prose has it).
///
/// `client` is the address that tells the region: the client's own where client subnet gave it, zero-padded
/// where that is shorter than the partition is fine. Nothing is allocated; the same arguments and randomness
/// choose the same.
#[inline]
pub fn route(policy: &Policy, family: Family, client: IpAddr, state: State<'_>, rng: &mut Rng) -> Choice {
    let matrix = policy.matrix(family);
    let leaf = policy.has_regions().then(|| policy.partition.lookup(client));
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
    choice.why = if is_own { Why::Region } else { Why::Default };
    let mut candidates = [0; SERVERS_MAX];
    let candidates = match usable(&matrix.servers, state, &mut candidates) {
        0 if policy.when_all_down == WhenAllDown::Empty => {
            (choice.why, choice.scope) = (Why::Empty, 0);
            return choice;
        }
        0 => {
            choice.why = Why::AllDown;
            usable(&matrix.servers, State::ALL_UP, &mut candidates);
            &mut candidates[..servers]
        }
        up => &mut candidates[..up],
    };
    let wanted = if policy.answers == 0 { servers } else { usize::from(policy.answers).min(servers) };
    choice.count = draw(weights, candidates, &mut choice.order[..wanted], rng) as u16;
    choice.ttl = ttls[usize::from(choice.order[0])];
    choice
}

/// The probability that each server of a family is drawn first for a region, as things stand; all 0 where
/// nothing is answered.
pub fn probabilities(policy: &Policy, family: Family, region: RegionId, state: State<'_>) -> Vec<f64> {
    let matrix = policy.matrix(family);
    let (weights, _, _) = matrix.row(region);
    let mut up: Vec<bool> = matrix.servers.iter().map(|server| state.is_up(server.id)).collect();
    if !up.contains(&true) {
        up.fill(policy.when_all_down == WhenAllDown::Answer);
    }
    let share = |weight: u32, up: bool| if up { f64::from(weight) } else { 0.0 };
    let mut shares: Vec<f64> = weights.iter().zip(&up).map(|(weight, up)| share(*weight, *up)).collect();
    let mut total: f64 = shares.iter().sum();
    if total == 0.0 {
        shares = up.iter().map(|up| f64::from(u8::from(*up))).collect();
        total = shares.iter().sum();
    }
    if total > 0.0 {
        shares.iter_mut().for_each(|share| *share /= total);
    }
    shares
}

/// Lists the servers that may be drawn; returns their number.
#[inline]
fn usable(servers: &[Target], state: State<'_>, candidates: &mut [u8; SERVERS_MAX]) -> usize {
    let mut count = 0;
    for (index, server) in servers.iter().enumerate() {
        if !state.any_down() || state.is_up(server.id) {
            candidates[count] = index as u8;
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::partition::Partition;
    use crate::policy::Context;
    use crate::prefix::Prefix;
    use crate::servers::Servers;
    use fastrand::Rng;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    fn policy(text: &str, entries: &[(&str, u32)], servers: &mut Servers) -> Policy {
        let spec = api::Policy::read("p", text).unwrap();
        let entries = entries
            .iter()
            .map(|(prefix, region)| (prefix.parse::<Prefix>().unwrap(), RegionId::new(*region).unwrap()));
        let partition = Arc::new(Partition::compile(entries));
        let mut context = Context {
            region: &|name| name.parse().ok().and_then(RegionId::new),
            partition: &|_| Some(partition.clone()),
            server: &mut |address| servers.add(address),
        };
        Policy::compile(&spec, api::place::Origin { source: "p", text: Some(text) }, &mut context).unwrap()
    }

    const TWO: &str = r#"{"servers":[
        {"address":"192.0.2.1","default":{"probability":1,"ttl":10},"regions":{"1":{"probability":1,"ttl":20}}},
        {"address":"192.0.2.2","default":{"probability":0,"ttl":11}},
        {"address":"2001:db8::1"}]}"#;

    fn first(policy: &Policy, client: &str, servers: &Servers) -> (Option<u8>, u32, u8, Why) {
        let client = client.parse().unwrap();
        let choice = route(policy, Family::V4, client, servers.state(), &mut Rng::with_seed(1));
        (choice.order().first().copied(), choice.ttl, choice.scope, choice.why)
    }

    #[test]
    fn a_regions_row_or_the_default_column_decides() {
        let mut servers = Servers::default();
        let policy = policy(TWO, &[("10.0.0.0/8", 1), ("11.0.0.0/8", 2)], &mut servers);
        assert_eq!(first(&policy, "10.1.2.3", &servers), (Some(0), 20, 8, Why::Region));
        assert_eq!(first(&policy, "11.1.2.3", &servers), (Some(0), 10, 8, Why::Default));
        assert_eq!(first(&policy, "192.0.2.1", &servers), (Some(0), 10, 1, Why::Default));
    }

    #[test]
    fn a_server_that_is_down_is_not_drawn() {
        let mut servers = Servers::default();
        let policy = policy(TWO, &[("10.0.0.0/8", 1)], &mut servers);
        servers.set_down(["192.0.2.1".parse().unwrap()]);
        assert_eq!(first(&policy, "10.1.2.3", &servers), (Some(1), 360, 8, Why::Region));
        assert_eq!(
            probabilities(&policy, Family::V4, RegionId::new(1).unwrap(), servers.state()),
            [0.0, 1.0]
        );
    }

    #[test]
    fn all_down_is_the_policys_choice_for_every_region() {
        for (when, expected) in
            [("answer", (Some(0), 20, 8, Why::AllDown)), ("empty", (None, 0, 0, Why::Empty))]
        {
            let mut servers = Servers::default();
            let text = TWO.replacen('{', &format!("{{\"when_all_down\":\"{when}\","), 1);
            let policy = policy(&text, &[("10.0.0.0/8", 1)], &mut servers);
            servers.set_down(["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()]);
            assert_eq!(first(&policy, "10.1.2.3", &servers), expected, "{when}");
            let v6 =
                route(&policy, Family::V6, "::1".parse().unwrap(), servers.state(), &mut Rng::with_seed(1));
            assert_eq!(v6.order(), [0], "the other family is up");
        }
    }

    #[test]
    fn answers_limits_the_list_and_0_means_all() {
        for (answers, expected) in [(0, 6), (1, 1), (4, 4), (9, 6)] {
            let mut servers = Servers::default();
            let list: Vec<String> = (1..=6).map(|n| format!("{{\"address\":\"192.0.2.{n}\"}}")).collect();
            let text = format!("{{\"answers\":{answers},\"servers\":[{}]}}", list.join(","));
            let policy = policy(&text, &[], &mut servers);
            let choice =
                route(&policy, Family::V4, "::1".parse().unwrap(), servers.state(), &mut Rng::with_seed(2));
            let mut drawn = choice.order().to_vec();
            assert_eq!((drawn.len(), choice.scope), (expected, 0));
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), expected, "each server once");
            let none =
                route(&policy, Family::V6, "::1".parse().unwrap(), servers.state(), &mut Rng::with_seed(2));
            assert_eq!((none.order().len(), none.scope, none.why), (0, 0, Why::NoFamily));
        }
    }

    proptest! {
        /// Nobody inside the scope of an answer could get another row: caches may share it.
        #[test]
        fn a_scope_is_honest(
            entries in proptest::collection::vec((any::<u32>(), 0u8..=32, 0u32..4), 0..12),
            client in any::<u32>(), inside in any::<u32>(),
        ) {
            let mut servers = Servers::default();
            let entries: Vec<(String, u32)> = entries
                .into_iter()
                .map(|(address, length, region)| {
                    (Prefix::new(std::net::Ipv4Addr::from(address).into(), length).unwrap().to_string(), region)
                })
                .collect();
            let entries: Vec<(&str, u32)> = entries.iter().map(|(prefix, region)| (prefix.as_str(), *region)).collect();
            let policy = policy(TWO, &entries, &mut servers);
            let choose = |address: u32| {
                let client = std::net::Ipv4Addr::from(address).into();
                route(&policy, Family::V4, client, servers.state(), &mut Rng::with_seed(3))
            };
            let choice = choose(client);
            let mask = u32::MAX.checked_shl(32 - u32::from(choice.scope)).unwrap_or(0);
            let other = choose(client & mask | inside & !mask);
            prop_assert_eq!((choice.region, choice.scope, choice.ttl), (other.region, other.scope, other.ttl));
        }
    }
}
