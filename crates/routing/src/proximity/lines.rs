//! Texts of two columns, `left,right`, with comments: what the sources have in common.

use api::{Fault, Faults};

use crate::region::RegionId;

/// What is expected where a region stands that there is not.
const UNKNOWN: &str = "a region that was added (a name of letters, digits, -, _ and .), or -";

/// What stands for "no region".
pub const UNCLASSIFIED: &str = "-";

/// What stands for "ask an external proximity service".
pub const ASK: &str = "?";

/// The most lines that a text may have: more than [`PREFIXES_MAX`](crate::partition::PREFIXES_MAX)
/// prefixes cannot be used, and comments should not outnumber them.
const LINES_MAX: usize = 2 * crate::partition::PREFIXES_MAX;

/// The longest line, in bytes: a prefix needs 43 and a region's name is not a novel.
const LINE_MAX: usize = 1_024;

/// A line with its two columns.
pub(super) struct Line<'a> {
    /// Counted from 1.
    pub(super) number: u32,
    pub(super) left: Cell<'a>,
    pub(super) right: Cell<'a>,
}

/// What stands in a column, without the space around it.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    pub(super) text: &'a str,
    /// In bytes, counted from 1.
    pub(super) column: u32,
}

/// Calls `each` for every line of `text` that is neither empty nor a comment nor begins with `other`, and reports those
/// that have not two columns. The first line may be `header`, in any case, and is then passed over.
pub(super) fn pairs<'a>(
    source: &str,
    text: &'a str,
    header: [&str; 2],
    other: Option<char>,
    faults: &mut Faults,
    mut each: impl FnMut(Line<'a>, &mut Faults),
) {
    let expected = header.join(",");
    let mut first = true;
    for (i, line) in lines(text).enumerate() {
        let number = i as u32 + 1;
        if i == LINES_MAX {
            let what = "text is too long";
            faults.push(Fault::at(source, number, 1, what, format!("at most {LINES_MAX} lines")));
            return;
        }
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') || other.is_some_and(|o| trimmed.starts_with(o)) {
            continue;
        }
        if let Err(fault) = check_length(source, number, line) {
            faults.push(fault);
            continue;
        }
        let is_first = std::mem::take(&mut first);
        let Some(comma) = line.find(',') else {
            let what = format!("no {} behind the {}", header[1], header[0]);
            faults.push(Fault::at(source, number, line.len() as u32 + 1, what, expected.as_str()));
            continue;
        };
        let (left, right) = (cell(line, 0, comma), cell(line, comma + 1, line.len()));
        if is_first && left.text.eq_ignore_ascii_case(header[0]) && right.text.eq_ignore_ascii_case(header[1])
        {
            continue;
        }
        if let Some(second) = right.text.find(',') {
            let column = right.column + second as u32;
            faults.push(Fault::at(source, number, column, "more than two columns", expected.as_str()));
            continue;
        }
        each(Line { number, left, right }, faults);
    }
}

/// The lines of a text. Spreadsheets begin a file with a byte order mark.
pub(super) fn lines(text: &str) -> std::str::Lines<'_> {
    text.trim_start_matches('\u{feff}').lines()
}

/// Refuses a line that is too long.
pub(super) fn check_length(source: &str, number: u32, line: &str) -> Result<(), Fault> {
    if line.len() <= LINE_MAX {
        return Ok(());
    }
    Err(Fault::at(source, number, 1, "line is too long", format!("at most {LINE_MAX} bytes")))
}

/// The region whose name stands in `cell`.
///
/// # Errors
/// Where there is no name, or none that `regions` knows.
pub(super) fn region(
    source: &str,
    line: u32,
    cell: Cell<'_>,
    regions: &dyn Fn(&str) -> Option<RegionId>,
) -> Result<RegionId, Fault> {
    let (what, expected) = match cell.text {
        UNCLASSIFIED => return Ok(RegionId::NONE),
        ASK => return Ok(RegionId::ASK),
        "" => ("no region".into(), "the name of a region, or -"),
        name => match regions(name) {
            Some(region) => return Ok(region),
            None => (format!("unknown region '{name}'"), UNKNOWN),
        },
    };
    Err(Fault::at(source, line, cell.column, what, expected))
}

pub(super) fn cell(line: &str, start: usize, end: usize) -> Cell<'_> {
    let text = &line[start..end];
    let trimmed = text.trim_start();
    Cell { text: trimmed.trim_end(), column: (start + text.len() - trimmed.len()) as u32 + 1 }
}
