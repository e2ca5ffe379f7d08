//! Where partitions come from: stacked files, numbers written back, tables of routes, and files that are damaged.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::folder::Folder;
use tests::query::Question;
use tests::serving::Serving;
use tests::{data, program};

const ZONE: &str = "$TTL 300\n@ SOA ns hm 1 7200 600 86400 60\n@ NS ns\nns A 192.0.2.53\n";

fn region(server: &Serving, address: &str) -> Value {
    let path = format!("/v1/partitions/default/lookup?address={address}");
    server.call("GET", &path, "").json()["region"].clone()
}

fn state(server: &Serving) -> Value {
    server.call("GET", "/v1/status", "").json()["partitions"][0].clone()
}

/// Asks for a reload, and waits for a line that says what became of it.
fn reload(server: &mut Serving, said: &str) -> String {
    server.program.signal(Signal::SIGHUP);
    server.program.line(said)
}

#[test]
fn stacked_sources_and_the_numbers_of_regions() {
    let Some(database) = data::file("routing/GeoIP2-Country-Test.mmdb") else { return };
    let folder = Folder::new();
    let own = folder.write("own.csv", "81.2.69.128/26,ours\n10.0.0.0/8,ours\n10.9.0.0/16,-\n");
    let last = folder.write("last.csv", "0.0.0.0/0,rest\n");
    let codes = folder.write("codes.csv", "GB,europe\nSE,europe\nUS,america\n");
    let text = format!(
        "version = \"v1\"\n[[partition]]\ncsv = \"{own}\"\n[[partition]]\nmmdb = \"{}\"\nregions = \"{codes}\"\n\
         [[partition]]\ncsv = \"{last}\"\n",
        database.display()
    );
    let config = folder.write("p.toml", &text);
    let mut server = Serving::start(&folder, &["--config", &config]);
    for (address, expected) in [
        // The first that has a region decides, also where a later one has a longer prefix.
        ("81.2.69.142", "ours"),
        ("2.125.160.217", "europe"),
        ("10.8.0.1", "ours"),
        ("10.9.0.1", "rest"),
        ("216.160.83.56", "america"),
        ("203.0.113.1", "rest"),
    ] {
        assert_eq!(region(&server, address), expected, "{address}");
    }
    assert_eq!(state(&server)["sources"], serde_json::json!(["csv", "mmdb", "csv"]));
    let ids = format!("{codes}.ids");
    let expected = "# The numbers of the regions, written by pointsman.\nregion,id\namerica,3\neurope,2\n";
    assert_eq!(fs::read_to_string(&ids).expect("it was written"), expected);

    fs::write(&codes, "GB,europe\nUS,new\n").expect("the folder is ours");
    reload(&mut server, "reloaded");
    assert_eq!(region(&server, "216.160.83.56"), "new");
    assert!(fs::read_to_string(&ids).expect("it is there").ends_with("region,id\neurope,2\nnew,5\n"));

    // A database that is cut off: what serves goes on serving, and everybody is told.
    let cut = folder.write("cut.mmdb", "");
    let whole = fs::read(&database).expect("it is there");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("the folder is ours");
    fs::write(&config, text.replace(&database.display().to_string(), &cut)).expect("the folder is ours");
    let said = program::Program::start(&["serve", "--config", &config, "--check"]).end().stderr;
    assert!(said.contains("cut.mmdb") && said.contains("expected a MaxMind database"), "{said}");
    server.stop();
}

/// A server that steers by a table of routes.
fn by_table(folder: &Folder, table: &Path) -> Serving {
    let zone = folder.write("example.com.zone", ZONE);
    let policy = folder.write(
        "www.json",
        r#"{"names": ["www.example.com"], "order": "nearest", "servers": [
            {"address": "192.0.2.2"}, {"address": "145.0.0.1"}, {"address": "192.0.2.3"}]}"#,
    );
    let config = folder.write(
        "p.toml",
        format!(
            "version = \"v1\"\n[[partition]]\nmrt = \"{}\"\n\
             servers = [\"145.0.0.1\", \"192.0.2.2=AS7018\", \"192.0.2.3=1221\"]\n",
            table.display()
        ),
    );
    Serving::start(folder, &["--config", &config, "--zone", &zone, "--policy", &policy])
}

#[test]
fn clients_go_where_the_fewest_hops_lead() {
    let Some(packed) = data::file("routing/bview.20020722.2337.gz") else { return };
    let folder = Folder::new();
    let table = Path::new(&folder.at("bview.gz")).to_path_buf();
    let whole = fs::read(packed).expect("it is there");
    fs::write(&table, &whole).expect("the folder is ours");
    let mut server = by_table(&folder, &table);
    let near = |server: &Serving, client: &str| {
        let answer = Question::new("www.example.com", "A").subnet(client).udp(server.dns()).answer;
        answer[0].rsplit(' ').next().expect("an address").to_string()
    };
    for (client, expected) in
        [("145.0.0.0/24", "145.0.0.1"), ("12.0.0.0/24", "192.0.2.2"), ("139.130.0.0/24", "192.0.2.3")]
    {
        assert_eq!(near(&server, client), expected, "{client}");
    }
    // In no prefix of the table: as the policy lists them.
    assert_eq!(near(&server, "10.0.0.0/24"), "192.0.2.2");
    let counts = state(&server)["counts"].clone();
    assert_eq!((&counts["routes"], &counts["prefixes"]), (&Value::from(115_521), &Value::from(112_988)));

    // Cut off, and damaged in the middle: the table before goes on, and the record is named.
    let generation = server.call("GET", "/v1/status", "").json()["generation"].clone();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    for (bad, part) in [(&whole[..whole.len() / 2], "bview.gz: record "), (&damaged[..], "bview.gz: record ")]
    {
        fs::write(&table, bad).expect("the folder is ours");
        let line = reload(&mut server, part);
        assert!(
            line.contains(" of what is unpacked: ") && line.contains("expected a whole table in MRT"),
            "{line}"
        );
        server.program.line("not reloaded; the last generation goes on");
        assert_eq!(near(&server, "145.0.0.0/24"), "145.0.0.1");
        let state = state(&server);
        assert_eq!((&state["ok"], &state["counts"]), (&Value::from(false), &counts));
        assert!(state["message"].as_str().is_some_and(|message| message.contains("record ")), "{state}");
        let metrics = server.call("GET", "/metrics", "").text();
        assert!(metrics.contains("pointsman_partition_ok{partition=\"default\"} 0"), "{metrics}");
    }
    assert_eq!(server.call("GET", "/v1/status", "").json()["generation"], generation);
    fs::write(&table, &whole).expect("the folder is ours");
    reload(&mut server, "reloaded");
    assert_eq!(state(&server)["ok"], true);
}

#[test]
fn a_map_that_is_pushed_serves_or_changes_nothing() {
    let folder = Folder::new();
    let server = Serving::start::<&str>(&folder, &[]);
    server.call("POST", "/v1/regions", r#"{"name": "here"}"#);
    server.call("PUT", "/v1/partitions/default", "@here,192.0.2.1,1\n10.0.0.0/8,here\n");
    assert_eq!(region(&server, "10.1.2.3"), "here");
    let wrong = "@here,nowhere,1\n10.0.0.0/8,there\n192.0.2.1/24,here\n";
    let refused = server.client().call("PUT", "/v1/partitions/default", wrong);
    assert_eq!(refused.status, 422, "{}", refused.text());
    let faults = refused.text();
    for part in ["not an address: 'nowhere'", "unknown region 'there'", "bits are set behind"] {
        assert!(faults.contains(part), "{faults}");
    }
    assert_eq!(region(&server, "10.1.2.3"), "here");
}
