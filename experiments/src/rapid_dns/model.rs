//! The web farm's clients: who asks for a page, and when. Pure; all draws begin with a seed.
//!
//! Visits begin at a rate that follows the hours of a week. A visitor is at work, with an address that is often the
//! same, or at home, with one of many more that are dealt out anew; who is at work depends on the hour. The address is
//! drawn by Zipf's law; it asks for some pages with pauses to read them. Each page is one request to one of three
//! servers.
//!
//! A model may be made `scale` times smaller: rates, addresses, what a server may ask and what its stack holds all
//! shrink alike, while times stay, so that shares come out the same and take so much less time to count.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use reverse::NameText;
use reverse::cache::Why;
use reverse::question::Answered;

/// How many servers the farm's clients share (section 8).
pub(crate) const SERVERS: usize = 3;

/// An hour, the step of all the paper's figures.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// The exponent of Zipf's law for clients of a web server, as measured on the NASA log.
const ALPHA: f64 = 0.82;

/// The median pause between two pages of a visit in seconds, and the spread of its logarithm.
const PAUSE: f64 = 30.0;
const PAUSE_SPREAD: f64 = 1.2;

/// Visits on a day of the week-end for each on a working day. Fitted with [`DAY`] to figure 3: its peak hour has 2.44
/// times the mean.
const WEEK_END: f64 = 0.65;

/// How much the hours of a day differ: visits go as `exp(DAY cos(hour - 15 h))`.
const DAY: f64 = 1.0;

/// When most of the visitors are at work.
const WORK: f64 = 13.0;

/// What clients are like. Fitted to the paper where a field says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    /// What all draws begin with.
    pub(crate) seed: u64,
    /// How many times smaller than the farm.
    pub(crate) scale: f64,
    /// Addresses at home from which visitors may come. Fitted: the mean hit ratio of figure 3.
    pub(crate) homes: f64,
    /// Addresses at work. Assumed.
    pub(crate) offices: f64,
    /// The share of visitors who are at work, averaged over a working day's hours. Assumed.
    pub(crate) at_work: f64,
    /// How much that share follows the hour: from `1 - swing` times as large by night, and all day at the week-end, to
    /// `1 + swing` times. Fitted: the deviation of figure 3.
    pub(crate) swing: f64,
    /// The mean number of pages of a visit. Fitted: the mean hit ratio of figure 3.
    pub(crate) pages: f64,
    /// The share of addresses without a name. Fitted: what turning negative caching off costs in figure 7.
    pub(crate) nameless: f64,
    /// The share of addresses whose name servers fail. Fitted: 12 % of questions fail (section 7).
    pub(crate) failing: f64,
}

impl Model {
    /// The fitted model, so many times smaller.
    pub(crate) fn fitted(seed: u64, scale: f64) -> Model {
        Model {
            seed,
            scale,
            homes: 34e6,
            offices: 1.5e6,
            at_work: 0.42,
            swing: 1.0,
            pages: 18.0,
            nameless: 0.105,
            failing: 0.017,
        }
    }

    /// The same on a day whose visitors are others: of figures 6 and 7 it is known that fewer were hits than in the week
    /// of figure 3, at more requests. Fitted: the control's mean hit ratio in figure 7.
    pub(crate) fn busy(self) -> Model {
        Model { at_work: 0.04, ..self }
    }

    /// What an address' name servers say, and how long they take, at a time since the beginning.
    pub(crate) fn ask(&self, address: Ipv4Addr, rng: &mut Rng) -> (Answered, Duration) {
        let rank = rank(address);
        // A recursive server asks others all over the world; one that fails was waited for.
        let took =
            |median: f64, rng: &mut Rng| Duration::from_secs_f64((median * normal(rng).exp()).min(5.0));
        match self.kind(rank) {
            Kind::Named => (Answered::Name(name(address), record_ttl(rank)), took(0.2, rng)),
            Kind::Nameless => (Answered::NoName(record_ttl(rank)), took(0.2, rng)),
            Kind::Failing => (Answered::Failed(Why::Servfail), took(1.0, rng)),
        }
    }

    /// The share of visitors at an hour of the week who are at work.
    fn at_work(&self, hour: f64) -> f64 {
        let is_working = (hour / 24.0) as u64 % 7 < 5;
        let follows = if is_working { (std::f64::consts::TAU * (hour - WORK) / 24.0).cos() } else { -1.0 };
        (self.at_work * (1.0 + self.swing * follows)).clamp(0.0, 1.0)
    }

    /// What an address is. The shares are the same among busy and quiet addresses, whatever the seed.
    fn kind(&self, rank: u32) -> Kind {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let shift = Rng::with_seed(self.seed ^ 0x6b69_6e64).f64();
        let place = (f64::from(rank) * GOLDEN + shift).fract();
        if place < self.nameless {
            Kind::Nameless
        } else if place < self.nameless + self.failing {
            Kind::Failing
        } else {
            Kind::Named
        }
    }
}

enum Kind {
    Named,
    Nameless,
    Failing,
}

/// A page that is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Page {
    /// When, since the beginning.
    pub(crate) at: Duration,
    /// The address of who asks.
    pub(crate) address: Ipv4Addr,
}

/// Pages in order of time, without end.
pub(crate) struct Pages {
    model: Model,
    /// Visits a second, averaged over a week.
    visits: f64,
    /// Of all pages, the share that is handed out: those of one server, or all.
    share: f64,
    rng: Rng,
    /// When the next visit begins.
    next: f64,
    /// Visits and when their next page is asked for.
    open: BinaryHeap<Reverse<(Duration, u32)>>,
    /// Where the draws of ranks begin and end, at work and at home.
    ends: [(f64, f64); 2],
}

impl Pages {
    /// Pages at a mean rate for each server; those of one server, or of all `servers`.
    pub(crate) fn new(model: Model, per_second: f64, servers: usize) -> Pages {
        let power = |rank: f64| rank.powf(1.0 - ALPHA);
        let ends = |addresses: f64| (power(0.5), power(addresses / model.scale + 0.5));
        Pages {
            model,
            visits: per_second * SERVERS as f64 / model.pages / model.scale,
            share: servers as f64 / SERVERS as f64,
            rng: Rng::with_seed(model.seed),
            next: 0.0,
            open: BinaryHeap::new(),
            ends: [ends(model.offices), ends(model.homes)],
        }
    }

    /// Begins the next visit; its first page may be another server's.
    fn visit(&mut self) {
        let rng = &mut self.rng;
        // Visits are drawn at the highest rate of the week, and left out as its hours go.
        loop {
            self.next -= (1.0 - rng.f64()).ln() / (self.visits * busiest());
            if rng.f64() * busiest() < hour_of_week(self.next / 3_600.0) {
                break;
            }
        }
        let is_home = rng.f64() >= self.model.at_work(self.next / 3_600.0);
        let (first, last) = self.ends[usize::from(is_home)];
        let rank = (first + rng.f64() * (last - first)).powf(1.0 / (1.0 - ALPHA)).round() as u32;
        let rank = rank + if is_home { (self.model.offices / self.model.scale) as u32 + 1 } else { 0 };
        let at = Duration::from_secs_f64(self.next);
        if rng.f64() < self.share {
            self.open.push(Reverse((at, rank)));
        } else {
            self.go_on(at, rank);
        }
    }

    /// Finds the visit's next page that is handed out, if there is one.
    fn go_on(&mut self, mut at: Duration, rank: u32) {
        let rng = &mut self.rng;
        while rng.f64() >= 1.0 / self.model.pages {
            at += Duration::from_secs_f64((PAUSE * (PAUSE_SPREAD * normal(rng)).exp()).min(3_600.0));
            if rng.f64() < self.share {
                self.open.push(Reverse((at, rank)));
                return;
            }
        }
    }
}

impl Iterator for Pages {
    type Item = Page;

    fn next(&mut self) -> Option<Page> {
        while self.open.peek().is_none_or(|Reverse((at, _))| at.as_secs_f64() > self.next) {
            self.visit();
        }
        let Reverse((at, rank)) = self.open.pop()?;
        self.go_on(at, rank);
        Some(Page { at, address: address(rank) })
    }
}

/// How many visits there are at an hour of the week, for one on average; the week begins on Monday at 0 h.
pub(crate) fn hour_of_week(hour: f64) -> f64 {
    // The mean of exp(DAY cos x) over a day: the modified Bessel function of order 0 by its series.
    let bessel: f64 = (1..12).rev().fold(1.0, |sum, k| 1.0 + sum * (DAY / 2.0).powi(2) / f64::from(k * k));
    let of_day = (DAY * (std::f64::consts::TAU * (hour - 15.0) / 24.0).cos()).exp() / bessel;
    let day = if (hour / 24.0) as u64 % 7 < 5 { 1.0 } else { WEEK_END };
    of_day * day * 7.0 / (5.0 + 2.0 * WEEK_END)
}

/// The most of [`hour_of_week`]: at 15 h of a working day.
fn busiest() -> f64 {
    hour_of_week(15.0)
}

/// A draw from the normal distribution.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// Addresses by how busy they are, spread over all of IPv4; and back.
const SPREAD: u32 = 0x9e37_79b1;

fn address(rank: u32) -> Ipv4Addr {
    rank.wrapping_mul(SPREAD).into()
}

fn rank(address: Ipv4Addr) -> u32 {
    // Newton's iteration for the inverse of an odd number: each step doubles the bits that are right.
    let inverse = (0..5).fold(SPREAD, |inverse: u32, _| {
        inverse.wrapping_mul(2_u32.wrapping_sub(SPREAD.wrapping_mul(inverse)))
    });
    u32::from(address).wrapping_mul(inverse)
}

fn name(address: Ipv4Addr) -> NameText {
    let [a, b, c, d] = address.octets();
    let text = format!("ppp-{d}-{c}.pool-{b}.isp{}.example", a % 64);
    NameText::from_text(text.as_bytes()).expect("plain letters and digits")
}

/// The record's own time to live in seconds: an hour, a day or a week. Assumed; the paper ignores it.
fn record_ttl(rank: u32) -> u32 {
    match rank % 20 {
        0..5 => 3_600,
        5..17 => 86_400,
        _ => 604_800,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(servers: usize) -> Vec<Page> {
        let pages = Pages::new(Model::fitted(1, 300.0), 98.0, servers);
        pages.take_while(|page| page.at < 168 * HOUR).collect()
    }

    #[test]
    fn a_week_has_the_rate_that_was_asked_for() {
        let (one, all) = (pages(1), pages(SERVERS));
        let expected = 98.0 * 604_800.0 / 300.0;
        for (pages, servers) in [(one, 1.0), (all, SERVERS as f64)] {
            let share = pages.len() as f64 / servers / expected;
            assert!((0.96..1.04).contains(&share), "{share}");
            assert!(pages.is_sorted_by_key(|page| page.at));
        }
        assert_eq!(pages(1), pages(1));
    }

    #[test]
    fn the_week_averages_to_one_and_has_the_papers_peak() {
        let hours: Vec<f64> = (0..168).map(|hour| hour_of_week(f64::from(hour) + 0.5)).collect();
        assert!((hours.iter().sum::<f64>() / 168.0 - 1.0).abs() < 1e-3);
        let peak = hours.iter().copied().fold(0.0, f64::max);
        assert!((2.3..2.6).contains(&peak) && peak <= busiest(), "{peak}");
    }

    #[test]
    fn addresses_are_spread_and_found_again() {
        for of in [0, 1, 2, 77, 65_537, u32::MAX] {
            assert_eq!(rank(address(of)), of);
        }
        assert_ne!(address(1).octets()[0], address(2).octets()[0]);
    }

    #[test]
    fn kinds_have_their_shares_among_the_busiest() {
        let model = Model { nameless: 0.3, failing: 0.1, ..Model::fitted(5, 1.0) };
        let mut rng = Rng::with_seed(1);
        let mut counts = [0; 3];
        for rank in 1..=1_000 {
            let at = match model.ask(address(rank), &mut rng).0 {
                Answered::Name(..) => 0,
                Answered::NoName(_) => 1,
                _ => 2,
            };
            counts[at] += 1;
        }
        assert!(
            counts.iter().zip([600_i32, 300, 100]).all(|(count, expected)| (count - expected).abs() <= 5)
        );
    }
}
