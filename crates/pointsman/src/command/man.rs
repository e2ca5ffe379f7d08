//! `pointsman man`: the manual pages, one for each command.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, Command};

use crate::failure::Failure;

/// What each page has at its foot.
const SOURCE: &str = concat!("pointsman ", env!("CARGO_PKG_VERSION"));

/// The arguments of `man`.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The folder to write them to, which is made where it is missing; pages of the same name are replaced
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes the pages of a command and of all below it.
    ///
    /// # Errors
    /// [`Failure`] where the folder does not take them.
    pub(crate) fn run(self, command: Command) -> Result<(), Failure> {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        fs::create_dir_all(&self.folder).and_then(|()| write(&command, &self.folder)).map_err(|cause| {
            let folder = self.folder.display();
            let expected = match cause.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "room for them",
                _ => "a folder that may be written to",
            };
            Failure::Failed(format!(
                "failed to write manual pages to {folder}: {cause}\nExpected: {expected}"
            ))
        })
    }
}

/// Writes the page of a command, and those of the commands below it.
fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, folder)?;
    }
    let page = clap_mangen::Man::new(command.clone()).source(SOURCE);
    let mut text = Vec::new();
    page.render(&mut text)?;
    // What stands behind the options: the exit codes and an example. Readers look for a heading that is in other pages.
    let text =
        String::from_utf8_lossy(&text).replace("\n.SH EXTRA\n", "\n.SH \"EXIT STATUS AND EXAMPLES\"\n");
    fs::write(folder.join(page.get_filename()), text)
}
