//! The decision: which servers a client is sent to, and for how long.
//!
//! Pure: no socket, no clock, no file; time and randomness are arguments. All thought happens when a policy
//! or a partition is compiled into flat arrays; a decision is one look-up, one row and a few random draws.
//!
//! - [`route`](mod@route): the decision itself.
//! - [`partition`]: which region an address is in, and how far that holds; [`prefix`] and [`region`] are its
//!   words, [`proximity`] where partitions come from; [`external`]: what a service outside says of those that they leave
//!   to it.
//! - [`policy`]: the matrix of probabilities and TTLs; [`servers`]: which of its columns are up; [`health`]: what probes
//!   say of them.
//! - [`selection`]: how servers are ordered by their weights; [`rotation`]: whose turn it is.
//! - [`balance`]: which back end of a balancer gets a query.
//! - [`acl`]: who may ask at all, where not everybody may; [`meter`]: how often somebody does.

pub mod acl;
pub mod balance;
pub mod external;
pub mod health;
pub mod meter;
pub mod partition;
pub mod policy;
pub mod prefix;
pub mod proximity;
pub mod region;
pub mod rotation;
pub mod route;
pub mod selection;
pub mod servers;

pub use acl::Acl;
pub use external::External;
pub use health::{Health, SlotId};
pub use meter::Meter;
pub use partition::{Leaf, Partition};
pub use policy::{Family, Policy};
pub use prefix::Prefix;
pub use region::RegionId;
pub use rotation::Rotation;
pub use route::{Choice, Why, route};
pub use servers::{Down, State};
