//! What holds for a store in any database: one suite, which runs on all three.

use std::collections::BTreeMap;
use std::future::Future;

use api::{Entry, Policy, Server, WhenAllDown};
use tests::database::{Database, Kind};

use super::{Folder, denied, direct, far, policy, refused, region, zone};
use crate::{Change, CommitError, Contents, Held, Store, Verdict};

/// A database that is a test's own.
pub(super) struct Ground {
    url: String,
    _folder: Option<Folder>,
}

impl Ground {
    /// A file that is not there yet.
    pub(super) fn file() -> Ground {
        let folder = Folder::new();
        Ground { url: folder.url(), _folder: Some(folder) }
    }

    /// An empty database of a server.
    pub(super) fn of(database: &Database) -> Ground {
        Ground { url: database.url(&database.empty()), _folder: None }
    }

    pub(super) async fn open(&self) -> Store {
        Store::open(&self.url).await.expect("opens")
    }
}

/// Runs each check on a file of its own, as a test of its own, and all of them on databases of one server of each kind,
/// which takes seconds to make.
macro_rules! suite {
    ($($check:ident),+ $(,)?) => {
        mod in_a_file {
            $(#[tokio::test]
            async fn $check() {
                super::$check(&super::Ground::file()).await;
            })+
        }

        async fn in_databases_of(kind: Kind) {
            let database = Database::start(kind);
            $(println!("{}", stringify!($check));
            $check(&Ground::of(&database)).await;)+
            // In a file a commit is made at once, and cannot be cancelled.
            a_cancelled_commit_happened_or_did_not(&Ground::of(&database)).await;
            direct::check(&database).await;
            far::check(&database).await;
            denied::check(&database).await;
        }
    };
}

suite!(
    verdicts_are_remembered_beside_the_generations,
    more_verdicts_than_one_statement_has_are_remembered,
    what_primaries_confirmed_holds_until_a_zone_is_put_anew,
    everything_is_there_after_reopening,
    what_is_stored_is_read_beside_who_has_it_open,
    a_commit_based_on_another_generation_conflicts,
    one_of_many_concurrent_commits_wins_each_generation,
    what_contradicts_the_store_is_refused_whole_and_told,
    a_policy_is_replaced_whole_and_found_by_its_first_name,
    a_policy_larger_than_one_statement_is_stored,
    entries_of_a_policy_are_replaced_again_and_again,
    a_removed_region_takes_its_entries_and_its_id_along,
);

#[cfg(feature = "postgres")]
#[tokio::test]
async fn in_postgresql() {
    in_databases_of(Kind::Postgres).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn in_mariadb() {
    in_databases_of(Kind::Mariadb).await;
}

async fn what_is_stored_is_read_beside_who_has_it_open(ground: &Ground) {
    let peek = async || Store::peek(&ground.url).await.expect("it is read");
    assert_eq!(peek().await, None, "there is none");
    let store = ground.open().await;
    assert_eq!(peek().await, Some(store.load().await.unwrap()));
    store.commit(0, &[zone("example.", "text"), region(1, "europe")]).await.unwrap();
    let contents = store.load().await.unwrap();
    assert_eq!(peek().await.as_ref(), Some(&contents));
    store.close().await.unwrap();
    assert_eq!(peek().await.as_ref(), Some(&contents));
    ground.open().await.close().await.unwrap();
}

async fn verdicts_are_remembered_beside_the_generations(ground: &Ground) {
    let store = ground.open().await;
    store.commit(0, &[zone("example.", "text")]).await.unwrap();
    let held_of = |held: Option<(bool, u64)>| held.map(|(failing, since)| Held { failing, since });
    let verdict = |last: u8, probe: &str, held| Verdict {
        server: [192, 0, 2, last].into(),
        probe: probe.into(),
        held: held_of(held),
    };
    let many: Vec<Verdict> = (0..=255).map(|last| verdict(last, "many", Some((true, 1)))).collect();
    for (verdicts, server, probe, expected) in [
        (
            vec![verdict(1, "web", Some((true, 7))), verdict(1, "mail", Some((false, 8)))],
            1,
            "web",
            Some((true, 7)),
        ),
        (vec![verdict(1, "web", Some((false, 9)))], 1, "web", Some((false, 9))),
        (vec![verdict(1, "web", None), verdict(2, "web", None)], 1, "web", None),
        (many, 255, "many", Some((true, 1))),
    ] {
        store.remember(&verdicts).await.unwrap();
        let contents = store.load().await.unwrap();
        let key = ([192, 0, 2, server].into(), probe.to_string());
        assert_eq!((contents.generation, contents.health.get(&key).copied()), (1, held_of(expected)));
        assert_eq!(
            contents.health[&([192, 0, 2, 1].into(), "mail".to_string())],
            Held { failing: false, since: 8 }
        );
    }
    store.close().await.unwrap();
    assert_eq!(ground.open().await.load().await.unwrap().health.len(), 257);
}

async fn more_verdicts_than_one_statement_has_are_remembered(ground: &Ground) {
    let store = ground.open().await;
    let verdict = |number: u32, held| Verdict {
        server: [10, 0, (number >> 8) as u8, number as u8].into(),
        probe: "web".into(),
        held,
    };
    let held = |number: u32| Held { failing: number.is_multiple_of(3), since: u64::from(number) };
    let many: Vec<Verdict> = (0..1_200).map(|number| verdict(number, Some(held(number)))).collect();
    store.remember(&many).await.unwrap();
    let mut expected: BTreeMap<_, _> =
        (0..1_200).map(|number| ((verdict(number, None).server, "web".to_string()), held(number))).collect();
    assert_eq!(store.load().await.unwrap().health, expected);

    // One is forgotten, one changes, and of those that come twice the last holds.
    let mut others: Vec<Verdict> = (0..1_200).map(|number| verdict(number, Some(held(number)))).collect();
    others[0] = verdict(0, None);
    others[1] = verdict(1, Some(held(7)));
    others.insert(2, verdict(2, None));
    others.push(verdict(3, None));
    store.remember(&others).await.unwrap();
    expected.remove(&(verdict(0, None).server, "web".to_string()));
    expected.insert((verdict(1, None).server, "web".to_string()), held(7));
    expected.remove(&(verdict(3, None).server, "web".to_string()));
    assert_eq!(store.load().await.unwrap().health, expected);
}

async fn what_primaries_confirmed_holds_until_a_zone_is_put_anew(ground: &Ground) {
    let store = ground.open().await;
    let zones = ["a.", "b.", "c."].map(|origin| zone(origin, "text"));
    store.commit(0, &zones).await.unwrap();
    let times = |times: &[(&str, u64)]| -> BTreeMap<String, u64> {
        times.iter().map(|(origin, at)| ((*origin).to_owned(), *at)).collect()
    };
    store.confirm(&times(&[("a.", 7), ("b.", 8), ("c.", 9)])).await.unwrap();
    store.confirm(&times(&[("a.", 10)])).await.unwrap();
    store.confirm(&times(&[])).await.unwrap();
    assert_eq!(store.load().await.unwrap().confirmed, times(&[("a.", 10), ("b.", 8), ("c.", 9)]));
    let changes = [zone("b.", "other"), Change::DeleteZone { origin: "c.".into() }];
    assert_eq!(store.commit(1, &changes).await, Ok(2), "to confirm is no commit");
    store.close().await.unwrap();

    let store = ground.open().await;
    assert_eq!(store.load().await.unwrap().confirmed, times(&[("a.", 10)]));
    // More than one statement has.
    let many: BTreeMap<String, u64> = (0..1_200).map(|number| (format!("n{number}."), number)).collect();
    store.confirm(&many).await.unwrap();
    let mut expected = many;
    expected.insert("a.".into(), 10);
    assert_eq!(store.load().await.unwrap().confirmed, expected);
}

async fn everything_is_there_after_reopening(ground: &Ground) {
    let store = ground.open().await;
    let changes = [
        zone("example.com.", "@ SOA . . 1 2 3 4 5\n"),
        zone(".", ""),
        region(1, "europe"),
        region(2, "asia"),
        Change::PutPartition { name: "default".into(), text: "192.0.2.0/24,europe\n".into() },
        Change::PutPolicy(policy(&["www.example.com.", "*.example.com."], &["europe", "asia"]).into()),
        Change::SetServer { server: "192.0.2.1".parse().unwrap(), up: false },
        Change::Imported { path: "/etc/example.zone".into(), digest: "abc".into() },
    ];
    assert_eq!(store.commit(0, &changes).await, Ok(1));
    let expected = Contents {
        generation: 1,
        zones: [("example.com.", "@ SOA . . 1 2 3 4 5\n"), (".", "")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into(),
        regions: [(1, "europe".to_owned()), (2, "asia".to_owned())].into(),
        next_region_id: 3,
        partitions: [("default".to_owned(), "192.0.2.0/24,europe\n".to_owned())].into(),
        policies: vec![policy(&["www.example.com.", "*.example.com."], &["europe", "asia"])],
        servers: [("192.0.2.1".parse().unwrap(), false)].into(),
        health: BTreeMap::new(),
        confirmed: BTreeMap::new(),
        imports: [("/etc/example.zone".to_owned(), "abc".to_owned())].into(),
    };
    assert_eq!(store.load().await.as_ref(), Ok(&expected));
    store.close().await.unwrap();

    // Three times, so that migrations meet what they have left.
    for _ in 0..3 {
        let store = ground.open().await;
        assert_eq!(store.load().await.as_ref(), Ok(&expected));
        assert_eq!(store.check().await, Ok(()));
        store.close().await.unwrap();
    }
}

async fn a_commit_based_on_another_generation_conflicts(ground: &Ground) {
    let store = ground.open().await;
    let conflict = |current| Err(CommitError::Conflict { current });
    assert_eq!(store.commit(1, &[zone("a.", "")]).await, conflict(0));
    assert_eq!(store.commit(u64::MAX, &[zone("a.", "")]).await, conflict(0));
    assert_eq!(store.commit(0, &[zone("a.", "")]).await, Ok(1));
    assert_eq!(store.commit(0, &[zone("b.", "")]).await, conflict(1));
    assert_eq!(store.commit(1, &[]).await, Ok(2));
    let contents = store.load().await.unwrap();
    assert_eq!((contents.generation, contents.zones.len()), (2, 1));
}

async fn one_of_many_concurrent_commits_wins_each_generation(ground: &Ground) {
    let store = std::sync::Arc::new(ground.open().await);
    let tasks: Vec<_> = (0..20)
        .map(|i| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(0, &[zone(&format!("z{i}."), "")]).await })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(generation) => won += generation,
            Err(CommitError::Conflict { current: 1 }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(store.load().await.unwrap().zones.len(), 1);
}

async fn what_contradicts_the_store_is_refused_whole_and_told(ground: &Ground) {
    let store = ground.open().await;
    let held = [
        region(1, "europe"),
        region(2, "asia"),
        Change::RemoveRegion { id: 2 },
        zone("example.com.", "text"),
        Change::PutPolicy(policy(&["www.example.com.", "a.example.com."], &["europe"]).into()),
    ];
    store.commit(0, &held).await.unwrap();
    let before = store.load().await.unwrap();

    let with = |change: fn(&mut Policy)| {
        let mut policy = policy(&["new.example.com."], &["europe"]);
        change(&mut policy);
        Change::PutPolicy(policy.into())
    };
    for (change, words) in [
        (zone("Example.com.", ""), "zone_origin_is_absolute_and_lower_case"),
        (zone("example.com", ""), "zone_origin_is_absolute_and_lower_case"),
        (zone("", ""), "zone_origin_is_absolute_and_lower_case"),
        (Change::DeleteZone { origin: "other.".into() }, "there is no zone other."),
        (region(0, "none"), "region id 0 is or was in use; the next one is 3"),
        (region(2, "again"), "region id 2 is or was in use; the next one is 3"),
        (region(1 << 31, "far"), "region_id_is_from_1_to_2147483647"),
        (region(3, "europe"), "there already is a region 'europe'"),
        (region(3, ""), "region_name_has_1_to_255_characters"),
        (Change::RemoveRegion { id: 2 }, "there is no region 2"),
        (Change::RemoveRegion { id: 0 }, "there is no region 0"),
        (Change::DeletePartition { name: "x".into() }, "there is no partition x"),
        (Change::PutPartition { name: "".into(), text: "".into() }, "partition_name_has_1_to_255"),
        (Change::DeletePolicy { key: "a.example.com.".into() }, "there is no policy a.example.com."),
        (with(|p| p.names.clear()), "a policy needs a name"),
        (with(|p| p.names.push("WWW.".into())), "policy_name_is_absolute_and_lower_case"),
        (with(|p| p.names.push("a.example.com.".into())), "a.example.com. belongs to another policy"),
        (with(|p| p.names[0] = "a.example.com.".into()), "a.example.com. belongs to another policy"),
        (with(|p| p.names.push("new.example.com.".into())), "a name occurs twice"),
        (with(|p| p.servers[1] = p.servers[0].clone()), "policy_server"),
        (with(|p| p.servers[0].default.probability = Some(f64::NAN)), "a probability of NaN"),
        (with(|p| p.servers[0].default.probability = Some(f64::INFINITY)), "a probability of inf"),
        (with(|p| p.servers[0].default.probability = Some(-0.1)), "probability_is_finite_and_from_0"),
        (with(|p| p.servers[0].default.ttl = Some(1 << 31)), "policy_server_ttl_is_from_0_to_2147483647"),
        (with(|p| _ = p.servers[0].regions.insert("asia".into(), Entry::default())), "no region 'asia'"),
        (
            with(|p| p.servers[0].regions.get_mut("europe").unwrap().ttl = Some(u32::MAX)),
            "policy_row_ttl_is_from_0_to_2147483647",
        ),
        (
            with(|p| p.servers[0].regions.get_mut("europe").unwrap().probability = Some(f64::NAN)),
            "a probability of NaN",
        ),
    ] {
        let told = refused(store.commit(1, &[zone("first.", ""), change.clone()]).await);
        assert!(told.0 == 1 && told.1.contains(words), "{change:?}: {told:?}");
        assert_eq!(store.load().await.as_ref(), Ok(&before), "{change:?}");
    }
    // Refusals leave a connection that works.
    assert_eq!(store.commit(1, &[zone("first.", "")]).await, Ok(2));
}

async fn a_policy_is_replaced_whole_and_found_by_its_first_name(ground: &Ground) {
    let store = ground.open().await;
    let first = policy(&["www.", "a.", "b."], &["europe"]);
    store.commit(0, &[region(1, "europe"), Change::PutPolicy(first.into())]).await.unwrap();
    let mut second = policy(&["www.", "b.", "c."], &[]);
    second.servers.reverse();
    second.answers = 0;
    second.when_all_down = WhenAllDown::Answer;
    second.partition = "other".into();
    // A name that one policy gives up may go to another in the same commit.
    let third = policy(&["a."], &[]);
    let changes = [Change::PutPolicy(second.clone().into()), Change::PutPolicy(third.clone().into())];
    store.commit(1, &changes).await.unwrap();
    assert_eq!(store.load().await.unwrap().policies, [third.clone(), second]);
    store.commit(2, &[Change::DeletePolicy { key: "www.".into() }]).await.unwrap();
    assert_eq!(store.load().await.unwrap().policies, [third]);
}

async fn a_policy_larger_than_one_statement_is_stored(ground: &Ground) {
    let store = ground.open().await;
    let mut large = policy(&["www."], &[]);
    large.names.extend((0..1_234).map(|i| format!("n{i}.")));
    let template = policy(&["www."], &["europe"]).servers[0].clone();
    large.servers = (0..=255_u8)
        .flat_map(|a| (0..5_u8).map(move |b| [10, 0, b, a]))
        .map(|address| Server { target: address.into(), ..template.clone() })
        .collect();
    store.commit(0, &[region(1, "europe"), Change::PutPolicy(large.clone().into())]).await.unwrap();
    assert_eq!(store.load().await.unwrap().policies, [large]);
}

async fn entries_of_a_policy_are_replaced_again_and_again(ground: &Ground) {
    let store = ground.open().await;
    let mut policy = policy(&["www.", "a."], &["europe", "asia"]);
    let other = super::policy(&["b."], &["asia"]);
    let regions = [region(1, "europe"), region(2, "asia"), Change::PutPolicy(other.clone().into())];
    store.commit(0, &regions).await.unwrap();
    let entry = |probability, ttl| Entry { probability, ttl };
    let steps: [fn(&mut Policy, Entry); 9] = [
        |_, _| {},
        |p, entry| p.servers[0].default = entry,
        |p, entry| p.servers[1].default = entry,
        |p, entry| _ = p.servers[0].regions.insert("asia".into(), entry),
        |p, entry| {
            for server in &mut p.servers {
                server.default = entry;
                server.regions.values_mut().for_each(|cell| *cell = entry);
            }
        },
        |p, _| p.answers += 1,
        |p, _| _ = p.servers[0].regions.remove("europe"),
        |p, entry| _ = p.servers[1].regions.insert("europe".into(), entry),
        |p, _| p.servers.reverse(),
    ];
    let entries =
        [entry(None, None), entry(Some(0.0), Some(0)), entry(Some(0.25), None), entry(None, Some(7))];
    let mut generation = 1;
    for (step, entry) in entries.iter().flat_map(|entry| steps.iter().map(move |step| (step, entry))) {
        step(&mut policy, *entry);
        // By itself, with another change, and twice in one commit.
        let put = Change::PutPolicy(policy.clone().into());
        for changes in [&[put.clone()][..], &[zone("z.", "text"), put.clone()], &[put.clone(), put]] {
            generation = store.commit(generation, changes).await.unwrap();
        }
        assert_eq!(store.load().await.unwrap().policies, [other.clone(), policy.clone()]);
    }
    // A region that comes again is another one, although its name is the same.
    let changes =
        [Change::RemoveRegion { id: 2 }, region(3, "asia"), Change::PutPolicy(policy.clone().into())];
    generation = store.commit(generation, &changes).await.unwrap();
    store.commit(generation, &[Change::PutPolicy(policy.clone().into())]).await.unwrap();
    let contents = store.load().await.unwrap();
    assert_eq!(contents.policies, [super::policy(&["b."], &[]), policy]);
}

async fn a_removed_region_takes_its_entries_and_its_id_along(ground: &Ground) {
    let store = ground.open().await;
    let changes = [
        region(1, "europe"),
        region(2, "asia"),
        Change::PutPolicy(policy(&["www."], &["europe", "asia"]).into()),
        Change::RemoveRegion { id: 2 },
    ];
    store.commit(0, &changes).await.unwrap();
    store.close().await.unwrap();

    let store = ground.open().await;
    let contents = store.load().await.unwrap();
    assert_eq!(contents.next_region_id, 3);
    assert_eq!(contents.policies, [policy(&["www."], &["europe"])]);
    let (_, what) = refused(store.commit(1, &[region(2, "asia")]).await);
    assert!(what.contains("the next one is 3"), "{what}");
    // The name is free again; ids may skip; the same name may come and go within a commit.
    let again = [
        region(5, "asia"),
        Change::RemoveRegion { id: 5 },
        region(6, "asia"),
        Change::RemoveRegion { id: 6 },
    ];
    store.commit(1, &again).await.unwrap();
    let contents = store.load().await.unwrap();
    assert_eq!((contents.next_region_id, contents.regions.len()), (7, 1));
}

async fn a_cancelled_commit_happened_or_did_not(ground: &Ground) {
    let store = ground.open().await;
    let mut cut = 0;
    for polls in 0.. {
        let before = store.load().await.unwrap();
        let name = format!("r{polls}");
        let changes = [
            region(before.next_region_id, &name),
            Change::PutPolicy(policy(&["www."], &[&name]).into()),
            zone(&format!("z{polls}."), "text"),
        ];
        let mut commit = Box::pin(store.commit(before.generation, &changes));
        let mut left = polls;
        let done = std::future::poll_fn(|context| match commit.as_mut().poll(context) {
            std::task::Poll::Ready(result) => std::task::Poll::Ready(Some(result)),
            std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
            std::task::Poll::Pending => {
                left -= 1;
                std::task::Poll::Pending
            }
        })
        .await;
        drop(commit);
        if let Some(result) = done {
            assert_eq!(result, Ok(before.generation + 1));
            break;
        }
        cut += 1;
        // The next commit waits for what the cancelled one may still be doing, and tells which it was.
        let added = match store.commit(before.generation, &[]).await {
            Ok(_) => 0,
            Err(CommitError::Conflict { current }) if current == before.generation + 1 => 1,
            other => panic!("after {polls} polls: {other:?}"),
        };
        let after = store.load().await.unwrap();
        assert_eq!(after.zones.len(), before.zones.len() + added, "after {polls} polls");
        assert_eq!(after.regions.len(), before.regions.len() + added, "after {polls} polls");
    }
    assert!(cut > 0, "no commit was cancelled");
}
