//! Waits until a shared database may hold something new.
//!
//! A notification only wakes: what there is, the tables say. So none has to be trusted to come, and after a while
//! without one the tables are looked at anyway.

#[cfg(feature = "postgres")]
use std::pin::Pin;
use std::time::Duration;

#[cfg(feature = "postgres")]
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::sql::Place;
#[cfg(feature = "postgres")]
use super::sql::{ANSWER_WAIT, QUIET};

/// How often MariaDB is looked at, which has no notifications: a change is seen after half of that on average, and
/// forty looks a second at two rows cost it nothing.
pub const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// How often PostgreSQL is looked at without a notification: it makes up for those that were lost with a connection.
#[cfg(feature = "postgres")]
const UNTOLD_INTERVAL: Duration = Duration::from_secs(1);

/// The first pause before a database that was lost is tried again.
pub const RECONNECT_MIN: Duration = Duration::from_millis(50);

/// The longest such pause: it is doubled from one to the next.
pub const RECONNECT_MAX: Duration = Duration::from_secs(2);

/// The making of a listener.
#[cfg(feature = "postgres")]
type Listening = dyn Future<Output = Result<PgListener, sqlx::Error>> + Send;

/// Who waits.
pub struct Watch {
    place: Place,
    pause: Duration,
    #[cfg(feature = "postgres")]
    listener: Option<PgListener>,
    /// A listener to be, which may take longer than one wait.
    #[cfg(feature = "postgres")]
    listening: Option<Pin<Box<Listening>>>,
    /// Whether the last listener could not be made.
    is_deaf: bool,
    /// Whether the last look found the database, which then has no other pause.
    is_reached: bool,
}

impl Watch {
    pub(super) fn new(place: Place) -> Watch {
        Watch {
            place,
            pause: RECONNECT_MIN,
            #[cfg(feature = "postgres")]
            listener: None,
            #[cfg(feature = "postgres")]
            listening: None,
            is_deaf: false,
            is_reached: false,
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
                    None => {
                        let make = || Box::pin(listen((**options).clone())) as Pin<Box<Listening>>;
                        let listening = self.listening.get_or_insert_with(make);
                        match tokio::time::timeout(UNTOLD_INTERVAL, listening).await {
                            Ok(made) => {
                                self.listening = None;
                                self.is_deaf = made.is_err();
                                self.listener = made.ok();
                                // What came before it listened is not told.
                                !self.is_deaf
                            }
                            // It goes on with the next wait: the tables are looked at meanwhile.
                            Err(_) => true,
                        }
                    }
                };
                if !heard {
                    self.listener = None;
                    tokio::time::sleep(self.silence()).await;
                }
            }
            #[cfg(feature = "mysql")]
            Place::Mysql(_) => tokio::time::sleep(POLL_INTERVAL).await,
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Place::Absent(never) => match *never {},
        }
    }

    /// How long it is until a listener is made again. A standby can be looked at and notifies nobody: it is not asked
    /// all the time.
    #[cfg(feature = "postgres")]
    fn silence(&self) -> Duration {
        if self.is_deaf && self.is_reached { UNTOLD_INTERVAL } else { POLL_INTERVAL }
    }

    /// Whether notifications cannot be had, so that the tables are only looked at now and then.
    pub fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    /// Pauses after the database could not be looked at, longer each time up to [`RECONNECT_MAX`].
    pub async fn pause(&mut self) {
        self.is_reached = false;
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RECONNECT_MAX);
    }

    /// Says that the database was looked at.
    pub fn reached(&mut self) {
        self.is_reached = true;
        self.pause = RECONNECT_MIN;
    }
}

/// A listener on a connection of its own, within [`ANSWER_WAIT`].
#[cfg(feature = "postgres")]
async fn listen(options: sqlx::postgres::PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    let late = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    tokio::time::timeout(ANSWER_WAIT, listen_at_last(options)).await.map_err(late)?
}

/// As [`listen`], however long it takes.
#[cfg(feature = "postgres")]
async fn listen_at_last(options: sqlx::postgres::PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    // The pool makes one connection; what is lost we make anew ourselves.
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(ANSWER_WAIT);
    // Nor does it log in its own words that a database was away for long, or that a connection is lost.
    let pool = pool.acquire_slow_threshold(Duration::MAX).after_release(|_, _| Box::pin(async { Ok(false) }));
    let pool = pool.max_lifetime(None).idle_timeout(None).connect_with(options).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    sqlx::query(QUIET).execute(&mut listener).await?;
    listener.listen("pointsman").await?;
    Ok(listener)
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_may_look_and_not_listen_asks_once_a_second() {
        let place = Place::read("postgres://a@db/a").expect("a URL").expect("of a shared database");
        let mut watch = Watch::new(place);
        assert_eq!(watch.silence(), POLL_INTERVAL);
        watch.is_deaf = true;
        assert_eq!(watch.silence(), POLL_INTERVAL, "it may be lost");
        watch.reached();
        assert_eq!(watch.silence(), UNTOLD_INTERVAL);
        watch.pause().await;
        assert_eq!(watch.silence(), POLL_INTERVAL, "that was the pause");
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_listen_looks_all_the_same() {
        // It takes connections and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("postgres://a@{}/a", silent.local_addr().expect("it is bound"));
        let mut watch = Watch::new(Place::read(&url).expect("a URL").expect("of a shared database"));
        let begun = tokio::time::Instant::now();
        while !watch.is_deaf() {
            let before = tokio::time::Instant::now();
            watch.wait().await;
            assert!(before.elapsed() <= UNTOLD_INTERVAL + POLL_INTERVAL, "{:?}", before.elapsed());
            assert!(begun.elapsed() <= ANSWER_WAIT * 2, "it is never told that it cannot");
        }
    }
}
