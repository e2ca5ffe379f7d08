//! Names, messages and EDNS: what a server needs of the DNS protocol on every packet.
//!
//! Nothing here allocates, waits or fails loudly: a packet is bytes in, a verdict or bytes out. All that
//! is not needed on every packet (presentation format, record data, master files) is the `domain` crate's,
//! whose number types ([`Rtype`], [`Class`], [`Rcode`], [`Opcode`]) are used here too.
//!
//! In reading order:
//! - [`query`]: [`Query`], the view of an asked message, or what is wrong with it.
//! - [`name`]: [`Folded`], a name as it is compared, and the way between wire and text.
//! - [`edns`]: what an OPT record asks and answers (RFC 6891): client subnet, cookies and others.
//! - [`writer`]: [`Writer`], which composes a response with name compression into a given buffer;
//!   [`fragment`]: records that are composed once for many responses.
//! - [`tsig`]: the record that signs a message (RFC 8945).
//! - [`relay`]: a client's subnet, put into a query that is passed on and taken out of its answer.
//! - [`reuse`]: answers that are given again: which queries they answer, for how long, and how old they are.
//!
//! Beside the hot path, for what was seen on it:
//! - [`dnstap`]: what is said of a query or response; [`frame_streams`]: how a file or socket carries that.

pub mod dnstap;
pub mod edns;
pub mod fragment;
pub mod frame_streams;
pub mod name;
pub mod query;
pub mod relay;
pub mod reuse;
pub mod tsig;
pub mod writer;

pub use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
pub use edns::ClientSubnet;
pub use fragment::{Fragment, Fragments};
pub use name::Folded;
pub use query::Query;
pub use tsig::Tsig;
pub use writer::{Section, Suffixes, Writer};
