//! What this connection has stored of policies. Of one whose entries alone change, which is what control processes do
//! all day, nothing else is looked for or written again.
//!
//! Nobody else writes to the tables while they are open (docs/reference/store.md). Should somebody have done so, an entry
//! is not there or a constraint fails, and the commit is made again without what was known.

use std::collections::HashMap;
use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

use api::{Entry, Policy};
use rusqlite::{CachedStatement, Connection, ToSql};

use crate::apply::{Failure, finite};

/// How many entries are known of all policies together, at eight octets and a server's address: those of a dozen
/// policies as large as the API takes, or of tens of thousands with a few.
const ENTRIES_MAX: usize = 1 << 20;

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
    /// Takes that a policy was stored under this id, with these cells.
    pub(crate) fn learn(&mut self, id: i64, policy: &Arc<Policy>, cells: &[(IpAddr, i64, Entry)]) {
        let Some(key) = policy.names.first() else { return };
        self.forget(key);
        let kept = Kept {
            id,
            policy: policy.clone(),
            addresses: policy.servers.iter().map(|server| server.address.to_string().into()).collect(),
            regions: cells.iter().map(|(_, region, _)| *region).collect(),
        };
        if self.entries + kept.entries() > ENTRIES_MAX {
            self.forget_all();
        }
        if kept.entries() > ENTRIES_MAX {
            return;
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
    /// Writes those entries of `policy` that differ over the ones that are there.
    ///
    /// # Errors
    /// A refusal also where the tables are not as they are known to be.
    pub(crate) fn rewrite(
        &mut self,
        policy: &Arc<Policy>,
        sql: &Connection,
    ) -> Result<(), Failure<rusqlite::Error>> {
        let before = mem::replace(&mut self.policy, policy.clone());
        let mut default = sql.prepare_cached(
            "UPDATE policy_server SET probability = ?, ttl = ? WHERE policy_id = ? AND address = ?",
        )?;
        let mut cell = sql.prepare_cached(
            "UPDATE policy_row SET probability = ?, ttl = ? WHERE policy_id = ? AND address = ? AND region_id = ?",
        )?;
        let mut regions = self.regions.iter();
        for ((before, server), address) in before.servers.iter().zip(&policy.servers).zip(&self.addresses) {
            if before.default != server.default {
                let Entry { probability, ttl } = server.default;
                write_over(&mut default, &[&probability, &ttl, &self.id, address])?;
            }
            let entries = before.regions.values().zip(server.regions.values()).zip(&mut regions);
            for ((_, entry), region) in entries.filter(|((before, entry), _)| before != entry) {
                let Entry { probability, ttl } = entry;
                write_over(&mut cell, &[probability, ttl, &self.id, address, region])?;
            }
        }
        Ok(())
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

/// Changes the one row that there must be.
fn write_over(
    statement: &mut CachedStatement<'_>,
    values: &[&dyn ToSql],
) -> Result<(), Failure<rusqlite::Error>> {
    match statement.execute(values)? {
        1 => Ok(()),
        rows => Err(Failure::Refused(format!("{rows} rows where there was one entry"))),
    }
}
