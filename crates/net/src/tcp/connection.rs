//! One connection: what it waits for, how long it may, and how it ends.

use super::{Counters, Limits, Messages, Next, Verdict};
use crate::admission::Place;
use crate::framing::{self, Assembler, FRAME_MAX, PREFIX_LEN};
use crate::linger::{LINGER_MAX, linger};
use crate::shutdown::Shutdown;
use crate::tls::identity::NoTerms;
use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// Octets that this process holds for an idle connection, without its handler and the kernel's socket.
pub const IDLE_CONNECTION_MAX: usize = 1024;

/// Octets of answers that wait for one client; nothing more is read from it until they are taken.
///
/// Two messages of the longest kind: one that is finished and room for the next.
pub const UNSENT_MAX: usize = 2 * FRAME_MAX;

/// Octets that are read at a time: about a hundred queries, so that one busy connection soon lets the others
/// go on.
const PIECE_MAX: usize = 8 * 1024;

/// What a duration in [`Limits`] counts as at most, so that adding it to the time cannot overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Says how a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    ByHandler,
    ByClient,
    CutShort,
    Reset,
    Idle,
    QueryLate,
    AnswersUntaken,
    Lifetime,
    GaveWay,
    GaveWayUntaken,
    NoTerms,
    ByShutdown,
}

impl From<NoTerms> for End {
    fn from(why: NoTerms) -> End {
        match why {
            NoTerms::Failed => End::NoTerms,
            NoTerms::GaveWay => End::GaveWay,
            NoTerms::ByShutdown => End::ByShutdown,
        }
    }
}

impl End {
    /// Whether the client was given up for not taking its answers.
    pub(super) fn is_untaken(self) -> bool {
        matches!(self, End::AnswersUntaken | End::GaveWayUntaken)
    }

    /// Whether a client that did nothing wrong may be sending just then, and may not have taken all answers.
    fn is_ours(self) -> bool {
        matches!(self, End::ByHandler | End::Lifetime | End::ByShutdown)
    }
}

/// Serves one client over any stream.
pub(super) struct Connection<'a, S, H> {
    stream: S,
    handler: H,
    place: &'a Place,
    counters: &'a Counters,
    limits: &'a Limits,
    /// The beginning of a query, if its end has not come.
    assembler: Assembler,
    /// Queries that were read and are not looked at before `unsent` is sent.
    unread: Vec<u8>,
    /// The answer that is being made piece by piece; `unread` waits for its end.
    streamed: Option<Box<dyn Messages>>,
    /// Where the answer comes from that others make; `unread` waits for it.
    later: Option<oneshot::Receiver<Vec<u8>>>,
    /// Answers that the client has not taken yet, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// Whether something that was sent may still be in the stream's own room, as where it is encrypted.
    is_unflushed: bool,
    awaited: Awaited,
    /// When the wait for `awaited` began.
    since: Instant,
    opened: Instant,
    /// Whether a query has come.
    has_asked: bool,
    /// How the connection ends as soon as `unsent` is sent.
    ending: Option<End>,
}

/// Says what a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// The next query.
    Query,
    /// The rest of a query.
    RestOfQuery,
    /// The client, to take its answers.
    Taking,
    /// Others, to make an answer.
    Making,
}

/// Says how far one step has come.
enum Step {
    /// Something was answered or sent; more may be there already.
    Advanced {
        more: bool,
    },
    Ended(End),
}

/// Room that the connections of one thread use in turn, only within one poll.
struct Scratch {
    piece: Box<[u8]>,
    answers: Box<[u8]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        piece: vec![0; PIECE_MAX].into_boxed_slice(),
        answers: vec![0; UNSENT_MAX].into_boxed_slice(),
    });
}

impl<'a, S, H> Connection<'a, S, H>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: FnMut(&[u8], &mut [u8]) -> Verdict,
{
    pub(super) fn new(
        stream: S,
        handler: H,
        place: &'a Place,
        counters: &'a Counters,
        limits: &'a Limits,
    ) -> Self {
        let now = Instant::now();
        Self {
            stream,
            handler,
            place,
            counters,
            limits,
            assembler: Assembler::default(),
            unread: Vec::new(),
            streamed: None,
            later: None,
            unsent: Vec::new(),
            sent: 0,
            is_unflushed: false,
            awaited: Awaited::Query,
            since: now,
            opened: now,
            has_asked: false,
            ending: None,
        }
    }

    /// Answers queries until the connection ends.
    pub(super) async fn converse(mut self, shutdown: &Shutdown) -> End {
        let end = self.serve(shutdown).await;
        if self.streamed.take().is_some() {
            Counters::add(&self.counters.streams_cut, 1);
        }
        if end.is_ours() {
            self.part().await;
        }
        end
    }

    /// Closes our side, and lets the client take what the kernel still has for it. Who needs the place gets it.
    async fn part(&mut self) {
        self.unread = Vec::new();
        self.unsent = Vec::new();
        self.place.waits(self.has_asked);
        let parting = async {
            // Encrypted, the end is a message, which the client may not take.
            if let Ok(Ok(())) = timeout(LINGER_MAX, self.stream.shutdown()).await {
                linger(&mut self.stream).await;
            }
        };
        tokio::select! {
            () = self.place.gives_way() => {}
            () = parting => {}
        }
    }

    /// Whether the client has not taken all of its answers.
    fn is_untaken(&self) -> bool {
        !self.unsent.is_empty() || self.is_unflushed
    }

    async fn serve(&mut self, shutdown: &Shutdown) -> End {
        let mut begun = pin!(shutdown.wait());
        let mut overdue = pin!(sleep_until(self.deadline()));
        let mut gives_way = pin!(self.place.gives_way());
        loop {
            // The limits come first: a client that always has more to read or to take must not outrun them.
            let step = tokio::select! {
                biased;
                () = &mut begun, if self.ending.is_none() => {
                    if !self.is_untaken() && self.later.is_none() {
                        return End::ByShutdown;
                    }
                    self.ending = Some(End::ByShutdown);
                    continue;
                }
                () = &mut overdue => return self.overdue(),
                () = &mut gives_way => return self.gave_way(),
                step = poll_fn(|context| self.poll_step(context)) => step,
            };
            let more = match step {
                Step::Ended(end) => return end,
                Step::Advanced { more } => more,
            };
            overdue.as_mut().reset(self.deadline());
            if more {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Sends the answers that wait; if there are none, makes more of the one that is streamed, or answers the
    /// queries that wait, or else what can be read.
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        SCRATCH.with_borrow_mut(|Scratch { piece, answers }| {
            if self.is_untaken() {
                while self.sent < self.unsent.len() {
                    match ready!(Pin::new(&mut self.stream).poll_write(context, &self.unsent[self.sent..])) {
                        Ok(count) if count > 0 => self.sent += count,
                        _ => return Poll::Ready(Step::Ended(End::Reset)),
                    }
                    self.place.waits(true);
                }
                if ready!(Pin::new(&mut self.stream).poll_flush(context)).is_err() {
                    return Poll::Ready(Step::Ended(End::Reset));
                }
                (self.unsent, self.sent, self.is_unflushed) = (Vec::new(), 0, false);
                // A step of its own, for another time limit holds from here on.
                self.begin_wait(true);
                return Poll::Ready(self.ending.map_or(Step::Advanced { more: false }, Step::Ended));
            }

            if self.streamed.is_some() {
                let streamed = self.stream_on(answers, context);
                self.begin_wait(true);
                return Poll::Ready(streamed.map_or_else(Step::Ended, |()| Step::Advanced { more: true }));
            }

            if let Some(later) = &mut self.later {
                let made = ready!(Pin::new(later).poll(context));
                self.later = None;
                let sent = self.send_later(made.ok(), answers, context);
                self.begin_wait(true);
                return Poll::Ready(match (sent, self.ending) {
                    (Err(end), _) => Step::Ended(end),
                    (Ok(()), Some(end)) if !self.is_untaken() => Step::Ended(end),
                    (Ok(()), _) => Step::Advanced { more: true },
                });
            }

            let unread = mem::take(&mut self.unread);
            let (queries, more) = if unread.is_empty() {
                let mut room = ReadBuf::new(piece);
                if ready!(Pin::new(&mut self.stream).poll_read(context, &mut room)).is_err() {
                    return Poll::Ready(Step::Ended(End::Reset));
                }
                let len = room.filled().len();
                if len == 0 {
                    let end = if self.assembler.is_partial() { End::CutShort } else { End::ByClient };
                    return Poll::Ready(Step::Ended(end));
                }
                (&piece[..len], len == PIECE_MAX)
            } else {
                (&unread[..], true)
            };
            Poll::Ready(match (self.answer_all(queries, answers, context), self.ending) {
                (Err(end), _) => Step::Ended(end),
                (Ok(()), Some(end)) if !self.is_untaken() => Step::Ended(end),
                (Ok(()), _) => {
                    Step::Advanced { more: more || self.streamed.is_some() || self.later.is_some() }
                }
            })
        })
    }

    /// Answers all whole queries in `piece` and sends as many answers as the client takes at once.
    fn answer_all(
        &mut self,
        mut piece: &[u8],
        answers: &mut [u8],
        context: &mut Context<'_>,
    ) -> Result<(), End> {
        let mut used = 0;
        let mut was_answered = false;
        while self.ending.is_none() {
            if used + FRAME_MAX > answers.len() {
                self.send(&answers[..used], context)?;
                if self.is_untaken() {
                    self.unread = piece.to_vec();
                    used = 0;
                    break;
                }
                used = 0;
            }
            let Some(query) = self.assembler.next(&mut piece) else { break };
            was_answered = true;
            Counters::add(&self.counters.queries, 1);
            match (self.handler)(query, &mut answers[used + PREFIX_LEN..used + FRAME_MAX]) {
                Verdict::Reply(len) => {
                    answers[used..used + PREFIX_LEN].copy_from_slice(&framing::prefix(len));
                    used += PREFIX_LEN + len;
                    Counters::add(&self.counters.answers, 1);
                }
                Verdict::Stream(messages) => {
                    self.streamed = Some(messages);
                    self.unread = piece.to_vec();
                    Counters::add(&self.counters.streams, 1);
                    break;
                }
                Verdict::Later(later) => {
                    self.later = Some(later);
                    self.unread = piece.to_vec();
                    break;
                }
                Verdict::Drop => Counters::add(&self.counters.drops, 1),
                Verdict::Close => self.ending = Some(End::ByHandler),
            }
        }
        if used > 0 {
            self.send(&answers[..used], context)?;
        }
        self.assembler.release();
        self.begin_wait(was_answered);
        Ok(())
    }

    /// Makes as many messages of the streamed answer as there is room for, and sends what the client takes.
    fn stream_on(&mut self, answers: &mut [u8], context: &mut Context<'_>) -> Result<(), End> {
        let mut used = 0;
        while used + FRAME_MAX <= answers.len()
            && let Some(messages) = &mut self.streamed
        {
            match messages.next(&mut answers[used + PREFIX_LEN..used + FRAME_MAX]) {
                Next::Message(len) => {
                    answers[used..used + PREFIX_LEN].copy_from_slice(&framing::prefix(len));
                    used += PREFIX_LEN + len;
                    Counters::add(&self.counters.stream_messages, 1);
                }
                Next::End => self.streamed = None,
                // What was made before goes with the connection: half an answer is none.
                Next::Broken => return Err(End::ByHandler),
            }
        }
        self.send(&answers[..used], context)
    }

    /// Sends an answer that others have made, where they have.
    fn send_later(
        &mut self,
        made: Option<Vec<u8>>,
        answers: &mut [u8],
        context: &mut Context<'_>,
    ) -> Result<(), End> {
        let Some(made) = made.filter(|made| made.len() <= FRAME_MAX - PREFIX_LEN) else {
            Counters::add(&self.counters.drops, 1);
            return Ok(());
        };
        answers[..PREFIX_LEN].copy_from_slice(&framing::prefix(made.len()));
        answers[PREFIX_LEN..PREFIX_LEN + made.len()].copy_from_slice(&made);
        Counters::add(&self.counters.answers, 1);
        self.send(&answers[..PREFIX_LEN + made.len()], context)
    }

    /// Sends what the client takes at once and keeps the rest.
    fn send(&mut self, answers: &[u8], context: &mut Context<'_>) -> Result<(), End> {
        let mut sent = 0;
        while sent < answers.len() {
            match Pin::new(&mut self.stream).poll_write(context, &answers[sent..]) {
                Poll::Ready(Ok(count)) if count > 0 => sent += count,
                Poll::Ready(_) => return Err(End::Reset),
                Poll::Pending => {
                    self.unsent = answers[sent..].to_vec();
                    break;
                }
            }
        }
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => Ok(()),
            Poll::Ready(Err(_)) => Err(End::Reset),
            Poll::Pending => {
                self.is_unflushed = true;
                Ok(())
            }
        }
    }

    /// Notes what is waited for next, and since when.
    fn begin_wait(&mut self, was_answered: bool) {
        let awaited = if self.is_untaken() || self.streamed.is_some() {
            Awaited::Taking
        } else if self.later.is_some() {
            Awaited::Making
        } else if self.assembler.is_partial() {
            Awaited::RestOfQuery
        } else {
            Awaited::Query
        };
        // More of the same query is no new wait: its time counts from its first octet.
        let same_query = awaited == Awaited::RestOfQuery && self.awaited == awaited && !was_answered;
        if !same_query {
            self.since = Instant::now();
        }
        self.has_asked |= was_answered;
        if !same_query {
            self.place.waits(self.has_asked);
        }
        self.awaited = awaited;
    }

    fn deadline(&self) -> Instant {
        let message = self.limits.message;
        match self.awaited {
            // Waiting answers are sent even at the end of the lifetime.
            Awaited::Taking => after(self.since, message),
            // Who makes it comes to an end.
            Awaited::Making => after(self.since, LONGEST),
            Awaited::RestOfQuery => after(self.since, message).min(self.lifetime_end()),
            Awaited::Query => {
                let idle = self.limits.idle_now(self.place.is_crowded());
                after(self.since, idle).min(self.lifetime_end())
            }
        }
    }

    fn overdue(&self) -> End {
        match self.awaited {
            Awaited::Taking => End::AnswersUntaken,
            _ if self.lifetime_end() <= Instant::now() => End::Lifetime,
            Awaited::RestOfQuery => End::QueryLate,
            Awaited::Query | Awaited::Making => End::Idle,
        }
    }

    fn gave_way(&self) -> End {
        match self.awaited {
            Awaited::Taking => End::GaveWayUntaken,
            Awaited::Query | Awaited::RestOfQuery | Awaited::Making => End::GaveWay,
        }
    }

    fn lifetime_end(&self) -> Instant {
        after(self.opened, self.limits.lifetime)
    }
}

fn after(instant: Instant, duration: Duration) -> Instant {
    instant + duration.min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::advance;

    /// Octets that the test's stream holds in each direction.
    const PIPE: usize = 1000;

    const LIMITS: Limits = Limits {
        connections_max: 10,
        per_client_max: 10,
        idle: Duration::from_secs(10),
        idle_when_crowded: Duration::from_secs(1),
        message: Duration::from_secs(5),
        lifetime: Duration::from_secs(60),
    };

    /// A client, and the connection that serves it with [`answer`] on a clock that stands still unless
    /// turned.
    struct Served {
        client: DuplexStream,
        task: JoinHandle<End>,
        counters: Arc<Counters>,
        shutdown: Shutdown,
        admission: Arc<Admission>,
    }

    impl Served {
        fn new(limits: Limits) -> Self {
            let (client, stream) = duplex(PIPE);
            let counters = Arc::new(Counters::default());
            let shutdown = Shutdown::new();
            let admission = Arc::new(limits.admission());
            let place = admit(&admission);
            let task = tokio::spawn({
                let (counters, shutdown) = (Arc::clone(&counters), shutdown.clone());
                async move {
                    Connection::new(stream, answer, &place, &counters, &limits).converse(&shutdown).await
                }
            });
            Self { client, task, counters, shutdown, admission }
        }

        async fn ask(&mut self, message: &[u8]) {
            self.client.write_all(&frame(message)).await.expect("the connection reads");
        }

        async fn read_frame(&mut self) -> Vec<u8> {
            let len = self.client.read_u16().await.expect("an answer comes");
            let mut message = vec![0; usize::from(len)];
            self.client.read_exact(&mut message).await.expect("the answer is whole");
            message
        }

        /// Turns the clock; whatever is due happens.
        async fn pass(&self, seconds: u64) {
            settle().await;
            advance(Duration::from_secs(seconds)).await;
            settle().await;
        }

        /// Whether the connection is still open at `seconds` from now and has ended one second later, and
        /// how.
        async fn ends_between(self, seconds: u64) -> End {
            self.pass(seconds).await;
            assert!(!self.task.is_finished(), "ended before its time");
            self.pass(1).await;
            assert!(self.task.is_finished(), "outlived its time");
            self.task.await.expect("the connection does not panic")
        }
    }

    fn admit(admission: &Arc<Admission>) -> Place {
        admission.admit(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("a free place")
    }

    /// Lets all other tasks run until they wait.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn frame(message: &[u8]) -> Vec<u8> {
        [&framing::prefix(message.len())[..], message].concat()
    }

    /// Makes so many messages that count down, each of so many octets; then breaks, where it is to.
    struct Countdown {
        left: u32,
        len: usize,
        breaks: bool,
    }

    impl Messages for Countdown {
        fn next(&mut self, out: &mut [u8]) -> Next {
            match self.left.checked_sub(1) {
                Some(left) => {
                    out[..self.len].fill(0);
                    out[..4].copy_from_slice(&self.left.to_be_bytes());
                    self.left = left;
                    Next::Message(self.len)
                }
                None if self.breaks => Next::Broken,
                None => Next::End,
            }
        }
    }

    /// Echoes; but drops `d...`, closes at `c...`, answers `l...` at the greatest length, `S` and `B` by a stream of
    /// a hundred messages, the latter one broken, and `w...` after so many seconds as its second octet says: not at all for
    /// none.
    fn answer(query: &[u8], out: &mut [u8]) -> Verdict {
        match query.first() {
            Some(&kind @ (b'S' | b'B')) => {
                Verdict::Stream(Box::new(Countdown { left: 100, len: 30_000, breaks: kind == b'B' }))
            }
            Some(b'd') => Verdict::Drop,
            Some(b'w') => {
                let (sender, later) = oneshot::channel();
                let (query, seconds) = (query.to_vec(), u64::from(query[1] - b'0'));
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    if seconds > 0 {
                        let _ = sender.send(query);
                    }
                });
                Verdict::Later(later)
            }
            Some(b'c') => Verdict::Close,
            Some(b'l') => {
                out.fill(b'l');
                Verdict::Reply(out.len())
            }
            _ => {
                out[..query.len()].copy_from_slice(query);
                Verdict::Reply(query.len())
            }
        }
    }

    fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn pipelined_queries_are_answered_in_order_in_one_write() {
        let mut served = Served::new(LIMITS);
        let queries: [&[u8]; 5] = [b"first", b"", b"dropped", b"second", b"third"];
        let asked: Vec<u8> = queries.iter().flat_map(|query| frame(query)).collect();
        served.client.write_all(&asked).await.expect("the connection reads");
        let mut answers = vec![0; PIPE];
        let len = served.client.read(&mut answers).await.expect("answers come");
        let expected: Vec<u8> =
            [&b"first"[..], b"", b"second", b"third"].iter().flat_map(|a| frame(a)).collect();
        assert_eq!(answers[..len], expected);
        let Counters { queries, answers, drops, .. } = &*served.counters;
        assert_eq!([queries, answers, drops].map(read), [5, 4, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn queries_in_single_octets_are_answered() {
        let mut served = Served::new(LIMITS);
        for query in [&b"one"[..], b"", b"two"] {
            for octet in frame(query) {
                served.client.write_all(&[octet]).await.expect("the connection reads");
                settle().await;
            }
            assert_eq!(served.read_frame().await, query);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_closed_client_gets_its_answers() {
        let mut served = Served::new(LIMITS);
        served.client.write_all(&[frame(b"end"), frame(b"l")].concat()).await.expect("the connection reads");
        served.client.shutdown().await.expect("one side can be closed");
        settle().await;
        assert_eq!(served.read_frame().await, b"end");
        assert_eq!(served.read_frame().await.len(), framing::MESSAGE_MAX);
        assert_eq!(served.client.read(&mut [0; 1]).await.expect("the stream ends well"), 0);
        assert_eq!(served.task.await.expect("no panic"), End::ByClient);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_go_are_told_apart() {
        for (sent, expected) in
            [(&b""[..], End::ByClient), (b"\0", End::CutShort), (b"\0\x05half", End::CutShort)]
        {
            let mut served = Served::new(LIMITS);
            served.client.write_all(sent).await.expect("the connection reads");
            drop(served.client);
            assert_eq!(served.task.await.expect("no panic"), expected, "{sent:?}");
        }
        let mut served = Served::new(LIMITS);
        served.ask(b"l").await;
        settle().await;
        drop(served.client);
        assert_eq!(served.task.await.expect("no panic"), End::Reset);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_closes_after_the_answers_before() {
        let mut served = Served::new(LIMITS);
        let asked = [frame(b"one"), frame(b"close"), frame(b"two")].concat();
        served.client.write_all(&asked).await.expect("the connection reads");
        let mut answers = Vec::new();
        served.client.read_to_end(&mut answers).await.expect("the stream ends well");
        assert_eq!(answers, frame(b"one"));
        assert_eq!(served.task.await.expect("no panic"), End::ByHandler);
        assert_eq!([&served.counters.queries, &served.counters.answers].map(read), [2, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_others_make_come_in_their_turn() {
        let mut served = Served::new(LIMITS);
        let asked = [&b"first"[..], b"w3", b"w0", b"w2", b"end"].map(frame).concat();
        served.client.write_all(&asked).await.expect("the connection reads");
        for expected in [&b"first"[..], b"w3", b"w2", b"end"] {
            assert_eq!(served.read_frame().await, expected);
        }
        let Counters { queries, answers, drops, .. } = &*served.counters;
        assert_eq!([queries, answers, drops].map(read), [5, 4, 1]);
        // Idle time is none while others are at work, and a shutdown waits for them.
        let mut served = Served::new(Limits { idle: Duration::from_secs(2), ..LIMITS });
        served.client.write_all(&[&b"w9"[..], b"unheard"].map(frame).concat()).await.expect("it reads");
        served.pass(8).await;
        served.shutdown.begin();
        served.pass(1).await;
        assert_eq!(served.read_frame().await, b"w9");
        assert_eq!(served.task.await.expect("no panic"), End::ByShutdown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_idle() {
        assert_eq!(Served::new(LIMITS).ends_between(9).await, End::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn each_query_makes_idle_time_begin_anew() {
        let mut served = Served::new(LIMITS);
        for _ in 0..3 {
            served.pass(9).await;
            served.ask(b"still here").await;
            assert_eq!(served.read_frame().await, b"still here");
        }
        assert_eq!(served.ends_between(9).await, End::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_makes_idle_time_short() {
        let mut served = Served::new(LIMITS);
        let _others: Vec<_> = (0..5).map(|_| admit(&served.admission)).collect();
        served.ask(b"now it is crowded").await;
        served.read_frame().await;
        assert_eq!(served.ends_between(0).await, End::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_gives_way() {
        let served = |message: &'static [u8]| async move {
            let mut served = Served::new(Limits { connections_max: 1, ..LIMITS });
            served.ask(message).await;
            settle().await;
            let next = admit(&served.admission);
            assert!(next.has_replaced());
            let end = served.task.await.expect("no panic");
            (end, read(&served.counters.streams_cut))
        };
        assert_eq!(served(b"taken by the pipe").await, (End::GaveWay, 0));
        assert_eq!(served(b"l").await, (End::GaveWayUntaken, 0));
        assert_eq!(served(b"S").await, (End::GaveWayUntaken, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn one_octet_a_second_does_not_hold_a_connection() {
        let mut served = Served::new(LIMITS);
        served.client.write_all(&[0, 200]).await.expect("the connection reads");
        for _ in 0..4 {
            served.pass(1).await;
            served.client.write_all(b"x").await.expect("the connection reads");
        }
        assert_eq!(served.ends_between(0).await, End::QueryLate);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_query_begins_with_its_first_octet() {
        let mut served = Served::new(LIMITS);
        served.pass(9).await;
        // Whole and begun in one piece: the second one's time begins now, although the first one's had begun
        // before.
        served.client.write_all(&[0]).await.expect("the connection reads");
        served.pass(4).await;
        served.client.write_all(&[1, b'a', 0, 1]).await.expect("the connection reads");
        assert_eq!(served.read_frame().await, b"a");
        served.pass(4).await;
        served.client.write_all(b"b").await.expect("the connection reads");
        assert_eq!(served.read_frame().await, b"b");
        assert_eq!(served.ends_between(9).await, End::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_not_read_from_and_ends() {
        let mut served = Served::new(LIMITS);
        for query in [&b"l"[..], b"l", b"l", b"more"] {
            served.ask(query).await;
        }
        settle().await;
        assert!(
            read(&served.counters.queries) <= 2,
            "queries are answered although nobody takes the answers"
        );
        // The pipe is free on the way in; a connection that read on would take this.
        let filling = served.client.write_all(&[0; 2 * PIPE]);
        assert!(tokio::time::timeout(Duration::from_secs(4), filling).await.is_err());
        assert_eq!(served.ends_between(0).await, End::AnswersUntaken);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_everything_within_the_time() {
        let mut served = Served::new(LIMITS);
        for _ in 0..6 {
            served.ask(b"l").await;
        }
        served.ask(b"end").await;
        for _ in 0..6 {
            served.pass(2).await;
            assert_eq!(served.read_frame().await.len(), framing::MESSAGE_MAX);
        }
        assert_eq!(served.read_frame().await, b"end");
        assert_eq!(read(&served.counters.answers), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_comes_whole_and_in_its_place() {
        let mut served = Served::new(LIMITS);
        let asked = [frame(b"one"), frame(b"S"), frame(b"two"), frame(b"S"), frame(b"three")].concat();
        served.client.write_all(&asked).await.expect("the connection reads");
        for (before, streams) in [(&b"one"[..], true), (b"two", true), (b"three", false)] {
            assert_eq!(served.read_frame().await, before);
            for left in (1..=100_u32).rev().take_while(|_| streams) {
                let message = served.read_frame().await;
                assert_eq!((message.len(), &message[..4]), (30_000, &left.to_be_bytes()[..]));
            }
        }
        let Counters { queries, answers, streams, stream_messages, streams_cut, .. } = &*served.counters;
        assert_eq!([queries, answers, streams, stream_messages, streams_cut].map(read), [5, 3, 2, 200, 0]);
        assert_eq!(served.ends_between(9).await, End::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_outlives_the_lifetime_while_it_is_taken() {
        let mut served = Served::new(LIMITS);
        served.ask(b"S").await;
        for _ in 0..100 {
            served.pass(1).await;
            assert_eq!(served.read_frame().await.len(), 30_000);
        }
        assert_eq!(served.task.await.expect("no panic"), End::Lifetime);
        assert_eq!(read(&served.counters.streams_cut), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_are_cut_by_clients_that_stop_or_go_and_by_the_shutdown() {
        let mut stops = Served::new(LIMITS);
        stops.ask(b"S").await;
        stops.read_frame().await;
        settle().await;
        let counters = Arc::clone(&stops.counters);
        assert!(read(&counters.stream_messages) < 20, "no more is made than is taken");
        assert_eq!(stops.ends_between(4).await, End::AnswersUntaken);
        assert_eq!(read(&counters.streams_cut), 1);

        let mut goes = Served::new(LIMITS);
        goes.ask(b"S").await;
        goes.read_frame().await;
        settle().await;
        drop(goes.client);
        assert_eq!(goes.task.await.expect("no panic"), End::Reset);
        assert_eq!(read(&goes.counters.streams_cut), 1);

        let mut ends = Served::new(LIMITS);
        ends.ask(b"S").await;
        ends.read_frame().await;
        settle().await;
        ends.shutdown.begin();
        let mut rest = Vec::new();
        ends.client.read_to_end(&mut rest).await.expect("the stream ends well");
        assert!(rest.len() <= UNSENT_MAX + PIPE, "what waited is sent: {} octets", rest.len());
        assert_eq!(ends.task.await.expect("no panic"), End::ByShutdown);
        assert_eq!(read(&ends.counters.streams_cut), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_stream_closes_the_connection() {
        let mut served = Served::new(LIMITS);
        served.ask(b"B").await;
        served.ask(b"never answered").await;
        let mut taken = Vec::new();
        served.client.read_to_end(&mut taken).await.expect("the stream ends well");
        assert!(taken.len() <= 100 * 30_002);
        assert_eq!(served.task.await.expect("no panic"), End::ByHandler);
        assert_eq!(read(&served.counters.streams_cut), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_ends_with_its_lifetime() {
        let mut served = Served::new(LIMITS);
        for _ in 0..7 {
            served.pass(8).await;
            served.ask(b"busy").await;
            served.read_frame().await;
        }
        served.pass(3).await;
        served.ask(b"just in time").await;
        assert_eq!(served.read_frame().await, b"just in time");
        served.pass(1).await;
        assert_eq!(served.client.read(&mut [0; 1]).await.expect("the stream ends well"), 0);
        assert!(!served.task.is_finished(), "the client has not closed its side");
        drop(served.client);
        assert_eq!(served.task.await.expect("no panic"), End::Lifetime);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_durations_do_not_overflow() {
        let longest =
            Limits { idle: Duration::MAX, message: Duration::MAX, lifetime: Duration::MAX, ..LIMITS };
        let mut served = Served::new(longest);
        served.ask(b"query").await;
        assert_eq!(served.read_frame().await, b"query");
        served.pass(3600).await;
        assert!(!served.task.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_closes_idle_connections_and_lets_answers_out() {
        let idle = Served::new(LIMITS);
        settle().await;
        idle.shutdown.begin();
        assert_eq!(idle.task.await.expect("no panic"), End::ByShutdown);

        let mut busy = Served::new(LIMITS);
        busy.ask(b"l").await;
        settle().await;
        busy.shutdown.begin();
        settle().await;
        assert!(!busy.task.is_finished());
        assert_eq!(busy.read_frame().await.len(), framing::MESSAGE_MAX);
        assert_eq!(busy.task.await.expect("no panic"), End::ByShutdown);

        let mut stuck = Served::new(LIMITS);
        stuck.ask(b"l").await;
        settle().await;
        stuck.shutdown.begin();
        assert_eq!(stuck.ends_between(4).await, End::AnswersUntaken);
    }

    #[tokio::test(start_paused = true)]
    async fn buffers_stay_within_their_bounds_and_are_given_back() {
        let (mut client, stream) = duplex(PIPE);
        let admission = Arc::new(LIMITS.admission());
        let place = admit(&admission);
        let counters = Counters::default();
        let mut connection = Connection::new(stream, answer, &place, &counters, &LIMITS);
        for _ in 0..100 {
            client.write_all(&frame(b"l")).await.expect("the pipe has room");
        }
        poll_fn(|context| connection.poll_step(context)).await;
        assert!(!connection.unread.is_empty() && connection.unread.len() <= PIECE_MAX);
        assert!(!connection.unsent.is_empty() && connection.unsent.len() <= UNSENT_MAX);

        let reader = tokio::spawn(async move {
            let mut taken = vec![0; 100 * FRAME_MAX];
            client.read_exact(&mut taken).await.expect("all answers come");
            client
        });
        while !(connection.unread.is_empty() && connection.unsent.is_empty()) {
            // A step that waits for more queries is not waited for: there are none.
            poll_fn(|context| Poll::Ready(connection.poll_step(context).is_ready())).await;
            assert!(connection.unsent.len() <= UNSENT_MAX);
            tokio::task::yield_now().await;
        }
        reader.await.expect("the reader ends");
        let Connection { unread, unsent, assembler, .. } = &connection;
        assert_eq!((unread.capacity(), unsent.capacity(), assembler.is_partial()), (0, 0, false));
    }

    #[test]
    fn an_idle_connection_is_small() {
        let admission = Arc::new(LIMITS.admission());
        let place = admit(&admission);
        let (counters, shutdown) = (Counters::default(), Shutdown::new());
        let (_client, stream) = duplex(PIPE);
        let task = Connection::new(stream, answer, &place, &counters, &LIMITS).converse(&shutdown);
        assert!(size_of_val(&task) <= IDLE_CONNECTION_MAX, "{} octets", size_of_val(&task));
    }
}
