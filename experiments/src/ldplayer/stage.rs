//! The machine that it plays on: the program, a folder, servers that end with the run.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::replay::ReplayReport;

use crate::options::Run;
use crate::serving::{self, SENDER_CORE, SERVER_CORE, pinned};

/// How long a server may take until it answers, and the time between two looks.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// What all parts share.
#[derive(Debug)]
pub(super) struct Stage {
    program: PathBuf,
    /// For what is needed in between; removed at the end.
    pub(super) folder: PathBuf,
    pub(super) minute: PathBuf,
}

/// A server that runs; killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Stage {
    /// Finds the program beside this one, and makes the folder.
    ///
    /// # Errors
    /// Where the program is not there or the folder cannot be made.
    pub(super) fn new(run: &Run, minute: PathBuf) -> Result<Stage> {
        let program = serving::program()?;
        let folder = run.folder.join("work");
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        Ok(Stage { program, folder: folder.canonicalize().context("the folder")?, minute })
    }

    /// Replays on the sender's core; a run that was late is told as any other.
    ///
    /// # Errors
    /// Where it fails.
    pub(super) fn replay(&self, trace: &Path, server: SocketAddr, options: &[&str]) -> Result<ReplayReport> {
        let program = self.program.as_os_str().to_str().unwrap_or_default();
        let mut command = if options.contains(&"--fast") {
            pinned(SENDER_CORE, program)
        } else {
            prompt(SENDER_CORE, program)
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

    /// The program, pinned to a core where there is more than one.
    pub(super) fn command(&self, core: usize) -> Command {
        pinned(core, &self.program)
    }

    /// Starts a server on its core; returns when it answers for the root over UDP.
    ///
    /// # Errors
    /// Where it does not; with the end of what it said.
    pub(super) fn start(&self, name: &str, mut command: Command, address: SocketAddr) -> Result<Server> {
        let path = self.folder.join(format!("{name}.log"));
        let log = File::create(&path).with_context(|| format!("{}", path.display()))?;
        let error = log.try_clone().context("the log")?;
        let child = command.stdin(Stdio::null()).stdout(log).stderr(error).spawn();
        let mut server = Server { child: child.with_context(|| name.to_owned())?, address };
        let begin = Instant::now();
        while begin.elapsed() < START_MAX && matches!(server.child.try_wait(), Ok(None)) {
            if answers(address) {
                return Ok(server);
            }
            thread::sleep(LOOK);
        }
        let said = fs::read_to_string(&path).unwrap_or_default();
        bail!("{name} does not answer; it said:\n{said}")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    /// The number of its first process.
    pub(super) fn id(&self) -> u32 {
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

/// As [`pinned`], with real-time priority where that is allowed: a sender that keeps times is not held up for slices of
/// 3 ms by what else the machine does on its core.
fn prompt(core: usize, program: &str) -> Command {
    let first = ["--fifo", "1"];
    if Command::new("chrt").args(first).arg("true").output().is_ok_and(|output| output.status.success()) {
        let mut command = pinned(core, "chrt");
        command.args(first).arg(program);
        return command;
    }
    pinned(core, program)
}

/// Takes this thread to the server's core, where there is such a one.
///
/// # Errors
/// None: without the core it stays where it is.
#[expect(clippy::unnecessary_wraps, reason = "what receives may fail to get to its place")]
pub(super) fn to_server_core() -> Result<()> {
    let _ = net::thread::pin(SERVER_CORE);
    Ok(())
}

/// An address of loopback with a port that nobody has, for both transports.
///
/// # Errors
/// Where there is none.
pub(super) fn free() -> Result<SocketAddr> {
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
