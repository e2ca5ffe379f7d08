//! Load that costs its sender little: queries that go in bursts, each burst as one message that the kernel cuts, and whose
//! answers are counted only. One core offers so what a sender that times every query cannot.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use net::client::{Incoming, Outgoing, ask_for_many};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use replay::mutate::Mutation;
use replay::trace::{Damage, Message, PORT, Trace};

use crate::serving::SENDER_CORE;

/// Queries of a burst: as many as our server receives at once. More would wait for each other.
pub(super) const BURST: usize = 32;

/// Room for answers that wait, in octets: those of more than 100 ms, in which the sender may be kept from its core. What does
/// not fit counts as unanswered, as it does for any client.
const RECEIVE_BUFFER: usize = 32 << 20;

/// How long answers are waited for after the last burst.
const ANSWERS_MAX: Duration = Duration::from_millis(250);

/// What is further behind its time is not sent later: the server would get another rate than the one offered.
const BEHIND_MAX: Duration = Duration::from_millis(5);

/// What became of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    /// Queries that were sent.
    pub(super) sent: u64,
    /// Answers to them that have no error, and as many records as are expected.
    pub(super) answered: u64,
    /// For how long they were sent, in seconds.
    pub(super) seconds: f64,
}

/// The queries of a trace, with client subnet as `pointsman replay --ecs` puts it in.
///
/// # Errors
/// Where it cannot be read.
pub(super) fn queries(trace: &Path) -> Result<Vec<Vec<u8>>> {
    let told = Mutation::parse("ecs=client", 0).map_err(|what| anyhow!(what))?;
    let messages = Trace::open(trace, PORT).with_context(|| trace.display().to_string())?;
    let query = |(index, message): (u64, Result<Message, Damage>)| {
        let message = message.map_err(|damage| anyhow!("{damage}"))?;
        Ok(told.apply(index, message).0.octets)
    };
    (0..).zip(messages).map(query).collect()
}

/// Offers queries, one after the other and again from the first, at this rate a second, while `work` is done; from the
/// sender's core. An answer is one with so many records.
///
/// # Errors
/// Those of `work`, and where there is no socket.
///
/// # Panics
/// Where there are no queries.
pub(super) fn during<T>(
    server: SocketAddr,
    queries: &[Vec<u8>],
    records: usize,
    rate: u32,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Offered)> {
    assert!(!queries.is_empty(), "there is something to ask");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            // Without the core it stays where it is.
            let _ = net::thread::pin(SENDER_CORE);
            offer(server, queries, records, rate, &stop)
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let Ok(offered) = sending.join() else { bail!("the sender panicked") };
        let offered = offered?;
        Ok((done?, offered))
    })
}

fn offer(
    server: SocketAddr,
    queries: &[Vec<u8>],
    records: usize,
    rate: u32,
    stop: &AtomicBool,
) -> Result<Offered> {
    let socket = ask_for_many(server, None).context("the sender's socket")?;
    // Beyond the system's limit only with rights.
    let _ = setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER);
    let (mut outgoing, mut incoming) = (Outgoing::merging(&socket), Incoming::merged());
    let (mut sent, mut answered) = (0, 0);
    let mut asked = queries.iter().cycle().zip((0..=u16::MAX).cycle());
    let pause = Duration::from_secs(1) * BURST as u32 / rate;
    let begin = Instant::now();
    let mut due = begin;
    loop {
        let now = Instant::now();
        if now >= due {
            for (query, id) in asked.by_ref().take(BURST) {
                outgoing.push(query, None, None)[..2].copy_from_slice(&id.to_be_bytes());
            }
            outgoing.send(&socket, |told| sent += u64::from(told.is_ok()));
            // Where the socket has no room, the rest is not offered.
            outgoing.clear();
            due = (due + pause).max(now.checked_sub(BEHIND_MAX).unwrap_or(due));
        }
        answered += received(&mut incoming, &socket, records)?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let end = Instant::now();
    while answered < sent && end.elapsed() < ANSWERS_MAX {
        answered += received(&mut incoming, &socket, records)?;
    }
    Ok(Offered { sent, answered, seconds: (end - begin).as_secs_f64() })
}

/// Receives what is there, as far as one call goes; returns how many of it are answers.
fn received(incoming: &mut Incoming, socket: &UdpSocket, records: usize) -> Result<u64> {
    incoming.receive(socket).context("the sender's socket")?;
    Ok(incoming.replies().filter(|reply| is_answer(reply.octets, records)).count() as u64)
}

/// Whether it is a response without an error, with so many records (RFC 1035 §4.1.1).
fn is_answer(octets: &[u8], records: usize) -> bool {
    octets.len() >= 12
        && octets[2] & 0x80 != 0
        && octets[3] & 15 == 0
        && usize::from(u16::from_be_bytes([octets[6], octets[7]])) == records
}

#[cfg(test)]
mod tests {
    use std::fs;

    use experiments::echo;

    use super::*;
    use crate::process::free;

    #[test]
    fn answers_are_counted_and_nothing_else() {
        let trace = std::env::temp_dir().join(format!("pointsman-bursts-{}", std::process::id()));
        let lines =
            "0.1 192.0.2.77:5353 udp www.example.com. A -\n0.2 198.51.100.7:5353 udp www.example.com. A -\n";
        fs::write(&trace, lines).expect("a file");
        let read = queries(&trace);
        fs::remove_file(&trace).expect("it is there");
        let queries = read.expect("it is a trace");
        let end = |query: &Vec<u8>| query[query.len() - 11..].to_vec();
        let subnet = |network: [u8; 3]| [&[0, 8, 0, 7, 0, 1, 24, 0][..], &network].concat();
        let ends: Vec<Vec<u8>> = queries.iter().map(end).collect();
        assert_eq!(ends, [subnet([192, 0, 2]), subnet([198, 51, 100])]);
        // An echo's answers have no records.
        for (records, is_answer) in [(0, true), (6, false)] {
            let here = free().expect("loopback has ports");
            let work = || during(here, &queries, records, 1_000, || Ok(()));
            let ((), offered) = echo::during(here, || Ok(()), work).expect("loopback works");
            assert!(offered.sent >= BURST as u64);
            assert_eq!(offered.answered, if is_answer { offered.sent } else { 0 });
        }
    }
}
