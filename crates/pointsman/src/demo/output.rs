//! Where pictures and lines go: the terminal, a file, or stderr while stdout is for JSON.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::screen::{self, View};
use super::watch::Watch;
use crate::failure::Failure;
use crate::terminal;

/// How often the picture is drawn.
const PICTURE_PERIOD: Duration = Duration::from_millis(100);

/// How often a line is written where there is no terminal.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// Writes what is seen while the demo runs.
pub(super) struct Output {
    to: Box<dyn Write + Send>,
    form: Form,
}

enum Form {
    Lines,
    Picture {
        to_stderr: bool,
        has_colours: bool,
        /// The lines of the picture that was drawn last.
        drawn: usize,
    },
}

impl Output {
    /// Chooses by what stands behind stdout, or behind stderr with `to_stderr`: pictures for a terminal that
    /// can move its cursor, with colours unless `NO_COLOR` is set (no-color.org).
    pub(super) fn new(to_stderr: bool) -> Output {
        let is_terminal = if to_stderr { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let form = match terminal::takes_pictures(is_terminal) {
            true => Form::Picture { to_stderr, has_colours: terminal::takes_colours(), drawn: 0 },
            false => Form::Lines,
        };
        let to: Box<dyn Write + Send> =
            if to_stderr { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
        Output { to, form }
    }

    /// How often [`Output::picture`] is to be called.
    pub(super) fn period(&self) -> Duration {
        match self.form {
            Form::Lines => LINE_PERIOD,
            Form::Picture { .. } => PICTURE_PERIOD,
        }
    }

    /// Writes a line that stays.
    ///
    /// # Errors
    /// [`Failure::output`].
    pub(super) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.write(&format!("{line}\n"))
    }

    /// Says what the numbers of the lines to come are, where there will be lines.
    ///
    /// # Errors
    /// [`Failure::output`].
    pub(super) fn legend(&mut self) -> Result<(), Failure> {
        match self.form {
            Form::Lines => self.line(&screen::legend()),
            Form::Picture { .. } => Ok(()),
        }
    }

    /// Draws the picture over the last one, or writes the line of the second.
    ///
    /// # Errors
    /// [`Failure::output`].
    pub(super) fn picture(&mut self, view: &View<'_>) -> Result<(), Failure> {
        let text = match &mut self.form {
            // The first second has no answers yet.
            Form::Lines if view.now < LINE_PERIOD => return Ok(()),
            Form::Lines => screen::second(view) + "\n",
            Form::Picture { to_stderr, has_colours, drawn } => {
                let (columns, rows) =
                    if *to_stderr { terminal::size_of(io::stderr()) } else { terminal::size() };
                let mut lines = screen::picture(view, columns, *has_colours);
                // What has scrolled out of sight cannot be drawn over; the cursor needs a line too.
                lines.truncate(rows.saturating_sub(1));
                let text = terminal::over(*drawn, &lines);
                *drawn = lines.len();
                text
            }
        };
        self.write(&text)
    }

    /// Draws how it was when the demo ended.
    ///
    /// # Errors
    /// [`Failure::output`].
    pub(super) fn last_picture(&mut self, view: &View<'_>) -> Result<(), Failure> {
        match self.form {
            Form::Lines => Ok(()),
            Form::Picture { .. } => self.picture(view),
        }
    }

    /// Tells the change that was made last; a picture shows it by itself.
    ///
    /// # Errors
    /// [`Failure::output`].
    pub(super) fn changed(&mut self, watch: &Watch) -> Result<(), Failure> {
        match (&self.form, watch.changes.back()) {
            (Form::Lines, Some(change)) => self.line(&screen::change(change)),
            _ => Ok(()),
        }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.to
            .write_all(text.as_bytes())
            .and_then(|()| self.to.flush())
            .map_err(|cause| Failure::output(&cause))
    }
}
