//! A report as a page of plots: one HTML file that needs nothing else.
//!
//! Percentiles are drawn on an axis of nines (0, 90, 99, 99.9 %), where the end of a distribution has room.

use api::replay::{Comparison, ReplayReport, Series, ServerSecond};

use crate::observe::TIME_WAIT;
use crate::plot::{Axis, Line, Mark, POINTS_MAX, Plot, escaped, round_marks};
use crate::remarks::{counted, lost_here};

/// The page of a report, with its [`mod@crate::remarks`].
pub fn page(report: &ReplayReport, remarks: &[String]) -> String {
    let rate = |name: &str, seconds: &[u64]| Line::new(name, rates(seconds, report.seconds));
    let rates = vec![
        rate("due", &report.due_per_second),
        rate("sent", &report.sent_per_second),
        rate("answered", &report.answered_per_second),
    ];
    let curve = |name: &str, key: &str| Line::new(name, nines(report.curves.get(key)));
    let times =
        vec![curve("lateness", "lateness"), curve("from due", "latency"), curve("from sent", "latency_sent")];
    let clients = vec![curve("quiet", "quiet"), curve("busy", "busy")];
    let verdict = match report.on_time {
        Some(true) => "On time: the 99.9th percentile of lateness is within the tolerance.",
        Some(false) => "<strong>OUT OF TOLERANCE: this run was not sent on time.</strong>",
        None if report.sent_per_second.iter().all(|sent| *sent == 0) => "<strong>Nothing was sent.</strong>",
        None => "Sent as fast as answers came: there are no due times.",
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Replay of {trace}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}\
         svg{{width:100%;height:auto}}</style>\n\
         <h1>Replay of {trace}</h1>\n\
         <p>{queries} to {servers} in {seconds:.1} s: {answers} answered, {lost} lost, {retries} asked again \
         over TCP. {verdict}{comparison}</p>\n{remarks}\
         <h2>Queries a second</h2>\n{rates}\n\
         <h2>Lateness and latency</h2>\n<p>Share of queries that took at most so long, in microseconds.</p>\n{times}\n\
         <h2>Latency of quiet and busy clients</h2>\n<p>From sent; quiet clients had sent fewer than ten queries in \
         the minute.</p>\n{clients}\n{server}</html>\n",
        trace = escaped(&report.trace),
        queries = counted(report.queries, "query"),
        servers = escaped(&report.servers.join(", ")),
        seconds = report.seconds,
        answers = report.answers,
        lost = report.lost,
        retries = report.tc_retries,
        remarks = remarked(report, remarks),
        comparison = report.comparison.as_ref().map_or_else(String::new, compared),
        rates = over_time(rates),
        times = of_nines(times),
        clients = of_nines(clients),
        server = report
            .server_seconds
            .as_deref()
            .map_or_else(String::new, |seconds| observed(seconds, report.seconds)),
    )
}

/// What the numbers mean, a paragraph each.
fn remarked(report: &ReplayReport, remarks: &[String]) -> String {
    let all = lost_here(report).into_iter().chain(remarks.iter().cloned());
    all.map(|remark| format!("<p><strong>{}</strong></p>\n", escaped(&remark))).collect()
}

/// Answers beside the recorded ones, as a sentence.
fn compared(told: &Comparison) -> String {
    let differing = told.differing.iter().filter(|(_, count)| **count > 0);
    let differing: String = differing.map(|(what, count)| format!(", differing ({what}): {count}")).collect();
    format!(
        " Of {} held against the recorded ones, the same: {}{differing}, not known as one was truncated: {}.",
        counted(told.compared, "answer"),
        told.same,
        told.truncated
    )
}

/// The most cores that are drawn: the busiest, as more lines could not be told apart.
const CORES_MAX: usize = 8;

/// The server's processor time, memory and connections as plots, of a run that took so long.
fn observed(seconds: &[ServerSecond], run: f64) -> String {
    let ends = read_at(seconds.len(), run);
    let line = |name: &str, of: &dyn Fn(&ServerSecond) -> f64| {
        let step = ends.len().div_ceil(POINTS_MAX).max(1);
        let points = ends.iter().zip(seconds).step_by(step).map(|(at, second)| (*at, of(second)));
        Line::new(name, points.collect())
    };
    let cpu =
        vec![line("user", &|second| second.user * 100.0), line("system", &|second| second.system * 100.0)];
    let cores = busiest(seconds).into_iter().map(|core| {
        let of = |second: &ServerSecond| second.cores.get(core).copied().unwrap_or(0.0) * 100.0;
        line(&format!("core {core}"), &of)
    });
    let mut memory = vec![line("resident", &|second| second.resident_octets as f64 / f64::from(1 << 20))];
    // What was not told is not drawn as nothing.
    if seconds.iter().all(|second| second.socket_octets.is_some()) {
        let sockets = |second: &ServerSecond| second.socket_octets.unwrap_or(0) as f64 / f64::from(1 << 20);
        memory.push(line("sockets", &sockets));
    }
    let state =
        |name: &'static str| line(name, &move |second| second.tcp.get(name).copied().unwrap_or(0) as f64);
    let states = ["established", "syn-received", "close-wait", "fin-wait-2", TIME_WAIT];
    let mut tcp = Vec::from(states.map(state));
    // The first stays, so that a server without connections is seen to have had none.
    tcp.retain(|line| line.name == states[0] || line.points.iter().any(|(_, count)| *count > 0.0));
    format!(
        "<h2>The server: processor time</h2>\n<p>Per cent of one core.</p>\n{}\n\
         <h2>The server: processor time by core</h2>\n<p>Per cent of each; a thread's time counts for the core on which \
         it was last seen.</p>\n{}\n<h2>The server: memory</h2>\n<p>MiB, resident \
         and of its sockets where the kernel tells.</p>\n{}\n<h2>The server: TCP sockets</h2>\n{}\n",
        over_time(cpu),
        over_time(cores.collect()),
        over_time(memory),
        over(Axis { is_count: true, ..Axis::default() }, tcp)
    )
}

/// Where seconds that were read end, of a run that took so long: its last one with it, and what was read later is none of
/// it.
fn read_at(count: usize, run: f64) -> Vec<f64> {
    let begun = (0..count).map(|at| at as f64).take_while(|at| *at < run);
    begun.map(|at| (at + 1.0).min(run)).collect()
}

/// The cores on which the server used most time, in their order; at most [`CORES_MAX`].
fn busiest(seconds: &[ServerSecond]) -> Vec<usize> {
    let mut used: Vec<(usize, f64)> = Vec::new();
    for (core, time) in seconds.iter().flat_map(|second| second.cores.iter().copied().enumerate()) {
        match used.get_mut(core) {
            Some((_, sum)) => *sum += time,
            None => used.push((core, time)),
        }
    }
    used.retain(|(_, time)| *time > 0.0);
    used.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    used.truncate(CORES_MAX);
    let mut cores: Vec<usize> = used.into_iter().map(|(core, _)| core).collect();
    cores.sort_unstable();
    cores
}

/// Lines over the seconds of a run.
fn over_time(lines: Vec<Line>) -> String {
    over(Axis::default(), lines)
}

fn over(up: Axis, lines: Vec<Line>) -> String {
    let end = lines.iter().filter_map(|line| line.points.last()).map(|(at, _)| *at).fold(0.0, f64::max);
    let across = Axis { marks: round_marks(0.0, end, " s"), ..Axis::default() };
    Plot { across, up, lines }.svg()
}

/// Distributions: times of powers of ten over an axis of nines.
fn of_nines(lines: Vec<Line>) -> String {
    let end = lines.iter().filter_map(|line| line.points.last()).map(|(at, _)| *at).fold(0.0, f64::max);
    let across = Axis { marks: nines_marks(end), ..Axis::default() };
    Plot { across, up: Axis { is_log: true, ..Axis::default() }, lines }.svg()
}

/// Rates of a run of so many seconds as points: those of its whole seconds, as what is counted in a part of one is no rate
/// of it; of a run that has no whole one, the mean.
fn rates(counts: &[u64], seconds: f64) -> Vec<(f64, f64)> {
    match counts.first() {
        Some(count) if seconds > 0.0 && seconds < 1.0 => {
            let rate = *count as f64 / seconds;
            vec![(0.0, rate), (seconds, rate)]
        }
        _ => thinned(&counts[..counts.len().min(seconds as usize)]),
    }
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

/// Marks up to the first behind the end of what is drawn: of few queries there are few nines.
fn nines_marks(end: f64) -> Vec<Mark> {
    let mut marks = Vec::from(
        [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999].map(|percent| (nine(percent), format!("{percent} %"))),
    );
    let behind = marks.iter().position(|(at, _)| *at >= end);
    marks.truncate(behind.map_or(marks.len(), |behind| behind + 1).max(3));
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_numbers_mean_is_on_the_page() {
        let lost_by = [("evicted".into(), 5)].into();
        let report = ReplayReport { queries: 1, lost_by, ..ReplayReport::default() };
        let told = page(&report, &["Interrupted: <here>".into()]);
        for part in ["5 queries lost here", "Interrupted: &lt;here&gt;", "1 query to"] {
            assert!(told.contains(part), "no '{part}' in: {told}");
        }
        assert!(page(&ReplayReport::default(), &[]).contains("<strong>Nothing was sent.</strong>"));
        let report = ReplayReport { sent_per_second: vec![0, 1], ..ReplayReport::default() };
        assert!(!page(&report, &[]).contains("<strong>"));
        let differing = [("rcode".into(), 0), ("unreadable".into(), 2)].into();
        let comparison = Some(Comparison { compared: 5, same: 3, differing, ..Comparison::default() });
        let told = page(&ReplayReport { comparison, ..ReplayReport::default() }, &[]);
        assert!(
            told.contains(" Of 5 answers") && told.contains("the same: 3, differing (unreadable): 2,"),
            "{told}"
        );
    }

    #[test]
    fn the_busiest_cores_are_drawn() {
        let second = |cores: &[f64]| ServerSecond { cores: cores.to_vec(), ..ServerSecond::default() };
        assert_eq!(busiest(&[second(&[0.0, 0.5, 0.0]), second(&[0.1, 0.0, 0.0])]), [0, 1]);
        let many: Vec<f64> = (0..40).map(f64::from).collect();
        assert_eq!(busiest(&[second(&many)]), [32, 33, 34, 35, 36, 37, 38, 39]);
        assert!(busiest(&[]).is_empty());
    }

    #[test]
    fn a_server_is_drawn_to_the_end_of_the_run() {
        assert_eq!(read_at(2, 0.9), [0.9]);
        assert_eq!(read_at(3, 2.5), [1.0, 2.0, 2.5]);
        assert_eq!(read_at(2, 2.0), [1.0, 2.0]);
        // A server that ended leaves its series short.
        assert_eq!(read_at(1, 9.0), [1.0]);
    }

    #[test]
    fn a_part_of_a_second_is_no_second() {
        assert_eq!(rates(&[5, 5, 1], 2.25), [(0.0, 5.0), (1.0, 5.0)]);
        assert_eq!(rates(&[5], 2.25), [(0.0, 5.0)]);
        assert_eq!(rates(&[64], 0.5), [(0.0, 128.0), (0.5, 128.0)]);
        assert_eq!((rates(&[], 0.5), rates(&[1], 0.0)), (vec![], vec![]));
    }

    #[test]
    fn an_axis_of_nines_ends_behind_what_is_drawn() {
        let last = |end| nines_marks(end).pop().map(|(_, told)| told);
        let told = [0.0, 1.0, 1.3, 3.3, 5.3].map(last);
        assert_eq!(told, ["90 %", "90 %", "99 %", "99.99 %", "99.999 %"].map(|mark| Some(mark.into())));
    }

    #[test]
    fn many_seconds_become_few_points_of_the_same_mean() {
        assert_eq!(thinned(&[1, 2, 3]), [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
        let points = thinned(&vec![5; 4 * POINTS_MAX + 1]);
        assert!(points.len() <= POINTS_MAX && points.iter().all(|(_, rate)| *rate == 5.0));
        assert_eq!(thinned(&[]), []);
    }
}
