//! Latencies as a picture: shares of answers against their times, both on logarithmic scales.

use std::fmt::Write as _;

/// One line of the picture.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) is_dashed: bool,
    /// Shares of answers, below 1, and the microseconds within which they came.
    pub(crate) points: Vec<(f64, f64)>,
}

/// The picture's size, and where its axes are.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 620.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 430.0;

/// Colours that are told apart by most eyes (Okabe and Ito).
const COLOURS: [&str; 5] = ["#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7"];

/// Draws curves, and a line at the limit in microseconds.
pub(crate) fn latencies(title: &str, curves: &[Curve], limit: f64) -> String {
    let most = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).fold(limit * 2.0, f64::max);
    let (low, high) = (1.0, most.log10().ceil());
    let x = |share: f64| LEFT + (RIGHT - LEFT) * (-(1.0 - share).log10() - 0.301) / (4.0 - 0.301);
    let y =
        |time: f64| BOTTOM - (BOTTOM - TOP) * ((time.max(10.0).log10() - low) / (high - low)).clamp(0.0, 1.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"16\">{title}</text>\n"
    );
    for (share, label) in
        [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")]
    {
        let at = x(share);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"#dddddd\"/><text x=\"{at:.1}\" y=\"448\" text-anchor=\"middle\">{label}</text>"
        );
    }
    let mut time = 10.0;
    while time <= 10f64.powf(high) {
        let label = if time < 1000.0 { format!("{time:.0} us") } else { format!("{:.0} ms", time / 1000.0) };
        let at = y(time);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#dddddd\"/><text x=\"64\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            at + 4.0
        );
        time *= 10.0;
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"470\">share of answers that came within so long from when they were sent</text>\n\
         <path d=\"M{LEFT} {0:.1}H{RIGHT}\" stroke=\"#888888\" stroke-width=\"2\"/><circle cx=\"{1:.1}\" cy=\"{0:.1}\" r=\"5\" fill=\"none\" stroke=\"#888888\" stroke-width=\"2\"/>\n\
         <text x=\"{2:.1}\" y=\"{3:.1}\" fill=\"#555555\">limit: 99.9 % within {4:.0} ms</text>",
        y(limit),
        x(0.999),
        LEFT + 8.0,
        y(limit) - 6.0,
        limit / 1000.0,
    );
    for (index, curve) in curves.iter().enumerate() {
        // Curves of one upstream stand side by side and have one colour.
        let colour = COLOURS[index / 2 % COLOURS.len()];
        let dash = if curve.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let points: Vec<String> =
            curve.points.iter().map(|(share, time)| format!("{:.1},{:.1}", x(*share), y(*time))).collect();
        let at = TOP + 20.0 * index as f64 + 10.0;
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash}/>\n\
             <path d=\"M640 {at}H675\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash}/><text x=\"682\" y=\"{}\">{}</text>",
            points.join(" "),
            at + 4.0,
            curve.name
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_lie_within_the_axes() {
        let curve = Curve { name: "a".into(), is_dashed: true, points: vec![(0.5, 1.0), (0.9999, 1e5)] };
        let svg = latencies("title", &[curve], 1000.0);
        assert!(svg.contains("points=\"70.0,430.0 620.0,50.0\""), "{svg}");
        assert!(svg.contains(">limit: 99.9 % within 1 ms</text>"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
