//! A command in a process group of its own, which ends with whoever waits for it.

use std::io;
use std::process::ExitStatus;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// A command and all that it starts; killed when this is dropped before the command has ended.
#[derive(Debug)]
pub struct Group {
    child: Child,
}

impl Group {
    /// Starts a command as the leader of a process group of its own.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(command: &mut Command) -> io::Result<Group> {
        Ok(Group { child: command.process_group(0).spawn()? })
    }

    /// Takes the command's output and errors, where they are piped.
    pub fn pipes(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Waits for the command's end, with its pipes read to theirs: from then on its number may be another's, and what it
    /// left behind without a pipe is no longer ended.
    ///
    /// # Errors
    /// What the system says.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A number is there until the child was waited for, and as long is it nobody else's.
        let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) else { return };
        // Only a group that has become another user's as a whole can be refused, and nobody could do more about it.
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        // The runtime waits for the child itself.
    }
}
