//! What the program shows of itself: logs, completions, manual pages.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use tests::folder::Folder;
use tests::program::{self, Ended, Program};
use tests::serving::Serving;

#[test]
fn each_line_of_a_json_log_is_an_event() {
    let folder = Folder::new();
    let zone =
        folder.write("example.com.zone", "$ORIGIN example.com.\n@ 60 SOA ns a 1 2 3 4 5\n@ 60 NS ns\n");
    let mut serving = Serving::start(&folder, &["--log", "json", "--log-level", "debug", "--zone", &zone]);
    serving.program.signal(Signal::SIGHUP);
    serving.program.line("reloaded");
    folder.write("example.com.zone", "broken");
    serving.program.signal(Signal::SIGHUP);
    serving.program.line("not reloaded");
    let ended = serving.stop();
    let messages: Vec<String> = ended.stderr.lines().map(message).collect();
    for expected in ["ready", "reloaded", "stopping", "stopped"] {
        assert!(messages.iter().any(|message| message == expected), "no '{expected}' in {messages:?}");
    }
}

/// The message of an event; it has a time, a level and a target too.
fn message(line: &str) -> String {
    let event: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    for key in ["timestamp", "level", "target"] {
        assert!(event[key].is_string(), "no {key} in {line}");
    }
    event["fields"]["message"].as_str().unwrap_or_else(|| panic!("no message in {line}")).to_owned()
}

#[test]
fn completions_are_scripts_of_their_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = run(&["completions", shell]);
        assert!(ended.stdout.contains("pointsman"), "{shell}: {}", ended.stdout);
    }
    let script = run(&["completions", "bash"]).stdout;
    let cases = [
        ("comp", "pointsman", "completions"),
        ("--cookie-", "serve", "--cookie-secrets"),
        ("", "serve --cookies", "off on require"),
        ("", "serve --nsid", ""),
    ];
    for (begun, before, expected) in cases {
        assert_eq!(completed(&script, before, begun), expected, "{before} {begun}");
    }
}

/// What bash offers for a word that is begun, behind others.
fn completed(script: &str, before: &str, begun: &str) -> String {
    let words = if before == "pointsman" { before.into() } else { format!("pointsman {before}") };
    let (last, place) = (words.rsplit(' ').next().expect("a word"), words.split(' ').count());
    let asked = format!(
        "\nCOMP_WORDS=({words} '{begun}'); COMP_CWORD={place}; _pointsman pointsman '{begun}' {last}; \
         echo ${{COMPREPLY[@]}}"
    );
    let mut bash = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash");
    bash.stdin.take().expect("a pipe").write_all([script, &asked].concat().as_bytes()).expect("bash reads");
    let ended = bash.wait_with_output().expect("bash ends");
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
}

#[test]
fn every_command_has_a_manual_page_that_groff_takes() {
    let folder = Folder::new();
    run(&["man", &folder.at("share/man1")]);
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder.at("share/man1")).expect("it was made") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let man = Command::new("man").args(["--warnings", "-E", "UTF-8", "-l"]).arg(&path).output();
        match man {
            Ok(man) => {
                let told = String::from_utf8_lossy(&man.stderr);
                assert!(man.status.success() && told.is_empty(), "{name}: {told}");
                let page = String::from_utf8_lossy(&man.stdout);
                for part in ["SYNOPSIS", "EXIT STATUS", concat!("pointsman ", env!("CARGO_PKG_VERSION"))] {
                    assert!(page.contains(part), "{name}: no {part} in\n{page}");
                }
            }
            Err(cause) => tests::data::skip(&format!("the look of {name}: man does not start: {cause}")),
        }
        pages.push(name);
    }
    for page in ["pointsman.1", "pointsman-serve.1", "pointsman-zone-put.1", "pointsman-completions.1"] {
        assert!(pages.iter().any(|found| found == page), "no {page} in {pages:?}");
    }
    let file = folder.write("taken", "");
    let ended = Program::start(&["man", &file]).end();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.stderr.contains("taken") && ended.stderr.contains("Expected: a folder"),
        "{}",
        ended.stderr
    );
}

#[test]
fn what_cannot_be_printed_has_failed() {
    let folder = Folder::new();
    for arguments in [&["--help"][..], &["--version"], &["help", "serve"], &["completions", "bash"]] {
        let mut command = Command::new(program::path());
        let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let ended = command.args(arguments).stdout(full).output().expect("the program starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("failed to write to stdout: No space left on device"), "{arguments:?}: {said}");
    }
    symlink("/dev/full", folder.at("pointsman.1")).expect("a link");
    let ended = Program::start(&["man", &folder.at("")]).end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("Expected: room for them"), "{}", ended.stderr);
}

fn run(arguments: &[&str]) -> Ended {
    let ended = Program::start(arguments).end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    ended
}
