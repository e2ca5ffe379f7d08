//! Whether servers can be used: probes beside the query path, and what they find.
//!
//! ```text
//! policy compiled ─> Table::slot ──────> new slot ─> prober: a task each: sleep, wait for a place, check
//!    answers read the slot's bit <──────── Table::note <─ Record: rise and fall <─────────┘
//!                                            └─> kept in the store, for the first answer after a start
//! ```
//! Results are fast state: no change of theirs makes a generation. A slot belongs to one probe of one server, is named
//! by the compiled policies that use it and lives as long as any generation does that has one of those. So a number is
//! given again only when nobody can look at it any more, and a server that left its last policy is probed no longer.
//!
//! In reading order: [`probe`] says what can be configured, [`check`] does one probe, [`record`] counts what came of
//! them, [`table`] holds the slots, [`prober`] has all of it happen in time.

pub mod check;
pub mod probe;
pub mod prober;
pub mod record;
pub mod table;

pub use probe::{Check, Http, Probe, Probes};
pub use record::{Outcome, Reason};
pub use table::{Slot, Table};
