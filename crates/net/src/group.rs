//! A command in a process group of its own, which ends with whoever waits for it.

use std::io;
use std::process::{Output, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// Runs a command without input, as the leader of a process group of its own; of its output and of its errors the first
/// `kept_max` octets each are kept, and the rest is thrown away, so that it does not wait for a reader. It is killed, with all
/// that it started, where nobody waits for it any more.
///
/// # Errors
/// What the system says: that it cannot be started, or its end not be seen.
pub async fn output(command: &mut Command, kept_max: usize) -> io::Result<Output> {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group(command.spawn()?);
    let (out, err) = (group.0.stdout.take(), group.0.stderr.take());
    // The child is waited for only when both are at their ends: from then on its number may be another's, and what it left
    // behind without a pipe is no longer ended.
    let (stdout, stderr) = tokio::join!(beginning(out, kept_max), beginning(err, kept_max));
    let status = group.0.wait().await?;
    Ok(Output { status, stdout, stderr })
}

/// A command and all that it starts; killed when this is dropped before the command has ended.
#[derive(Debug)]
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // A number is there until the child was waited for, and as long is it nobody else's.
        let Some(id) = self.0.id().and_then(|id| i32::try_from(id).ok()) else { return };
        // Only a group that has become another user's as a whole can be refused, and nobody could do more about it.
        let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        // The runtime waits for the child itself.
    }
}

/// Reads a pipe to its end; returns how it began.
async fn beginning(pipe: Option<impl AsyncRead + Unpin>, kept_max: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else { return kept };
    // A pipe that cannot be read is as good as closed.
    let _ = (&mut pipe).take(kept_max as u64).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    kept
}

#[cfg(test)]
mod tests {
    use ::tests::folder::Folder;

    use super::*;

    #[tokio::test]
    async fn what_is_too_much_is_read_and_not_kept() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "yes | head -c 300000; echo bad >&2; exit 3"]);
        let output = output(&mut command, 4).await.expect("there is a shell");
        assert_eq!(
            (output.status.code(), &output.stdout[..], &output.stderr[..]),
            (Some(3), &b"y\ny\n"[..], &b"bad\n"[..])
        );
    }

    #[tokio::test]
    async fn a_command_that_is_given_up_ends_with_all_that_it_started() {
        let folder = Folder::new();
        let mut command = Command::new("/bin/sh");
        // The grandchild tells its number and stays, as the child does.
        command.args(["-c", "sleep 600 & echo $! > part; mv part child; wait"]).current_dir(folder.path());
        let mut running = Box::pin(output(&mut command, 1));
        let number = loop {
            tokio::select! {
                biased;
                ended = &mut running => panic!("it ended: {ended:?}"),
                () = tokio::task::yield_now() => {}
            }
            if let Ok(text) = std::fs::read_to_string(folder.at("child")) {
                break text.trim().to_owned();
            }
        };
        // One that ended is gone, or waits to be waited for.
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        assert!(is_alive());
        drop(running);
        while is_alive() {
            tokio::task::yield_now().await;
        }
    }
}
