//! Root binds the ports and is given away before anything is written.

use std::os::unix::fs::{MetadataExt, chown};

use nix::unistd::{Uid, User};
use tests::folder::Folder;
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
