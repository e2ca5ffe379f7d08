//! Rapid DNS (LeFebvre and Craig, USITS 1999): its figures, and the questions that it leaves to further work.
//!
//! The servers are ours with `--paper`, front and back end, on a virtual clock ([`server`]). Their clients are a seeded
//! model of the paper's web farm ([`model`]), which three servers share ([`farm`]), and a real web server's day
//! ([`nasa`]). [`further`] is section 10.

mod farm;
mod further;
mod model;
mod nasa;
mod server;

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use replay::plot::{Axis, Line, Plot, Stroke};
use reverse::backend::Behaviour;

use crate::options::Run;
use crate::report::{Limit, Report, number};
use farm::Hour;
use model::{HOUR, Model, Pages};
use server::{Counts, Server, scaled, standard};

/// The hours for which a server runs before it is looked at: as long as it keeps its entries.
const WARM_UP: u32 = 168;

/// Requests a second to each server in the week of figure 3: 5,902 a minute.
const WEEK_RATE: f64 = 98.4;

/// Requests a second to each server on the day of figures 6 and 7. Fitted: the control's leaks in its worst hour.
const BUSY_RATE: f64 = 124.0;

/// The smallest model whose leaks and means are judged: in a much smaller one the stack holds so few addresses that
/// chance leaks them.
const JUDGED_SCALE_MAX: f64 = 200.0;

/// How many times smaller than the farm the models of a run are.
#[derive(Clone, Copy)]
struct Scales {
    /// Figures 3 to 5: one server.
    one: f64,
    /// Figures 6 and 7: three servers.
    farm: f64,
    /// Section 10: many arms.
    further: f64,
}

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    let scales = run.size.of(
        Scales { one: 4.0, farm: 20.0, further: 20.0 },
        Scales { one: 40.0, farm: 100.0, further: 100.0 },
        Scales { one: 1_000.0, farm: 1_000.0, further: 1_000.0 },
    );
    inputs(&Model::fitted(run.seed, 1.0), scales, report);
    week(Model::fitted(run.seed, scales.one), report);
    slow(Model::fitted(run.seed, scales.one), report);
    negative(Model::fitted(run.seed, scales.farm).busy(), report);
    further::perform(Model::fitted(run.seed, scales.further), run.size, report)
}

/// Says what goes in, and where it is from.
fn inputs(model: &Model, scales: Scales, report: &mut Report) {
    report.heading("What goes in, and what comes out");
    report.say(
        "Front end, cache, stack, pacing and back end are those of the service with --paper; clock, clients and \
         upstream are the experiment's. All values are means over a seeded model; the paper's traces were not \
         published.",
    );
    let rows: [(&str, &str); 15] = [
        ("stack 4,096, 7 days, 50 or 90 ms, placeholder 2 min", "published (8.1)"),
        (
            "98.4 requests a second to each of three servers; the peak hour has 2.44 times the mean",
            "published (8.1)",
        ),
        ("Zipf's law with exponent 0.82 for visitors", "measured on the NASA log"),
        ("pauses between pages: log-normal, median 30 s", "assumed"),
        (
            &format!("{} addresses at home, {} pages a visit", number(model.homes), model.pages),
            "fitted: mean of figure 3",
        ),
        (
            &format!(
                "{} addresses at work, with {} % of the visitors of a working day",
                number(model.offices),
                number(100.0 * model.at_work)
            ),
            "assumed",
        ),
        (
            "at 13 h twice as many of them are at work, by night and at the week-end none",
            "fitted: deviation of figure 3",
        ),
        (
            &format!(
                "{} % of visitors at work on the day of figures 6 and 7",
                number(100.0 * model.busy().at_work)
            ),
            "fitted: the control's mean in figure 7",
        ),
        (
            &format!("{} % of addresses without a name", number(100.0 * model.nameless)),
            "fitted: difference of the means of figure 7",
        ),
        (
            &format!("{} % of addresses whose servers fail", number(100.0 * model.failing)),
            "fitted: 12 % of questions fail (7)",
        ),
        (
            &format!("{} requests a second to each server on the day of figures 6 and 7", number(BUSY_RATE)),
            "fitted: the control's leaks in its worst hour",
        ),
        ("a server works 1.5 ms for a hit", "fitted: round trips of 2 ms (8)"),
        ("and 3 ms for a miss", "assumed"),
        ("answers after 0.2 s, failures after 1 s (medians)", "assumed"),
        ("times to live of an hour, a day, a week: 25, 60, 15 %", "assumed"),
    ];
    let rows = rows.iter().map(|(what, from)| vec![(*what).to_owned(), (*from).to_owned()]).collect();
    report.table("Inputs", &["input", "from"], rows);
    report.say(&format!(
        "Predicted is all else: the ends of hit ratios, leaks and their absence, the ceiling, the entries, the share \
         answered with a name, what each change of section 10 does, and that the slower server gets less. Sizes: one \
         server 1:{}, three servers 1:{}, section 10 1:{}; counts are told for the farm's own size.",
        scales.one, scales.farm, scales.further
    ));
}

/// Runs one server for the hours from `from` to `until`; gives those, and the server.
fn hours(
    model: Model,
    behaviour: Behaviour,
    per_second: f64,
    (from, until): (u32, u32),
) -> (Vec<Counts>, Server) {
    let mut rng = Rng::with_seed(model.seed ^ 0x7570);
    let upstream = Box::new(move |address| model.ask(address, &mut rng));
    let mut server = Server::new(scaled(behaviour, model.scale), upstream);
    let mut pages = Pages::new(model, per_second, 1).peekable();
    let mut hours = Vec::new();
    for hour in 0..until {
        let (before, end) = (server.counts(), HOUR * (hour + 1));
        while let Some(page) = pages.next_if(|page| page.at < end) {
            server.look_up(page.at, page.address);
        }
        server.pass(end);
        if hour >= from {
            hours.push(server.counts() - before);
        }
    }
    (hours, server)
}

/// Figure 3.
fn week(model: Model, report: &mut Report) {
    report.heading("Figure 3: a week in the standard configuration");
    let (hours, server) = hours(model, standard(), WEEK_RATE, (WARM_UP, 2 * WARM_UP));
    let all: Counts = hours.iter().copied().sum();
    let ratios = Spread::of(hours.iter().map(Counts::hit_ratio));
    let whole = |count: u64| count as f64 * model.scale;
    let peak = hours.iter().map(|hour| hour.requests).max().unwrap_or(0);
    let leaks = whole(all.leaks);
    let (named, entries) = server.entries(HOUR * (2 * WARM_UP));
    beside(
        report,
        "A week, hour by hour",
        &[
            ("requests a minute", "5,902", number((whole(all.requests) / 168.0 / 60.0).round()), "input"),
            ("requests in the peak hour", "862,500", number(whole(peak)), "fitted"),
            ("mean hit ratio, %", "92.4", percent(ratios.mean), "fitted"),
            ("its standard deviation, %", "1.5", percent(ratios.deviation), "fitted"),
            ("lowest hour, %", "86.5", percent(ratios.least), "predicted"),
            ("highest hour, %", "94.5", percent(ratios.most), "predicted"),
            ("leaks", "none but after a restart", number(leaks), "predicted"),
            ("entries with a name", "about 2,500,000", number(whole(named)), "predicted"),
            ("all entries", "-", number(whole(entries)), "predicted"),
            (
                "questions that fail, %",
                "12",
                percent(all.failed as f64 / all.questions.max(1) as f64),
                "fitted",
            ),
            ("answered with a name, %", "-", percent(all.named_share()), "predicted"),
        ],
    );
    if model.scale <= JUDGED_SCALE_MAX {
        report.must("fig3: mean hit ratio", Limit::Between(0.909, 0.939), ratios.mean);
        report.must("fig3: share of requests that leaked", Limit::AtMost(0.001), leaks / whole(all.requests));
    }
    let lines = vec![
        line("requests", &hours, |hour| whole(hour.requests)),
        line("cache hits", &hours, |hour| whole(hour.hits)).drawn(Stroke::Area),
        line("answered with a name", &hours, |hour| whole(hour.named)),
        level("published: mean of requests", 354_120.0, 168.0),
        level("published: peak hour", 862_500.0, 168.0),
    ];
    let up = Axis::titled("an hour");
    report.plot("Figure 3: requests and hits", Plot { across: by_day(168.0), up, lines });
    let lines = vec![
        line("ours", &hours, |hour| 100.0 * hour.hit_ratio()),
        level("published: mean", 92.4, 168.0),
        level("published: lowest", 86.5, 168.0),
        level("published: highest", 94.5, 168.0),
    ];
    report.plot("Hit ratio of each hour", Plot { across: by_day(168.0), up: per_cent(70.0), lines });
}

/// Figures 4 and 5.
fn slow(model: Model, report: &mut Report) {
    report.heading("Figures 4 and 5: a day with 90 ms");
    let interval = Duration::from_millis(90);
    let behaviour = Behaviour { interval, ..standard() };
    let (hours, _) = hours(model, behaviour, WEEK_RATE, (WARM_UP, WARM_UP + 24));
    let all: Counts = hours.iter().copied().sum();
    let whole = |count: u64| count as f64 * model.scale;
    let most = hours.iter().map(|hour| hour.questions).max().unwrap_or(0);
    let ceiling = 3_600.0 / interval.as_secs_f64() / model.scale;
    let flat = hours.iter().filter(|hour| hour.questions as f64 >= ceiling - 1.0).count();
    let leaks: u64 = all.leaks;
    beside(
        report,
        "A working day",
        &[
            (
                "most questions in a second, mean of an hour",
                "11.11",
                number(whole(most) / 3_600.0),
                "predicted",
            ),
            ("hours at the ceiling", "\"evident\"", number(flat as f64), "predicted"),
            ("leaks", "\"substantial\"", number(whole(leaks)), "predicted"),
            ("hit ratio, %", "-", percent(all.hit_ratio()), "predicted"),
            ("answered with a name, %", "-", percent(all.named_share()), "predicted"),
        ],
    );
    // An hour may begin just before a question is due and end just after one.
    let share = (most as f64 - 1.0) / ceiling;
    report.must("fig5: most questions in an hour over 3,600 s / 90 ms", Limit::AtMost(1.0), share);
    report.must("fig5: hours at the ceiling", Limit::AtLeast(3.0), flat as f64);
    report.must("fig5: leaks", Limit::AtLeast(1.0), leaks as f64);
    if model.scale <= JUDGED_SCALE_MAX {
        let below = hours.iter().filter(|hour| (hour.questions as f64) < 0.9 * ceiling);
        let share = below.map(|hour| hour.leaks).sum::<u64>() as f64 / leaks.max(1) as f64;
        report.must("fig5: share of leaks in hours below 90 % of the ceiling", Limit::AtMost(0.02), share);
    }
    let lines = vec![
        line("requests", &hours, |hour| whole(hour.requests)),
        line("cache hits", &hours, |hour| whole(hour.hits)).drawn(Stroke::Area),
        line("leaks", &hours, |hour| whole(hour.leaks)).drawn(Stroke::Area),
    ];
    report.plot(
        "Figure 4: requests, hits and leaks",
        Plot { across: by_hour(), up: Axis::titled("an hour"), lines },
    );
    let lines = vec![
        line("questions", &hours, |hour| whole(hour.questions)),
        line("leaks", &hours, |hour| whole(hour.leaks)).drawn(Stroke::Area),
        level("published: 11.11 a second", 40_000.0, 24.0),
    ];
    report.plot(
        "Figure 5: questions and leaks",
        Plot { across: by_hour(), up: Axis::titled("an hour"), lines },
    );
}

/// Figures 6 and 7.
fn negative(model: Model, report: &mut Report) {
    report.heading("Figures 6 and 7: a busy day without negative caching, and with it");
    let subject = Behaviour { negative: false, ..standard() };
    let behaviours = [subject, standard(), standard()];
    let [off, on, _] = farm::run(model, behaviours, BUSY_RATE, (WARM_UP, WARM_UP + 24));
    let (off, on) = (Day::of(model, off), Day::of(model, on));
    negative_told(&off, &on, report);
    negative_judged(&off, &on, report);
    negative_drawn(&off, &on, report);
}

/// A server's day, hour by hour.
struct Day {
    model: Model,
    hours: Vec<Hour>,
    all: Counts,
    ratio: Spread,
}

impl Day {
    fn of(model: Model, hours: Vec<Hour>) -> Day {
        let all = hours.iter().map(|hour| hour.counts).sum();
        let ratio = Spread::of(hours.iter().map(|hour| hour.counts.hit_ratio()));
        Day { model, hours, all, ratio }
    }

    /// The most that an hour has of something, for the whole farm's size.
    fn most(&self, of: fn(&Counts) -> u64) -> f64 {
        self.hours.iter().map(|hour| of(&hour.counts)).max().unwrap_or(0) as f64 * self.model.scale
    }

    /// The mean round trip of the slowest hour in milliseconds.
    fn round_trip_ms(&self) -> f64 {
        self.hours.iter().map(|hour| hour.round_trip_ms(&self.model)).fold(0.0, f64::max)
    }

    fn line(&self, name: &str, value: impl Fn(&Counts) -> f64) -> Line {
        let points = self.hours.iter().enumerate().map(|(at, hour)| (at as f64, value(&hour.counts)));
        Line::new(name, points.collect())
    }
}

fn negative_told(off: &Day, on: &Day, report: &mut Report) {
    let percents = |of: fn(&Day) -> f64| [percent(of(off)), percent(of(on))];
    let numbers = |of: fn(&Day) -> f64| [number(of(off).round()), number(of(on).round())];
    let rows = [
        ("mean hit ratio, %", ["78.9", "90.45"], percents(|day| day.all.hit_ratio()), "fitted"),
        ("lowest hour, %", ["61.2", "84.4"], percents(|day| day.ratio.least), "predicted"),
        ("highest hour, %", ["below 89", "93.1"], percents(|day| day.ratio.most), "predicted"),
        (
            "leaks in the worst hour (fitted where it is on)",
            ["175,906", "75,309"],
            numbers(|day| day.most(|hour| hour.leaks)),
            "predicted",
        ),
        (
            "requests in the peak hour",
            ["\"noticeably lower\"", "-"],
            numbers(|day| day.most(|hour| hour.requests)),
            "predicted",
        ),
        ("answered with a name, %", ["-", "-"], percents(|day| day.all.named_share()), "predicted"),
        (
            "slowest hour's round trip, ms",
            ["-", "2 on average"],
            [off, on].map(|day| number(day.round_trip_ms())),
            "assumed",
        ),
    ];
    let rows = rows.map(|(what, published, [off, on], kind)| {
        vec![what.to_owned(), published[0].to_owned(), off, published[1].to_owned(), on, kind.to_owned()]
    });
    let head = ["", "off: published", "off: ours", "on: published", "on: ours", ""];
    report.table("Negative caching off and on", &head, rows.into());
}

fn negative_judged(off: &Day, on: &Day, report: &mut Report) {
    let gain = on.all.hit_ratio() - off.all.hit_ratio();
    report.must("fig7: what negative caching gains (published 0.1155)", Limit::Between(0.08, 0.15), gain);
    let spread = off.ratio.deviation / on.ratio.deviation;
    report.must("fig7: spread of hours without it beside that with it", Limit::AtLeast(1.0), spread);
    if on.model.scale <= JUDGED_SCALE_MAX {
        let mean = on.all.hit_ratio();
        report.must("fig7: mean hit ratio with negative caching", Limit::Between(0.8895, 0.9195), mean);
        let [off, on] = [off, on].map(|day| day.most(|hour| hour.leaks));
        let name = "fig6: worst hour's leaks without it beside those with it (published 2.34)";
        report.must(name, Limit::Between(1.4, 4.0), off / on.max(1.0));
    }
    let share = off.all.requests as f64 / on.all.requests.max(1) as f64;
    report.must("fig6: requests to the slower server beside the other's", Limit::AtMost(0.999), share);
}

fn negative_drawn(off: &Day, on: &Day, report: &mut Report) {
    let whole = |count: u64| count as f64 * on.model.scale;
    let lines = vec![
        off.line("off: requests", |counts| whole(counts.requests)),
        on.line("on: requests", |counts| whole(counts.requests)),
        off.line("off: leaks", |counts| whole(counts.leaks)),
        on.line("on: leaks", |counts| whole(counts.leaks)),
        level("published, off: worst hour's leaks", 175_906.0, 24.0),
        level("published, on: worst hour's leaks", 75_309.0, 24.0),
    ];
    let up = Axis::titled("an hour");
    report.plot("Figure 6: requests and leaks", Plot { across: by_hour(), up, lines });
    let lines = vec![
        off.line("off", |counts| 100.0 * counts.hit_ratio()),
        on.line("on", |counts| 100.0 * counts.hit_ratio()),
        level("published, off: mean", 78.9, 24.0),
        level("published, on: mean", 90.45, 24.0),
    ];
    report.plot("Figure 7: hit ratio of each hour", Plot { across: by_hour(), up: per_cent(50.0), lines });
}

/// Adds a table of published values beside ours: what, published, ours, and which kind of value it is.
fn beside(report: &mut Report, title: &str, rows: &[(&str, &str, String, &str)]) {
    let row = |(what, published, ours, kind): &(&str, &str, String, &str)| {
        vec![(*what).to_owned(), (*published).to_owned(), ours.clone(), (*kind).to_owned()]
    };
    report.table(title, &["", "published", "ours", ""], rows.iter().map(row).collect());
}

/// Mean, standard deviation and ends of some values.
struct Spread {
    mean: f64,
    deviation: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let (least, most) =
            (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max));
        Spread { mean, deviation, least: least.unwrap_or(0.0), most: most.unwrap_or(0.0) }
    }
}

/// A share in per cent.
fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

/// A line over hours.
fn line(name: &str, hours: &[Counts], value: impl Fn(&Counts) -> f64) -> Line {
    Line::new(name, hours.iter().enumerate().map(|(at, hour)| (at as f64, value(hour))).collect())
}

/// A published value as a broken line.
fn level(name: &str, value: f64, hours: f64) -> Line {
    Line::new(name, vec![(0.0, value), (hours - 1.0, value)]).drawn(Stroke::Dashed)
}

fn by_day(hours: f64) -> Axis {
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let marks = days.iter().enumerate().map(|(at, day)| (at as f64 * 24.0, (*day).to_owned())).collect();
    Axis { marks, to: Some(hours - 1.0), ..Axis::titled("hours of a week") }
}

fn by_hour() -> Axis {
    let marks = (0..24).step_by(4).map(|hour| (f64::from(hour), format!("{hour} h"))).collect();
    Axis { marks, to: Some(23.0), ..Axis::titled("hours of a day") }
}

fn per_cent(from: f64) -> Axis {
    Axis { from: Some(from), to: Some(100.0), ..Axis::titled("per cent") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_that_of_all_values() {
        let spread = Spread::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter());
        assert_eq!((spread.mean, spread.deviation, spread.least, spread.most), (5.0, 2.0, 2.0, 9.0));
    }
}
