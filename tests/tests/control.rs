//! The control process against the real name server: what it installs, and that what it does not know makes nothing
//! worse.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::folder::Folder;
use tests::http::Client;
use tests::peer::free_address;
use tests::program::{self, Ended, Program};
use tests::query::Question;
use tests::serving::{Serving, store};

const ZONE: &str = "$TTL 1h\n@ SOA ns h 1 2h 10m 2w 5m\n@ NS ns\nns A 192.0.2.53\n";
const WHERE: &str = "10.0.0.0/8,europe\n172.16.0.0/12,asia\n";
const POLICY: &str = r#"{"names":["www.example.com."],"servers":[
    {"address":"192.0.2.1","default":{"probability":1,"ttl":60}},{"address":"192.0.2.2","default":{"probability":1}}]}"#;

/// Two servers, each nearest to a region of its own.
const SERVERS: &str = "
[[server]]
address = \"192.0.2.1\"
ranks = { europe = 1, asia = 2 }
[[server]]
address = \"192.0.2.2\"
ranks = { europe = 2, asia = 1 }
";

/// A name server with a policy, and a folder in which each server's load is a file, as is that the server is ill.
struct World {
    folder: Folder,
    serving: Serving,
}

impl World {
    fn new() -> World {
        let folder = Folder::new();
        let zone = folder.write("example.com.zone", ZONE);
        let partition = folder.write("where.csv", WHERE);
        let probe = format!(
            "version = \"v1\"\n[[probe]]\nname = \"well\"\ncheck = \"command\"\n\
             command = [\"/usr/bin/test\", \"!\", \"-e\", \"{}\"]\n",
            folder.at("{server}.ill")
        );
        let probe = folder.write("pointsman.toml", probe);
        let more = ["--config", &probe, "--zone", &zone, "--partition", &partition];
        let serving = Serving::start(&folder, &more);
        serving.call("PUT", "/v1/policies/www.example.com", POLICY);
        World { folder, serving }
    }

    /// Sets what a server's file says.
    fn load(&self, address: &str, says: &str) {
        self.folder.write(address, says);
    }

    /// Writes a configuration: the head, `keys`, the `sources` and both servers.
    fn config(&self, keys: &str, sources: &str) -> String {
        let head = format!(
            "version = \"v1\"\npolicy = \"www.example.com\"\napi = \"http://{}\"\nalgorithm = \"I\"\n",
            self.serving.api
        );
        self.folder.write("control.toml", head + keys + sources + SERVERS)
    }

    /// The source whose loads are files.
    fn files(&self) -> String {
        let path = self.folder.at("{address}");
        format!(
            "[[source]]\nname = \"file\"\nkind = \"command\"\ncommand = [\"cat\", \"{path}\"]\nthreshold = 0.5\n"
        )
    }

    /// Makes one round, which ends with this code; returns it as JSON.
    fn round(&self, config: &str, more: &[&str], code: i32) -> Value {
        let arguments = [&["control", "--config", config, "--once", "--json"], more].concat();
        let Ended { status, stdout, stderr } = Program::start(&arguments).end();
        assert_eq!(status.code(), Some(code), "{stdout}{stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|cause| panic!("{cause}: {stdout}{stderr}"))
    }

    fn policy(&self) -> Value {
        self.serving.call("GET", "/v1/policies/www.example.com", "").json()
    }

    /// The probability of a server for a region.
    fn probability(&self, server: usize, region: &str) -> f64 {
        let policy = self.policy();
        let cell = &policy["servers"][server]["regions"][region]["probability"];
        cell.as_f64().unwrap_or_else(|| panic!("no such cell: {policy}"))
    }
}

#[test]
fn servers_that_are_names_are_decided_like_others() {
    let world = World::new();
    let policy = r#"{"servers":[{"cname":"a.cdn.test"},{"cname":"b.cdn.test"}]}"#;
    world.serving.call("PUT", "/v1/policies/www.example.com", policy);
    let config = std::fs::read_to_string(world.config("", &world.files())).expect("it was written");
    let config = config.replace("address = \"192.0.2.1\"", "address = \"A.cdn.test\"");
    let config = config.replace("address = \"192.0.2.2\"", "address = \"b.cdn.test.\"");
    let config = world.folder.write("aliases.toml", config);
    world.load("a.cdn.test", "load 0.2");
    world.load("b.cdn.test", "load 0.4");
    let round = world.round(&config, &[], 0);
    assert_eq!(round["outcome"], "installed", "{round}");
    assert_eq!(round["servers"][1]["cname"], "b.cdn.test.", "{round}");
    assert_eq!([world.probability(0, "europe"), world.probability(1, "asia")], [1.0, 1.0]);
    assert_eq!(world.policy()["servers"][0]["default"]["probability"], 0.75);
    let asia = Question::new("www.example.com", "A").subnet("172.16.1.0/24").udp(world.serving.dns());
    assert_eq!(asia.data(), ["b.cdn.test."]);

    // Who is down has no share, whoever it is.
    world.serving.call("PUT", "/v1/servers/a.cdn.test/state", r#"{"up":false}"#);
    let round = world.round(&config, &[], 0);
    assert_eq!(round["servers"][0]["why"], "its load is unknown: it is down", "{round}");
    assert_eq!(world.probability(0, "europe"), 0.0);
}

#[test]
fn a_round_installs_what_it_decides_and_queries_follow() {
    let world = World::new();
    let config = world.config("", &world.files());
    world.load("192.0.2.1", "load 0.2");
    world.load("192.0.2.2", "load 0.4");
    let before = world.policy();
    let dry = world.round(&config, &["--dry-run"], 0);
    assert_eq!((&dry["outcome"], world.policy()), (&Value::from("dry_run"), before));
    let shown = Program::start(&["control", "--config", &config, "--once", "--dry-run"]).end().stdout;
    assert!(shown.contains("0.500 -> 1.000") && shown.contains("the rows would be installed"), "{shown}");

    let round = world.round(&config, &[], 0);
    assert_eq!((&round["outcome"], &round["rows"]), (&Value::from("installed"), &dry["rows"]));
    assert_eq!([world.probability(0, "europe"), world.probability(0, "asia")], [1.0, 0.0]);
    // In the default column nobody is nearer: 0.6 and 0.2 to spare.
    assert_eq!(world.policy()["servers"][0]["default"]["probability"], 0.75);
    let europe = || Question::new("www.example.com", "A").subnet("10.1.2.0/24").udp(world.serving.dns());
    let answered = europe();
    assert!(answered.answer[0].contains("192.0.2.1") && answered.answer[0].contains("30"), "{answered:?}");

    assert_eq!(world.round(&config, &[], 0)["outcome"], "unchanged");
    world.load("192.0.2.1", "load 0.6");
    world.round(&config, &[], 0);
    assert!(europe().answer[0].contains("192.0.2.2"));
    // All are overloaded: all share.
    world.load("192.0.2.2", "load 0.6");
    world.round(&config, &[], 0);
    assert_eq!([world.probability(0, "europe"), world.probability(1, "europe")], [0.5, 0.5]);
}

#[test]
fn what_is_not_known_makes_nothing_worse() {
    let world = World::new();
    let config = world.config("", &world.files());
    world.load("192.0.2.1", "0.2");
    world.load("192.0.2.2", "0.2");
    world.round(&config, &[], 0);
    let serving = world.policy();
    // No file, no number, absurd ones: the server keeps what it has, and so does the other, for it has the rest.
    for (says, why) in [
        (None, "cat ended with exit status: 1"),
        (Some("no load"), "there is no number"),
        (Some("-0.1"), "-0.1 is no load"),
    ] {
        match says {
            Some(says) => world.load("192.0.2.1", says),
            None => std::fs::remove_file(world.folder.at("192.0.2.1")).expect("it is ours"),
        }
        let round = world.round(&config, &[], 0);
        let server = &round["servers"][0];
        assert_eq!((&server["load"], &round["outcome"]), (&Value::Null, &Value::from("unchanged")));
        assert!(server["why"].as_str().is_some_and(|told| told.contains(why)), "{server}");
        // Even where the other is overloaded: sending its clients to where nobody knows anything may be worse.
        world.load("192.0.2.2", "0.9");
        world.round(&config, &[], 0);
        assert_eq!(world.policy(), serving);
        world.load("192.0.2.2", "0.2");
    }
    world.load("192.0.2.2", "nothing");
    assert_eq!(world.round(&config, &[], 1)["why"], "no server's load is known");
    assert_eq!(world.policy(), serving);

    // Not in the policy, and not in the configuration.
    world.load("192.0.2.1", "0.2");
    let other = POLICY.replace("192.0.2.2", "192.0.2.3");
    world.serving.call("PUT", "/v1/policies/www.example.com", &other);
    let round = world.round(&config, &[], 0);
    assert!(round["servers"][1]["why"].as_str().is_some_and(|why| why.ends_with("it is not in the policy")));
    assert_eq!(world.probability(1, "europe"), 0.5, "it keeps what it had");
    // No policy.
    world.serving.call("DELETE", "/v1/policies/www.example.com", "");
    assert_eq!(world.round(&config, &[], 1)["outcome"], "nothing");
    // A region that the name server does not know.
    world.serving.call("PUT", "/v1/policies/www.example.com", POLICY);
    let text = std::fs::read_to_string(&config).expect("it is ours").replace("asia", "oceania");
    let round = world.round(&world.folder.write("oceania.toml", text), &[], 1);
    assert_eq!(round["outcome"], "refused");
    assert!(round["why"].as_str().is_some_and(|why| why.contains("oceania")), "{round}");
    // Nobody there.
    world.serving.stop();
    let ended = Program::start(&["control", "--config", &config, "--once"]).end();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    let told = |text: &str| text.matches("cannot be reached").count();
    assert_eq!((told(&ended.stdout), told(&ended.stderr)), (1, 1), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn a_server_that_is_left_out_is_given_nothing() {
    let mut world = World::new();
    let config = world.config("", &world.files());
    // Nobody is sent to the first while it is out, so it is idle, and nearest to Europe.
    world.load("192.0.2.1", "0");
    world.load("192.0.2.2", "0.4");
    let europe = |world: &World| [world.probability(0, "europe"), world.probability(1, "europe")];
    let out = |world: &World, why: &str| {
        let round = world.round(&config, &[], 0);
        let server = &round["servers"][0];
        assert_eq!(
            (&server["load"], &server["why"]),
            (&Value::Null, &format!("its load is unknown: {why}").into())
        );
        assert_eq!((europe(world), &round["outcome"]), ([0.0, 1.0], &"installed".into()));
        assert_eq!(world.policy()["servers"][0]["default"]["probability"], 0.0);
        assert_eq!(world.round(&config, &[], 0)["outcome"], "unchanged");
    };
    let state = |world: &World, up: bool| {
        world.serving.call("PUT", "/v1/servers/192.0.2.1/state", &format!("{{\"up\":{up}}}"));
    };
    world.round(&config, &[], 0);
    assert_eq!(europe(&world), [1.0, 0.0]);
    state(&world, false);
    out(&world, "it is down");
    state(&world, true);
    world.round(&config, &[], 0);
    assert_eq!(europe(&world), [1.0, 0.0], "it is back");

    world.folder.write("192.0.2.1.ill", "");
    let probed = POLICY.replace("\"192.0.2.1\",", "\"192.0.2.1\",\"probe\":\"well\",");
    world.serving.call("PUT", "/v1/policies/www.example.com", &probed);
    world.serving.program.line("health changed");
    out(&world, "its probe fails");
    // Both are: then the name server answers with either, as if no probe failed.
    world.folder.write("192.0.2.2.ill", "");
    let both = world.policy().to_string().replace("\"192.0.2.2\",", "\"192.0.2.2\",\"probe\":\"well\",");
    world.serving.call("PUT", "/v1/policies/www.example.com", &both);
    world.serving.program.line("health changed");
    world.round(&config, &[], 0);
    assert_eq!(europe(&world), [1.0, 0.0]);
}

#[test]
fn an_unknown_load_is_told_once_whatever_its_reason_says() {
    let world = World::new();
    world.serving.call("DELETE", "/v1/policies/www.example.com", "");
    let source = "[[source]]\nname = \"clock\"\nkind = \"command\"\nthreshold = 1\n\
                  command = [\"sh\", \"-c\", \"echo {address} $(date +%N) >&2; exit 1\"]\n";
    let config = world.config("interval = \"100 ms\"\ntimeout = \"100 ms\"\n", source);
    let mut control = Program::start(&["control", "--config", &config]);
    for _ in 0..3 {
        control.line("there is no policy");
    }
    let said = control.stop().stderr;
    assert_eq!(said.matches("its load is unknown").count(), 2, "one for each server: {said}");
}

#[test]
fn who_is_overtaken_stands_back() {
    let world = World::new();
    // What it measures by is a change of somebody else's, so that it is overtaken within the round.
    let other = world.folder.write("other.json", POLICY.replace("\"ttl\":60", "\"ttl\":61"));
    let config = format!(
        "version = \"v1\"\npolicy = \"www.example.com\"\napi = \"http://{api}\"\ntimeout = \"10 s\"\n\
         [[source]]\nname = \"rival\"\nkind = \"command\"\nthreshold = 10\nafter = \"generation \"\n\
         command = [\"{program}\", \"policy\", \"put\", \"{other}\", \"--api\", \"http://{api}\"]\n\
         [[server]]\naddress = \"192.0.2.1\"\n",
        api = world.serving.api,
        program = program::path().display(),
    );
    let round = world.round(&world.folder.write("one.toml", config), &[], 1);
    assert_eq!(round["outcome"], "overtaken", "{round}");
    assert_eq!(world.policy()["servers"][0]["default"]["ttl"], 61, "the other's change stands");
}

#[test]
fn of_two_processes_one_works_and_the_other_takes_over() {
    let world = World::new();
    world.load("192.0.2.1", "0.2");
    world.load("192.0.2.2", "0.2");
    let config =
        world.config("interval = \"200 ms\"\ntimeout = \"200 ms\"\nttl = \"40 s\"\n", &world.files());
    let mut first = Program::start(&["control", "--config", &config]);
    first.line("installed");
    // The second wants another TTL, so both would go on overwriting each other.
    let text = std::fs::read_to_string(&config).expect("it is ours").replace("40 s", "50 s");
    let second = world.folder.write("second.toml", text);
    let mut second = Program::start(&["control", "--config", &second]);
    second.line("installed");
    first.line("standing back");
    first.line("rounds to go");
    assert_eq!(world.policy()["servers"][0]["default"]["ttl"], 50);
    second.stop();
    first.line("installed");
    assert_eq!(world.policy()["servers"][0]["default"]["ttl"], 40);
    let ended = first.stop();
    assert!(ended.stderr.ends_with("stopped"), "{}", ended.stderr);
}

#[test]
fn it_goes_on_when_the_api_was_away() {
    let world = World::new();
    world.load("192.0.2.1", "0.2");
    world.load("192.0.2.2", "0.2");
    let config = world.config("interval = \"200 ms\"\ntimeout = \"200 ms\"\n", &world.files());
    let mut control = Program::start(&["control", "--config", &config]);
    control.line("installed");
    let World { folder, serving } = world;
    let api = serving.api.to_string();
    serving.stop();
    control.line("cannot be reached");
    folder.write("192.0.2.1", "0.9");
    let mut again =
        Program::start(&["serve", "--api", &api, "--store", &store(&folder), "--listen", "127.0.0.1:0"]);
    again.line("ready");
    control.line("installed");
    let mut client = Client::new(api.parse().expect("an address"));
    let policy = client.call("GET", "/v1/policies/www.example.com", "").json();
    assert_eq!(policy["servers"][0]["regions"]["europe"]["probability"], 0.0);
}

#[test]
fn several_sources_and_reports() {
    let world = World::new();
    let site = Site::start();
    site.say(
        "192.0.2.1",
        "{\"cpu\":{\"busy\":0.3}}",
        "# TYPE open gauge\nopen{kind=\"tcp\"} 50\nopen{kind=\"udp\"} 7\n",
    );
    site.say("192.0.2.2", "{\"cpu\":{\"busy\":0.1}}", "open{kind=\"tcp\"} 20\n");
    let token = world.folder.write_secret("token", "secret\n");
    let sources = format!(
        "listen = \"127.0.0.1:0\"\nreport_token_file = \"{token}\"\ninterval = \"200 ms\"\ntimeout = \"200 ms\"\n\
         stale = \"10 min\"\n\
         [[source]]\nname = \"cpu\"\nkind = \"json\"\nurl = \"http://{site}/json?of={{address}}\"\npointer = \"/cpu/busy\"\n\
         threshold = 0.5\nweight = 3\n\
         [[source]]\nname = \"open\"\nkind = \"prometheus\"\nurl = \"http://{site}/metrics?of={{address}}\"\n\
         metric = \"open{{kind=\\\"tcp\\\"}}\"\nthreshold = 100\n\
         [[source]]\nname = \"disk\"\nkind = \"push\"\nthreshold = 0.9\n",
        site = site.address
    );
    let config = world.config(&sources, "");
    let mut control = Program::start(&["control", "--config", &config]);
    let line = control.line("listening on http://");
    let face: SocketAddr = line["listening on http://".len()..]
        .split(' ')
        .next()
        .and_then(|a| a.parse().ok())
        .expect("an address");
    // One source says nothing yet.
    assert!(control.line("its load is unknown").contains("nothing has been reported"));
    let mut client = Client::new(face);
    let bearer = [("Authorization", "Bearer secret")];
    let mut report = |source: &str, server: &str, body: &str, token: bool| {
        let headers = [("Content-Type", "application/json"), bearer[0]];
        let headers = if token { &headers[..] } else { &headers[..1] };
        client
            .send("PUT", &format!("/v1/loads/{source}/{server}"), headers, body.as_bytes())
            .expect("it answers")
            .status
    };
    for (source, server, body, token, status) in [
        ("disk", "192.0.2.1", "{\"value\":0.1}", false, 401),
        ("disk", "192.0.2.9", "{\"value\":0.1}", true, 404),
        ("dusk", "192.0.2.1", "{\"value\":0.1}", true, 404),
        ("cpu", "192.0.2.1", "{\"value\":0.1}", true, 409),
        ("disk", "192.0.2.1", "{\"value\":-1}", true, 422),
        ("disk", "192.0.2.1", "{\"value\":NaN}", true, 422),
        ("disk", "192.0.2.1", "{\"value\":0.45}", true, 204),
        ("disk", "192.0.2.2", "{\"value\":0.09}", true, 204),
    ] {
        assert_eq!(report(source, server, body, token), status, "{source} {server} {body}");
    }
    // A round between the two reports knows of one server only, and may install rows of its own.
    control.line("its load is known");
    control.line("its load is known");
    control.line("installed");
    let get = |path: &str| Client::new(face).send("GET", path, &bearer, b"").expect("it answers");
    let status = get("/v1/status").json();
    // (3 × 0.6 + 0.5 + 0.5) / 5 and (3 × 0.2 + 0.2 + 0.1) / 5.
    let load = |server: usize| status["servers"][server]["load"].as_f64().expect("it is known");
    assert!((load(0) - 0.56).abs() < 1e-9 && (load(1) - 0.18).abs() < 1e-9, "{status}");
    let metrics = get("/metrics").text();
    for expected in [
        "pointsman_control_readings_total{source=\"disk\",verdict=\"reported\"} 2",
        "pointsman_control_readings_total{source=\"disk\",verdict=\"absurd\"} 1",
        "pointsman_control_load_thousandths{server=\"192.0.2.1\"} 560",
        "pointsman_control_unknown_servers 0",
    ] {
        assert!(metrics.contains(expected), "{expected}:\n{metrics}");
    }
    let installed = "pointsman_control_rounds_total{outcome=\"installed\"} ";
    assert!(metrics.contains(installed) && !metrics.contains(&format!("{installed}0\n")), "{metrics}");
    let refused = Client::new(face).send("DELETE", "/v1/status", &bearer, b"").expect("it answers");
    assert_eq!((refused.status, &refused.json()["what"]), (405, &"/v1/status has no method DELETE".into()));
    assert_eq!(refused.header("allow"), Some("GET,HEAD"));
    // One resource that is used up is enough.
    assert_eq!(report("disk", "192.0.2.1", "{\"value\":0.95}", true), 204);
    control.line("installed");
    assert_eq!(world.probability(0, "europe"), 0.0);
    control.stop();
}

#[test]
fn one_round_is_made_beside_a_running_face() {
    let world = World::new();
    world.load("192.0.2.1", "0.2");
    world.load("192.0.2.2", "0.2");
    // Both have the same configuration, and with it the same address.
    let config = world.config(&format!("listen = \"{}\"\n", free_address()), &world.files());
    let mut control = Program::start(&["control", "--config", &config]);
    control.line("listening on http://");
    control.line("installed");
    assert_eq!(world.round(&config, &["--dry-run"], 0)["outcome"], "unchanged");
    let taken = Program::start(&["control", "--config", &config]).end();
    assert!(taken.status.code() == Some(1) && taken.stderr.contains("this port"), "{}", taken.stderr);
    control.signal(Signal::SIGHUP);
    control.line("nothing to reload");
    control.stop();
}

#[test]
fn what_is_wrong_is_listed_at_once() {
    let world = World::new();
    let config =
        world.config("fill = 2\n", &world.files().replace("threshold = 0.5", "threshold = \"much\""));
    for more in [&["--check"][..], &["--once"]] {
        let ended = Program::start(&[&["control", "--config", &config], more].concat()).end();
        assert_eq!(ended.status.code(), Some(2));
        let lines: Vec<&str> = ended.stderr.lines().collect();
        assert!(lines[0].starts_with(&format!("{config}:5:8: fill is the number 2")), "{}", ended.stderr);
        assert!(lines[1].starts_with(&format!("{config}:10:13: threshold is \"much\"")), "{}", ended.stderr);
    }
    // The same as events, where log lines are objects.
    let text = std::fs::read_to_string(&config).expect("it is ours");
    let config = world.folder.write("json.toml", text.replace("fill = 2", "fill = 2\nlog = \"json\""));
    let ended = Program::start(&["control", "--config", &config]).end();
    assert_eq!(ended.status.code(), Some(2));
    let events: Vec<Value> = ended
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}")))
        .collect();
    assert_eq!(events.len(), 2, "{}", ended.stderr);
    for (event, fault) in events.iter().zip(["5:8: fill is", "11:13: threshold is"]) {
        let message = event["fields"]["message"].as_str().unwrap_or_default();
        assert!(event["level"] == "ERROR" && message.starts_with(&format!("{config}:{fault}")), "{event}");
    }
    let template = Program::start(&["control", "--template"]).end();
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/control.template.toml"));
    assert_eq!(template.stdout, text.expect("it is there"));
    assert!(!Command::new(program::path()).arg("control").output().expect("it starts").status.success());
}

/// A web server that says what it is told of each server: JSON, or metrics.
struct Site {
    address: SocketAddr,
    says: Arc<Mutex<Vec<(String, String)>>>,
}

impl Site {
    fn start() -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound");
        let says = Arc::<Mutex<Vec<(String, String)>>>::default();
        let site = Site { address, says: says.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                if reader.read_line(&mut line).is_err() {
                    continue;
                }
                let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                while line.trim_end() != ""
                    && reader
                        .read_line({
                            line.clear();
                            &mut line
                        })
                        .is_ok_and(|n| n > 0)
                {}
                let body = says
                    .lock()
                    .expect("nobody panics")
                    .iter()
                    .find(|(of, _)| *of == path)
                    .map(|(_, b)| b.clone());
                let (status, body) = body.map_or(("404 Not Found", String::new()), |body| ("200 OK", body));
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                // A control process that has ended does not read it.
                let _ = reader.get_mut().write_all(answer.as_bytes());
                let _ = reader.read(&mut [0]);
            }
        });
        site
    }

    fn say(&self, address: &str, json: &str, metrics: &str) {
        let mut says = self.says.lock().expect("nobody panics");
        says.push((format!("/json?of={address}"), json.into()));
        says.push((format!("/metrics?of={address}"), metrics.into()));
    }
}
