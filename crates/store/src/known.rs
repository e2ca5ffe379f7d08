//! What this connection has stored of policies. Of one whose entries alone change, which is what control processes do
//! all day, nothing else is looked for or written again.
//!
//! Nobody else writes to the tables while they are open (docs/reference/store.md). Should somebody have done so, an entry
//! is not there or a constraint fails, and the commit is made again without what was known.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use api::{Entry, Policy, Target};
use rusqlite::{CachedStatement, Connection};

use crate::refused::{Failure, finite};

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
    pub(crate) fn learn(&mut self, id: i64, policy: &Arc<Policy>, cells: &[(Target, i64, Entry)]) {
        let Some(key) = policy.names.first() else { return };
        self.forget(key);
        let kept = Kept {
            id,
            policy: policy.clone(),
            addresses: policy.servers.iter().map(|server| server.target.to_string().into()).collect(),
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
        // What is alike for several rows is given to the statements once: SQLite copies each text.
        default.raw_bind_parameter(3, self.id)?;
        cell.raw_bind_parameter(3, self.id)?;
        let mut regions = self.regions.iter();
        for ((before, server), address) in before.servers.iter().zip(&policy.servers).zip(&self.addresses) {
            if before.default != server.default {
                default.raw_bind_parameter(4, address)?;
                write_over(&mut default, server.default)?;
            }
            let entries = before.regions.values().zip(server.regions.values()).zip(&mut regions);
            let mut differing = entries.filter(|((before, entry), _)| before != entry).peekable();
            if differing.peek().is_some() {
                cell.raw_bind_parameter(4, address)?;
            }
            for ((_, entry), region) in differing {
                cell.raw_bind_parameter(5, region)?;
                write_over(&mut cell, *entry)?;
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
                (&before.target, &before.probe) == (&server.target, &server.probe)
                    && before.regions.keys().eq(server.regions.keys())
                    && finite(server.default).is_ok()
                    && server.regions.values().all(|entry| finite(*entry).is_ok())
            })
    }
}

/// Writes an entry over the one of the row that there must be, which the statement has been told.
fn write_over(
    statement: &mut CachedStatement<'_>,
    Entry { probability, ttl }: Entry,
) -> Result<(), Failure<rusqlite::Error>> {
    statement.raw_bind_parameter(1, probability)?;
    statement.raw_bind_parameter(2, ttl)?;
    match statement.raw_execute()? {
        1 => Ok(()),
        rows => Err(Failure::Refused(format!("{rows} rows where there was one entry"))),
    }
}
