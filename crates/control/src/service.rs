//! All of the control process, started and stopped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::ControlRound;
use net::clock::Clock;
use net::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::controller::{Controller, Options};
use crate::face::{self, Face};
use crate::numbers::Numbers;
use crate::readings::Readings;
use crate::source::{Kind, Source};

/// A control process that is ready for its first round.
#[derive(Debug)]
pub struct Service {
    controller: Controller,
    shutdown: Shutdown,
    face: Option<(SocketAddr, JoinHandle<()>)>,
}

impl Service {
    /// Opens the face, where there is one, with its token.
    ///
    /// # Errors
    /// Where the address cannot be had, in a fragment that fits behind "failed to".
    pub async fn start(
        options: Options,
        listen: Option<SocketAddr>,
        token: Option<String>,
    ) -> io::Result<Service> {
        let (clock, shutdown) = (Clock::new(), Shutdown::new());
        let readings = Arc::new(Readings::new(options.rule.servers.len(), options.sources.len()));
        let numbers = Arc::new(Numbers::new(clock, options.sources.iter().map(|source| source.name.clone())));
        let mut opened = None;
        if let Some(address) = listen {
            let listener = TcpListener::from_std(net::tcp::bind(address)?)?;
            let address = listener.local_addr()?;
            let face = Face {
                clock,
                readings: readings.clone(),
                numbers: numbers.clone(),
                servers: Arc::new(options.rule.servers.iter().map(|server| server.targets.clone()).collect()),
                sources: Arc::new(options.sources.iter().map(reported).collect()),
            };
            let router = face::router(face, token);
            let served = web::serve(listener, router, |_| true, numbers.http.clone(), shutdown.clone());
            opened = Some((address, tokio::spawn(served)));
        }
        let controller = Controller::new(options, clock, readings, numbers, shutdown.clone());
        Ok(Service { controller, shutdown, face: opened })
    }

    /// The address of the face, with the port that the system chose; `None` without one.
    pub fn listening(&self) -> Option<SocketAddr> {
        self.face.as_ref().map(|(address, _)| *address)
    }

    /// What ends the rounds once it begins, at once but for rows that are on their way.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Makes one round; `None` where the shutdown broke it off.
    pub async fn round(&mut self) -> Option<ControlRound> {
        self.controller.round().await
    }

    /// Makes a round every `interval` and shows it to `each`, until the shutdown begins or `each` says that it is
    /// enough.
    pub async fn run(&mut self, interval: Duration, mut each: impl FnMut(&ControlRound) -> bool) {
        let mut ticks = tokio::time::interval(interval);
        // After a round that took longer than the interval, the next one keeps its distance.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.shutdown.wait() => return,
                _ = ticks.tick() => {}
            }
            match self.round().await {
                Some(round) if each(&round) => {}
                _ => return,
            }
        }
    }

    /// Begins the shutdown, and waits until the face has answered what was asked.
    pub async fn stop(self) {
        self.shutdown.begin();
        if let Some((_, served)) = self.face {
            // It ends by itself; that it was broken off would change nothing.
            let _ = served.await;
        }
    }
}

/// A source as the face knows it.
fn reported(source: &Source) -> face::Source {
    let is_pushed = matches!(source.kind, Kind::Pushed);
    face::Source { name: source.name.clone(), is_pushed, per_second: source.per_second }
}

#[cfg(test)]
mod tests {
    use web::client::{Asked, Client};

    use super::*;
    use crate::algorithm::Algorithm;
    use crate::load::Scale;
    use crate::rule::{Rule, ServerOptions};

    fn options(api: SocketAddr) -> Options {
        let asked = Asked {
            name: "the API",
            source: "api",
            program: "pointsman serve",
            example: "a URL",
            token: "token_file",
            unavailable: "",
            is_ours: true,
        };
        let server = ServerOptions { targets: vec![[192, 0, 2, 1].into()], capacity: 1.0, ranks: Vec::new() };
        Options {
            client: Client::of(&format!("http://{api}"), None, asked).expect("a URL"),
            policy: "www.example.com".into(),
            rule: Rule { algorithm: Algorithm::First, ttl: 30, regions: Vec::new(), servers: vec![server] },
            timeout: Duration::from_secs(2),
            stale: Duration::from_secs(30),
            sources: Vec::new(),
            dry_run: false,
        }
    }

    #[tokio::test]
    async fn a_round_that_waits_for_an_answer_is_broken_off_at_the_stop() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let api = silent.local_addr().expect("it is bound");
        let mut service = Service::start(options(api), None, None).await.expect("it starts");
        let shutdown = service.shutdown();
        let stopping = tokio::spawn(async move {
            let asked = silent.accept().await.expect("it is asked");
            shutdown.begin();
            (silent, asked)
        });
        assert_eq!(service.round().await, None);
        let _kept = stopping.await.expect("it was asked");
        service.run(Duration::from_secs(10), |round| panic!("there is no round: {round:?}")).await;
        service.stop().await;
    }

    #[tokio::test]
    async fn commands_of_a_round_that_is_broken_off_have_ended_with_it() {
        let folder = std::env::temp_dir().join(format!("pointsman-service-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let made = std::process::Command::new("mkfifo").arg(folder.join("pipe")).status();
        assert!(made.expect("it is there").success());
        // Were it left running, it would say so.
        let line = ["/bin/sh", "-c", "exec > pipe; sleep 20; echo left"].map(String::from).to_vec();
        let kind = Kind::Command { line, folder: folder.clone(), after: String::new() };
        let scale = Scale { threshold: 1.0, low: 0.0, high: 1.0, weight: 1.0 };
        let source = Source { name: "slow".into(), scale, per_second: false, kind };
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let options = Options { timeout: Duration::from_secs(60), sources: vec![source], ..options(nobody) };
        let mut service = Service::start(options, None, None).await.expect("it starts");
        let (shutdown, pipe) = (service.shutdown(), folder.join("pipe"));
        let stopping = std::thread::spawn(move || {
            // Opens once the command has opened the other end.
            let pipe = std::fs::File::open(pipe).expect("it was made");
            shutdown.begin();
            pipe
        });
        assert_eq!(service.round().await, None);
        // Nothing is awaited from here on: what was not ended within the round is not ended at all.
        let said = std::io::read_to_string(stopping.join().expect("it ends")).expect("the pipe has an end");
        assert_eq!(said, "");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_told_with_a_way_on() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = taken.local_addr().expect("it is bound");
        let refused = Service::start(options(address), Some(address), None).await.expect_err("it is taken");
        let told = refused.to_string();
        assert!(told.starts_with(&format!("bind TCP {address}: another program has this port;")), "{told}");
    }
}
