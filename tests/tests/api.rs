//! The API against its own OpenAPI document, by schemathesis.

use std::process::Command;

use tests::folder::Folder;
use tests::program::Program;
use tests::query::Question;
use tests::serving::Serving;

const ZONE: &str = "\
$TTL 300
@ SOA ns hm 1 7200 600 86400 60
@ NS ns
ns A 192.0.2.53
";

/// Requests for each operation in each phase; a run takes some seconds.
const EXAMPLES: &str = "20";

/// The one check that is left out: a document of types cannot say which zone has a SOA record and which region
/// exists, so that much of what it allows is refused with 422.
const EXCLUDED: &str = "positive_data_acceptance";

/// A precondition that fails is told before the body is read: whoever holds an old version is not told what else is
/// wrong with it.
const REJECTIONS: &str = "\
[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 412, 415, 422, 428, 429, '5xx']
";

#[test]
fn the_api_keeps_to_its_document() {
    let Some(python) = std::env::var_os("POINTSMAN_PYTHON") else {
        tests::data::skip(
            "POINTSMAN_PYTHON names no Python with schemathesis (cargo xtask test --install makes one)",
        );
        return;
    };
    let folder = Folder::new();
    let zone = folder.write("example.com.zone", ZONE);
    let partition = folder.write("partition.csv", "192.0.2.0/24,europe\n2001:db8::/32,asia\n");
    let mut server = Serving::start(&folder, &["--zone", &zone, "--partition", &partition]);
    let policy = r#"{"servers":[{"address":"192.0.2.1","regions":{"europe":{"probability":1}}}]}"#;
    server.call("PUT", "/v1/policies/www.example.com", policy);

    let scratch = Folder::new();
    scratch.write("schemathesis.toml", REJECTIONS);
    let mut command = Command::new(python);
    command.args(["-m", "schemathesis.cli", "run", &format!("http://{}/v1/openapi.json", server.api)]);
    command.args(["--checks", "all", "--exclude-checks", EXCLUDED, "--max-examples", EXAMPLES]);
    command.args(["--seed", "1", "--workers", "1", "--request-timeout", "30"]);
    // It leaves files where it stands.
    command.current_dir(scratch.path());
    let ended = Program::spawn(command).end();
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("Tested: "), "{}", ended.stdout);

    assert!(server.program.is_running());
    // Whatever it did to the zones, they are answered from.
    let rcode = Question::new("example.com", "SOA").udp(server.dns()).rcode;
    assert!(["NOERROR", "REFUSED"].contains(&rcode.as_str()), "{rcode}");
    let ended = server.stop();
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}
