//! The guides, done as a reader would: every file made, every command run, what it prints compared.
//!
//! A block's first line says what it is: `file NAME` is written, `serve` starts the server, `sh` has commands behind
//! `$` and what each prints; a line of three dots stands for any rest. Other blocks are for reading only.

use std::path::Path;
use std::process::Command;

use tests::folder::Folder;
use tests::program;
use tests::serving::Serving;

#[test]
fn steer_a_name() {
    follow("steer-a-name.md");
}

#[test]
fn replay_a_capture() {
    follow("replay-a-capture.md");
}

/// Goes through a guide from top to bottom.
fn follow(guide: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides").join(guide);
    let text = std::fs::read_to_string(&path).expect("the guide is there");
    let folder = Folder::new();
    let mut serving = None;
    let mut commands = 0;
    for (kind, content) in blocks(&text) {
        if let Some(name) = kind.strip_prefix("file ") {
            folder.write(name, content);
        } else if kind == "serve" {
            let mut program = Command::new(program::path());
            program.current_dir(folder.path());
            let arguments: Vec<&str> = content.split_whitespace().skip(2).collect();
            serving = Some(Serving::under(program, &folder, &arguments));
        } else if kind == "sh" {
            for (command, expected) in prompts(content) {
                commands += 1;
                let serving = serving.as_ref().expect("the server was started");
                if let Some(printed) = run(command, serving, &folder) {
                    compare(command, &printed, &expected);
                }
            }
        }
    }
    assert!(commands > 0, "{guide} has commands");
}

/// The fenced blocks of a text: what stands behind the fence, and what is inside.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split("```").collect();
    parts.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// The commands of a block, each with the lines that it prints.
fn prompts(block: &str) -> Vec<(&str, Vec<&str>)> {
    let mut prompts: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => prompts.push((command, Vec::new())),
            None => prompts.last_mut().expect("a command comes first").1.push(line),
        }
    }
    prompts
}

/// Runs a command against the server; `None` where the machine does not have it.
fn run(command: &str, serving: &Serving, folder: &Folder) -> Option<String> {
    let port = format!("-p {}", serving.dns().port());
    let command = command.replace("-p 5300", &port).replace("127.0.0.1:5300", &serving.dns().to_string());
    let mut words = command.split_whitespace();
    let name = words.next().expect("a command has a name");
    let mut process = if name == "pointsman" { Command::new(program::path()) } else { Command::new(name) };
    process.args(words).current_dir(folder.path()).env("POINTSMAN_API", format!("http://{}", serving.api));
    match process.output() {
        Ok(output) => {
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8(output.stdout).expect("it prints text"))
        }
        Err(cause) => {
            tests::data::skip(&format!("{command}: {cause}"));
            None
        }
    }
}

fn compare(command: &str, printed: &str, expected: &[&str]) {
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let (expected, open) = match expected {
        [known @ .., "..."] => (known, true),
        all => (all, false),
    };
    let compared = if open { &printed[..expected.len().min(printed.len())] } else { &printed[..] };
    assert_eq!(compared, expected, "{command}");
}
