//! The faces of the service, all on one cache.
//!
//! [`dns`], [`rapid`], [`resp`] and [`http`] are what clients speak; [`stream`] is what the Redis protocol and that of Rapid
//! DNS share, and [`mmdb`] the names as a file for programs that read such.

pub mod dns;
pub mod http;
pub mod mmdb;
pub mod rapid;
pub mod resp;
pub mod stream;
