//! The name server: zones, answers, the generation that holds them, and the threads that serve it.
//!
//! In reading order:
//! - [`service`]: start and stop.
//! - [`worker`]: receives a batch of queries over UDP, has each answered, sends the answers; [`connections`]: the same
//!   over TCP.
//! - [`answering`]: the path of one query, whatever it came over: answered, counted, told to who watches.
//! - [`answer`]: what is answered: bytes in, bytes out, no socket and no clock.
//! - [`cookies`]: whether a client is where its packets say; [`rate_limit`]: how many answers it gets otherwise.
//! - [`generation`]: all that decides an answer, as one immutable value; [`zone`], [`names`] and [`policies`] are
//!   its parts. [`fast`]: what changes between two queries of one.
//! - [`signing`]: signatures of what policies answer in signed zones.
//! - [`publish`]: how the next generation reaches every worker, and how one knows that it did.
//! - [`edit`]: the one writer; [`book`]: what a generation was made from, and how an edit makes the next.
//! - [`import`]: files as edits, [`as_path`] BGP tables as partitions; [`overview`]: what the API shows, [`http`]: how.
//! - [`external`]: the conversation with an external proximity service.
//! - [`health`]: probes of servers, and what they find.
//! - [`transfer`]: zones for secondaries, signed messages, notifications.
//! - [`counters`]: what a worker counts, [`routed`] what policies decided; [`panics`]: what follows when it panics.

pub mod answer;
pub mod answering;
pub mod as_path;
pub mod book;
pub mod connections;
pub mod cookies;
pub mod counters;
pub mod edit;
pub mod external;
pub mod fast;
pub mod generation;
pub mod health;
pub mod http;
pub mod import;
pub mod names;
pub mod overview;
pub mod panics;
pub mod policies;
pub mod publish;
pub mod rate_limit;
pub mod routed;
pub mod service;
pub mod signing;
pub mod transfer;
pub mod worker;
pub mod zone;
