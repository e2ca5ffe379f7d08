//! Pictures that are drawn over themselves on a terminal.

use std::io;
use std::os::fd::AsFd;

use terminal_size::{Height, Width};

/// Columns and lines of a terminal that does not tell its own.
const SIZE: (u16, u16) = (80, 24);

/// Whether pictures can be drawn on what is (or is not) a terminal: one that can move its cursor.
pub(crate) fn takes_pictures(is_terminal: bool) -> bool {
    is_terminal && set("TERM").is_some_and(|term| term != "dumb")
}

/// Whether pictures may have colours: unless `NO_COLOR` is set (no-color.org).
pub(crate) fn takes_colours() -> bool {
    set("NO_COLOR").is_none()
}

fn set(variable: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(variable).filter(|value| !value.is_empty())
}

/// The columns and lines of the terminal behind stdout.
pub(crate) fn size() -> (usize, usize) {
    size_of(io::stdout())
}

/// The columns and lines of a terminal.
pub(crate) fn size_of(terminal: impl AsFd) -> (usize, usize) {
    let (columns, rows) =
        terminal_size::terminal_size_of(terminal).map_or((0, 0), |(Width(w), Height(h))| (w, h));
    // One that was never told its size says 0.
    let or = |told: u16, usual: u16| usize::from(if told == 0 { usual } else { told });
    (or(columns, SIZE.0), or(rows, SIZE.1))
}

/// As much of a line as a terminal has room for.
pub(crate) fn cut(line: &str, columns: usize) -> &str {
    line.char_indices().nth(columns).map_or(line, |(end, _)| &line[..end])
}

/// Lines that replace the `drawn` ones above the cursor (ECMA-48: CPL, EL, ED).
pub(crate) fn over(drawn: usize, lines: &[String]) -> String {
    let up = if drawn > 0 { format!("\x1b[{drawn}F") } else { String::new() };
    let lines: String = lines.iter().map(|line| format!("{line}\x1b[K\n")).collect();
    format!("{up}{lines}\x1b[J")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_to_its_columns() {
        for (line, columns, expected) in [("ab", 3, "ab"), ("ab", 2, "ab"), ("äbc", 2, "äb"), ("ab", 0, "")]
        {
            assert_eq!(cut(line, columns), expected);
        }
    }

    #[test]
    fn a_picture_is_drawn_over_the_last() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(over(0, &lines), "a\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(over(3, &lines), "\x1b[3Fa\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
