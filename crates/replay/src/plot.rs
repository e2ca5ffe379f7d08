//! Lines drawn as SVG, for pages that need nothing else.

use std::fmt::Write as _;

/// The drawing's size and the room around it for axes, in SVG's units.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 70.0;

/// The row of the first names, the height of such a row, and the room that a letter of theirs takes, small or capital.
const NAMES_AT: f64 = 14.0;
const NAMES_ROW: f64 = 16.0;
const LETTER: f64 = 6.6;
const CAPITAL: f64 = 9.0;

/// The room below the lines: marks, and the axis' title.
const BELOW: f64 = 46.0;

/// The most points that a line is worth: what is more is thinner than a pixel.
pub const POINTS_MAX: usize = 860;

/// Where an axis of powers of ten begins at least, where that is not given: what is below is drawn there.
const LOG_FROM: f64 = 0.1;

/// Colours that stay apart in grey and for the colour-blind (Okabe, Ito 2008).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#7f7f7f"];

/// Lines on common axes.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// From left to right.
    pub across: Axis,
    /// From bottom to top.
    pub up: Axis,
    /// In the order in which they are drawn and named.
    pub lines: Vec<Line>,
}

/// An axis; the default is linear, from 0 to the largest value.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What it is of, with its unit; empty for no title.
    pub title: String,
    /// Whether it is one of powers of ten. Values below its beginning are drawn there.
    pub is_log: bool,
    /// What it says where; empty for round numbers.
    pub marks: Vec<Mark>,
    /// Whether it is one of counts, of which there are no parts.
    pub is_count: bool,
    /// Where it begins; not given: 0, and for powers of ten the one below the least value, 0.1 at least.
    pub from: Option<f64>,
    /// Where it ends at least.
    pub to: Option<f64>,
}

/// A mark of an axis: where, and what it says.
pub type Mark = (f64, String);

/// One line of a plot.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name, above the drawing; empty for none. A line without points has none there.
    pub name: String,
    /// Points from left to right; at most [`POINTS_MAX`] are of use.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub stroke: Stroke,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stroke {
    /// As a line.
    #[default]
    Solid,
    /// As a broken line: what was published, or a limit.
    Dashed,
    /// With what is below it shaded.
    Area,
    /// As dots that nothing joins.
    Dots,
}

impl Axis {
    /// A linear axis of this title.
    pub fn titled(title: impl Into<String>) -> Axis {
        Axis { title: title.into(), ..Axis::default() }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_log { value.max(self.begin()).log10() } else { value }
    }

    /// The same axis, which begins where it does for these values.
    fn begun(&self, values: impl Iterator<Item = f64>) -> Axis {
        let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let power =
            (self.is_log && least.is_finite()).then(|| 10_f64.powf(least.log10().floor()).max(LOG_FROM));
        Axis { from: self.from.or(power), ..self.clone() }
    }

    fn begin(&self) -> f64 {
        self.from.unwrap_or(if self.is_log { LOG_FROM } else { 0.0 })
    }

    /// The ends of the axis, as [`Axis::place`] has them, for these values.
    fn ends(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let marked = self.marks.iter().map(|(at, _)| *at);
        let begin = self.place(self.begin());
        let end = values.chain(marked).chain(self.to).map(|value| self.place(value)).fold(begin, f64::max);
        let end = if self.is_log { end.ceil() } else { end };
        (begin, if end > begin { end } else { begin + 1.0 })
    }

    fn marks(&self, (begin, end): (f64, f64)) -> Vec<Mark> {
        if !self.marks.is_empty() {
            self.marks.iter().map(|(at, text)| (self.place(*at), text.clone())).collect()
        } else if self.is_log {
            let powers = begin.ceil() as i32..=end as i32;
            powers.map(|power| (f64::from(power), format!("{}", 10_f64.powi(power)))).collect()
        } else {
            stepped_marks((begin, end), "", if self.is_count { 1.0 } else { 0.0 })
        }
    }
}

impl Line {
    /// A solid line.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        Line { name: name.into(), points, stroke: Stroke::Solid }
    }

    /// The same line, drawn otherwise.
    pub fn drawn(self, stroke: Stroke) -> Line {
        Line { stroke, ..self }
    }
}

impl Plot {
    /// The drawing as an `svg` element, which is also a file's whole content.
    pub fn svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| line.points.iter());
        let x_axis = self.across.begun(all().map(|(x, _)| *x));
        let y_axis = self.up.begun(all().map(|(_, y)| *y));
        let across = x_axis.ends(all().map(|(x, _)| *x));
        let up = y_axis.ends(all().map(|(_, y)| *y));
        let (names, rows) = self.names();
        let top = NAMES_AT + NAMES_ROW * rows as f64;
        let height = HEIGHT + NAMES_ROW * rows as f64;
        let floor = height - BELOW;
        let share = |value: f64, (begin, end): (f64, f64)| ((value - begin) / (end - begin)).clamp(0.0, 1.0);
        let x = |value: f64| MARGIN + share(value, across) * (WIDTH - 2.0 * MARGIN);
        let y = |value: f64| floor - share(value, up) * (floor - top);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             font-family=\"sans-serif\" font-size=\"12\" style=\"background:#fff\">"
        );
        for (at, what) in y_axis.marks(up) {
            let at = y(at);
            let _ = write!(
                svg,
                "<path d=\"M{MARGIN} {at:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                WIDTH - MARGIN,
                MARGIN - 6.0,
                at + 4.0,
                escaped(&what),
            );
        }
        for (at, what) in x_axis.marks(across) {
            let at = x(at);
            let _ = write!(
                svg,
                "<path d=\"M{at:.1} {floor:.1}v5\" stroke=\"#999\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{}</text>",
                floor + 18.0,
                escaped(&what),
            );
        }
        let middle = (floor + top) / 2.0;
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"14\" y=\"{middle:.1}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 14 {middle:.1})\">{}</text>",
            WIDTH / 2.0,
            height - 8.0,
            escaped(&self.across.title),
            escaped(&self.up.title),
        );
        let places = |line: &Line| -> Vec<(f64, f64)> {
            let place = |(at, value): &(f64, f64)| (x(x_axis.place(*at)), y(y_axis.place(*value)));
            line.points.iter().map(place).collect()
        };
        for (line, pen) in self.lines.iter().zip(pens()) {
            draw(&mut svg, line.stroke, &places(line), pen, floor);
        }
        svg + &names + "</svg>"
    }

    /// The names of the lines as text, and how many rows they take.
    fn names(&self) -> (String, usize) {
        let (mut svg, mut at, mut row) = (String::new(), MARGIN, 0);
        for (line, pen) in self.lines.iter().zip(pens()) {
            if line.name.is_empty() || line.points.is_empty() {
                continue;
            }
            let letters =
                line.name.chars().map(|letter| if letter.is_uppercase() { CAPITAL } else { LETTER });
            let width = letters.sum::<f64>() + 4.0 * LETTER;
            if at > MARGIN && at + width > WIDTH {
                (at, row) = (MARGIN, row + 1);
            }
            let _ = write!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" fill=\"{}\">{} {}</text>",
                NAMES_AT + NAMES_ROW * row as f64,
                pen.colour,
                match line.stroke {
                    Stroke::Solid if pen.is_dotted => "\u{b7}\u{b7}\u{b7}",
                    Stroke::Solid => "\u{2014}",
                    Stroke::Dashed => "- -",
                    Stroke::Area => "\u{25a0}",
                    Stroke::Dots => "\u{2022}",
                },
                escaped(&line.name),
            );
            at += width;
        }
        (svg, row + 1)
    }
}

/// What a line is drawn with.
#[derive(Clone, Copy, Debug)]
struct Pen {
    colour: &'static str,
    /// Whether the colour is another line's already.
    is_dotted: bool,
}

/// One for each line.
fn pens() -> impl Iterator<Item = Pen> {
    let of = |is_dotted| COLOURS.into_iter().map(move |colour| Pen { colour, is_dotted });
    of(false).chain(of(true)).cycle()
}

fn draw(svg: &mut String, stroke: Stroke, points: &[(f64, f64)], pen: Pen, floor: f64) {
    let Pen { colour, is_dotted } = pen;
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    // A line of one point has no length that could be seen.
    if stroke == Stroke::Dots || points.len() == 1 {
        for (x, y) in points {
            let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        return;
    }
    let joined: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
    if stroke == Stroke::Area {
        let _ = write!(
            svg,
            "<polygon points=\"{:.1},{floor:.1} {joined}{:.1},{floor:.1}\" fill=\"{colour}\" \
             fill-opacity=\"0.25\"/>",
            first.0, last.0
        );
    }
    let dashes = match stroke {
        Stroke::Dashed => " stroke-dasharray=\"6 4\"",
        _ if is_dotted => " stroke-dasharray=\"2 3\"",
        _ => "",
    };
    let _ = write!(
        svg,
        "<polyline points=\"{joined}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes}/>"
    );
}

/// Marks at multiples of 1, 2 or 5 times a power of ten, up to six of them.
pub fn round_marks(begin: f64, end: f64, unit: &str) -> Vec<Mark> {
    stepped_marks((begin, end), unit, 0.0)
}

/// The same, at least so far apart.
fn stepped_marks((begin, end): (f64, f64), unit: &str, least: f64) -> Vec<Mark> {
    let steps = (-9..18).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| (digit * 10_f64.powi(power), power)));
    let Some((step, power)) =
        steps.into_iter().find(|(step, _)| *step >= least && (end - begin) / step < 6.0)
    else {
        return Vec::new();
    };
    let decimals = usize::try_from(-power).unwrap_or(0);
    let first = (begin / step).ceil();
    let count = ((end / step + 1e-9).floor() - first).max(0.0) as u32;
    let mark = |at: f64| (at, format!("{at:.decimals$}{unit}"));
    if end <= begin {
        return vec![(begin, format!("{begin}{unit}"))];
    }
    (0..=count).map(|at| mark((first + f64::from(at)) * step)).collect()
}

/// Text as it may stand in HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_each_is_another() {
        let texts =
            |begin, end| round_marks(begin, end, " s").into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts(0.0, 2.0), ["0.0 s", "0.5 s", "1.0 s", "1.5 s", "2.0 s"]);
        assert_eq!(texts(0.0, 0.0), ["0 s"]);
        assert_eq!(texts(0.0, 3501.0), ["0 s", "1000 s", "2000 s", "3000 s"]);
        assert_eq!(texts(0.0, 59.0), ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s"]);
        assert_eq!(texts(-3.0, 5.0), ["-2 s", "0 s", "2 s", "4 s"]);
        assert_eq!(texts(60.0, 100.0), ["60 s", "70 s", "80 s", "90 s", "100 s"]);
    }

    #[test]
    fn powers_of_ten_begin_at_that_of_the_least_value() {
        let marks = |axis: Axis, values: &[f64]| {
            let axis = axis.begun(values.iter().copied());
            let marks = axis.marks(axis.ends(values.iter().copied()));
            marks.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        let log = || Axis { is_log: true, ..Axis::default() };
        assert_eq!(marks(log(), &[0.0, 35.0, 2_000.0]), ["10", "100", "1000", "10000"]);
        assert_eq!(marks(log(), &[0.003, 0.5]), ["0.1", "1"]);
        assert_eq!(marks(log(), &[]), ["0.1", "1"]);
        assert_eq!(marks(Axis { from: Some(1.0), ..log() }, &[35.0]), ["1", "10", "100"]);
        // There is no half of a socket.
        assert_eq!(marks(Axis { is_count: true, ..Axis::default() }, &[1.0]), ["0", "1"]);
        assert_eq!(marks(Axis { is_count: true, ..Axis::default() }, &[70.0]), ["0", "20", "40", "60"]);
    }

    #[test]
    fn only_what_is_drawn_is_named() {
        let lines = vec![Line::new("one", vec![(0.0, 1.0)]), Line::new("empty", Vec::new())];
        let names = Plot { lines, ..Plot::default() }.names().0;
        assert!(names.contains("one") && !names.contains("empty"), "{names}");
    }

    #[test]
    fn plots_stay_on_their_paper() {
        let strokes = [Stroke::Solid, Stroke::Dashed, Stroke::Area, Stroke::Dots];
        for (is_log, stroke) in [false, true].into_iter().flat_map(|log| strokes.map(|stroke| (log, stroke)))
        {
            let lines = vec![
                Line::new("one", vec![(0.0, 0.0), (3.0, 12_345.0), (9.0, -5.0)]).drawn(stroke),
                Line::new("empty", Vec::new()).drawn(stroke),
            ];
            let up = Axis { is_log, to: Some(100.0), ..Axis::titled("a & b") };
            let svg = Plot { across: Axis::default(), up, lines }.svg();
            assert!(svg.contains("a &amp; b") && !svg.contains("NaN"), "{svg}");
            let numbers = |key: &str| -> Vec<f64> {
                let key = format!(" {key}=\"");
                let quoted = svg.split(&key).skip(1);
                let values = quoted.filter_map(|rest| rest.split('"').next());
                let parts = values.flat_map(|value| value.split([' ', ',']));
                parts.filter(|part| !part.is_empty()).map(|part| part.parse().expect("a number")).collect()
            };
            let drawn: Vec<f64> = ["points", "cx", "cy"].into_iter().flat_map(numbers).collect();
            assert!(drawn.len() >= 6 && drawn.iter().all(|at| (0.0..=WIDTH).contains(at)), "{drawn:?}");
        }
    }

    #[test]
    fn what_is_shared_by_all_is_spread_over_the_paper() {
        let line = Line::new("one", vec![(1.0, 0.9), (2.0, 0.95)]);
        let plot = Plot {
            across: Axis { from: Some(1.0), ..Axis::default() },
            up: Axis { from: Some(0.9), ..Axis::default() },
            lines: vec![line],
        };
        let (left, right) = (format!("{MARGIN:.1},"), format!(" {:.1},", WIDTH - MARGIN));
        assert!(plot.svg().contains(&left) && plot.svg().contains(&right));
    }

    #[test]
    fn a_line_of_one_point_is_a_dot() {
        for stroke in [Stroke::Solid, Stroke::Dashed, Stroke::Area, Stroke::Dots] {
            let lines = vec![Line::new("one", vec![(0.0, 3.0)]).drawn(stroke)];
            let svg = Plot { lines, ..Plot::default() }.svg();
            assert_eq!(svg.matches("<circle").count(), 1, "{stroke:?}");
        }
    }

    #[test]
    fn many_names_take_several_rows() {
        let lines = (0..9).map(|at| Line::new(format!("a line of number {at}"), vec![(0.0, 1.0)])).collect();
        let plot = Plot { lines, ..Plot::default() };
        assert_eq!(plot.names().1, 2);
    }

    #[test]
    fn more_lines_than_colours_are_told_apart() {
        let lines = (0..=COLOURS.len()).map(|_| Line::new("one", vec![(0.0, 1.0), (1.0, 1.0)])).collect();
        let svg = Plot { lines, ..Plot::default() }.svg();
        let drawn: Vec<&str> = svg
            .split("<polyline ")
            .skip(1)
            .filter_map(|rest| rest.split_once("/>"))
            .map(|(one, _)| one)
            .collect();
        assert_eq!(drawn.len(), COLOURS.len() + 1);
        assert!(drawn.iter().enumerate().all(|(at, one)| !drawn[..at].contains(one)), "{drawn:?}");
        assert_eq!(svg.matches("\u{b7}\u{b7}\u{b7} one").count(), 1);
    }

    #[test]
    fn names_are_text() {
        assert_eq!(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
