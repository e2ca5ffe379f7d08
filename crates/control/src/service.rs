//! All of the control process, started and stopped.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
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
use crate::source::Kind;

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
    /// Where the address cannot be had.
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
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            let face = Face {
                clock,
                readings: readings.clone(),
                numbers: numbers.clone(),
                servers: Arc::new(
                    options.rule.servers.iter().map(|server| server.addresses.clone()).collect(),
                ),
                sources: Arc::new(
                    options
                        .sources
                        .iter()
                        .map(|s| (s.name.clone(), matches!(s.kind, Kind::Pushed), s.per_second))
                        .collect(),
                ),
            };
            let router = face::router(face, token);
            let served = web::serve(listener, router, |_| true, numbers.http.clone(), shutdown.clone());
            opened = Some((address, tokio::spawn(served)));
        }
        let controller = Controller::new(options, clock, readings, numbers);
        Ok(Service { controller, shutdown, face: opened })
    }

    /// Where the face is.
    pub fn listening(&self) -> Option<SocketAddr> {
        self.face.as_ref().map(|(address, _)| *address)
    }

    /// Makes one round.
    pub async fn round(&mut self) -> ControlRound {
        self.controller.round().await
    }

    /// Makes a round every `interval` and shows it to `each`, until `stop` ends or `each` says that it is enough.
    pub async fn run(
        &mut self,
        interval: Duration,
        stop: impl Future<Output = ()>,
        mut each: impl FnMut(&ControlRound) -> bool,
    ) {
        let mut stop = pin!(stop);
        let mut ticks = tokio::time::interval(interval);
        // After a round that took longer than the interval, the next one keeps its distance.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut stop => return,
                _ = ticks.tick() => {}
            }
            // A round is not broken off while its rows may be on their way.
            let round = self.controller.round().await;
            if !each(&round) {
                return;
            }
        }
    }

    /// Closes the face.
    pub async fn stop(self) {
        self.shutdown.begin();
        if let Some((_, served)) = self.face {
            // It ends by itself; that it was broken off would change nothing.
            let _ = served.await;
        }
    }
}
