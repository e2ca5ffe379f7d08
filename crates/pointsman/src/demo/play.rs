//! The play itself: sockets, clock, calls and terminal around [`Watch`], in one loop.

use std::future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use api::Changed;
use hyper::StatusCode;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::output::Output;
use super::sample::{Change, SCRIPT};
use super::screen::View;
use super::watch::Watch;
use crate::failure::Failure;
use crate::session;
use crate::supervision::Stop;
use web::client::{Call, Client};

/// How many queries all clients together send a second: enough for shares to settle within a second, and to
/// see a change within a millisecond; little enough to leave a small machine in peace.
const QUERIES_PER_SECOND: u32 = 2_000;

/// How often what is due is sent. Timers are no finer.
const TICK: Duration = Duration::from_millis(1);

/// The most queries sent at a tick; what a stall left undone beyond is not made up for.
const BURST_MAX: u32 = 32;

/// The longest answer: clients take no more over UDP.
const ANSWER_MAX: usize = 1_232;

/// How much time lies between two changes at most.
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// What the demo plays with.
pub(super) struct Stage {
    pub(super) client: Client,
    pub(super) api: String,
    /// Where the name server listens.
    pub(super) server: SocketAddr,
    /// How long to play; until a signal where not given.
    pub(super) length: Option<Duration>,
}

/// A change that is being asked for: the time when its last call returned, and the generation.
type Calling = JoinHandle<(Instant, Result<u64, Failure>)>;

/// Plays until the time is over or a signal comes, and until what is under way then has ended, which takes
/// [`VISIBLE_MAX`](super::watch::VISIBLE_MAX) and [`LOST_AFTER`](super::watch::LOST_AFTER) at most. Returns for
/// how long.
///
/// # Errors
/// [`Failure`] of a socket or of the output; what goes wrong with answers and changes is the watch's.
pub(super) async fn play(
    stage: &Stage,
    watch: &mut Watch,
    output: &mut Output,
    stop: &mut Stop,
) -> Result<Duration, Failure> {
    let socket = connect(stage.server).map_err(|cause| {
        Failure::Failed(format!("the clients have no socket to {}: {cause}", stage.server))
    })?;
    // As many pauses as changes, and one before them.
    let pauses = SCRIPT.len() as u32 + 1;
    let pause = stage.length.map_or(PAUSE_MAX, |length| (length / pauses).min(PAUSE_MAX));
    let (mut tick, mut picture) = (interval(TICK), interval(output.period()));
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    picture.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut changes = SCRIPT.iter().cycle();
    let mut calling: Option<Calling> = None;
    let mut message = [0; ANSWER_MAX];
    let begun = Instant::now();
    let (mut next_query, mut next_change, mut told) = (Duration::ZERO, pause, 0);
    let mut is_ending = false;
    loop {
        // Answers first: none is late because of what else there is to do.
        tokio::select! {
            biased;
            received = socket.recv(&mut message) => {
                // A refusal by the system of what was sent: the query will be lost.
                if let Ok(length) = received {
                    watch.hear(begun.elapsed(), &message[..length]);
                }
            }
            (at, made) = returned(&mut calling) => {
                calling = None;
                match made {
                    Ok(generation) => watch.returned(at.duration_since(begun), generation),
                    Err(failure) => {
                        watch.fault(format!("a change was not made: {}", told_by(failure)));
                        break;
                    }
                }
            }
            () = stop.wanted() => is_ending = true,
            _ = picture.tick() => {
                output.picture(&View { now: begun.elapsed(), watch, api: &stage.api })?;
            }
            _ = tick.tick() => {
                let now = begun.elapsed();
                watch.expire(now);
                is_ending |= stage.length.is_some_and(|length| now >= length);
                if is_ending && !watch.is_changing() {
                    if !watch.is_waiting() {
                        break;
                    }
                } else {
                    ask(&socket, watch, now, &mut next_query);
                }
                if !is_ending && now >= next_change && !watch.is_changing() {
                    next_change = now.max(next_change) + pause;
                    if let Some(change) = changes.next() {
                        watch.begin(begun.elapsed(), change);
                        calling = Some(call(&stage.client, change));
                    }
                }
            }
        }
        if !watch.is_changing() && told < watch.begun {
            told = watch.begun;
            output.changed(watch)?;
        }
    }
    let now = begun.elapsed();
    output.last_picture(&View { now, watch, api: &stage.api })?;
    Ok(now)
}

/// Makes calls at once and waits for all of them.
///
/// # Errors
/// [`Failure`] of a call; a change that not every worker serves in time is one.
pub(super) async fn make(client: &Client, calls: Vec<Call>) -> Result<u64, Failure> {
    let mut sent = tokio::task::JoinSet::new();
    for call in calls {
        let client = client.clone();
        sent.spawn(async move { client.send(call).await });
    }
    let mut generation = 0;
    for answer in sent.join_all().await {
        let answer = answer?;
        if answer.status == StatusCode::ACCEPTED {
            return Err(Failure::Failed("a worker did not serve the change in time".into()));
        }
        let changed: Changed = session::parsed(&answer)?;
        generation = generation.max(changed.generation);
    }
    Ok(generation)
}

/// The address to reach a server at that listens at `address`.
pub(super) fn reached_at(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        given => given,
    };
    SocketAddr::new(ip, address.port())
}

fn call(client: &Client, change: &Change) -> Calling {
    let (client, calls) = (client.clone(), change.calls());
    tokio::spawn(async move {
        let made = make(&client, calls).await;
        (Instant::now(), made)
    })
}

/// Waits for the call that is under way; for ever where none is.
async fn returned(calling: &mut Option<Calling>) -> (Instant, Result<u64, Failure>) {
    match calling {
        Some(handle) => handle.await.unwrap_or_else(|cause| {
            (Instant::now(), Err(Failure::Failed(format!("the call was broken off: {cause}"))))
        }),
        None => future::pending().await,
    }
}

/// What a failure says, without the program's name.
fn told_by(failure: Failure) -> String {
    match failure {
        Failure::Failed(what) | Failure::Unreachable(what) => what,
        other => other.to_string(),
    }
}

/// Sends the queries that are due since `next`.
fn ask(socket: &UdpSocket, watch: &mut Watch, now: Duration, next: &mut Duration) {
    for _ in 0..BURST_MAX {
        if *next > now {
            return;
        }
        *next += Duration::from_secs(1) / QUERIES_PER_SECOND;
        let Some(query) = watch.ask(now) else { break };
        // What the system does not take is lost, as on any network, and counted so.
        let _ = socket.try_send(&query);
    }
    *next = now;
}

fn connect(server: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::from_std(net::client::ask(server, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_at_any_address_is_reached_at_loopback() {
        for (listening, reached) in
            [("0.0.0.0:53", "127.0.0.1:53"), ("[::]:53", "[::1]:53"), ("192.0.2.1:5300", "192.0.2.1:5300")]
        {
            let listening = listening.parse().expect("an address");
            assert_eq!(reached_at(listening).to_string(), reached);
        }
    }
}
