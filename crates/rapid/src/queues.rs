//! Which server is asked, and what is given up: decisions, on a clock that is passed in.
//!
//! A server's queue holds what it was asked and has not answered, also what nobody waits for any more. So the queue
//! of a server that is slow or hangs stays long, and the others are asked; the paper's client does the same. Mostly no
//! server owes anything, and the paper does not say who is asked then: here whose last answer came the soonest.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Requests that one server may owe; a web server has fewer threads.
pub const PENDING_MAX: usize = 1024;

/// How many times the time to give up a server may owe an answer before its connection is given up, too: a server
/// answers everything at once, so it hangs, or the answer was lost.
pub const STUCK: u32 = 40;

/// How often a server is passed over because others with a queue as long have answered sooner; then it is asked once
/// more, as it may have become the fastest.
const PASSED_MAX: u32 = 16;

/// What is asked of which server; `W` is who waits.
#[derive(Debug)]
pub struct Queues<W> {
    servers: Vec<Queue<W>>,
    give_up: Duration,
    /// Where the search for a server begins, so that equal ones take turns.
    turn: usize,
}

#[derive(Debug)]
struct Queue<W> {
    connected: bool,
    owed: VecDeque<Owed<W>>,
    /// How long its last answer took; nothing until it has answered.
    trip: Duration,
    /// How often others were asked since it was, whose queues were not shorter.
    passed: u32,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Owed<W> {
    address: Ipv4Addr,
    /// Since when somebody waits, whichever server was asked first.
    asked: Duration,
    /// When this server was asked.
    sent: Duration,
    waiting: Option<W>,
}

/// What [`Queues::watch`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct Watched<W> {
    /// Who has waited long enough.
    pub given_up: Vec<W>,
    /// Servers whose connection is to be ended.
    pub stuck: Vec<usize>,
}

impl<W> Queues<W> {
    /// Queues of so many servers, none of which is connected; after `give_up` nobody waits any longer.
    pub fn new(servers: usize, give_up: Duration) -> Queues<W> {
        let queue = || Queue { connected: false, owed: VecDeque::new(), trip: Duration::ZERO, passed: 0 };
        Queues { servers: std::iter::repeat_with(queue).take(servers).collect(), give_up, turn: 0 }
    }

    /// Notes that a server is there, of which nothing is known yet.
    pub fn connected(&mut self, server: usize) {
        let queue = &mut self.servers[server];
        (queue.connected, queue.trip, queue.passed) = (true, Duration::ZERO, 0);
    }

    /// Notes that a connection has ended; returns who waited on it, since when and for which address.
    pub fn lost(&mut self, server: usize) -> Vec<(Ipv4Addr, Duration, W)> {
        let queue = &mut self.servers[server];
        queue.connected = false;
        let waiting = |owed: Owed<W>| owed.waiting.map(|waiting| (owed.address, owed.asked, waiting));
        queue.owed.drain(..).filter_map(waiting).collect()
    }

    /// Chooses the server with the shortest queue, of several the one that answered the soonest, and queues a request that
    /// is asked `now`.
    ///
    /// # Errors
    /// Who does not wait then: no server is connected, or all that are owe [`PENDING_MAX`] answers.
    pub fn choose(&mut self, address: Ipv4Addr, now: Duration, waiting: W) -> Result<usize, W> {
        self.choose_since(address, now, now, waiting)
    }

    /// As [`choose`](Queues::choose), for a request that was `asked` before, of a server whose connection was lost: it is
    /// given up no later, and what it has waited is not held against the server that is asked now.
    ///
    /// # Errors
    /// Who does not wait then: no server is connected, or all that are owe [`PENDING_MAX`] answers.
    pub fn choose_since(
        &mut self,
        address: Ipv4Addr,
        asked: Duration,
        now: Duration,
        waiting: W,
    ) -> Result<usize, W> {
        let count = self.servers.len();
        let turns = (0..count).map(|step| (self.turn + step) % count);
        let connected = turns.filter(|server| self.servers[*server].connected);
        let Some(server) = connected.min_by_key(|server| self.servers[*server].rank()) else {
            return Err(waiting);
        };
        let shortest = self.servers[server].owed.len();
        if shortest >= PENDING_MAX {
            return Err(waiting);
        }
        for queue in self.servers.iter_mut().filter(|queue| queue.owed.len() == shortest) {
            queue.passed = queue.passed.saturating_add(1);
        }
        let queue = &mut self.servers[server];
        queue.owed.push_back(Owed { address, asked, sent: now, waiting: Some(waiting) });
        queue.passed = 0;
        self.turn = (server + 1) % count;
        Ok(server)
    }

    /// Takes all requests for an address off a server's queue at `now`: one response answers them all. Returns who waits.
    pub fn answered(&mut self, server: usize, address: Ipv4Addr, now: Duration) -> Vec<W> {
        let mut waiting = Vec::new();
        let queue = &mut self.servers[server];
        let mut first = None;
        queue.owed.retain_mut(|owed| {
            if owed.address == address {
                waiting.extend(owed.waiting.take());
                first.get_or_insert(owed.sent);
            }
            owed.address != address
        });
        if let Some(sent) = first {
            queue.trip = now.saturating_sub(sent);
        }
        waiting
    }

    /// Finds who has waited long enough at `now`, and servers that hang.
    pub fn watch(&mut self, now: Duration) -> Watched<W> {
        let mut watched = Watched { given_up: Vec::new(), stuck: Vec::new() };
        for (server, queue) in self.servers.iter_mut().enumerate() {
            let mut is_stuck = false;
            for owed in &mut queue.owed {
                if now.saturating_sub(owed.asked) >= self.give_up {
                    watched.given_up.extend(owed.waiting.take());
                }
                is_stuck |= now.saturating_sub(owed.sent) >= self.give_up * STUCK;
            }
            if is_stuck {
                watched.stuck.push(server);
            }
        }
        watched
    }

    /// When to [`watch`](Queues::watch) next, looking at it `now`; `None` while no server owes anything.
    ///
    /// What is asked later is due later, and it is looked at again before that.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let all = self.servers.iter().flat_map(|queue| &queue.owed);
        let due =
            |owed: &Owed<W>| if owed.waiting.is_some() { owed.asked + self.give_up } else { Duration::MAX };
        all.map(due).min().map(|due| due.min(now + self.give_up))
    }

    /// Whether no server owes anything.
    pub fn is_idle(&self) -> bool {
        self.servers.iter().all(|queue| queue.owed.is_empty())
    }
}

impl<W> Queue<W> {
    /// The lower, the sooner it is asked.
    fn rank(&self) -> (usize, Duration) {
        (self.owed.len(), if self.passed < PASSED_MAX { self.trip } else { Duration::ZERO })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVE_UP: Duration = Duration::from_millis(50);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, last)
    }

    fn connected(servers: usize) -> Queues<u32> {
        let mut queues = Queues::new(servers, GIVE_UP);
        for server in 0..servers {
            queues.connected(server);
        }
        queues
    }

    #[test]
    fn the_shortest_queue_is_chosen_and_equals_take_turns() {
        let mut queues = connected(3);
        let asked: Vec<usize> = (0..6).map(|i| queues.choose(address(i), ms(0), i.into()).unwrap()).collect();
        assert_eq!(asked, [0, 1, 2, 0, 1, 2]);
        assert_eq!(queues.answered(1, address(1), ms(1)), [1]);
        assert_eq!(queues.choose(address(9), ms(0), 9), Ok(1));
        // Who is not connected is not asked.
        assert_eq!(queues.lost(1).len(), 2);
        assert!((0..9).all(|i| queues.choose(address(i), ms(0), 0).unwrap() != 1));
        for server in [0, 2] {
            queues.lost(server);
        }
        assert_eq!(queues.choose(address(1), ms(0), 7), Err(7));
    }

    /// One request at a time, so that no server owes anything when the next comes.
    #[test]
    fn of_idle_servers_the_slow_one_is_asked_seldom_and_soon_again_once_it_is_not() {
        let mut queues = connected(3);
        let mut ask = |slow: u64, requests: u64| {
            let mut asked = [0_u64; 3];
            for now in (0..requests).map(|request| request * 100) {
                let server = queues.choose(address(1), ms(now), 0).unwrap();
                asked[server] += 1;
                let trip = if server == 1 { slow } else { 2 + now / 100 % 2 };
                assert_eq!(queues.answered(server, address(1), ms(now + trip)), [0]);
            }
            asked
        };
        let [first, slow, third] = ask(20, 1_700);
        assert!((90..=110).contains(&slow), "one of seventeen: {slow}");
        assert!(first > 400 && third > 400, "{first} {third}");
        let [_, fast, _] = ask(1, 100);
        assert!(fast >= 80, "{fast}");
    }

    #[test]
    fn one_response_answers_all_who_asked_that_server() {
        let mut queues = connected(2);
        for i in 0..4 {
            queues.choose(address(1), ms(0), i).unwrap();
        }
        assert_eq!(queues.answered(0, address(1), ms(1)), [0, 2]);
        assert_eq!(queues.answered(0, address(1), ms(1)), []);
        assert_eq!(queues.answered(1, address(1), ms(1)), [1, 3]);
    }

    #[test]
    fn a_server_that_hangs_is_given_up_and_avoided() {
        let mut queues = connected(2);
        assert_eq!(queues.choose(address(1), ms(0), 1), Ok(0));
        assert_eq!(queues.due(ms(20)), Some(ms(50)));
        assert_eq!(queues.watch(ms(49)), Watched { given_up: vec![], stuck: vec![] });
        assert_eq!(queues.watch(ms(50)), Watched { given_up: vec![1], stuck: vec![] });
        // It still owes the answer, so the other one is asked each time that it owes nothing.
        for i in 2..9 {
            assert_eq!(queues.choose(address(i), ms(60), i.into()), Ok(1));
            assert_eq!(queues.answered(1, address(i), ms(61)).len(), 1);
        }
        assert_eq!(queues.due(ms(60)), Some(ms(110)), "it is looked at again");
        assert_eq!(queues.watch(ms(2000)), Watched { given_up: vec![], stuck: vec![0] });
        assert_eq!(queues.lost(0), [], "nobody waits on it");
        assert_eq!((queues.due(ms(2000)), queues.is_idle()), (None, true));
    }

    #[test]
    fn who_waits_on_a_lost_connection_is_returned_with_its_time() {
        let mut queues = connected(1);
        queues.choose(address(1), ms(7), 1).unwrap();
        queues.choose(address(2), ms(40), 2).unwrap();
        queues.watch(ms(60));
        assert_eq!(queues.lost(0), [(address(2), ms(40), 2)]);
    }

    #[test]
    fn what_was_waited_for_a_lost_server_is_not_held_against_the_next() {
        let mut queues = connected(3);
        assert_eq!(queues.choose(address(1), ms(0), 1), Ok(0));
        assert_eq!(queues.lost(0), [(address(1), ms(0), 1)]);
        assert_eq!(queues.choose_since(address(1), ms(0), ms(40), 1), Ok(1));
        // It is given up when it would have been.
        assert_eq!(queues.due(ms(40)), Some(ms(50)));
        assert_eq!(queues.answered(1, address(1), ms(41)), [1]);
        // The third needs 2 ms, so the second, which needed 1, is asked as soon as both owe nothing.
        assert_eq!(queues.choose(address(2), ms(50), 2), Ok(2));
        assert_eq!(queues.answered(2, address(2), ms(52)), [2]);
        assert_eq!(queues.choose(address(3), ms(60), 3), Ok(1));
    }

    #[test]
    fn a_queue_is_bounded() {
        let mut queues = connected(1);
        for _ in 0..PENDING_MAX {
            queues.choose(address(1), ms(0), 0).unwrap();
        }
        assert_eq!(queues.choose(address(1), ms(0), 5), Err(5));
    }

    /// A farm's three servers, of which one becomes slow and one dies, on a clock of its own.
    #[test]
    fn a_slow_server_gets_fewer_requests() {
        let mut queues = connected(3);
        let mut asked = [0; 3];
        // (when, server, address): answers on their way. A server answers in 1 ms, the slow one in 30.
        let mut answers: Vec<(u64, usize, Ipv4Addr)> = Vec::new();
        let mut names = 0;
        for now in 0..3000 {
            if now == 2000 {
                queues.lost(0);
                answers.retain(|(_, server, _)| *server != 0);
            }
            let (here, later): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(when, ..)| *when <= now);
            answers = later;
            for (_, server, address) in here {
                names += queues.answered(server, address, ms(now)).len();
            }
            for i in 0..2u8 {
                let address = address(i.wrapping_add((now % 120) as u8));
                let server = queues.choose(address, ms(now), 0).unwrap();
                asked[server] += 1;
                answers.push((now + if server == 2 { 30 } else { 1 }, server, address));
            }
            assert_eq!(queues.watch(ms(now)).given_up, [], "nobody waits for 50 ms");
        }
        assert!(names > 5900, "{names}");
        assert!(asked[2] * 4 < asked[1] && asked[0] > asked[2], "{asked:?}");
    }
}
