//! Root binds the ports and is given away before anything is written.

use std::os::unix::fs::{MetadataExt, chown};

use nix::unistd::{Uid, User};
use tests::balancing::{Balancing, Scripted, answer};
use tests::folder::Folder;
use tests::program::Program;
use tests::query::Question;
use tests::serving::Serving;

/// A user to become, where we may.
fn nobody() -> Option<User> {
    if !Uid::effective().is_root() {
        tests::data::skip("only root can become another user");
        return None;
    }
    Some(User::from_name("nobody").expect("users can be looked up").expect("there is a nobody"))
}

/// The number of the user that a program runs as.
fn user_of(program: &Program) -> u32 {
    std::fs::metadata(format!("/proc/{}", program.pid())).expect("it runs").uid()
}

#[test]
fn a_server_that_gives_root_away_can_write_its_store() {
    let Some(nobody) = nobody() else { return };
    let folder = Folder::new();
    chown(folder.path(), Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).expect("root may do so");
    let zone = folder.write("example.com.zone", "$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n");
    let server = Serving::start(&folder, &["--user", "nobody", "--zone", &zone]);
    assert_eq!(user_of(&server.program), nobody.uid.as_raw());
    let policy = r#"{"names":["www.example.com"],"servers":[{"address":"192.0.2.1"}]}"#;
    server.call("PUT", "/v1/policies/www.example.com", policy);
    let store = std::fs::metadata(folder.path().join("pointsman.db")).expect("the store is there");
    assert_eq!((store.uid(), store.mode() & 0o777), (nobody.uid.as_raw(), 0o600));
    assert_eq!(Question::new("www.example.com", "A").udp(server.dns()).data(), ["192.0.2.1"]);
}

#[test]
fn a_check_looks_with_the_rights_of_the_user() {
    let Some(nobody) = nobody() else { return };
    let folder = Folder::new();
    let zone =
        folder.write_secret("example.com.zone", "$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n");
    let store = format!("sqlite:{}", folder.at("pointsman.db"));
    let check = || {
        let arguments = ["serve", "--check", "--store", &store, "--user", "nobody", "--zone", &zone];
        let ended = Program::start(&arguments).end();
        (ended.status.code(), ended.stderr)
    };
    let (code, said) = check();
    assert_eq!(code, Some(2), "{said}");
    for part in [
        format!("{zone}: it cannot be read: Permission denied"),
        format!("store: the store needs to read and write {}: Permission denied", folder.path().display()),
    ] {
        assert!(said.contains(&part), "no '{part}' in: {said}");
    }
    for path in [folder.path(), zone.as_ref()] {
        chown(path, Some(nobody.uid.as_raw()), None).expect("root may do so");
    }
    let (code, said) = check();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("example.com."), "the zone that the file became is told: {said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 1, "nothing is made");
}

#[test]
fn a_balancer_gives_root_away_and_balances() {
    let Some(nobody) = nobody() else { return };
    let back_end = Scripted::start(|query, _, socket, from| {
        socket.send_to(&answer(query, 5), from).expect("loopback sends");
    });
    let balancing = Balancing::start(&[back_end.address], &["--user", "nobody"]);
    assert_eq!(user_of(&balancing.program), nobody.uid.as_raw());
    assert_eq!(Question::new("www.example", "A").udp(balancing.dns).rcode, "REFUSED");
    balancing.stop();
    let refused =
        Program::start(&["balance", "--backend", "127.0.0.1:9", "--user", "nobody-of-that-name"]).end();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("there is no such user"), "{}", refused.stderr);
}

#[test]
fn what_names_addresses_writes_as_the_user_that_it_becomes() {
    let Some(nobody) = nobody() else { return };
    let folder = Folder::new();
    let snapshot = folder.at("names.cache");
    let arguments = ["reverse", "--upstream", "127.0.0.1:9", "--resp", "127.0.0.1:0", "--user", "nobody"];
    let arguments = [&arguments[..], &["--snapshot", &snapshot]].concat();
    for more in [&["--check"][..], &[]] {
        let refused = Program::start(&[&arguments[..], more].concat()).end();
        assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("it cannot be written: Permission denied"), "{}", refused.stderr);
    }
    chown(folder.path(), Some(nobody.uid.as_raw()), None).expect("root may do so");
    let checked = Program::start(&[&arguments[..], &["--check"]].concat()).end();
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    let mut service = Program::start(&arguments);
    service.line("ready");
    assert_eq!(user_of(&service), nobody.uid.as_raw());
    service.stop();
    assert_eq!(std::fs::metadata(&snapshot).expect("it is written at the end").uid(), nobody.uid.as_raw());
}
