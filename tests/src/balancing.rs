//! A balancer that runs, and back ends that do whatever a test wants.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::Value;

use crate::http::Client;
use crate::program::{Ended, PROGRAM_WAIT, Program};

/// The question of probes: the root's NS.
const PROBED: [u8; 5] = [0, 0, 2, 0, 1];

/// A running balancer.
#[derive(Debug)]
pub struct Balancing {
    /// The process.
    pub program: Program,
    /// Where it answers DNS.
    pub dns: SocketAddr,
    /// Where it answers over TLS, where it does.
    pub tls: Option<SocketAddr>,
    /// Where it answers over HTTPS, where it does.
    pub https: Option<SocketAddr>,
    /// Where it answers over QUIC, where it does.
    pub quic: Option<SocketAddr>,
    /// Where agents report, where they do.
    pub credit: Option<SocketAddr>,
    /// Where HTTP is answered, where it is.
    pub http: Option<SocketAddr>,
}

impl Balancing {
    /// Starts one before these back ends, with further arguments.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(back_ends: &[SocketAddr], more: &[&str]) -> Balancing {
        let back_ends: Vec<String> = back_ends.iter().map(|address| format!("--backend={address}")).collect();
        let mut arguments = vec!["balance", "--listen", "127.0.0.1:0"];
        arguments.extend(back_ends.iter().map(String::as_str));
        arguments.extend(more);
        let mut program = Program::start(&arguments);
        let mut at = |what: &str| {
            let line = program.line(what);
            line.split(' ').nth(2).and_then(|text| text.parse().ok()).expect("an address")
        };
        let dns = at("(DNS)");
        let tls = more.contains(&"--tls-listen").then(|| at("(DNS over TLS)"));
        let https = more.contains(&"--https-listen").then(|| at("(DNS over HTTPS)"));
        let quic = more.contains(&"--quic-listen").then(|| at("(DNS over QUIC)"));
        let credit = more.contains(&"--credit").then(|| at("(credit)"));
        let http = more.contains(&"--http").then(|| at("(HTTP)"));
        program.line("ready");
        Balancing { program, dns, tls, https, quic, credit, http }
    }

    /// A client of its HTTP.
    ///
    /// # Panics
    /// Where it was not started with `--http`.
    pub fn client(&self) -> Client {
        Client::new(self.http.expect("it was asked for"))
    }

    /// What a back end's status says.
    ///
    /// # Panics
    /// Where it is not there.
    pub fn back_end(&self, address: SocketAddr) -> Value {
        let status = self.client().call("GET", "/v1/status", "").json();
        let back_ends = status["back_ends"].as_array().expect("a list").clone();
        let found = back_ends.into_iter().find(|back_end| back_end["address"] == address.to_string());
        found.expect("it is there")
    }

    /// Waits until a back end's status is as wanted.
    ///
    /// # Panics
    /// Where it does not become so.
    pub fn wait(&self, address: SocketAddr, wanted: impl Fn(&Value) -> bool) {
        let until = Instant::now() + PROGRAM_WAIT;
        loop {
            let status = self.back_end(address);
            if wanted(&status) {
                return;
            }
            assert!(Instant::now() < until, "{status}");
        }
    }

    /// A number of `/metrics`, by its name with its labels.
    ///
    /// # Panics
    /// Where it is not there.
    pub fn metric(&self, name: &str) -> f64 {
        self.client().metric(name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Ends it, and sees that it ends well.
    ///
    /// # Panics
    /// Where it does not.
    pub fn stop(self) -> Ended {
        self.program.stop()
    }
}

/// A back end that does with each query what a test says, and answers probes.
#[derive(Debug)]
pub struct Scripted {
    /// Where it answers.
    pub address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Scripted {
    /// Starts one; `reply` gets the query, its number, and the socket with the address to reply to.
    ///
    /// # Panics
    /// Where there is no port.
    pub fn start(reply: impl Fn(&[u8], usize, &UdpSocket, SocketAddr) + Send + 'static) -> Scripted {
        Scripted::at(SocketAddr::from(([127, 0, 0, 1], 0)), reply)
    }

    /// The same at this address.
    ///
    /// # Panics
    /// Where it cannot be had.
    pub fn at(
        address: SocketAddr,
        reply: impl Fn(&[u8], usize, &UdpSocket, SocketAddr) + Send + 'static,
    ) -> Scripted {
        let socket = UdpSocket::bind(address).expect("it is free");
        let address = socket.local_addr().expect("it is bound");
        let asked = Arc::new(AtomicUsize::new(0));
        let counts = asked.clone();
        std::thread::spawn(move || {
            let mut octets = [0; 4096];
            // The thread ends with the test's process.
            while let Ok((length, from)) = socket.recv_from(&mut octets) {
                // A probe: whoever is scripted is alive.
                if octets[..length].ends_with(&PROBED) && length == 12 + PROBED.len() {
                    socket.send_to(&answer(&octets[..length], 0), from).expect("loopback sends");
                    continue;
                }
                let number = counts.fetch_add(1, Ordering::SeqCst);
                reply(&octets[..length], number, &socket, from);
            }
        });
        Scripted { address, asked }
    }

    /// Starts one that answers everything with this response code, at once.
    ///
    /// # Panics
    /// Where there is no port.
    pub fn answering(rcode: u8) -> Scripted {
        Scripted::start(answers(rcode))
    }

    /// The same at this address.
    ///
    /// # Panics
    /// Where it cannot be had.
    pub fn answering_at(address: SocketAddr, rcode: u8) -> Scripted {
        Scripted::at(address, answers(rcode))
    }

    /// How many queries it has got, without probes.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answers(rcode: u8) -> impl Fn(&[u8], usize, &UdpSocket, SocketAddr) + Send + 'static {
    move |query, _, socket, from| {
        socket.send_to(&answer(query, rcode), from).expect("loopback sends");
    }
}

/// An answer without records of its own: the query's bits but for QR and the response code.
pub fn answer(query: &[u8], rcode: u8) -> Vec<u8> {
    let mut reply = query.to_vec();
    reply[2] |= 0x80;
    reply[3] = reply[3] & 0xf0 | rcode;
    reply
}
