//! Our name server in a process of its own, on ports of the system's choice; it ends with who started it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The core of whoever is asked, and that of whoever asks.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const SENDER_CORE: usize = 1;

/// What `setpriv` does to a program, so that not even a signal to us alone lets it live on. Only the thread that starts it
/// counts as us.
pub(crate) const ENDS_WITH_US: [&str; 3] = ["--pdeathsig", "KILL", "--"];

/// How long the API may take to answer.
const CALL_MAX: Duration = Duration::from_secs(60);

/// A server that answers; killed when dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    child: Child,
    /// Where it answers DNS.
    pub(crate) dns: SocketAddr,
    /// Its API.
    pub(crate) api: SocketAddr,
}

/// A connection to its API, kept open.
#[derive(Debug)]
pub(crate) struct Calls(BufReader<TcpStream>);

impl Serving {
    /// Starts it with one worker and these lines of configuration behind its addresses and store; `folder` is for its
    /// files, to which the lines may refer. Returns when it is ready.
    ///
    /// # Errors
    /// Where it does not become ready; with what it said.
    pub(crate) fn start(folder: &Path, lines: &str) -> Result<Serving> {
        let config = folder.join("pointsman.toml");
        let store = folder.join("store.db");
        let text = format!(
            "version = \"v1\"\nlisten = [\"127.0.0.1:0\"]\napi = \"127.0.0.1:0\"\nworkers = 1\nstore = \"sqlite:{}\"\n{lines}",
            store.display(),
        );
        std::fs::write(&config, text).with_context(|| config.display().to_string())?;
        let mut command = pinned(SERVER_CORE, "setpriv");
        command.args(ENDS_WITH_US).arg(program()?).args(["serve", "--config"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("the program")?;
        let pipe = child.stderr.take().context("its stderr")?;
        let mut serving = Serving { child, dns: ([0; 4], 0).into(), api: ([0; 4], 0).into() };
        let mut said = String::new();
        let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
        for line in lines.by_ref() {
            if let Some(place) = line.split_once("listening on ").and_then(|(_, at)| at.split(' ').next()) {
                match place.strip_prefix("http://") {
                    Some(api) => serving.api = api.parse().context("the API's address")?,
                    None => serving.dns = place.parse().context("its address")?,
                }
            }
            if line.contains("ready") {
                // It must never wait for a reader.
                thread::spawn(move || lines.for_each(drop));
                return Ok(serving);
            }
            said = said + &line + "\n";
        }
        bail!("pointsman does not start; it said:\n{said}")
    }
}

impl Calls {
    /// Connects.
    ///
    /// # Errors
    /// Where nobody listens.
    pub(crate) fn to(api: SocketAddr) -> Result<Calls> {
        let stream = TcpStream::connect(api).context("the API")?;
        stream.set_nodelay(true).context("the API")?;
        stream.set_read_timeout(Some(CALL_MAX)).context("the API")?;
        Ok(Calls(BufReader::new(stream)))
    }

    /// Makes a call, which must succeed; returns what is answered.
    ///
    /// # Errors
    /// Where it is refused; with the reason.
    pub(crate) fn call(&mut self, method: &str, path: &str, body: &str) -> Result<String> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all((head + body).as_bytes()).context("a call")?;
        let (status, said) = self.answer().context("a call's answer")?;
        if status != 200 {
            bail!("{method} {path} was answered with {status}: {said}");
        }
        Ok(said)
    }

    fn answer(&mut self) -> Result<(u16, String)> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).context("no status line")?;
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().context("Content-Length")?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where our program is: beside this one.
///
/// # Errors
/// Where it is not there.
pub(crate) fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program is")?.with_file_name("pointsman");
    if !program.exists() {
        bail!("{} is not built: `cargo xtask experiment` does that", program.display());
    }
    Ok(program)
}

/// A program, pinned to a core where there is more than one.
pub(crate) fn pinned(core: usize, program: impl AsRef<Path>) -> Command {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() > core) {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(program.as_ref());
        return command;
    }
    Command::new(program.as_ref())
}
