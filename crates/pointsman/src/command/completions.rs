//! `pointsman completions`: what a shell reads to complete our commands.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use crate::cli::CommandLine;
use crate::failure::Failure;
use crate::session;

/// The arguments of `completions`.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that is to read them
    shell: Shell,
}

impl Completions {
    /// Prints the script for the shell.
    ///
    /// # Errors
    /// [`Failure`] where nobody reads.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut CommandLine::command(), "pointsman", &mut script);
        session::print(&script)
    }
}
