//! The agent beside a server: looks at the queues of its services, and tells balancers what they can still take.
//!
//! Nothing of the server is changed, and nothing is put into it. The kernel tells what waits at each socket; the rest
//! is learned: how much memory a datagram takes ([`charge`]), how fast the server reads ([`drain`]), when its quota of
//! processor time is filled again ([`quota`]). What a balancer may send follows from that and from what it says it has sent ([`meter`]).
//!
//! In reading order; up to [`meter`] it is pure, time and samples are arguments:
//! - [`queue`]: what the kernel says of sockets, and the room in them.
//! - [`charge`], [`drain`], [`quota`]: what is learned.
//! - [`link`]: what is known of one balancer; [`meter`]: all of one service.
//! - [`kernel`]: samples. [`run`]: the thread that takes them, hears and reports.
//! - [`http`]: metrics and status.

pub mod charge;
pub mod drain;
pub mod http;
pub mod kernel;
pub mod link;
pub mod meter;
pub mod queue;
pub mod quota;
pub mod run;

pub use meter::Settings;
pub use run::{Agent, Options, StartError, View};
