//! What if: recorded queries changed, the same way each time.
//!
//! ```text
//! do=100%,edns=1232@50%,suffix=example.com:example.net
//! ```
//!
//! In reading order:
//! - [`Mutation`]: a list of changes, and [`Mutation::apply`], which makes them in one query.
//! - [`grammar`]: how a list is written, and [`grammar::Change`], what there is to change.
//! - [`Tally`]: what was changed, counted.
//! - [`labelled`]: one label more in front of a name, for copies of a client.
//! - below: `parts` (a query taken apart and put together), `draw` (who is in a share).
//!
//! # Who is in a share
//! Every draw follows from the seed, the change's place in the list and one key alone, so that the order in
//! which queries are changed, and the number of threads, make no difference. What belongs to a client's
//! software (DO, RD, AD, CD, EDNS, client subnet) is drawn by the client's address: a client has it in all of
//! its queries or in none, and the share is one of clients. Names and types are drawn by the query's index.

mod draw;
pub mod grammar;
mod parts;

use std::net::IpAddr;

use dns::ClientSubnet;
use dns::edns::CLIENT_SUBNET;
use dns::name::NAME_MAX;

use crate::trace::Message;
use draw::Draw;
pub use grammar::{Change, Flag, Subnet};
use parts::{Parts, Whole};

/// How many bits of a client's address client subnet gets: RFC 7871 §11.1 has no more.
const SOURCE_V4: u8 = 24;
const SOURCE_V6: u8 = 56;

/// Changes, in the order in which they are made, and the seed of who is in their shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    changes: Vec<Change>,
    seed: u64,
}

/// What came of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A response, which is never changed.
    Response,
    /// [`dns::Query::read`] refuses it; nothing is changed.
    Unreadable,
    /// It has records beside OPT, such as a signature (TSIG) that a change would break; nothing is changed.
    Records,
    /// What each of the changes did.
    Query(Vec<Effect>),
}

/// What one change did to one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The query is not in the share; of a flag: the query is without it, as it was.
    Out,
    /// It is in the share, and was so before.
    AsItWas,
    /// It is now different. A flag is taken from those outside of its share, too: `is_in` tells them apart.
    Changed {
        /// Whether the query is in the share.
        is_in: bool,
    },
    /// The name would be longer than 255 octets.
    TooLong,
}

/// How often what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Queries, all of them.
    pub queries: u64,
    /// Queries that cannot be read.
    pub unreadable: u64,
    /// Queries with records beside OPT.
    pub records: u64,
    /// Queries in which anything changed.
    pub changed: u64,
    /// For each of the changes, in their order.
    pub changes: Vec<ChangeTally>,
}

/// How often what came of one change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeTally {
    /// Queries in the share.
    pub drawn: u64,
    /// Queries that are now different.
    pub changed: u64,
    /// Queries whose name would be too long.
    pub too_long: u64,
}

impl Tally {
    /// Everything that is counted, always in the same order.
    pub(crate) fn counters(&mut self) -> impl Iterator<Item = &mut u64> {
        let Tally { queries, unreadable, records, changed, changes } = self;
        let each = changes.iter_mut().flat_map(|change| {
            let ChangeTally { drawn, changed, too_long } = change;
            [drawn, changed, too_long]
        });
        [queries, unreadable, records, changed].into_iter().chain(each)
    }
}

impl Mutation {
    /// Reads a list of changes, as [`grammar`] has it.
    ///
    /// # Errors
    /// Each change that is none, on a line of its own, and what is expected.
    pub fn parse(text: &str, seed: u64) -> Result<Mutation, String> {
        Ok(Mutation { changes: grammar::changes(text)?, seed })
    }

    /// The changes, in the order in which they are made.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The seed of all draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Makes the changes in a message; `index` counts the trace's messages (or its queries), from wherever:
    /// the same index draws the same for names and types.
    ///
    /// Where nothing changes, not an octet does. Where something does, octets behind the last record are lost.
    pub fn apply(&self, index: u64, mut message: Message) -> (Message, Outcome) {
        if message.is_response() {
            return (message, Outcome::Response);
        }
        let mut parts = match Whole::read(&message) {
            Whole::Parts(parts) => parts,
            Whole::Unreadable => return (message, Outcome::Unreadable),
            Whole::Records => return (message, Outcome::Records),
        };
        let client = message.client.ip();
        let effects = (0..).zip(&self.changes).map(|(place, change)| {
            let draw = Draw::new(self.seed, place);
            apply(change, draw, index, client, &mut parts)
        });
        let effects: Vec<Effect> = effects.collect();
        if effects.iter().any(|effect| matches!(effect, Effect::Changed { .. })) {
            message.octets = parts.written();
        }
        (message, Outcome::Query(effects))
    }
}

/// Puts a label of at most 63 octets in front of a query's name; false, and nothing changed, where the name would be
/// longer than 255 octets or [`Mutation::apply`] would leave the query alone.
pub fn labelled(message: &mut Message, label: &str) -> bool {
    let Whole::Parts(mut parts) = Whole::read(message) else { return false };
    let is_done = prepend_label(label, &mut parts);
    if is_done {
        message.octets = parts.written();
    }
    is_done
}

fn apply(change: &Change, draw: Draw, index: u64, client: IpAddr, parts: &mut Parts) -> Effect {
    let share = change.share();
    let is_in = match change.is_by_client() {
        true => draw.is_in_by_client(client, share),
        false => draw.is_in_by_index(index, share),
    };
    if let Change::Flag { flag, .. } = change {
        return if set(*flag, is_in, parts) {
            Effect::Changed { is_in }
        } else if is_in {
            Effect::AsItWas
        } else {
            Effect::Out
        };
    }
    if !is_in {
        return Effect::Out;
    }
    let before = parts.clone();
    match change {
        // Done above.
        Change::Flag { .. } => {}
        Change::Edns { size: Some(size), .. } => parts.opt_or_new().size = *size,
        Change::Edns { size: None, .. } => parts.opt = None,
        Change::Subnet { subnet, .. } => put_subnet(*subnet, client, parts),
        Change::Unique { .. } => {
            let label = format!("{:016x}", draw.label(index));
            if !prepend_label(&label, parts) {
                return Effect::TooLong;
            }
        }
        Change::Prefix { labels, .. } => {
            if !prepend(labels, parts) {
                return Effect::TooLong;
            }
        }
        Change::Suffix { from, to, .. } => {
            if let Some(kept) = outside(&parts.name, from) {
                if kept + to.len() > NAME_MAX {
                    return Effect::TooLong;
                }
                parts.name.truncate(kept);
                parts.name.extend_from_slice(to);
            }
        }
        Change::Type { rtype, .. } => parts.rtype = rtype.to_int(),
    }
    if *parts == before { Effect::AsItWas } else { Effect::Changed { is_in } }
}

/// Sets a flag or takes it away; returns whether that changed anything.
fn set(flag: Flag, is_set: bool, parts: &mut Parts) -> bool {
    let field = match flag {
        Flag::DnssecOk => match &mut parts.opt {
            Some(opt) => &mut opt.flags,
            None if !is_set => return false,
            None => &mut parts.opt_or_new().flags,
        },
        Flag::Recursion | Flag::Authentic | Flag::CheckingDisabled => &mut parts.flags,
    };
    let before = *field;
    *field = if is_set { before | flag.bit() } else { before & !flag.bit() };
    *field != before
}

fn put_subnet(subnet: Subnet, client: IpAddr, parts: &mut Parts) {
    let subnet = match subnet {
        Subnet::None => None,
        Subnet::Network(address, length) => Some(ClientSubnet::new(address, length)),
        Subnet::Client => Some(match client.to_canonical() {
            client @ IpAddr::V4(_) => ClientSubnet::new(client, SOURCE_V4),
            client @ IpAddr::V6(_) => ClientSubnet::new(client, SOURCE_V6),
        }),
    };
    match (subnet, &mut parts.opt) {
        (None, None) => {}
        (None, Some(opt)) => opt.remove(CLIENT_SUBNET),
        (Some(subnet), _) => {
            let opt = parts.opt_or_new();
            opt.remove(CLIENT_SUBNET);
            let mut option = [0; ClientSubnet::WRITTEN_MAX];
            // A query's scope is 0 (RFC 7871 §6).
            let length = subnet.write(0, &mut option).unwrap_or(0);
            opt.options.extend_from_slice(&option[..length]);
        }
    }
}

fn prepend_label(label: &str, parts: &mut Parts) -> bool {
    prepend(&[&[label.len() as u8], label.as_bytes()].concat(), parts)
}

/// Puts labels before the name; `false` where it would be too long.
fn prepend(labels: &[u8], parts: &mut Parts) -> bool {
    if labels.len() + parts.name.len() > NAME_MAX {
        return false;
    }
    parts.name.splice(..0, labels.iter().copied());
    true
}

/// How many octets of a name stand before a suffix; `None` where it does not end so.
fn outside(name: &[u8], suffix: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        if name.get(at..)?.eq_ignore_ascii_case(suffix) {
            return Some(at);
        }
        match *name.get(at)? {
            0 => return None,
            length => at += usize::from(length) + 1,
        }
    }
}

impl Tally {
    /// Nothing yet.
    pub fn new(mutation: &Mutation) -> Tally {
        Tally { changes: vec![ChangeTally::default(); mutation.changes.len()], ..Tally::default() }
    }

    /// Adds what came of a message; responses are not counted.
    pub fn add(&mut self, outcome: &Outcome) {
        self.queries += u64::from(*outcome != Outcome::Response);
        match outcome {
            Outcome::Response => {}
            Outcome::Unreadable => self.unreadable += 1,
            Outcome::Records => self.records += 1,
            Outcome::Query(effects) => {
                self.changed += u64::from(effects.iter().any(|effect| effect.is_change()));
                for (tally, effect) in self.changes.iter_mut().zip(effects) {
                    tally.drawn += u64::from(effect.is_in());
                    tally.changed += u64::from(effect.is_change());
                    tally.too_long += u64::from(*effect == Effect::TooLong);
                }
            }
        }
    }
}

impl Effect {
    fn is_change(self) -> bool {
        matches!(self, Effect::Changed { .. })
    }

    fn is_in(self) -> bool {
        !matches!(self, Effect::Out | Effect::Changed { is_in: false })
    }
}

#[cfg(test)]
mod tests;
