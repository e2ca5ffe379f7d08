//! Updates of policies over the API: how long each takes to return, which is when it is visible.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::place;
use super::servers::API;
use super::zone;

/// Updates a second of the arm with updates.
pub(crate) const PER_SECOND: u32 = 100;

/// Connections that update as fast as they can.
const CONNECTIONS: usize = 32;

/// How long an update may take.
const UPDATE_MAX: Duration = Duration::from_secs(10);

/// Updates the steered name's policy [`PER_SECOND`] times a second until `done`, on a schedule that does not
/// wait for slow ones: what is late is sent at once.
///
/// Returns the time of each from when it was *due* to its answer, in milliseconds.
///
/// # Errors
/// Where an update is refused.
pub(crate) fn steadily(done: &AtomicBool) -> Result<Vec<f64>> {
    place::beside_server(|| {
        let mut client = Client::connect()?;
        let mut times = Vec::new();
        let begin = Instant::now();
        while !done.load(Ordering::Relaxed) {
            let due = begin + Duration::from_secs(1) * times.len() as u32 / PER_SECOND;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            client.update(zone::STEERED, times.len())?;
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
                        let mut client = Client::connect()?;
                        let name = format!("u{number}.{}", zone::ORIGIN);
                        let mut turn = 0;
                        while begin.elapsed() < length {
                            client.update(&name, turn)?;
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

/// A client of the API with one connection, kept open.
struct Client {
    connection: BufReader<TcpStream>,
}

impl Client {
    fn connect() -> Result<Client> {
        let stream = TcpStream::connect(API).context("the API")?;
        stream.set_nodelay(true).context("the API")?;
        stream.set_read_timeout(Some(UPDATE_MAX)).context("the API")?;
        Ok(Client { connection: BufReader::new(stream) })
    }

    fn update(&mut self, name: &str, turn: usize) -> Result<()> {
        let body = zone::policy(name, turn);
        let request = format!(
            "PUT /v1/policies/{name} HTTP/1.1\r\nHost: {API}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len(),
        );
        self.connection.get_mut().write_all(request.as_bytes()).context("an update")?;
        let (status, said) = self.answer().context("an update's answer")?;
        // 202 would be durable, but not yet visible.
        if status != 200 {
            bail!("an update was answered with {status}: {said}");
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<(u16, String)> {
        let mut line = String::new();
        self.connection.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).context("no status line")?;
        let mut length = 0;
        loop {
            line.clear();
            self.connection.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().context("Content-Length")?;
            }
        }
        let mut body = vec![0; length];
        self.connection.read_exact(&mut body)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}
