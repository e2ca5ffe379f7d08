//! Waits until a shared database may hold something new.
//!
//! A notification only wakes: what there is, the tables say. So none has to be trusted to come, and after a while
//! without one the tables are looked at anyway.

use std::time::Duration;

#[cfg(feature = "postgres")]
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::sql::{ANSWER_WAIT, Place};

/// How often MariaDB is looked at, which has no notifications: a change is seen after half of that on average, and
/// forty looks a second at two rows cost it nothing.
pub const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// How often PostgreSQL is looked at without a notification: it makes up for those that were lost with a connection.
const UNTOLD_INTERVAL: Duration = Duration::from_secs(1);

/// The first pause before a database that was lost is tried again.
pub const RECONNECT_MIN: Duration = Duration::from_millis(50);

/// The longest such pause: it is doubled from one to the next.
pub const RECONNECT_MAX: Duration = Duration::from_secs(2);

/// Who waits.
pub struct Watch {
    place: Place,
    pause: Duration,
    #[cfg(feature = "postgres")]
    listener: Option<PgListener>,
}

impl Watch {
    pub(super) fn new(place: Place) -> Watch {
        Watch {
            place,
            pause: RECONNECT_MIN,
            #[cfg(feature = "postgres")]
            listener: None,
        }
    }

    /// Waits until the tables should be looked at.
    pub async fn wait(&mut self) {
        match &self.place {
            #[cfg(feature = "postgres")]
            Place::Postgres(options) => {
                let heard = match &mut self.listener {
                    Some(listener) => {
                        match tokio::time::timeout(UNTOLD_INTERVAL, listener.try_recv()).await {
                            Ok(Ok(Some(_))) => {
                                // One look serves all that have come.
                                while listener.next_buffered().is_some() {}
                                true
                            }
                            Err(_) => true,
                            Ok(Ok(None) | Err(_)) => false,
                        }
                    }
                    None => match tokio::time::timeout(ANSWER_WAIT, listen((**options).clone())).await {
                        Ok(Ok(listener)) => {
                            self.listener = Some(listener);
                            // What came before it listened is not told.
                            true
                        }
                        _ => false,
                    },
                };
                if !heard {
                    self.listener = None;
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
            #[cfg(feature = "mysql")]
            Place::Mysql(_) => tokio::time::sleep(POLL_INTERVAL).await,
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Place::Absent(never) => match *never {},
        }
    }

    /// Pauses after the database could not be looked at, longer each time up to [`RECONNECT_MAX`].
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RECONNECT_MAX);
    }

    /// Says that the database was looked at.
    pub fn reached(&mut self) {
        self.pause = RECONNECT_MIN;
    }
}

/// A listener on a connection of its own.
#[cfg(feature = "postgres")]
async fn listen(options: sqlx::postgres::PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    // The pool makes one connection; what is lost we make anew ourselves.
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(ANSWER_WAIT);
    let pool = pool.max_lifetime(None).idle_timeout(None).connect_with(options).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen("pointsman").await?;
    Ok(listener)
}
