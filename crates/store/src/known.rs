//! What this connection has stored of policies. Of one whose entries alone change, which is what control processes do
//! all day, nothing else is looked for or written again.
//!
//! Nobody else writes to the tables while they are open (docs/reference/store.md). Should somebody have done so, a
//! constraint fails, and the commit is made again without what was known.

use std::collections::HashMap;
use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

use api::{Entry, Policy};
use sqlx::{QueryBuilder, Sqlite};

use crate::apply::{ROWS_PER_STATEMENT, finite};

/// How many entries are known of all policies together, at eight octets and a server's address: those of some hundred
/// policies of as many as a statement takes, or of tens of thousands with a few.
const ENTRIES_MAX: usize = 1 << 20;

/// How an entry goes over the one that is there.
const OVER: &str = " DO UPDATE SET probability = excluded.probability, ttl = excluded.ttl; ";

/// The policies that are known, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Known {
    policies: HashMap<String, Kept>,
    /// The entries of all of them.
    entries: usize,
    /// Whether anything was written that is right only if what is known is.
    pub(crate) is_relied_on: bool,
}

/// A policy as the tables have it.
#[derive(Debug)]
pub(crate) struct Kept {
    id: i64,
    policy: Arc<Policy>,
    addresses: Box<[Arc<str>]>,
    /// The regions' ids of all entries, a server after the other.
    regions: Box<[i64]>,
}

impl Known {
    /// Takes that a policy was stored under this id, with these cells. One of more entries than a statement takes is
    /// not kept.
    pub(crate) fn learn(&mut self, id: i64, policy: &Arc<Policy>, cells: &[(IpAddr, i64, Entry)]) {
        let Some(key) = policy.names.first() else { return };
        self.forget(key);
        if policy.servers.len().max(cells.len()) > ROWS_PER_STATEMENT {
            return;
        }
        let kept = Kept {
            id,
            policy: policy.clone(),
            addresses: policy.servers.iter().map(|server| server.address.to_string().into()).collect(),
            regions: cells.iter().map(|(_, region, _)| *region).collect(),
        };
        if self.entries + kept.entries() > ENTRIES_MAX {
            *self = Known { is_relied_on: self.is_relied_on, ..Known::default() };
        }
        self.entries += kept.entries();
        self.policies.insert(key.clone(), kept);
    }

    /// Takes that the policy of this key is not as it was.
    pub(crate) fn forget(&mut self, key: &str) {
        if let Some(kept) = self.policies.remove(key) {
            self.entries -= kept.entries();
        }
    }

    /// Takes that no policy is as it was.
    pub(crate) fn forget_all(&mut self) {
        self.policies.clear();
        self.entries = 0;
    }

    /// The policy in whose place `policy` comes, where entries are all that differs.
    pub(crate) fn alike(&mut self, policy: &Policy) -> Option<&mut Kept> {
        let kept = self.policies.get_mut(policy.names.first()?)?;
        if !kept.is_alike(policy) {
            return None;
        }
        self.is_relied_on = true;
        Some(kept)
    }
}

impl Kept {
    /// Appends what writes the entries of `policy` over those that are there, each statement with a semicolon behind it.
    pub(crate) fn rewrite(&mut self, policy: &Arc<Policy>, sql: &mut QueryBuilder<Sqlite>) {
        let before = mem::replace(&mut self.policy, policy.clone());
        let id = self.id;
        let pairs = || before.servers.iter().zip(&policy.servers);
        let servers = || policy.servers.iter().zip(&self.addresses);
        if pairs().any(|(before, server)| before.default != server.default) {
            sql.push("INSERT INTO policy_server (policy_id, position, address, probability, ttl) ");
            sql.push_values((0_i64..).zip(servers()), |mut row, (position, (server, address))| {
                row.push_bind(id).push_bind(position).push_bind(address.clone());
                row.push_bind(server.default.probability).push_bind(server.default.ttl);
            });
            sql.push(" ON CONFLICT (policy_id, address)").push(OVER);
        }
        if pairs().any(|(before, server)| before.regions != server.regions) {
            let cells =
                servers().flat_map(|(server, address)| server.regions.values().map(move |e| (address, e)));
            sql.push("INSERT INTO policy_row (policy_id, address, region_id, probability, ttl) ");
            sql.push_values(cells.zip(&self.regions), |mut row, ((address, entry), region)| {
                row.push_bind(id).push_bind(address.clone()).push_bind(*region);
                row.push_bind(entry.probability).push_bind(entry.ttl);
            });
            sql.push(" ON CONFLICT (policy_id, address, region_id)").push(OVER);
        }
    }

    fn entries(&self) -> usize {
        self.addresses.len() + self.regions.len()
    }

    /// Whether a policy differs in nothing but entries, and in ones that can be stored.
    fn is_alike(&self, policy: &Policy) -> bool {
        let Policy { answers, order, when_all_down, partition, names, servers } = &*self.policy;
        (answers, order, when_all_down, partition, names)
            == (&policy.answers, &policy.order, &policy.when_all_down, &policy.partition, &policy.names)
            && servers.len() == policy.servers.len()
            && servers.iter().zip(&policy.servers).all(|(before, server)| {
                (before.address, &before.probe) == (server.address, &server.probe)
                    && before.regions.keys().eq(server.regions.keys())
                    && finite(server.default).is_ok()
                    && server.regions.values().all(|entry| finite(*entry).is_ok())
            })
    }
}
