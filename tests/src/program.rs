//! The program in a process of its own, which never outlives the test that started it.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long the program may take to say something that is waited for, or to end: a debug build under load on
/// one slow core.
pub const PROGRAM_WAIT: Duration = Duration::from_secs(60);

/// Builds the program, once a process, as it is built beside this test; returns where it is.
///
/// # Panics
/// Where it does not build.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows where it is");
        // target/PROFILE/deps/TEST
        let profile = test.ancestors().nth(2).expect("cargo puts tests two folders deep");
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        // With this package, for its features: see Cargo.toml.
        build
            .args(["build", "--quiet", "--package", "pointsman", "--package", "tests"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        build
            .args(["--target-dir".as_ref(), profile.parent().expect("a profile is in a folder").as_os_str()]);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo starts").success(), "the program does not build");
        profile.join("pointsman")
    })
}

/// The most memory that a process has had at a time, in octets (VmHWM of proc(5)).
///
/// # Errors
/// Where it is gone.
pub fn memory_peak(process: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no VmHWM"))
}

/// A process and what it says.
#[derive(Debug)]
pub struct Program {
    child: Child,
    stderr: Receiver<String>,
    said: Vec<String>,
    stdout: Option<JoinHandle<String>>,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// All of its stdout.
    pub stdout: String,
    /// All of its stderr.
    pub stderr: String,
}

impl Program {
    /// Starts `pointsman` with these arguments.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn start<A: AsRef<str>>(arguments: &[A]) -> Program {
        let mut command = Command::new(path());
        command.args(arguments.iter().map(AsRef::as_ref));
        Program::spawn(command)
    }

    /// Starts any command.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn spawn(mut command: Command) -> Program {
        for name in ["POINTSMAN_API", "POINTSMAN_TOKEN", "NOTIFY_SOCKET"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (line, stderr) = channel();
        let pipe = child.stderr.take().expect("stderr is a pipe");
        std::thread::spawn(move || {
            for text in BufReader::new(pipe).lines().map_while(Result::ok) {
                // The test may have ended; the program must still not wait for a reader.
                let _ = line.send(text);
            }
        });
        let mut pipe = child.stdout.take().expect("stdout is a pipe");
        let stdout = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = pipe.read_to_end(&mut all);
            String::from_utf8_lossy(&all).into_owned()
        });
        Program { child, stderr, said: Vec::new(), stdout: Some(stdout) }
    }

    /// Waits until a line of stderr, from now on, has `part` in it; returns that line.
    ///
    /// # Panics
    /// Where the program ends without it, or does not say it within [`PROGRAM_WAIT`].
    pub fn line(&mut self, part: &str) -> String {
        self.says(part).unwrap_or_else(|what| panic!("{what}"))
    }

    /// As [`Program::line`], of all lines since it was started.
    ///
    /// # Panics
    /// As [`Program::line`].
    pub fn has_said(&mut self, part: &str) -> String {
        let said = self.said.iter().find(|line| line.contains(part)).cloned();
        said.unwrap_or_else(|| self.line(part))
    }

    /// As [`Program::line`], for who is no test.
    ///
    /// # Errors
    /// What it said instead.
    pub fn says(&mut self, part: &str) -> Result<String, String> {
        let until = Instant::now() + PROGRAM_WAIT;
        loop {
            match self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(part) {
                        return Ok(line);
                    }
                }
                Err(why) => {
                    return Err(format!("no '{part}' on stderr ({why}), only:\n{}", self.said.join("\n")));
                }
            }
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the program is there");
    }

    /// The id of the process.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// Where the system does not know it.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is a child of ours").is_none()
    }

    /// Ends it with SIGTERM.
    ///
    /// # Panics
    /// Where it does not end well.
    pub fn stop(self) -> Ended {
        self.signal(Signal::SIGTERM);
        let ended = self.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        ended
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// Where it does not end within [`PROGRAM_WAIT`].
    pub fn end(mut self) -> Ended {
        let until = Instant::now() + PROGRAM_WAIT;
        // Its end closes the pipe.
        loop {
            match self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it does not end; it said:\n{}", self.said.join("\n"))
                }
            }
        }
        let status = self.child.wait().expect("it is a child of ours");
        let stdout = self.stdout.take().expect("it ends once").join().expect("reading does not panic");
        Ended { status, stdout, stderr: self.said.join("\n") }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
