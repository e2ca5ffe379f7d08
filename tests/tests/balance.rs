//! `pointsman balance` before name servers of other makes, and before such as answer whatever a test wants.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tests::balancing::{Balancing, Scripted, answer};
use tests::folder::Folder;
use tests::guide;
use tests::http::Client;
use tests::peer::{Peer, free_address};
use tests::program::{self, PROGRAM_WAIT, Program};
use tests::query::{self, Answer, Question};
use tests::secondary::Make;

const ZONE: &str = "$TTL 60\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.80\n";

fn ask(dns: SocketAddr, name: &str) -> Answer {
    Question::new(name, "A").udp(dns)
}

#[test]
fn queries_are_spread_over_bind_and_nsd() {
    let folders = [Folder::new(), Folder::new()];
    let zone = folders[0].write("example.zone", ZONE);
    let bind = Make::Bind.start(
        &folders[0],
        free_address(),
        &format!("zone \"example\" {{ type primary; file \"{zone}\"; }};\n"),
    );
    let nsd = Peer::nsd(&folders[1], "example", &zone);
    for policy in
        ["pressure", "wrr", "random", "least-outstanding", "p2c", "ewma", "hot-cold", "hash", "credit"]
    {
        let balancing = Balancing::start(&[bind.dns, nsd.dns], &["--policy", policy]);
        for _ in 0..20 {
            assert_eq!(ask(balancing.dns, "www.example").data(), ["192.0.2.80"], "{policy}");
        }
        let signed = Question::new("nothing.example", "A").dnssec_ok().udp(balancing.dns);
        assert_eq!((signed.rcode.as_str(), signed.edns), ("NXDOMAIN", true), "{policy}");
        balancing.stop();
    }
}

#[test]
fn only_the_reply_to_the_query_reaches_the_client() {
    let back_end = Scripted::start(|query, _, socket, from| {
        let good = answer(query, 0);
        let mut others = vec![good.clone(), good.clone(), good.clone(), good[..11].to_vec(), Vec::new()];
        // Another id, another question, a query, a part.
        others[0][1] ^= 1;
        others[1][13] ^= 0x03;
        others[2][2] &= 0x7f;
        for other in others {
            socket.send_to(&other, from).expect("loopback sends");
        }
        // Right, but from another address.
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        stranger.send_to(&answer(query, 3), from).expect("loopback sends");
        socket.send_to(&answer(query, 5), from).expect("loopback sends");
    });
    let balancing = Balancing::start(&[back_end.address], &["--tries", "1"]);
    for name in ["www.example", "WwW.eXample", "."] {
        assert_eq!(ask(balancing.dns, name).rcode, "REFUSED", "{name}");
    }
    balancing.stop();
}

#[test]
fn who_does_not_answer_is_replaced_and_a_late_reply_is_not_taken() {
    // It keeps its answers until the next query comes.
    let kept = std::sync::Mutex::new(Vec::new());
    let slow = Scripted::start(move |query, _, socket, from| {
        let mut kept = kept.lock().expect("nothing panics");
        for (reply, to) in kept.drain(..) {
            socket.send_to(reply, to).expect("loopback sends");
        }
        kept.push((Box::leak(answer(query, 3).into_boxed_slice()) as &[u8], from));
    });
    let good = Scripted::start(|query, _, socket, from| {
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    let more = ["--policy", "wrr", "--timeout", "100ms"];
    let balancing = Balancing::start(&[slow.address, good.address], &more);
    for _ in 0..8 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");
    }
    assert!(slow.asked() >= 2 && good.asked() >= 6);
    balancing.stop();
}

#[test]
fn where_nobody_answers_the_client_is_told() {
    let silent = Scripted::start(|_, _, _, _| {});
    let balancing = Balancing::start(&[silent.address], &["--timeout", "50ms"]);
    for question in [Question::new("www.example", "A"), Question::new("www.example", "A").dnssec_ok()] {
        let edns = question.message().len() > Question::new("www.example", "A").message().len();
        for answer in [question.udp(balancing.dns), question.tcp(balancing.dns)] {
            assert_eq!((answer.rcode.as_str(), answer.edns), ("SERVFAIL", edns));
        }
    }
    balancing.stop();
}

#[test]
fn what_became_of_queries_adds_up() {
    let more = ["--http", "127.0.0.1:0", "--probe-interval", "1h", "--tries", "1"];
    let balancing = Balancing::start(&[free_address()], &more);
    for _ in 0..3 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    }
    // The question is not there.
    let headless = &Question::new("www.example", "A").message()[..12];
    query::exchange(&query::socket(balancing.dns), headless).expect("it is answered");
    let status = balancing.client().call("GET", "/v1/status", "").json();
    let [queries, answers, failed, turned_away] =
        ["queries", "answers", "failed", "turned_away"].map(|name| status[name].as_u64());
    assert_eq!([queries, answers, failed, turned_away], [4, 0, 3, 1].map(Some), "{status}");
    let back_end = &status["back_ends"][0];
    let [sent, answered, timeouts, unreached] =
        ["sent", "answered", "timeouts", "unreached"].map(|name| back_end[name].as_u64().unwrap_or(0));
    assert!(unreached > 0, "{back_end}");
    assert_eq!(sent, answered + timeouts + unreached, "{back_end}");
    balancing.stop();
}

/// Nobody may send to all at once unasked, so no socket to the first can be opened.
#[test]
fn who_has_no_socket_is_passed_over() {
    // A link's address without the link.
    let nobody = SocketAddr::from(([0xfe80, 0, 0, 0, 0, 0, 0, 1], 5300));
    let good = Scripted::answering(0);
    // Probes find it out much later.
    let more = ["--http", "127.0.0.1:0", "--policy", "wrr", "--tries", "1", "--probe-interval", "1h"];
    let balancing = Balancing::start(&[nobody, good.address], &more);
    for _ in 0..20 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");
    }
    assert_eq!(balancing.metric("pointsman_balance_no_socket_total"), 0.0);
    assert!(balancing.stop().stderr.contains("cannot be opened"));
    let balancing = Balancing::start(&[nobody], &more);
    assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    assert_eq!(balancing.metric("pointsman_balance_no_socket_total"), 1.0);
    balancing.stop();
}

/// Starts a balancer that needs 272 sockets to its back ends, with this limit on descriptors.
fn limited(limit: &str) -> String {
    let back_ends = Scripted::answering(0);
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]).arg(program::path());
    limited.args(["balance", "--listen", "127.0.0.1:0", "--sockets", "16", "--workers", "17"]);
    limited.arg(format!("--backend={}", back_ends.address));
    let mut program = Program::spawn(limited);
    let line = program.line("(DNS)");
    let dns = line.split(' ').nth(2).and_then(|text| text.parse().ok()).expect("an address");
    program.line("ready");
    assert_eq!(ask(dns, "www.example").rcode, "NOERROR");
    program.stop().stderr
}

#[test]
fn as_many_descriptors_as_may_be_are_had() {
    let (raised, low) = (limited("ulimit -S -n 100"), limited("ulimit -n 400"));
    assert!(!raised.contains("cannot be opened"), "{raised}");
    assert!(low.contains("fewer files can be open than workers x sockets x back ends"), "{low}");
}

/// A query in flight holds all of the address, and a request that is never whole nothing of it.
#[test]
fn who_ends_leaves_the_address_whole_and_at_once() {
    let silent = Scripted::start(|_, _, _, _| {});
    let more = ["--http", "127.0.0.1:0", "--workers", "2", "--timeout", "3s"];
    let balancing = Balancing::start(&[silent.address], &more);
    let socket = query::socket(balancing.dns);
    socket.send(&Question::new("www.example", "A").message()).expect("loopback sends");
    balancing.wait(silent.address, |status| status["in_flight"] == 1);
    let mut request = TcpStream::connect(balancing.http.expect("it was asked for")).expect("it listens");
    request.write_all(b"GET /v1/status HTTP/1.1\r\nhost: 127.0.0.1\r\n").expect("it is taken");
    // A second one is answered, so the first was read.
    balancing.client().call("GET", "/v1/status", "");
    balancing.program.signal(Signal::SIGTERM);
    let until = Instant::now() + PROGRAM_WAIT;
    while TcpListener::bind(balancing.dns).is_err() {
        assert!(Instant::now() < until, "the address is never free");
    }
    UdpSocket::bind(balancing.dns).expect("it is free, too");
    request.set_nonblocking(true).expect("the mode can be set");
    let still = request.read(&mut [0]).expect_err("nothing has come");
    assert_eq!(still.kind(), std::io::ErrorKind::WouldBlock);
    drop(request);
    assert_eq!(balancing.program.end().status.code(), Some(0));
}

#[test]
fn who_is_gone_is_passed_over_at_once() {
    let gone = free_address();
    let good = Scripted::start(|query, _, socket, from| {
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    // Much longer than a test may take: only what the system says of the port can help.
    let more = ["--policy", "wrr", "--timeout", "30s"];
    let balancing = Balancing::start(&[gone, good.address], &more);
    for _ in 0..50 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");
    }
    assert!(balancing.stop().stderr.contains("nobody listens"));
    let balancing = Balancing::start(&[gone], &more);
    assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    balancing.stop();
}

#[test]
fn what_is_malformed_is_answered_here() {
    let back_end = Scripted::start(|query, _, socket, from| {
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    let balancing = Balancing::start(&[back_end.address], &[]);
    let socket = query::socket(balancing.dns);
    let good = Question::new("www.example", "A").message();
    let mut two = good.clone();
    two[5] = 2;
    let mut update = good.clone();
    update[2] = 5 << 3;
    for (message, rcode) in [(&two, 1), (&good[..20].to_vec(), 1), (&update, 4)] {
        let reply = query::exchange(&socket, message).expect("an answer");
        assert_eq!((reply.len(), reply[3] & 0x0f), (12, rcode));
    }
    let mut response = good.clone();
    response[2] |= 0x80;
    for silent in [&response[..], &good[..11], &[]] {
        socket.send(silent).expect("loopback sends");
    }
    // They were sent before this one, and over the same socket.
    assert_eq!(Question::new("www.example", "A").at(&socket).rcode, "NOERROR");
    assert_eq!(back_end.asked(), 1);
    balancing.stop();
}

#[test]
fn one_client_and_all_together_have_limits() {
    let silent = Scripted::start(|_, _, _, _| {});
    let more = ["--workers", "1", "--timeout", "200ms", "--tries", "1", "--per-client-max", "3"];
    let balancing = Balancing::start(&[silent.address], &more);
    let socket = query::socket(balancing.dns);
    let message = Question::new("www.example", "A").message();
    for _ in 0..10 {
        socket.send(&message).expect("loopback sends");
    }
    // Three are sent, and told that nobody answered; of the others nothing is heard.
    for _ in 0..3 {
        let mut reply = [0; 512];
        let length = socket.recv(&mut reply).expect("an answer");
        assert_eq!((length, reply[3] & 0x0f), (message.len(), 2));
    }
    assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    assert_eq!(silent.asked(), 4);
    balancing.stop();
}

#[test]
fn of_queries_that_come_together_each_is_answered() {
    let back_ends = [Scripted::answering(0), Scripted::answering(3)];
    let addresses = back_ends.each_ref().map(|back_end| back_end.address);
    let balancing = Balancing::start(&addresses, &["--workers", "1", "--policy", "wrr"]);
    let socket = query::socket(balancing.dns);
    // As many as fit the queues on the way, of a few lengths.
    let messages: Vec<Vec<u8>> = (0..200_u8)
        .map(|number| {
            let mut message = Question::new(&format!("n{}.example", number / 3), "A").message();
            message[..2].copy_from_slice(&[7, number]);
            message
        })
        .collect();
    for message in &messages {
        socket.send(message).expect("loopback sends");
    }
    let mut answered = vec![0; messages.len()];
    for _ in &messages {
        let mut reply = [0; 512];
        let length = socket.recv(&mut reply).expect("an answer");
        let number = usize::from(reply[1]);
        assert!(reply[0] == 7 && reply[2] & 0x80 != 0);
        assert_eq!(reply[4..length], messages[number][4..]);
        answered[number] += 1;
    }
    assert!(answered.iter().all(|count| *count == 1), "{answered:?}");
    assert_eq!(back_ends.each_ref().map(Scripted::asked), [100, 100]);
    balancing.stop();
}

#[test]
fn what_is_in_flight_is_answered_before_the_end() {
    let (told, asked) = channel();
    let (go, may_go) = channel();
    let slow = Scripted::start(move |query, _, socket, from| {
        told.send(()).expect("the test listens");
        may_go.recv().expect("the test goes on");
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    let mut balancing = Balancing::start(&[slow.address], &["--timeout", "30s"]);
    let socket = query::socket(balancing.dns);
    let message = Question::new("www.example", "A").message();
    socket.send(&message).expect("loopback sends");
    asked.recv().expect("the query was forwarded");
    balancing.program.signal(Signal::SIGTERM);
    balancing.program.line("stopping");
    go.send(()).expect("the back end waits");
    assert_eq!(balancing.program.end().status.code(), Some(0));
    let mut reply = [0; 512];
    assert_eq!(socket.recv(&mut reply).expect("an answer"), message.len());
}

#[test]
fn clients_over_tcp_are_answered_over_either() {
    let folder = Folder::new();
    let many: String = (0..200).map(|i| format!("many A 192.0.2.{i}\n")).collect();
    let zone = folder.write("example.zone", ZONE.to_owned() + &many);
    let nsd = Peer::nsd(&folder, "example", &zone);
    for onward in ["tcp", "udp"] {
        let balancing = Balancing::start(&[nsd.dns], &["--tcp", onward]);
        let mut stream = query::connect(balancing.dns);
        // Several at once, in any order; one whose answer no datagram holds.
        let names = ["www.example", "many.example", "ns.example", "nothing.example"];
        let asked: Vec<Vec<u8>> = names.iter().map(|name| Question::new(name, "A").message()).collect();
        for message in &asked {
            query::send(&mut stream, message).expect("it is taken");
        }
        let mut lengths = vec![None; names.len()];
        for _ in &asked {
            let reply = query::receive(&mut stream).expect("an answer");
            let which = asked.iter().position(|message| message[..2] == reply[..2]).expect("an id of ours");
            let answer = Answer::read(&reply);
            assert!(!answer.tc);
            lengths[which] = Some(answer.answer.len());
        }
        assert_eq!(lengths, [Some(1), Some(200), Some(1), Some(0)], "{onward}");
        assert_eq!(Question::new("example", "AXFR").tcp(balancing.dns).rcode, "REFUSED");
        let truncated = Question::new("many.example", "A").udp(balancing.dns);
        assert!(truncated.tc);
        // What is malformed is answered here, and the connection goes on.
        query::send(&mut stream, &asked[0][..20]).expect("it is taken");
        assert_eq!(query::receive(&mut stream).expect("an answer")[3] & 0x0f, 1);
        balancing.stop();
    }
}

#[test]
fn back_ends_come_and_go_and_rest_while_queries_are_answered() {
    let [first, second] = [Scripted::answering(0), Scripted::answering(0)];
    let more = ["--http", "127.0.0.1:0", "--policy", "wrr"];
    let balancing = Balancing::start(&[first.address], &more);
    let mut client = balancing.client();
    let both = |client: &mut Client| {
        client.call("GET", "/v1/status", "").json()["back_ends"].as_array().map(Vec::len)
    };
    let new = format!("{{\"address\": \"{}\", \"weight\": 3}}", second.address);
    let post = |client: &mut Client, body: &str| {
        let json = [("content-type", "application/json")];
        client.send("POST", "/v1/backends", &json, body.as_bytes()).expect("an answer").status
    };
    assert_eq!(post(&mut client, &new), 201);
    assert_eq!(both(&mut client), Some(2));
    let until = Instant::now() + PROGRAM_WAIT;
    while second.asked() < 30 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");
        assert!(Instant::now() < until, "it is never asked");
    }
    let mapped = format!("{{\"address\": \"[::ffff:127.0.0.1]:{}\"}}", second.address.port());
    let circle = format!("{{\"address\": \"{}\"}}", balancing.dns);
    for (body, status) in [
        (&new[..], 409),
        (&mapped, 409),
        (&circle, 409),
        ("{\"address\": \"192.0.2.1\"}", 422),
        ("{\"address\": \"192.0.2.1:53\", \"weight\": 0}", 422),
        ("{\"address\": \"192.0.2.1:53\", \"speed\": 1}", 422),
    ] {
        assert_eq!(post(&mut client, body), status, "{body}");
    }
    let path = |address: SocketAddr, what: &str| format!("/v1/backends/{address}{what}");
    // A page in somebody's browser.
    for header in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        for (method, what) in [("POST", "/drain"), ("POST", "/resume"), ("DELETE", "")] {
            let refused = client.send(method, &path(first.address, what), &[header], b"");
            assert_eq!(refused.expect("an answer").status, 403, "{method} {what}");
        }
    }
    for (route, status) in [("/v1/status", 401), ("/metrics", 401), ("/v1/health", 200)] {
        let named = client.send("GET", route, &[("host", "evil.example")], b"");
        assert_eq!(named.expect("an answer").status, status, "{route}");
    }
    assert_eq!(balancing.back_end(first.address)["standing"], "up");
    assert_eq!(client.call("POST", &path(first.address, "/drain"), "").status, 200);
    assert_eq!(balancing.back_end(first.address)["standing"], "draining");
    balancing.wait(first.address, |status| status["in_flight"] == 0);
    // A worker sees it within its longest wait; what it picked before has been answered.
    let mut asked = first.asked();
    loop {
        (0..20).for_each(|_| assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR"));
        if first.asked() == asked {
            break;
        }
        asked = first.asked();
        assert!(Instant::now() < until, "it is asked for ever");
    }
    assert_eq!(client.call("POST", &path(first.address, "/resume"), "").status, 200);
    assert_eq!(client.call("DELETE", &path(second.address, ""), "").status, 200);
    assert_eq!(client.call("DELETE", &path(second.address, ""), "").status, 404);
    assert_eq!(both(&mut client), Some(1));
    assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");

    let metrics = client.call("GET", "/metrics", "").text();
    let sent = format!("pointsman_balance_back_end_sent_total{{back_end=\"{}\"}} ", first.address);
    for line in
        [&sent[..], "pointsman_balance_picks_total{why=\"turn\"} ", "pointsman_balance_failed_total 0"]
    {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line} is not in\n{metrics}");
    }
    let http = format!("http://{}", balancing.http.expect("it was asked for"));
    let printed = Program::start(&["balance", "status", "--http", &http]).end().stdout;
    assert!(printed.contains("BACK END") && printed.contains(&first.address.to_string()), "{printed}");
    // A port is given where it is not 53; nobody is asked there, as it drains.
    for (change, is_there) in [("add", true), ("drain", true), ("remove", false)] {
        let printed = Program::start(&["balance", change, "127.0.0.9", "--http", &http]).end().stdout;
        assert_eq!(printed.contains("127.0.0.9:53"), is_there, "{change}: {printed}");
    }
    // Without a terminal the pictures are tables, one after the other.
    let mut watch = Command::new("sh");
    let piped = "\"$0\" balance status --watch 100ms --http \"$1\" | head -n 40";
    watch.args(["-c", piped]).arg(program::path()).arg(&http);
    let printed = Program::spawn(watch).end().stdout;
    assert!(printed.matches("\nBACK END").count() > 1 && !printed.contains('\x1b'), "{printed}");
    balancing.stop();
}

#[test]
fn http_asks_for_the_token_that_it_was_given() {
    let folder = Folder::new();
    let [token, wrong] =
        [("token", "secret\n"), ("wrong", "secreT\n")].map(|(name, text)| folder.write_secret(name, text));
    let back_end = Scripted::answering(0);
    let arguments = ["balance", "--listen", "127.0.0.1:0", "--backend", "127.0.0.1:9", "--http", "0.0.0.0:0"];
    let refused = Program::start(&arguments).end();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("a token_file (--token-file), or a loopback address"),
        "{}",
        refused.stderr
    );

    let balancing = Balancing::start(&[back_end.address], &["--http", "0.0.0.0:0", "--token-file", &token]);
    let at = SocketAddr::from(([127, 0, 0, 1], balancing.http.expect("it was asked for").port()));
    let mut client = Client::new(at);
    let drain = format!("/v1/backends/{}/drain", back_end.address);
    let routes = [
        ("GET", "/v1/status", 200),
        ("GET", "/metrics", 200),
        ("GET", "/v1/openapi.json", 200),
        ("POST", &drain, 200),
        ("GET", "/nowhere", 404),
    ];
    for (method, route, status) in routes {
        // Another machine may know it by a name.
        let mut told = |sent: Option<&str>| {
            let sent = sent.map(|sent| ("authorization", sent));
            let headers: Vec<_> = [("host", "balancer.example")].into_iter().chain(sent).collect();
            client.send(method, route, &headers, b"").expect("an answer")
        };
        for (sent, what) in [
            (None, "there is no token"),
            (Some("Basic c2VjcmV0"), "there is no token"),
            (Some("Bearer secreT"), "the token is not the one"),
        ] {
            let answer = told(sent);
            assert_eq!(
                (answer.status, &answer.json()["what"]),
                (401, &what.into()),
                "{method} {route} {sent:?}"
            );
            assert_eq!(answer.json()["expected"], "Authorization: Bearer TOKEN");
            let challenge = answer.header("www-authenticate");
            assert!(challenge.is_some_and(|challenge| challenge.starts_with("Bearer ")), "{challenge:?}");
        }
        assert_eq!(told(Some("Bearer secret")).status, status, "{method} {route}");
    }
    assert_eq!(client.call("GET", "/v1/health", "").status, 200);

    let (http, there) = (format!("http://{at}"), back_end.address.to_string());
    for command in
        [&["status"][..], &["add", "127.0.0.9"], &["drain", &there], &["resume", &there], &["remove", &there]]
    {
        let line = [&["balance"], command, &["--http", &http]].concat();
        let missing = Program::start(&line).end();
        assert_eq!(missing.status.code(), Some(1), "{command:?}: {}", missing.stderr);
        let told = "Give the server's token with --token-file FILE or POINTSMAN_TOKEN.";
        assert!(missing.stderr.contains(told), "{command:?}: {}", missing.stderr);
        let another = Program::start(&[&line[..], &["--token-file", &wrong]].concat()).end();
        assert_eq!(another.status.code(), Some(1), "{command:?}: {}", another.stderr);
        assert!(another.stderr.contains("the token is not the one"), "{command:?}: {}", another.stderr);
        let right = Program::start(&[&line[..], &["--token-file", &token]].concat()).end();
        assert!(right.status.success(), "{command:?}: {}", right.stderr);
    }
    let mut named = Command::new(program::path());
    named.args(["balance", "status", "--http", &http]).env("POINTSMAN_TOKEN", "secret");
    let printed = String::from_utf8(named.output().expect("it starts").stdout).expect("text");
    assert!(printed.contains("127.0.0.9:53") && !printed.contains(&there), "{printed}");
    balancing.stop();
}

#[test]
fn what_a_terminal_has_no_room_for_is_left_out() {
    let back_end = Scripted::answering(0);
    let balancing = Balancing::start(&[back_end.address], &["--http", "127.0.0.1:0"]);
    let there = back_end.address.to_string();
    for command in [&["status"][..], &["drain", &there]] {
        let mut terminal = Command::new("script");
        let line = format!("stty cols 50 rows 20 && \"$POINTSMAN\" balance {}", command.join(" "));
        terminal
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("POINTSMAN", program::path());
        terminal.env("POINTSMAN_BALANCE", format!("http://{}", balancing.http.expect("it was asked for")));
        let ended = Program::spawn(terminal).end();
        let widest = ended.stdout.lines().map(|line| line.chars().count()).max();
        assert!(ended.status.success() && ended.stdout.contains(&there), "{}", ended.stdout);
        // Blanks too, and no escapes.
        assert_eq!((widest, ended.stdout.contains('\x1b')), (Some(50), false), "{}", ended.stdout);
    }
    balancing.stop();
}

#[test]
fn who_fails_fast_is_not_fast() {
    let (sink, good) = (Scripted::answering(2), Scripted::answering(0));
    let balancing = Balancing::start(&[sink.address, good.address], &["--timeout", "200ms"]);
    let failed = (0..300).filter(|_| ask(balancing.dns, "www.example").rcode == "SERVFAIL").count();
    assert!(failed < 30 && good.asked() > 270, "{failed} of 300");
    balancing.stop();
}

#[test]
fn who_comes_back_is_asked_again() {
    let address = free_address();
    let more = ["--http", "127.0.0.1:0", "--probe-interval", "20ms", "--slow-start", "0s", "--policy", "wrr"];
    let good = Scripted::answering(0);
    let balancing = Balancing::start(&[address, good.address], &more);
    balancing.wait(address, |status| status["standing"] == "down");
    let _back = Scripted::answering_at(address, 0);
    balancing.wait(address, |status| status["standing"] == "up");
    let until = Instant::now() + PROGRAM_WAIT;
    while balancing.back_end(address)["answered"].as_u64() < Some(5) {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");
        assert!(Instant::now() < until, "it is never asked");
    }
    balancing.stop();
}

#[test]
fn agents_grant_credit_and_forged_reports_do_not() {
    let folder = Folder::new();
    let zone = folder.write("example.zone", ZONE);
    let nsd = Peer::nsd(&folder, "example", &zone);
    let keys = ["one", "other"].map(|name| {
        let path = folder.at(name);
        let ended = Program::start(&["key", "new", &path]).end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        path
    });
    let more = ["--http", "127.0.0.1:0", "--credit", "127.0.0.1:0", "--key", &keys[0]];
    let balancing = Balancing::start(&[nsd.dns], &more);
    let to = balancing.credit.expect("it was asked for").to_string();
    let service = format!("udp:{}", nsd.dns);
    let agent =
        |key: &str| Program::start(&["agent", "--service", &service, "--balancer", &to, "--key", key]);
    let forger = agent(&keys[1]);
    let counted = |verdict: &str| {
        balancing.client().metric(&format!("pointsman_balance_reports_total{{verdict=\"{verdict}\"}}"))
    };
    let until = Instant::now() + PROGRAM_WAIT;
    while counted("unsigned") < Some(3.0) {
        assert!(Instant::now() < until, "no report comes");
    }
    assert!(balancing.back_end(nsd.dns)["credit"].is_null());
    drop(forger);
    let agent = agent(&keys[0]);
    balancing.wait(nsd.dns, |status| status["credit"].as_u64() > Some(0));
    for _ in 0..200 {
        assert_eq!(ask(balancing.dns, "www.example").data(), ["192.0.2.80"]);
    }
    let status = balancing.client().call("GET", "/v1/status", "").json();
    assert_eq!(status["policy"], "pressure");
    drop(agent);
    balancing.wait(nsd.dns, |status| status["credit"].is_null());
    assert_eq!(ask(balancing.dns, "www.example").data(), ["192.0.2.80"]);
    balancing.stop();
}

#[test]
fn weights_are_measured_beforehand() {
    let fast = Scripted::answering(0);
    // A millisecond of work for each, which is no wait of the test's.
    let slow = Scripted::start(|query, _, socket, from| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    let more = ["--policy", "wrr", "--probe", "www.example A", "--measure-weights", "--http", "127.0.0.1:0"];
    let balancing = Balancing::start(&[fast.address, slow.address], &more);
    let weight = |address| balancing.back_end(address)["weight"].as_u64().expect("a number");
    assert_eq!(weight(fast.address), 100);
    assert!((1..50).contains(&weight(slow.address)), "{}", weight(slow.address));
    assert!(slow.asked() > 100 && fast.asked() > 2 * slow.asked());
    let told = format!("--backend {}=100", fast.address);
    assert!(balancing.stop().stderr.contains(&told));

    let ends = |back_end: &str, more: &[&str]| {
        let arguments = ["balance", "--listen", "127.0.0.1:0", "--backend", back_end, "--measure-weights"];
        Program::start(&[&arguments[..], more].concat()).end()
    };
    let refused = ends("192.0.2.1", &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--i-may-load-this-server"), "{}", refused.stderr);
    let failing = Scripted::answering(2);
    let failed = ends(&failing.address.to_string(), &["--probe", "www.example A"]);
    assert_eq!(failed.status.code(), Some(1), "{}", failed.stderr);
    assert!(failed.stderr.contains("no good answer came"), "{}", failed.stderr);
}

/// Counts what a test has to see counted.
#[test]
fn what_is_seen_is_told() {
    let kept = std::sync::Mutex::new(None);
    // Alien, late, wrong, truncated: each once, by the name that is asked for.
    let odd = Scripted::start(move |query, _, socket, from| {
        let mut kept = kept.lock().expect("nothing panics");
        let mut reply = answer(query, 0);
        match query[13] {
            b'a' => reply[1] ^= 1,
            b'w' => reply[14] ^= 3,
            b'l' => return drop(kept.replace((reply, from))),
            b't' => reply[2] |= 2,
            _ => {
                if let Some((reply, from)) = kept.take() {
                    socket.send_to(&reply, from).expect("loopback sends");
                }
            }
        }
        socket.send_to(&reply, from).expect("loopback sends");
    });
    let more = ["--http", "127.0.0.1:0", "--timeout", "100ms", "--tries", "1", "--workers", "1"];
    let balancing = Balancing::start(&[odd.address], &more);
    for name in ["alien.example", "wrong.example", "late.example"] {
        assert_eq!(ask(balancing.dns, name).rcode, "SERVFAIL", "{name}");
    }
    assert!(ask(balancing.dns, "truncated.example").tc, "the client is told, and asks over TCP");
    assert_eq!(ask(balancing.dns, "good.example").rcode, "NOERROR");
    let of = |name: &str| {
        balancing.metric(&format!("pointsman_balance_back_end_{name}{{back_end=\"{}\"}}", odd.address))
    };
    for (name, count) in [
        ("alien_total", 1.0),
        ("wrong_question_total", 1.0),
        ("late_total", 1.0),
        ("timeouts_total", 3.0),
        ("sent_total", 5.0),
        ("latency_seconds_count", 2.0),
    ] {
        assert_eq!(of(name), count, "{name}");
    }
    let bucket = format!("{{le=\"+Inf\",back_end=\"{}\"}}", odd.address);
    assert_eq!(balancing.metric(&format!("pointsman_balance_back_end_latency_seconds_bucket{bucket}")), 2.0);
    assert_eq!(balancing.metric("pointsman_balance_failed_total"), 3.0);
    // Each pick has a reason, and the thread a step.
    let picks: f64 = ["blind", "latency", "overdrawn"]
        .map(|why| balancing.metric(&format!("pointsman_balance_picks_total{{why=\"{why}\"}}")))
        .iter()
        .sum();
    assert_eq!(picks, 5.0);
    let steps = ["credit", "two_choices", "latency", "blind"]
        .map(|step| balancing.metric(&format!("pointsman_balance_step{{step=\"{step}\"}}")));
    assert_eq!(steps.iter().sum::<f64>(), 1.0, "one thread has picked");
    let status = balancing.client().call("GET", "/v1/status", "").json();
    assert_eq!(status["steps"].as_object().map(serde_json::Map::len), Some(1), "{status}");
    balancing.stop();
}

/// All back ends stop answering and begin again; what is asked meanwhile is answered SERVFAIL, and nothing is left over.
#[test]
fn all_are_gone_and_come_back() {
    let addresses = [free_address(), free_address()];
    let more = ["--http", "127.0.0.1:0", "--probe-interval", "20ms", "--slow-start", "0s"];
    let balancing = Balancing::start(&addresses, &more);
    for address in addresses {
        balancing.wait(address, |status| status["standing"] == "down");
    }
    for _ in 0..20 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    }
    let _back = addresses.map(|address| Scripted::answering_at(address, 0));
    for address in addresses {
        balancing.wait(address, |status| status["standing"] == "up");
        balancing.wait(address, |status| status["in_flight"] == 0);
    }
    for _ in 0..20 {
        assert_eq!(ask(balancing.dns, "www.example").rcode, "NOERROR");
    }
    balancing.stop();
}

/// With one socket a back end has so many ids; who finds none is told at once, and when ids are back, all goes on.
#[test]
fn ids_run_out_and_come_back() {
    const IDS: usize = 1 << 14;
    let kept = std::sync::Mutex::new(Vec::new());
    // It answers nobody until it is asked for `zzz`, then some.
    let silent = Scripted::start(move |query, _, socket, from| {
        let mut kept = kept.lock().expect("nothing panics");
        kept.push((answer(query, 0), from));
        if query[13] == b'z' {
            let begin = kept.len().saturating_sub(64);
            for (reply, from) in kept.drain(begin..) {
                socket.send_to(&reply, from).expect("loopback sends");
            }
        }
    });
    let more = ["--http", "127.0.0.1:0", "--sockets", "1", "--workers", "1", "--per-client-max", "65535"];
    let balancing = Balancing::start(&[silent.address], &[&more[..], &["--timeout", "30s"]].concat());
    let socket = query::socket(balancing.dns);
    let message = Question::new("www.example", "A").message();
    let in_flight = || balancing.back_end(silent.address)["in_flight"].as_u64().unwrap_or(0) as usize;
    // In parts that fit the queues on the way.
    for part in (0..IDS).step_by(64) {
        for _ in 0..64 {
            socket.send(&message).expect("loopback sends");
        }
        if part % 1024 == 0 {
            balancing.wait(silent.address, |status| status["in_flight"].as_u64() > Some(part as u64));
        }
    }
    let until = Instant::now() + PROGRAM_WAIT;
    while in_flight() < IDS {
        socket.send(&message).expect("loopback sends");
        assert!(Instant::now() < until, "{} in flight", in_flight());
    }
    assert_eq!(ask(balancing.dns, "www.example").rcode, "SERVFAIL");
    assert_eq!(in_flight(), IDS);
    assert!(balancing.metric("pointsman_balance_no_id_total") >= 1.0);
    let releases = query::socket(silent.address);
    let until = Instant::now() + PROGRAM_WAIT;
    while in_flight() > 0 {
        releases.send(&Question::new("zzz.example", "A").message()).expect("loopback sends");
        assert!(Instant::now() < until, "{} in flight", in_flight());
    }
    assert_eq!(ask(balancing.dns, "zzz.example").rcode, "NOERROR");
    balancing.stop();
}

#[test]
fn two_binds_are_balanced_as_the_guide_has_it() {
    assert_eq!(follow("balance-two-binds.md"), (3, 5));
}

#[test]
fn rules_hold_as_the_guide_has_it() {
    assert_eq!(follow("send-queries-by-rules.md"), (3, 5));
}

#[test]
fn resolvers_are_asked_over_tls_as_the_guide_has_it() {
    assert_eq!(follow("ask-over-tls.md"), (2, 4));
}

/// Goes through a guide as a reader would; each server has a port that is free. How many servers it starts, and commands
/// it has.
fn follow(guide: &str) -> (usize, usize) {
    let folder = Folder::new();
    let ports = [
        ("5300", free_address()),
        ("5301", free_address()),
        ("5302", free_address()),
        ("5853", free_address()),
        ("8055", free_address()),
    ];
    let text = ports.iter().fold(guide::read(guide), |text, (port, here)| {
        text.replace(&format!("127.0.0.1:{port}"), &here.to_string())
            .replace(&format!("port {port}"), &format!("port {}", here.port()))
            .replace(&format!("-p {port}"), &format!("-p {}", here.port()))
    });
    let command = |line: &str| {
        let mut words = line.split_whitespace();
        let mut command = match words.next().expect("a command has a name") {
            "pointsman" => Command::new(program::path()),
            "named" => Command::new("/usr/sbin/named"),
            name => Command::new(name),
        };
        command
            .args(words)
            .current_dir(folder.path())
            .env("POINTSMAN_BALANCE", format!("http://{}", ports[4].1));
        command
    };
    let (mut programs, mut commands) = (Vec::new(), 0);
    for (kind, content) in guide::blocks(&text) {
        match kind.split_once(' ').unwrap_or((kind, "")) {
            ("file", name) => drop(folder.write(name, content)),
            ("bind" | "balance", _) => {
                for line in content.lines() {
                    let mut program = Program::spawn(command(line));
                    program.line(if kind == "bind" { "all zones loaded" } else { "ready" });
                    programs.push(program);
                }
            }
            ("sh", _) => {
                for (line, expected) in guide::prompts(content) {
                    let output = command(line).output().expect("it starts");
                    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
                    guide::compare(line, &String::from_utf8_lossy(&output.stdout), &expected);
                    commands += 1;
                }
            }
            _ => {}
        }
    }
    (programs.len(), commands)
}
