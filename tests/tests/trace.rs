//! `pointsman trace` from outside: what it tells of captures, what it writes, and what it says of those that are damaged.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;
use tests::folder::Folder;
use tests::program::{self, Ended, PROGRAM_WAIT, Program};

/// Six queries of three clients in six seconds.
const LINES: &str = "\
10.000000000 192.0.2.1:5353 udp www.example.com. A rd
11.000000000 192.0.2.2:5353 udp www.example.com. AAAA rd,edns=1232,do
12.000000000 192.0.2.1:5353 tcp mail.example.com. MX -
13.000000000 198.51.100.7:99 udp www.example.org. A rd,cd
14.000000000 198.51.100.7:99 udp example.com. NS -
15.000000000 192.0.2.1:5353 udp www.example.com. TYPE65280 rd,edns=512
";

fn trace(arguments: &[&str]) -> Ended {
    Program::start(&[&["trace"], arguments].concat()).end()
}

/// What a command prints; it must end with a code.
fn told(code: i32, arguments: &[&str]) -> String {
    let ended = trace(arguments);
    assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout
}

/// The same as JSON.
fn json(code: i32, arguments: &[&str]) -> Value {
    let told = told(code, &[arguments, &["--json"]].concat());
    serde_json::from_str(&told).unwrap_or_else(|cause| panic!("{cause}: {told}"))
}

/// A text's lines without comments.
fn lines(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("it was written");
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn each_form_is_written_and_read_again() {
    let folder = Folder::new();
    let text = folder.write("a.txt", LINES);
    let [packets, again, queries] = ["b.pcap", "c.txt", "d.queries"].map(|name| folder.at(name));
    assert!(told(0, &["convert", &text, &packets]).contains("b.pcap: 6 messages"));
    told(0, &["convert", &packets, &again]);
    assert_eq!(lines(&again), LINES.lines().collect::<Vec<_>>());
    assert_eq!(json(0, &["convert", &again, &queries])["messages"], 6);
    assert_eq!(lines(&queries)[1..3], ["www.example.com. AAAA", "mail.example.com. MX"]);
    for file in [&text, &packets] {
        let info = json(0, &["info", file]);
        let counts = ["queries", "clients", "dnssec_ok", "seconds", "gap_mean_seconds"].map(|key| &info[key]);
        assert_eq!(
            counts,
            [&6.into(), &3.into(), &1.into(), &5.0.into(), &1.0.into()] as [&Value; 5],
            "{info}"
        );
        assert_eq!(info["transports"], serde_json::json!({ "udp": 5, "tcp": 1 }));
    }
    let info = json(0, &["info", &queries]);
    for key in ["start_ns", "seconds", "gap_mean_seconds", "gap_deviation_seconds", "longest_gap_seconds"] {
        assert_eq!(info.get(key), Some(&Value::Null), "{key}: {info}");
    }
    assert!(
        told(0, &["info", &packets])
            .contains("1970-01-01 00:00:10 UTC  5.000 s  1.000000 ± 0.000000 s  3        6")
    );
    let mut piped = Command::new("sh");
    piped.args(["-c", "exec \"$0\" trace info - --json < \"$1\""]).arg(program::path()).arg(&text);
    assert_eq!(Program::spawn(piped).end().stdout, told(0, &["info", &text, "--json"]));
    // Nothing is written over, nor in a form that nobody asked for.
    for (out, part) in [(&packets, "it is there already"), (&folder.at("e.pdf"), "FILE.txt, FILE.queries or")]
    {
        let ended = trace(&["convert", &text, out]);
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
    }
}

#[test]
fn who_asks_most_is_told() {
    let folder = Folder::new();
    let file = folder.write("a.txt", LINES);
    let told = json(0, &["top", &file, "--count", "1"]);
    assert_eq!(told["queries"], lines(&file).len());
    for kind in ["clients", "networks", "names", "domains"] {
        assert_eq!(told[kind].as_array().map(Vec::len), Some(1), "{kind}: {told}");
    }
    assert_eq!(told["domains"][0]["what"], "example.com.");
    let shown = self::told(0, &["top", &file]);
    assert!(shown.starts_with("CLIENT") && shown.contains("\nDOMAIN "), "{shown}");
    assert!(trace(&["top", &folder.at("none")]).stderr.contains("cannot be read"));
}

#[test]
fn a_part_is_what_all_that_is_said_holds_for() {
    let folder = Folder::new();
    let text = folder.write("a.txt", LINES);
    for (at, (words, expected)) in [
        (&["--from", "+1", "--to", "14"][..], &[1, 2, 3][..]),
        (&["--client", "192.0.2.0/24", "--suffix", "Example.com"], &[0, 1, 2, 5]),
        (&["--client", "192.0.2.2", "--client", "198.51.100.0/24", "--count", "2"], &[1, 3]),
        (&["--queries", "--from", "15"], &[5]),
        (&["--from", "1970-01-01 00:00:13 UTC", "--to", "1970-01-01T01:00:15+01:00"], &[3, 4]),
    ]
    .into_iter()
    .enumerate()
    {
        let out = folder.at(&format!("{at}.txt"));
        told(0, &[&["cut", &text, &out][..], words].concat());
        let all: Vec<&str> = LINES.lines().collect();
        assert_eq!(lines(&out), expected.iter().map(|at| all[*at]).collect::<Vec<_>>(), "{words:?}");
    }
    let none = folder.at("none.txt");
    let ended = trace(&["cut", &text, &none, "--suffix", "example.net"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("none of its 6 messages is as asked for"), "{}", ended.stderr);
    assert!(!Path::new(&none).exists());
}

#[test]
fn changes_are_told_and_follow_from_the_seed() {
    let folder = Folder::new();
    let text = folder.write("a.txt", LINES);
    let changed = |out: &str, seed: &str| {
        let out = folder.at(out);
        let words = ["do=100%", "suffix=example.com:example.net", "type=AAAA@50%"];
        let told = told(0, &[&["mutate", &text, &out, "--seed", seed][..], &words].concat());
        (told, lines(&out))
    };
    let (shown, one) = changed("b.txt", "7");
    assert!(shown.contains("6 of 6 queries changed, seed 7."), "{shown}");
    let names: Vec<&str> = one.iter().filter_map(|line| line.split(' ').nth(3)).collect();
    assert_eq!(names.iter().filter(|name| name.ends_with("example.net.")).count(), 5, "{one:?}");
    assert!(one.iter().all(|line| line.ends_with(",do") || line.contains(",do,")), "{one:?}");
    assert_eq!(changed("c.txt", "7").1, one);
    assert!((8..16).any(|seed| changed(&format!("{seed}.txt"), &seed.to_string()).1 != one));
    let ended = trace(&["mutate", &text, &folder.at("d.txt"), "do=2", "rd=1%", "colour=red"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    for part in ["CHANGE: do=2: 2 is no share", "CHANGE: colour=red: "] {
        assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
    }
}

#[test]
fn a_capture_that_breaks_off_is_used_as_far_as_it_goes() {
    let folder = Folder::new();
    let (text, whole) = (folder.write("a.txt", LINES), folder.at("whole.pcap"));
    told(0, &["convert", &text, &whole]);
    let octets = std::fs::read(&whole).expect("it was written");
    let cut = folder.write("cut.pcap", &octets[..octets.len() - 3]);
    // The last packet of the capture; the one over TCP has two.
    let last = octets.len() - 16 - (28 + 12 + 17 + 4 + 11);
    let place = format!("cut.pcap: packet 7, octet {last}: the file ends within this block");
    let out = folder.at("out.txt");
    for arguments in [&["info", &cut][..], &["convert", &cut, &out]] {
        let ended = trace(arguments);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(&place), "no '{place}' in: {}", ended.stderr);
        assert!(!ended.stdout.is_empty());
    }
    assert_eq!(lines(&out), LINES.lines().take(5).collect::<Vec<_>>());
    assert_eq!(json(1, &["info", &cut])["damage"]["packet"], 7);
    // Also where nobody reads what it prints.
    for words in [&["info", &cut][..], &["convert", &cut, &folder.at("unread.txt")]] {
        let (_, unread) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(program::path());
        let status = command.arg("trace").args(words).stdout(unread).stderr(Stdio::null()).status();
        assert_eq!(status.expect("it is started").code(), Some(1), "{words:?}");
    }
}

#[test]
fn a_signal_leaves_nothing_behind_also_where_nothing_comes_to_be_read() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let folder = Folder::new();
        let (pipe, out) = (folder.at("pipe"), folder.at("out.txt"));
        nix::unistd::mkfifo(Path::new(&pipe), Mode::S_IRWXU).expect("a pipe");
        let copying = Program::start(&["trace", "convert", &pipe, &out]);
        let mut writes = File::options().write(true).open(&pipe).expect("it is read");
        // More than is read at once, and then nothing more, nor the end.
        let waits = std::thread::spawn(move || (writes.write_all(LINES.repeat(10_000).as_bytes()), writes));
        let names = || {
            let entries = std::fs::read_dir(folder.path()).expect("it is there");
            let names =
                entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
            names.filter(|name| name != "pipe").collect::<Vec<_>>()
        };
        let until = Instant::now() + PROGRAM_WAIT;
        while !names().iter().any(|name| name.ends_with(".partial")) {
            assert!(Instant::now() < until, "{:?}", names());
        }
        copying.signal(signal);
        let ended = copying.end();
        assert_eq!(ended.status.code(), Some(1), "{signal}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("interrupted; ") && ended.stderr.contains("out.txt is not"),
            "{}",
            ended.stderr
        );
        assert_eq!(names(), Vec::<String>::new(), "{signal}");
        drop(waits.join());
    }
}

#[test]
fn what_is_no_trace_is_told() {
    let folder = Folder::new();
    let text = folder.write("a.txt", LINES);
    let packets = folder.at("packets.pcap");
    told(0, &["convert", &text, &packets]);
    let at = |name: &str, content: &[u8]| folder.write(name, content);
    for (file, more, code, part) in [
        (folder.at("missing"), &[][..], 2, "it cannot be read"),
        (at("empty", b""), &[], 2, "the file is empty"),
        (at("elf", b"\x7fELF\x02\x01\x01\0"), &[], 2, "the format is not known; supported are pcap"),
        (at("bz2", b"BZh91AY&SY"), &[], 2, "bzip2 is not supported"),
        (at("words.txt", b"10.5 192.0.2.1:1 udp a. A -\nthree words here\n"), &[], 1, "words.txt:2: "),
        (at("nothing.txt", b"# nothing\n"), &[], 2, "no DNS message at port 53; it has no packets at all"),
        (
            packets.clone(),
            &["--port", "99"],
            2,
            "no DNS message at port 99; skipped: at other ports (5), queries from the DNS port, or \
             responses to it (2); expected the port at which the servers listen (--port)",
        ),
    ] {
        let ended = trace(&[&["info", &file][..], more].concat());
        assert_eq!(ended.status.code(), Some(code), "{file}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "no '{part}' in: {}", ended.stderr);
    }
}

#[test]
fn the_exit_code_says_whether_anything_was_used() {
    let folder = Folder::new();
    let text = folder.write("a.txt", LINES);
    let packets = folder.at("a.pcap");
    told(0, &["convert", &text, &packets]);
    let octets = std::fs::read(&packets).expect("it was written");
    let cut = |name: &str, length: usize| folder.write(name, &octets[..length]);
    // The header of the capture, and those of its first packet.
    let (first, behind) = (cut("first.pcap", 24 + 16 + 20), cut("behind.pcap", octets.len() - 1));
    let query = folder.write("query.txt", "10.5 192.0.2.1:1 udp a. A -\nthree words here\n");
    for (file, more, code, told) in [
        (&first, &[][..], 2, &["first.pcap: packet 1, octet 24: the file ends"][..]),
        (&folder.write("hello.txt", "hello\n"), &[], 2, &["hello.txt:1: expected TIME"]),
        (&first, &["--port", "99"], 2, &["first.pcap: packet 1, octet 24: the file ends"]),
        (
            &behind,
            &["--port", "99"],
            2,
            &["behind.pcap: packet 7, octet", "no DNS message at port 99; skipped: "],
        ),
        (&behind, &[], 1, &["behind.pcap: packet 7, octet", "What stands before it was used."]),
        (&query, &[], 1, &["query.txt:2: expected TIME"]),
    ] {
        for (command, change) in [("info", None), ("convert", None), ("cut", None), ("mutate", Some("do=1%"))]
        {
            let out = folder.at("out.queries");
            let written = (command != "info").then_some(out.as_str());
            let words = [Some(command), Some(file), written, change].into_iter().flatten();
            let ended = trace(&[&words.collect::<Vec<_>>()[..], more].concat());
            assert_eq!(ended.status.code(), Some(code), "{command} {file}: {}", ended.stderr);
            assert!(told.iter().all(|part| ended.stderr.contains(part)), "{command}: {}", ended.stderr);
            assert_eq!(
                std::fs::remove_file(&out).is_ok(),
                code == 1 && written.is_some(),
                "{command} {file}"
            );
        }
    }
    // What is as asked for, but not before the end; and what has no place in the form.
    let out = folder.at("out.txt");
    let ended = trace(&["cut", &query, &out, "--suffix", "b"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(
        ["query.txt:2: ", "query.txt: none of its 1 message is as"]
            .iter()
            .all(|part| ended.stderr.contains(part)),
        "{}",
        ended.stderr
    );
    assert!(!Path::new(&out).exists());
}
