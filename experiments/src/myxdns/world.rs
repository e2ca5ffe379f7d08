//! Section 7's world on a virtual clock: clusters of browsers behind a caching resolver each, two servers, a control
//! process, a name server.
//!
//! ```text
//! requests -> server: busy over quota -> mean of an interval -> control::Rule -> api::Policy -> routing::Policy
//!    ^                                                                                              |
//!    '------------- each cluster's resolver, once a TTL: routing::route <---------------------------'
//! ```
//! From the load to the answer all is the code of `pointsman control` and `pointsman serve`; clients, servers and time
//! are modelled, a second at a time.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use api::Policy;
use api::place::Origin;
use control::load::Scale;
use control::{Algorithm, Load, Rule, ServerOptions, matrix};
use fastrand::Rng;
use routing::policy::{Context as Compiling, Family};
use routing::{Partition, RegionId, State, route};

/// How long resolvers keep an answer, in seconds.
pub(super) const TTL: u64 = 30;

/// How long apart rounds of the control process are, in seconds; "this interval varies slightly", by one here.
pub(super) const INTERVAL: u64 = 10;

/// The paper's thresholds.
pub(super) const SCALE: Scale = Scale { threshold: 0.5, low: 0.4, high: 0.6, weight: 1.0 };

/// The paper's clusters.
pub(super) const CLUSTERS: usize = 20;

/// Requests of a cluster in a second, at least and at most.
pub(super) const REQUESTS: (u32, u32) = (1, 3);

/// Seconds of work after which a server's clients have given up.
pub(super) const BACKLOG_MAX: f64 = 5.0;

/// What the policy is called.
const NAME: &str = "www.example.com.";

/// The region of all clients.
pub(super) const REGION: &str = "clients";

/// The partition with that region, whose first two octets all clients have.
const PREFIX: [u8; 2] = [10, 0];

/// What is chosen of a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// What all clients demand, in thresholds of one server.
    pub(super) demand: f64,
    pub(super) clusters: usize,
    pub(super) seed: u64,
}

/// What one second was like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Second {
    /// Each server's probability.
    pub(super) shares: [f64; 2],
    /// Each server's busy time over its quota.
    pub(super) loads: [f64; 2],
    /// Requests to each server.
    pub(super) requests: [u32; 2],
}

/// A resolver and the clients behind it.
struct Cluster {
    address: IpAddr,
    server: usize,
    expires: u64,
    /// What its resolver's answers are drawn by, and its requests: each cluster has its own, so that two algorithms
    /// meet the same clients.
    answers: Rng,
    requests: Rng,
}

/// The name server, as far as one policy goes.
struct Names {
    partition: Arc<Partition>,
    region: RegionId,
    compiled: routing::Policy,
}

/// Lets so many seconds pass under an algorithm; returns each of them.
///
/// # Errors
/// Where the policy of the control process is none for the name server.
pub(super) fn pass(setting: &Setting, algorithm: Algorithm, seconds: u64) -> Result<Vec<Second>> {
    let mut rng = Rng::with_seed(setting.seed);
    let mut clusters = clusters(setting.clusters, &mut rng);
    let mut rule = Rule { algorithm, ttl: TTL as u32, regions: vec![REGION.to_owned()], servers: servers() };
    let mut policy = first_policy()?;
    let columns = rule.columns(&policy);
    let mut names = Names::new(&policy)?;
    let mean = f64::from(REQUESTS.0 + REQUESTS.1) / 2.0 * setting.clusters as f64;
    let work = setting.demand * SCALE.threshold / mean;
    let (mut backlog, mut busy, mut measured) = ([0.0_f64; 2], [0.0_f64; 2], 0_u64);
    let mut round = INTERVAL;
    let mut run = Vec::new();
    for now in 0..seconds {
        let mut requests = [0; 2];
        for cluster in &mut clusters {
            if now >= cluster.expires {
                (cluster.server, cluster.expires) = names.answer(cluster, now);
            }
            requests[cluster.server] += cluster.requests.u32(REQUESTS.0..=REQUESTS.1);
        }
        let mut loads = [0.0; 2];
        for server in 0..2 {
            let waiting = backlog[server] + f64::from(requests[server]) * work;
            loads[server] = waiting.min(1.0);
            backlog[server] = (waiting - loads[server]).min(BACKLOG_MAX);
            busy[server] += loads[server];
        }
        let shares = matrix::shares(&policy, &columns, &rule.regions);
        run.push(Second { shares: [shares[1][0], shares[1][1]], loads, requests });
        if now + 1 >= round {
            let length = (now + 1 - measured) as f64;
            let loads = busy.map(|busy| Load::of(&[(SCALE, Some(busy / length))]));
            policy = rule.decide(Duration::from_secs(now + 1), &policy, &columns, &loads).policy;
            names.compile(&policy)?;
            (busy, measured) = ([0.0; 2], now + 1);
            round = now + 1 + rng.u64(INTERVAL - 1..=INTERVAL + 1);
        }
    }
    Ok(run)
}

fn clusters(count: usize, rng: &mut Rng) -> Vec<Cluster> {
    let cluster = |number: usize| Cluster {
        address: Ipv4Addr::new(PREFIX[0], PREFIX[1], (number / 256) as u8, (number % 256) as u8).into(),
        // They are there already, and their answers expire at different times ("staggered").
        server: number % 2,
        expires: rng.u64(0..TTL),
        answers: rng.fork(),
        requests: rng.fork(),
    };
    (0..count).map(cluster).collect()
}

/// The paper's servers: the first is closer to all clients.
fn servers() -> Vec<ServerOptions> {
    let server = |number: u8| ServerOptions {
        targets: vec![Ipv4Addr::new(192, 0, 2, number).into()],
        capacity: 1.0,
        ranks: vec![number.into()],
    };
    vec![server(1), server(2)]
}

/// Both servers alike, until somebody decides.
fn first_policy() -> Result<Policy> {
    let servers: Vec<_> = servers().into_iter().flat_map(|server| server.targets).collect();
    let text = serde_json::json!({"names": [NAME], "servers": servers}).to_string();
    Policy::read(NAME, &text).map_err(|faults| anyhow!("the first policy: {faults}"))
}

impl Names {
    fn new(policy: &Policy) -> Result<Names> {
        let region = RegionId::new(1).context("one is a region")?;
        let prefix = format!("{}.{}.0.0/16", PREFIX[0], PREFIX[1]).parse().ok().context("a prefix")?;
        let partition = Arc::new(Partition::compile([(prefix, region)]));
        let compiled = compile(policy, &partition, region)?;
        Ok(Names { partition, region, compiled })
    }

    fn compile(&mut self, policy: &Policy) -> Result<()> {
        self.compiled = compile(policy, &self.partition, self.region)?;
        Ok(())
    }

    /// Which server a cluster's resolver is told, and until when it keeps that.
    fn answer(&self, cluster: &mut Cluster, now: u64) -> (usize, u64) {
        let choice = route(&self.compiled, Family::V4, cluster.address, State::ALL_UP, &mut cluster.answers);
        (choice.order().first().map_or(0, |first| usize::from(*first)), now + u64::from(choice.ttl).min(TTL))
    }
}

fn compile(policy: &Policy, partition: &Arc<Partition>, region: RegionId) -> Result<routing::Policy> {
    let compiling = Compiling {
        region: &|name| (name == REGION).then_some(region),
        partition: &|_| Some(partition.clone()),
    };
    let origin = Origin { source: NAME, text: None };
    routing::Policy::compile(policy, origin, &compiling).map_err(|faults| anyhow!("{faults}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_ask_for_arrives_and_costs_what_it_should() {
        let setting = Setting { demand: 1.6, clusters: CLUSTERS, seed: 5 };
        let run = pass(&setting, Algorithm::First, 300).expect("a policy");
        let mean = |of: &dyn Fn(&Second) -> f64| run.iter().map(of).sum::<f64>() / run.len() as f64;
        assert!((mean(&|second| f64::from(second.requests.iter().sum::<u32>())) - 40.0).abs() < 1.0);
        assert!((mean(&|second| second.loads.iter().sum()) - 0.8).abs() < 0.03);
        assert!(run.iter().all(|second| (second.shares[0] + second.shares[1] - 1.0).abs() < 1e-9));
        let again = pass(&setting, Algorithm::First, 300).expect("a policy");
        assert!(run.iter().zip(&again).all(|(a, b)| a.requests == b.requests), "a seed is a run");
    }
}
