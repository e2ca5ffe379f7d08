//! The programs that an experiment starts: ours, and servers that end with the run.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::replay::ReplayReport;

use crate::serving::{self, SENDER_CORE, pinned};

/// How long a server may take until it answers, and the time between two looks.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Our program, which stands beside this one.
#[derive(Clone, Debug)]
pub(crate) struct Pointsman(PathBuf);

/// A program that runs; ended when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Pointsman {
    /// Finds it.
    ///
    /// # Errors
    /// Where it is not there.
    pub(crate) fn find() -> Result<Pointsman> {
        serving::program().map(Pointsman)
    }

    /// The program, pinned to a core where there is more than one.
    pub(crate) fn command(&self, core: usize) -> Command {
        pinned(core, &self.0)
    }

    /// The same, [before others](prompt) there.
    pub(crate) fn prompt(&self, core: usize) -> Command {
        prompt(core, &self.0)
    }

    /// Replays on the sender's core; a run that was late is told as any other.
    ///
    /// # Errors
    /// Where it fails.
    pub(crate) fn replay(&self, trace: &Path, server: SocketAddr, options: &[&str]) -> Result<ReplayReport> {
        let mut command = if options.contains(&"--fast") {
            pinned(SENDER_CORE, &self.0)
        } else {
            prompt(SENDER_CORE, &self.0)
        };
        command.arg("replay").arg(trace).args([
            "--server",
            &server.to_string(),
            "--tolerance",
            "1h",
            "--json",
        ]);
        let output = command.args(options).stdin(Stdio::null()).output().context("the program")?;
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).with_context(|| {
            format!("{options:?}: no report, but: {text}{}", String::from_utf8_lossy(&output.stderr))
        })
    }
}

impl Server {
    /// Starts a server whose log goes to a folder; returns when it answers for the root over UDP, and takes connections.
    ///
    /// # Errors
    /// Where it does not; with what it said.
    pub(crate) fn start(folder: &Path, name: &str, command: Command, address: SocketAddr) -> Result<Server> {
        let mut server = Server::spawn(folder, name, command, address)?;
        server.wait(folder, name)?;
        Ok(server)
    }

    /// Starts a program whose log goes to a folder, and waits for nothing.
    ///
    /// # Errors
    /// Where it does not start.
    pub(crate) fn spawn(
        folder: &Path,
        name: &str,
        mut command: Command,
        address: SocketAddr,
    ) -> Result<Server> {
        let path = log(folder, name);
        let log = File::create(&path).with_context(|| format!("{}", path.display()))?;
        let error = log.try_clone().context("the log")?;
        let child = command.stdin(Stdio::null()).stdout(log).stderr(error).spawn();
        Ok(Server { child: child.with_context(|| name.to_owned())?, address })
    }

    /// Waits until one that was started in this folder by this name answers.
    ///
    /// # Errors
    /// Where it does not; with what it said.
    pub(crate) fn wait(&mut self, folder: &Path, name: &str) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < START_MAX && matches!(self.child.try_wait(), Ok(None)) {
            if answers(self.address) {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        let said = fs::read_to_string(log(folder, name)).unwrap_or_default();
        bail!("{name} does not answer; it said:\n{said}")
    }

    /// The number of its first process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that has children of its own ends them when it is asked to end.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let begin = Instant::now();
        while begin.elapsed() < START_MAX && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As [`pinned`], before other programs where that is allowed: who keeps times, or stands between others that do, is not
/// held up for slices of 3 ms by what else the machine does on its core. Not with real-time priority: where a sender spins
/// without a pause, the kernel then gives the core to others for 50 ms at a time.
pub(crate) fn prompt(core: usize, program: impl AsRef<Path>) -> Command {
    let first = ["-n", "-20"];
    let is_allowed = |output: Output| output.status.success() && output.stderr.is_empty();
    if Command::new("nice").args(first).arg("true").output().is_ok_and(is_allowed) {
        let mut command = pinned(core, "nice");
        command.args(first).arg(program.as_ref());
        return command;
    }
    pinned(core, program)
}

/// An address of loopback with a port that nobody has, for both transports.
///
/// # Errors
/// Where there is none.
pub(crate) fn free() -> Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a port")?;
    socket.local_addr().context("a port")
}

/// Asks for the root's SOA record.
fn answers(server: SocketAddr) -> bool {
    let query = [0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1];
    let asked = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(LOOK))?;
        socket.send(&query)?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer)?;
        Ok(length > 12 && answer[..2] == query[..2] && answer[3] & 15 == 0)
    };
    asked().unwrap_or(false) && TcpStream::connect(server).is_ok()
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}
