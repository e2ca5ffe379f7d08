//! A report as a page of plots: one HTML file that needs nothing else.
//!
//! Percentiles are drawn on an axis of nines (0, 90, 99, 99.9 %), where the end of a distribution has room.

use std::fmt::Write as _;

use api::replay::{Comparison, ReplayReport, Series, ServerSecond};

/// The drawing's size and the room around it for axes, in SVG's units.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 70.0;

/// The most points of a line: what is more is averaged over neighbours.
const POINTS_MAX: usize = 860;

/// Colours that stay apart in grey and for the colour-blind (Okabe, Ito 2008).
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000"];

/// One line of a plot.
struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

/// A mark of an axis: where, and what it says.
type Mark = (f64, String);

/// The page of a report.
pub fn page(report: &ReplayReport) -> String {
    let rate = |name, seconds: &[u64]| Line { name, points: thinned(seconds) };
    let rates = [
        rate("due", &report.due_per_second),
        rate("sent", &report.sent_per_second),
        rate("answered", &report.answered_per_second),
    ];
    let curve = |name, key: &str| Line { name, points: nines(report.curves.get(key)) };
    let times =
        [curve("lateness", "lateness"), curve("from due", "latency"), curve("from sent", "latency_sent")];
    let clients = [curve("quiet", "quiet"), curve("busy", "busy")];
    let verdict = match report.on_time {
        Some(true) => "On time: the 99.9th percentile of lateness is within the tolerance.",
        Some(false) => "<strong>OUT OF TOLERANCE: this run was not sent on time.</strong>",
        None => "Sent as fast as answers came: there are no due times.",
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Replay of {trace}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}\
         svg{{width:100%;height:auto}}text{{font:12px sans-serif}}</style>\n\
         <h1>Replay of {trace}</h1>\n\
         <p>{queries} queries to {servers} in {seconds:.1} s: {answers} answered, {lost} lost, {retries} asked again \
         over TCP. {verdict}{comparison}</p>\n\
         <h2>Queries a second</h2>\n{rates}\n\
         <h2>Lateness and latency</h2>\n<p>Share of queries that took at most so long, in microseconds.</p>\n{times}\n\
         <h2>Latency of quiet and busy clients</h2>\n<p>From sent; quiet clients had sent fewer than ten queries in \
         the minute.</p>\n{clients}\n{server}</html>\n",
        trace = escaped(&report.trace),
        queries = report.queries,
        servers = escaped(&report.servers.join(", ")),
        seconds = report.seconds,
        answers = report.answers,
        lost = report.lost,
        retries = report.tc_retries,
        comparison = report.comparison.as_ref().map_or_else(String::new, compared),
        rates = plot(&rates, &seconds_marks(&rates), false),
        times = plot(&times, &nines_marks(), true),
        clients = plot(&clients, &nines_marks(), true),
        server = report.server_seconds.as_deref().map_or_else(String::new, observed),
    )
}

/// Answers beside the recorded ones, as a sentence.
fn compared(told: &Comparison) -> String {
    let differing = told.differing.iter().filter(|(_, count)| **count > 0);
    let differing: String = differing.map(|(what, count)| format!(", {count} of another {what}")).collect();
    format!(
        " Of {} answers held against the recorded ones, {} were the same{differing}, {} not known as one was \
         truncated.",
        told.compared, told.same, told.truncated
    )
}

/// The server's processor time, memory and connections as plots.
fn observed(seconds: &[ServerSecond]) -> String {
    let line = |name, of: &dyn Fn(&ServerSecond) -> f64| {
        let step = seconds.len().div_ceil(POINTS_MAX).max(1);
        let points =
            seconds.iter().enumerate().step_by(step).map(|(at, second)| ((at + 1) as f64, of(second)));
        Line { name, points: points.collect() }
    };
    let cpu = [line("user", &|second| second.user * 100.0), line("system", &|second| second.system * 100.0)];
    let memory = [line("resident", &|second| second.resident_octets as f64 / f64::from(1 << 20))];
    let state =
        |name: &'static str| line(name, &move |second| second.tcp.get(name).copied().unwrap_or(0) as f64);
    let tcp = [state("established"), state("syn-received"), state("close-wait"), state("fin-wait-2")];
    let drawn = |lines: &[Line<'_>]| plot(lines, &seconds_marks(lines), false);
    format!(
        "<h2>The server: processor time</h2>\n<p>Per cent of one core.</p>\n{}\n<h2>The server: resident memory</h2>\n\
         <p>MiB.</p>\n{}\n<h2>The server: TCP sockets</h2>\n{}\n",
        drawn(&cpu),
        drawn(&memory),
        drawn(&tcp)
    )
}

/// Draws lines; `is_log` makes the vertical axis one of powers of ten.
fn plot(lines: &[Line<'_>], across: &[Mark], is_log: bool) -> String {
    let scale = |value: f64| if is_log { value.max(0.1).log10() } else { value };
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let right = across.iter().map(|(at, _)| *at).chain(all().map(|(x, _)| *x)).fold(0.0, f64::max).max(1e-9);
    let bottom = if is_log { -1.0 } else { 0.0 };
    let top = all().map(|(_, y)| scale(*y)).fold(bottom, f64::max);
    let top = if is_log { top.ceil().max(1.0) } else { top.max(1.0) };
    let x = |value: f64| MARGIN + value / right * (WIDTH - 2.0 * MARGIN);
    let y = |value: f64| HEIGHT - 40.0 - (value - bottom) / (top - bottom) * (HEIGHT - 60.0);
    let up: Vec<Mark> = if is_log {
        (bottom as i32..=top as i32)
            .map(|power| (f64::from(power), format!("{}", 10_f64.powi(power))))
            .collect()
    } else {
        round_marks(top, "")
    };
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for (at, what) in &up {
        let at = y(*at);
        let _ = write!(
            svg,
            "<path d=\"M{MARGIN} {at:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{what}</text>",
            WIDTH - MARGIN,
            MARGIN - 6.0,
            at + 4.0,
        );
    }
    for (at, what) in across {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{what}</text>",
            x(*at),
            HEIGHT - 20.0
        );
    }
    for (place, (line, colour)) in lines.iter().zip(COLOURS).enumerate() {
        let points: String =
            line.points.iter().map(|(at, value)| format!("{:.1},{:.1} ", x(*at), y(scale(*value)))).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\
             <text x=\"{:.1}\" y=\"14\" fill=\"{colour}\">{}</text>",
            MARGIN + 110.0 * place as f64,
            line.name,
        );
    }
    svg + "</svg>"
}

/// Rates as points, at most [`POINTS_MAX`].
fn thinned(seconds: &[u64]) -> Vec<(f64, f64)> {
    let step = seconds.len().div_ceil(POINTS_MAX).max(1);
    let mean = |(at, chunk): (usize, &[u64])| {
        ((at * step) as f64, chunk.iter().sum::<u64>() as f64 / chunk.len() as f64)
    };
    seconds.chunks(step).enumerate().map(mean).collect()
}

/// A distribution on the axis of nines.
fn nines(curve: Option<&Series>) -> Vec<(f64, f64)> {
    let Some(curve) = curve else { return Vec::new() };
    let last = curve.iter().rev().nth(1).map_or(0.0, |(percent, _)| nine(*percent));
    let place = |percent: f64| if percent >= 100.0 { (last + 0.3).min(6.0) } else { nine(percent) };
    curve.iter().map(|(percent, time)| (place(*percent), *time)).collect()
}

fn nine(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).log10()
}

fn nines_marks() -> Vec<Mark> {
    [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999].map(|percent| (nine(percent), format!("{percent} %"))).into()
}

fn seconds_marks(rates: &[Line<'_>]) -> Vec<Mark> {
    let end = rates.iter().filter_map(|line| line.points.last()).map(|(at, _)| *at).fold(0.0, f64::max);
    round_marks(end, " s")
}

/// Marks at multiples of 1, 2 or 5 times a power of ten, up to five beside 0; whole numbers only.
fn round_marks(end: f64, unit: &str) -> Vec<Mark> {
    let steps = (0..18).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
    let step = steps.into_iter().find(|step| end / step < 6.0).unwrap_or(end);
    let mark = |count: u32| (step * f64::from(count), format!("{}{unit}", step * f64::from(count)));
    (0..6).map(mark).take_while(|(at, _)| *at <= end).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_seconds_become_few_points_of_the_same_mean() {
        assert_eq!(thinned(&[1, 2, 3]), [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
        let points = thinned(&vec![5; 4 * POINTS_MAX + 1]);
        assert!(points.len() <= POINTS_MAX && points.iter().all(|(_, rate)| *rate == 5.0));
        assert_eq!(thinned(&[]), []);
    }

    #[test]
    fn marks_are_round_and_each_is_another() {
        let texts = |end| round_marks(end, " s").into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts(2.0), ["0 s", "1 s", "2 s"]);
        assert_eq!(texts(0.0), ["0 s"]);
        assert_eq!(texts(3501.0), ["0 s", "1000 s", "2000 s", "3000 s"]);
        assert_eq!(texts(59.0), ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s"]);
    }

    #[test]
    fn plots_stay_on_their_paper() {
        let lines = [
            Line { name: "one", points: vec![(0.0, 0.0), (3.0, 12_345.0)] },
            Line { name: "empty", points: Vec::new() },
        ];
        for is_log in [false, true] {
            let svg = plot(&lines, &nines_marks(), is_log);
            let points =
                svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a line");
            for point in points.split_whitespace() {
                let (x, y) = point.split_once(',').expect("two numbers");
                assert!(
                    (0.0..=WIDTH).contains(&x.parse().unwrap())
                        && (0.0..=HEIGHT).contains(&y.parse().unwrap())
                );
            }
        }
    }

    #[test]
    fn names_are_text() {
        assert_eq!(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
