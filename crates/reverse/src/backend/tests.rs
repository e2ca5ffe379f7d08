//! The back end on a virtual clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use net::clock::Now;
use tokio::sync::mpsc;

use super::counts::Staleness;
use super::decisions::{IN_FLIGHT_MAX, LANE_IN_FLIGHT_MAX};
use super::*;
use crate::cache::{self, Verdict, Why};
use crate::front::{Front, Purpose, Ring, Seen, Wanted};
use crate::known::{Known, Since};
use crate::name::NameText;
use crate::question::{Answered, Ask};

/// A service without threads or sockets: a virtual clock, and whatever the upstream is to say.
struct World {
    back_end: BackEnd,
    front: Front,
    door: mpsc::Receiver<Wanted>,
    seen: mpsc::Sender<Seen>,
    ring: mpsc::Receiver<Seen>,
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
        confirm: false,
        prefixes: false,
        paper: None,
    }
}

impl World {
    fn new(behaviour: Behaviour) -> World {
        let stale = if behaviour.paper.is_some() { 0 } else { 500 };
        let (cache, reader) = cache::new(cache::LIMIT_MIN, stale, 1);
        let (sender, door) = mpsc::channel(1024);
        let (seen, ring) = mpsc::channel(1024);
        let front = Front::new(reader, sender, stale, Arc::default()).telling(Ring {
            seen: seen.clone(),
            ahead: true,
            sample_one_in: 0,
        });
        let now = Duration::from_secs(1_000_000);
        World { back_end: BackEnd::new(cache, behaviour), front, door, seen, ring, now }
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
        while let Ok(seen) = self.ring.try_recv() {
            self.back_end.see(seen);
        }
        known
    }

    /// Lets the time pass to the next question, answers it, and tells of which address it was.
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

    /// The same, where it is told apart what is asked.
    fn step(&mut self, answered: Answered) -> Option<String> {
        self.now += Duration::from_millis(50);
        match self.back_end.next(self.now()) {
            Due::Now(question) => {
                self.back_end.answered(question, answered, self.now());
                let address = question.address;
                Some(match question.ask {
                    Ask::Name => format!("name {address}"),
                    Ask::Addresses(name) => format!("addresses {}", name.as_str()),
                    Ask::Prefix(bits) => format!("prefix {address}/{bits}"),
                })
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
fn addresses_that_one_client_can_choose_from_have_its_places_together() {
    let mut world = World::new(Behaviour { per_client: 2, ..behaviour() });
    for number in 0..10 {
        let [address, client] = ["192.0.2.", "2001:db8::"].map(|of| format!("{of}{number}").parse().unwrap());
        world.back_end.note(Wanted { address, client });
    }
    assert_eq!(world.counted(|counts| &counts.depth), 2);
}

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
    for negative in [true, false] {
        let mut world = World::new(Behaviour { negative, ..behaviour() });
        world.look_up(ONE);
        world.turn(Answered::NoName(5));
        world.pass(119);
        assert_eq!(world.look_up(ONE).word(), "no_name");
        assert_eq!(world.turn(name(1)), None);
        world.pass(2);
        assert_eq!(world.look_up(ONE).word(), "no_name");
        assert_eq!(world.turn(name(1)).is_some(), !negative);
    }
    // The paper's are empty entries.
    let mut world = World::new(Behaviour { negative: false, paper: Some(Paper::default()), ..behaviour() });
    world.look_up(ONE);
    world.turn(Answered::NoName(5));
    assert_eq!(world.look_up(ONE), Known::NotYet);
}

#[test]
fn what_nothing_says_the_life_of_is_kept_for_minutes() {
    let since = |left| Since { age: 0, left, stale: false };
    for (said, left) in [(Answered::NoName(0), 300), (Answered::Nothing(0), 300), (Answered::NoName(5), 1000)]
    {
        let mut world = World::new(behaviour());
        world.look_up(ONE);
        world.turn(said);
        assert_eq!(world.look_up(ONE), Known::NoName(since(left)), "{said:?}");
    }
    for (said, left) in [(verdict(Verdict::Mismatch, 0), 300), (verdict(Verdict::Confirmed, 0), 1000)] {
        let mut world = World::new(Behaviour { confirm: true, ..behaviour() });
        world.look_up(ONE);
        world.step(name(1));
        world.step(said);
        let Known::Name(known, _) = world.look_up(ONE) else { panic!("it has a name") };
        assert_eq!(known, since(left), "{said:?}");
    }
    let mut world = World::new(Behaviour { prefixes: true, ..behaviour() });
    world.look_up(ONE);
    (0..4).for_each(|_| _ = world.step(Answered::Nothing(0)));
    assert_eq!(world.look_up("192.0.2.77"), Known::NoName(since(300)));
    let mut world = World::new(Behaviour { paper: Some(Paper::default()), ..behaviour() });
    world.look_up(ONE);
    world.turn(Answered::NoName(0));
    assert_eq!(world.look_up(ONE), Known::NoName(since(1000)), "as it did");
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
        world.look_up(&format!("10.{}.{}.1", i % 100, i / 100));
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

fn verdict(verdict: Verdict, ttl: u32) -> Answered {
    Answered::Verdict(verdict, ttl)
}

#[test]
fn a_name_is_confirmed_by_a_second_question_and_kept_for_the_lower_ttl() {
    let ttl = Ttl::Record(Duration::from_secs(1), Duration::from_secs(1000));
    for (said, expected) in [
        (verdict(Verdict::Confirmed, 400), (Verdict::Confirmed, 400)),
        (verdict(Verdict::Confirmed, 900), (Verdict::Confirmed, 800)),
        (verdict(Verdict::Mismatch, 90), (Verdict::Mismatch, 90)),
        (Answered::Failed(Why::Servfail), (Verdict::NotYet, 300)),
        (name(1), (Verdict::NotYet, 300)),
    ] {
        let mut world = World::new(Behaviour { confirm: true, tries: 1, ttl, ..behaviour() });
        world.look_up(ONE);
        assert_eq!(world.step(name(800)).as_deref(), Some("name 192.0.2.1"));
        // The name is given at once; should the program end here, it is asked for again before long.
        assert_eq!(
            world.look_up(ONE),
            Known::Name(Since { age: 0, left: 300, stale: false }, Verdict::NotYet)
        );
        assert_eq!(world.step(said).as_deref(), Some("addresses www.example"));
        let (verdict, left) = expected;
        assert_eq!(
            world.look_up(ONE),
            Known::Name(Since { age: 0, left, stale: false }, verdict),
            "{said:?}"
        );
        assert_eq!(world.step(name(1)), None);
        assert_eq!(world.counted(|counts| &counts.questions), 2);
        assert_eq!(world.back_end.counts().verdicts[verdict as usize].load(Ordering::Relaxed), 1);
        assert_eq!(world.counted(|counts| &counts.in_flight), 0);
    }
}

#[test]
fn a_verdict_stands_while_it_is_renewed_and_not_for_another_name() {
    let mut world = World::new(Behaviour { confirm: true, tries: 1, ..behaviour() });
    world.look_up(ONE);
    world.step(name(1));
    world.step(verdict(Verdict::Confirmed, 1));
    let other = Answered::Name(NameText::from_text(b"other.example").unwrap(), 1);
    for (renewed, expected) in [(name(1), Verdict::Confirmed), (other, Verdict::NotYet)] {
        world.pass(1000);
        assert!(matches!(world.look_up(ONE), Known::Name(Since { stale: true, .. }, Verdict::Confirmed)));
        world.step(renewed);
        assert!(
            matches!(world.look_up(ONE), Known::Name(Since { stale: false, .. }, seen) if seen == expected)
        );
        world.step(verdict(Verdict::Confirmed, 1));
    }
    // Nobody can tell any more: then it is not confirmed.
    world.pass(1000);
    world.look_up(ONE);
    world.step(Answered::Name(NameText::from_text(b"other.example").unwrap(), 1));
    world.step(Answered::Failed(Why::Timeout));
    assert!(matches!(world.look_up(ONE), Known::Name(_, Verdict::NotYet)));
}

#[test]
fn an_empty_prefix_is_one_entry_for_all_addresses_in_it() {
    let mut world = World::new(Behaviour { prefixes: true, ..behaviour() });
    let nothing = Answered::Nothing(5);
    world.look_up(ONE);
    let asked: Vec<_> = [nothing, nothing, Answered::NoName(5), name(1)].map(|said| world.step(said)).into();
    let expected = ["name 192.0.2.1", "prefix 192.0.2.1/24", "prefix 192.0.2.1/16"];
    assert_eq!(asked.iter().flatten().collect::<Vec<_>>(), expected);
    assert_eq!(world.counted(|counts| &counts.questions), 3);
    // Its neighbours are known without a question; those beyond the /24 are asked for, but not their /16 again.
    assert_eq!(world.look_up("192.0.2.77"), Known::NoName(Since { age: 0, left: 1000, stale: false }));
    assert_eq!(world.step(name(1)), None);
    assert_eq!(world.look_up("192.0.3.1"), Known::NotYet);
    assert_eq!(world.step(nothing).as_deref(), Some("name 192.0.3.1"));
    assert_eq!(world.step(nothing).as_deref(), Some("prefix 192.0.3.1/24"));
    assert_eq!(world.step(nothing), None);
    assert_eq!(world.counted(|counts| &counts.empty_prefixes), 2);

    let six = "2001:db8:1:2::1";
    world.look_up(six);
    let asked: Vec<_> = (0..5).map_while(|_| world.step(nothing)).collect();
    let expected = [64, 48, 32].map(|bits| format!("prefix {six}/{bits}"));
    assert_eq!(asked[1..], expected);
    assert_eq!(world.look_up("2001:db8:ffff::1").word(), "no_name");
    assert_eq!(world.look_up("2001:db9::1").word(), "not_yet");
}

#[test]
fn a_prefix_that_has_something_is_not_asked_for_again() {
    let mut world = World::new(Behaviour { prefixes: true, tries: 1, ..behaviour() });
    for (address, said, expected) in [
        ("192.0.2.1", Answered::NoName(1), 2),
        ("192.0.2.2", Answered::NoName(1), 1),
        ("198.51.100.1", Answered::Failed(Why::Timeout), 2),
        ("198.51.100.2", Answered::NoName(1), 1),
    ] {
        world.look_up(address);
        let before = world.counted(|counts| &counts.questions);
        world.step(Answered::Nothing(1));
        world.step(said);
        assert_eq!(world.counted(|counts| &counts.questions) - before, expected, "{address}");
        assert_eq!(world.look_up(address).word(), "no_name");
    }
    // One that exists without a name says nothing of what is above it, and behind an alias neither.
    world.look_up("203.0.113.1");
    world.step(Answered::NoName(1));
    assert_eq!(world.step(name(1)), None);
}

#[test]
fn an_empty_prefix_hides_no_longer_one_that_has_something() {
    let mut world = World::new(Behaviour { prefixes: true, ..behaviour() });
    let nothing = Answered::Nothing(1);
    world.look_up("10.1.2.5");
    let asked: Vec<_> = [nothing, Answered::NoName(1)].map(|said| world.step(said)).into();
    assert_eq!(asked.iter().flatten().collect::<Vec<_>>(), ["name 10.1.2.5", "prefix 10.1.2.5/24"]);
    world.look_up("10.1.3.1");
    let asked: Vec<_> = (0..5).map_while(|_| world.step(nothing)).collect();
    let expected = [24, 16, 8].map(|bits| format!("prefix 10.1.3.1/{bits}"));
    assert_eq!(asked[1..], expected);
    assert_eq!(world.look_up("10.1.4.1").word(), "no_name");
    assert_eq!(world.look_up("10.1.2.7"), Known::NotYet);
    assert_eq!(world.step(name(1)).as_deref(), Some("name 10.1.2.7"));
}

#[test]
fn a_name_in_a_prefix_that_was_said_to_be_empty_ends_that() {
    let mut world = World::new(Behaviour { prefixes: true, ..behaviour() });
    world.look_up(ONE);
    let Due::Now(question) = world.back_end.next(world.now()) else { panic!("it is due") };
    world.look_up("192.0.2.2");
    for said in [Answered::Nothing(1), Answered::Nothing(1), Answered::NoName(1)] {
        assert!(world.step(said).is_some_and(|asked| asked.contains("192.0.2.2")));
    }
    assert_eq!(world.look_up("192.0.2.3").word(), "no_name");
    world.back_end.answered(question, name(1), world.now());
    assert_eq!(world.look_up("192.0.2.3"), Known::NotYet);
    assert_eq!(world.counted(|counts| &counts.contradicted), 1);
}

#[test]
fn a_prefix_in_which_a_name_is_known_is_not_taken_for_empty() {
    let mut world = World::new(Behaviour { prefixes: true, ..behaviour() });
    for (named, beside, third, expected) in [
        ("192.0.2.0", "192.0.2.9", "192.0.2.255", "not_yet"),
        ("198.51.100.255", "198.51.100.1", "198.51.100.2", "not_yet"),
        // What is known of others says nothing of it.
        ("203.0.112.255", "203.0.113.0", "203.0.113.1", "no_name"),
    ] {
        world.look_up(named);
        world.step(name(1));
        world.look_up(beside);
        while world.step(Answered::Nothing(1)).is_some() {}
        assert_eq!(world.look_up(third).word(), expected, "{third}");
        while world.step(Answered::NoName(1)).is_some() {}
    }
    assert_eq!(world.counted(|counts| &counts.contradicted), 2);
    // A name that has expired is none that is known.
    world.look_up("10.1.2.3");
    world.step(name(1));
    world.pass(1001);
    world.look_up("10.1.2.4");
    while world.step(Answered::Nothing(1)).is_some() {}
    assert_eq!(world.look_up("10.1.2.5").word(), "no_name");
}

#[test]
fn nobody_can_write_prefixes_by_asking_for_what_stands_for_them() {
    let mut world = World::new(Behaviour { prefixes: true, ..behaviour() });
    let key = "fff4:18c0:0:200::";
    assert_eq!(world.look_up(key), Known::NotYet);
    assert_eq!(world.step(Answered::Nothing(1)), None);
    assert_eq!(world.look_up(ONE), Known::NotYet);
}

#[test]
fn a_popular_name_is_asked_for_before_it_expires_when_nobody_waits() {
    let mut world = World::new(behaviour());
    world.look_up(ONE);
    world.turn(name(1));
    world.pass(890);
    (0..40).for_each(|_| _ = world.look_up(ONE));
    assert_eq!(world.turn(name(1)), None, "it is not in the last tenth of its life");
    world.pass(20);
    world.look_up(ONE);
    assert_eq!(world.turn(name(1)), None, "asked for once, it is not popular");
    (0..40).for_each(|_| _ = world.look_up(ONE));
    world.look_up("198.51.100.1");
    assert_eq!(world.turn(name(1)).as_deref(), Some("198.51.100.1"), "who waits goes before");
    assert_eq!(world.turn(name(1)).as_deref(), Some(ONE));
    assert!(matches!(world.look_up(ONE), Known::Name(Since { age: 0, left: 1000, stale: false }, _)));
    assert_eq!(world.counted(|counts| &counts.asked.ahead), 1);
}

#[test]
fn what_fails_ahead_of_time_leaves_the_name_as_it_is_and_takes_nobodys_interval() {
    let mut world = World::new(Behaviour { tries: 3, ..behaviour() });
    world.look_up(ONE);
    world.turn(name(1));
    world.pass(910);
    (0..40).for_each(|_| _ = world.look_up(ONE));
    assert_eq!(world.turn(Answered::Failed(Why::Timeout)).as_deref(), Some(ONE));
    assert!(matches!(world.look_up(ONE), Known::Name(Since { age: 910, stale: false, .. }, _)));
    world.look_up("198.51.100.1");
    assert_eq!(world.turn(name(1)).as_deref(), Some("198.51.100.1"), "who waits goes before");
    (0..40).for_each(|_| _ = world.look_up(ONE));
    assert_eq!(world.turn(name(1)).as_deref(), Some(ONE), "it is still wanted, so it is asked again");
}

#[test]
fn a_verdict_that_fails_ahead_of_time_or_as_a_sample_leaves_the_name_as_it_is() {
    let other = || Answered::Name(NameText::from_text(b"other.example").unwrap(), 1);
    let failed = || Answered::Failed(Why::Timeout);
    for purpose in [Purpose::Ahead, Purpose::Sample] {
        let renewed = (Since { age: 0, left: 1000, stale: false }, Verdict::Mismatch);
        let unknown = (Since { age: 0, left: 300, stale: false }, Verdict::NotYet);
        let kept = (Since { age: 910, left: 90, stale: false }, Verdict::Confirmed);
        for (said, leads_back, expected) in [
            (name(1), failed(), kept),
            (name(1), verdict(Verdict::Mismatch, 1), renewed),
            (other(), failed(), unknown),
        ] {
            let mut world = World::new(Behaviour { confirm: true, tries: 1, ..behaviour() });
            world.look_up(ONE);
            world.step(name(1));
            world.step(verdict(Verdict::Confirmed, 1));
            world.pass(910);
            world.back_end.see(Seen { address: ONE.parse().unwrap(), purpose });
            assert_eq!(world.step(said).as_deref(), Some("name 192.0.2.1"));
            if matches!(said, Answered::Name(name, _) if name.as_str() == "www.example") {
                assert_eq!(world.look_up(ONE), Known::Name(kept.0, kept.1), "while it is asked");
            }
            assert!(world.step(leads_back).is_some());
            assert_eq!(world.look_up(ONE), Known::Name(expected.0, expected.1), "{purpose:?} {said:?}");
        }
    }
}

#[test]
fn what_has_expired_is_told_for_so_long_also_while_it_is_asked_for_all_the_time() {
    let mut world = World::new(Behaviour { tries: 1, ..behaviour() });
    world.look_up(ONE);
    world.turn(name(1));
    let mut last = 0;
    for _ in 0..3000 {
        world.pass(1);
        if let Known::Name(since, _) = world.look_up(ONE) {
            last = since.age;
        }
        world.turn(Answered::Failed(Why::Timeout));
    }
    // The life of 1,000 s, 500 s more, and what the last failure had put it off by.
    assert!((1495..=1500 + 300).contains(&last), "{last}");
    let Known::Failed(Why::Timeout, since) = world.look_up(ONE) else { panic!("it has failed") };
    assert!(!since.stale, "{since:?}");
    // Once nobody has asked for so long, a failure does not bring it back.
    world.turn(name(1));
    world.pass(300);
    world.look_up(ONE);
    world.turn(name(1));
    assert_eq!(world.look_up(ONE).word(), "name");
    world.pass(1500);
    assert_eq!(world.look_up(ONE), Known::NotYet);
    assert!(world.turn(Answered::Failed(Why::Timeout)).is_some());
    assert_eq!(world.look_up(ONE).word(), "failed");
}

#[test]
fn a_failure_is_asked_again_where_the_clock_was_set_back() {
    let mut world = World::new(Behaviour { tries: 1, ..behaviour() });
    world.look_up(ONE);
    world.turn(Answered::Failed(Why::Timeout));
    let Known::Failed(Why::Timeout, since) = world.look_up(ONE) else { panic!("it has failed") };
    assert_eq!(since, Since { age: 0, left: 1, stale: false });
    let later = world.now();
    let earlier = Now { unix: later.unix - Duration::from_secs(86_400), ..later };
    let (view, address) = (world.front.view(), ONE.parse().unwrap());
    let client = "127.0.0.1".parse().unwrap();
    let known = world.front.look_up(&view, address, client, seconds(earlier), &mut NameText::EMPTY.clone());
    assert_eq!((known, world.door.try_recv().is_ok()), (Known::NotYet, true));
}

#[test]
fn samples_tell_how_many_names_are_still_right() {
    let mut world = World::new(Behaviour { tries: 1, ..behaviour() });
    let ring = Ring { seen: world.seen.clone(), ahead: false, sample_one_in: 64 };
    world.front = world.front.telling(ring);
    let other = Answered::Name(NameText::from_text(b"other.example").unwrap(), 1);
    let answers = [name(1), other, Answered::NoName(1), Answered::Failed(Why::Servfail)];
    for (i, said) in answers.into_iter().enumerate() {
        let address = format!("192.0.2.{i}");
        world.look_up(&address);
        world.turn(name(1));
        let asked = (0..1000).find_map(|_| {
            world.look_up(&address);
            world.turn(said)
        });
        assert_eq!(asked, Some(address));
    }
    let Staleness { same, changed, gone, failed } = &world.back_end.counts().staleness;
    assert_eq!([same, changed, gone, failed].map(|count| count.load(Ordering::Relaxed)), [1, 1, 1, 1]);
    assert_eq!(world.counted(|counts| &counts.asked.sample), 4);
}

#[test]
fn a_slow_network_leaves_room_for_the_others() {
    let mut world =
        World::new(Behaviour { interval: Duration::ZERO, stack: 4096, per_client: 4096, ..behaviour() });
    for i in 0..200 {
        world.look_up(&format!("10.1.0.{i}"));
        world.look_up(&format!("10.2.0.{i}"));
    }
    let now = world.now();
    let asked = std::iter::from_fn(|| match world.back_end.next(now) {
        Due::Now(question) => Some(question),
        _ => None,
    });
    let asked: Vec<Question> = asked.collect();
    assert_eq!(asked.len(), 2 * LANE_IN_FLIGHT_MAX);
    // Two are done in one network: it may ask two more, and the other none.
    let one: Vec<_> =
        asked.iter().filter(|question| question.address.to_string().starts_with("10.1.")).collect();
    one[..2].iter().for_each(|question| world.back_end.answered(**question, name(1), now));
    for more in [true, true, false] {
        let next = world.back_end.next(now);
        assert_eq!(
            matches!(next, Due::Now(question) if question.address.to_string().starts_with("10.1.")),
            more
        );
    }
}

/// What becomes of a question in the contract's test.
#[derive(Clone, Copy, Debug)]
enum Upstream {
    Works,
    Refuses,
    Silent,
    Slow,
    Garbage,
}

/// The contract: whatever upstreams do, and however full the stack is, an answer is what the cache holds at that
/// moment, and is there at once: a look-up is a function that waits for nothing, and what it leaves behind is bounded.
#[test]
fn answers_do_not_depend_on_the_back_end() {
    let known: Vec<String> = (0..50).map(|i| format!("192.0.2.{i}")).collect();
    for upstream in [Upstream::Works, Upstream::Refuses, Upstream::Silent, Upstream::Slow, Upstream::Garbage]
    {
        let mut world = World::new(Behaviour {
            stack: 256,
            per_client: 256,
            confirm: true,
            prefixes: true,
            ..behaviour()
        });
        for address in &known {
            world.look_up(address);
            while world.step(name(1)).is_some() {}
        }
        let mut flights: VecDeque<(Duration, Question, Answered)> = VecDeque::new();
        let mut flood = 0u32;
        // A minute in which 20 unknown addresses are wanted in each millisecond that is looked at.
        for _ in 0..6_000 {
            world.now += Duration::from_millis(10);
            while let Due::Now(question) = world.back_end.next(world.now()) {
                let (after, answered) = match upstream {
                    Upstream::Works => (10, name(1)),
                    Upstream::Refuses => (1, Answered::Failed(Why::Refused)),
                    Upstream::Silent => (2_000, Answered::Failed(Why::Timeout)),
                    Upstream::Slow => (1_990, name(1)),
                    Upstream::Garbage => (1, Answered::Failed(Why::Malformed)),
                };
                flights.push_back((world.now + Duration::from_millis(after), question, answered));
            }
            while flights.front().is_some_and(|(due, ..)| *due <= world.now) {
                let Some((_, question, answered)) = flights.pop_front() else { break };
                world.back_end.answered(question, answered, world.now());
            }
            for _ in 0..20 {
                flood += 1;
                let fresh = format!("10.{}.{}.{}", flood >> 16 & 255, flood >> 8 & 255, flood & 255);
                assert_eq!(world.look_up(&fresh).word(), "not_yet", "{upstream:?}");
            }
            let address = &known[flood as usize / 20 % known.len()];
            assert_eq!(world.look_up(address).word(), "name", "{upstream:?}");
        }
        let questions = world.counted(|counts| &counts.questions);
        assert!(questions <= 60_000 / 50 + 2 * known.len() as u64 + 1, "{upstream:?}: {questions}");
        assert!(world.counted(|counts| &counts.depth) <= 256 && flights.len() <= IN_FLIGHT_MAX);
        assert!(world.counted(|counts| &counts.leaks) > 100_000, "{upstream:?}: the stack was full");
    }
}
