//! A command: started without a shell, in a process group of its own that ends with it.

use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use net::group::Group;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::super::probe::PLACEHOLDER;
use super::super::record::{DETAIL_MAX, Outcome, Reason};

/// How much of what a command prints is kept, in octets, for its first line; the rest is read and thrown away, so
/// that it does not wait for a reader.
pub const OUTPUT_MAX: usize = 4 * DETAIL_MAX;

/// Where programs look for others; nothing else of our environment is theirs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a command line for a server; exit code 0 passes.
pub(super) async fn run(line: &[String], server: IpAddr, probe: &str) -> Result<Outcome, Outcome> {
    let Some((program, arguments)) = line.split_first() else {
        return Err(Outcome::failed(Reason::NotStarted, "there is no command"));
    };
    let server = server.to_string();
    let mut command = Command::new(program);
    command
        .args(arguments.iter().map(|argument| argument.replace(PLACEHOLDER, &server)))
        .env_clear()
        .envs([("PATH", PATH), ("POINTSMAN_SERVER", &server), ("POINTSMAN_PROBE", probe)])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut group = Group::start(&mut command)
        .map_err(|cause| Outcome::failed(Reason::NotStarted, format!("{program}: {cause}")))?;
    let (out, err) = group.pipes();
    // The child is waited for only when both are at their ends: until then its number cannot be another's.
    let (out, err) = tokio::join!(first_octets(out), first_octets(err));
    let status = group.wait().await;
    let said = if out.trim_ascii().is_empty() { err } else { out };
    Ok(judged(status, &String::from_utf8_lossy(&said)))
}

fn judged(status: std::io::Result<ExitStatus>, said: &str) -> Outcome {
    let line = said.trim().lines().next().unwrap_or_default();
    let with = |what: String| if line.is_empty() { what } else { format!("{what}: {line}") };
    match status {
        Ok(status) if status.success() => Outcome::passed(Reason::Exit, with("exit code 0".into())),
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Outcome::failed(Reason::Exit, with(format!("exit code {code}"))),
            (None, signal) => Outcome::failed(
                Reason::Signal,
                with(format!("ended by signal {}", signal.unwrap_or_default())),
            ),
        },
        Err(cause) => Outcome::failed(Reason::NotStarted, format!("its end was not seen: {cause}")),
    }
}

/// Reads a pipe to its end; returns its first [`OUTPUT_MAX`] octets.
async fn first_octets(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else { return kept };
    let mut taken = [0; 1024];
    // A pipe that cannot be read is as good as closed.
    while let Ok(count @ 1..) = pipe.read(&mut taken).await {
        let room = OUTPUT_MAX - kept.len();
        kept.extend_from_slice(&taken[..count.min(room)]);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn done(line: &[&str]) -> Outcome {
        let line: Vec<String> = line.iter().map(|word| word.to_string()).collect();
        let server = "192.0.2.7".parse().expect("an address");
        run(&line, server, "web").await.unwrap_or_else(|failed| failed)
    }

    #[tokio::test]
    async fn exit_codes_and_first_lines_are_told() {
        for (script, passed, reason, detail) in [
            ("exit 0", true, Reason::Exit, "exit code 0"),
            (
                "echo \"OK $POINTSMAN_PROBE $POINTSMAN_SERVER $1\"",
                true,
                Reason::Exit,
                "exit code 0: OK web 192.0.2.7 -H=192.0.2.7",
            ),
            ("echo; echo bad >&2; exit 3", false, Reason::Exit, "exit code 3: bad"),
            ("echo ok; kill -TERM $$", false, Reason::Signal, "ended by signal 15: ok"),
            ("yes | head -c 300000; echo; echo HOME=$HOME >&2", true, Reason::Exit, "exit code 0: y"),
        ] {
            let outcome = done(&["/bin/sh", "-c", script, "sh", "-H={server}"]).await;
            assert_eq!(outcome, Outcome { passed, reason, detail: detail.into() }, "{script}");
        }
        let outcome = done(&["/nowhere/to/be/found"]).await;
        assert_eq!((outcome.passed, outcome.reason), (false, Reason::NotStarted));
        assert!(outcome.detail.starts_with("/nowhere/to/be/found: "), "{}", outcome.detail);
    }

    #[tokio::test]
    async fn a_command_that_is_given_up_ends_with_all_that_it_started() {
        let folder = std::env::temp_dir().join(format!("pointsman-probe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let path = folder.join("child");
        // The grandchild tells its number and stays, as the child does.
        let script = format!("sleep 600 & echo $! > {0}.part; mv {0}.part {0}; wait", path.display());
        let line = ["/bin/sh".to_string(), "-c".into(), script];
        let mut running = Box::pin(run(&line, "192.0.2.7".parse().expect("an address"), "web"));
        let number = loop {
            tokio::select! {
                biased;
                ended = &mut running => panic!("it ended: {ended:?}"),
                () = tokio::task::yield_now() => {}
            }
            if let Ok(text) = std::fs::read_to_string(&path) {
                break text.trim().parse::<i32>().expect("a number");
            }
        };
        assert!(is_alive(number));
        drop(running);
        while is_alive(number) {
            tokio::task::yield_now().await;
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    /// Whether a process runs: one that ended is gone, or waits to be waited for.
    fn is_alive(number: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }
}
