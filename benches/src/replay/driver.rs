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
    match attach(place) {
        Ok(()) => {
            let done = work();
            detach()?;
            Ok((done?, Echo::Xdp))
        }
        Err(error) => {
            println!("no XDP echo, so one on a socket: {error:#}");
            Ok((echo::during((SERVER, 53).into(), || Side::Server.enter(), work)?, Echo::Socket))
        }
    }
}

/// Compiles the program and puts it on the server's end; the other end gets one that lets everything pass, without
/// which nothing that is sent from XDP arrives. Checksums must be computed before, as no card does it here.
fn attach(place: &Place) -> Result<()> {
    let (source, object) = (place.folder.join("echo.c"), place.folder.join("echo.o"));
    fs::write(&source, SOURCE).with_context(|| format!("{}", source.display()))?;
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut compile = Command::new("clang");
    compile.args(["-O2", "-g", "-target", "bpf", &headers, "-c"]).arg(&source).arg("-o").arg(&object);
    process::read(&mut compile)?;
    // What the source of another row has left there.
    detach()?;
    process::read(Side::Source.command("ethtool").args(["-K", "vc", "tx", "off"]))?;
    link(Side::Server, &object, "xdp")?;
    link(Side::Source, &object, "xdp/pass")
}

fn link(side: Side, object: &Path, section: &str) -> Result<()> {
    let device = side.device();
    let mut command = side.command("ip");
    command.args(["link", "set", "dev", device, "xdp", "obj"]).arg(object).args(["sec", section]);
    process::read(&mut command).map(drop)
}

fn detach() -> Result<()> {
    for side in [Side::Server, Side::Source] {
        process::read(side.command("ip").args(["link", "set", "dev", side.device(), "xdp", "off"]))?;
    }
    process::read(Side::Source.command("ethtool").args(["-K", "vc", "tx", "on"]))?;
    Ok(())
}
