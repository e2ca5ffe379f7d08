//! RRsets of responses: what each server said, and where in its response that stood.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dns::{Class, Opcode, Rcode, Rtype};
use domain::base::message::RecordSection;
use domain::base::name::{ParsedName, ToName};
use domain::base::rdata::ComposeRecordData;
use domain::base::wire::ParseError;
use domain::rdata::ZoneRecordData;

use super::name::{self, Name};
use crate::trace::Message;

/// The most octets that all RRsets may take, with what a table needs for each; those of later responses are left out.
pub const OCTETS_MAX: usize = 1 << 30;

/// What a table needs for an RRset and for a record, in octets, roughly.
const OVERHEAD: usize = 128;

/// What the responses of a trace show: RRsets by the server that gave them.
#[derive(Debug, Default)]
pub struct Seen {
    pub(super) sets: BTreeMap<Key, Set>,
    /// Zones with names that are in them, but have nothing of a type that was asked for.
    pub(super) nodata: BTreeSet<(Name, Name)>,
    /// How much that was, and what was left out.
    pub counts: Counts,
    octets: usize,
}

/// How many responses a trace has, and what was not used of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Responses, those that were left out among them.
    pub responses: u64,
    /// RRsets that were there again with other records: the first of them counts.
    pub differing: u64,
    left_out: [u64; LeftOut::ALL.len()],
}

/// Why nothing of a response was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// A code that says nothing of zones, such as SERVFAIL or REFUSED.
    Failed,
    /// Neither authoritative nor a referral, as a resolver's or a lame server's.
    NotAuthoritative,
    /// No standard query of class IN with one question.
    Other,
    /// Records may be missing.
    Truncated,
    /// A record or the question cannot be read.
    Unreadable,
    /// [`OCTETS_MAX`] was reached.
    Full,
}

/// Where an RRset was found, and who said it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) place: Place,
    /// The zone that has signed it, which is the one that it belongs to.
    pub(super) signer: Option<Name>,
    pub(super) server: IpAddr,
    pub(super) owner: Name,
    pub(super) rtype: Rtype,
    /// What RRSIG records cover; their own type for all others.
    pub(super) covered: Rtype,
}

/// Where in a response an RRset stood: what is said with the most authority first (RFC 2181 §5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// In an authoritative answer, at the name that was asked.
    Answer,
    /// In the authority section of one, as the zone's own: SOA, NS of the apex, proofs.
    Authority,
    /// Where aliases led.
    Chain,
    /// In a referral: NS of what is delegated.
    Cut,
    /// Addresses in the additional section.
    Additional,
}

/// The records of an RRset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) ttl: u32,
    /// In canonical form (RFC 4034 §6.2).
    pub(super) data: BTreeSet<Vec<u8>>,
    /// Which of all RRsets it was, counted from 0.
    pub(super) number: u64,
}

/// A record of a response.
struct Given {
    owner: Name,
    rtype: Rtype,
    ttl: u32,
    data: Vec<u8>,
    signature: Option<Signature>,
}

/// What an RRSIG record says of the RRset that it covers.
struct Signature {
    covered: Rtype,
    labels: usize,
    signer: Name,
}

/// The sections of a response.
struct Sections {
    answer: Vec<Given>,
    authority: Vec<Given>,
    additional: Vec<Given>,
}

impl LeftOut {
    /// Every cause.
    pub const ALL: [LeftOut; 6] = [
        LeftOut::Failed,
        LeftOut::NotAuthoritative,
        LeftOut::Other,
        LeftOut::Truncated,
        LeftOut::Unreadable,
        LeftOut::Full,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            LeftOut::Failed => "failed",
            LeftOut::NotAuthoritative => "not_authoritative",
            LeftOut::Other => "other",
            LeftOut::Truncated => "truncated",
            LeftOut::Unreadable => "unreadable",
            LeftOut::Full => "full",
        }
    }

    /// What such responses are, for people: a fragment.
    pub fn description(self) -> &'static str {
        match self {
            LeftOut::Failed => "with a code that says nothing of zones, such as SERVFAIL or REFUSED",
            LeftOut::NotAuthoritative => "neither authoritative nor a referral",
            LeftOut::Other => "to no plain query of class IN",
            LeftOut::Truncated => "truncated",
            LeftOut::Unreadable => "that cannot be read",
            LeftOut::Full => "that came when what is kept had reached 1 GiB",
        }
    }
}

impl Counts {
    /// How many responses were left out, by cause; causes of none are not there.
    pub fn left_out(&self) -> impl Iterator<Item = (LeftOut, u64)> {
        LeftOut::ALL.into_iter().zip(self.left_out).filter(|(_, count)| *count > 0)
    }
}

impl Seen {
    /// Takes what a message of a trace shows, where it is a response.
    pub fn add(&mut self, message: &Message) {
        if message.is_response() {
            self.counts.responses += 1;
            if let Err(why) = self.take(message) {
                self.counts.left_out[why as usize] += 1;
            }
        }
    }

    fn take(&mut self, response: &Message) -> Result<(), LeftOut> {
        let server = response.server.ip();
        let message = domain::base::Message::from_slice(&response.octets).map_err(|_| LeftOut::Unreadable)?;
        let header = message.header();
        if header.opcode() != Opcode::QUERY {
            return Err(LeftOut::Other);
        }
        if header.tc() {
            return Err(LeftOut::Truncated);
        }
        if !matches!(header.rcode(), Rcode::NOERROR | Rcode::NXDOMAIN) {
            return Err(LeftOut::Failed);
        }
        let mut questions = message.question();
        let asked = match (questions.next(), questions.next()) {
            (Some(Ok(asked)), None) if asked.qclass() == Class::IN => asked,
            (Some(Err(_)), _) | (_, Some(Err(_))) => return Err(LeftOut::Unreadable),
            _ => return Err(LeftOut::Other),
        };
        let qname = folded(asked.qname());
        let Sections { answer, authority, additional } =
            sections(message).map_err(|_| LeftOut::Unreadable)?;
        let is_there = |section: &[Given], rtype| section.iter().any(|record| record.rtype == rtype);
        let soa = authority.iter().find(|record| record.rtype == Rtype::SOA);
        let is_referral = answer.is_empty() && soa.is_none() && is_there(&authority, Rtype::NS);
        if !header.aa() && !is_referral {
            return Err(LeftOut::NotAuthoritative);
        }
        if self.octets > OCTETS_MAX {
            return Err(LeftOut::Full);
        }
        let last = last_of_chain(&qname, asked.qtype(), &answer);
        let is_answered = answer.iter().any(|record| {
            *record.owner == *last && (record.rtype == asked.qtype() || asked.qtype() == Rtype::ANY)
        });
        // Of DS it is not said whether the name is in the zone or the zone's own.
        if let Some(soa) = soa
            && header.rcode() == Rcode::NOERROR
            && !is_answered
            && asked.qtype() != Rtype::DS
            && dns::name::is_within(&last, &soa.owner)
        {
            let octets = soa.owner.len() + last.len() + OVERHEAD;
            self.octets += if self.nodata.insert((soa.owner.clone(), last)) { octets } else { 0 };
        }
        // Behind an alias that leads into what is delegated, the NS records are a referral's.
        let of_ns = if is_answered || soa.is_some() { Place::Authority } else { Place::Cut };
        self.add_section(
            server,
            &answer,
            |owner, _| {
                if *owner == *qname { Place::Answer } else { Place::Chain }
            },
        );
        self.add_section(
            server,
            &authority,
            |_, rtype| {
                if rtype == Rtype::NS { of_ns } else { Place::Authority }
            },
        );
        self.add_section(server, &additional, |_, _| Place::Additional);
        Ok(())
    }

    fn add_section(&mut self, server: IpAddr, section: &[Given], place_of: impl Fn(&[u8], Rtype) -> Place) {
        let mut signatures = BTreeMap::new();
        for record in section {
            if let Some(signature) = &record.signature {
                signatures.entry((&record.owner, signature.covered)).or_insert(signature);
            }
        }
        let dnames = section.iter().filter(|record| record.rtype == Rtype::DNAME);
        let dnames: BTreeSet<&[u8]> = dnames.map(|record| &*record.owner).collect();
        let mut sets: BTreeMap<Key, (u32, BTreeSet<Vec<u8>>)> = BTreeMap::new();
        for record in section {
            let covered = record.signature.as_ref().map_or(record.rtype, |signature| signature.covered);
            // Made from a DNAME record above it, it is none of the zone's (RFC 6672 §3.1).
            if covered == Rtype::CNAME
                && name::upward(&record.owner).skip(1).any(|above| dnames.contains(above))
            {
                continue;
            }
            let signature = signatures.get(&(&record.owner, covered)).copied();
            // With fewer labels than its owner, it was made from a wildcard (RFC 4035 §5.3.4).
            let owner = match signature.map(|signature| signature.labels) {
                Some(signed) if signed < labels_signed(&record.owner) => wildcard(&record.owner, signed),
                _ => record.owner.clone(),
            };
            let key = Key {
                place: place_of(&record.owner, covered),
                signer: signature.map(|signature| signature.signer.clone()),
                server,
                owner,
                rtype: record.rtype,
                covered,
            };
            let (ttl, data) = sets.entry(key).or_insert_with(|| (record.ttl, BTreeSet::new()));
            *ttl = record.ttl.min(*ttl);
            data.insert(record.data.clone());
        }
        for (key, (ttl, data)) in sets {
            let number = self.sets.len() as u64;
            match self.sets.entry(key) {
                Entry::Occupied(there) => {
                    let is_other = there.get().data != data && there.key().rtype != Rtype::RRSIG;
                    self.counts.differing += u64::from(is_other);
                }
                Entry::Vacant(none) => {
                    let octets: usize = data.iter().map(|data| data.len() + OVERHEAD).sum();
                    self.octets += octets + none.key().owner.len() + OVERHEAD;
                    none.insert(Set { ttl, data, number });
                }
            }
        }
    }
}

/// Where the aliases of an answer lead.
fn last_of_chain(qname: &[u8], qtype: Rtype, answer: &[Given]) -> Name {
    let mut last = Name::from(qname);
    if matches!(qtype, Rtype::CNAME | Rtype::ANY) {
        return last;
    }
    let aliases = answer.iter().filter(|record| record.rtype == Rtype::CNAME);
    let mut aliases: BTreeMap<&[u8], &[u8]> = aliases.map(|alias| (&*alias.owner, &*alias.data)).collect();
    // Each is followed once, so that a circle ends.
    while let Some(target) = aliases.remove(&*last) {
        last = target.into();
    }
    last
}

/// The labels that a signature counts: not the root's, nor that of a wildcard (RFC 4034 §3.1.3).
fn labels_signed(owner: &[u8]) -> usize {
    name::labels(owner) - usize::from(owner.starts_with(b"\x01*"))
}

/// The wildcard above a name that has so many labels below it.
fn wildcard(owner: &[u8], labels: usize) -> Name {
    let encloser = name::upward(owner).nth(name::labels(owner) - labels).expect("it has more labels");
    name::below(&["*"], encloser).expect("a label of one octet stands for one or more")
}

fn sections(message: &domain::base::Message<[u8]>) -> Result<Sections, ParseError> {
    let of_addresses = |rtype| matches!(rtype, Rtype::A | Rtype::AAAA);
    let of_authority =
        |rtype| matches!(rtype, Rtype::SOA | Rtype::NS | Rtype::DS | Rtype::NSEC | Rtype::NSEC3);
    Ok(Sections {
        answer: records(message.answer()?, |_| true)?,
        authority: records(message.authority()?, of_authority)?,
        additional: records(message.additional()?, of_addresses)?,
    })
}

/// The records of a section, signatures with what they cover.
fn records(
    section: RecordSection<'_, [u8]>,
    is_wanted: impl Fn(Rtype) -> bool,
) -> Result<Vec<Given>, ParseError> {
    let mut given = Vec::new();
    for record in section.limit_to::<ZoneRecordData<_, ParsedName<_>>>() {
        let record = record?;
        let signature = match record.data() {
            ZoneRecordData::Rrsig(rrsig) => Some(Signature {
                covered: rrsig.type_covered(),
                labels: rrsig.labels().into(),
                signer: folded(rrsig.signer_name()),
            }),
            _ => None,
        };
        let (owner, rtype) = (folded(record.owner()), record.rtype());
        // A signature with more labels than its owner, or by no zone above it, is of nothing.
        let is_plausible = |signature: &Signature| {
            signature.labels <= labels_signed(&owner) && dns::name::is_within(&owner, &signature.signer)
        };
        let is_sound = signature.as_ref().is_none_or(is_plausible);
        let wanted = is_wanted(signature.as_ref().map_or(rtype, |signature| signature.covered));
        if record.class() == Class::IN && wanted && is_sound {
            let mut data = Vec::new();
            let composed = record.data().compose_canonical_rdata(&mut data);
            composed.unwrap_or_else(|infallible| match infallible {});
            given.push(Given { owner, rtype, ttl: record.ttl().as_secs(), data, signature });
        }
    }
    Ok(given)
}

fn folded(name: &impl ToName) -> Name {
    name.to_canonical_name::<Vec<u8>>().into_octets().into()
}
