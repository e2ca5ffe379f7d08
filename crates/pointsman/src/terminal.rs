//! Pictures that are drawn over themselves on a terminal.

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

/// The terminal's columns and lines.
pub(crate) fn size() -> (usize, usize) {
    let (columns, rows) = terminal_size::terminal_size().map_or(SIZE, |(Width(w), Height(h))| (w, h));
    (columns.into(), rows.into())
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
    fn a_picture_is_drawn_over_the_last() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(over(0, &lines), "a\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(over(3, &lines), "\x1b[3Fa\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
