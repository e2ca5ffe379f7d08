//! The balancer's end of the credit protocol: who talks to agents in a test; and a bad way between the two.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use credit::{Account, HELLO_LEN, Hello, Key, REPORT_LEN, Report, Service, Taken};

use crate::folder::Folder;
use crate::program::PROGRAM_WAIT;

/// How long the balancer listens at once.
const HEARING: Duration = Duration::from_millis(2);

/// The octets of the key of all tests.
const KEY: [u8; 32] = [0x5a; 32];

/// The key of all tests as a file holds it.
pub fn key_text() -> String {
    Key::text(&KEY)
}

/// The key of all tests.
pub fn key() -> Key {
    Key::new(&KEY)
}

/// A file with that key, as programs want it.
///
/// # Panics
/// Where it cannot be written.
pub fn key_file(folder: &Folder) -> String {
    folder.write_secret("credit.key", key_text())
}

/// A balancer that sends no queries itself: the test does, and says how many.
#[derive(Debug)]
pub struct Balancer {
    socket: UdpSocket,
    key: Key,
    accounts: Vec<Account>,
    /// What the balancer says it has sent to each service.
    pub sent: Vec<u64>,
    /// Where the last agent is.
    pub agent: Option<SocketAddr>,
    began: Instant,
}

impl Balancer {
    /// Binds a socket for reports about these services, and draws a nonce.
    ///
    /// # Panics
    /// Where loopback has no port.
    pub fn new(services: &[Service]) -> Balancer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        socket.set_read_timeout(Some(HEARING)).expect("the bound is not zero");
        let mut balancer = Balancer {
            socket,
            key: key(),
            accounts: Vec::new(),
            sent: vec![0; services.len()],
            agent: None,
            began: Instant::now(),
        };
        balancer.restart(services);
        balancer
    }

    /// Begins anew with another nonce, at the same address, as a balancer that was started again.
    pub fn restart(&mut self, services: &[Service]) {
        let nonce = fastrand::u64(1..);
        self.accounts = services.iter().map(|service| Account::new(1, nonce, *service)).collect();
        self.sent = vec![0; services.len()];
    }

    /// Where it takes reports.
    ///
    /// # Panics
    /// Where the system does not know.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    /// Says hello about a service, and hears reports, until one in force is as wanted; returns it.
    ///
    /// # Panics
    /// Where none is within [`PROGRAM_WAIT`].
    pub fn wait(&mut self, service: usize, mut wanted: impl FnMut(&Report) -> bool) -> Report {
        let mut last = None;
        let until = Instant::now() + PROGRAM_WAIT;
        while Instant::now() < until {
            self.greet(service);
            if let Some((which, report, Taken::Fresh)) = self.hear()
                && which == service
            {
                if wanted(&report) {
                    return report;
                }
                last = Some(report);
            }
        }
        panic!("no such report, the last is {last:?}")
    }

    /// Waits until the lease of the last report is over, without a hello.
    ///
    /// # Panics
    /// Where it lasts.
    pub fn wait_for_the_end(&mut self, service: usize) {
        let until = Instant::now() + PROGRAM_WAIT;
        while self.accounts[service].report(self.began.elapsed()).is_some() {
            assert!(Instant::now() < until, "the lease does not end");
            self.hear();
        }
    }

    /// How much may be sent now.
    pub fn credit(&self, service: usize) -> Option<u64> {
        self.accounts[service].credit(self.began.elapsed(), self.sent[service])
    }

    /// Sends a hello to where the last agent is, if any has come.
    pub fn greet(&mut self, service: usize) {
        let hello = self.hello(service);
        self.send(&self.octets(&hello));
    }

    /// The next hello, not sent.
    pub fn hello(&mut self, service: usize) -> Hello {
        self.accounts[service].hello(self.began.elapsed(), self.sent[service], self.sent[service])
    }

    /// A hello's octets under the key.
    pub fn octets(&self, hello: &Hello) -> Vec<u8> {
        let mut octets = vec![0; HELLO_LEN];
        hello.write(&self.key, &mut octets);
        octets
    }

    /// Sends any octets to where the last agent is.
    pub fn send(&self, octets: &[u8]) {
        if let Some(agent) = self.agent {
            // An agent that has ended is a port without a socket.
            let _ = self.socket.send_to(octets, agent);
        }
    }

    /// Receives for some milliseconds, and answers an introduction; what came, and what became of it.
    ///
    /// # Panics
    /// Where something comes that no agent sends.
    pub fn hear(&mut self) -> Option<(usize, Report, Taken)> {
        let mut octets = [0; REPORT_LEN + 1];
        let (length, from) = match self.socket.recv_from(&mut octets) {
            Ok(received) => received,
            // Nothing came, or what was sent before found a port without a socket.
            Err(_) => return None,
        };
        let report = Report::read(&octets[..length], &self.key).expect("an agent's report");
        let service = self.accounts.iter().position(|account| account.service() == report.service);
        let service = service.expect("a service of this balancer");
        let taken = self.accounts[service].take(&report, self.began.elapsed());
        match taken {
            Taken::Introduction => {
                self.agent = Some(from);
                self.greet(service);
            }
            Taken::Fresh => self.agent = Some(from),
            _ => {}
        }
        Some((service, report, taken))
    }
}

/// The way between one agent and a balancer that runs: reports get lost, and those that do not come again behind the next
/// one. Hellos pass.
#[derive(Debug)]
pub struct BadWay {
    /// Where the agent is to report.
    pub address: SocketAddr,
    losses: Arc<Losses>,
}

#[derive(Debug, Default)]
struct Losses {
    percent: AtomicU32,
    lost: AtomicUsize,
    passed: AtomicUsize,
}

impl BadWay {
    /// Leads to this balancer; nothing gets lost yet.
    ///
    /// # Panics
    /// Where loopback has no port.
    pub fn to(balancer: SocketAddr) -> BadWay {
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let (front, back) = (Arc::new(bind()), Arc::new(bind()));
        back.connect(balancer).expect("loopback has routes");
        let address = front.local_addr().expect("it is bound");
        let (losses, agent) = (Arc::new(Losses::default()), Arc::new(Mutex::new(None)));
        // Both threads end with the test's process.
        let (counts, heard, reports, onward) = (losses.clone(), agent.clone(), front.clone(), back.clone());
        std::thread::spawn(move || {
            let (mut rng, mut octets, mut before) = (fastrand::Rng::with_seed(1), [0; 512], Vec::new());
            while let Ok((length, from)) = reports.recv_from(&mut octets) {
                *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
                if rng.u32(..100) < counts.percent.load(Ordering::SeqCst) {
                    counts.lost.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                for report in [&octets[..length], &before] {
                    // A balancer that has ended is a port without a socket.
                    let _ = onward.send(report);
                }
                before = octets[..length].to_vec();
                counts.passed.fetch_add(1, Ordering::SeqCst);
            }
        });
        std::thread::spawn(move || {
            let mut octets = [0; 512];
            while let Ok(length) = back.recv(&mut octets) {
                if let Some(agent) = *agent.lock().unwrap_or_else(PoisonError::into_inner) {
                    let _ = front.send_to(&octets[..length], agent);
                }
            }
        });
        BadWay { address, losses }
    }

    /// From now on so many of a hundred reports get lost.
    pub fn lose(&self, percent: u32) {
        self.losses.percent.store(percent, Ordering::SeqCst);
    }

    /// How many were lost, and how many have passed.
    pub fn counts(&self) -> [usize; 2] {
        [&self.losses.lost, &self.losses.passed].map(|count| count.load(Ordering::SeqCst))
    }
}
