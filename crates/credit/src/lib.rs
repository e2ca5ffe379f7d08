//! The protocol between a balancer and the agents beside its back ends: what a server can still take.
//!
//! A balancer tells each agent how many queries it has sent to a service ([`Hello`]); the agent looks at the queue
//! of that service and tells up to which count of the balancer's own the balancer may go on ([`Report`]). Both are
//! datagrams of a fixed size under a keyed digest. Everything in them is absolute, so what is lost, repeated or late
//! needs no repair: the next one says it all.
//!
//! Pure: octets and time come in as arguments, and no socket is here. In reading order:
//! - [`key`]: the secret that both ends share.
//! - [`message`]: the octets of both messages.
//! - [`account`]: the balancer's end: which reports count, and what may still be sent.
//! - [`hearing`]: the agent's end: which hellos count.

pub mod account;
pub mod hearing;
pub mod key;
pub mod message;

pub use account::{Account, Taken};
pub use hearing::{Heard, Hearing};
pub use key::Key;
pub use message::{HELLO_LEN, Hello, Quota, REPORT_LEN, Refused, Report, Service, Transport};

use std::time::Duration;

/// From one hello to the next, and from one report to the next, where nothing asks for one sooner.
///
/// Fifty a second follow a load that moves within a tenth of a second, and are 13 kB/s both ways.
pub const INTERVAL: Duration = Duration::from_millis(20);

/// For how long a report is valid, from when the hello was sent that it answers: three intervals, so that two lost
/// reports in a row cost nothing.
pub const LEASE: Duration = Duration::from_millis(60);

/// From one introduction of an agent to the next, as long as it hears no hello.
pub const INTRODUCTION: Duration = Duration::from_millis(100);

/// The least time from one hello to the next where half of the credit is used before the interval is over.
pub const HELLO_SPACING: Duration = Duration::from_millis(1);
