//! What is logged, and in which form: events of the control plane, to stderr.

use std::io;

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// In which form.
    pub(crate) form: Form,
    /// The least important kind of event.
    pub(crate) level: tracing::Level,
}

impl Log {
    /// Begins to log. Once in a process: a second call changes nothing.
    pub(crate) fn begin(self) {
        let lines = tracing_subscriber::fmt().with_max_level(self.level).with_writer(io::stderr);
        let colours = io::IsTerminal::is_terminal(&io::stderr());
        // Only a subscriber that is already there can be in the way, and then it is the one that was asked for.
        let _ = match self.form {
            Form::Text => lines.with_ansi(colours).try_init(),
            Form::Json => lines.json().try_init(),
        };
    }
}
