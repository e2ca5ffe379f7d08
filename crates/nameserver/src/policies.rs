//! The policies of a generation, found by number: a name of a zone holds its policy's.
//!
//! So a policy's rows change without touching any name, whether it has one or a million.

use std::sync::Arc;

use dns::Folded;
use routing::policy::TTL_DEFAULT;

use crate::health::Slot;
use crate::names::NameHash;
use crate::zone::PolicyId;

/// How many policies a page holds: a change copies one page of pointers.
const PAGE: usize = 64;

/// A policy in force.
pub struct Steered {
    /// As it was given: names and regions as text.
    pub spec: Arc<api::Policy>,
    /// Its names in folded wire form; the first is its key.
    pub names: Arc<[Box<[u8]>]>,
    /// As it is executed.
    pub policy: routing::Policy,
    /// The names of its servers in wire form, in their order, where its own are aliases.
    pub cnames: Box<[Box<[u8]>]>,
    /// The slots of its servers' probes, which stay its own as long as anybody may read their bits.
    pub slots: Box<[Arc<Slot>]>,
    /// The hash of its key, by which its answers are counted.
    pub key_hash: u64,
    /// For how long it may be remembered at most that none of its servers can be drawn, in seconds ([`ttl_min`]).
    pub empty_ttl: u32,
}

impl Steered {
    /// The policy's key: its first name.
    pub fn key(&self) -> &[u8] {
        &self.names[0]
    }

    /// The name of a server by its hash, where it is one.
    pub fn cname(&self, hash: u64, hashed_by: &NameHash) -> Option<String> {
        let has_it = |wire: &[u8]| hashed_by.of(&Folded::read(wire).expect("it is a name")) == hash;
        self.cnames.iter().find(|wire| has_it(wire)).map(|wire| dns::name::to_text(wire))
    }
}

/// The least TTL that a policy has for any client, in seconds.
pub fn ttl_min(spec: &api::Policy) -> u32 {
    let entries = spec.servers.iter().flat_map(|server| server.regions.values().chain([&server.default]));
    entries.map(|entry| entry.ttl.unwrap_or(TTL_DEFAULT)).min().unwrap_or(TTL_DEFAULT)
}

/// All policies of a generation.
#[derive(Clone, Default)]
pub struct Policies {
    pages: Vec<Arc<[Option<Arc<Steered>>; PAGE]>>,
    free: Arc<Vec<u32>>,
    length: usize,
}

impl Policies {
    /// The policy of a number.
    #[inline]
    pub fn get(&self, id: PolicyId) -> Option<&Arc<Steered>> {
        let index = id.get() as usize - 1;
        self.pages.get(index / PAGE)?[index % PAGE].as_ref()
    }

    /// How many policies there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Every policy with its number.
    pub fn iter(&self) -> impl Iterator<Item = (PolicyId, &Arc<Steered>)> {
        let slots = self.pages.iter().flat_map(|page| page.iter());
        slots.enumerate().filter_map(|(index, slot)| {
            let id = PolicyId::new(index as u32 + 1).expect("one more than an index is not zero");
            slot.as_ref().map(|steered| (id, steered))
        })
    }

    /// Adds a policy; returns its number.
    ///
    /// # Panics
    /// Beyond 2^32 - 2 policies.
    pub fn add(&mut self, steered: Arc<Steered>) -> PolicyId {
        if self.free.is_empty() {
            let first = u32::try_from(self.pages.len() * PAGE).expect("policies are numbered in 32 bits");
            self.pages.push(Arc::new([const { None }; PAGE]));
            // The lowest number is taken first.
            Arc::make_mut(&mut self.free).extend((first..first + PAGE as u32).rev());
        }
        let index = Arc::make_mut(&mut self.free).pop().expect("a page was added");
        let id = PolicyId::new(index + 1).expect("one more than an index is not zero");
        self.set(id, Some(steered));
        self.length += 1;
        id
    }

    /// Puts another policy in the place of one.
    pub fn replace(&mut self, id: PolicyId, steered: Arc<Steered>) {
        self.set(id, Some(steered));
    }

    /// Removes a policy; its number may be given again once no name has it.
    pub fn remove(&mut self, id: PolicyId) {
        if self.get(id).is_some() {
            self.set(id, None);
            Arc::make_mut(&mut self.free).push(id.get() - 1);
            self.length -= 1;
        }
    }

    fn set(&mut self, id: PolicyId, steered: Option<Arc<Steered>>) {
        let index = id.get() as usize - 1;
        Arc::make_mut(&mut self.pages[index / PAGE])[index % PAGE] = steered;
    }
}
