//! The guides, done as a reader would: every file made, every command run, what it prints compared.
//!
//! `file NAME` is written, `serve` starts the server, `sh` has commands; `secondary MAKE` is the configuration of
//! another server, which `follows` sees come to something; the rest is in [`tests::guide`].

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Instant;

use tests::folder::Folder;
use tests::guide::{self, blocks, compare, prompts};
use tests::peer::{Peer, free_address};
use tests::program::{self, PROGRAM_WAIT};
use tests::secondary::Make;
use tests::serving::Serving;

/// Where servers are in the guides; in a test, each has a port that is free.
const OURS: &str = "5300";
const SECONDARY: &str = "5354";

#[test]
fn steer_a_name() {
    follow("steer-a-name.md", None);
}

#[test]
fn replay_a_capture() {
    follow("replay-a-capture.md", None);
}

#[test]
fn follow_a_zone_with_nsd() {
    follow("follow-a-zone.md", Some(("nsd", Make::Nsd)));
}

#[test]
fn follow_a_zone_with_knot() {
    follow("follow-a-zone.md", Some(("knot", Make::Knot)));
}

#[test]
fn follow_a_zone_with_bind() {
    follow("follow-a-zone.md", Some(("bind", Make::Bind)));
}

/// What a guide's reader has at hand.
struct Reader {
    folder: Folder,
    serving: Option<Serving>,
    /// Where a secondary is, from the beginning, and the secondary.
    secondary: (SocketAddr, Option<Peer>),
}

/// Goes through a guide from top to bottom; of other servers, only one make is tried.
fn follow(name: &str, make: Option<(&str, Make)>) {
    let text = guide::read(name);
    let mut reader = Reader { folder: Folder::new(), serving: None, secondary: (free_address(), None) };
    let mut commands = 0;
    for (kind, content) in blocks(&text) {
        let content = reader.at_ports(content);
        match kind.split_once(' ').unwrap_or((kind, "")) {
            ("file", file) => {
                let path = reader.folder.write(file, content);
                // As the guides ask for where it matters.
                keep_private(&path);
            }
            ("serve", _) => reader.serve(&content),
            ("secondary", named) => {
                if let Some((_, make)) = make.filter(|(wanted, _)| *wanted == named) {
                    let (address, peer) = &mut reader.secondary;
                    *peer = Some(make.start(&reader.folder, *address, &content));
                }
            }
            ("follows", wanted) => {
                let (command, expected) = prompts(&content).remove(0);
                assert_eq!(expected, [wanted], "{command}");
                reader.wait_for(command, wanted);
            }
            ("sh", _) => {
                for (command, expected) in prompts(&content) {
                    commands += 1;
                    if let Some(printed) = reader.run(command) {
                        compare(command, &printed, &expected);
                    }
                }
            }
            _ => {}
        }
    }
    assert!(commands > 0, "{name} has commands");
    assert_eq!(make.is_some(), reader.secondary.1.is_some(), "{name} has the secondary that is asked for");
}

fn keep_private(path: &str) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
}

impl Reader {
    /// The text with the ports that servers have here.
    fn at_ports(&self, text: &str) -> String {
        let text = text.replace(SECONDARY, &self.secondary.0.port().to_string());
        match &self.serving {
            Some(serving) => text.replace(OURS, &serving.dns().port().to_string()),
            None => text,
        }
    }

    fn serve(&mut self, command: &str) {
        let mut program = Command::new(program::path());
        program.current_dir(self.folder.path());
        let arguments: Vec<&str> = command.split_whitespace().skip(2).collect();
        self.serving = Some(Serving::under(program, &self.folder, &arguments));
    }

    /// Runs a command that must succeed; `None` where the machine does not have it.
    fn run(&self, command: &str) -> Option<String> {
        let output = self.try_to_run(command)?;
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).expect("it prints text"))
    }

    /// Runs a command against the server; `None` where the machine does not have it.
    fn try_to_run(&self, command: &str) -> Option<Output> {
        let serving = self.serving.as_ref().expect("the server was started");
        let mut words = command.split_whitespace();
        let name = words.next().expect("a command has a name");
        let mut process =
            if name == "pointsman" { Command::new(program::path()) } else { Command::new(name) };
        process.args(words).current_dir(self.folder.path());
        let ran = process.env("POINTSMAN_API", format!("http://{}", serving.api)).output();
        ran.inspect_err(|cause| tests::data::skip(&format!("{command}: {cause}"))).ok()
    }

    /// Runs a command until it prints this: a secondary takes a moment.
    fn wait_for(&self, command: &str, wanted: &str) {
        let until = Instant::now() + PROGRAM_WAIT;
        loop {
            let Some(output) = self.try_to_run(command) else { return };
            let printed = String::from_utf8_lossy(&output.stdout);
            if printed.trim_end() == wanted {
                return;
            }
            assert!(Instant::now() < until, "{command}: {printed}");
        }
    }
}
