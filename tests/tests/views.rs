//! Views: the same name is a referral at the parent's address and an answer at the child's, from one server.

use std::net::{IpAddr, SocketAddr, TcpListener};

use nix::sys::signal::Signal;
use tests::data::skip;
use tests::folder::Folder;
use tests::namespace;
use tests::program::Program;
use tests::query::{Answer, Question};
use tests::serving::{Serving, store};

const ROOT: &str = "$ORIGIN .\n$TTL 300\n@ SOA a.root hm 1 7200 600 86400 60\n@ NS a.root\na.root A 198.41.0.4\n\
                    com NS a.com\na.com A 192.5.6.30\n";

const COM: &str = "$ORIGIN com.\n$TTL 300\n@ SOA a hm 1 7200 600 86400 60\n@ NS a\na A 192.5.6.30\n\
                   example NS ns.example\nns.example A 192.0.2.53\n";

const EXAMPLE: &str = "$ORIGIN example.com.\n$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n\
                       www A 192.0.2.80\n";

const OTHER: &str = "$ORIGIN other.\n$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.54\n";

/// A view, as the configuration has it.
fn view(addresses: &[&str], zones: &[&str]) -> String {
    format!("[[view]]\naddresses = {addresses:?}\nzones = {zones:?}\n")
}

/// Writes the zones and a configuration of all of them with these views, whose zones every loopback address may take;
/// returns its path.
fn configure(folder: &Folder, views: &[String]) -> String {
    let zones = [("root", ROOT), ("com", COM), ("example", EXAMPLE), ("other", OTHER)]
        .map(|(name, text)| folder.write(&format!("{name}.master"), text));
    let secondary = "[[secondary]]\nfrom = [\"127.0.0.0/8\"]\n";
    let text = format!("version = \"v1\"\nzone = {zones:?}\n{secondary}{}", views.concat());
    folder.write("pointsman.toml", text)
}

/// What is answered over UDP, which must be what is answered over TCP.
fn asked(question: &Question, server: SocketAddr) -> Answer {
    let [udp, tcp] = [question.udp(server), question.tcp(server)];
    assert_eq!(udp, tcp, "{question:?} at {server}");
    udp
}

/// What the answer is: its code, where it has one that is none of success, or what it has first.
fn told(answer: &Answer) -> String {
    let first = answer.answer.first().or(answer.authority.first());
    let flag = if answer.aa { "aa " } else { "" };
    first.filter(|_| answer.rcode == "NOERROR").map_or(answer.rcode.clone(), |first| format!("{flag}{first}"))
}

#[test]
fn one_server_is_the_parent_at_one_address_and_the_child_at_another() {
    let folder = Folder::new();
    let views = [
        view(&["127.0.0.1"], &["."]),
        view(&["127.0.0.2", "::1"], &["com"]),
        view(&["127.0.0.3"], &["example.com", "not.there"]),
    ];
    let config = configure(&folder, &views);
    let mut arguments = vec!["--config", &config, "--listen", "0.0.0.0:0"];
    let has_v6 = TcpListener::bind("[::1]:0").is_ok();
    if has_v6 {
        arguments.extend(["--listen", "[::]:0"]);
    } else {
        skip("this machine has no IPv6");
    }
    let checked =
        Program::start(&["serve", "--check", "--store", &store(&folder), "--config", &config]).end();
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    let note = "; views name zones that are not there: not.there.";
    assert!(checked.stdout.trim_end().ends_with(note), "{}", checked.stdout);

    let mut server = Serving::start(&folder, &arguments);
    let ports: Vec<u16> = server.listening.iter().map(SocketAddr::port).collect();
    let at = |ip: &str| {
        let ip: IpAddr = ip.parse().expect("an address");
        SocketAddr::new(ip, ports[usize::from(ip.is_ipv6())])
    };
    let www = Question::new("www.example.com", "A");
    let of = |ip: &str| told(&asked(&www, at(ip)));
    let (from_root, from_com) = ("com. 300 in ns a.com.", "example.com. 300 in ns ns.example.com.");
    let answer = "aa www.example.com. 300 in a 192.0.2.80";
    assert_eq!([of("127.0.0.1"), of("127.0.0.2"), of("127.0.0.3")], [from_root, from_com, answer]);
    if has_v6 {
        assert_eq!(of("::1"), from_com);
    }
    // An address in no view has what no view names.
    assert_eq!([of("127.0.0.4"), of("127.0.0.1")], ["REFUSED", from_root]);
    let other = Question::new("ns.other", "A");
    let others = ["127.0.0.3", "127.0.0.4"].map(|ip| told(&asked(&other, at(ip))));
    assert_eq!(others, ["REFUSED", "aa ns.other. 300 in a 192.0.2.54"]);

    for (ip, zone, records) in [
        ("127.0.0.3", "example.com", 5),
        ("127.0.0.3", "com", 0),
        ("127.0.0.2", "com", 6),
        ("127.0.0.2", "example.com", 0),
        ("127.0.0.4", "other", 4),
        ("127.0.0.1", "other", 0),
    ] {
        let transfer = Question::new(zone, "AXFR").tcp(at(ip));
        let rcode = if records == 0 { "NOTAUTH" } else { "NOERROR" };
        assert_eq!((&*transfer.rcode, transfer.answer.len()), (rcode, records), "{zone} at {ip}");
        let over_udp = Question::new(zone, "AXFR").udp(at(ip)).rcode;
        assert_eq!(over_udp, if records == 0 { "NOTAUTH" } else { "REFUSED" }, "{zone} at {ip}");
    }

    // Views stay in step with the API.
    server.call("DELETE", "/v1/zones/example.com", "");
    assert_eq!([of("127.0.0.3"), of("127.0.0.2")], ["REFUSED", from_com]);
    server.call(
        "PUT",
        "/v1/zones/example.com",
        &EXAMPLE.replace("SOA ns hm 1", "SOA ns hm 2").replace(".80", ".81"),
    );
    assert_eq!([of("127.0.0.3"), of("127.0.0.4")], ["aa www.example.com. 300 in a 192.0.2.81", "REFUSED"]);
    server.call("PUT", "/v1/zones/not.there", &OTHER.replace("other", "not.there"));
    let late = Question::new("ns.not.there", "A");
    assert_eq!(told(&asked(&late, at("127.0.0.3"))), "aa ns.not.there. 300 in a 192.0.2.54");

    let reload = |server: &mut Serving, views: &[String], said: &str| {
        configure(&folder, views);
        server.program.signal(Signal::SIGHUP);
        server.program.line(said)
    };
    let twice = [view(&["127.0.0.1"], &["example.com"]), view(&["127.0.0.1"], &["com"])];
    let fault = reload(&mut server, &twice, "ERROR");
    assert!(fault.contains("127.0.0.1 is in another view, too"), "{fault}");
    server.program.line("not reloaded");
    assert_eq!(of("127.0.0.1"), from_root, "the last views go on");
    let warning = reload(&mut server, &[view(&["127.0.0.1"], &["example.com", "nowhere"])], "WARN");
    assert!(
        warning.contains("views name zones that are not there") && warning.contains("nowhere."),
        "{warning}"
    );
    server.program.line("reloaded");
    let answer = "aa www.example.com. 300 in a 192.0.2.81";
    assert_eq!([of("127.0.0.1"), of("127.0.0.2"), of("127.0.0.3")], [answer, from_com, from_com]);
    reload(&mut server, &[], "reloaded");
    assert_eq!([of("127.0.0.1"), of("127.0.0.2"), of("127.0.0.3")], [answer; 3]);
    let ended = server.stop();
    assert!(ended.stderr.contains("views name zones that are not there"), "{}", ended.stderr);
}

#[test]
fn a_whole_hierarchy_is_at_its_own_addresses() {
    namespace::alone(|| {
        namespace::own_every_address();
        let folder = Folder::new();
        let views = [
            view(&["198.41.0.4", "2001:503:ba3e::2:30"], &["."]),
            view(&["192.5.6.30", "2001:503:a83e::2:30"], &["com"]),
            view(&["192.0.2.53", "2001:db8::53"], &["example.com", "other"]),
        ];
        let config = configure(&folder, &views);
        let listen = ["--listen", "0.0.0.0:53", "--listen", "[::]:53"];
        let server = Serving::start(&folder, &[&["--config", &config][..], &listen].concat());
        let www = Question::new("www.example.com", "A");
        for (ips, expected) in [
            (["198.41.0.4", "2001:503:ba3e::2:30"], "com. 300 in ns a.com."),
            (["192.5.6.30", "2001:503:a83e::2:30"], "example.com. 300 in ns ns.example.com."),
            (["192.0.2.53", "2001:db8::53"], "aa www.example.com. 300 in a 192.0.2.80"),
            (["203.0.113.1", "2001:db8::1"], "REFUSED"),
        ] {
            for ip in ips {
                // A connected socket takes replies from the asked address only.
                let at = SocketAddr::new(ip.parse().expect("an address"), 53);
                assert_eq!(told(&asked(&www, at)), expected, "at {at}");
            }
        }
        server.stop();
    });
}
