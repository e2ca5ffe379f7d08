//! Why an edit was not made.

use std::fmt;

use api::Faults;
use dns::Rcode;
use tokio::task::JoinError;

use super::Etag;

/// Why a change was not made. What served before goes on serving.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// What was given is wrong.
    Faults(Faults),
    /// There is nothing of that name.
    NotFound(String),
    /// Something else needs it.
    InUse(String),
    /// It is not what the caller believes it is; this is its tag, where it exists.
    Precondition {
        /// The tag of what there is.
        current: Option<Etag>,
    },
    /// It exists, with this tag, and the caller believes that it does not.
    Exists {
        /// The tag of what there is.
        current: Etag,
    },
    /// The store did not take it.
    Store(String),
    /// Other name servers on the same store were quicker, again and again.
    Outrun,
    /// Too many changes wait already, or the server is stopping.
    Busy,
    /// What makes changes has panicked: a fault of ours.
    Broken,
}

/// Why an update of a zone was not made (RFC 2136).
#[derive(Clone, Debug, PartialEq)]
pub enum Unmade {
    /// A prerequisite does not hold: the code that says so (RFC 2136 §2.4).
    Unmet(Rcode),
    /// As for any other change.
    Refused(Refused),
}

impl From<Refused> for Unmade {
    fn from(why: Refused) -> Unmade {
        Unmade::Refused(why)
    }
}

impl From<Faults> for Unmade {
    fn from(faults: Faults) -> Unmade {
        Unmade::Refused(faults.into())
    }
}

impl From<JoinError> for Unmade {
    fn from(ended: JoinError) -> Unmade {
        Unmade::Refused(ended.into())
    }
}

impl From<JoinError> for Refused {
    fn from(ended: JoinError) -> Self {
        if ended.is_panic() { Refused::Broken } else { Refused::Busy }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Faults(faults) => write!(f, "{faults}"),
            Refused::NotFound(what) => write!(f, "there is no {what}"),
            Refused::InUse(what) => f.write_str(what),
            Refused::Exists { current: Etag(tag) } => {
                write!(f, "it exists: its tag is \"{tag}\"; get it first")
            }
            Refused::Precondition { current: Some(Etag(tag)) } => {
                write!(f, "it has changed meanwhile: its tag is \"{tag}\"; get it again")
            }
            Refused::Precondition { current: None } => {
                f.write_str("there is nothing of this name that If-Match could match")
            }
            Refused::Store(what) => f.write_str(what),
            Refused::Outrun => {
                f.write_str("other name servers published first, again and again; try again shortly")
            }
            Refused::Busy => f.write_str("too many changes wait; try again shortly"),
            Refused::Broken => {
                f.write_str("the server panicked over it, and its log says where; what serves goes on")
            }
        }
    }
}

impl std::error::Error for Refused {}

impl From<Faults> for Refused {
    fn from(faults: Faults) -> Self {
        Refused::Faults(faults)
    }
}
