//! What is seen while the demo runs: a picture that is drawn over itself, or plain lines without a terminal.

use std::time::Duration;

use super::sample::{BySite, REGIONS, SITES};
use super::watch::{Changed, Watch};

/// The width of the column of regions, in characters.
const LABEL: usize = 14;

/// What stands in a cell beside its bar: two spaces before, and ` 100 %` behind.
const BESIDE_BAR: usize = 8;

/// The lengths of a bar, in characters: shorter ones tell nothing, longer ones nothing more.
const BAR: std::ops::RangeInclusive<usize> = 4..=30;

/// How many changes are shown: all of the script. With more, the first line would leave a terminal of 24.
const CHANGES_SHOWN: usize = 4;

/// The eighths of a block, of which a bar's end is one.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// How a piece of text looks, where there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Bold,
    Dim,
    Bar,
    Bad,
}

/// A line in pieces.
type Line = Vec<(Look, String)>;

/// What a picture shows.
pub(super) struct View<'a> {
    pub(super) now: Duration,
    pub(super) watch: &'a Watch,
    pub(super) api: &'a str,
}

/// The picture, a line each, of `columns` characters at most.
pub(super) fn picture(view: &View<'_>, columns: usize, has_colours: bool) -> Vec<String> {
    let bar = (columns.saturating_sub(LABEL) / SITES.len()).saturating_sub(BESIDE_BAR);
    let bar = bar.clamp(*BAR.start(), *BAR.end());
    let watch = view.watch;
    let in_force = watch.timeline.latest();
    let answers = watch.tally.last_second(view.now);
    let mut lines = heading(view, answers.iter().flatten().sum());
    lines.push(Line::new());
    lines.extend(sites(in_force.down, bar));
    for (region, row) in answers.iter().enumerate() {
        lines.push(shares(REGIONS[region], row, bar));
        lines.push(foretold(in_force.chances(region), bar));
    }
    lines.push(Line::new());
    lines.extend(changes(view));
    lines.iter().map(|line| written(line, columns, has_colours)).collect()
}

/// What is told each second where there is no terminal.
pub(super) fn second(view: &View<'_>) -> String {
    let watch = view.watch;
    let answers = watch.tally.last_second(view.now);
    let total: u32 = answers.iter().flatten().sum();
    let seconds = view.now.as_secs();
    let mut line =
        format!("{seconds:>4} s  generation {:<4} {} answers/s", watch.generation, grouped(total.into()));
    for (region, row) in answers.iter().enumerate() {
        let shares = percent(row).map(|share| format!("{share:>3}")).join(" ");
        line.push_str(&format!("  {} {shares}", REGIONS[region]));
    }
    line
}

/// What the numbers of [`second`] are.
pub(super) fn legend() -> String {
    format!(
        "each second: the share of {} in each region's answers, in %",
        SITES.map(|site| site.name).join(", ")
    )
}

/// How long a change took, in one line.
pub(super) fn change(change: &Changed) -> String {
    format!(
        "{:>6.1} s  {}: first answer after {}, call returned after {} (generation {})",
        change.at.as_secs_f64(),
        change.what,
        taken(change.first_answer),
        taken(change.returned),
        change.generation,
    )
}

/// A time in milliseconds; a hyphen for none yet.
pub(super) fn taken(time: Option<Duration>) -> String {
    time.map_or("-".into(), |time| format!("{:.1} ms", time.as_secs_f64() * 1_000.0))
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn heading(view: &View<'_>, rate: u32) -> Vec<Line> {
    let tally = &view.watch.tally;
    let plain = |text: String| (Look::Plain, text);
    let count = |count: u64, what: &str| {
        (if count > 0 { Look::Bad } else { Look::Plain }, format!("{} {what}", grouped(count)))
    };
    let seconds = view.now.as_secs();
    vec![
        vec![
            (Look::Bold, format!("{:<LABEL$}", "pointsman demo")),
            plain(format!("  {:>02}:{:>02}   ", seconds / 60, seconds % 60)),
            count(tally.lost, "lost"),
            plain("   ".into()),
            count(tally.wrong, "wrong"),
            plain(format!("   {} answers/s", grouped(rate.into()))),
            plain(format!("   generation {}", view.watch.generation)),
        ],
        vec![
            plain(format!("{:<LABEL$}  ", "policy")),
            (Look::Bold, view.watch.timeline.latest().matrix.name.into()),
        ],
        vec![plain(format!("{:<LABEL$}  {}", "API", view.api))],
    ]
}

/// The sites, and of each a server, where there is room for all of its address.
fn sites(down: BySite<bool>, bar: usize) -> [Line; 2] {
    let width = bar + BESIDE_BAR - 2;
    let mut names = vec![(Look::Plain, " ".repeat(LABEL))];
    let mut addresses = names.clone();
    for (site, down) in SITES.iter().zip(down) {
        let (look, state) = if down { (Look::Bad, " DOWN") } else { (Look::Bold, "") };
        names.push((look, format!("  {:<width$}", format!("{}{state}", site.name))));
        let address = site.servers()[0].to_string();
        let address = if address.len() <= width { &address } else { "" };
        addresses.push((Look::Dim, format!("  {address:<width$}")));
    }
    [names, addresses]
}

fn shares(region: &str, answers: &BySite<u32>, bar: usize) -> Line {
    let total = answers.iter().sum::<u32>().max(1);
    let mut line = vec![(Look::Plain, format!("{region:<LABEL$}"))];
    for (count, percent) in answers.iter().zip(percent(answers)) {
        let blocks = blocks(f64::from(*count) / f64::from(total), bar);
        line.push((Look::Bar, format!("  {blocks:<bar$}")));
        line.push((Look::Plain, format!(" {percent:>3} %")));
    }
    line
}

fn foretold(chances: BySite<f64>, bar: usize) -> Line {
    let mut line = vec![(Look::Dim, format!("{:<LABEL$}", "  policy"))];
    line.extend(chances.map(|chance| (Look::Dim, format!("  {:bar$} {:>3.0} %", "", chance * 100.0))));
    line
}

fn changes(view: &View<'_>) -> Vec<Line> {
    let cells = |look, [what, seen, returned]: [&str; 3]| {
        vec![(look, what.to_owned()), (look, format!(" {seen:>14}")), (look, format!(" {returned:>15}"))]
    };
    let heading = format!("{:>6}    {:<30}", "", "change");
    let mut lines = vec![cells(Look::Dim, [&heading, "first answer", "call returned"])];
    let all = &view.watch.changes;
    let shown = all.iter().skip(all.len().saturating_sub(CHANGES_SHOWN)).map(|change| {
        let (seen, returned) = (taken(change.first_answer), taken(change.returned));
        let what = format!("{:>6.1} s  {:<30}", change.at.as_secs_f64(), change.what);
        cells(Look::Plain, [&what, &seen, &returned])
    });
    lines.extend(shown);
    // The picture keeps its height.
    lines.resize(1 + CHANGES_SHOWN, Line::new());
    lines
}

/// A bar of `share` (0 to 1) of `width` characters, to the eighth of one.
fn blocks(share: f64, width: usize) -> String {
    let eighths = (share * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

fn percent(answers: &BySite<u32>) -> BySite<u32> {
    let total = answers.iter().sum::<u32>().max(1);
    answers.map(|count| (f64::from(count) / f64::from(total) * 100.0).round() as u32)
}

/// As much of a line as there is room for, in whole pieces: a number that is cut is another number.
fn written(line: &Line, columns: usize, has_colours: bool) -> String {
    let mut text = String::new();
    let mut room = columns;
    for (look, piece) in line {
        let Some(left) = room.checked_sub(piece.chars().count()) else { break };
        room = left;
        match look.code().filter(|_| has_colours) {
            Some(code) => text.push_str(&format!("\x1b[{code}m{piece}\x1b[0m")),
            None => text.push_str(piece),
        }
    }
    text
}

impl Look {
    /// The parameters of SGR (ECMA-48 §8.3.117).
    fn code(self) -> Option<&'static str> {
        match self {
            Look::Plain => None,
            Look::Bold => Some("1"),
            Look::Dim => Some("2"),
            Look::Bar => Some("36"),
            Look::Bad => Some("1;31"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_force::InForce;
    use super::super::sample::{Cells, NEAREST, SCRIPT};
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn watch(answers: Cells<u32>) -> Watch {
        let in_force = InForce { matrix: &NEAREST, down: [false; SITES.len()] };
        let mut watch = Watch::new(in_force, 5, Default::default(), fastrand::Rng::with_seed(0));
        watch.begin(ms(2_000), &SCRIPT[2]);
        watch.returned(ms(2_004), 6);
        watch.changes[0].first_answer = Some(Duration::from_micros(3_460));
        watch.begin(ms(61_000), &SCRIPT[0]);
        for (region, row) in answers.iter().enumerate() {
            for (site, count) in row.iter().enumerate() {
                (0..*count).for_each(|_| watch.tally.answered(ms(60_900), region, site));
            }
        }
        watch
    }

    const ANSWERS: Cells<u32> = [[402, 98, 0], [1, 499, 0], [248, 252, 0], [0, 0, 0]];

    #[test]
    fn a_picture() {
        let watch = watch(ANSWERS);
        let view = View { now: ms(61_050), watch: &watch, api: "http://127.0.0.1:8053" };
        let expected = "\
pointsman demo  01:01   0 lost   0 wrong   1,500 answers/s   generation 6
policy          frankfurt drained
API             http://127.0.0.1:8053

                frankfurt             new-york              singapore DOWN
                192.0.2.10            198.51.100.10         203.0.113.10
europe          ███████████▎    80 %  ██▊             20 %                   0 %
  policy                         0 %                 100 %                   0 %
americas                         0 %  ██████████████ 100 %                   0 %
  policy                         0 %                 100 %                   0 %
asia            ███████         50 %  ███████         50 %                   0 %
  policy                        50 %                  50 %                   0 %
unclassified                     0 %                   0 %                   0 %
  policy                         0 %                 100 %                   0 %

          change                           first answer   call returned
   2.0 s  singapore down                         3.5 ms          4.0 ms
  61.0 s  policy: frankfurt drained                   -               -

";
        let lines = picture(&view, 80, false);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        let shown: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        assert_eq!(shown.join("\n"), expected);
    }

    #[test]
    fn a_line_a_second() {
        let watch = watch(ANSWERS);
        let view = View { now: ms(61_050), watch: &watch, api: "" };
        assert_eq!(
            second(&view),
            "  61 s  generation 6    1,500 answers/s  europe  80  20   0  americas   0 100   0  asia  50  50   0  \
             unclassified   0   0   0"
        );
        assert_eq!(
            change(&watch.changes[0]),
            "   2.0 s  singapore down: first answer after 3.5 ms, call returned after 4.0 ms (generation 6)"
        );
        assert_eq!(taken(watch.changes[1].first_answer), "-");
    }

    #[test]
    fn narrow_terminals_and_colours() {
        let watch = watch(ANSWERS);
        let view = View { now: ms(61_050), watch: &watch, api: "http://127.0.0.1:8053" };
        let wide = picture(&view, 200, false);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for columns in [0, 1, 20, 40, 59, 60, 200] {
            let lines = picture(&view, columns, false);
            // Counts and times stand there whole or not at all.
            for place in [0, 16, 17] {
                assert!(
                    words(&wide[place]).starts_with(&words(&lines[place])),
                    "{columns}: {}",
                    lines[place]
                );
            }
            assert!(columns < 40 || lines[0].contains("0 lost   0 wrong"), "{columns}: {}", lines[0]);
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{columns}");
            assert_eq!(lines.len(), picture(&view, 80, true).len());
            // An address that is cut is another one.
            let whole = SITES.map(|site| site.servers()[0].to_string());
            let told = lines[5].split_whitespace().all(|address| whole.iter().any(|whole| whole == address));
            assert!(told, "{columns}: {}", lines[5]);
        }
        let coloured = picture(&view, 80, true).join("\n");
        assert!(coloured.contains("\x1b[1;31m  singapore DOWN"), "{coloured}");
        assert!(!picture(&view, 80, false).join("\n").contains('\x1b'));
    }

    #[test]
    fn bars_and_numbers() {
        for (share, expected) in [(0.0, ""), (1.0, "████"), (0.5, "██"), (0.53, "██▏"), (0.97, "███▉")]
        {
            assert_eq!(blocks(share, 4), expected, "{share}");
        }
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
