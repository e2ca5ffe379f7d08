//! Probes as operators and clients see them: real servers that stop and start, and what is answered meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::ops::Deref;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use nix::sys::signal::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tests::certificate::Certificate;
use tests::folder::Folder;
use tests::nginx::Nginx;
use tests::peer::free_address;
use tests::program::{PROGRAM_WAIT, Program, path};
use tests::query::Question;
use tests::serving::Serving;

const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n";

/// Two servers under one probe, all of which are answered.
fn policy(name: &str, probe: &str, when_all_down: &str) -> String {
    json!({"names": [name], "answers": 0, "when_all_down": when_all_down, "servers": [
        {"address": "127.0.0.1", "probe": probe},
        {"address": "127.0.0.2", "probe": probe},
    ]})
    .to_string()
}

/// A server, and the verdicts that its log has told of so far.
struct Probing {
    serving: Serving,
    verdicts: HashMap<(String, String), String>,
}

impl Deref for Probing {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.serving
    }
}

impl Probing {
    /// Waits until a server has this verdict by its probe, each of which is a line of the log; returns what the API says
    /// of it then.
    fn until(&mut self, server: &str, probe: &str, verdict: &str) -> Value {
        let key = (server.to_string(), probe.to_string());
        while self.verdicts.get(&key).is_none_or(|told| told != verdict) {
            let line = self.serving.program.line("a server's health changed");
            let event: Value = serde_json::from_str(&line).expect("an object");
            let field = |name: &str| {
                event["fields"][name].as_str().unwrap_or_else(|| panic!("{name}: {line}")).to_string()
            };
            let of = (field("server"), field("probe"));
            let before = self.verdicts.insert(of, field("verdict"));
            // The first pass of a server is nothing to look into.
            match (before.as_deref(), field("verdict").as_str()) {
                (None | Some("unknown"), "passing") => assert_eq!(event["level"], "INFO", "{line}"),
                (_, "passing") => {}
                _ => assert_eq!(event["level"], "WARN", "{line}"),
            }
        }
        let state = state(&self.serving, server, probe);
        assert_eq!(state["state"], verdict, "{state}");
        state
    }
}

/// A server with the zone, a policy for each of these names, and these probes.
fn probing(folder: &Folder, probes: &str, policies: &[(&str, &str, &str)]) -> Probing {
    let zone = folder.write("example.com.zone", ZONE);
    let config = folder.write("pointsman.toml", format!("version = \"v1\"\n{probes}"));
    let mut arguments: Vec<String> =
        ["--log", "json", "--config", &config, "--zone", &zone].map(String::from).into();
    for (name, probe, when_all_down) in policies {
        let file = folder.write(&format!("{name}.json"), policy(name, probe, when_all_down));
        arguments.extend(["--policy".into(), file]);
    }
    let serving = Serving::start(folder, &arguments);
    // What was found before it was ready is in lines that are gone.
    let probes = serving.call("GET", "/v1/probes", "").json();
    let text = |state: &Value, name: &str| state[name].as_str().expect(name).to_string();
    let known = probes.as_array().expect("a list").iter();
    let verdicts =
        known.map(|state| ((text(state, "server"), text(state, "probe")), text(state, "state"))).collect();
    Probing { serving, verdicts }
}

/// The addresses that a name has just now.
fn addresses(server: &Serving, name: &str) -> BTreeSet<String> {
    let answer = Question::new(name, "A").udp(server.dns()).answer;
    answer.iter().map(|record| record.rsplit(' ').next().expect("a record has data").to_string()).collect()
}

fn assert_answers(server: &Serving, name: &str, wanted: &[&str]) {
    let wanted: BTreeSet<String> = wanted.iter().map(|address| address.to_string()).collect();
    assert_eq!(addresses(server, name), wanted, "{name}");
}

/// What the API says of a server under a probe.
fn state(server: &Serving, address: &str, probe: &str) -> Value {
    let probes = server.call("GET", "/v1/probes", "").json();
    let found = probes
        .as_array()
        .expect("a list")
        .iter()
        .find(|state| state["server"] == address && state["probe"] == probe);
    found.unwrap_or_else(|| panic!("{address} {probe}: {probes}")).clone()
}

/// An nginx on one address, over HTTP and HTTPS.
fn nginx(folder: &Folder, http: SocketAddr, https: SocketAddr, certificate: &Certificate) -> Nginx {
    let name = format!("nginx-{}", http.ip());
    let conf = format!(
        "daemon off;\npid {name}.pid;\nerror_log stderr notice;\nworker_processes 1;\nevents {{}}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {name}.body;\nproxy_temp_path {name}.proxy;\n\
         fastcgi_temp_path {name}.fastcgi;\nuwsgi_temp_path {name}.uwsgi;\nscgi_temp_path {name}.scgi;\n\
         server {{\nlisten {http};\nlisten {https} ssl;\nssl_certificate {};\nssl_certificate_key {};\n\
         location = /up {{ return 204; }}\nlocation = /broken {{ return 503; }}\n}}\n}}\n",
        certificate.certificate, certificate.key
    );
    folder.write(&format!("{name}.conf"), conf);
    let mut command = Command::new("/usr/sbin/nginx");
    command.current_dir(folder.path()).args(["-p", ".", "-e", "stderr", "-c", &format!("{name}.conf")]);
    Nginx::start(command)
}

/// Listens for TLS, says goodbye to whoever comes, and goes on with what is none.
fn chatters(certificate: &Certificate) -> SocketAddr {
    let chain = CertificateDer::from_pem_file(&certificate.certificate).expect("it was made");
    let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("it was made");
    let tls = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("they belong together");
    let tls = Arc::new(tls);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        while let Ok((mut tcp, _)) = listener.accept() {
            let mut session = rustls::ServerConnection::new(tls.clone()).expect("it begins");
            // Who does not believe the certificate goes away.
            if session.complete_io(&mut tcp).is_ok() {
                session.send_close_notify();
                let mut last = Vec::new();
                session.write_tls(&mut last).expect("memory takes it");
                last.resize(last.len() + 16_000, 0);
                let _ = tcp.write_all(&last);
                // It closes when the other end has.
                let _ = std::io::copy(&mut tcp, &mut std::io::sink());
            }
        }
    });
    address
}

#[test]
fn who_goes_on_behind_the_goodbye_has_closed() {
    let folder = Folder::new();
    let port = chatters(&Certificate::new(&folder)).port();
    let probe = format!(
        "[[probe]]\nname = \"tls\"\ncheck = \"https\"\nport = {port}\npath = \"/\"\ncertificate = \"any\"\n\
         interval = \"200 ms\"\nrise = 1\nfall = 1\n"
    );
    let mut server = probing(&folder, &probe, &[("tls.example.com", "tls", "answer")]);
    assert_eq!(server.until("127.0.0.1", "tls", "failing")["last"]["reason"], "closed");
    server.serving.stop();
}

#[test]
fn a_server_that_is_a_name_is_looked_up_and_asked_for_by_it() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let (http, https) = (free_address(), free_address());
    let web = nginx(&folder, http, https, &certificate);
    let probe = |name: &str, check: &str| {
        format!("[[probe]]\nname = \"{name}\"\n{check}\ninterval = \"200 ms\"\nrise = 1\nfall = 1\n")
    };
    let (http, https) = (http.port(), https.port());
    let probes = [
        probe("page", &format!("check = \"http\"\nport = {http}\npath = \"/up\"")),
        probe("port", &format!("check = \"tcp\"\nport = {http}")),
        // The certificate is not for localhost.
        probe(
            "strict",
            &format!(
                "check = \"https\"\nport = {https}\npath = \"/up\"\nauthorities = \"{}\"",
                certificate.authority
            ),
        ),
        probe(
            "told",
            "check = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \"echo $1; exit 3\", \"sh\", \"{server}\"]",
        ),
    ];
    let mut server = probing(&folder, &probes.concat(), &[]);
    for probe in ["page", "port", "strict", "told"] {
        let policy = json!({"servers": [
            {"cname": "localhost", "probe": probe, "default": {"probability": 1, "ttl": 9}},
            {"cname": "other.example.net", "default": {"probability": 0}},
        ]});
        server.call("PUT", &format!("/v1/policies/{probe}.example.com"), &policy.to_string());
    }
    let alias = |server: &Serving, probe: &str| {
        Question::new(&format!("{probe}.example.com"), "CNAME").udp(server.dns()).data().join(" ")
    };
    for (probe, verdict, reason, expected) in [
        ("page", "passing", "status", "localhost."),
        ("port", "passing", "connected", "localhost."),
        ("strict", "failing", "tls", "other.example.net."),
        ("told", "failing", "exit", "other.example.net."),
    ] {
        let state = server.until("localhost.", probe, verdict);
        assert_eq!(state["last"]["reason"], reason, "{state}");
        assert_eq!(alias(&server, probe), expected, "{probe}");
    }
    assert_eq!(state(&server, "localhost.", "told")["last"]["detail"], "exit code 3: localhost");
    web.stop();
    let state = server.until("localhost.", "page", "failing");
    assert_eq!(state["last"]["reason"], "refused", "{state}");
    assert!(
        state["last"]["detail"].as_str().is_some_and(|told| told.starts_with(&format!("localhost:{http}: ")))
    );
    assert_eq!(alias(&server, "page"), "other.example.net.");
    server.serving.stop();
}

#[test]
fn answers_follow_web_servers_that_stop_and_start() {
    let folder = Folder::new();
    let certificate = Certificate::new(&folder);
    let (http, https) = (free_address(), free_address());
    let at = |last: u8, port: SocketAddr| SocketAddr::from(([127, 0, 0, last], port.port()));
    let start = |last: u8| nginx(&folder, at(last, http), at(last, https), &certificate);
    let (first, second) = (start(1), start(2));
    let often = "interval = \"200 ms\"\nrise = 2\nfall = 2\n";
    let (http, https) = (http.port(), https.port());
    let believed = format!("authorities = \"{}\"\n", certificate.authority);
    let probes = [
        format!("name = \"web\"\ncheck = \"http\"\nport = {http}\npath = \"/up\"\n{often}"),
        format!("name = \"broken\"\ncheck = \"http\"\nport = {http}\npath = \"/broken\"\n{often}"),
        format!("name = \"port\"\ncheck = \"tcp\"\nport = {http}\n{often}"),
        format!(
            "name = \"secure\"\ncheck = \"https\"\nport = {https}\npath = \"/up\"\nhost = \"dns.example.com\"\n\
             status = \"204\"\n{believed}{often}"
        ),
        // The certificate is for 127.0.0.1, not for 127.0.0.2.
        format!("name = \"strict\"\ncheck = \"https\"\nport = {https}\npath = \"/up\"\n{believed}{often}"),
        format!(
            "name = \"lenient\"\ncheck = \"https\"\nport = {https}\npath = \"/up\"\ncertificate = \"any\"\n{often}"
        ),
    ];
    let probes: String = probes.iter().map(|probe| format!("[[probe]]\n{probe}")).collect();
    let names =
        ["web", "broken", "port", "secure", "strict", "lenient"].map(|probe| format!("{probe}.example.com"));
    let closed = "closed.example.com";
    let mut policies: Vec<(&str, &str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), name.split('.').next().expect("a label"), "answer"))
        .collect();
    policies.push((closed, "web", "empty"));
    let mut server = probing(&folder, &probes, &policies);

    let both = ["127.0.0.1", "127.0.0.2"];
    for (probe, reason) in
        [("web", "status"), ("port", "connected"), ("secure", "status"), ("lenient", "status")]
    {
        for address in both {
            assert_eq!(server.until(address, probe, "passing")["last"]["reason"], reason);
        }
        assert_answers(&server, &format!("{probe}.example.com"), &both);
    }
    server.until("127.0.0.1", "strict", "passing");
    assert_eq!(server.until("127.0.0.2", "strict", "failing")["last"]["reason"], "tls");
    assert_answers(&server, "strict.example.com", &["127.0.0.1"]);
    for address in both {
        assert_eq!(server.until(address, "broken", "failing")["last"]["detail"], "status 503");
    }
    assert_answers(&server, "broken.example.com", &both);

    first.stop();
    for probe in ["web", "port", "secure", "lenient"] {
        assert_eq!(server.until("127.0.0.1", probe, "failing")["last"]["reason"], "refused");
        assert_answers(&server, &format!("{probe}.example.com"), &["127.0.0.2"]);
    }
    assert_answers(&server, closed, &["127.0.0.2"]);
    let explained = explain(&server, "web.example.com");
    let health: Vec<&Value> =
        explained["row"].as_array().expect("a row").iter().map(|server| &server["health"]).collect();
    assert_eq!(health, ["failing", "passing"], "{explained}");
    assert_eq!(explained["row"][0]["up"], true, "the operator has said nothing");
    assert_eq!(explained["probabilities"], json!({"127.0.0.2": 1.0}));
    let epoch = explained["epoch"].as_u64().expect("a number");
    assert!(epoch >= 4, "{epoch}");

    second.stop();
    server.until("127.0.0.2", "web", "failing");
    assert_answers(&server, closed, &[]);
    assert_answers(&server, "web.example.com", &both);
    let explained = explain(&server, "web.example.com");
    assert!(explained["why"].as_str().expect("words").contains("fail their probes"), "{explained}");
    assert!(explained["epoch"].as_u64() > Some(epoch));
    // What an operator has set down is not a guess, and stays out.
    server.call("PUT", "/v1/servers/127.0.0.1/state", "{\"up\":false}");
    assert_answers(&server, "web.example.com", &["127.0.0.2"]);
    server.call("PUT", "/v1/servers/127.0.0.1/state", "{\"up\":true}");

    let metrics = server.call("GET", "/metrics", "").text();
    for line in [
        "pointsman_probe_passing{server=\"127.0.0.1\",probe=\"web\"} 0",
        "pointsman_probe_last_timestamp_seconds{server=\"127.0.0.1\",probe=\"web\",result=\"failed\",reason=\"refused\"} ",
        "pointsman_probes_total{result=\"panicked\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line} is not in\n{metrics}");
    }
    let mut status = Command::new(path());
    status.args(["status", "--api", &format!("http://{}", server.api)]);
    let shown = String::from_utf8(status.output().expect("it runs").stdout).expect("text");
    let row = shown.lines().find(|line| line.starts_with("127.0.0.1") && line.contains(" web "));
    assert!(row.is_some_and(|row| row.contains("failing") && row.contains("refused")), "{shown}");

    let again = [start(1), start(2)];
    for address in both {
        server.until(address, "web", "passing");
        server.until(address, "secure", "passing");
    }
    assert_answers(&server, closed, &both);
    server.serving.stop();
    again.into_iter().for_each(Nginx::stop);
}

fn explain(server: &Serving, name: &str) -> Value {
    let asked = json!({"name": name, "type": "A", "client": "192.0.2.1"});
    server.call("POST", "/v1/explain", &asked.to_string()).json()
}

/// A command probe: a file named after the server says that it is well.
fn by_file(folder: &Folder, more: &str) -> String {
    let file = folder.at("{server}");
    format!(
        "[[probe]]\nname = \"file\"\ncheck = \"command\"\ncommand = [\"/usr/bin/test\", \"-e\", \"{file}\"]\n{more}"
    )
}

#[test]
fn the_first_answer_after_a_start_uses_the_last_known_state() {
    let folder = Folder::new();
    folder.write("127.0.0.2", "");
    let policies = [("www.example.com", "file", "answer")];
    let mut server = probing(&folder, &by_file(&folder, "interval = \"100 ms\"\nfall = 1\n"), &policies);
    let since = server.until("127.0.0.1", "file", "failing")["since"].clone();
    server.until("127.0.0.2", "file", "passing");
    assert_answers(&server, "www.example.com", &["127.0.0.2"]);
    assert_eq!(server.serving.stop().status.code(), Some(0));

    // By now all is well again, but one result is not enough to rise.
    folder.write("127.0.0.1", "");
    let mut server = probing(&folder, &by_file(&folder, "interval = \"100 ms\"\nrise = 50\n"), &policies);
    assert_answers(&server, "www.example.com", &["127.0.0.2"]);
    let held = state(&server, "127.0.0.1", "file");
    assert_eq!((&held["state"], &held["since"]), (&json!("failing"), &since));
    server.until("127.0.0.1", "file", "passing");
    assert_answers(&server, "www.example.com", &["127.0.0.1", "127.0.0.2"]);
    server.serving.program.signal(Signal::SIGKILL);
    drop(server);

    // A probe that is configured no more takes nobody out; a policy cannot be put under it.
    let server = probing(&folder, "", &[]);
    let end = Instant::now() + PROGRAM_WAIT;
    while !state(&server, "127.0.0.1", "file")["message"].is_string() {
        assert!(Instant::now() < end, "nobody has looked");
    }
    assert_answers(&server, "www.example.com", &["127.0.0.1", "127.0.0.2"]);
    let refused = server.client().call(
        "PUT",
        "/v1/policies/www.example.com.",
        &policy("www.example.com", "file", "answer"),
    );
    assert_eq!(refused.status, 422, "{}", refused.text());
    let faults = refused.json()["faults"].clone();
    assert_eq!(faults[0]["what"], "there is no probe 'file'", "{faults}");
    server.serving.stop();
}

#[test]
fn probing_stops_when_a_server_leaves_the_last_policy() {
    let folder = Folder::new();
    let port = free_address().port();
    let done = Arc::new(AtomicBool::new(false));
    let listen = |last: u8| {
        let listener =
            TcpListener::bind(SocketAddr::from(([127, 0, 0, last], port))).expect("the port is free");
        let ((tell, told), done) = (channel(), done.clone());
        let thread = std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let mut stream = listener.accept().expect("a connection").0;
                // Who waits for an answer of HTTP gets something else.
                let _ = stream.write_all(b"220 mail.example.com ESMTP\r\n");
                // At the end nobody counts any more.
                let _ = tell.send(());
            }
        });
        (told, thread)
    };
    let ((first, first_thread), (second, second_thread)) = (listen(1), listen(2));
    let wait_for = |told: &Receiver<()>, count: usize| {
        (0..count).for_each(|_| told.recv_timeout(PROGRAM_WAIT).expect("it is probed"));
    };
    let probes = format!(
        "[[probe]]\nname = \"mail\"\ncheck = \"tcp\"\nport = {port}\ninterval = \"100 ms\"\n\
         [[probe]]\nname = \"web\"\ncheck = \"http\"\nport = {port}\ninterval = \"100 ms\"\n"
    );
    let mut server = probing(
        &folder,
        &probes,
        &[("a.example.com", "mail", "answer"), ("b.example.com", "mail", "answer")],
    );
    wait_for(&first, 3);
    wait_for(&second, 3);
    // One policy still has both.
    server.call("DELETE", "/v1/policies/a.example.com.", "");
    assert_eq!(server.call("GET", "/v1/probes", "").json().as_array().map(Vec::len), Some(2));
    first.try_iter().for_each(drop);
    wait_for(&first, 3);

    let one = json!({"servers": [{"address": "127.0.0.1"}, {"address": "127.0.0.2", "probe": "mail"}]});
    server.call("PUT", "/v1/policies/b.example.com.", &one.to_string());
    // The last generation that had it goes when nobody reads it any more, and one probe may be under way; the other
    // server tells how time passes.
    second.try_iter().for_each(drop);
    wait_for(&second, 10);
    assert_eq!(server.call("GET", "/v1/probes", "").json().as_array().map(Vec::len), Some(1));
    first.try_iter().for_each(drop);
    wait_for(&second, 10);
    assert_eq!(first.try_iter().count(), 0);

    let web = json!({"servers": [{"address": "127.0.0.2", "probe": "web"}]});
    server.call("PUT", "/v1/policies/b.example.com.", &web.to_string());
    assert_eq!(server.until("127.0.0.2", "web", "failing")["last"]["reason"], "malformed");
    server.serving.stop();
    done.store(true, Ordering::Relaxed);
    for last in [1, 2] {
        let _ = std::net::TcpStream::connect(SocketAddr::from(([127, 0, 0, last], port)))
            .expect("it still listens");
    }
    for thread in [first_thread, second_thread] {
        thread.join().expect("it does not panic");
    }
}

#[test]
fn a_command_that_does_not_end_is_ended_with_all_that_it_started() {
    let folder = Folder::new();
    let script = folder.write(
        "check",
        "#!/bin/sh\necho \"$POINTSMAN_PROBE of $POINTSMAN_SERVER\"\nsleep 600 &\necho $! >> \"$1\"\nwait\n",
    );
    let children = folder.at("children");
    let probe = format!(
        "[[probe]]\nname = \"slow\"\ncheck = \"command\"\ncommand = [\"/bin/sh\", \"{script}\", \"{children}\"]\n\
         interval = \"300 ms\"\ntimeout = \"300 ms\"\n"
    );
    let mut server = probing(&folder, &probe, &[("www.example.com", "slow", "answer")]);
    for address in ["127.0.0.1", "127.0.0.2"] {
        assert_eq!(server.until(address, "slow", "failing")["last"]["reason"], "timeout");
    }
    // As often as not one is under way.
    server.serving.stop();
    let started = std::fs::read_to_string(&children).expect("they tell");
    assert!(started.lines().count() >= 2, "{started}");
    let is_alive = |id: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.contains("(sleep)") && !stat.contains(") Z")
    };
    // Whoever was killed may take a moment to be gone.
    let end = Instant::now() + PROGRAM_WAIT;
    while started.lines().any(is_alive) {
        assert!(Instant::now() < end, "{started}");
    }
}

#[test]
fn a_check_of_the_configuration_knows_its_probes() {
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let policy = folder.write("www.json", policy("www.example.com", "web", "answer"));
    let check = |probe: &str| {
        let config = format!(
            "version = \"v1\"\nzone = [\"{zone}\"]\npolicy = [\"{policy}\"]\n\
             [[probe]]\nname = \"{probe}\"\ncheck = \"tcp\"\nport = 80\n"
        );
        let config = folder.write("pointsman.toml", &config);
        Program::start(&["serve", "--config", &config, "--check"]).end()
    };
    let (right, wrong) = (check("web"), check("mail"));
    assert_eq!(right.status.code(), Some(0), "{}", right.stderr);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stderr.contains("there is no probe 'web'; expected one of the configuration's: mail"));
}

#[test]
fn what_is_wrong_with_probes_ends_the_start_and_is_all_told() {
    let folder = Folder::new();
    let config = folder.write(
        "pointsman.toml",
        "version = \"v1\"\n[[probe]]\nname = \"web\"\ncheck = \"http\"\nstatus = \"ok\"\n[[probe]]\ncheck = \"tcp\"\n",
    );
    let ended = Program::start(&["serve", "--config", &config, "--check"]).end();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    for line in [":5:10: status is \"ok\"", ":6:1: the probe has no name", ":6:1: a tcp probe has no port"] {
        assert!(ended.stderr.contains(line), "{line} is not in {}", ended.stderr);
    }
}
