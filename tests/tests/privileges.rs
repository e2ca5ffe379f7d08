//! Root binds the ports and is given away before anything is written.

use std::os::unix::fs::{MetadataExt, chown};

use nix::unistd::{Uid, User};
use tests::folder::Folder;
use tests::program::Program;
use tests::query::Question;
use tests::serving::Serving;

#[test]
fn a_server_that_gives_root_away_can_write_its_store() {
    if !Uid::effective().is_root() {
        tests::data::skip("only root can become another user");
        return;
    }
    let folder = Folder::new();
    let nobody = User::from_name("nobody").expect("users can be looked up").expect("there is a nobody");
    chown(folder.path(), Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).expect("root may do so");
    let zone = folder.write("example.com.zone", "$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n");
    let server = Serving::start(&folder, &["--user", "nobody", "--zone", &zone]);
    let process = format!("/proc/{}", server.program.pid());
    assert_eq!(std::fs::metadata(process).expect("it runs").uid(), nobody.uid.as_raw());
    let policy = r#"{"names":["www.example.com"],"servers":[{"address":"192.0.2.1"}]}"#;
    server.call("PUT", "/v1/policies/www.example.com", policy);
    let store = std::fs::metadata(folder.path().join("pointsman.db")).expect("the store is there");
    assert_eq!((store.uid(), store.mode() & 0o777), (nobody.uid.as_raw(), 0o600));
    assert_eq!(Question::new("www.example.com", "A").udp(server.dns()).data(), ["192.0.2.1"]);
}

#[test]
fn a_check_looks_with_the_rights_of_the_user() {
    if !Uid::effective().is_root() {
        tests::data::skip("only root can become another user");
        return;
    }
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
    let nobody = User::from_name("nobody").expect("users can be looked up").expect("there is a nobody");
    for path in [folder.path(), zone.as_ref()] {
        chown(path, Some(nobody.uid.as_raw()), None).expect("root may do so");
    }
    let (code, said) = check();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("example.com."), "the zone that the file became is told: {said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 1, "nothing is made");
}
