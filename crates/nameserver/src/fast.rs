//! Fast state: what changes between two queries of one generation.
//!
//! It outlives generations and is an argument of every answer, as time and randomness are.

use routing::Rotation;

use crate::rate_limit::RateLimit;

/// All of it, as an answer sees it; without any, a generation answers by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fast<'a> {
    /// How often its like was answered, where response rates are limited.
    pub limit: Option<&'a RateLimit>,
    /// Whose turn it is, where policies rotate.
    pub rotation: Option<&'a Rotation>,
}
