//! Several addresses, both families, and from where replies come.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use tests::data::skip;
use tests::folder::Folder;
use tests::namespace::{self, ip};
use tests::query::Question;
use tests::serving::Serving;

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
";

#[test]
fn every_address_answers_over_udp_and_tcp_from_itself() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let mut arguments = vec!["--zone", &zone, "--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"];
    let has_v6 = TcpListener::bind("[::1]:0").is_ok();
    if has_v6 {
        arguments.extend(["--listen", "[::1]:0", "--listen", "[::]:0"]);
    } else {
        skip("this machine has no IPv6");
    }
    let server = Serving::start(&folder, &arguments);
    let at = |index: usize, ip: &str| {
        SocketAddr::new(ip.parse().expect("an address"), server.listening[index].port())
    };
    let mut asked = vec![at(0, "127.0.0.1"), at(1, "127.0.0.1"), at(1, "127.0.0.2"), at(1, "127.1.2.3")];
    if has_v6 {
        asked.extend([at(2, "::1"), at(3, "::1")]);
    }
    let question = Question::new("ns.example.com", "A");
    for address in asked {
        // A connected socket takes replies from the asked address only.
        assert_eq!(question.udp(address).data(), ["192.0.2.53"], "{address} over UDP");
        assert_eq!(question.tcp(address).data(), ["192.0.2.53"], "{address} over TCP");
    }
    let ended_at = server.listening.clone();
    server.stop();
    for address in ended_at {
        TcpListener::bind(address).unwrap_or_else(|cause| panic!("{address} is free again: {cause}"));
        UdpSocket::bind(address).unwrap_or_else(|cause| panic!("{address} is free again: {cause}"));
    }
}

#[test]
fn an_address_that_comes_later_answers_once_it_is_there() {
    namespace::alone(|| {
        for family in ["ipv4", "ipv6"] {
            let setting = format!("/proc/sys/net/{family}/ip_nonlocal_bind");
            std::fs::write(&setting, "1").unwrap_or_else(|cause| panic!("{setting}: {cause}"));
        }
        let folder = Folder::new();
        let zone = folder.write("example.com.zone", ZONE);
        let listen = ["--listen", "192.0.2.53:0", "--listen", "[2001:db8::53]:0"];
        let server = Serving::start(&folder, &[&["--zone", &zone][..], &listen].concat());
        ip("address add 192.0.2.53/32 dev lo");
        ip("address add 2001:db8::53/128 dev lo nodad");
        let question = Question::new("ns.example.com", "A");
        for address in server.listening.clone() {
            assert_eq!(question.udp(address).data(), ["192.0.2.53"], "{address} over UDP");
            assert_eq!(question.tcp(address).data(), ["192.0.2.53"], "{address} over TCP");
        }
        server.stop();
    });
}
