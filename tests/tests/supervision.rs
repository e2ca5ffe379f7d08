//! Whoever runs the program is told how far it is, and asks things of it by signals.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::program::{self, PROGRAM_WAIT, Program};

const REVERSE: &[&str] = &["reverse", "--upstream", "192.0.2.53", "--dns", "127.0.0.1:0"];
const BALANCE: &[&str] = &["balance", "--listen", "127.0.0.1:0", "--backend", "127.0.0.1:9"];
const AGENT: &[&str] = &["agent", "--service", "udp:127.0.0.1:9", "--print"];

#[test]
fn who_has_nothing_to_reload_says_so_and_goes_on() {
    let folder = Folder::new();
    let key = folder.at("key");
    assert!(Program::start(&["key", "new", &key]).end().status.success());
    let agent = ["agent", "--service", "udp:127.0.0.1:9", "--balancer", "127.0.0.1:9", "--key", &key];
    for arguments in [REVERSE, BALANCE, &agent] {
        let mut program = Program::start(arguments);
        program.line("ready");
        for _ in 0..2 {
            program.signal(Signal::SIGHUP);
            program.line("nothing to reload");
        }
        program.stop();
    }
}

#[test]
fn the_service_manager_is_told_and_a_log_that_nobody_takes_ends_nothing() {
    let folder = Folder::new();
    let (at, store) = (folder.at("notify"), tests::serving::store(&folder));
    let manager = UnixDatagram::bind(&at).expect("the folder can be written");
    manager.set_read_timeout(Some(PROGRAM_WAIT)).expect("the bound is not zero");
    let told = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).expect("the program tells");
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    let serve = ["serve", "--store", &store, "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"];
    for arguments in [&serve, REVERSE, BALANCE, AGENT] {
        let mut command = Command::new("sh");
        command.args(["-c", "export NOTIFY_SOCKET=\"$1\"; shift; exec \"$@\" 2>/dev/full", "sh", &at]);
        command.arg(program::path()).args(arguments);
        let program = Program::spawn(command);
        assert_eq!(told(), "READY=1", "{arguments:?}");
        program.signal(Signal::SIGHUP);
        program.signal(Signal::SIGTERM);
        assert_eq!(told(), "STOPPING=1", "{arguments:?}");
        assert_eq!(program.end().status.code(), Some(0), "{arguments:?}");
    }
}
