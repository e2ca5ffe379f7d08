//! Section 10, "Further Work": what the authors would have tried next.

use std::time::Duration;

use anyhow::Result;
use learn::{Order, Repeats};
use replay::plot::{Axis, Line, Plot, Stroke};
use reverse::backend::{Behaviour, Paper, Ttl};

use super::model::Model;
use super::nasa::Log;
use super::server::{Counts, WEEK, standard};
use super::{WARM_UP, WEEK_RATE, hours, percent};
use crate::data;
use crate::options::Size;
use crate::report::{Limit, Report, number};

/// How addresses wait: the paper's stack, and the two others.
const WAITING: [(&str, Paper); 3] = [
    ("LIFO (published)", PUBLISHED),
    ("FIFO", Paper { order: Order::OldestFirst, ..PUBLISHED }),
    ("LIFO, move to top", Paper { repeats: Repeats::MoveToTop, ..PUBLISHED }),
];

const PUBLISHED: Paper = Paper { repeats: Repeats::Keep, order: Order::NewestFirst, servfail: None };

/// Intervals of the model in milliseconds.
const INTERVALS: &[u64] = &[50, 70, 90, 120, 180];

/// Intervals of the NASA log in seconds, and the stack: the ratios of that log to the farm's traffic.
const NASA_INTERVALS: [u64; 4] = [10, 20, 40, 80];
const NASA_STACK: usize = 64;

/// How long a SERVFAIL is kept in minutes; 0 for not at all.
const SERVFAIL: [u64; 4] = [0, 10, 30, 60];

/// What share of names is another after a second: 97.6 % of open resolvers' names were the same from August to
/// November 2017.
const RENAMED: f64 = 0.024 / (90.0 * 86_400.0);

/// Does section 10.
pub(super) fn perform(model: Model, size: Size, report: &mut Report) -> Result<()> {
    report.heading("Section 10: LIFO, FIFO, move to top");
    report.say(
        "The paper asks to compare queueing policies. The oldest leaks with each of them. A working day of the model \
         after a week's warm-up, by interval.",
    );
    let intervals = size.of(INTERVALS, INTERVALS, &[90]);
    let intervals: Vec<_> =
        intervals.iter().map(|ms| (*ms as f64, "ms", Duration::from_millis(*ms))).collect();
    let day = |behaviour| {
        let (hours, _) = hours(model, behaviour, WEEK_RATE, (WARM_UP, WARM_UP + 24));
        hours.into_iter().sum::<Counts>()
    };
    waiting(report, "model", &intervals, |paper, interval| {
        day(Behaviour { interval, paper: Some(paper), ..standard() })
    });
    servfail(report, "model, 90 ms", |paper| {
        day(Behaviour { interval: Duration::from_millis(90), paper: Some(paper), ..standard() })
    });
    lives(report, day);

    report.heading("Section 10 on a real log: NASA, 1 August 1995");
    let Some(path) = data::file("reverse/nasa_19950801.tsv.xz", report) else { return Ok(()) };
    let log = Log::read(&path)?;
    let (clients, nameless) = log.clients();
    report.say(&format!(
        "{} page requests of {clients} clients, {} % without a name; answers come at once, the stack holds \
         {NASA_STACK}; the cache begins empty.",
        number(log.len() as f64),
        percent(nameless)
    ));
    let nasa = Behaviour { stack: NASA_STACK, per_client: NASA_STACK, ..standard() };
    let seconds = NASA_INTERVALS.map(|s| (s as f64, "s", Duration::from_secs(s)));
    let arms = waiting(report, "NASA", &seconds, |paper, interval| {
        log.run(Behaviour { interval, paper: Some(paper), ..nasa.clone() }, false)
    });
    for (at, (interval, unit, _)) in seconds.iter().enumerate() {
        let ratio = |arm: usize| arms[arm][at].hit_ratio();
        let name = |what: &str| format!("NASA, {interval} {unit}: {what}");
        report.must(name("LIFO's hit ratio beyond FIFO's"), Limit::AtLeast(0.0), ratio(0) - ratio(1));
        report.must(name("move to top's beyond LIFO's"), Limit::AtLeast(-0.005), ratio(2) - ratio(0));
    }
    servfail(report, "NASA, 20 s", |paper| {
        log.run(Behaviour { interval: Duration::from_secs(20), paper: Some(paper), ..nasa.clone() }, true)
    });
    let negative = |negative| {
        log.run(Behaviour { interval: Duration::from_secs(20), negative, ..nasa.clone() }, false).hit_ratio()
    };
    let gain = negative(true) - negative(false);
    report.say(&format!(
        "Negative caching, 20 s: hit ratio {} % with it, {} % without; the paper's farm had 90.45 and 78.9 %.",
        percent(negative(true)),
        percent(negative(false))
    ));
    report.must("NASA, 20 s: what negative caching gains", Limit::AtLeast(0.02), gain);
    let local = log.run(Behaviour { interval: Duration::ZERO, ..nasa }, false);
    report.say(&format!(
        "Is locality special to CNN? With no interval at all, {} % of the day's page requests hit a cache that began \
         empty: most clients come back, here too.",
        percent(local.hit_ratio())
    ));
    Ok(())
}

/// Tells the arms of [`WAITING`] by interval; gives what they counted, by arm and interval.
fn waiting(
    report: &mut Report,
    of: &str,
    intervals: &[(f64, &str, Duration)],
    arm: impl Fn(Paper, Duration) -> Counts,
) -> Vec<Vec<Counts>> {
    let arms: Vec<Vec<Counts>> = WAITING
        .iter()
        .map(|(_, paper)| intervals.iter().map(|(.., interval)| arm(*paper, *interval)).collect())
        .collect();
    let mut rows = Vec::new();
    for ((name, _), counts) in WAITING.iter().zip(&arms) {
        for ((interval, unit, _), counts) in intervals.iter().zip(counts) {
            let leaks = counts.leaks as f64 / counts.requests.max(1) as f64;
            rows.push(vec![
                (*name).to_owned(),
                format!("{interval} {unit}"),
                percent(counts.hit_ratio()),
                percent(counts.named_share()),
                percent(leaks),
                percent(counts.back_end_hits as f64 / counts.requests.max(1) as f64),
            ]);
        }
    }
    let head = [
        "",
        "interval",
        "hit ratio, %",
        "answered with a name, %",
        "leaks, % of requests",
        "back-end hits, %",
    ];
    report.table(&format!("Order of questions ({of})"), &head, rows);
    let line = |(name, counts): (&str, &Vec<Counts>), value: fn(&Counts) -> f64| {
        let points = intervals.iter().zip(counts).map(|((at, ..), counts)| (*at, 100.0 * value(counts)));
        Line::new(name, points.collect())
    };
    let names = WAITING.iter().map(|(name, _)| *name);
    let mut lines: Vec<Line> = names.clone().zip(&arms).map(|arm| line(arm, Counts::hit_ratio)).collect();
    for arm in names.zip(&arms) {
        let one = line(arm, Counts::named_share).drawn(Stroke::Dashed);
        lines.push(Line { name: format!("{}: named", one.name), ..one });
    }
    let unit = intervals.first().map_or("", |(_, unit, _)| *unit);
    let across = Axis::titled(format!("interval, {unit}"));
    let up = Axis { to: Some(100.0), ..Axis::titled("per cent of requests") };
    report.plot(format!("Hit ratio and share answered with a name ({of})"), Plot { across, up, lines });
    arms
}

/// Tells what keeping SERVFAIL does.
fn servfail(report: &mut Report, of: &str, arm: impl Fn(Paper) -> Counts) {
    let kept = |minutes: u64| (minutes > 0).then(|| Duration::from_secs(60 * minutes));
    let arms = SERVFAIL.map(|minutes| arm(Paper { servfail: kept(minutes), ..PUBLISHED }));
    let rows = SERVFAIL.iter().zip(&arms).map(|(minutes, counts)| {
        let kept = if *minutes == 0 { "not kept (published)".to_owned() } else { format!("{minutes} min") };
        vec![
            kept,
            percent(counts.hit_ratio()),
            percent(counts.named_share()),
            percent(counts.leaks as f64 / counts.requests.max(1) as f64),
            percent(counts.failed as f64 / counts.questions.max(1) as f64),
        ]
    });
    let head = [
        "SERVFAIL",
        "hit ratio, %",
        "answered with a name, %",
        "leaks, % of requests",
        "questions that fail, %",
    ];
    report.table(&format!("SERVFAIL cached ({of})"), &head, rows.collect());
    let gain = arms[3].hit_ratio() - arms[0].hit_ratio();
    report.must(format!("{of}: hit ratio gained by keeping SERVFAIL for an hour"), Limit::AtLeast(0.0), gain);
}

/// Tells what the record's time to live does, and how old fixed ones let names get.
fn lives(report: &mut Report, day: impl Fn(Behaviour) -> Counts) {
    report.heading("Section 10: the record's time to live");
    report.say(
        "Out of date: names' mean age times the rate at which 26,407 public names changed in three months of 2017; \
         estimated, not looked up.",
    );
    let arms = [
        ("7 days, whatever the record says (published)", Ttl::Fixed(WEEK)),
        ("the record's, at least a day", Ttl::Record(Duration::from_secs(86_400), WEEK)),
        ("the record's", Ttl::Record(Duration::ZERO, WEEK)),
    ];
    let mut ratios = Vec::new();
    let mut rows = Vec::new();
    for (name, ttl) in arms {
        let counts = day(Behaviour { ttl, ..standard() });
        let age = counts.ages as f64 / counts.named.max(1) as f64;
        rows.push(vec![
            name.to_owned(),
            percent(counts.hit_ratio()),
            percent(counts.named_share()),
            percent(counts.leaks as f64 / counts.requests.max(1) as f64),
            number((age / 360.0).round() / 10.0),
            format!("{:.4}", 100.0 * age * RENAMED),
        ]);
        ratios.push(counts.hit_ratio());
    }
    let head =
        ["kept for", "hit ratio, %", "answered with a name, %", "leaks, %", "mean age, h", "out of date, %"];
    report.table("Time to live (model, 50 ms)", &head, rows);
    report.must(
        "what 7 days gain over the record's time to live",
        Limit::AtLeast(0.0),
        ratios[0] - ratios[2],
    );
}
