//! `kill -9` at any moment: every acknowledged commit is there, and nothing is there by half.
//!
//! The test starts its own binary again as the process to be killed.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Folder, open, policy, region, url, zone};
use crate::embedded::Embedded as Store;
use crate::{Change, Contents, OpenError};

/// Names the store for the process that is to be killed.
const STORE: &str = "POINTSMAN_STORE_TO_COMMIT_TO";

/// How often a process is killed.
const KILLS: u64 = 25;

/// What the process to be killed prints before the number of a generation that the store acknowledged.
const ACKNOWLEDGED: &str = "acknowledged ";

#[tokio::test]
async fn a_killed_process_loses_nothing_that_was_acknowledged() {
    if let Some(path) = env::var_os(STORE) {
        return commit_until_killed(Path::new(&path)).await;
    }
    let folder = Folder::new();
    let mut model = Contents::default();
    for kill in 0..KILLS {
        let mut child = Command::new(env::current_exe().expect("the test's own path"))
            .args(["--exact", "tests::kill::a_killed_process_loses_nothing_that_was_acknowledged"])
            .args(["--nocapture", "--test-threads=1"])
            .env(STORE, folder.database())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the test's own binary starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        // Anywhere from before the first commit to after several.
        let wanted = kill * 7 % 13;
        let mut acknowledged = 0;
        let mut seen = 0;
        for line in out.lines() {
            if let Some(number) = line.expect("text").strip_prefix(ACKNOWLEDGED) {
                acknowledged = number.parse().expect("a generation");
                if seen == wanted {
                    if seen == 0 {
                        // While it runs nobody else gets in.
                        let second = Store::open(&folder.url());
                        assert!(
                            matches!(second, Err(OpenError::InUse { pid, .. }) if pid == Some(child.id())),
                            "{second:?}"
                        );
                    }
                    child.kill().expect("it runs");
                }
                seen += 1;
            }
        }
        let status = child.wait().expect("it was started");
        assert_eq!(status.signal(), Some(9), "kill {kill}: {status}");

        let store = open(&folder);
        let contents = store.load().await.expect("loads");
        assert!(
            contents.generation >= acknowledged && acknowledged > model.generation,
            "kill {kill}: acknowledged {acknowledged}, found {}, before {}",
            contents.generation,
            model.generation
        );
        while model.generation < contents.generation {
            step(&mut model);
        }
        assert_eq!(contents, model, "kill {kill}");
        assert_eq!(store.check().await, Ok(()));
        store.close().await.expect("closes");
    }
}

async fn commit_until_killed(path: &Path) {
    let store = Store::open(&url(path)).expect("opens after a kill");
    let mut generation = store.load().await.expect("loads").generation;
    let mut out = std::io::stdout();
    loop {
        generation = store.commit(generation, &changes(generation)).await.expect("commits");
        writeln!(out, "{ACKNOWLEDGED}{generation}").expect("the parent reads");
        store.tidy().await.expect("tidies");
    }
}

/// The changes of the commit that is based on a generation: small ones, every third nothing but new entries of a
/// policy, and now and then one of many pages, with values that belong together.
fn changes(based_on: u64) -> Vec<Change> {
    let number = u32::try_from(based_on).expect("a short test") + 1;
    let is_entries = |number: u32| number.is_multiple_of(3);
    let last = if is_entries(number) { number - 1 } else { number };
    let name = format!("r{last}");
    let key = format!("p{}.", last % 5);
    let mut policy = policy(&[&key], &[&name]);
    policy.servers[0].default.ttl = Some(number);
    policy.servers[0].regions.values_mut().for_each(|entry| entry.ttl = Some(number));
    let put = Change::PutPolicy(policy.into());
    if is_entries(number) {
        return vec![put];
    }
    let mut changes = vec![region(number, &name), put];
    if let Some(id) = (1..number).rev().find(|number| !is_entries(*number)) {
        changes.push(Change::RemoveRegion { id });
    }
    let lines = if based_on.is_multiple_of(4) { 20_000 } else { 1 };
    let text: String = (0..lines).map(|i| format!("h{i} TXT {}\n", i * 7_919 % 9_973 * based_on)).collect();
    changes.push(zone("example.", &text));
    changes
}

/// The model's side of [`changes`].
fn step(model: &mut Contents) {
    for change in changes(model.generation) {
        match change {
            Change::AddRegion { id, name } => {
                model.regions.insert(id, name);
                model.next_region_id = id + 1;
            }
            Change::RemoveRegion { id } => {
                let name = model.regions.remove(&id).expect("added by the step before");
                for server in model.policies.iter_mut().flat_map(|policy| &mut policy.servers) {
                    server.regions.remove(&name);
                }
            }
            Change::PutPolicy(policy) => {
                model.policies.retain(|other| other.names != policy.names);
                model.policies.push(std::sync::Arc::unwrap_or_clone(policy));
                model.policies.sort_by(|a, b| a.names.cmp(&b.names));
            }
            Change::PutZone { origin, text } => {
                model.zones.insert(origin, text);
            }
            other => unreachable!("{other:?} is not among the changes"),
        }
    }
    model.generation += 1;
}
