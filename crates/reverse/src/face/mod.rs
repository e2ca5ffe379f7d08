//! The faces of the service, all on one cache.

pub mod acl;
pub mod dns;
pub mod http;
pub mod mmdb;
pub mod rapid;
pub mod resp;
pub mod stream;
