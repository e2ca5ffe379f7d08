//! What happened to transfers, signatures and notifications.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Transfers that were begun.
    pub started: AtomicU64,
    /// Those of them that give what changed alone (RFC 1995).
    pub incremental: AtomicU64,
    /// Transfers of which the last message was made.
    pub finished: AtomicU64,
    /// Requests that were answered by the SOA record alone (RFC 1995 §2).
    pub current: AtomicU64,
    /// Requests by whom no rule allows.
    pub refused_not_allowed: AtomicU64,
    /// Requests for a zone that has expired here.
    pub refused_expired: AtomicU64,
    /// Requests for a zone with steered names.
    pub refused_steered: AtomicU64,
    /// Requests beyond [`TRANSFERS_MAX`](super::TRANSFERS_MAX).
    pub refused_full: AtomicU64,
    /// Requests beyond [`TRANSFERS_PER_CLIENT_MAX`](super::TRANSFERS_PER_CLIENT_MAX).
    pub refused_per_client: AtomicU64,
    /// Requests for a zone that is not here.
    pub refused_no_zone: AtomicU64,
    /// Requests that could not be read.
    pub refused_malformed: AtomicU64,
    /// Signed messages by an unknown key (BADKEY).
    pub bad_key: AtomicU64,
    /// Signed messages with a wrong signature (BADSIG).
    pub bad_signature: AtomicU64,
    /// Signed messages of another time (BADTIME).
    pub bad_time: AtomicU64,
    /// Signed messages whose signature was cut (BADTRUNC).
    pub bad_truncation: AtomicU64,
    /// Messages whose signature could not be read (FORMERR).
    pub bad_form: AtomicU64,
    /// Notifications that were sent, repetitions included.
    pub notify_sent: AtomicU64,
    /// Notifications that the system did not take.
    pub notify_send_failed: AtomicU64,
    /// Notifications that were acknowledged.
    pub notify_acknowledged: AtomicU64,
    /// Notifications that were answered with an error.
    pub notify_refused: AtomicU64,
    /// Notifications that were given up after the last repetition.
    pub notify_given_up: AtomicU64,
    /// Notifications beyond [`NOTIFICATIONS_MAX`](super::notify::NOTIFICATIONS_MAX), each time that they found no place.
    pub notify_put_off: AtomicU64,
    /// Answers that belong to no notification, or are not signed as they must be.
    pub notify_stray: AtomicU64,
    /// Notifications of primaries that were taken.
    pub notified: AtomicU64,
    /// Notifications that are not of the zone's primary, or not signed as it signs.
    pub notified_refused: AtomicU64,
    /// Notifications of zones that no primary gives us.
    pub notified_no_zone: AtomicU64,
    /// Zones that were asked for and are as they were.
    pub confirmed: AtomicU64,
    /// Zones that were taken from a primary.
    pub taken: AtomicU64,
    /// Those of them of which only what changed came (RFC 1995).
    pub taken_incrementally: AtomicU64,
    /// Zones that could not be had of any address of their primary.
    pub failed: AtomicU64,
    /// Zones that expired.
    pub expired: AtomicU64,
    /// Updates that changed a zone.
    pub updates_made: AtomicU64,
    /// Updates that changed nothing: all was so already.
    pub updates_idle: AtomicU64,
    /// Updates of which a prerequisite did not hold.
    pub updates_unmet: AtomicU64,
    /// Updates that nobody may make, or after which a zone would not be right.
    pub updates_refused: AtomicU64,
    /// Updates that could not be read.
    pub updates_malformed: AtomicU64,
    /// Updates beyond [`WAITING_MAX`](super::update::WAITING_MAX).
    pub updates_full: AtomicU64,
    /// Updates that could not be made: the store did not take them, or others were quicker again and again.
    pub updates_failed: AtomicU64,
}

impl Counters {
    /// Requests for a zone that were refused, by cause.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, &AtomicU64)> {
        let causes = [
            ("not_allowed", &self.refused_not_allowed),
            ("expired", &self.refused_expired),
            ("steered", &self.refused_steered),
            ("full", &self.refused_full),
            ("per_client", &self.refused_per_client),
            ("no_zone", &self.refused_no_zone),
            ("malformed", &self.refused_malformed),
        ];
        causes.into_iter()
    }
}

/// Counts one more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
