//! The protocol of Rapid DNS (LeFebvre and Craig, USITS 1999, section 4), and a client library for it.
//!
//! A program that wants names of its clients' addresses asks one or more servers, `pointsman reverse --rapid ADDR`,
//! over one connection each, and has a name or "not known" within [`GIVE_UP`], whatever becomes of the servers:
//!
//! ```no_run
//! # async fn look_up() {
//! let servers = ["192.0.2.1:5354", "192.0.2.2:5354"].map(|server| server.parse().expect("an address"));
//! let names = rapid::Client::start(&servers, rapid::GIVE_UP).await;
//! let name: Option<String> = names.look_up("198.51.100.7".parse().expect("an address")).await;
//! # }
//! ```
//! In reading order:
//! - [`client`]: [`Client`], its connections and its watcher.
//! - [`queues`]: which server is asked, and what is given up. Pure.
//! - [`frame`]: the octets, for both ends. Pure.

pub mod client;
pub mod frame;
pub mod queues;

pub use client::{Client, GIVE_UP};
