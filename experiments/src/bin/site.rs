//! A web site to be kept busy: an HTTP server each of whose requests takes the same time of a processor.
//!
//! `site ADDRESS MICROSECONDS` listens there, says where on stdout, and answers one request after the other, each with a
//! number of floating-point multiplications, as the servlet of MyXDNS's evaluation does: as many as fit into the time
//! that is left when all else of a request is paid for, so that what is demanded does not depend on how fast the
//! machine is. It ends when its stdin does, so that it never outlives who started it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the terminal is this program's only output")]

use std::hint::black_box;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};

/// The most of a request that is read, in octets.
const REQUEST_MAX: u64 = 4 << 10;

/// How long a client may take to send its request: all others wait meanwhile.
const CLIENT_MAX: Duration = Duration::from_millis(100);

/// Multiplications between two looks at the clock: some microseconds.
const CHUNK: usize = 1_000;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";

fn main() -> ExitCode {
    match perform() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("site: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let address: SocketAddr = words.next().context("no address")?.parse().context("the address")?;
    let work =
        Duration::from_micros(words.next().context("no microseconds")?.parse().context("microseconds")?);
    let listener = TcpListener::bind(address).context("the address")?;
    println!("{}", listener.local_addr().context("the address")?);
    thread::spawn(move || serve(&listener, work));
    io::copy(&mut io::stdin(), &mut io::sink()).context("stdin")?;
    Ok(())
}

/// Answers one request after the other.
fn serve(listener: &TcpListener, work: Duration) {
    let mut before = spent();
    for client in listener.incoming().flatten() {
        // A client that has gone away by now has cost as much.
        let _ = answer(client, before + work);
        before = spent();
    }
}

/// Reads a request, multiplies until this thread has spent so much, and answers.
fn answer(client: TcpStream, until: Duration) -> io::Result<()> {
    client.set_read_timeout(Some(CLIENT_MAX))?;
    let mut lines = BufReader::new(client.take(REQUEST_MAX));
    let mut line = String::new();
    while lines.read_line(&mut line)? > "\r\n".len() {
        line.clear();
    }
    while spent() < until {
        multiply();
    }
    lines.into_inner().into_inner().write_all(ANSWER)
}

fn multiply() {
    let mut product = black_box(1.0_f64);
    for _ in 0..CHUNK {
        product *= black_box(1.000_000_1);
    }
    black_box(product);
}

/// The processor time of this thread so far.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has this clock").into()
}
