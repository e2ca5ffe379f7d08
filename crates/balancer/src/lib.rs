//! A balancer for DNS: takes queries, spends credits, forwards, matches replies.
//!
//! ```text
//! clients ──UDP──> worker (a thread a core): Picker::pick ──> a socket of the back end, an id of its own ──> back end
//!                    ^ Pending::matching: socket, id and question <──────────────────────────── reply ──────────┘
//! clients ──TCP, TLS, HTTPS, QUIC──> connections (tokio): the same pick, shared connections or datagrams to back ends
//! ```
//! Which back end gets a query is `routing::balance`'s to say; here it is carried there and back. In reading order:
//! - [`field`]: the back ends as all threads see them; [`counters`]: what is counted.
//! - [`rules`]: which pool of back ends takes a query, or what is answered here instead.
//! - [`picker`]: one thread's view of them, and what it picks.
//! - [`client_address`]: how a back end learns whose query it is.
//! - [`cache`]: answers that are given again.
//! - [`clients`]: how many queries each client has under way.
//! - [`pending`]: queries that wait for replies; [`lines`]: sockets to back ends; [`worker`]: the thread that has both.
//! - [`doubts`]: back ends that may be gone.
//! - [`front`]: clients over connections as they come; [`conversation`]: one over TCP or TLS, `https` over HTTPS, `quic` over QUIC;
//!   [`connections`]: what they share, and how their queries are carried.
//! - [`exchange`]: the connections to one back end, or a datagram; [`pipeline`]: one of them, which several queries share; [`told`]: where
//!   the answer to one comes, in time or late; [`relay`]: a worker's queries on their way to them.
//! - `under_way`: what a client over HTTPS or QUIC waits for.
//! - [`message`]: what answers a query, and the answers that are made here.
//! - [`circle`]: who must not be a back end.
//! - [`credits`]: hellos to agents, and the leases that they grant.
//! - [`watch`]: probes, and what really happens; [`health`]: what follows from them.
//! - [`measure`]: weights for policies that go by them, found beforehand.
//! - [`http`]: how it is doing, and back ends that come and go; [`numbers`]: what it counts.
//! - [`descriptors`]: whether the system allows as many sockets as all that may need.
//! - [`service`]: [`Service`], all of it, started and stopped.

pub mod cache;
pub mod circle;
pub mod client_address;
pub mod clients;
pub mod connections;
pub mod conversation;
pub mod counters;
pub mod credits;
pub mod descriptors;
pub mod doubts;
pub mod exchange;
pub mod field;
pub mod front;
pub mod health;
pub mod http;
mod https;
pub mod lines;
pub mod measure;
pub mod message;
pub mod numbers;
pub mod pending;
pub mod picker;
pub mod pipeline;
mod quic;
pub mod relay;
pub mod rules;
pub mod service;
pub mod told;
mod under_way;
pub mod watch;
pub mod worker;

pub use cache::Caching;
pub use service::{Options, Server, Service};
