//! A command: started without a shell, in a process group of its own that ends with it.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};

use api::Target;
use tokio::process::Command;

use super::super::probe::PLACEHOLDER;
use super::super::record::{DETAIL_MAX, Outcome, Reason};

/// How much of what a command prints is kept, in octets, for its first line; the rest is read and thrown away, so
/// that it does not wait for a reader.
pub const OUTPUT_MAX: usize = 4 * DETAIL_MAX;

/// Where programs look for others; nothing else of our environment is theirs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a command line for a server; exit code 0 passes.
pub(super) async fn run(line: &[String], server: &Target, probe: &str) -> Result<Outcome, Outcome> {
    let Some((program, arguments)) = line.split_first() else {
        return Err(Outcome::failed(Reason::NotStarted, "there is no command"));
    };
    let server = server.host();
    let mut command = Command::new(program);
    command
        .args(arguments.iter().map(|argument| argument.replace(PLACEHOLDER, &server)))
        .env_clear()
        .envs([("PATH", PATH), ("POINTSMAN_SERVER", &server), ("POINTSMAN_PROBE", probe)])
        .current_dir("/");
    let output = net::group::output(&mut command, OUTPUT_MAX).await;
    let Output { status, stdout, stderr } =
        output.map_err(|cause| Outcome::failed(Reason::NotStarted, format!("{program}: {cause}")))?;
    let said = if stdout.trim_ascii().is_empty() { stderr } else { stdout };
    Ok(judged(status, &String::from_utf8_lossy(&said)))
}

fn judged(status: ExitStatus, said: &str) -> Outcome {
    let line = said.trim().lines().next().unwrap_or_default();
    let with = |what: String| if line.is_empty() { what } else { format!("{what}: {line}") };
    match (status.code(), status.signal()) {
        (Some(0), _) => Outcome::passed(Reason::Exit, with("exit code 0".into())),
        (Some(code), _) => Outcome::failed(Reason::Exit, with(format!("exit code {code}"))),
        (None, signal) => {
            Outcome::failed(Reason::Signal, with(format!("ended by signal {}", signal.unwrap_or_default())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn done(line: &[&str]) -> Outcome {
        let line: Vec<String> = line.iter().map(|word| word.to_string()).collect();
        let server = "192.0.2.7".parse().expect("an address");
        run(&line, &server, "web").await.unwrap_or_else(|failed| failed)
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
}
