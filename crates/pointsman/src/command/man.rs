//! `pointsman man`: the manual pages, one for each command.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::cli::CommandLine;
use crate::failure::Failure;

/// The arguments of `man`.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The folder to write them to, which must be there; pages of the same name are replaced
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes them.
    ///
    /// # Errors
    /// [`Failure`] where the folder does not take them.
    pub(crate) fn run(self) -> Result<(), Failure> {
        clap_mangen::generate_to(CommandLine::command(), &self.folder).map_err(|cause| {
            let folder = self.folder.display();
            Failure::Failed(format!(
                "failed to write manual pages to {folder}: {cause}\nExpected: a folder that is there and may be written to"
            ))
        })
    }
}
