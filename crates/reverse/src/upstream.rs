//! One question to one upstream: each message has a socket of its own, so that port and id are both new each time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use net::udp::DATAGRAM_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::backend::UpstreamCounts;
use crate::cache::Why;
use crate::question::{self, Answered, Ask, NAMES_MAX};

/// How many datagrams that answer another question one question waits through: so many wrong guesses of an id
/// are an attack, and then no answer of that socket is believed.
pub const FOREIGN_MAX: usize = 16;

/// Ids that nobody can foresee: a keyed hash of a count, the key from the system.
#[derive(Debug)]
pub struct Ids {
    key: RandomState,
    next: AtomicU64,
}

impl Ids {
    /// Ids of a new key.
    #[expect(clippy::new_without_default, reason = "a default value that asks the system would surprise")]
    pub fn new() -> Ids {
        Ids { key: RandomState::new(), next: AtomicU64::new(0) }
    }

    /// An id that nobody can foresee; the same one may come again.
    pub fn next(&self) -> u16 {
        let mut hasher = self.key.build_hasher();
        hasher.write_u64(self.next.fetch_add(1, Ordering::Relaxed));
        hasher.finish() as u16
    }
}

/// What a question came to.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// What was answered; never [`Answered::Truncated`], [`Answered::Foreign`] or [`Answered::NotUnderstood`].
    pub answered: Answered,
    /// Whether the upstream takes EDNS, where this shows it.
    pub takes_edns: Option<bool>,
}

/// A question on its way: of whom, what, and who counts.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The resolver that is asked.
    pub upstream: SocketAddr,
    /// The address that the question is about.
    pub address: IpAddr,
    /// What is asked for it.
    pub ask: &'a Ask,
    /// Where the ids of messages are from.
    pub ids: &'a Ids,
    /// That it was asked is counted here, what came that was no answer to this, and the rcodes.
    pub counts: &'a UpstreamCounts,
}

/// A message, and the id that its answer must have.
struct Message {
    octets: Vec<u8>,
    id: u16,
}

impl Way<'_> {
    /// Asks over UDP, with or without EDNS, for so long at most; where the answer is cut, at once over TCP, and where the
    /// question is not understood, at once without EDNS. That has a new port and id: an error that was forged does no more
    /// than have it sent.
    ///
    /// # Errors
    /// What this machine lacks to ask anybody.
    pub async fn ask(&self, with_edns: bool, wait: Duration) -> io::Result<Reply> {
        let reply = |answered, takes_edns| Ok(Reply { answered, takes_edns });
        match timeout(wait, self.ask_both_ways(with_edns)).await {
            Ok(Ok(asked)) => match asked.answered {
                Answered::Truncated | Answered::Foreign => reply(Answered::Failed(Why::Malformed), None),
                Answered::NotUnderstood => reply(Answered::Failed(Why::Refused), None),
                Answered::Failed(_) => reply(asked.answered, None),
                answered => reply(answered, asked.takes_edns),
            },
            Ok(Err(cause)) if net::client::is_shortage(&cause) => Err(cause),
            // Nobody is there, or nobody answers: for whoever asks it is the same.
            Ok(Err(_)) | Err(_) => reply(Answered::Failed(Why::Timeout), None),
        }
    }

    async fn ask_both_ways(&self, with_edns: bool) -> io::Result<Reply> {
        let message = self.message(with_edns);
        let socket = self.send(&message).await?;
        self.counts.questions.fetch_add(1, Ordering::Relaxed);
        let answered = self.receive(socket, &message).await?;
        if !matches!((answered, with_edns), (Answered::NotUnderstood, true)) {
            return Ok(Reply { answered, takes_edns: with_edns.then_some(true) });
        }
        self.counts.not_understood.fetch_add(1, Ordering::Relaxed);
        let message = self.message(false);
        let socket = self.send(&message).await?;
        let answered = self.receive(socket, &message).await?;
        // It may not understand anything: only an answer shows that it was EDNS.
        Ok(Reply { answered, takes_edns: Some(false) })
    }

    fn message(&self, with_edns: bool) -> Message {
        let id = self.ids.next();
        let write = if with_edns { question::question } else { question::question_without_edns };
        Message { octets: write(self.address, self.ask, id), id }
    }

    async fn send(&self, message: &Message) -> io::Result<UdpSocket> {
        // The kernel drops what does not come from there.
        let socket = UdpSocket::from_std(net::client::ask(self.upstream, None)?)?;
        socket.send(&message.octets).await?;
        Ok(socket)
    }

    /// Waits for the answer; where that is cut, asks over TCP.
    async fn receive(&self, socket: UdpSocket, message: &Message) -> io::Result<Answered> {
        let mut octets = vec![0; DATAGRAM_MAX];
        for _ in 0..FOREIGN_MAX {
            let length = socket.recv(&mut octets).await?;
            match self.read(&octets[..length], message) {
                Answered::Foreign => {}
                Answered::Truncated => {
                    self.counts.cut.fetch_add(1, Ordering::Relaxed);
                    return self.ask_over_tcp(message).await;
                }
                answered => return Ok(answered),
            }
        }
        Ok(Answered::Failed(Why::Malformed))
    }

    async fn ask_over_tcp(&self, message: &Message) -> io::Result<Answered> {
        let mut stream = TcpStream::connect(self.upstream).await?;
        let asked = &message.octets;
        stream.write_all(&[&net::framing::prefix(asked.len())[..], asked].concat()).await?;
        let mut octets = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut octets).await?;
        Ok(self.read(&octets, message))
    }

    /// Reads what came back, and counts it.
    fn read(&self, octets: &[u8], message: &Message) -> Answered {
        let answered = question::read(octets, self.address, self.ask, message.id);
        match answered {
            Answered::Foreign => _ = self.counts.foreign.fetch_add(1, Ordering::Relaxed),
            _ => note_header(octets, self.counts),
        }
        answered
    }
}

/// Counts the rcode of a message that was read, and whether it has more records than are looked at: the lower half of
/// its fourth octet, and its fourth word (RFC 1035 §4.1.1).
fn note_header(octets: &[u8], counts: &UpstreamCounts) {
    let Some([_, _, _, codes, _, _, high, low, ..]) = octets.get(..12) else { return };
    counts.rcodes[usize::from(codes & 15)].fetch_add(1, Ordering::Relaxed);
    if usize::from(u16::from_be_bytes([*high, *low])) > NAMES_MAX {
        counts.many.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock, Mutex};

    use ::tests::folder::Folder;
    use ::tests::peer::{Make, free_address};
    use domain::base::iana::Rcode;
    use domain::base::{Message, MessageBuilder, Name};
    use domain::rdata::Ptr;
    use tokio::net::TcpListener;

    use super::*;
    use crate::backend::Upstreams;
    use crate::backend::upstreams::WITHOUT_EDNS;

    /// What a test that hangs is ended by.
    const WAIT: Duration = Duration::from_secs(20);

    static IDS: LazyLock<Ids> = LazyLock::new(Ids::new);

    fn way(upstream: SocketAddr, counts: &UpstreamCounts) -> Way<'_> {
        Way { upstream, address: "192.0.2.1".parse().unwrap(), ask: &Ask::Name, ids: &IDS, counts }
    }

    /// What a reply says, and what it shows of EDNS.
    fn told(reply: io::Result<Reply>) -> (String, Option<bool>) {
        let Reply { answered, takes_edns } = reply.expect("nothing of this machine is short");
        let text = match answered {
            Answered::Name(name, _) => name.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        (text, takes_edns)
    }

    /// Who was heard: the port, the id, and whether the message had EDNS.
    type Heard = Arc<Mutex<Vec<(u16, u16, bool)>>>;

    fn with_edns(heard: &Heard) -> Vec<bool> {
        heard.lock().unwrap().iter().map(|(.., with_edns)| *with_edns).collect()
    }

    /// What is said to a question.
    type Refusal = fn(&[u8]) -> Vec<u8>;

    /// A resolver that says `refusal` wherever there is an OPT record, and otherwise has the name `old.example`, where
    /// `is_cut` over TCP only.
    async fn old(refusal: Refusal, is_cut: bool) -> (SocketAddr, Heard) {
        let any = "127.0.0.1:0".parse().unwrap();
        let (tcp, udp) = net::listen::both(any, std::net::UdpSocket::bind).unwrap();
        udp.set_nonblocking(true).unwrap();
        let (socket, tcp) = (UdpSocket::from_std(udp).unwrap(), TcpListener::from_std(tcp).unwrap());
        let address = socket.local_addr().unwrap();
        let heard = Heard::default();
        let hears = heard.clone();
        let answer = move |asked: &[u8], client: SocketAddr, is_cut: bool| {
            let has_opt = asked[11] == 1;
            hears.lock().unwrap().push((client.port(), u16::from_be_bytes([asked[0], asked[1]]), has_opt));
            if has_opt { refusal(asked) } else { named(asked, is_cut) }
        };
        let over_tcp = answer.clone();
        tokio::spawn(async move {
            let mut octets = [0; 512];
            loop {
                let (length, client) = socket.recv_from(&mut octets).await.unwrap();
                socket.send_to(&answer(&octets[..length], client, is_cut), client).await.unwrap();
            }
        });
        tokio::spawn(async move {
            let (mut stream, client) = tcp.accept().await.unwrap();
            let mut asked = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut asked).await.unwrap();
            let answer = over_tcp(&asked, client, false);
            stream.write_all(&[&net::framing::prefix(answer.len())[..], &answer].concat()).await.unwrap();
        });
        (address, heard)
    }

    fn named(asked: &[u8], is_cut: bool) -> Vec<u8> {
        let asked = Message::from_octets(asked).unwrap();
        let mut message = MessageBuilder::new_vec().start_answer(&asked, Rcode::NOERROR).unwrap();
        message.header_mut().set_tc(is_cut);
        let owner = asked.sole_question().unwrap().into_qname();
        let target: Name<Vec<u8>> = "old.example".parse().unwrap();
        message.push((owner, 60, Ptr::new(target))).unwrap();
        message.finish()
    }

    /// The question as it came, OPT record and all, with this code.
    fn echoed(asked: &[u8], rcode: u8) -> Vec<u8> {
        let mut octets = asked.to_vec();
        octets[2] |= 0x80;
        octets[3] |= rcode;
        octets
    }

    /// The same without the OPT record.
    fn plain(asked: &[u8], rcode: u8) -> Vec<u8> {
        let mut octets = echoed(asked, rcode);
        octets.truncate(asked.len() - 11);
        octets[11] = 0;
        octets
    }

    /// A header alone.
    fn header(asked: &[u8], rcode: u8) -> Vec<u8> {
        let mut octets = plain(asked, rcode);
        octets.truncate(12);
        octets[5] = 0;
        octets
    }

    /// BADVERS, whose upper bits are in the OPT record.
    fn badvers(asked: &[u8]) -> Vec<u8> {
        let mut octets = echoed(asked, 0);
        octets[asked.len() - 6] = 1;
        octets
    }

    #[tokio::test]
    async fn who_does_not_understand_edns_is_asked_without_at_once() {
        let refusals: [Refusal; 5] = [
            |asked| plain(asked, 1),
            |asked| echoed(asked, 1),
            |asked| header(asked, 1),
            |asked| plain(asked, 4),
            badvers,
        ];
        for (number, refusal) in refusals.into_iter().enumerate() {
            let counts = UpstreamCounts::default();
            let (upstream, heard) = old(refusal, false).await;
            let said = told(way(upstream, &counts).ask(true, WAIT).await);
            assert_eq!(said, ("old.example".to_owned(), Some(false)), "{number}");
            assert_eq!(with_edns(&heard), [true, false], "{number}");
            let counted = [&counts.questions, &counts.not_understood, &counts.foreign];
            assert_eq!(counted.map(|count| count.load(Ordering::Relaxed)), [1, 1, 0], "{number}");
            // Whoever forged the one must guess anew for the other.
            let heard = heard.lock().unwrap();
            assert_ne!((heard[0].0, heard[0].1), (heard[1].0, heard[1].1));
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_without_edns_comes_over_tcp() {
        let counts = UpstreamCounts::default();
        let (upstream, heard) = old(|asked| plain(asked, 1), true).await;
        let said = told(way(upstream, &counts).ask(true, WAIT).await);
        assert_eq!(said, ("old.example".to_owned(), Some(false)));
        assert_eq!(with_edns(&heard), [true, false, false]);
        assert_eq!(counts.cut.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn who_understands_nothing_is_asked_twice_and_shows_nothing() {
        let counts = UpstreamCounts::default();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let upstream = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut octets = [0; 512];
            loop {
                let (length, client) = socket.recv_from(&mut octets).await.unwrap();
                socket.send_to(&echoed(&octets[..length], 1), client).await.unwrap();
            }
        });
        for (with_edns, not_understood) in [(true, 1), (false, 1)] {
            let said = told(way(upstream, &counts).ask(with_edns, WAIT).await);
            assert_eq!(said, ("Failed(Refused)".to_owned(), None));
            assert_eq!(counts.not_understood.load(Ordering::Relaxed), not_understood);
        }
    }

    #[tokio::test]
    async fn what_was_found_is_kept_for_a_while_and_tried_again() {
        let (upstream, heard) = old(|asked| plain(asked, 1), false).await;
        let counts = Arc::new(UpstreamCounts::default());
        let mut upstreams = Upstreams::new(&[(upstream, counts.clone())]);
        let begin = Duration::from_secs(100);
        let (last, over) = (begin + WITHOUT_EDNS - Duration::from_nanos(1), begin + WITHOUT_EDNS);
        for (now, expected) in
            [(begin, &[true, false][..]), (begin, &[false]), (last, &[false]), (over, &[true, false])]
        {
            heard.lock().unwrap().clear();
            let way = way(upstream, &counts);
            let reply = way.ask(upstreams.is_asked_with_edns(0, now), WAIT).await.expect("nothing is short");
            reply.takes_edns.map(|takes_edns| upstreams.shown(0, takes_edns, now));
            assert_eq!(with_edns(&heard), expected, "{now:?}");
        }
    }

    #[tokio::test]
    async fn bind_is_asked_with_edns() {
        let folder = Folder::new();
        let zone = "$TTL 60\n@ SOA ns.example. hm.example. 1 3600 600 86400 60\n@ NS ns.example.\n1 PTR new.example.\n";
        let file = folder.write("zone", zone);
        let zones = format!("zone \"2.0.192.in-addr.arpa\" {{ type primary; file \"{file}\"; }};\n");
        let bind = Make::Bind.start(&folder, free_address(), &zones);
        let counts = UpstreamCounts::default();
        for (with_edns, takes_edns) in [(true, Some(true)), (false, None)] {
            let said = told(way(bind.dns, &counts).ask(with_edns, WAIT).await);
            assert_eq!(said, ("new.example".to_owned(), takes_edns));
        }
        assert_eq!(counts.not_understood.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn only_what_was_sent_counts_as_asked() {
        let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The system refuses a socket to this one.
        let nobody = "255.255.255.255:53".parse().unwrap();
        for (upstream, questions) in [(gone, 1), (nobody, 0)] {
            let counts = UpstreamCounts::default();
            let said = told(way(upstream, &counts).ask(true, WAIT).await);
            assert_eq!(said, ("Failed(Timeout)".to_owned(), None), "{upstream}");
            assert_eq!(counts.questions.load(Ordering::Relaxed), questions, "{upstream}");
        }
    }
}
