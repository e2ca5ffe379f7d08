//! Names that are aliases of others by policy, as operators and clients see them.

use nix::sys::signal::Signal;
use serde_json::json;
use tests::folder::Folder;
use tests::query::Question;
use tests::serving::Serving;

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
own A 192.0.2.80
own TXT here
";

const POLICY: &str = r#"{
  "names": ["www.example.com"],
  "servers": [
    {"cname": "WWW.Large-CDN.net", "default": {"probability": 1, "ttl": 60}},
    {"cname": "own.example.com.", "default": {"probability": 0}, "regions": {"asia": {"ttl": 20}}}
  ]
}"#;

fn arguments(folder: &Folder) -> Vec<String> {
    let files = [
        ("--zone", folder.write("example.com.zone", ZONE)),
        ("--partition", folder.write("partition.csv", "10.1.0.0/16,asia\n")),
        ("--policy", folder.write("www.json", POLICY)),
    ];
    files.into_iter().flat_map(|(option, path)| [option.to_owned(), path]).collect()
}

fn ask(server: &Serving, rtype: &str, client: &str) -> Vec<String> {
    let question = Question::new("www.example.com", rtype).subnet(client);
    let answer = question.udp(server.dns());
    assert_eq!(answer.answer, question.tcp(server.dns()).answer);
    answer.answer
}

#[test]
fn an_alias_is_steered_told_of_and_kept() {
    let folder = Folder::new();
    let arguments = arguments(&folder);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = Serving::start(&folder, &arguments);
    let cdn = ["www.example.com. 60 in cname www.large-cdn.net."];
    let own = ["own.example.com. 300 in a 192.0.2.80", "www.example.com. 20 in cname own.example.com."];
    assert_eq!(ask(&server, "A", "192.0.2.0/24"), cdn);
    assert_eq!(ask(&server, "MX", "192.0.2.0/24"), cdn);
    assert_eq!(ask(&server, "A", "10.1.2.0/24"), own);

    let question = json!({"name": "www.example.com", "type": "A", "client": "10.1.2.3"}).to_string();
    let told = server.call("POST", "/v1/explain", &question).json();
    assert_eq!(told["answer"], json!(["own.example.com."]), "{told}");
    assert_eq!(told["probabilities"], json!({"own.example.com.": 1.0}), "{told}");
    assert_eq!(
        (&told["row"][1]["cname"], &told["row"][1]["address"]),
        (&json!("own.example.com."), &json!(null))
    );
    let metrics = server.call("GET", "/metrics", "").text();
    for (region, server, count) in
        [("unclassified", "www.large-cdn.net.", 4), ("asia", "own.example.com.", 2)]
    {
        let line = format!(
            "pointsman_routed_answers_total{{policy=\"www.example.com.\",region=\"{region}\",server=\"{server}\"}} {count}"
        );
        assert!(metrics.lines().any(|told| told == line), "{line}: {metrics}");
    }

    // An operator's word names a server as people write it, and outlives a crash.
    server.call("PUT", "/v1/servers/Own.example.com/state", r#"{"up":false}"#);
    assert_eq!(ask(&server, "A", "10.1.2.0/24"), ["www.example.com. 360 in cname www.large-cdn.net."]);
    server.program.signal(Signal::SIGKILL);
    server.program.end();
    let server = Serving::start::<&str>(&folder, &[]);
    assert_eq!(ask(&server, "A", "10.1.2.0/24"), ["www.example.com. 360 in cname www.large-cdn.net."]);
    let states = server.call("GET", "/v1/servers", "").json();
    let expected =
        json!([{"cname": "own.example.com.", "up": false}, {"cname": "www.large-cdn.net.", "up": true}]);
    assert_eq!(states, expected);
    server.call("PUT", "/v1/servers/own.example.com./state", r#"{"up":true}"#);
    assert_eq!(ask(&server, "A", "10.1.2.0/24"), own);
}
