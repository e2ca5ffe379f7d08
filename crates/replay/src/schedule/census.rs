//! What the schedule must know of the whole trace before its first query.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::timeline::Timeline;
use crate::trace::{Damage, Message};

/// The most times between queries of one client that are kept for servload's scores: 64 MiB.
const THINK_TIMES_MAX: u64 = 1 << 24;

/// The longest trace in seconds for servload's peaks: a year, 128 MiB at most.
const SECONDS_MAX: u64 = 366 * 86_400;

/// The highest score of one of servload's three metrics, and the sum above which a session is cloned.
const METRIC_SCORE: f64 = 33.0;
const SCORE_OVER: f64 = 50.0;

/// What was counted in a first pass over a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Census {
    /// The mean time from a query to the next, in nanoseconds; 0 for fewer than two queries.
    pub gap_mean: u64,
    /// Servload's peaks: whether the rate in a second is the median or more.
    peaks: Vec<bool>,
    /// Servload's scores: clients whose sessions are close to the median one.
    typical: HashSet<IpAddr>,
}

/// Which numbers a census takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The mean gap alone.
    Gap,
    /// And servload's peaks.
    Peaks,
    /// And servload's scores.
    Scores,
}

/// A trace that is too large for what is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLarge {
    /// More queries than the scores keep.
    Queries(u64),
    /// More seconds than the peaks keep.
    Seconds(u64),
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TooLarge::Queries(most) => write!(f, "servload's scores are known for at most {most} queries"),
            TooLarge::Seconds(most) => write!(f, "servload's peaks are known for at most {most} seconds"),
        }
    }
}

impl std::error::Error for TooLarge {}

/// One client's queries.
#[derive(Debug, Default)]
struct Session {
    times: Vec<u64>,
}

impl Census {
    /// Reads a trace to its end, or to where it breaks off.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn of(
        messages: impl Iterator<Item = Result<Message, Damage>>,
        wanted: Wanted,
    ) -> Result<Census, TooLarge> {
        let mut timeline = Timeline::default();
        let mut queries: u64 = 0;
        let mut seconds: Vec<u32> = Vec::new();
        let mut sessions: HashMap<IpAddr, Session> = HashMap::new();
        for message in messages.map_while(Result::ok).filter(|message| !message.is_response()) {
            let at = timeline.place(message.time);
            queries += 1;
            match wanted {
                Wanted::Gap => {}
                Wanted::Peaks => {
                    let second = second(at);
                    if second as u64 > SECONDS_MAX {
                        return Err(TooLarge::Seconds(SECONDS_MAX));
                    }
                    seconds.resize(seconds.len().max(second + 1), 0);
                    seconds[second] = seconds[second].saturating_add(1);
                }
                Wanted::Scores if queries > THINK_TIMES_MAX => {
                    return Err(TooLarge::Queries(THINK_TIMES_MAX));
                }
                Wanted::Scores => sessions.entry(message.client.ip()).or_default().times.push(at),
            }
        }
        Ok(Census {
            gap_mean: timeline.last().checked_div(queries.saturating_sub(1)).unwrap_or(0),
            peaks: peaks(&seconds),
            typical: typical(sessions),
        })
    }

    /// Whether servload's peak method clones a query at `at`, in nanoseconds from the trace's first.
    pub fn is_peak(&self, at: u64) -> bool {
        self.peaks.get(second(at)).copied().unwrap_or(false)
    }

    /// Whether servload's score method clones a client.
    pub fn is_typical(&self, client: IpAddr) -> bool {
        self.typical.contains(&client)
    }
}

/// The second of a time, as servload counts them: rounded.
fn second(at: u64) -> usize {
    usize::try_from((at + 500_000_000) / 1_000_000_000).unwrap_or(usize::MAX)
}

fn peaks(seconds: &[u32]) -> Vec<bool> {
    let median = median(seconds.iter().map(|count| f64::from(*count)).collect());
    seconds.iter().map(|count| f64::from(*count) >= median).collect()
}

/// Servload's score method: number of queries, duration and median think time of each session, scored by how
/// close they are to the median session's, where an average absolute deviation away is worth nothing.
fn typical(sessions: HashMap<IpAddr, Session>) -> HashSet<IpAddr> {
    let metrics: Vec<(IpAddr, [f64; 3])> =
        sessions.into_iter().map(|(client, session)| (client, session.metrics())).collect();
    let scales: [(f64, f64); 3] = std::array::from_fn(|metric| {
        let values: Vec<f64> = metrics.iter().map(|(_, values)| values[metric]).collect();
        let middle = median(values.clone());
        let count = values.len().max(1) as f64;
        let mut away: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        // Sorted, so that the sum does not depend on the order in the table.
        away.sort_unstable_by(f64::total_cmp);
        (middle, away.iter().sum::<f64>() / count)
    });
    let score = |values: &[f64; 3]| -> f64 {
        values.iter().zip(scales).map(|(value, (middle, scale))| points((value - middle).abs(), scale)).sum()
    };
    metrics.iter().filter(|(_, values)| score(values) > SCORE_OVER).map(|(client, _)| *client).collect()
}

fn points(away: f64, scale: f64) -> f64 {
    if scale == 0.0 {
        return if away == 0.0 { METRIC_SCORE } else { 0.0 };
    }
    if away > scale { 0.0 } else { (METRIC_SCORE * (1.0 - away / scale)).round() }
}

impl Session {
    fn metrics(self) -> [f64; 3] {
        let (Some(first), Some(last)) = (self.times.first(), self.times.last()) else { return [0.0; 3] };
        // Servload counts a wait of 0 before the first query.
        let waits = std::iter::once(0.0).chain(self.times.windows(2).map(|pair| (pair[1] - pair[0]) as f64));
        let think = if self.times.len() > 1 { median(waits.collect()) } else { 0.0 };
        [self.times.len() as f64, (last - first) as f64, think]
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[length / 2],
        length => (values[length / 2 - 1] + values[length / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn census(lines: &str, wanted: Wanted) -> Census {
        let trace = Trace::read(std::io::Cursor::new(lines.to_owned().into_bytes()), 53).expect("a text");
        Census::of(trace, wanted).expect("it is small")
    }

    #[test]
    fn the_mean_gap_is_known() {
        let lines = "5.0 192.0.2.1:1 udp a. A -\n6.0 192.0.2.1:1 udp a. A -\n8.0 192.0.2.2:1 udp a. A -\n";
        assert_eq!(census(lines, Wanted::Gap).gap_mean, 1_500_000_000);
        assert_eq!(census("5.0 192.0.2.1:1 udp a. A -\n", Wanted::Gap).gap_mean, 0);
    }

    #[test]
    fn peaks_are_seconds_at_the_median_or_above() {
        // Rounded seconds 0, 1, 2, 3 with 1, 3, 0, 2 queries: the median is 1.5.
        let lines: String = ["10.0", "10.6", "11.0", "11.4", "12.6", "12.7"]
            .map(|time| format!("{time} 192.0.2.1:1 udp a. A -\n"))
            .concat();
        let census = census(&lines, Wanted::Peaks);
        let ms = 1_000_000;
        let seen = [0, 600 * ms, 1_400 * ms, 2_000 * ms, 2_600 * ms, 9_000 * ms].map(|at| census.is_peak(at));
        assert_eq!(seen, [false, true, true, false, true, false]);
    }

    #[test]
    fn typical_sessions_score_over_fifty() {
        // Three sessions of two queries a second apart, one of five over a minute.
        let mut lines: Vec<(u32, u8)> = vec![(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)];
        lines.extend([0, 15, 30, 45, 60].map(|time| (time, 9)));
        lines.sort_unstable();
        let lines: String =
            lines.iter().map(|(time, client)| format!("{time}.0 192.0.2.{client}:1 udp a. A -\n")).collect();
        let census = census(&lines, Wanted::Scores);
        for (last, expected) in [(1, true), (2, true), (3, true), (9, false), (4, false)] {
            assert_eq!(census.is_typical([192, 0, 2, last].into()), expected, "{last}");
        }
    }
}
