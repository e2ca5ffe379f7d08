//! Updates of policies over the API: how long each takes to return, which is when it is visible.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tests::http::Client;

use super::place;
use super::servers::API;
use super::zone;

/// Updates a second of the arm with updates.
pub(crate) const PER_SECOND: u32 = 100;

/// Connections that update as fast as they can.
const CONNECTIONS: usize = 32;

/// Updates the steered name's policy [`PER_SECOND`] times a second until `done`, on a schedule that does not
/// wait for slow ones: what is late is sent at once.
///
/// Returns the time of each from when it was *due* to its answer, in milliseconds.
///
/// # Errors
/// Where an update is refused.
pub(crate) fn steadily(done: &AtomicBool) -> Result<Vec<f64>> {
    place::beside_server(|| {
        let mut client = client()?;
        let mut times = Vec::new();
        let begin = Instant::now();
        while !done.load(Ordering::Relaxed) {
            let due = begin + Duration::from_secs(1) * times.len() as u32 / PER_SECOND;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            update(&mut client, zone::STEERED, times.len())?;
            times.push(due.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    })
}

/// Updates as often as it goes, on [`CONNECTIONS`] connections, each its own policy: how many a second.
///
/// # Errors
/// Where an update is refused.
pub(crate) fn at_once(length: Duration) -> Result<f64> {
    let begin = Instant::now();
    let counts: Vec<Result<usize>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                scope.spawn(move || {
                    place::beside_server(|| {
                        let mut client = client()?;
                        let name = format!("u{number}.{}", zone::ORIGIN);
                        let mut turn = 0;
                        while begin.elapsed() < length {
                            update(&mut client, &name, turn)?;
                            turn += 1;
                        }
                        Ok(turn)
                    })
                })
            })
            .collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Result<usize>>| {
            worker.join().unwrap_or_else(|_| bail!("a client panicked"))
        };
        workers.into_iter().map(join).collect()
    });
    let elapsed = begin.elapsed().as_secs_f64();
    let total: usize = counts.into_iter().sum::<Result<usize>>()?;
    Ok(total as f64 / elapsed)
}

/// A client of the API, in the server's namespace.
fn client() -> Result<Client> {
    Ok(Client::new(API.parse().context("the API")?))
}

fn update(client: &mut Client, name: &str, turn: usize) -> Result<()> {
    let body = zone::policy(name, turn);
    client.done("PUT", &format!("/v1/policies/{name}"), &body).map(drop).context("an update")
}
