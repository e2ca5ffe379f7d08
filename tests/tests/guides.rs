//! The guides, done as a reader would: every file made, every command run, what it prints compared.
//!
//! `file NAME` is written, `serve` starts the server, `reverse` the service of names, `nginx` Debian's, `web` another web
//! server; `sh` has commands, `until` such that are run again until they print that. `secondary MAKE` is the configuration of another
//! server, which `follows` sees come to something; the rest is in [`tests::guide`].

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Instant;

use tests::data;
use tests::folder::Folder;
use tests::guide::{self, blocks, compare, is_as, prompts};
use tests::nginx::Nginx;
use tests::peer::{Peer, free_address};
use tests::program::{self, PROGRAM_WAIT, Program};
use tests::secondary::Make;
use tests::serving::Serving;

/// Where servers are in the guides; in a test, each has a port that is free.
const OURS: &str = "5300";
const TLS: &str = "5853";
const SECONDARY: &str = "5354";
const SITES: [&str; 3] = ["8080", "8081", "8082"];
const NAMES: &str = "127.0.0.1:8054";
const API: &str = "127.0.0.1:8053";

#[test]
fn steer_a_name() {
    follow("steer-a-name.md", None);
}

#[test]
fn steer_between_cdns() {
    follow("steer-between-cdns.md", None);
}

#[test]
fn sign_a_zone() {
    follow("sign-a-zone.md", None);
}

#[test]
fn change_a_zone() {
    follow("change-a-zone.md", None);
}

#[test]
fn steer_in_a_signed_zone() {
    follow("steer-in-a-signed-zone.md", None);
}

#[test]
fn probe_your_servers() {
    follow("probe-your-servers.md", None);
}

#[test]
fn let_load_decide() {
    follow("let-load-decide.md", None);
}

#[test]
fn replay_a_capture() {
    follow("replay-a-capture.md", None);
}

#[test]
fn come_from_another_server() {
    let Some(database) = data::file("routing/GeoIP2-Country-Test.mmdb") else { return };
    let reader = Reader::new();
    std::fs::copy(database, reader.folder.at("GeoLite2-Country.mmdb")).expect("the folder is ours");
    reader.follow("come-from-another-server.md", None);
}

#[test]
fn verify_crawlers_in_nginx() {
    follow("verify-crawlers-in-nginx.md", None);
}

#[test]
fn verify_crawlers_elsewhere() {
    follow("verify-crawlers-elsewhere.md", None);
}

#[test]
fn answer_over_tls() {
    follow("answer-over-tls.md", None);
}

#[test]
fn take_a_zone_from_nsd() {
    follow("take-a-zone.md", Some(("nsd", Make::Nsd)));
}

#[test]
fn take_a_zone_from_knot() {
    follow("take-a-zone.md", Some(("knot", Make::Knot)));
}

#[test]
fn take_a_zone_from_bind() {
    follow("take-a-zone.md", Some(("bind", Make::Bind)));
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

#[test]
fn list_zones_in_a_catalog_for_knot() {
    follow("list-zones-in-a-catalog.md", Some(("knot", Make::Knot)));
}

#[test]
fn list_zones_in_a_catalog_for_bind() {
    follow("list-zones-in-a-catalog.md", Some(("bind", Make::Bind)));
}

/// What a guide's reader has at hand.
struct Reader {
    folder: Folder,
    serving: Option<Serving>,
    /// Where a secondary is, from the beginning, and the secondary.
    secondary: (SocketAddr, Option<Peer>),
    /// Where the server answers over TLS.
    tls: SocketAddr,
    /// Where web servers are.
    sites: [SocketAddr; 3],
    /// Where the service of names is, once it runs.
    names: Option<String>,
    /// A web server.
    nginx: Option<Nginx>,
    /// Other programs, which end with the test.
    programs: Vec<Program>,
}

/// Goes through a guide from top to bottom; of other servers, only one make is tried.
fn follow(name: &str, make: Option<(&str, Make)>) {
    Reader::new().follow(name, make);
}

/// For the owner alone, but for what a web server that runs as another user reads.
fn keep_private(path: &str) {
    let mode = if path.ends_with(".html") { 0o644 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

impl Reader {
    fn new() -> Reader {
        Reader {
            folder: Folder::new(),
            serving: None,
            secondary: (free_address(), None),
            tls: free_address(),
            sites: std::array::from_fn(|_| free_address()),
            names: None,
            nginx: None,
            programs: Vec::new(),
        }
    }

    /// Goes through a guide, as [`follow`] does, with what is in the folder already.
    fn follow(mut self, name: &str, make: Option<(&str, Make)>) {
        let text = guide::read(name);
        let mut commands = 0;
        for (kind, content) in blocks(&text) {
            let content = self.here(content);
            match kind.split_once(' ').unwrap_or((kind, "")) {
                ("file", file) => {
                    let path = self.folder.write(file, content);
                    // As the guides ask for where it matters.
                    keep_private(&path);
                }
                ("serve", _) => self.serve(&content),
                ("reverse", _) => self.name_addresses(&content),
                ("nginx", _) => {
                    self.nginx = Some(Nginx::start(self.command(&content)));
                }
                ("web", _) => self.programs.push(Program::spawn(self.command(&content))),
                ("secondary", named) => {
                    if let Some((_, make)) = make.filter(|(wanted, _)| *wanted == named) {
                        let (address, peer) = &mut self.secondary;
                        *peer = Some(make.start(&self.folder, *address, &content));
                    }
                }
                ("follows", wanted) => {
                    let (command, expected) = prompts(&content).remove(0);
                    assert_eq!(expected, [wanted], "{command}");
                    self.wait_for(command, &[wanted]);
                }
                ("until", _) => {
                    for (command, expected) in prompts(&content) {
                        commands += 1;
                        self.wait_for(command, &expected);
                    }
                }
                ("sh", _) => {
                    for (command, expected) in prompts(&content) {
                        commands += 1;
                        if let Some(printed) = self.run(command) {
                            compare(command, &printed, &expected);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(nginx) = self.nginx.take() {
            nginx.stop();
        }
        assert!(commands > 0, "{name} has commands");
        assert_eq!(make.is_some(), self.secondary.1.is_some(), "{name} has the secondary that is asked for");
    }

    /// The text with the addresses that servers have here.
    fn here(&self, text: &str) -> String {
        let text = text.replace(SECONDARY, &self.secondary.0.port().to_string());
        let text = text.replace(TLS, &self.tls.port().to_string());
        let text = SITES.iter().zip(self.sites).fold(text, |text, (site, address)| {
            let port = address.port();
            text.replace(&format!(":{site}"), &format!(":{port}"))
                .replace(&format!("port = {site}"), &format!("port = {port}"))
        });
        let text = self.names.iter().fold(text, |text, names| text.replace(NAMES, names));
        match &self.serving {
            Some(serving) => {
                text.replace(OURS, &serving.dns().port().to_string()).replace(API, &serving.api.to_string())
            }
            None => text,
        }
    }

    fn serve(&mut self, command: &str) {
        let mut program = Command::new(program::path());
        program.current_dir(self.folder.path());
        let arguments: Vec<&str> = command.split_whitespace().skip(2).collect();
        self.serving = Some(Serving::under(program, &self.folder, &arguments));
    }

    fn name_addresses(&mut self, command: &str) {
        let mut service = Program::spawn(self.command(&command.replace(NAMES, "127.0.0.1:0")));
        let line = service.line("(HTTP)");
        service.line("ready");
        self.names = Some(line.split(' ').nth(2).expect("an address").into());
        self.programs.push(service);
    }

    /// The process of a command line, in the folder.
    fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a command has a name");
        let mut process = match name {
            "pointsman" => Command::new(program::path()),
            // Where Debian keeps them, PATH may not look.
            "nginx" | "haproxy" | "apache2" => Command::new(format!("/usr/sbin/{name}")),
            name => Command::new(name),
        };
        // As a shell has them there.
        let folder = self.folder.path();
        process.args(words).current_dir(folder).env("HOME", folder).env("PWD", folder);
        process
    }

    /// Runs a command that must succeed; `None` where the machine does not have it.
    fn run(&self, command: &str) -> Option<String> {
        let output = self.try_to_run(command)?;
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).expect("it prints text"))
    }

    /// Runs a command against the servers that were started; `None` where the machine does not have it.
    fn try_to_run(&self, command: &str) -> Option<Output> {
        let mut process = self.command(command);
        if let Some(serving) = &self.serving {
            process.env("POINTSMAN_API", format!("http://{}", serving.api));
        }
        if let Some(names) = &self.names {
            process.env("POINTSMAN_REVERSE", format!("http://{names}"));
        }
        process.output().inspect_err(|cause| tests::data::skip(&format!("{command}: {cause}"))).ok()
    }

    /// Runs a command until it prints this: a secondary, or an answer from elsewhere, takes a moment.
    fn wait_for(&self, command: &str, wanted: &[&str]) {
        let until = Instant::now() + PROGRAM_WAIT;
        loop {
            let Some(output) = self.try_to_run(command) else { return };
            let printed = String::from_utf8_lossy(&output.stdout);
            if is_as(&printed, wanted) {
                return;
            }
            assert!(Instant::now() < until, "{command}: {printed}");
        }
    }
}
