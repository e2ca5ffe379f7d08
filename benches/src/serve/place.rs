//! Where servers and source stand: two network namespaces, joined by one veth pair and by nothing else.
//!
//! No route leads out, so that spoofed sources cannot leave. The program runs in a PID namespace and a mount
//! namespace of its own (`cargo xtask bench` starts it so), and is the first process there: when it ends, in
//! whatever way, the kernel kills every process that it started, and the network namespaces, which only those
//! and its mounts hold, go with them.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};
pub(crate) use experiments::serving::{SENDER_CORE as SOURCE_CORE, SERVER_CORE};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal};

use crate::machine;

/// The server's address.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

/// The source's own address; it spoofs others.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// One of the two namespaces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Server,
    Source,
}

impl Side {
    /// The namespace's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Server => "server",
            Side::Source => "source",
        }
    }

    /// Its end of the pair.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Side::Server => "vs",
            Side::Source => "vc",
        }
    }

    /// The core of its programs.
    pub(crate) fn core(self) -> usize {
        match self {
            Side::Server => SERVER_CORE,
            Side::Source => SOURCE_CORE,
        }
    }

    /// A program inside the namespace, on its core.
    pub(crate) fn command(self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(), "taskset", "-c", &self.core().to_string(), program]);
        command
    }

    /// Takes this thread into the namespace, and to its core, for good.
    ///
    /// # Errors
    /// Where the namespace cannot be entered.
    pub(crate) fn enter(self) -> Result<()> {
        enter(self.name(), self.core())
    }

    /// Does something in a thread inside the namespace, on its core.
    ///
    /// # Errors
    /// What it fails with; that the namespace cannot be entered.
    pub(crate) fn within<T: Send>(self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        inside(self.name(), self.core(), work)
    }
}

/// Does something in a thread inside the server's namespace, but on the source's core: for clients of the API,
/// which is not to be reached from elsewhere.
///
/// # Errors
/// As [`Side::within`].
pub(crate) fn beside_server<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    inside(Side::Server.name(), SOURCE_CORE, work)
}

/// Takes this thread into a namespace, and to a core, for good.
///
/// # Errors
/// Where the namespace cannot be entered.
pub(crate) fn enter(namespace: &str, core: usize) -> Result<()> {
    let path = format!("/run/netns/{namespace}");
    let file = File::open(&path).with_context(|| path.clone())?;
    setns(file, CloneFlags::CLONE_NEWNET).with_context(|| path.clone())?;
    net::thread::pin(core).context("pinning a thread")
}

/// Does something in a thread inside a namespace, on a core.
///
/// # Errors
/// As [`Side::within`].
pub(crate) fn inside<T: Send>(
    namespace: &str,
    core: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            enter(namespace, core)?;
            work()
        });
        inside.join().unwrap_or_else(|_| bail!("a thread of the measurement panicked"))
    })
}

/// Which core receives what the source sends. What the server sends is received by the server's core in both cases: a
/// virtual device hands it over where it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reception {
    /// The server's, as with a device of its own: for a source that takes frames, whose reception costs next to nothing.
    /// Each datagram costs an interrupt from core to core.
    Own,
    /// The source's: for a source with sockets, whose whole reception is the server's core's. So each core receives once,
    /// what is sent to the other, and no core interrupts the other for it.
    Exchanged,
}

/// The two namespaces, and a folder on a disk for what servers keep.
#[derive(Debug)]
pub(crate) struct Place {
    /// Emptied at the start and removed at the end.
    pub(crate) folder: PathBuf,
}

impl Place {
    /// Makes both namespaces. From here on, SIGINT, SIGTERM and SIGHUP end this program after the folder is
    /// removed.
    ///
    /// # Errors
    /// Where this program was not started as it should be, or a step fails.
    pub(crate) fn make() -> Result<Place> {
        if std::process::id() != 1 {
            bail!("this must be the first process of its PID namespace: run `cargo xtask bench`, as root");
        }
        if std::thread::available_parallelism().map_or(0, usize::from) < 2 {
            bail!("two cores are needed: one for the server, one for the source");
        }
        let folder = machine::root().join("target/bench");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        clean_up_when_told(folder.clone())?;
        let place = Place { folder };
        fs::create_dir_all("/run/netns").context("/run/netns")?;
        let steps = format!(
            "mount -t tmpfs tmpfs /run/netns
             ip netns add server
             ip netns add source
             ip link add vs netns server type veth peer name vc netns source
             ip -n server addr add {SERVER}/24 dev vs
             ip -n source addr add {SOURCE}/24 dev vc
             for side in 'server vs' 'source vc'; do
                 set -- $side
                 ip -n $1 link set lo up
                 ip -n $1 link set $2 up
             done
             hardware=$(ip -n source -brief link show vc | awk '{{ print $3 }}')
             ip -n server neigh replace {SOURCE} lladdr $hardware dev vs nud permanent
             ip -n server route add default via {SOURCE}
             ip netns exec server ethtool -K vs tx off >/dev/null",
        );
        let status = Command::new("sh").args(["-euc", &steps]).status().context("sh")?;
        if !status.success() {
            bail!("the network namespaces could not be made ({status}); see above");
        }
        place.receive(Reception::Own)?;
        Ok(place)
    }

    /// Says which core receives what comes to the server, from now on.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub(crate) fn receive(&self, reception: Reception) -> Result<()> {
        let mask = match reception {
            Reception::Own => 1 << SERVER_CORE,
            Reception::Exchanged => 0,
        };
        self.set("queues/rx-0/rps_cpus", &format!("{mask:x}"))
    }

    /// Takes away the program that a server has left in the way of frames when it was killed.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub(crate) fn free_frames(&self) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["-n", Side::Server.name(), "link", "set", Side::Server.device(), "xdp", "off"]);
        let status = command.status().context("ip")?;
        if !status.success() {
            bail!("the program in the way of frames could not be taken away ({status}); see above");
        }
        Ok(())
    }

    /// Has a thread of the kernel receive for who takes frames now. Otherwise that is done where it was sent, by the source's
    /// core. `cargo xtask bench` keeps it on the server's.
    ///
    /// # Errors
    /// Where the kernel refuses it: nobody takes frames.
    pub(crate) fn receive_by_thread(&self) -> Result<()> {
        self.set("threaded", "1")
    }

    /// Writes to a setting of the server's device.
    fn set(&self, setting: &str, value: &str) -> Result<()> {
        let step = format!("echo {value} > /sys/class/net/{}/{setting}", Side::Server.device());
        let status =
            Command::new("ip").args(["netns", "exec", Side::Server.name(), "sh", "-c", &step]).status();
        let status = status.context("ip")?;
        if !status.success() {
            bail!("{setting} of the server's device cannot be {value} ({status}); see above");
        }
        Ok(())
    }

    /// Has the server's device take checksums and cutting messages into datagrams off the server's core, from now on, as
    /// network cards of servers do, or not. Who takes frames sees neither done, so it is off at first.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub(crate) fn offload(&self, does: bool) -> Result<()> {
        let word = if does { "on" } else { "off" };
        let device = Side::Server.device();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", Side::Server.name(), "ethtool", "-K", device, "tx", word]);
        let output = command.output().context("ethtool")?;
        if !output.status.success() {
            bail!("ethtool: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(())
    }

    /// A new, empty folder for one server.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub(crate) fn room(&self, name: &str) -> Result<PathBuf> {
        let room = self.folder.join(name);
        let _ = fs::remove_dir_all(&room);
        fs::create_dir_all(&room).with_context(|| format!("{}", room.display()))?;
        Ok(room)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits for a signal in a thread of its own. The first process of a PID namespace is ended by no signal that it
/// does not ask for, so this is its only way to hear of one.
fn clean_up_when_told(folder: PathBuf) -> Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block().context("blocking signals")?;
    thread::spawn(move || {
        if signals.wait().is_ok() {
            let _ = fs::remove_dir_all(&folder);
            std::process::exit(130);
        }
    });
    Ok(())
}
