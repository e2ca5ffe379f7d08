//! `pointsman completions`: what a shell reads to complete our commands.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::failure::Failure;
use crate::session;

/// The arguments of `completions`.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that is to read them
    shell: Shell,
}

impl Completions {
    /// Prints the script that completes `command` in the shell.
    ///
    /// # Errors
    /// [`Failure`] where nobody reads.
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "pointsman", &mut script);
        session::print(&script)
    }
}
