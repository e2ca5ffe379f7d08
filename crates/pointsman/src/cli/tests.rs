use std::fmt::Write as _;

use clap::CommandFactory;

use super::*;

/// The commands with what they are called by, from the top, groups before their members.
fn commands() -> Vec<(String, clap::Command)> {
    fn visit(name: &str, command: &clap::Command, found: &mut Vec<(String, clap::Command)>) {
        found.push((name.to_owned(), command.clone()));
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            visit(&format!("{name} {}", inner.get_name()), inner, found);
        }
    }
    let mut root = CommandLine::command().term_width(COLUMNS_MAX);
    root.build();
    let mut found = Vec::new();
    visit("pointsman", &root, &mut found);
    found
}

#[test]
fn the_declarations_hold_together() {
    CommandLine::command().debug_assert();
}

#[test]
fn every_help_ends_with_an_example_that_works() {
    for (name, mut command) in commands() {
        let help = command.render_long_help().to_string();
        let (_, example) =
            help.rsplit_once("Example:\n  ").unwrap_or_else(|| panic!("{name} has no example"));
        assert_eq!(example.trim_end().lines().count(), 1, "{name} ends with more than its example");
        // What stands behind < or > is the shell's.
        let said = example.split(['<', '>']).next().unwrap_or(example).split_whitespace();
        CommandLine::try_parse_from(said).unwrap_or_else(|error| panic!("{example}: {error}"));
        assert!(example.starts_with(&name) || name == "pointsman", "{name} shows another: {example}");
    }
}

#[test]
fn what_is_said_wrongly_is_refused() {
    for wrong in [
        "",
        "serve --speed 3",
        "zone",
        "zone get",
        "zone put",
        "partition lookup nowhere",
        "server down",
        "explain www.example.com",
        "explain www.example.com MX --client 192.0.2.1",
        "policy put p.json --if-match \"",
        "trace cut a.pcap b.pcap --count 0",
    ] {
        let said = ["pointsman"].into_iter().chain(wrong.split_whitespace());
        assert!(CommandLine::try_parse_from(said).is_err(), "{wrong}");
    }
}

#[test]
fn the_manual_is_fresh() {
    let mut text = String::from(
        "# Command line\n\n\
         What each command's `--help` says. `zone`, `region`, `partition`, `policy`, `server`, `explain` and `status` are\n\
         clients of a running server's API; where it is, they take from `--api`, else from the environment\n\
         (`POINTSMAN_API`), else it is the default. They send the token of `--token-file`, else that of `POINTSMAN_TOKEN`.\n\
         `balance status` and its like ask at `--http`, else at `POINTSMAN_BALANCE`, and send the same token;\n\
         `reverse status` asks at `--http`, else at `POINTSMAN_REVERSE`.\n\
         `serve` reads nothing from the environment but `NOTIFY_SOCKET`, for systemd (`Type=notify`), and with a store in\n\
         PostgreSQL what its URL leaves open (`PGPORT`, `PGUSER` and others of libpq's, `~/.pgpass`); it ends cleanly\n\
         on SIGTERM and SIGINT, and imports its files again on SIGHUP. `balance` reads rules,\n\
         certificate and key again; `reverse`, `agent` and `control` have nothing to reload: they say so on SIGHUP, and go on.\n\n\
         This page is written from the declarations of the commands.\n",
    );
    for (name, mut command) in commands() {
        let help = command.render_long_help().to_string();
        let lines: String = help.trim_end().lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        let _ = write!(text, "\n## {name}\n```\n{lines}```\n");
    }
    ::tests::fresh::check("docs/reference/command-line.md", &text);
}

#[test]
fn the_unit_says_what_the_command_line_takes() {
    let unit = include_str!("../../../../pkg/pointsman.service");
    for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
        let key = line.split_once('=').map(|(key, _)| key).unwrap_or_else(|| panic!("no setting: {line}"));
        assert!(key.chars().all(|c| c.is_ascii_alphabetic()), "{line}");
    }
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/")).expect("a command");
    // A flag would replace the store that the configuration names.
    assert!(
        !start.contains("--store") && unit.contains("\nWorkingDirectory=/var/lib/pointsman\n"),
        "{start}"
    );
    CommandLine::try_parse_from(start.split_whitespace()).unwrap_or_else(|error| panic!("{start}: {error}"));
}
