//! Hellos to agents, and the leases that their reports grant: see `credit` for the rules.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use credit::{
    Account, HELLO_LEN, HELLO_SPACING, INTERVAL, Key, REPORT_LEN, Report, Service, Taken, Transport,
};
use fastrand::Rng;
use net::clock::Clock;
use net::shutdown::Shutdown;
use routing::balance::{Hearing, Lease, Queue, Quota};
use tokio::net::UdpSocket;
use tokio::time::MissedTickBehavior;

use crate::counters::Cells;
use crate::field::{BackEnd, Drained, Field};

/// How long after the end of its last lease what an agent has said of draining still holds: reports may get lost for a
/// while, and whoever has been away for so long is gone.
const DRAINING_KEPT: Duration = Duration::from_secs(3);

/// From one warning that an agent has another key, or cannot be told anything, to the next about the same back end:
/// introductions come and hellos go many times a second, and anybody can send introductions.
const WARNING_SPACING: Duration = Duration::from_secs(3600);

/// What became of reports.
#[derive(Debug, Default)]
pub struct Counters {
    /// Hellos sent.
    pub hellos: AtomicU64,
    /// Reports in force.
    pub fresh: AtomicU64,
    /// Introductions, and reports of another run of ours.
    pub introductions: AtomicU64,
    /// Reports that came again or were overtaken.
    pub repeated: AtomicU64,
    /// Reports whose lease was over.
    pub late: AtomicU64,
    /// Reports of services that are none of ours, and such that answer no hello.
    pub alien: AtomicU64,
    /// Datagrams that are not signed with our key.
    pub unsigned: AtomicU64,
    /// Datagrams that are no reports.
    pub malformed: AtomicU64,
}

/// One service of a back end.
struct Agent {
    account: Account,
    back_end: Arc<BackEnd>,
    /// Where its reports come from.
    at: Option<SocketAddr>,
    /// When the last hello went there.
    told: Duration,
    /// When an introduction was last answered, wherever it came from.
    introduced: Duration,
    /// The sequence of the last hello.
    sequence: u64,
    /// A bit for each of the last hellos, the last one's lowest: set where it went to the agent that is heard, when it was due.
    /// Others answer introductions, which anybody can repeat, or come before their time, and an agent answers the last of
    /// those that it hears at once.
    told_there: u64,
    /// How well its reports come.
    hearing: Hearing,
    /// When it was last said that its key is another one.
    warned: Option<Duration>,
    /// When it was last said that the system refused a hello.
    warned_unsent: Option<Duration>,
}

/// What talks to agents.
pub struct Credits {
    socket: UdpSocket,
    key: Key,
    balancer: u64,
    /// Draws a nonce for each account.
    nonces: Rng,
    field: Arc<ArcSwap<Field>>,
    clock: Clock,
    counters: Arc<Counters>,
    seen: Arc<Field>,
    agents: HashMap<Service, Agent>,
}

impl Credits {
    /// Waits for agents at an address; `balancer` names this one over its restarts, from `seed` come this run's nonces.
    ///
    /// # Errors
    /// What the system says.
    pub async fn bind(
        address: SocketAddr,
        key: Key,
        (balancer, seed): (u64, u64),
        field: Arc<ArcSwap<Field>>,
        clock: Clock,
    ) -> io::Result<Credits> {
        let socket = UdpSocket::bind(address).await?;
        Ok(Credits {
            socket,
            key,
            balancer: balancer.max(1),
            nonces: Rng::with_seed(seed),
            field,
            clock,
            counters: Arc::default(),
            seen: Arc::default(),
            agents: HashMap::new(),
        })
    }

    /// The address at which it waits for reports.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What became of reports since it was bound; whoever has it sees it change.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Says hello and takes reports until the shutdown begins.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(HELLO_SPACING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // One octet more than a report, so that a longer one is seen to be none.
        let mut octets = [0; REPORT_LEN + 1];
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                // First, or whoever sends without a pause would keep all agents from being told.
                _ = ticks.tick() => self.tell().await,
                received = self.socket.recv_from(&mut octets) => {
                    // An ICMP message of an agent that is gone: its lease runs out by itself.
                    let Ok((length, from)) = received else { continue };
                    self.take(&octets[..length], from).await;
                }
            }
        }
    }

    /// Says hello to whom it is due, or where half of the credit is used.
    async fn tell(&mut self) {
        self.follow();
        let now = self.clock.now().monotonic;
        self.agents.values().for_each(|agent| agent.forget_draining(now));
        let due: Vec<Service> = self
            .agents
            .iter()
            .filter(|(service, agent)| {
                let since = now.saturating_sub(agent.told);
                let is_due = || since >= INTERVAL;
                let is_half_used = || {
                    since >= HELLO_SPACING
                        && agent.account.is_half_used(now, sent(service, &agent.back_end).0)
                };
                agent.at.is_some() && (is_due() || is_half_used())
            })
            .map(|(service, _)| *service)
            .collect();
        for service in due {
            let at = self.agents.get(&service).and_then(|agent| agent.at);
            if let Some(at) = at {
                self.hello(service, at).await;
            }
        }
    }

    /// Opens accounts for back ends that have come, and closes those of back ends that have gone.
    fn follow(&mut self) {
        let field = self.field.load_full();
        if Arc::ptr_eq(&field, &self.seen) {
            return;
        }
        let there = |agent: &Agent| field.iter().any(|back_end| Arc::ptr_eq(back_end, &agent.back_end));
        self.agents.retain(|_, agent| there(agent));
        for back_end in field.iter() {
            for transport in [Transport::Udp, Transport::Tcp] {
                let service = Service::new(transport, back_end.address.ip(), back_end.address.port());
                self.agents.entry(service).or_insert_with(|| Agent {
                    // To the agent a back end that was taken out and comes back is as one that was started again: under
                    // the nonce before, all that begins anew would be old.
                    account: Account::new(self.balancer, self.nonces.u64(1..), service),
                    back_end: back_end.clone(),
                    at: None,
                    told: Duration::ZERO,
                    introduced: Duration::ZERO,
                    sequence: 0,
                    told_there: 0,
                    hearing: Hearing::default(),
                    warned: None,
                    warned_unsent: None,
                });
            }
        }
        self.seen = field;
    }

    async fn hello(&mut self, service: Service, to: SocketAddr) {
        let Some(agent) = self.agents.get_mut(&service) else { return };
        let now = self.clock.now().monotonic;
        let (sent, answered) = (sent(&service, &agent.back_end).0, answered(&service, &agent.back_end));
        let is_there = agent.at == Some(to);
        let is_due = now.saturating_sub(agent.told) >= INTERVAL;
        if is_there {
            agent.told = now;
        }
        let hello = agent.account.hello(now, sent, answered);
        agent.sequence = hello.sequence;
        agent.told_there = agent.told_there << 1 | u64::from(is_there && is_due);
        let mut octets = [0; HELLO_LEN];
        let length = hello.write(&self.key, &mut octets);
        // To the rules a hello that is lost here is as one that is lost on the way.
        match self.socket.send_to(&octets[..length], to).await {
            Ok(_) => add(&self.counters.hellos),
            Err(cause) if is_time(agent.warned_unsent, now) => {
                agent.warned_unsent = Some(now);
                let back_end = agent.back_end.address;
                tracing::warn!(%back_end, %cause, "an agent cannot be told anything; it is tried again and again");
            }
            Err(_) => {}
        }
    }

    async fn take(&mut self, octets: &[u8], from: SocketAddr) {
        self.follow();
        let report = match Report::read(octets, &self.key) {
            Ok(report) => report,
            Err(credit::message::Refused::Unsigned) => return self.unsigned(from),
            Err(_) => return add(&self.counters.malformed),
        };
        let now = self.clock.now().monotonic;
        let Some(agent) = self.agents.get_mut(&report.service) else { return add(&self.counters.alien) };
        let before = agent.account.last().map_or(0, |(last, _)| last.hello);
        match agent.account.take(&report, now) {
            Taken::Fresh => {
                add(&self.counters.fresh);
                agent.at = Some(from);
                let missed = (report.hello > before).then(|| agent.missed(before, report.hello));
                agent.grant(&report, missed, now);
            }
            Taken::Introduction => {
                add(&self.counters.introductions);
                if now.saturating_sub(agent.introduced) >= HELLO_SPACING {
                    agent.introduced = now;
                    self.hello(report.service, from).await;
                }
            }
            Taken::Repeated => add(&self.counters.repeated),
            Taken::Late => add(&self.counters.late),
            Taken::Alien => add(&self.counters.alien),
        }
    }

    /// Counts a report with another key, also at the back ends of the address that it comes from: the first thing to go
    /// wrong, and nothing else shows it there.
    fn unsigned(&mut self, from: SocketAddr) {
        add(&self.counters.unsigned);
        let (now, from) = (self.clock.now().monotonic, from.ip().to_canonical());
        for (service, agent) in &mut self.agents {
            if service.transport() == Transport::Udp && service.address().ip() == from {
                agent.unsigned(now);
            }
        }
    }
}

impl Agent {
    fn unsigned(&mut self, now: Duration) {
        add(&self.back_end.unsigned);
        if is_time(self.warned, now) {
            self.warned = Some(now);
            let back_end = self.back_end.address;
            tracing::warn!(%back_end, "an agent reports from the back end's address with another key; it grants nothing");
        }
    }

    /// How many of the last 64 hellos between these two the agent should have answered.
    fn missed(&self, before: u64, hello: u64) -> u64 {
        let remembered = (self.sequence + 1).saturating_sub(u64::BITS.into());
        let between = remembered.max(before + 1)..hello;
        between.map(|sequence| self.told_there >> (self.sequence - sequence) & 1).sum()
    }

    /// Puts what a report grants in force; so many hellos before its own were not answered. `None` for another report to a
    /// hello that was answered: that it comes later says nothing of how well reports come.
    fn grant(&mut self, report: &Report, missed: Option<u64>, now: Duration) {
        let until = self.account.last().map_or(now, |(_, until)| until);
        let from = until.saturating_sub(report.lease);
        if let Some(missed) = missed {
            self.hearing.heard(missed, ns(now.saturating_sub(from)));
        }
        let quota = report.quota.map_or(Quota::NONE, |quota| Quota {
            quota_ns: ns(quota.quota),
            period_ns: ns(quota.period),
            refill_ns: ns(now.saturating_add(quota.refill)),
            left_ns: i64::from(quota.left_us) * 1_000,
            cost_ns: ns(quota.cost),
            ended: sent(&report.service, &self.back_end).1,
        });
        let queue = Queue {
            delay_ns: ns(report.queue_delay),
            room: report.backlog_limit.into(),
            backlog: report.backlog.into(),
            sent: report.sent,
        };
        let lease = Lease::reported(report.limit, ns(from), ns(until), queue, &self.hearing);
        let granted = match report.service.transport() {
            Transport::Udp => &self.back_end.udp,
            Transport::Tcp => &self.back_end.tcp,
        };
        granted.put(lease);
        granted.quota.put(quota);
        granted.drops.store(report.drops, Ordering::Relaxed);
        let who = drained_by(&report.service);
        match (self.back_end.is_drained(who), report.draining) {
            (false, true) => tracing::info!(service = %report.service, "the agent drains the back end"),
            (true, false) => {
                tracing::info!(service = %report.service, "the agent gives the back end queries again")
            }
            _ => {}
        }
        self.back_end.set_draining(who, report.draining);
    }

    /// Who has said that the back end drains, and is gone, says so no longer.
    fn forget_draining(&self, now: Duration) {
        let Some((last, until)) = self.account.last() else { return };
        let who = drained_by(&last.service);
        if now >= until.saturating_add(DRAINING_KEPT) && self.back_end.is_drained(who) {
            let back_end = self.back_end.address;
            tracing::warn!(%back_end, "the agent that drains the back end is not heard any more; it gets queries again");
            self.back_end.set_draining(who, false);
        }
    }
}

/// Whether it is time for a warning that was given then.
fn is_time(warned: Option<Duration>, now: Duration) -> bool {
    warned.is_none_or(|at| now.saturating_sub(at) >= WARNING_SPACING)
}

/// Who says in a service's reports that the back end drains.
fn drained_by(service: &Service) -> Drained {
    match service.transport() {
        Transport::Udp => Drained::ByAgent,
        Transport::Tcp => Drained::ByTcpAgent,
    }
}

/// What was sent to a service, and how much of it has ended.
fn sent(service: &Service, back_end: &BackEnd) -> (u64, u64) {
    match service.transport() {
        Transport::Udp => {
            let ended = back_end.cells.iter().map(Cells::datagrams_ended);
            (back_end.sum(|cells| &cells.datagrams), ended.sum())
        }
        Transport::Tcp => {
            let opened = back_end.exchange.opened.load(Ordering::Relaxed);
            (opened, opened)
        }
    }
}

/// How much of it was answered, also too late: what an agent divides by what the server has used. What was given up would
/// seem to cost nothing.
fn answered(service: &Service, back_end: &BackEnd) -> u64 {
    let datagrams = back_end.cells.iter().filter(|cells| cells.datagrams.get() > 0);
    match service.transport() {
        Transport::Udp => datagrams.map(|cells| cells.answers() + cells.late.get()).sum(),
        Transport::Tcp => back_end.exchange.opened.load(Ordering::Relaxed),
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Standing;
    use credit::Hello;

    fn key(octet: u8) -> Key {
        Key::new(&[octet; credit::key::KEY_LEN])
    }

    /// A balancer of one back end at 192.0.2.1:53, and an agent's socket.
    async fn pair() -> (Credits, UdpSocket, Service) {
        let address: SocketAddr = ([192, 0, 2, 1], 53).into();
        let field =
            Field::default().with(|place| BackEnd::new(place, address, 1, 2)).expect("there is a place");
        let field = Arc::new(ArcSwap::from_pointee(field));
        let local: SocketAddr = ([127, 0, 0, 1], 0).into();
        let credits =
            Credits::bind(local, key(1), (7, 8), field, Clock::new()).await.expect("loopback binds");
        let agent = UdpSocket::bind(local).await.expect("loopback binds");
        agent.connect(credits.local_address().expect("it is bound")).await.expect("loopback connects");
        (credits, agent, Service::new(Transport::Udp, address.ip(), 53))
    }

    fn report(service: Service, hello: Option<Hello>, sequence: u64, limit: u64) -> Report {
        Report {
            balancer: hello.map_or(0, |hello| hello.balancer),
            nonce: hello.map_or(0, |hello| hello.nonce),
            service,
            sequence,
            hello: hello.map_or(0, |hello| hello.sequence),
            sent: hello.map_or(0, |hello| hello.sent),
            limit,
            queue_delay: Duration::from_millis(3),
            drops: 5,
            backlog: 4,
            backlog_limit: 9,
            lease: Duration::from_secs(3600),
            draining: false,
            quota: None,
        }
    }

    async fn take(credits: &mut Credits, agent: &UdpSocket, report: Report, key: &Key) {
        let mut octets = [0; REPORT_LEN];
        report.write(key, &mut octets);
        credits.take(&octets, agent.local_addr().expect("it is bound")).await;
    }

    async fn heard(agent: &UdpSocket) -> Hello {
        let mut octets = [0; 512];
        let length = agent.recv(&mut octets).await.expect("a hello");
        Hello::read(&octets[..length], &key(1)).expect("it is signed")
    }

    #[tokio::test]
    async fn an_agent_is_heard_and_its_credit_counts() {
        let (mut credits, agent, service) = pair().await;
        // The first hello may come a millisecond after the start, and not before.
        while credits.clock.now().monotonic < HELLO_SPACING * 2 {
            tokio::task::yield_now().await;
        }
        take(&mut credits, &agent, report(service, None, 5, 0), &key(1)).await;
        let hello = heard(&agent).await;
        assert_eq!((hello.balancer, hello.sent), (7, 0));
        let back_end = credits.field.load().iter().next().expect("it is there").clone();
        assert_eq!(back_end.udp.get().until_ns, 0, "an introduction grants nothing");
        take(&mut credits, &agent, report(service, Some(hello), 6, 40), &key(1)).await;
        let lease = back_end.udp.get();
        assert_eq!((lease.limit, lease.queue_ns, lease.room, lease.backlog), (40, 3_000_000, 9, 4));
        back_end.cells[0].datagrams.add(30);
        credits.agents.values_mut().for_each(|agent| agent.told = Duration::ZERO);
        credits.tell().await;
        assert_eq!(heard(&agent).await.sent, 30);

        // Forged, repeated, of another service, of a hello that never was.
        take(&mut credits, &agent, report(service, Some(hello), 9, 99), &key(2)).await;
        take(&mut credits, &agent, report(service, Some(hello), 6, 99), &key(1)).await;
        let other = Service::new(Transport::Udp, [192, 0, 2, 2].into(), 53);
        take(&mut credits, &agent, report(other, Some(hello), 7, 99), &key(1)).await;
        let never = Hello { sequence: 999, ..hello };
        take(&mut credits, &agent, report(service, Some(never), 8, 99), &key(1)).await;
        credits.take(b"what", agent.local_addr().expect("it is bound")).await;
        assert_eq!(back_end.udp.get().limit, 40);
        let counts = &credits.counters;
        let counts = [&counts.fresh, &counts.unsigned, &counts.repeated, &counts.alien, &counts.malformed]
            .map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1, 1, 2, 1]);
        let drains = Report { draining: true, ..report(service, Some(hello), 10, 40) };
        take(&mut credits, &agent, drains, &key(1)).await;
        let standing = || back_end.standing();
        assert_eq!(standing(), Standing::Draining);
        let agent = &credits.agents[&service];
        let (_, until) = agent.account.last().expect("it was heard");
        agent.forget_draining(until + DRAINING_KEPT - Duration::from_nanos(1));
        assert_eq!(standing(), Standing::Draining);
        agent.forget_draining(until + DRAINING_KEPT);
        assert_eq!(standing(), Standing::Up);
    }

    #[tokio::test]
    async fn who_looks_at_connections_alone_drains_too() {
        let (mut credits, agent, udp) = pair().await;
        while credits.clock.now().monotonic < HELLO_SPACING * 2 {
            tokio::task::yield_now().await;
        }
        let tcp = Service::new(Transport::Tcp, udp.address().ip(), 53);
        for service in [udp, tcp] {
            take(&mut credits, &agent, report(service, None, 5, 0), &key(1)).await;
            let hello = heard(&agent).await;
            let drains = Report { draining: service == tcp, ..report(service, Some(hello), 6, 40) };
            take(&mut credits, &agent, drains, &key(1)).await;
        }
        let back_end = credits.field.load().iter().next().expect("it is there").clone();
        assert_eq!(back_end.standing(), Standing::Draining);
        let (_, until) = credits.agents[&tcp].account.last().expect("it was heard");
        credits.agents[&udp].forget_draining(until + DRAINING_KEPT);
        assert_eq!(back_end.standing(), Standing::Draining, "it is the other one that says so");
        credits.agents[&tcp].forget_draining(until + DRAINING_KEPT);
        assert_eq!(back_end.standing(), Standing::Up);
    }

    #[tokio::test]
    async fn what_is_left_of_a_quota_counts_from_when_it_is_heard() {
        let (mut credits, agent, service) = pair().await;
        while credits.clock.now().monotonic < HELLO_SPACING * 2 {
            tokio::task::yield_now().await;
        }
        take(&mut credits, &agent, report(service, None, 5, 0), &key(1)).await;
        let hello = heard(&agent).await;
        let back_end = credits.field.load().iter().next().expect("it is there").clone();
        // Of 30 that were sent seven are in flight.
        back_end.cells[0].datagrams.add(30);
        back_end.cells[0].sent.add(30);
        back_end.cells[0].ended.add(23);
        let millis = Duration::from_millis;
        let (quota, period, refill) = (millis(20), millis(100), millis(70));
        let left = credit::Quota { quota, period, refill, left_us: -300, cost: Duration::from_micros(250) };
        let before = credits.clock.now().monotonic;
        let told = Report { quota: Some(left), ..report(service, Some(hello), 6, 40) };
        take(&mut credits, &agent, told, &key(1)).await;
        let after = credits.clock.now().monotonic;
        let told = back_end.udp.quota.get();
        let refill_ns = ns(before + refill)..=ns(after + refill);
        assert!(refill_ns.contains(&told.refill_ns), "{told:?}");
        let expected = Quota {
            quota_ns: 20_000_000,
            period_ns: 100_000_000,
            refill_ns: told.refill_ns,
            left_ns: -300_000,
            cost_ns: 250_000,
            ended: 23,
        };
        assert_eq!(told, expected);
        take(&mut credits, &agent, report(service, Some(hello), 7, 40), &key(1)).await;
        assert_eq!(back_end.udp.quota.get(), Quota::NONE);
    }

    #[tokio::test]
    async fn how_well_reports_come_is_told_by_the_first_to_each_hello() {
        let (mut credits, agent, service) = pair().await;
        while credits.clock.now().monotonic < HELLO_SPACING * 2 {
            tokio::task::yield_now().await;
        }
        take(&mut credits, &agent, report(service, None, 5, 0), &key(1)).await;
        let hello = heard(&agent).await;
        for sequence in 6..106 {
            take(&mut credits, &agent, report(service, Some(hello), sequence, 40), &key(1)).await;
        }
        assert_eq!(credits.counters.fresh.load(Ordering::Relaxed), 100);
        assert!(!credits.agents[&service].hearing.is_good(), "one hello was answered");
    }

    /// Half of the credit is used, and until a report comes there is a hello a millisecond: an agent that hears several at
    /// once answers the last.
    #[tokio::test]
    async fn hellos_before_their_time_need_no_answer_each() {
        let (mut credits, agent, service) = pair().await;
        while credits.clock.now().monotonic < HELLO_SPACING * 2 {
            tokio::task::yield_now().await;
        }
        take(&mut credits, &agent, report(service, None, 5, 0), &key(1)).await;
        let first = heard(&agent).await;
        take(&mut credits, &agent, report(service, Some(first), 6, 40), &key(1)).await;
        let at = agent.local_addr().expect("it is bound");
        for (sequence, told, expected) in [(7, Duration::MAX, 0), (8, Duration::ZERO, 2)] {
            let before = credits.agents[&service].sequence;
            for _ in 0..3 {
                credits.agents.get_mut(&service).expect("it is there").told = told;
                while credits.clock.now().monotonic < INTERVAL {
                    tokio::task::yield_now().await;
                }
                credits.hello(service, at).await;
            }
            let told = &credits.agents[&service];
            assert_eq!(told.missed(before, told.sequence), expected);
            heard(&agent).await;
            heard(&agent).await;
            let last = heard(&agent).await;
            take(&mut credits, &agent, report(service, Some(last), sequence, 40), &key(1)).await;
        }
        assert_eq!(credits.counters.fresh.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn who_repeats_an_introduction_does_not_keep_the_agent_from_being_told() {
        let (mut credits, agent, service) = pair().await;
        while credits.clock.now().monotonic < INTERVAL {
            tokio::task::yield_now().await;
        }
        take(&mut credits, &agent, report(service, None, 5, 0), &key(1)).await;
        let first = heard(&agent).await;
        take(&mut credits, &agent, report(service, Some(first), 6, 40), &key(1)).await;
        let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("loopback binds");
        stranger.connect(credits.local_address().expect("it is bound")).await.expect("loopback connects");
        let told = |credits: &mut Credits| {
            let agent = credits.agents.get_mut(&service).expect("it is there");
            agent.introduced = Duration::ZERO;
            std::mem::take(&mut agent.told)
        };
        told(&mut credits);
        for _ in 0..3 {
            take(&mut credits, &stranger, report(service, None, 5, 0), &key(1)).await;
            heard(&stranger).await;
            assert_eq!(told(&mut credits), Duration::ZERO, "it is not the agent that was told");
        }
        for _ in 0..2 {
            credits.tell().await;
            told(&mut credits);
        }
        let [missed, answered] = [heard(&agent).await, heard(&agent).await];
        assert_eq!([missed, answered].map(|hello| hello.sequence - first.sequence), [4, 5]);
        let agent = &credits.agents[&service];
        assert_eq!([4, 5, 6].map(|after| agent.missed(first.sequence, first.sequence + after)), [0, 1, 2]);
        assert_eq!(agent.missed(first.sequence, first.sequence), 0);
    }

    #[test]
    fn what_is_under_way_over_connections_is_none_of_the_datagrams() {
        let back_end = BackEnd::new(0, ([192, 0, 2, 1], 53).into(), 1, 2);
        let [worker, connections] = &back_end.cells[..] else { panic!("they are two") };
        for count in [&worker.sent, &worker.datagrams, &connections.sent] {
            count.add(5);
        }
        worker.ended.add(3);
        let service = Service::new(Transport::Udp, back_end.address.ip(), 53);
        assert_eq!(sent(&service, &back_end), (5, 3));
        // What was given up costs the server nothing, or something of which nothing is known.
        assert_eq!(answered(&service, &back_end), 0);
        worker.count_answer(0, 1);
        worker.late.add(1);
        connections.count_answer(0, 1);
        assert_eq!(answered(&service, &back_end), 2);
    }

    #[tokio::test]
    async fn a_hello_that_the_system_refuses_is_none() {
        let (mut credits, agent, service) = pair().await;
        let (there, nowhere) = (agent.local_addr().expect("it is bound"), ([255, 255, 255, 255], 9).into());
        credits.follow();
        for (to, is_warned, hellos) in [(there, false, 1), (nowhere, true, 1), (there, true, 2)] {
            credits.hello(service, to).await;
            assert_eq!(credits.agents[&service].warned_unsent.is_some(), is_warned, "{to}");
            assert_eq!(credits.counters.hellos.load(Ordering::Relaxed), hellos);
        }
    }

    #[tokio::test]
    async fn who_reports_with_another_key_is_known_by_address() {
        let (mut credits, _agent, service) = pair().await;
        let mut octets = [0; REPORT_LEN];
        report(service, None, 5, 0).write(&key(2), &mut octets);
        for from in ["192.0.2.1:9", "[::ffff:192.0.2.1]:9", "192.0.2.2:9"] {
            credits.take(&octets, from.parse().expect("an address")).await;
        }
        let agent = credits.agents.get_mut(&service).expect("it is there");
        let back_end = agent.back_end.clone();
        let unsigned = || back_end.unsigned.load(Ordering::Relaxed);
        assert_eq!((unsigned(), credits.counters.unsigned.load(Ordering::Relaxed)), (2, 3));
        let first = agent.warned.expect("it was said");
        for (since, is_told) in [(WARNING_SPACING - Duration::from_nanos(1), false), (WARNING_SPACING, true)]
        {
            agent.unsigned(first + since);
            assert_eq!(agent.warned != Some(first), is_told);
        }
        assert_eq!(unsigned(), 4);
    }

    #[tokio::test]
    async fn a_back_end_that_was_taken_out_and_comes_back_begins_anew() {
        let (mut credits, _agent, service) = pair().await;
        let mut hearing = credit::Hearing::default();
        let mut hello = |credits: &mut Credits, heard| {
            credits.follow();
            let account = &mut credits.agents.get_mut(&service).expect("it is there").account;
            hearing.take(&Hello { heard, ..account.hello(Duration::ZERO, 0, 0) }, heard..=heard)
        };
        assert_eq!(hello(&mut credits, 5), credit::Heard::First);
        for _ in 0..20 {
            assert_eq!(hello(&mut credits, 5), credit::Heard::Next);
        }
        credits.field.store(Arc::new(credits.field.load().without(0)));
        credits.follow();
        let address: SocketAddr = ([192, 0, 2, 1], 53).into();
        let field = credits.field.load().with(|place| BackEnd::new(place, address, 1, 2));
        credits.field.store(Arc::new(field.expect("there is a gap")));
        assert_eq!(hello(&mut credits, 6), credit::Heard::First);
    }
}
