//! What a commit is made of, and how a generation is described.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api::{Policy, Target};

/// One change to what is stored. The changes of a commit apply in their order, each to what the ones
/// before it left.
///
/// Names of zones and policies must be absolute and in lower case, with the final dot: the store refuses
/// what is not, rather than to rewrite it.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Stores a zone, replacing the one of that origin.
    PutZone {
        /// The zone's name.
        origin: String,
        /// The canonical master file, at most [`crate::TEXT_MAX`] bytes.
        text: String,
    },
    /// Stores what some owners have in a zone that exists, in place of what they had. The zone's text is a record a line,
    /// each of which begins with its owner and a space.
    ChangeZone {
        /// The zone's name.
        origin: String,
        /// The lines of each owner in the text as it becomes; none where it has nothing any more.
        owners: BTreeMap<String, String>,
    },
    /// Deletes a zone that exists.
    DeleteZone {
        /// The zone's name.
        origin: String,
    },
    /// Adds a region under an id that no region ever had.
    AddRegion {
        /// At least [`crate::Contents::next_region_id`], at most 2^31 - 1; name servers serve those up to 2^24 - 2.
        id: u32,
        /// A name that no region in use has, 1 to 255 characters.
        name: String,
    },
    /// Removes a region that is in use, with all entries that policies have for it.
    RemoveRegion {
        /// Its id, which no region will have again.
        id: u32,
    },
    /// Stores a partition's source, replacing the one of that name.
    PutPartition {
        /// 1 to 255 characters.
        name: String,
        /// The source as it was given, at most [`crate::TEXT_MAX`] bytes.
        text: String,
    },
    /// Deletes a partition that exists.
    DeletePartition {
        /// Its name.
        name: String,
    },
    /// Stores a policy, replacing as a whole the one with the same first name. Its regions must be in
    /// use, and none of its names may belong to another policy.
    PutPolicy(Arc<Policy>),
    /// Deletes a policy that exists.
    DeletePolicy {
        /// Its first name.
        key: String,
    },
    /// Sets whether a server may be drawn.
    SetServer {
        /// The server.
        server: Target,
        /// Whether it may be drawn.
        up: bool,
    },
    /// Remembers what a file held when it was imported.
    Imported {
        /// The file's path.
        path: String,
        /// The digest of its content.
        digest: String,
    },
    /// Forgets that something was imported, which there is.
    ForgetImport {
        /// Its path.
        path: String,
    },
}

impl fmt::Display for Change {
    /// A few words for people, without the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::PutZone { origin, .. } => write!(f, "zone {origin} put"),
            Change::ChangeZone { origin, .. } => write!(f, "zone {origin} changed"),
            Change::DeleteZone { origin } => write!(f, "zone {origin} deleted"),
            Change::AddRegion { id, name } => write!(f, "region {id} ({name}) added"),
            Change::RemoveRegion { id } => write!(f, "region {id} removed"),
            Change::PutPartition { name, .. } => write!(f, "partition {name} put"),
            Change::DeletePartition { name } => write!(f, "partition {name} deleted"),
            Change::PutPolicy(policy) => match policy.names.first() {
                Some(key) => write!(f, "policy {key} put"),
                None => f.write_str("policy without a name put"),
            },
            Change::DeletePolicy { key } => write!(f, "policy {key} deleted"),
            Change::SetServer { server, up } => {
                write!(f, "server {server} {}", if *up { "up" } else { "down" })
            }
            Change::Imported { path, .. } => write!(f, "file {path} imported"),
            Change::ForgetImport { path } => write!(f, "file {path} forgotten"),
        }
    }
}

/// The longest description of a generation, in bytes, before the count of what was left out: enough to
/// recognise a change by, and ten thousand of them stay below a few megabytes.
const DESCRIPTION_MAX: usize = 500;

/// Says in words what changed: as many changes as fit, and how many more there were.
pub(crate) fn describe(changes: &[Change]) -> String {
    let mut what = String::new();
    for (told, change) in changes.iter().enumerate() {
        let next = change.to_string();
        if what.len() + next.len() > DESCRIPTION_MAX {
            let separator = if what.is_empty() { "" } else { "; " };
            what.push_str(&format!("{separator}{} more changes", changes.len() - told));
            break;
        }
        if !what.is_empty() {
            what.push_str("; ");
        }
        what.push_str(&next);
    }
    what
}

/// What a generation that is made now is dated with: Unix time in seconds. A clock before 1970 is wrong anyway, and
/// not worth refusing an update for.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_what_changed_and_stays_short() {
        let zone = Change::PutZone { origin: "example.com.".into(), text: "unseen".into() };
        let down = Change::SetServer { server: "192.0.2.1".parse().unwrap(), up: false };
        assert_eq!(describe(&[zone.clone(), down]), "zone example.com. put; server 192.0.2.1 down");
        assert_eq!(describe(&[]), "");

        let many = vec![zone; 1_000];
        let what = describe(&many);
        assert!(what.len() < DESCRIPTION_MAX + 100, "{} bytes", what.len());
        assert!(what.ends_with("; 979 more changes"), "{what}");

        let long = Change::Imported { path: "p".repeat(DESCRIPTION_MAX), digest: String::new() };
        assert_eq!(describe(&[long]), "1 more changes");
    }
}
