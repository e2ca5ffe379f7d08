//! Fast state: what changes between two queries of one generation.
//!
//! It outlives generations and is an argument of every answer, as time and randomness are.

use std::sync::Arc;

use net::clock::Clock;
use routing::external::Asking;
use routing::{External, Rotation};

use crate::rate_limit::RateLimit;

/// All of it, as those have it who answer.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// How often like answers went out over UDP, where response rates are limited.
    pub limit: Option<Arc<RateLimit>>,
    /// Whose turn it is, where policies rotate.
    pub rotation: Arc<Rotation>,
    /// What an external proximity service said, where there is one, and the clock that it goes by.
    pub external: Option<(Arc<External>, Clock)>,
}

impl Shared {
    /// As an answer sees it.
    #[inline]
    pub fn fast(&self) -> Fast<'_> {
        Fast {
            limit: self.limit.as_deref(),
            rotation: Some(&self.rotation),
            external: self.external.as_ref().map(|external| &*external.0),
        }
    }

    /// What the external service said, for who looks and does not ask.
    pub fn looking(&self) -> Option<Asking<'_>> {
        let (external, clock) = self.external.as_ref()?;
        Some(Asking { external, now: clock.now().monotonic, source: 0, asker: None })
    }
}

/// All of it, as an answer sees it; without any, a generation answers by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fast<'a> {
    /// How often its like was answered, where response rates are limited.
    pub limit: Option<&'a RateLimit>,
    /// Whose turn it is, where policies rotate.
    pub rotation: Option<&'a Rotation>,
    /// What an external proximity service said, where there is one.
    pub external: Option<&'a External>,
}
