//! The back end on a virtual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use net::clock::Now;
use tokio::sync::mpsc;

use super::decisions::IN_FLIGHT_MAX;
use super::*;
use crate::cache::{self, Verdict, Why};
use crate::front::{Front, Known, Since, Wanted};
use crate::name::NameText;
use crate::question::Answered;

/// A service without threads or sockets: a virtual clock, and whatever the upstream is to say.
struct World {
    back_end: BackEnd,
    front: Front,
    door: mpsc::Receiver<Wanted>,
    now: Duration,
}

fn behaviour() -> Behaviour {
    Behaviour {
        interval: Duration::from_millis(50),
        burst: 1,
        stack: 64,
        per_client: 64,
        timeout: Duration::from_secs(2),
        tries: 2,
        ttl: Ttl::Fixed(Duration::from_secs(1000)),
        negative: true,
        paper: None,
    }
}

impl World {
    fn new(behaviour: Behaviour) -> World {
        let stale = if behaviour.paper.is_some() { 0 } else { 500 };
        let (cache, reader) = cache::new(cache::LIMIT_MIN, stale, 1);
        let (sender, door) = mpsc::channel(1024);
        let front = Front::new(reader, sender, stale > 0, Arc::default());
        World { back_end: BackEnd::new(cache, behaviour), front, door, now: Duration::from_secs(1_000_000) }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.now, unix: self.now }
    }

    fn look_up(&mut self, address: &str) -> Known {
        let (view, address) = (self.front.view(), address.parse().unwrap());
        let client = "127.0.0.1".parse().unwrap();
        let known =
            self.front.look_up(&view, address, client, seconds(self.now()), &mut NameText::EMPTY.clone());
        while let Ok(wanted) = self.door.try_recv() {
            self.back_end.note(wanted);
        }
        known
    }

    /// Lets the time pass to the next question, and answers it.
    fn turn(&mut self, answered: Answered) -> Option<String> {
        self.now += Duration::from_millis(50);
        match self.back_end.next(self.now()) {
            Due::Now(question) => {
                self.back_end.answered(question, answered, self.now());
                Some(question.address.to_string())
            }
            _ => None,
        }
    }

    fn counted(&self, which: fn(&Counts) -> &AtomicU64) -> u64 {
        self.back_end.gauge();
        which(self.back_end.counts()).load(Ordering::Relaxed)
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn name(ttl: u32) -> Answered {
    Answered::Name(NameText::from_text(b"www.example").unwrap(), ttl)
}

const ONE: &str = "192.0.2.1";

#[test]
fn an_address_is_learned() {
    let mut world = World::new(behaviour());
    assert_eq!(world.look_up(ONE), Known::NotYet);
    assert_eq!(world.turn(name(60)).as_deref(), Some(ONE));
    world.pass(10);
    assert_eq!(world.look_up(ONE), Known::Name(Since { age: 10, left: 990, stale: false }, Verdict::NotYet));
    assert_eq!(world.turn(name(60)), None);
}

#[test]
fn a_failure_is_tried_again_and_then_kept_with_a_back_off() {
    let mut world = World::new(behaviour());
    let failed = Answered::Failed(Why::Servfail);
    let mut waits = Vec::new();
    for _ in 0..10 {
        assert_eq!(world.look_up(ONE), Known::NotYet);
        assert!(world.turn(failed).is_some(), "asked");
        assert_eq!(world.look_up(ONE), Known::NotYet, "under way");
        assert!(world.turn(failed).is_some(), "and tried again");
        let Known::Failed(Why::Servfail, since) = world.look_up(ONE) else { panic!("kept as failed") };
        waits.push(since.left);
        world.pass(since.left.into());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    world.look_up(ONE);
    world.turn(name(1));
    assert!(matches!(world.look_up(ONE), Known::Name(..)));
}

#[test]
fn a_stale_name_is_served_while_it_is_renewed_and_while_that_fails() {
    let mut world = World::new(Behaviour { tries: 1, ..behaviour() });
    world.look_up(ONE);
    world.turn(name(1));
    world.pass(1000);
    let stale = |age| Known::Name(Since { age, left: 30, stale: true }, Verdict::NotYet);
    assert_eq!(world.look_up(ONE), stale(1000));
    assert!(world.turn(Answered::Failed(Why::Timeout)).is_some());
    assert_eq!(world.look_up(ONE), stale(1000));
    assert_eq!(world.turn(name(1)), None, "left alone for a second");
    world.pass(2);
    assert_eq!(world.look_up(ONE), stale(1002));
    assert!(world.turn(name(1)).is_some());
    assert!(matches!(world.look_up(ONE), Known::Name(Since { stale: false, .. }, _)));
}

#[test]
fn absences_are_kept_unless_they_are_not_to_be() {
    for (negative, expected) in [(true, "no_name"), (false, "not_yet")] {
        let mut world = World::new(Behaviour { negative, ..behaviour() });
        world.look_up(ONE);
        world.turn(Answered::NoName(5));
        world.pass(119);
        assert_eq!(world.look_up(ONE).word(), expected);
        assert_eq!(world.turn(name(1)), None);
        world.pass(2);
        assert_eq!(world.look_up(ONE).word(), expected);
        assert_eq!(world.turn(name(1)).is_some(), !negative);
    }
}

#[test]
fn the_paper_keeps_duplicates_and_forgets_failures() {
    let mut world = World::new(Behaviour { paper: Some(Paper::default()), ..behaviour() });
    for address in [ONE, ONE, "192.0.2.2", ONE] {
        assert_eq!(world.look_up(address), Known::NotYet);
    }
    assert_eq!(world.turn(Answered::Failed(Why::Servfail)).as_deref(), Some(ONE));
    // The empty entry answers for two minutes; the duplicates are found when they are popped.
    assert_eq!(world.turn(name(1)).as_deref(), Some("192.0.2.2"));
    assert_eq!(world.turn(name(1)), None);
    assert_eq!(world.counted(|counts| &counts.hits), 2);
    world.pass(121);
    world.look_up(ONE);
    assert_eq!(world.turn(name(1)).as_deref(), Some(ONE));
}

#[test]
fn the_paper_keeps_servfail_where_it_is_asked_to() {
    let paper = Paper { servfail: Some(Duration::from_secs(600)), ..Paper::default() };
    let mut world = World::new(Behaviour { paper: Some(paper), ..behaviour() });
    world.look_up(ONE);
    assert!(world.turn(Answered::Failed(Why::Servfail)).is_some());
    world.pass(590);
    assert!(matches!(world.look_up(ONE), Known::Failed(Why::Servfail, _)));
    assert_eq!(world.turn(name(1)), None);
    world.pass(10);
    world.look_up(ONE);
    // A time-out is not kept: the empty entry stands for two minutes.
    assert!(world.turn(Answered::Failed(Why::Timeout)).is_some());
    world.pass(121);
    assert_eq!(world.look_up(ONE), Known::NotYet);
    assert!(world.turn(name(1)).is_some());
}

#[test]
fn a_flood_of_one_network_leaves_the_others_their_turns() {
    let mut world = World::new(behaviour());
    world.look_up("198.51.100.1");
    for i in 0..500 {
        world.look_up(&format!("203.0.{}.{}", i / 250, i % 250));
    }
    let asked: Vec<_> = (0..3).map(|_| world.turn(name(1)).unwrap()).collect();
    assert!(asked.contains(&"198.51.100.1".to_owned()), "{asked:?}");
    assert_eq!(world.counted(|counts| &counts.leaks), 501 - 64);
}

#[test]
fn questions_under_way_are_bounded() {
    let mut world =
        World::new(Behaviour { interval: Duration::ZERO, stack: 4096, per_client: 4096, ..behaviour() });
    for i in 0..600 {
        world.look_up(&format!("10.{}.{}.1", i / 100, i % 100));
    }
    let all = |world: &mut World| -> Vec<Question> {
        let now = world.now();
        let asked = std::iter::from_fn(|| match world.back_end.next(now) {
            Due::Now(question) => Some(question),
            _ => None,
        });
        asked.collect()
    };
    let first = all(&mut world);
    assert_eq!(first.len(), IN_FLIGHT_MAX);
    // All of them fail at once: they are tried again, and then make room.
    let fail = |world: &mut World, questions: Vec<Question>| {
        let now = world.now();
        for question in questions {
            world.back_end.answered(question, Answered::Failed(Why::Timeout), now);
        }
    };
    fail(&mut world, first);
    let second = all(&mut world);
    assert!(second.len() == IN_FLIGHT_MAX && second.iter().all(|question| question.tried == 1));
    fail(&mut world, second);
    assert_eq!(all(&mut world).len(), IN_FLIGHT_MAX);
}
