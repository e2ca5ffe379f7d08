//! Random commits against a plain model: what is loaded is what the model holds.

use std::cell::Cell;

use api::{Entry, Order, Policy, Server, WhenAllDown};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngSeed, TestRunner};

use tests::database::{Database, Kind};

use super::suite::Ground;
use crate::text::with_owners;
use crate::{Change, CommitError, Contents};

/// Few of each, so that they meet.
const NAMES: [&str; 5] = ["a.", "b.", "c.a.", "*.b.", "Upper."];
const REGIONS: [&str; 4] = ["europe", "asia", "Asia", "Großraum Köln"];
const SERVERS: [&str; 4] = [
    "192.0.2.1",
    "2001:db8::1",
    "::ffff:192.0.2.1",
    r"a-name-that-is-longer-than-any-address.of\.a\032content.delivery.network.example.",
];

#[test]
fn random_commits_leave_what_the_model_holds() {
    leave_what_the_model_holds(48, 50, Ground::file);
}

#[cfg(feature = "postgres")]
#[test]
fn random_commits_leave_what_the_model_holds_in_postgresql() {
    let database = Database::start(Kind::Postgres);
    leave_what_the_model_holds(16, 10, || Ground::of(&database));
}

#[cfg(feature = "mysql")]
#[test]
fn random_commits_leave_what_the_model_holds_in_mariadb() {
    let database = Database::start(Kind::Mariadb);
    leave_what_the_model_holds(16, 10, || Ground::of(&database));
}

/// So many cases, of which at least so many commits are accepted, and as many refused.
fn leave_what_the_model_holds(cases: u32, least: u32, ground: impl Fn() -> Ground) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let config = ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    // Each step: the changes of a commit, and whether the store is opened anew after it.
    let steps = vec((vec(change(), 0..6), prop::bool::weighted(0.1)), 1..20);
    let accepted = Cell::new(0);
    let refused = Cell::new(0);
    let result = TestRunner::new(config).run(&steps, |steps| {
        runtime.block_on(async {
            let ground = ground();
            let mut store = ground.open().await;
            let mut model = Contents::default();
            for (changes, reopen) in steps {
                let result = store.commit(model.generation, &changes).await;
                match commit(&model, &changes) {
                    Ok(next) => {
                        prop_assert_eq!(result, Ok(next.generation), "{:?}", changes);
                        model = next;
                        accepted.set(accepted.get() + 1);
                    }
                    Err(index) => {
                        prop_assert!(
                            matches!(result, Err(CommitError::Refused { change, .. }) if change == index),
                            "{:?} where change {} should be refused: {:?}",
                            result,
                            index,
                            changes
                        );
                        refused.set(refused.get() + 1);
                    }
                }
                if reopen {
                    store.close().await.expect("closes");
                    store = ground.open().await;
                }
                let loaded = store.load().await.map(ordered);
                prop_assert_eq!(loaded, Ok(ordered(model.clone())));
            }
            Ok(())
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let (accepted, refused) = (accepted.get(), refused.get());
    assert!(
        accepted > least && refused > least,
        "{accepted} accepted and {refused} refused is too one-sided"
    );
}

/// The same with the lines of zones by owner: those of owners that were changed may stand anywhere.
fn ordered(mut contents: Contents) -> Contents {
    for text in contents.zones.values_mut() {
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.sort_by_key(|line| line.split(' ').next());
        *text = lines.concat();
    }
    contents
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => (name(), text()).prop_map(|(origin, text)| Change::PutZone { origin, text }),
        2 => (word(&NAMES[..3]), btree_map(word(&NAMES[..4]), 0..3_usize, 0..3)).prop_map(|(origin, owners)| {
            let lines = |(owner, count): (String, usize)| (owner.clone(), format!("{owner} x\n").repeat(count));
            Change::ChangeZone { origin, owners: owners.into_iter().map(lines).collect() }
        }),
        1 => name().prop_map(|origin| Change::DeleteZone { origin }),
        1 => (0..12_u32, word(&REGIONS)).prop_map(|(id, name)| Change::AddRegion { id, name }),
        1 => (0..12_u32).prop_map(|id| Change::RemoveRegion { id }),
        1 => (word(&REGIONS), text()).prop_map(|(name, text)| Change::PutPartition { name, text }),
        1 => word(&REGIONS).prop_map(|name| Change::DeletePartition { name }),
        2 => policy().prop_map(|policy| Change::PutPolicy(policy.into())),
        2 => rewritten().prop_map(|policy| Change::PutPolicy(policy.into())),
        1 => name().prop_map(|key| Change::DeletePolicy { key }),
        1 => (word(&SERVERS), any::<bool>())
            .prop_map(|(a, up)| Change::SetServer { server: a.parse().expect("an address"), up }),
        1 => (word(&NAMES), text()).prop_map(|(path, digest)| Change::Imported { path, digest }),
        1 => word(&NAMES).prop_map(|path| Change::ForgetImport { path }),
    ]
}

/// Any text that all databases can hold: PostgreSQL has no character 0.
fn text() -> impl Strategy<Value = String> {
    "[^\\x00\n]{0,50}"
}

fn entry() -> impl Strategy<Value = Entry> {
    let probability = option::of(prop_oneof![
        20 => 0.0..1e300_f64,
        1 => select(vec![0.0, 1.0, f64::MIN_POSITIVE, f64::MAX, -1.0, f64::NAN, f64::INFINITY]),
    ]);
    let ttl = option::of(prop_oneof![20 => 0..=0x7fff_ffff_u32, 1 => any::<u32>()]);
    (probability, ttl).prop_map(|(probability, ttl)| Entry { probability, ttl })
}

/// A policy of which one differs from another in little but its entries.
fn rewritten() -> impl Strategy<Value = Policy> {
    (entry(), entry(), btree_map(word(&REGIONS[..1]), entry(), 0..2)).prop_map(|(first, second, regions)| {
        let server = |address: &str, default, regions| Server {
            target: address.parse().expect("an address or a name"),
            probe: None,
            default,
            regions,
        };
        Policy {
            answers: 1,
            order: Order::Weighted,
            when_all_down: WhenAllDown::Answer,
            partition: "default".into(),
            names: vec![NAMES[0].into()],
            servers: vec![server(SERVERS[0], first, regions), server(SERVERS[1], second, Default::default())],
        }
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let probe = option::of(word(&["web", "mail"]));
    let server = (word(&SERVERS), probe, entry(), btree_map(word(&REGIONS), entry(), 0..2)).prop_map(
        |(address, probe, default, regions)| Server {
            target: address.parse().expect("an address or a name"),
            probe,
            default,
            regions,
        },
    );
    let order = select(vec![Order::Weighted, Order::Fixed, Order::Rotate, Order::Nearest]);
    let when = select(vec![WhenAllDown::Answer, WhenAllDown::Empty]);
    (any::<u16>(), order, when, word(&REGIONS), vec(name(), 0..3), vec(server, 0..3)).prop_map(
        |(answers, order, when_all_down, partition, names, servers)| Policy {
            answers,
            order,
            when_all_down,
            partition,
            names,
            servers,
        },
    )
}

/// A name; the last, which cannot be stored, seldom.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![30 => word(&NAMES[..4]), 1 => word(&NAMES[4..])]
}

fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(words).prop_map(str::to_owned)
}

/// What `contents` become, or the first change that contradicts them.
fn commit(contents: &Contents, changes: &[Change]) -> Result<Contents, usize> {
    let mut next = contents.clone();
    for (index, change) in changes.iter().enumerate() {
        if !apply(&mut next, change) {
            return Err(index);
        }
    }
    next.policies.sort_by(|a, b| a.names[0].cmp(&b.names[0]));
    next.generation += 1;
    Ok(next)
}

fn apply(contents: &mut Contents, change: &Change) -> bool {
    let storable = |name: &String| !name.starts_with('U');
    match change.clone() {
        Change::PutZone { origin, text } => {
            let accepted = storable(&origin);
            contents.zones.insert(origin, text);
            accepted
        }
        Change::ChangeZone { origin, owners } => match contents.zones.get_mut(&origin) {
            Some(text) => {
                *text = with_owners(text, &owners);
                true
            }
            None => false,
        },
        Change::DeleteZone { origin } => contents.zones.remove(&origin).is_some(),
        Change::AddRegion { id, name } => {
            let accepted =
                id >= contents.next_region_id && !contents.regions.values().any(|other| *other == name);
            contents.regions.insert(id, name);
            contents.next_region_id = id + 1;
            accepted
        }
        Change::RemoveRegion { id } => {
            let Some(name) = contents.regions.remove(&id) else { return false };
            let servers = contents.policies.iter_mut().flat_map(|policy| &mut policy.servers);
            servers.for_each(|server| _ = server.regions.remove(&name));
            true
        }
        Change::PutPartition { name, text } => {
            contents.partitions.insert(name, text);
            true
        }
        Change::DeletePartition { name } => contents.partitions.remove(&name).is_some(),
        Change::PutPolicy(policy) => {
            let Some(key) = policy.names.first() else { return false };
            contents.policies.retain(|other| other.names[0] != *key);
            let taken: Vec<&String> = contents.policies.iter().flat_map(|other| &other.names).collect();
            let names_fit = policy.names.iter().enumerate().all(|(i, name)| {
                storable(name) && !taken.contains(&name) && !policy.names[..i].contains(name)
            });
            let servers_fit = policy.servers.iter().enumerate().all(|(i, server)| {
                !policy.servers[..i].iter().any(|other| other.target == server.target)
                    && entry_fits(server.default)
                    && server.regions.iter().all(|(name, entry)| {
                        contents.regions.values().any(|region| region == name) && entry_fits(*entry)
                    })
            });
            contents.policies.push(std::sync::Arc::unwrap_or_clone(policy));
            names_fit && servers_fit
        }
        Change::DeletePolicy { key } => {
            let before = contents.policies.len();
            contents.policies.retain(|policy| policy.names[0] != key);
            contents.policies.len() < before
        }
        Change::SetServer { server: address, up } => {
            contents.servers.insert(address, up);
            true
        }
        Change::Imported { path, digest } => {
            contents.imports.insert(path, digest);
            true
        }
        Change::ForgetImport { path } => contents.imports.remove(&path).is_some(),
    }
}

fn entry_fits(entry: Entry) -> bool {
    entry.probability.is_none_or(|p| p >= 0.0 && p.is_finite())
        && entry.ttl.is_none_or(|t| t <= i32::MAX as u32)
}
