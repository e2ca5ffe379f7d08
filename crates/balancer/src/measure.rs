//! What each back end can do, measured before anything is balanced: for policies that go by weights, which somebody has to
//! find.
//!
//! One back end after the other is asked the question of probes, [`WINDOW`] at a time and each anew when it is answered,
//! as fast as answers come but for [`RATE_MAX`]. Weights are in proportion to good answers a second.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::exchange::Exchange;
use crate::health::is_failure;
use crate::message::answers;
use crate::service::Server;
use crate::told::Told;
use crate::watch::Probing;

/// Queries that wait for answers at a time: enough that a server is never idle, and few enough that none is dropped.
pub const WINDOW: u16 = 32;

/// How long a back end is asked before anything counts, so that what it needs is in its caches.
pub const WARM: Duration = Duration::from_millis(500);

/// How long answers count after that.
pub const MEASURED: Duration = Duration::from_secs(2);

/// The most queries a second: who answers as many is fast enough for any weight.
pub const RATE_MAX: f64 = 50_000.0;

/// How long nothing may come before all that waits counts as lost and is asked anew.
const PATIENCE: Duration = Duration::from_millis(200);

/// The weight of the fastest: weights are as exact as that.
const WEIGHT_MAX: f64 = 100.0;

/// Measures a back end: good answers a second.
///
/// # Errors
/// What the system says; `TimedOut` where no good answer came at all.
pub async fn rate(server: &Server, probing: &Probing) -> io::Result<f64> {
    let good = match &server.tls {
        None => by_datagrams(server.address, probing).await?,
        Some(tls) => over_tls(Exchange::new(server.address, Some(tls.clone())), probing).await?,
    };
    if good == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "no good answer came"));
    }
    Ok(good as f64 / MEASURED.as_secs_f64())
}

/// How many good answers a server gives in [`MEASURED`].
async fn by_datagrams(address: SocketAddr, probing: &Probing) -> io::Result<u64> {
    let socket = UdpSocket::from_std(net::client::ask(address, None)?)?;
    let mut asking = Asking { socket, probing, sent: 0, begun: Instant::now() };
    let mut waits = vec![false; usize::from(WINDOW)];
    let (mut good, mut room) = (0_u64, [0; 4096]);
    let (counted, end) = (asking.begun + WARM, asking.begun + WARM + MEASURED);
    while Instant::now() < end {
        for id in 0..WINDOW {
            if !waits[usize::from(id)] {
                asking.ask(id).await?;
                waits[usize::from(id)] = true;
            }
        }
        let Ok(received) = tokio::time::timeout(PATIENCE, asking.socket.recv(&mut room)).await else {
            waits.fill(false);
            continue;
        };
        let reply = &room[..received?];
        let Some(id) = reply.first_chunk().map(|id| u16::from_be_bytes(*id)) else { continue };
        let waited = waits.get_mut(usize::from(id)).is_some_and(std::mem::take);
        if waited && answers(reply, &probing.question, probing.question.len()) {
            let is_good = !is_failure(reply[3] & 0x0f) && Instant::now() >= counted;
            good += u64::from(is_good);
        }
    }
    Ok(good)
}

/// The same over TLS: there are [`WINDOW`] who ask, each of them again when it is answered.
async fn over_tls(exchange: Exchange, probing: &Probing) -> io::Result<u64> {
    let (exchange, begun, mut asking) = (Arc::new(exchange), Instant::now(), JoinSet::new());
    let (counted, end) = (begun + WARM, begun + WARM + MEASURED);
    let between = Duration::from_secs_f64(f64::from(WINDOW) / RATE_MAX);
    for _ in 0..WINDOW {
        let (exchange, probing) = (exchange.clone(), probing.clone());
        asking.spawn(async move {
            let (mut good, mut due) = (0, begun);
            while Instant::now() < end {
                let (query, mut told) = (probing.query(fastrand::u16(..)), Told::Nothing);
                let asked = exchange.ask(&[], &query, probing.question.len(), &mut told);
                if let Ok(reply) = timeout(probing.timeout, asked).await {
                    let is_good = !is_failure(reply?[3] & 0x0f) && Instant::now() >= counted;
                    good += u64::from(is_good);
                }
                due = (due + between).max(Instant::now());
                sleep_until(due).await;
            }
            io::Result::Ok(good)
        });
    }
    let mut all = 0;
    while let Some(good) = asking.join_next().await {
        all += good.map_err(io::Error::other)??;
    }
    Ok(all)
}

/// Weights in proportion to these rates, from 1 to 100.
pub fn weights(rates: &[f64]) -> Vec<u32> {
    let most = rates.iter().copied().fold(0.0, f64::max);
    // A cast of what is no number gives 0.
    rates.iter().map(|rate| ((rate / most * WEIGHT_MAX).round() as u32).max(1)).collect()
}

/// A socket to a back end, and what went over it.
struct Asking<'a> {
    socket: UdpSocket,
    probing: &'a Probing,
    sent: u64,
    begun: Instant,
}

impl Asking<'_> {
    /// Asks with this id, when it is time.
    async fn ask(&mut self, id: u16) -> io::Result<()> {
        let due = self.begun + Duration::from_secs_f64(self.sent as f64 / RATE_MAX);
        if due > Instant::now() {
            tokio::time::sleep_until(due).await;
        }
        self.sent += 1;
        let preface = self.probing.client_address.own_preface();
        self.socket.send(&[preface, self.probing.query(id)].concat()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_in_proportion() {
        for (rates, expected) in [
            (vec![], vec![]),
            (vec![7.0], vec![100]),
            (vec![2_000.0, 1_000.0, 500.0], vec![100, 50, 25]),
            (vec![50_000.0, 1.0], vec![100, 1]),
            (vec![0.0, 0.0], vec![1, 1]),
        ] {
            assert_eq!(weights(&rates), expected, "{rates:?}");
        }
    }
}
