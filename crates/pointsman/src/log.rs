//! What is logged, and in which form: events of the control plane, to stderr.

use std::io::{self, Write as _};

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::failure::Failure;

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

impl Form {
    /// The form that a configuration or a flag names, which is one of the two words.
    pub(crate) fn of(word: &str) -> Form {
        if word == "json" { Form::Json } else { Form::Text }
    }
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
    /// Begins to log, panics too. Once in a process: a second call changes nothing.
    pub(crate) fn begin(self) {
        // The standard library writes a panic as lines of text, which would break the form.
        std::panic::set_hook(Box::new(|panic| {
            let message = panic.payload_as_str().unwrap_or("without a message");
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            tracing::error!(thread, place, "panicked: {message}");
        }));
        let lines = tracing_subscriber::fmt().with_max_level(self.level).with_writer(io::stderr);
        // What stderr does not take would be told there once more, which panics; and a panic is told there, too.
        let lines = lines.log_internal_errors(false);
        let colours = io::IsTerminal::is_terminal(&io::stderr());
        // Only a subscriber that is already there can be in the way, and then it is the one that was asked for.
        let _ = match self.form {
            Form::Text => lines.with_ansi(colours).try_init(),
            Form::Json => lines.json().try_init(),
        };
    }

    /// Tells the one who started us, in the form of the log but whatever its level.
    pub(crate) fn tell(self, message: &str) {
        let line = match self.form {
            Form::Text => message.to_owned(),
            Form::Json => json(tracing::Level::INFO, message),
        };
        // Nobody may be reading any more, which is no reason not to serve.
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Tells why the process ends, where log lines are objects, as they do: what is returned has then nothing left to
    /// tell.
    pub(crate) fn end(self, failure: Failure) -> Failure {
        if self.form == Form::Text {
            return failure;
        }
        for message in failure.messages() {
            // The code still says it.
            let _ = writeln!(io::stderr(), "{}", json(tracing::Level::ERROR, &message));
        }
        Failure::Told(failure.exit_code())
    }
}

/// A log line, in the order of all that the subscriber writes.
fn json(level: tracing::Level, message: &str) -> String {
    let mut timestamp = String::new();
    // A string takes all that is written.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let fields = serde_json::json!({ "message": message });
    format!(r#"{{"timestamp":"{timestamp}","level":"{level}","fields":{fields},"target":"pointsman"}}"#)
}
