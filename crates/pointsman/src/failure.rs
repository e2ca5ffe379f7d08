//! Why a command did not succeed, and the exit code that tells programs so.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use api::{Fault, Faults};
use nameserver::service::StartError;
use web::client::Unmet;

/// The exit codes of what asks nobody, as its `--help` has them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused, or failed while running
  2  faults in what was given (arguments, configuration, files), all listed";

/// The exit code that what asks an API has beside them.
pub(crate) const UNREACHABLE: &str = "  3  the API cannot be reached";

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was refused or failed: what, why, and how to go on.
    Failed(String),
    /// What was given is wrong.
    Faults(Faults),
    /// Nobody answers where the API should be.
    Unreachable(String),
    /// It was done, but not when it was due.
    Late(String),
    /// It was told already, in the log; the code to end with.
    Told(ExitCode),
    /// Nobody reads what is printed, such as `head` that has seen enough: nothing is left to be done.
    NotRead,
}

impl Failure {
    /// What is wrong with a file that was given.
    pub(crate) fn file(path: &Path, what: impl Into<String>, expected: &str) -> Failure {
        Fault::whole(path.to_string_lossy(), what, expected).into()
    }

    /// The code that the process ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::NotRead => ExitCode::SUCCESS,
            Failure::Told(code) => *code,
            Failure::Failed(_) => ExitCode::from(1),
            Failure::Faults(_) => ExitCode::from(2),
            Failure::Unreachable(_) | Failure::Late(_) => ExitCode::from(3),
        }
    }

    /// What log lines say of it: a message for each fault.
    pub(crate) fn messages(&self) -> Vec<String> {
        match self {
            Failure::Failed(what) | Failure::Unreachable(what) | Failure::Late(what) => vec![what.clone()],
            Failure::Faults(faults) => faults.to_string().lines().map(str::to_owned).collect(),
            Failure::Told(_) | Failure::NotRead => Vec::new(),
        }
    }

    /// A failure to write to stdout.
    pub(crate) fn output(cause: &io::Error) -> Failure {
        match cause.kind() {
            io::ErrorKind::BrokenPipe => Failure::NotRead,
            _ => Failure::Failed(format!("failed to write to stdout: {cause}")),
        }
    }
}

impl From<Unmet> for Failure {
    fn from(unmet: Unmet) -> Self {
        match unmet {
            Unmet::Unreachable(what) => Failure::Unreachable(what),
            Unmet::Faults(faults) => Failure::Faults(faults),
            Unmet::Refused { what, .. } => Failure::Failed(what),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Faults(faults) => Failure::Faults(faults),
            other => Failure::Failed(other.to_string()),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Faults(fault.into())
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Failure::Faults(faults.in_order())
    }
}

impl fmt::Display for Failure {
    /// Faults stand at the beginning of their lines, where editors look for places.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(what) | Failure::Unreachable(what) | Failure::Late(what) => {
                write!(f, "pointsman: {what}")
            }
            Failure::Faults(faults) => write!(f, "{faults}"),
            Failure::Told(_) | Failure::NotRead => Ok(()),
        }
    }
}
