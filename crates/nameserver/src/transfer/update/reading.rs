//! An update as it stands in a message (RFC 2136 §2). Pure.

use dns::{Class, Folded, Rcode, Rtype};
use domain::base::{Message, ParsedRecord};

use super::super::incoming::{data, owner};
use crate::zone::{Operation, Prerequisite, Update};

/// The largest TTL, in seconds.
const TTL_MAX: u32 = i32::MAX as u32;

/// Reads what stands behind the zone section of a message: prerequisites and what is to be changed.
///
/// # Errors
/// FORMERR, or NOTZONE for a name outside of the zone (RFC 2136 §3.2.5, §3.4.1.3).
pub(super) fn read(zone: &Folded, message: &[u8]) -> Result<Update, Rcode> {
    let message = Message::from_slice(message).map_err(|_| Rcode::FORMERR)?;
    let mut update = Update::default();
    for record in message.answer().map_err(|_| Rcode::FORMERR)? {
        update.prerequisites.push(prerequisite(zone, &record.map_err(|_| Rcode::FORMERR)?)?);
    }
    for record in message.authority().map_err(|_| Rcode::FORMERR)? {
        update.operations.push(operation(zone, &record.map_err(|_| Rcode::FORMERR)?)?);
    }
    Ok(update)
}

fn prerequisite(zone: &Folded, record: &ParsedRecord<'_, [u8]>) -> Result<Prerequisite, Rcode> {
    let (owner, rtype) = (owner_in(zone, record)?, record.rtype());
    let is_bare = record.ttl().as_secs() == 0 && length(record) == 0;
    match record.class() {
        Class::ANY | Class::NONE if !is_bare => Err(Rcode::FORMERR),
        Class::ANY if rtype == Rtype::ANY => Ok(Prerequisite::InUse(owner)),
        Class::NONE if rtype == Rtype::ANY => Ok(Prerequisite::NotInUse(owner)),
        Class::ANY | Class::NONE if is_meta(rtype) => Err(Rcode::FORMERR),
        Class::ANY => Ok(Prerequisite::Exists(owner, rtype)),
        Class::NONE => Ok(Prerequisite::Missing(owner, rtype)),
        Class::IN if record.ttl().as_secs() == 0 && !is_meta(rtype) => {
            Ok(Prerequisite::Has(owner, rtype, whole(record)?))
        }
        _ => Err(Rcode::FORMERR),
    }
}

fn operation(zone: &Folded, record: &ParsedRecord<'_, [u8]>) -> Result<Operation, Rcode> {
    let (owner, rtype) = (owner_in(zone, record)?, record.rtype());
    // With the first bit it is as none (RFC 2181 §8).
    let ttl = Some(record.ttl().as_secs()).filter(|ttl| *ttl <= TTL_MAX).unwrap_or(0);
    match record.class() {
        Class::ANY if ttl != 0 || length(record) != 0 => Err(Rcode::FORMERR),
        Class::ANY if rtype == Rtype::ANY => Ok(Operation::DeleteAll(owner)),
        _ if is_meta(rtype) => Err(Rcode::FORMERR),
        Class::ANY => Ok(Operation::DeleteSet(owner, rtype)),
        Class::NONE if ttl == 0 => Ok(Operation::Delete(owner, rtype, whole(record)?)),
        Class::IN => Ok(Operation::Add(owner, rtype, ttl, whole(record)?)),
        _ => Err(Rcode::FORMERR),
    }
}

/// The owner's name, folded, where it is in the zone.
fn owner_in(zone: &Folded, record: &ParsedRecord<'_, [u8]>) -> Result<Vec<u8>, Rcode> {
    // No octet of a length is a letter.
    let owner = owner(record).to_ascii_lowercase();
    if dns::name::is_within(&owner, zone.wire()) { Ok(owner) } else { Err(Rcode::NOTZONE) }
}

fn whole(record: &ParsedRecord<'_, [u8]>) -> Result<Vec<u8>, Rcode> {
    data(record).map_err(|_| Rcode::FORMERR)
}

/// The octets of a record's data as they stand in the message.
fn length(record: &ParsedRecord<'_, [u8]>) -> usize {
    usize::from(record.rdlen())
}

/// Whether a type is none of records in zones (RFC 6895 §3.1).
fn is_meta(rtype: Rtype) -> bool {
    matches!(rtype.to_int(), 0 | 41 | 128..=255)
}
