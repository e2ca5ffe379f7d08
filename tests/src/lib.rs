//! What the end-to-end tests share: the real program, started and ended, and clients of it.
//!
//! The tests themselves stand in `tests/`, one file a subject. Nothing in them sleeps: they wait for a line, an
//! answer or an end, and each wait has a bound by name.
//!
//! In reading order:
//! - [`program`]: a process of ours that never outlives its test; [`serving`]: the name server in one;
//!   [`namespace`]: a network of a test's own.
//! - [`peer`]: other people's servers; [`quic`]: one of our own for what they do not speak; [`secondary`]: such that follow a zone of ours;
//!   [`signer`]: zones signed afresh; [`certificate`]: for what is encrypted.
//! - [`nginx`]: Debian's, with its workers; [`database`]: its PostgreSQL and MariaDB.
//! - [`http`]: a client of the API; [`query`]: a client of DNS; [`flood`]: many, and their victims.
//! - [`balancing`]: a balancer, and back ends that do whatever a test wants.
//! - [`credit`]: the balancer's end of the credit protocol, and a bad way between the two.
//! - [`guide`]: the documentation as a test reads it; [`folder`]: a temporary folder; [`data`]: the folder of test data,
//!   and how a test says that it skips; [`fresh`]: files that are written from declarations; [`openapi`]: what a
//!   document of an API has.

pub mod balancing;
pub mod certificate;
pub mod credit;
pub mod data;
pub mod database;
pub mod flood;
pub mod folder;
pub mod fresh;
pub mod group;
pub mod guide;
pub mod http;
pub mod namespace;
pub mod nginx;
pub mod openapi;
pub mod peer;
pub mod program;
pub mod query;
pub mod quic;
pub mod secondary;
pub mod serving;
pub mod signer;
