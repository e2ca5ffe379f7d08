//! The end that costs nothing: each query is turned round as its own answer, in the driver where that can be had.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use experiments::echo;

use crate::serve::place::{Place, SERVER, Side};
use crate::serve::process;

/// The program for the kernel.
const SOURCE: &str = include_str!("echo.c");

/// Which echo there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    Xdp,
    Socket,
}

impl Echo {
    /// What it is called in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Echo::Xdp => "an XDP program",
            Echo::Socket => "a batched echo on a socket",
        }
    }
}

/// Echoes on port 53 of the server's side while `work` is done; tells with its result what echoed.
///
/// # Errors
/// Those of `work`, and where there is no echo of either kind.
pub(crate) fn during<T>(place: &Place, work: impl FnOnce() -> Result<T>) -> Result<(T, Echo)> {
    let [server, source] =
        [Side::Server, Side::Source].map(|side| End { namespace: side.name(), device: side.device() });
    match attach(place, server, source) {
        Ok(()) => {
            let done = work();
            detach(server, source)?;
            Ok((done?, Echo::Xdp))
        }
        Err(error) => {
            println!("no XDP echo, so one on a socket: {error:#}");
            Ok((echo::during((SERVER, 53).into(), || Side::Server.enter(), work)?, Echo::Socket))
        }
    }
}

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) namespace: &'static str,
    pub(crate) device: &'static str,
}

/// Compiles the program and puts it on the end that is to echo; the other end gets one that lets everything pass,
/// without which nothing that is sent from XDP arrives. Checksums must be computed there, as no card does it here.
///
/// # Errors
/// Where it cannot be compiled or loaded.
pub(crate) fn attach(place: &Place, echoes: End, passes: End) -> Result<()> {
    let (source, object) = (place.folder.join("echo.c"), place.folder.join("echo.o"));
    fs::write(&source, SOURCE).with_context(|| format!("{}", source.display()))?;
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut compile = Command::new("clang");
    compile.args(["-O2", "-g", "-target", "bpf", &headers, "-c"]).arg(&source).arg("-o").arg(&object);
    process::read(&mut compile)?;
    // What the source of another row has left there.
    detach(echoes, passes)?;
    leave_checksums_to_sender(passes)?;
    link(echoes, &object, "xdp")?;
    link(passes, &object, "xdp/pass")
}

/// Takes it off again.
///
/// # Errors
/// Where that is refused.
pub(crate) fn detach(echoes: End, passes: End) -> Result<()> {
    for end in [echoes, passes] {
        process::read(end.command("ip").args(["link", "set", "dev", end.device, "xdp", "off"]))?;
    }
    process::read(passes.command("ethtool").args(["-K", passes.device, "tx", "on"]))?;
    Ok(())
}

/// Has the kernel compute checksums of what leaves here, and cut it before: no card does it.
///
/// # Errors
/// Where that is refused.
pub(crate) fn leave_checksums_to_sender(end: End) -> Result<()> {
    process::read(end.command("ethtool").args(["-K", end.device, "tx", "off"])).map(drop)
}

fn link(end: End, object: &Path, section: &str) -> Result<()> {
    let mut command = end.command("ip");
    command.args(["link", "set", "dev", end.device, "xdp", "obj"]).arg(object).args(["sec", section]);
    process::read(&mut command).map(drop)
}

impl End {
    /// A program inside its namespace.
    fn command(self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace, program]);
        command
    }
}
