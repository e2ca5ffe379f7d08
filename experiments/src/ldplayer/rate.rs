//! Figure 9: the highest rate over time.

use anyhow::Result;
use experiments::echo;
use experiments::traces;
use replay::plot::{Axis, Line, Plot, Stroke};

use super::stage::{Stage, to_server_core};
use crate::options::{Run, Size};
use crate::process::free;
use crate::report::{Limit, Report, number};

/// LDplayer's rate in queries a second, on four cores.
const PUBLISHED: f64 = 87_000.0;

/// How long a sample is, in seconds, as LDplayer's.
const SAMPLE: usize = 2;

/// Queries for each second that is to be measured: more than one core sends.
const A_SECOND: u64 = 150_000;

/// Does this part.
pub(super) fn perform(stage: &Stage, run: &Run, report: &mut Report) -> Result<()> {
    report.heading("The highest rate (figure 9)");
    report.say(
        "One core sends for one client as fast as answers come back, at most 1,000 of them outstanding, against an \
         echo on the other core. LDplayer's generator, distributor and six queriers together sent 87,000 queries/s \
         on four cores.",
    );
    let names = stage.folder.join("names");
    traces::names(&names)?;
    let seconds: u64 = run.size.of(300, 10, 1);
    let limit = (seconds * A_SECOND).to_string();
    let here = free()?;
    let fast = ["--fast", "--window", "1000", "--loop", "1000000", "--limit", &limit];
    let sent = echo::during(here, to_server_core, || stage.pointsman.replay(&names, here, &fast))?;
    let samples: Vec<f64> = sent
        .sent_per_second
        .chunks_exact(SAMPLE)
        .map(|sample| sample.iter().sum::<u64>() as f64 / SAMPLE as f64)
        .collect();
    let points: Vec<(f64, f64)> =
        samples.iter().enumerate().map(|(at, rate)| ((at * SAMPLE) as f64, *rate)).collect();
    let end = points.last().map_or(1.0, |(at, _)| *at);
    let published =
        Line::new("LDplayer, four cores", vec![(0.0, PUBLISHED), (end, PUBLISHED)]).drawn(Stroke::Dashed);
    let lines = vec![Line::new("ours, one core", points), published];
    let plot = Plot { across: Axis::titled("s"), up: Axis::titled("queries/s"), lines };
    report.plot("Figure 9: rate in samples of two seconds", plot);
    let rate = sent.queries as f64 / sent.seconds;
    report.say(&format!(
        "{} queries/s over {:.0} s; {} were lost.",
        number(rate.round()),
        sent.seconds,
        sent.lost
    ));
    if run.size == Size::Full {
        report.must("highest rate, queries/s", Limit::AtLeast(PUBLISHED), rate);
    } else {
        report.must(
            "queries answered of those sent, share",
            Limit::AtLeast(0.5),
            sent.answers as f64 / sent.queries as f64,
        );
    }
    Ok(())
}
