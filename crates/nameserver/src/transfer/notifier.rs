//! The task that tells secondaries of changes (RFC 1996). It follows the published generations, so no change ever
//! waits for it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dns::query::HEADER;
use dns::{Folded, Opcode, Rcode, Rtype, Tsig};
use fastrand::Rng;
use net::clock::Clock;
use net::shutdown::Shutdown;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

use super::counters::count;
use super::notify::{Due, NOTIFICATIONS_MAX, Notifications, To};
use super::signature::Signer;
use super::{Config, Transfers};
use crate::edit::PATIENCE;
use crate::generation::Generation;
use crate::publish::Published;
use crate::zone::Zone;

/// How long changes are gathered before anybody is told: of many in quick succession only the last matters.
pub const GATHER: Duration = Duration::from_millis(100);

/// The time between two notifications, on average: a start with ten thousand zones takes ten seconds, and no receive buffer.
pub const PACE: Duration = Duration::from_millis(1);

/// How far behind their pace notifications may be and still make up for it: a timer has no finer steps than [`PACE`].
const LATE_MAX: Duration = Duration::from_millis(10);

/// The largest notification and answer, in octets: a name, an SOA record and a signature, or what somebody sends.
const NOTIFICATION_MAX: usize = 1_500;

/// How long to wait where there is nothing to do.
const LONG: Duration = Duration::from_secs(3_600);

/// Tells secondaries of changes until `shutdown` begins; who becomes one meanwhile is told of the zones that it follows.
///
/// They are told from the addresses in `local` where those are specific: secondaries know us by them. Of several of a
/// family it is the one by which the system reaches a secondary. What is sent from a loopback address reaches this machine
/// only, so such a one serves where all secondaries of its family are here.
///
/// # Errors
/// Where the system gives no socket.
pub async fn run(
    transfers: Arc<Transfers>,
    published: Arc<Published>,
    local: Vec<SocketAddr>,
    clock: Clock,
    rng: Rng,
    shutdown: Shutdown,
) -> io::Result<()> {
    let mut notifier = Notifier::new(transfers, published, clock, rng, NOTIFICATIONS_MAX);
    let mut choices = notifier.transfers.changes();
    let mut sockets = None;
    loop {
        let targets: Vec<SocketAddr> = choices.borrow_and_update().secondaries.all_told().collect();
        if targets.is_empty() {
            sockets = None;
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                Ok(()) = choices.changed() => continue,
            }
        }
        let from = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
            .map(|any| source(&local, &targets, routed, any));
        let bound = match sockets.take() {
            // What is out is still acknowledged there.
            Some(bound @ Sockets { from: same, .. }) if same == from => bound,
            _ => Sockets::bind(from).await?,
        };
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            Ok(()) = choices.changed() => {}
            () = notifier.tell(&bound) => {}
        }
        sockets = Some(bound);
    }
}

/// What notifications are sent from.
struct Sockets {
    /// The addresses, of either family.
    from: [IpAddr; 2],
    v4: UdpSocket,
    /// A system without IPv6 tells nobody over it.
    v6: Option<UdpSocket>,
}

impl Sockets {
    async fn bind(from: [IpAddr; 2]) -> io::Result<Sockets> {
        let v4 = UdpSocket::bind((from[0], 0)).await?;
        let v6 = UdpSocket::bind((from[1], 0)).await.ok();
        Ok(Sockets { from, v4, v6 })
    }
}

struct Notifier {
    transfers: Arc<Transfers>,
    /// What the operator had chosen at the last look.
    config: Arc<Config>,
    published: Arc<Published>,
    clock: Clock,
    rng: Rng,
    /// The serial number of each zone of which those that follow it were told, or are about to be.
    told: HashMap<Vec<u8>, u32>,
    notifications: Notifications<Option<Signer>>,
    /// Whether the last look found notifications that had no place.
    has_put_off: bool,
}

impl Notifier {
    /// Nobody was told of anything.
    fn new(
        transfers: Arc<Transfers>,
        published: Arc<Published>,
        clock: Clock,
        rng: Rng,
        places: usize,
    ) -> Notifier {
        let (told, notifications) = (HashMap::new(), Notifications::new(places));
        let config = transfers.config();
        Notifier { transfers, config, published, clock, rng, told, notifications, has_put_off: false }
    }

    /// Tells of all changes, beginning with those since it last did. It never returns.
    async fn tell(&mut self, Sockets { v4, v6, .. }: &Sockets) {
        let mut changes = self.published.changes();
        changes.mark_changed();
        let mut buffer = [0; NOTIFICATION_MAX];
        let mut other = [0; NOTIFICATION_MAX];
        // Changes wait for nobody, and nobody for them: both times stand, whatever else comes in between.
        let (mut look_at, mut send_at) = (None, Instant::now());
        loop {
            let now = self.clock.now().monotonic;
            let due = self.notifications.next().map_or(LONG, |due| due.saturating_sub(now));
            let sends = sleep_until((Instant::now() + due).max(send_at));
            let looks = async move {
                match look_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Ok((length, from)) = v4.recv_from(&mut buffer) => self.take(&buffer[..length], from),
                Ok((length, from)) = receive(v6.as_ref(), &mut other) => self.take(&other[..length], from),
                Ok(()) = changes.changed(), if look_at.is_none() => look_at = Some(Instant::now() + GATHER),
                () = looks => {
                    look_at = None;
                    changes.borrow_and_update();
                    // Who asks after a notification must find the change at every worker: later ones are not looked at yet.
                    let generation = self.published.current();
                    self.published.reached(generation.number, PATIENCE).await;
                    self.look(&generation);
                }
                () = sends => {
                    self.tell_one(v4, v6.as_ref()).await;
                    let late = Instant::now().checked_sub(LATE_MAX).unwrap_or(send_at);
                    send_at = (send_at + PACE).max(late);
                    if self.finds_place_again() {
                        look_at.get_or_insert(Instant::now() + GATHER);
                    }
                }
            }
        }
    }

    /// Finds the zones that have changed, and who follows others than at the last look. A zone that is not told to all, as
    /// there is no place, is found again.
    fn look(&mut self, generation: &Generation) {
        let now = self.clock.now().monotonic;
        let config = self.transfers.config();
        let before = std::mem::replace(&mut self.config, Arc::clone(&config));
        let are_same = Arc::ptr_eq(&before, &config);
        let mut told = HashMap::with_capacity(self.told.len());
        let mut put_off = 0;
        for zone in generation.zones.all().iter() {
            if zone.is_steered() {
                continue;
            }
            let name = zone.origin().wire();
            let is_told = self.told.get(name) == Some(&zone.serial());
            // Who follows it is only looked up where something has changed: both can be thousands.
            if is_told && are_same {
                told.extend(self.told.remove_entry(name));
                continue;
            }
            let know = if is_told { before.secondaries.told_of(zone.origin()) } else { Vec::new() };
            let put_off_before = put_off;
            for (address, _) in config.secondaries.told_of(zone.origin()) {
                let knows = know.iter().any(|(known, _)| *known == address);
                if !knows && !self.notifications.changed(To { zone: name.to_vec(), address }, now) {
                    count(&self.transfers.counters().notify_put_off);
                    put_off += 1;
                }
            }
            if put_off == put_off_before {
                told.insert(name.to_vec(), zone.serial());
            }
        }
        self.told = told;
        self.has_put_off = put_off > 0;
        if self.has_put_off {
            tracing::warn!(
                put_off,
                "too many notifications wait; these are tried again when half of those are done"
            );
        }
    }

    /// Whether a look would find places for what the last one put off.
    fn finds_place_again(&self) -> bool {
        self.has_put_off && self.notifications.is_half_free()
    }

    /// Sends the notification that is due, if one is.
    async fn tell_one(&mut self, v4: &UdpSocket, v6: Option<&UdpSocket>) {
        let now = self.clock.now();
        let to = match self.notifications.due(now.monotonic) {
            None => return,
            Some(Due::GivenUp(to)) => {
                count(&self.transfers.counters().notify_given_up);
                let zone = dns::name::to_text(&to.zone);
                tracing::warn!(zone, secondary = %to.address, "a secondary does not acknowledge; it is told no more");
                return;
            }
            Some(Due::Send(to)) => to,
        };
        let generation = self.published.current();
        let name = Folded::read(&to.zone).expect("the name of a zone is valid");
        let zone = generation.zones.all().get(&name, &generation.hash);
        let key = zone.and_then(|zone| {
            let told = self.transfers.config().secondaries.told_of(zone.origin());
            told.into_iter().find(|(address, _)| *address == to.address).map(|(_, key)| key)
        });
        let (Some(zone), Some(key)) = (zone, key) else { return self.notifications.remove(&to) };
        let id = self.rng.u16(..);
        let mut out = [0; NOTIFICATION_MAX];
        let mut signer = key.map(Signer::request);
        let message = compose(zone, id, &mut out).and_then(|length| match &mut signer {
            None => Some(length),
            Some(signer) => signer.sign(&mut out, length, now.unix.as_secs()),
        });
        let Some(length) = message else { return self.notifications.remove(&to) };
        let socket = if to.address.is_ipv4() { Some(v4) } else { v6 };
        let sent = match socket {
            Some(socket) => socket.send_to(&out[..length], to.address).await.map(|_| ()),
            None => Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        let counters = self.transfers.counters();
        match sent {
            Ok(()) => count(&counters.notify_sent),
            Err(cause) => {
                count(&counters.notify_send_failed);
                let zone = dns::name::to_text(&to.zone);
                tracing::warn!(zone, secondary = %to.address, %cause, "a secondary cannot be told of a change");
            }
        }
        self.notifications.sent(&to, id, signer, now.monotonic);
    }

    /// Reads a refusal that does not repeat the question, as of who knows no notifications: it ends them, too (RFC 1996
    /// §3.12). Not of a signed one, whose answer is signed.
    fn refused(&self, message: &[u8], from: SocketAddr) -> Option<(To, u16, Rcode)> {
        let header = message.first_chunk::<HEADER>()?;
        let (id, rcode) = (u16::from_be_bytes([header[0], header[1]]), Rcode::masked_from_int(header[3]));
        if !is_answer(header) || header[4..6] != [0, 0] || rcode == Rcode::NOERROR {
            return None;
        }
        let (to, signer) = self.notifications.out_to(from, id)?;
        signer.is_none().then_some((to, id, rcode))
    }

    /// Takes what came to our socket: the acknowledgement of a notification that is out, or nothing.
    fn take(&mut self, message: &[u8], from: SocketAddr) {
        let counters = self.transfers.counters();
        let answered = read(message).map(|(zone, id, rcode)| (To { zone, address: from }, id, rcode));
        let answered = answered.or_else(|| self.refused(message, from));
        let Some((to, id, rcode)) = answered else { return count(&counters.notify_stray) };
        let Some(signer) = self.notifications.awaits(&to, id) else { return count(&counters.notify_stray) };
        if let Some(signer) = signer {
            let unix = self.clock.now().unix.as_secs();
            let is_signed = Tsig::read(message)
                .ok()
                .flatten()
                .is_some_and(|tsig| signer.verify_answer(message, &tsig, unix).is_ok());
            if !is_signed {
                return count(&counters.notify_stray);
            }
        }
        self.notifications.remove(&to);
        if rcode == Rcode::NOERROR {
            count(&counters.notify_acknowledged);
        } else {
            count(&counters.notify_refused);
            let zone = dns::name::to_text(&to.zone);
            tracing::warn!(zone, secondary = %to.address, %rcode, "a secondary does not want to be told");
        }
    }
}

/// The source address of the family of `any` for these targets: one in `local` of which they can be reached, best one that
/// is `routed` to one of them, else the first; or any that the system chooses. A link-local one reaches its own link only.
pub(super) fn source(
    local: &[SocketAddr],
    targets: &[SocketAddr],
    routed: impl Fn(SocketAddr) -> Option<IpAddr>,
    any: IpAddr,
) -> IpAddr {
    let of_family = |address: &IpAddr| address.is_ipv4() == any.is_ipv4();
    let targets: Vec<SocketAddr> = targets.iter().copied().filter(|target| of_family(&target.ip())).collect();
    let all_are_here = targets.iter().all(|target| target.ip().is_loopback());
    let is_link_local = |own: &IpAddr| matches!(own, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let own = local.iter().map(SocketAddr::ip).filter(of_family);
    let own: Vec<IpAddr> =
        own.filter(|own| all_are_here || !own.is_loopback() && !is_link_local(own)).collect();
    let mut chosen = targets.into_iter().filter_map(routed);
    chosen.find(|address| own.contains(address)).or(own.first().copied()).unwrap_or(any)
}

/// The address of ours from which the system reaches a target; nothing is sent.
pub(super) fn routed(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

async fn receive(socket: Option<&UdpSocket>, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    match socket {
        Some(socket) => socket.recv_from(buffer).await,
        None => std::future::pending().await,
    }
}

/// Composes a notification (RFC 1996 §3.7): the zone's name as the question, its SOA record as a hint.
fn compose(zone: &Zone, id: u16, out: &mut [u8]) -> Option<usize> {
    let name = zone.origin().wire();
    let soa = zone.soa();
    let data = soa.data().next()?;
    let mut length = 0;
    let mut put = |octets: &[u8]| {
        out.get_mut(length..length + octets.len())?.copy_from_slice(octets);
        length += octets.len();
        Some(())
    };
    let (soa_type, class) = (Rtype::SOA.to_int().to_be_bytes(), [0, 1]);
    put(&id.to_be_bytes())?;
    // AA, one question, one answer.
    put(&[Opcode::NOTIFY.to_int() << 3 | 0x04, 0, 0, 1, 0, 1, 0, 0, 0, 0])?;
    put(name)?;
    put(&soa_type)?;
    put(&class)?;
    // The owner is the name in the question.
    put(&[0xc0, HEADER as u8])?;
    put(&soa_type)?;
    put(&class)?;
    put(&soa.ttl.to_be_bytes())?;
    put(&(data.len() as u16).to_be_bytes())?;
    put(data)?;
    Some(length)
}

/// Reads the answer to a notification: the zone in wire form, the id and the response code.
pub fn read(message: &[u8]) -> Option<(Vec<u8>, u16, Rcode)> {
    let header = message.first_chunk::<HEADER>()?;
    let is_answer = is_answer(header) && header[4..6] == [0, 1];
    let zone = Folded::read(&message[HEADER..])?;
    let kind = message.get(HEADER + zone.wire_length()..)?.first_chunk::<4>()?;
    let is_soa = kind[..2] == Rtype::SOA.to_int().to_be_bytes() && kind[2..] == [0, 1];
    let rcode = Rcode::masked_from_int(header[3]);
    (is_answer && is_soa).then(|| (zone.wire().to_vec(), u16::from_be_bytes([header[0], header[1]]), rcode))
}

/// Whether a header is that of an answer to a notification.
fn is_answer(header: &[u8; HEADER]) -> bool {
    header[2] >> 3 == 0x10 | Opcode::NOTIFY.to_int()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::book::{Book, Condition, Edit};
    use crate::generation::Settings;
    use crate::transfer::{Secondaries, Secondary};
    use domain::base::Message;
    use domain::rdata::Soa;

    #[test]
    fn secondaries_elsewhere_are_told_from_an_address_that_reaches_them() {
        let [any, v6]: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let at = |addresses: &[&str]| -> Vec<SocketAddr> {
            addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 53)).collect()
        };
        for (local, targets, expected) in [
            (&["127.0.0.1", "192.0.2.1"][..], &["192.0.2.53"][..], "192.0.2.1"),
            (&["127.0.0.1", "192.0.2.1"], &["127.0.0.2"], "127.0.0.1"),
            (&["127.0.0.1", "192.0.2.1"], &["127.0.0.2", "192.0.2.53"], "192.0.2.1"),
            (&["127.0.0.1"], &["192.0.2.53"], "0.0.0.0"),
            (&["127.0.0.1"], &["2001:db8::53"], "127.0.0.1"),
            (&["::1"], &["192.0.2.53"], "0.0.0.0"),
            (&["0.0.0.0"], &["192.0.2.53"], "0.0.0.0"),
            (&["fe80::1", "2001:db8::1"], &["2001:db8::53"], "2001:db8::1"),
            (&["fe80::1"], &["2001:db8::53"], "::"),
        ] {
            let any = if targets[0].contains(':') && local[0] != "127.0.0.1" { v6 } else { any };
            let source = source(&at(local), &at(targets), |_| None, any);
            assert_eq!(source.to_string(), expected, "{local:?} {targets:?}");
        }
        let local = at(&["10.0.0.5", "192.0.2.1"]);
        for (by, expected) in
            [("192.0.2.1", "192.0.2.1"), ("10.0.0.5", "10.0.0.5"), ("192.0.2.9", "10.0.0.5")]
        {
            let routed =
                |target: SocketAddr| (target.ip().to_string() == "198.51.100.2").then(|| by.parse().unwrap());
            let targets = at(&["198.51.100.1", "198.51.100.2"]);
            assert_eq!(source(&local, &targets, routed, any).to_string(), expected, "{by}");
        }
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(routed(SocketAddr::new(loopback, 53)), Some(loopback));
    }

    #[test]
    fn who_is_new_is_told_and_nobody_else() {
        let mut book = Book::empty(1, Settings::default());
        for zone in ["a", "b"] {
            let text = b"@ 60 SOA ns hm 9 2 3 4 5\n@ 60 NS ns\n";
            let edit = Edit::zone(zone, text, Condition::Always, &book.generation.hash).unwrap();
            book.apply(edit).unwrap();
        }
        let config = |rules: &[(&[u8], &str)]| {
            let secondary = |(zone, notify): &(&[u8], &str)| Secondary {
                zones: [zone.to_vec()].into(),
                notify: vec![notify.parse().unwrap()],
                ..Secondary::default()
            };
            Config { secondaries: Secondaries(rules.iter().map(secondary).collect()), ..Config::default() }
        };
        let (a, b, one, two) = (b"\x01a\0", b"\x01b\0", "192.0.2.1:53", "192.0.2.2:53");
        let transfers = Arc::new(Transfers::new(config(&[(a, one)])));
        let published = Arc::new(Published::new(book.generation, 1));
        let generation = published.current();
        let mut notifier = Notifier::new(transfers.clone(), published, Clock::new(), Rng::with_seed(1), 9);
        let mut told = |rules: &[(&[u8], &str)]| {
            transfers.choose(config(rules));
            notifier.look(&generation);
            let mut told = Vec::new();
            while let Some(Due::Send(to)) = notifier.notifications.due(Duration::MAX) {
                notifier.notifications.remove(&to);
                told.push((to.zone, to.address.to_string()));
            }
            told
        };
        let to = |zone: &[u8], address: &str| (zone.to_vec(), address.to_string());
        assert_eq!(told(&[(a, one)]), [to(a, one)]);
        assert_eq!(told(&[(a, one)]), []);
        assert_eq!(told(&[(a, one), (a, two), (b, one)]), [to(a, two), to(b, one)]);
        assert_eq!(told(&[(b, one)]), []);
        assert_eq!(told(&[(a, two), (b, one)]), [to(a, two)]);
    }

    #[test]
    fn what_finds_no_place_is_told_when_half_of_the_places_are_free() {
        let mut book = Book::empty(1, Settings::default());
        for zone in ["a", "b", "c"] {
            let text = b"@ 60 SOA ns hm 9 2 3 4 5\n@ 60 NS ns\n";
            let edit = Edit::zone(zone, text, Condition::Always, &book.generation.hash).unwrap();
            book.apply(edit).unwrap();
        }
        let secondary = Secondary { notify: vec!["192.0.2.1:53".parse().unwrap()], ..Secondary::default() };
        let secondaries = Secondaries(vec![secondary]);
        let transfers = Arc::new(Transfers::new(Config { secondaries, ..Config::default() }));
        let published = Arc::new(Published::new(book.generation, 1));
        let generation = published.current();
        let counters = Arc::clone(transfers.counters());
        let mut notifier = Notifier::new(transfers, published, Clock::new(), Rng::with_seed(1), 2);
        let mut told = BTreeSet::new();
        let mut tell = |notifier: &mut Notifier| {
            let Some(Due::Send(to)) = notifier.notifications.due(Duration::MAX) else {
                panic!("nobody is to be told")
            };
            notifier.notifications.remove(&to);
            assert!(told.insert(to.zone), "each zone is told once");
        };
        notifier.look(&generation);
        assert!(!notifier.finds_place_again());
        tell(&mut notifier);
        assert!(notifier.finds_place_again());
        notifier.look(&generation);
        assert!(!notifier.finds_place_again(), "all have their place");
        tell(&mut notifier);
        tell(&mut notifier);
        assert!(notifier.notifications.next().is_none());
        assert_eq!(counters.notify_put_off.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn who_knows_no_notifications_is_told_no_more() {
        let address: SocketAddr = "192.0.2.1:53".parse().unwrap();
        let transfers = Arc::new(Transfers::new(Config::default()));
        let counters = Arc::clone(transfers.counters());
        let published = Arc::new(Published::new(Book::empty(1, Settings::default()).generation, 1));
        let mut notifier = Notifier::new(transfers, published, Clock::new(), Rng::with_seed(1), 2);
        let to = To { zone: b"\x01a\0".to_vec(), address };
        notifier.notifications.changed(to.clone(), Duration::ZERO);
        notifier.notifications.sent(&to, 7, None, Duration::ZERO);
        let refusal = |id: u8, rcode: u8| [0, id, 0x80 | 4 << 3, rcode, 0, 0, 0, 0, 0, 0, 0, 0];
        notifier.take(&refusal(8, 4), address);
        notifier.take(&refusal(7, 0), address);
        notifier.take(&refusal(7, 4), "192.0.2.2:53".parse().unwrap());
        assert!(notifier.notifications.next().is_some());
        notifier.take(&refusal(7, 4), address);
        assert!(notifier.notifications.next().is_none());
        let counts = [&counters.notify_stray, &counters.notify_refused];
        assert_eq!(counts.map(|count| count.load(std::sync::atomic::Ordering::Relaxed)), [3, 1]);
    }

    #[test]
    fn a_notification_reads_as_domain_reads_it_and_its_answer_is_known() {
        let mut book = Book::empty(1, Settings::default());
        let text = b"@ 60 SOA ns hm 9 2 3 4 5\n@ 60 NS ns\n";
        let edit = Edit::zone("Example.org", text, Condition::Always, &book.generation.hash).unwrap();
        book.apply(edit).unwrap();
        let zone = book.generation.zones.all().iter().next().unwrap();
        let mut out = [0; NOTIFICATION_MAX];
        let length = compose(zone, 7, &mut out).unwrap();
        let message = Message::from_slice(&out[..length]).unwrap();
        assert_eq!((message.header().id(), message.header().opcode()), (7, Opcode::NOTIFY));
        assert!(message.header().aa() && !message.header().qr());
        let question = message.sole_question().unwrap();
        assert_eq!((question.qname().to_string().as_str(), question.qtype()), ("example.org", Rtype::SOA));
        let record = message.answer().unwrap().limit_to::<Soa<_>>().next().unwrap().unwrap();
        assert_eq!(
            (record.owner().to_string().as_str(), record.data().serial().into_int()),
            ("example.org", 9)
        );

        assert_eq!(read(&out[..length]), None, "a question is no answer");
        out[2] |= 0x80;
        out[3] = 5;
        let known = (b"\x07example\x03org\0".to_vec(), 7, Rcode::REFUSED);
        assert_eq!(read(&out[..length]), Some(known.clone()));
        assert_eq!(read(&out[..HEADER + 17]), Some(known), "the record need not come back");
        assert_eq!(read(&out[..HEADER + 16]), None);
        out[2] = 0x80;
        assert_eq!(read(&out[..length]), None, "the answer to a query");
    }
}
