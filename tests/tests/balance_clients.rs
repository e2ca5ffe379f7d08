//! Back ends behind `pointsman balance` learn whose query it is: by client subnet or by the PROXY protocol.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;

use socket2::{Domain, Socket, Type};
use tests::balancing::{Balancing, Scripted, answer};
use tests::folder::Folder;
use tests::peer::free_address;
use tests::program::Program;
use tests::query::{self, ANSWER_WAIT, Answer, Question};
use tests::secondary::Make;

/// A client elsewhere on loopback.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 9, 8, 7);

fn udp_from(client: Ipv4Addr, dns: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((client, 0)).expect("all of 127.0.0.0/8 is ours");
    socket.connect(dns).expect("loopback is there");
    socket.set_read_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
    socket
}

fn tcp_from(client: Ipv4Addr, dns: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((client, 0)).into()).expect("all of 127.0.0.0/8 is ours");
    socket.connect(&dns.into()).expect("it listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(ANSWER_WAIT)).expect("the bound is not zero");
    stream
}

/// BIND says in its log which client subnet a query has.
#[test]
fn bind_is_told_the_subnet() {
    let folder = Folder::new();
    let zone =
        folder.write("example.zone", "$TTL 60\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n");
    let zones = format!(
        "zone \"example\" {{ type primary; file \"{zone}\"; }};\nlogging {{ category queries {{ default_stderr; }}; }};\n"
    );
    let mut bind = Make::Bind.start(&folder, free_address(), &zones);
    let more = ["--client-address", "subnet", "--subnet-v4", "20"];
    let balancing = Balancing::start(&[bind.dns], &more);
    let socket = udp_from(ELSEWHERE, balancing.dns);
    assert_eq!(Question::new("ns.example", "A").at(&socket).data(), ["192.0.2.53"]);
    assert!(bind.program.line("query: ns.example IN A").contains("[ECS 127.9.0.0/20/0]"));
    let hidden = Question::new("ns.example", "AAAA").subnet("0.0.0.0/0").at(&socket);
    assert_eq!((hidden.rcode.as_str(), hidden.edns), ("NOERROR", true));
    assert!(bind.program.line("query: ns.example IN AAAA").contains("[ECS 0.0.0.0/0/0]"), "its own");
    for (rtype, onward) in [("TXT", "tcp"), ("MX", "udp")] {
        let balancing = Balancing::start(&[bind.dns], &[&more[..], &["--tcp", onward]].concat());
        let mut stream = tcp_from(ELSEWHERE, balancing.dns);
        query::send(&mut stream, &Question::new("ns.example", rtype).message()).expect("it is taken");
        let reply = Answer::read(&query::receive(&mut stream).expect("an answer"));
        assert_eq!((reply.rcode.as_str(), reply.edns), ("NOERROR", false), "{onward}");
        let line = bind.program.line(&format!("query: ns.example IN {rtype}"));
        assert!(line.contains("[ECS 127.9.0.0/20/0]"), "{line}");
        balancing.stop();
    }
    balancing.stop();
}

#[test]
fn the_client_is_told_no_subnet_that_it_has_not_sent() {
    // It sends back what it got.
    let echo = Scripted::start(|query, _, socket, from| {
        socket.send_to(&answer(query, 0), from).expect("loopback sends");
    });
    for way in ["hidden", "subnet"] {
        let balancing = Balancing::start(&[echo.address], &["--client-address", way]);
        let socket = udp_from(ELSEWHERE, balancing.dns);
        let plain = Question::new("www.example", "A").at(&socket);
        assert_eq!((plain.edns, plain.options.len()), (false, 0), "{way}");
        let cookie = Question::new("www.example", "A").option(10, b"12345678").at(&socket);
        assert_eq!(cookie.options, [(10, b"12345678".to_vec())], "{way}");
        let own = Question::new("www.example", "A").subnet("192.0.2.0/24").at(&socket);
        let expected = (IpAddr::from([192, 0, 2, 0]), 24, 0);
        assert_eq!(own.subnet, Some(expected), "{way}");
        balancing.stop();
    }
}

/// dnsdist answers by the address that the header says.
#[test]
fn dnsdist_is_told_by_the_proxy_protocol() {
    let (folder, at) = (Folder::new(), free_address());
    let lines = format!(
        "setSecurityPollSuffix(\"\")\nsetLocal(\"{at}\")\nsetACL({{\"127.0.0.0/8\"}})\n\
         setProxyProtocolACL({{\"127.0.0.1/32\"}})\nelsewhere = newNMG()\nelsewhere:addMask(\"{ELSEWHERE}/32\")\n\
         addAction(NetmaskGroupRule(elsewhere), SpoofAction(\"192.0.2.9\"))\n\
         addAction(AllRule(), SpoofAction(\"192.0.2.1\"))\n"
    );
    // What it says goes to stdout.
    let mut command = Command::new("sh");
    let dnsdist = "exec dnsdist --supervised --disable-syslog -C \"$0\" >&2";
    command.args(["-c", dnsdist, &folder.write("dnsdist.conf", lines)]);
    let mut dnsdist = Program::spawn(command);
    dnsdist.line("No downstream servers");
    for onward in ["tcp", "udp"] {
        let more = [
            "--client-address",
            "proxy",
            "--probe",
            "www.example A",
            "--tcp",
            onward,
            "--http",
            "127.0.0.1:0",
        ];
        let balancing = Balancing::start(&[at], &[&more[..], &["--probe-interval", "20ms"]].concat());
        for (client, data) in [(ELSEWHERE, "192.0.2.9"), (Ipv4Addr::LOCALHOST, "192.0.2.1")] {
            let socket = udp_from(client, balancing.dns);
            assert_eq!(Question::new("www.example", "A").at(&socket).data(), [data], "{client}");
            let mut stream = tcp_from(client, balancing.dns);
            for _ in 0..3 {
                query::send(&mut stream, &Question::new("www.example", "A").message()).expect("it is taken");
                let reply = Answer::read(&query::receive(&mut stream).expect("an answer"));
                assert_eq!(reply.data(), [data], "{client} over TCP, onward over {onward}");
            }
        }
        // Probes are understood too.
        balancing.wait(at, |status| status["standing"] == "up");
        balancing.stop();
    }
}
