//! A report as one HTML file that needs nothing else.

use std::fmt::Write as _;

use replay::plot::escaped;

use crate::report::{Part, Report, number};

/// The page of a report.
pub(crate) fn page(report: &Report) -> String {
    let (name, about) = report.title();
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Experiment {name}</title>\n\
         <style>body{{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}\
         svg{{width:100%;height:auto}}table{{border-collapse:collapse;margin:1em 0}}\
         td,th{{padding:.15em .7em;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}}\
         td:first-child,th:first-child{{text-align:left;padding-left:0}}caption{{text-align:left;font-weight:bold}}\
         .no{{color:#b00;font-weight:bold}}</style>\n<h1>{name}</h1>\n<p>{}</p>\n",
        escaped(about)
    );
    if !report.musts().is_empty() {
        let rows = report.musts().iter().map(|must| {
            let holds = if must.holds() { "holds" } else { "<span class=\"no\">does not hold</span>" };
            [&escaped(&must.name), &must.limit.to_string(), &number(must.value), holds]
                .map(str::to_owned)
                .to_vec()
        });
        table(&mut html, "What must hold", &["", "limit", "value", ""], rows);
    }
    for part in report.parts() {
        match part {
            Part::Heading(text) => _ = writeln!(html, "<h2>{}</h2>", escaped(text)),
            Part::Text(text) => _ = writeln!(html, "<p>{}</p>", escaped(text)),
            Part::Plot(title, plot) => {
                let _ = writeln!(html, "<h3>{}</h3>\n{}", escaped(title), plot.svg());
            }
            Part::Table(one) => {
                let head: Vec<String> = one.head.iter().map(|text| escaped(text)).collect();
                let rows = one.rows.iter().map(|row| row.iter().map(|cell| escaped(cell)).collect());
                table(&mut html, &escaped(&one.title), &head, rows);
            }
        }
    }
    let facts = report.facts().into_iter().map(|(name, value)| vec![name.to_owned(), escaped(&value)]);
    table(&mut html, "This run", &["", ""], facts);
    html + "</html>\n"
}

/// Writes a table of cells that are escaped already.
fn table<T: AsRef<str>>(html: &mut String, title: &str, head: &[T], rows: impl Iterator<Item = Vec<String>>) {
    let cells = |tag: &str, row: &mut dyn Iterator<Item = &str>| -> String {
        row.map(|cell| format!("<{tag}>{cell}</{tag}>")).collect()
    };
    let _ = writeln!(html, "<table><caption>{title}</caption>");
    let _ = writeln!(html, "<tr>{}</tr>", cells("th", &mut head.iter().map(AsRef::as_ref)));
    for row in rows {
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)));
    }
    html.push_str("</table>\n");
}
