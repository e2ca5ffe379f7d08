//! File descriptors run out: UDP goes on, and so does TCP once some are given back.

use std::process::Command;
use std::time::Instant;

use tests::folder::Folder;
use tests::program::{self, PROGRAM_WAIT};
use tests::query::{Question, connect, receive, send};
use tests::serving::Serving;

/// The most descriptors that the server may have: what it needs for itself, and some connections.
const DESCRIPTORS: usize = 64;

const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.1\n";

#[test]
fn without_descriptors_udp_goes_on() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let mut limited = Command::new("sh");
    let limit = format!("ulimit -n {DESCRIPTORS} && exec \"$0\" \"$@\"");
    limited.args(["-c", &limit]).arg(program::path());
    let server = Serving::under(limited, &folder, &["--zone", &zone, "--workers", "1"]);
    // Connected before there is none left.
    let mut api = server.client();
    let mut failures = || api.metric("pointsman_tcp_accept_failed_total").expect("the metric is there");
    assert_eq!(failures(), 0.0);
    let question = Question::new("www.example.com", "A");
    let mut served = connect(server.dns());

    let held: Vec<_> = (0..DESCRIPTORS).map(|_| connect(server.dns())).collect();
    let until = Instant::now() + PROGRAM_WAIT;
    while failures() == 0.0 {
        assert!(Instant::now() < until, "descriptors do not run out");
    }
    for _ in 0..500 {
        assert_eq!(question.udp(server.dns()).data(), ["192.0.2.1"]);
    }
    send(&mut served, &question.message()).expect("the connection is served");
    receive(&mut served).expect("an answer");

    drop(held);
    assert_eq!(question.tcp(server.dns()).data(), ["192.0.2.1"], "who waits is accepted in the end");
    server.stop();
}
