//! The thread of an agent: it samples, hears and reports.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use api::{AgentBalancer, AgentQuota, AgentService, AgentStatus};
use credit::{HELLO_LEN, Hello, Key, REPORT_LEN, Refused, Service, Transport};
use net::clock::Clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::kernel::Kernel;
use crate::meter::{Meter, Settings};

/// The most services of one agent: a server has a few transports and addresses, and each costs a look an interval.
pub const SERVICES_MAX: usize = 64;

/// The most balancers of one agent, each with a report an interval.
pub const BALANCERS_MAX: usize = 16;

/// From one look at the queues to the next, in milliseconds, as long as a look is cheap and could show what is to be told at
/// once.
const TICK_FILLED_MS: u16 = 4;

/// The same where not all of that is so: as late a stop and a drain are noticed. A little longer than an interval, so that a
/// hello ends the wait rather than comes just after it.
const TICK_MS: u16 = 25;

/// How many datagrams are received before the queues are looked at again: more than balancers send at once.
const HEARD_AT_ONCE_MAX: usize = 64;

/// From one warning that a balancer answers from another address than it is told at to the next: whoever repeats its hellos
/// can have it said.
const STRANGER_SPACING: Duration = Duration::from_secs(3600);

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it looks at; 1 to [`SERVICES_MAX`].
    pub services: Vec<Service>,
    /// Whom it tells, at most [`BALANCERS_MAX`].
    pub balancers: Vec<SocketAddr>,
    /// The secret that it shares with them.
    pub key: Key,
    /// How services are metered.
    pub settings: Settings,
}

/// Why an agent did not start.
#[derive(Debug)]
pub enum StartError {
    /// The kernel does not tell of sockets.
    Diag(io::Error),
    /// The system refused a socket or a thread.
    System(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Diag(cause) => write!(
                f,
                "the kernel does not tell of sockets (NETLINK_SOCK_DIAG): {cause}; it needs the modules inet_diag and \
                 udp_diag, and a service that is allowed AF_NETLINK"
            ),
            StartError::System(cause) => write!(f, "the system refused a socket or a thread: {cause}"),
        }
    }
}

impl std::error::Error for StartError {}

/// What an agent counts, since it was started.
#[derive(Debug, Default)]
pub struct Counts {
    /// Hellos that counted.
    pub hellos: AtomicU64,
    /// Datagrams that were not as long as a hello.
    pub length: AtomicU64,
    /// Datagrams of another protocol, version or kind.
    pub unknown: AtomicU64,
    /// Hellos that were not signed with the key.
    pub unsigned: AtomicU64,
    /// Signed hellos with a value that cannot be.
    pub malformed: AtomicU64,
    /// Datagrams from an address that is no balancer's.
    pub strangers: AtomicU64,
    /// Hellos about a service that is not looked at.
    pub alien: AtomicU64,
    /// Hellos that were repeated, overtaken, or of a balancer that had heard nothing of us lately.
    pub old: AtomicU64,
    /// Reports that the system did not take.
    pub unsent: AtomicU64,
    /// Looks at all that the kernel tells of a service.
    pub samples: AtomicU64,
    /// Looks at duplicates of its sockets alone.
    pub glances: AtomicU64,
    /// Looks that the kernel refused.
    pub failed: AtomicU64,
}

/// What the thread and others share.
#[derive(Debug)]
struct Shared {
    counts: Counts,
    services: Mutex<Vec<AgentService>>,
    is_stopping: AtomicBool,
    is_draining: AtomicBool,
    clock: Clock,
}

/// An agent that runs.
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What others read of a running agent.
#[derive(Clone, Debug)]
pub struct View(Arc<Shared>);

impl Agent {
    /// Starts it; the services and balancers need not be there yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: Options) -> Result<Self, StartError> {
        let watched: io::Result<Vec<Watched>> = options
            .services
            .iter()
            .map(|service| {
                let first = options.balancers.iter().map(|_| fastrand::u64(1..1 << 62));
                let meter = Meter::new(*service, options.settings, first);
                Ok(Watched { meter, kernel: Kernel::new(*service)?, is_found: None, is_refused: false })
            })
            .collect();
        let watched = watched.map_err(StartError::Diag)?;
        let sockets = Sockets::bind(&options.balancers).map_err(StartError::System)?;
        let shared = Arc::new(Shared {
            counts: Counts::default(),
            services: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            clock: Clock::new(),
        });
        let mut runner = Runner {
            watched,
            sockets,
            balancers: options.balancers,
            key: options.key,
            shared: shared.clone(),
            warned: None,
        };
        runner.publish(Duration::ZERO);
        let thread = std::thread::Builder::new().name("agent".into());
        let thread = thread.spawn(move || runner.run()).map_err(StartError::System)?;
        Ok(Self { shared, thread })
    }

    /// Has all services drained, or takes again; balancers are told within 25 ms.
    pub fn drain(&self, is_draining: bool) {
        self.shared.is_draining.store(is_draining, Ordering::Release);
    }

    /// What others may read.
    pub fn view(&self) -> View {
        View(Arc::clone(&self.shared))
    }

    /// Ends it; what it has reported stays valid to the end of its lease.
    pub fn stop(self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        if self.thread.join().is_err() {
            tracing::error!("the agent's thread had panicked");
        }
    }
}

impl View {
    /// How the agent is doing.
    pub fn status(&self) -> AgentStatus {
        AgentStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.0.clock.now().monotonic.as_secs(),
            services: self.0.services.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// What it counts.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }
}

/// One service that is looked at.
struct Watched {
    meter: Meter,
    kernel: Kernel,
    /// Whether it was there at the last look; unknown before the first.
    is_found: Option<bool>,
    /// Whether the kernel refused the last look.
    is_refused: bool,
}

struct Runner {
    watched: Vec<Watched>,
    sockets: Sockets,
    balancers: Vec<SocketAddr>,
    key: Key,
    shared: Arc<Shared>,
    /// When it was last said that a balancer answers from another address.
    warned: Option<Duration>,
}

impl Runner {
    fn run(&mut self) {
        let mut published = Duration::ZERO;
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            let has_come = self.sockets.wait(self.tick(self.shared.clock.now().monotonic));
            let now = self.shared.clock.now().monotonic;
            if has_come {
                self.hear(now);
            }
            self.look(now);
            self.report(now);
            if now.saturating_sub(published) >= PUBLISH_INTERVAL {
                published = now;
                self.publish(now);
            }
        }
    }

    /// For how many milliseconds to wait at most.
    fn tick(&self, now: Duration) -> u16 {
        let wants_glances =
            |watched: &Watched| watched.kernel.has_duplicates() && watched.meter.wants_glances();
        let tick = if self.watched.iter().any(wants_glances) { TICK_FILLED_MS } else { TICK_MS };
        let readings = self.watched.iter().filter_map(|watched| watched.meter.next_reading());
        let until = readings.min().map(|at| at.saturating_sub(now).as_micros().div_ceil(1_000));
        until.map_or(tick, |until| u16::try_from(until).unwrap_or(tick).min(tick))
    }

    fn hear(&mut self, now: Duration) {
        let mut octets = [0; HELLO_LEN + 1];
        let counts = &self.shared.counts;
        for turn in 0..HEARD_AT_ONCE_MAX {
            let Some((length, from)) = self.sockets.receive(turn, &mut octets) else { break };
            let Some(balancer) = self.balancers.iter().position(|balancer| *balancer == from) else {
                add(&counts.strangers);
                let is_due = self.warned.is_none_or(|at| now.saturating_sub(at) >= STRANGER_SPACING);
                if is_due && Hello::read(&octets[..length], &self.key).is_ok() {
                    self.warned = Some(now);
                    tracing::warn!(%from, "a balancer with our key answers from an address that it is not told at; have it take reports at one address of its own (credit, not 0.0.0.0 or ::)");
                }
                continue;
            };
            let hello = match Hello::read(&octets[..length], &self.key) {
                Ok(hello) => hello,
                Err(refused) => {
                    add(match refused {
                        Refused::Length => &counts.length,
                        Refused::Unknown => &counts.unknown,
                        Refused::Unsigned => &counts.unsigned,
                        Refused::Malformed => &counts.malformed,
                    });
                    continue;
                }
            };
            let watched = self.watched.iter_mut().find(|watched| watched.meter.service() == hello.service);
            add(match watched.map(|watched| watched.meter.hear(balancer, &hello, now)) {
                Some(true) => &counts.hellos,
                Some(false) => &counts.old,
                None => &counts.alien,
            });
        }
    }

    fn look(&mut self, now: Duration) {
        let counts = &self.shared.counts;
        let is_draining = self.shared.is_draining.load(Ordering::Acquire);
        for Watched { meter, kernel, is_found, is_refused } in &mut self.watched {
            meter.drain(is_draining);
            if !meter.is_owing()
                && meter.wants_glances()
                && let Some(glance) = kernel.glance(now)
            {
                add(&counts.glances);
                meter.glance(&glance);
            }
            let service = meter.service();
            let is_reading_due = meter.next_reading().is_some_and(|at| at <= now);
            // Of connections nobody knows what one costs.
            if service.transport() == Transport::Udp && (meter.is_due(now) || is_reading_due) {
                meter.used(kernel.used(&self.shared.clock));
            }
            if !meter.is_due(now) {
                continue;
            }
            add(&counts.samples);
            let sample = match kernel.sample(now) {
                Ok(sample) => sample,
                Err(cause) => {
                    add(&counts.failed);
                    // It may go on for days, and is told once.
                    if !std::mem::replace(is_refused, true) {
                        tracing::warn!(%service, %cause, "the kernel does not tell of it: no credit until it does");
                    }
                    meter.miss(now);
                    continue;
                }
            };
            if std::mem::take(is_refused) {
                tracing::info!(%service, "the kernel tells of it again");
            }
            let is_there = !sample.queues.is_empty();
            if is_found.replace(is_there) != Some(is_there) {
                match is_there {
                    true => tracing::info!(%service, sockets = sample.queues.len(), "found"),
                    false => tracing::warn!(%service, "there is no such service here: no credit"),
                }
            }
            meter.sample(&sample);
        }
    }

    fn report(&mut self, now: Duration) {
        let counts = &self.shared.counts;
        let mut octets = [0; REPORT_LEN];
        for Watched { meter, .. } in &mut self.watched {
            meter.reports(now, |balancer, report| {
                let length = report.write(&self.key, &mut octets);
                let sent = self.sockets.send(&octets[..length], self.balancers[balancer]);
                sent.inspect_err(|_| add(&counts.unsent)).is_ok()
            });
        }
    }

    fn publish(&mut self, now: Duration) {
        let services = self.watched.iter().map(|watched| shown(watched, &self.balancers, now)).collect();
        *self.shared.services.lock().unwrap_or_else(PoisonError::into_inner) = services;
    }
}

/// From one time that the status is written to the next.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

fn shown(watched: &Watched, balancers: &[SocketAddr], now: Duration) -> AgentService {
    let Watched { meter, kernel, .. } = watched;
    let room = meter.room();
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let millis = |at: Duration| u64::try_from(now.saturating_sub(at).as_millis()).unwrap_or(u64::MAX);
    let balancers = meter.links().iter().zip(balancers).map(|(link, address)| {
        let hello = link.hello;
        let is_heard = link.heard(now, meter.lease()).is_some();
        AgentBalancer {
            address: address.to_string(),
            balancer: hello.map(|(hello, _)| format!("{:016x}", hello.balancer)),
            heard: is_heard,
            heard_ms_ago: hello.map(|(_, at)| millis(at)),
            sent: hello.map_or(0, |(hello, _)| hello.sent),
            answered: hello.map_or(0, |(hello, _)| hello.answered),
            credit: hello.filter(|_| is_heard).map_or(0, |(hello, _)| link.limit.saturating_sub(hello.sent)),
            demand_per_second: link.demand.round() as u64,
            reports: link.reports,
        }
    });
    AgentService {
        service: meter.service().to_string(),
        sockets: meter.sockets(),
        look: match (meter.sockets(), meter.service().transport()) {
            (0, _) => "absent",
            (_, Transport::Udp) if kernel.has_duplicates() => "duplicate",
            _ => "netlink",
        }
        .to_owned(),
        backlog: room.length,
        backlog_limit: room.limit,
        free: room.free,
        charge_octets: meter.charge(),
        drain_per_second: meter.drain_rate().map(|rate| rate.round() as u64),
        queue_delay_us: micros(meter.queue_delay()),
        drops: meter.dropped(),
        credit: meter.credit(),
        draining: meter.is_draining(),
        quota: meter.quota(now).map(|quota| AgentQuota {
            quota_us: micros(quota.quota),
            period_us: micros(quota.period),
            refill_us: micros(quota.refill),
            left_us: quota.left_us,
            cost_ns: u64::try_from(quota.cost.as_nanos()).unwrap_or(u64::MAX),
        }),
        balancers: balancers.collect(),
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The sockets to balancers, of the families that they need.
#[derive(Debug)]
struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    fn bind(balancers: &[SocketAddr]) -> io::Result<Self> {
        let bind = |is_needed: bool, any: IpAddr| {
            if !is_needed {
                return Ok(None);
            }
            let socket = UdpSocket::bind((any, 0))?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(Some(socket))
        };
        let v4 = bind(balancers.iter().any(SocketAddr::is_ipv4), Ipv4Addr::UNSPECIFIED.into())?;
        let v6 = bind(balancers.iter().any(SocketAddr::is_ipv6), Ipv6Addr::UNSPECIFIED.into())?;
        Ok(Self { v4, v6 })
    }

    fn all(&self) -> impl Iterator<Item = &UdpSocket> {
        self.v4.iter().chain(&self.v6)
    }

    /// Waits until something was received, or for so many milliseconds; false where nothing was.
    fn wait(&self, millis: u16) -> bool {
        let mut all: Vec<PollFd<'_>> =
            self.all().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        // What ends the wait is seen by looking, an interruption too.
        poll(&mut all, PollTimeout::from(millis)) != Ok(0)
    }

    /// Takes what has come; each family is asked first at every second turn, so that none is kept from being heard.
    fn receive(&self, turn: usize, octets: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let mut families = [&self.v4, &self.v6];
        families.rotate_left(turn % 2);
        // An error is one of an earlier send; what was received is not lost by it.
        families.into_iter().flatten().find_map(|socket| socket.recv_from(octets).ok())
    }

    fn send(&self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        let socket = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        socket.send_to(octets, to).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_family_keeps_the_other_from_being_heard() {
        let balancers = [(IpAddr::from(Ipv4Addr::LOCALHOST), 9), (Ipv6Addr::LOCALHOST.into(), 9)];
        let sockets = Sockets::bind(&balancers.map(SocketAddr::from)).expect("both are bound");
        let port = |socket: &Option<UdpSocket>| {
            let socket = socket.as_ref().expect("it is needed");
            socket.local_addr().expect("it is bound").port()
        };
        let v4 = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback binds");
        for _ in 0..8 {
            v4.send_to(&[4], (Ipv4Addr::LOCALHOST, port(&sockets.v4))).expect("loopback sends");
        }
        let v6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).expect("loopback binds");
        v6.send_to(&[6], (Ipv6Addr::LOCALHOST, port(&sockets.v6))).expect("loopback sends");
        let mut octets = [0; 1];
        let heard = (0..9).map(|turn| sockets.receive(turn, &mut octets).map(|(_, from)| from.is_ipv6()));
        let heard: Vec<bool> = heard.map(|heard| heard.expect("it has come")).collect();
        assert_eq!(heard, [false, true, false, false, false, false, false, false, false]);
    }
}
