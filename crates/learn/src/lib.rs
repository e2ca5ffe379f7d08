//! Learning in the background, without making anybody wait: what is not known is noted, and asked for later.
//!
//! Pure: no socket, no clock, no thread. Time is a [`Duration`](std::time::Duration) since any fixed moment,
//! passed in; it must not go back. Keys, lanes and clients are whatever the user has: addresses, prefixes, zones.
//!
//! ```text
//! ask(key, lane, client) ─> Waiting (a stack a lane, bounded) ─> Learner::next(now, …) ─> a question
//!                                                                  Pacer: one per interval
//! ```
//! - [`learner`]: [`Learner`], the whole of it: what waits, and when the next question is due.
//! - [`waiting`]: [`Waiting`], bounded last-in-first-out stacks in lanes that are served in turn.
//! - [`pacer`]: [`Pacer`], one question an interval, or a bucket of them.
//! - [`backoff`]: [`Backoff`], when to ask again after a failure (RFC 9520).

pub mod backoff;
pub mod learner;
pub mod pacer;
pub mod waiting;

pub use backoff::Backoff;
pub use learner::{Learner, Next};
pub use pacer::Pacer;
pub use waiting::{Limits, Order, Repeats, Waiting};
