//! The programs that are started: ours, servers that end with the run, and those that end by themselves.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::replay::ReplayReport;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::peer::find_address;

use crate::serving::{self, SENDER_CORE, pinned};

/// How long a server may take until it answers, and the time between two looks.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// A question for the root's SOA record.
const ROOT: [u8; 17] = [0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1];

/// What comes before who keeps times, or stands between others that do, so that it comes before other programs: it is not
/// held up for slices of 3 ms by what else the machine does on its core. Not with real-time priority: where a sender spins
/// without a pause, the kernel then gives the core to others for 50 ms at a time.
pub const PROMPT: [&str; 3] = ["nice", "-n", "-20"];

/// Our program, which stands beside this one.
#[derive(Clone, Debug)]
pub struct Pointsman(PathBuf);

/// A program that runs; ended when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// The address and port at which it answers.
    pub address: SocketAddr,
}

/// A program that executes what it reads, such as the client of a database, connected all the time.
#[derive(Debug)]
pub struct Fed {
    child: Killed,
    /// What it says, where it is heard.
    said: Option<BufReader<ChildStdout>>,
}

/// A process that is killed when dropped.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Pointsman {
    /// Finds the program that cargo has built.
    ///
    /// # Errors
    /// Where it is not there.
    pub fn find() -> Result<Pointsman> {
        serving::program().map(Pointsman)
    }

    /// The program, pinned to a core where there is more than one.
    pub fn command(&self, core: usize) -> Command {
        pinned(core, &self.0)
    }

    /// The same, [before all others](first) there.
    pub fn first(&self, core: usize) -> Command {
        first(core, &self.0)
    }

    /// Replays on the sender's core, before other programs where that is allowed; a run that was late is told as any
    /// other.
    ///
    /// # Errors
    /// Where it fails.
    pub fn replay(&self, trace: &Path, server: SocketAddr, options: &[&str]) -> Result<ReplayReport> {
        let core = SENDER_CORE;
        let mut command =
            if options.contains(&"--fast") { self.command(core) } else { prompt(core, &self.0) };
        command.arg("replay").arg(trace).args(["--server", &server.to_string(), "--tolerance", "1h"]);
        replayed(command.arg("--json").args(options))
    }
}

/// Runs a replay; a run that was late is told as any other.
///
/// # Errors
/// Where it tells no report.
pub fn replayed(command: &mut Command) -> Result<ReplayReport> {
    let output = command.stdin(Stdio::null()).output().context("the replay")?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| {
        format!("{command:?}: no report, but: {text}{}", String::from_utf8_lossy(&output.stderr))
    })
}

impl Server {
    /// Starts a server whose log goes to a folder; returns when it answers for the root over UDP, and takes connections.
    ///
    /// # Errors
    /// Where it does not; with what it said.
    pub fn start(folder: &Path, name: &str, command: Command, address: SocketAddr) -> Result<Server> {
        let is_answer = |answer: &[u8]| answer[3] & 15 == 0 && TcpStream::connect(address).is_ok();
        Server::until(folder, name, command, address, &ROOT, is_answer)
    }

    /// Starts a server whose log goes to a folder; returns when it answers a query so.
    ///
    /// # Errors
    /// Where it does not; with what it said.
    pub fn until(
        folder: &Path,
        name: &str,
        command: Command,
        address: SocketAddr,
        query: &[u8],
        is_answer: impl Fn(&[u8]) -> bool,
    ) -> Result<Server> {
        let mut server = Server::spawn(folder, name, command, address)?;
        let begin = Instant::now();
        let is_vain = || begin.elapsed() >= START_MAX || !matches!(server.child.try_wait(), Ok(None));
        if answers(address, query, LOOK, is_answer, is_vain)? {
            return Ok(server);
        }
        let said = fs::read_to_string(log(folder, name)).unwrap_or_default();
        bail!("{name} does not answer; it said:\n{said}")
    }

    /// Starts a program whose log goes to a folder, and waits for nothing.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn spawn(folder: &Path, name: &str, mut command: Command, address: SocketAddr) -> Result<Server> {
        Ok(Server { child: logged(&mut command, &log(folder, name))?, address })
    }

    /// The number of its first process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that has children of its own ends them when it is asked to end.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let begin = Instant::now();
        while begin.elapsed() < START_MAX && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fed {
    /// Starts the program, with a pipe to write to.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(command: &mut Command) -> Result<Fed> {
        Fed::begin(command.stdout(Stdio::null()))
    }

    /// The same of one that is heard.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start_heard(command: &mut Command) -> Result<Fed> {
        Fed::begin(command.stdout(Stdio::piped()))
    }

    fn begin(command: &mut Command) -> Result<Fed> {
        let started = command.stdin(Stdio::piped()).spawn();
        let mut child =
            started.with_context(|| format!("{:?} could not be started", command.get_program()))?;
        let said = child.stdout.take().map(BufReader::new);
        Ok(Fed { child: Killed(child), said })
    }

    /// Gives it a line, or what else it executes; the pipe holds what is early.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn line(&mut self, text: &str) -> Result<()> {
        let input = self.child.0.stdin.as_mut().context("its input")?;
        input.write_all(text.as_bytes()).context("its input")
    }

    /// Waits for the next line that it says.
    ///
    /// # Errors
    /// Where it has ended, or is not heard.
    pub fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        let said = self.said.as_mut().context("its output")?;
        ensure!(said.read_line(&mut line).context("its output")? > 0, "it has ended");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This process's session comes before others as long as this is held, as [`PROMPT`] has a program do within its session:
/// many kernels share a core between sessions first (autogroup, sched(7)), and nice values count within each alone.
#[derive(Debug)]
pub struct FirstSession {
    /// The session's own nice value before; none where there is no such thing, or it may not be changed.
    before: Option<String>,
}

/// Where the kernel says and takes a session's nice value: `/autogroup-25 nice 0`.
const AUTOGROUP: &str = "/proc/self/autogroup";

impl FirstSession {
    /// Lets this session come before all others, where the kernel shares cores between sessions.
    pub fn begin() -> FirstSession {
        let said = fs::read_to_string(AUTOGROUP).unwrap_or_default();
        let before = said.trim_end().rsplit_once(' ').map(|(_, nice)| nice.to_owned());
        FirstSession { before: before.filter(|_| fs::write(AUTOGROUP, "-20").is_ok()) }
    }
}

impl Drop for FirstSession {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = fs::write(AUTOGROUP, before);
        }
    }
}

/// As [`pinned`], [before others](PROMPT) where that is allowed.
pub fn prompt(core: usize, program: impl AsRef<Path>) -> Command {
    pinned_behind(&PROMPT, core, program)
}

/// As [`pinned`], before all others on its core where that is allowed, also those in control groups: a nice value counts
/// within its group alone. For what waits for packets, and never uses most of a core.
pub fn first(core: usize, program: impl AsRef<Path>) -> Command {
    pinned_behind(&["chrt", "--fifo", "1"], core, program)
}

/// As [`pinned`], started by these words where they start programs.
fn pinned_behind(words: &[&str], core: usize, program: impl AsRef<Path>) -> Command {
    let is_allowed = |output: Output| output.status.success() && output.stderr.is_empty();
    if let [starter, more @ ..] = words
        && Command::new(starter).args(more).arg("true").output().is_ok_and(is_allowed)
    {
        let mut command = pinned(core, starter);
        command.args(more).arg(program.as_ref());
        return command;
    }
    pinned(core, program)
}

/// An address of loopback with a port that nobody has, for both transports.
///
/// # Errors
/// Where there is none.
pub fn free() -> Result<SocketAddr> {
    find_address().context("no port is free for UDP and TCP alike")
}

/// Starts a program; what it says goes to `log`.
///
/// # Errors
/// Where it cannot be started.
pub fn logged(command: &mut Command, log: &Path) -> Result<Child> {
    let failed = || log.display().to_string();
    let out = File::create(log).with_context(failed)?;
    let error = out.try_clone().with_context(failed)?;
    let started = command.stdin(Stdio::null()).stdout(out).stderr(error).spawn();
    started.with_context(|| format!("{:?} could not be started", command.get_program()))
}

/// What a program prints and complains of, after it has ended well.
///
/// # Errors
/// Where it cannot be started, or ends otherwise: with what it said.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{:?} could not be started", command.get_program()))?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    bail!("{:?}: {}\n{text}", command.get_program(), output.status)
}

/// Asks a server, with so much time between two looks, until it answers so, which has at least a header, or until that is
/// in vain; says whether it does.
///
/// # Errors
/// Where there is no socket.
pub fn answers(
    server: SocketAddr,
    query: &[u8],
    look: Duration,
    is_answer: impl Fn(&[u8]) -> bool,
    mut is_vain: impl FnMut() -> bool,
) -> Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("a socket")?;
    socket.connect(server).context("a socket")?;
    socket.set_read_timeout(Some(look)).context("a socket")?;
    let mut answer = [0; 512];
    while !is_vain() {
        // A refused port is an error of the next call; either means "not yet".
        let length = socket.send(query).and_then(|_| socket.recv(&mut answer)).unwrap_or(0);
        if length > 12 && answer[..2] == query[..2] && is_answer(&answer[..length]) {
            return Ok(true);
        }
        thread::sleep(look);
    }
    Ok(false)
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}
