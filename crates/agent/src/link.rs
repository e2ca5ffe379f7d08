//! What an agent and one balancer know of each other, about one service. Pure.

use std::time::Duration;

use credit::hearing::REPORTS_RECENT;
use credit::{Heard, Hearing, Hello};

/// Over how long a balancer's demand is averaged: some intervals, so that shares follow it within a blink.
const DEMAND_TIME: Duration = Duration::from_millis(200);

/// One balancer's end.
#[derive(Clone, Debug)]
pub struct Link {
    hearing: Hearing,
    /// The sequence of the next report.
    pub next: u64,
    /// The last hello that counted, and when it came.
    pub hello: Option<(Hello, Duration)>,
    /// What was granted in answer to it.
    pub limit: u64,
    /// Whether it is still to be answered.
    pub is_owed: bool,
    /// When the last report or introduction was sent.
    pub reported: Option<Duration>,
    /// How many reports and introductions were sent.
    pub reports: u64,
    /// Queries or connections a second, averaged.
    pub demand: f64,
    /// What was sent and is in no average yet: hellos that are heard at once have no time between them.
    unaveraged: u64,
}

/// What a hello adds to what is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Queries or connections sent since the hello before.
    pub sent: u64,
    /// By how many more those that are not answered are; negative where they are fewer.
    pub unanswered: i64,
    /// Whether half or more of what was granted is used.
    pub is_half_used: bool,
}

impl Link {
    /// A link over which nothing went yet; reports begin at the sequence `first`.
    pub fn new(first: u64) -> Self {
        Self {
            hearing: Hearing::default(),
            next: first,
            hello: None,
            limit: 0,
            is_owed: false,
            reported: None,
            reports: 0,
            demand: 0.0,
            unaveraged: 0,
        }
    }

    /// Takes a hello; `None` where it does not count.
    pub fn hear(&mut self, hello: &Hello, now: Duration) -> Option<Told> {
        let last = self.next.saturating_sub(1);
        let told = match self.hearing.take(hello, last.saturating_sub(REPORTS_RECENT - 1)..=last) {
            Heard::Old => return None,
            Heard::First => {
                self.limit = hello.sent;
                Told::default()
            }
            Heard::Next => self.hello.map_or_else(Told::default, |(before, at)| {
                let sent = hello.sent.saturating_sub(before.sent);
                self.average(sent, now.saturating_sub(at));
                let unanswered = |hello: &Hello| hello.sent.wrapping_sub(hello.answered) as i64;
                let granted = self.limit.saturating_sub(before.sent);
                Told {
                    sent,
                    unanswered: unanswered(hello).wrapping_sub(unanswered(&before)),
                    is_half_used: granted > 0 && sent >= granted.div_ceil(2),
                }
            }),
        };
        self.hello = Some((*hello, now));
        self.is_owed = true;
        Some(told)
    }

    /// Takes back what was granted and not used, as far as it has said; whether there was any.
    pub fn take_back(&mut self) -> bool {
        let sent = self.hello.map_or(0, |(hello, _)| hello.sent);
        let has_any = self.limit > sent;
        self.limit = self.limit.min(sent);
        has_any
    }

    /// The hello in force: one that came within `lease`.
    pub fn heard(&self, now: Duration, lease: Duration) -> Option<&Hello> {
        self.hello.as_ref().filter(|(_, at)| now.saturating_sub(*at) < lease).map(|(hello, _)| hello)
    }

    fn average(&mut self, sent: u64, time: Duration) {
        self.unaveraged = self.unaveraged.saturating_add(sent);
        let seconds = time.as_secs_f64();
        if seconds > 0.0 {
            let sent = std::mem::take(&mut self.unaveraged);
            let kept = (-seconds / DEMAND_TIME.as_secs_f64()).exp();
            self.demand = self.demand * kept + sent as f64 / seconds * (1.0 - kept);
        }
    }
}

/// What of `room` goes to a balancer with this demand, of several with these demands.
///
/// A quarter is divided evenly, so that who had nothing to send yet can begin; and as long as there is room for one,
/// each gets one.
pub fn share(room: u64, demand: f64, demands: &[f64]) -> u64 {
    let (count, all) = (demands.len() as f64, demands.iter().sum::<f64>());
    if demands.len() < 2 {
        return room;
    }
    let of_demand = if all > 0.0 { demand / all } else { 1.0 / count };
    let part = 0.25 / count + 0.75 * of_demand;
    ((room as f64 * part) as u64).clamp(room.min(1), room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(nonce: u64, sequence: u64, heard: u64, sent: u64, answered: u64) -> Hello {
        let service = "udp:192.0.2.1:53".parse().expect("a service");
        Hello { balancer: 7, nonce, service, sequence, heard, sent, answered }
    }

    #[test]
    fn counts_go_on_under_one_nonce_and_begin_under_another() {
        let mut link = Link::new(1_000);
        link.next += 1;
        let at = |millis| Duration::from_millis(millis);
        for (what, hello, limit, told) in [
            ("before anything was sent to it", hello(1, 1, 0, 0, 0), 0, None),
            ("the first", hello(1, 2, 1_000, 500, 400), 0, Some((0, 0, false))),
            ("what it grants is used", hello(1, 3, 1_000, 550, 430), 600, Some((50, 20, true))),
            ("less than half", hello(1, 4, 1_000, 570, 480), 600, Some((20, -30, false))),
            ("again", hello(1, 4, 1_000, 570, 480), 600, None),
            ("nothing was granted, and nothing used", hello(1, 5, 1_000, 570, 480), 570, Some((0, 0, false))),
            ("a restarted balancer", hello(2, 1, 1_000, 3, 0), 600, Some((0, 0, false))),
            ("and on", hello(2, 2, 1_000, 4, 1), 3, Some((1, 0, false))),
        ] {
            link.limit = limit;
            let expected =
                told.map(|(sent, unanswered, is_half_used)| Told { sent, unanswered, is_half_used });
            assert_eq!(link.hear(&hello, at(20)), expected, "{what}");
        }
        assert!(link.heard(at(79), at(60)).is_some_and(|hello| hello.sent == 4));
        assert!(link.heard(at(80), at(60)).is_none());
    }

    #[test]
    fn demand_follows_what_is_sent() {
        let mut link = Link::new(1);
        link.next += 1;
        for number in 0..100 {
            link.hear(&hello(1, number, 1, number * 20, 0), Duration::from_millis(number * 20));
        }
        assert!((link.demand - 1_000.0).abs() < 1.0, "{}", link.demand);
    }

    #[test]
    fn hellos_that_are_heard_at_once_all_count() {
        let mut links = [Link::new(1), Link::new(1)];
        for (link, each) in links.iter_mut().zip([1, 5]) {
            link.next += 1;
            // The second has five times as many hellos, and an agent that hears all of a turn's at one time.
            for number in 0..=100 * each {
                link.hear(
                    &hello(1, number, 1, number * 20, 0),
                    Duration::from_millis(number.div_ceil(each) * 20),
                );
            }
        }
        let [one, other] = links.map(|link| link.demand);
        assert!((one - 1_000.0).abs() < 1.0 && (other - 5_000.0).abs() < 5.0, "{one} {other}");
    }

    #[test]
    fn room_is_shared_by_demand() {
        for (room, demand, demands, expected) in [
            (100, 0.0, vec![0.0], 100),
            (100, 0.0, vec![0.0, 0.0], 50),
            (100, 300.0, vec![300.0, 100.0], 68),
            (100, 100.0, vec![300.0, 100.0], 31),
            (100, 0.0, vec![300.0, 0.0], 12),
            (3, 0.0, vec![300.0, 0.0], 1),
            (0, 0.0, vec![300.0, 0.0], 0),
        ] {
            assert_eq!(share(room, demand, &demands), expected, "{room} {demand} {demands:?}");
        }
    }

    proptest! {
        #[test]
        fn shares_are_no_more_than_the_room(room in 0..1_000_000_u64, demands in proptest::collection::vec(0.0..1e7_f64, 1..16)) {
            let shares: u64 = demands.iter().map(|demand| share(room, *demand, &demands)).sum();
            // Beside the one that each gets at least.
            prop_assert!(shares <= room.max(demands.len() as u64) + demands.len() as u64);
        }
    }
}
