//! Catalog zones (RFC 9432): zones come and go as the catalogs of Knot and BIND list them, and Knot and BIND take what ours
//! lists.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;

use nix::sys::signal::Signal;
use tests::database::{Database, Kind};
use tests::folder::Folder;
use tests::peer::{Make, Peer, free_address};
use tests::query::{Answer, Question, wait};
use tests::serving::Serving;

/// A zone that nobody asks for again within two hours.
fn zone(serial: u32) -> String {
    format!(
        "$TTL 300\n@ SOA ns hm {serial} 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.{serial}\n"
    )
}

fn is_here(answer: &Answer) -> bool {
    answer.aa && answer.answer.len() == 1
}

fn is_refused(answer: &Answer) -> bool {
    answer.rcode == "REFUSED"
}

/// Waits until zones are answered from, or are not.
fn until(server: SocketAddr, zones: &[&str], wanted: fn(&Answer) -> bool) {
    for zone in zones {
        wait(server, &format!("www.{zone}"), "A", wanted);
    }
}

/// Starts ours at an address that is known before, with these headings of its configuration and further arguments.
fn serve(folder: &Folder, dns: SocketAddr, headings: &str, more: &[&str]) -> Serving {
    let file = configure(folder, dns, headings);
    Serving::start(folder, &[&["--config", &file, "--listen", &dns.to_string()], more].concat())
}

/// Writes the configuration; returns its path.
fn configure(folder: &Folder, dns: SocketAddr, headings: &str) -> String {
    folder.write("pointsman.toml", format!("version = \"v1\"\nlisten = [\"{dns}\"]\n{headings}"))
}

/// A primary with zones and a catalog of them.
struct Producer {
    make: Make,
    folder: Folder,
    ours: SocketAddr,
    peer: Peer,
    serial: u32,
}

impl Producer {
    fn start(make: Make, ours: SocketAddr, zones: &[&str]) -> Producer {
        let folder = Folder::new();
        write(make, &folder, 1, zones);
        let peer = make.start(&folder, free_address(), &configuration(make, ours, zones));
        Producer { make, folder, ours, peer, serial: 1 }
    }

    /// Has the catalog list these.
    fn list(&mut self, zones: &[&str]) {
        self.serial += 1;
        write(self.make, &self.folder, self.serial, zones);
        let file = self.folder.path().join(if self.make == Make::Knot { "knot.conf" } else { "named.conf" });
        let text = fs::read_to_string(&file).expect("it was written");
        let head = text.split("// zones\n").next().unwrap_or_default();
        let head = head.split("# zones\n").next().unwrap_or_default();
        fs::write(&file, format!("{head}{}", configuration(self.make, self.ours, zones)))
            .expect("it is ours");
        self.peer.program.signal(Signal::SIGHUP);
    }
}

/// Writes the files of a primary's zones. Knot makes its catalog by itself.
fn write(make: Make, folder: &Folder, serial: u32, zones: &[&str]) {
    for name in zones {
        folder.write(&format!("{name}.zone"), zone(1));
    }
    if make == Make::Bind {
        let mut text = format!("$TTL 0\n@ SOA . . {serial} 7200 600 86400 0\n@ NS invalid.\nversion TXT 2\n");
        for name in zones {
            let label = name.replace('.', "-");
            let _ = writeln!(text, "{label}.zones PTR {name}.");
        }
        folder.write("catalog.zone", text);
    }
}

fn configuration(make: Make, ours: SocketAddr, zones: &[&str]) -> String {
    let (ip, port) = (ours.ip(), ours.port());
    match make {
        Make::Knot => {
            let mut text = format!(
                "# zones\nremote:\n  - id: ours\n    address: {ip}@{port}\nacl:\n  - id: taken\n    address: {ip}\n    \
                 action: transfer\nzone:\n  - domain: knot.catalog\n    catalog-role: generate\n    notify: ours\n    \
                 acl: taken\n"
            );
            for name in zones {
                let _ = write!(
                    text,
                    "  - domain: {name}\n    file: {name}.zone\n    zonefile-sync: -1\n    journal-content: none\n    \
                     catalog-role: member\n    catalog-zone: knot.catalog\n    notify: ours\n    acl: taken\n"
                );
            }
            text
        }
        Make::Bind => {
            let zone = |name: &str, file: &str| {
                format!(
                    "zone \"{name}\" {{ type primary; file \"{file}\"; allow-transfer {{ {ip}; }}; notify explicit; \
                     notify-delay 0; also-notify {{ {ip} port {port}; }}; }};\n"
                )
            };
            let zones: String = zones.iter().map(|name| zone(name, &format!("{name}.zone"))).collect();
            format!("// zones\n{}{zones}", zone("bind.catalog", "catalog.zone"))
        }
        Make::Nsd => unreachable!("Debian's makes no catalogs"),
    }
}

#[test]
fn zones_come_and_go_as_catalogs_list_them() {
    let (folder, dns) = (Folder::new(), free_address());
    let mut knot = Producer::start(Make::Knot, dns, &["one.knot", "two.knot", "put.example"]);
    let mut bind = Producer::start(Make::Bind, dns, &["one.bind", "two.bind", "one.knot"]);
    let headings = format!(
        "[[primary]]\ncatalogs = [\"knot.catalog\"]\naddresses = [\"{}\"]\n\
         [[primary]]\ncatalogs = [\"bind.catalog\"]\naddresses = [\"{}\"]\n",
        knot.peer.dns, bind.peer.dns
    );
    // What is here before belongs to whoever has put it.
    let start = |headings: &str| serve(&folder, dns, headings, &[]);
    let ours = start("");
    ours.call("PUT", "/v1/zones/put.example", &zone(7));
    ours.stop();
    let ours = start(&headings);
    until(dns, &["one.knot", "two.knot", "one.bind", "two.bind"], is_here);
    assert_eq!(
        Question::new("www.put.example", "A").udp(dns).answer,
        ["www.put.example. 300 in a 192.0.2.7"]
    );
    let status = ours.call("GET", "/v1/status", "").json();
    let told = status.pointer("/primaries/first_left_alone").expect("two are left alone").to_string();
    for expected in ["knot.catalog. lists it; it has been put here, and stays as it is", "lists it; so does"]
    {
        assert!(told.contains(expected), "{expected} is not in {told}");
    }
    assert_eq!(ours.client().metric("pointsman_primary_zones{state=\"left_alone\"}"), Some(2.0));
    let refused = ours.client().call("DELETE", "/v1/zones/one.bind", "");
    assert!(refused.status == 422 && refused.text().contains("given by a primary"), "{}", refused.text());
    // Catalogs are not for clients.
    for (name, rtype, wanted) in [
        ("version.bind.catalog", "TXT", is_refused as fn(&Answer) -> bool),
        ("bind.catalog", "NS", is_refused),
        ("one-bind.zones.bind.catalog", "PTR", is_refused),
        ("bind.catalog", "SOA", is_here),
    ] {
        let answer = Question::new(name, rtype).udp(dns);
        assert!(wanted(&answer), "{name} {rtype}: {answer:?}");
    }

    knot.list(&["one.knot", "three.knot"]);
    bind.list(&["one.bind", "three.bind"]);
    until(dns, &["three.knot", "three.bind"], is_here);
    until(dns, &["two.knot", "two.bind"], is_refused);
    until(dns, &["one.knot", "one.bind", "put.example"], is_here);

    // What happens meanwhile is caught up on; and what is here is answered from at once.
    ours.stop();
    knot.list(&["three.knot"]);
    bind.list(&["one.bind", "four.bind"]);
    let ours = start(&headings);
    assert!(is_here(&Question::new("www.three.knot", "A").udp(dns)));
    until(dns, &["four.bind"], is_here);
    until(dns, &["one.knot", "three.bind"], is_refused);

    // Without the catalog its zones are anybody's.
    configure(&folder, dns, "");
    ours.program.signal(Signal::SIGHUP);
    wait(dns, "version.bind.catalog", "TXT", is_here);
    ours.call("PUT", "/v1/zones/four.bind", &zone(9));
    ours.call("DELETE", "/v1/zones/three.knot", "");
    until(dns, &["three.knot"], is_refused);
    assert_eq!(Question::new("www.four.bind", "A").udp(dns).answer, ["www.four.bind. 300 in a 192.0.2.9"]);
    ours.stop();
}

#[test]
fn secondaries_take_what_our_catalog_lists() {
    let folder = Folder::new();
    let peers = [(Make::Knot, Folder::new(), free_address()), (Make::Bind, Folder::new(), free_address())];
    let notify: Vec<String> = peers.iter().map(|(.., dns)| format!("\"{dns}\"")).collect();
    let heading = format!(
        "[[secondary]]\ncatalog = \"our.catalog\"\nfrom = [\"127.0.0.1\"]\nnotify = [{}]\n",
        notify.join(", ")
    );
    let ours = serve(&folder, free_address(), &heading, &[]);
    let put = |name: &str| ours.call("PUT", &format!("/v1/zones/{name}"), &zone(1));
    put("one.example");
    let (ip, port) = (ours.dns().ip(), ours.dns().port());
    let peers = peers.map(|(make, theirs, dns)| {
        let text = match make {
            Make::Knot => format!(
                "remote:\n  - id: ours\n    address: {ip}@{port}\nacl:\n  - id: told\n    address: {ip}\n    \
                 action: notify\ntemplate:\n  - id: member\n    storage: {}\n    master: ours\n    acl: told\nzone:\n  \
                 - domain: our.catalog\n    master: ours\n    acl: told\n    catalog-role: interpret\n    \
                 catalog-template: member\n",
                theirs.path().display()
            ),
            _ => format!(
                "view \"all\" {{\n  catalog-zones {{ zone \"our.catalog\" default-primaries {{ {ip} port {port}; }} \
                 min-update-interval 0; }};\n  zone \"our.catalog\" {{ type secondary; file \"our.catalog\"; \
                 primaries {{ {ip} port {port}; }}; }};\n}};\n"
            ),
        };
        (make.start(&theirs, dns, &text), theirs)
    });
    let each = |zones: &[&str], wanted: fn(&Answer) -> bool| {
        for (peer, _) in &peers {
            until(peer.dns, zones, wanted);
        }
    };
    each(&["one.example"], is_here);
    put("two.example");
    each(&["two.example"], is_here);
    ours.call("DELETE", "/v1/zones/one.example", "");
    each(&["one.example"], is_refused);
    each(&["two.example"], is_here);
    // Policies make a zone one that nobody can take.
    let policy = r#"{"names":["www.two.example"],"servers":[{"address":"192.0.2.9"}]}"#;
    ours.call("PUT", "/v1/policies/www.two.example", policy);
    put("three.example");
    each(&["three.example"], is_here);
    each(&["two.example"], is_refused);
    let refused = ours.client().call("PUT", "/v1/zones/our.catalog", &zone(1));
    assert!(refused.text().contains("our.catalog. is a catalog that is made here"), "{}", refused.text());
    assert!(is_refused(&Question::new("version.our.catalog", "TXT").udp(ours.dns())));
    ours.stop();
}

/// Two have one database and make one catalog, two others follow it with another database: each change of one reaches all.
#[test]
fn who_shares_a_database_makes_and_follows_one_catalog() {
    let database = Database::start(Kind::Postgres);
    let (made, followed) = (database.empty(), database.empty());
    let quoted = |addresses: [SocketAddr; 2]| addresses.map(|address| format!("\"{address}\"")).join(", ");
    let (folders, primaries) = ([Folder::new(), Folder::new()], [free_address(), free_address()]);
    let (others, secondaries) = ([Folder::new(), Folder::new()], [free_address(), free_address()]);
    let makes = format!(
        "[[secondary]]\ncatalog = \"our.catalog\"\nfrom = [\"127.0.0.1\"]\nnotify = [{}]\n",
        quoted(secondaries)
    );
    let follows = format!("[[primary]]\ncatalogs = [\"our.catalog\"]\naddresses = [{}]\n", quoted(primaries));
    let start = |folders: &[Folder; 2], addresses: [SocketAddr; 2], headings: &str, store: &str| {
        let at = |index: usize| {
            serve(&folders[index], addresses[index], headings, &["--store", &database.url(store)])
        };
        [at(0), at(1)]
    };
    let making = start(&folders, primaries, &makes, &made);
    let following = start(&others, secondaries, &follows, &followed);
    let each = |zones: &[&str], wanted: fn(&Answer) -> bool| {
        for server in &following {
            until(server.dns(), zones, wanted);
        }
    };
    for (server, name) in making.iter().zip(["one.example", "two.example"]) {
        server.call("PUT", &format!("/v1/zones/{name}"), &zone(1));
    }
    each(&["one.example", "two.example"], is_here);
    // What is changed in the tables themselves is listed by whoever publishes it.
    database.sql(&made, "DELETE FROM zone WHERE origin = 'one.example.'");
    each(&["one.example"], is_refused);
    each(&["two.example"], is_here);
    let members = database.sql(&followed, "SELECT path FROM import");
    assert_eq!(members.trim(), "member two.example.");
    for server in making.into_iter().chain(following) {
        server.stop();
    }
}
