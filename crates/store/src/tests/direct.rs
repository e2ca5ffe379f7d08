//! Changes that another program makes in the tables of a shared database: what a name server is told of them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use tests::database::{Database, Kind};

use super::{policy, region, zone};
use crate::shared::sql::Place;
use crate::shared::tables::{migrate, versions};
use crate::{Change, CommitError, Held, News, Shared, Standing, Store, Verdict};

/// All that holds for every shared database.
pub(super) async fn check(database: &Database) {
    println!("changes_are_told_by_name");
    changes_are_told_by_name(database).await;
    println!("zones_are_kept_as_they_were_published");
    zones_are_kept_as_they_were_published(database).await;
    println!("what_is_published_on_top_is_published_once");
    what_is_published_on_top_is_published_once(database).await;
    println!("what_was_put_back_under_a_number_is_loaded_whole");
    what_was_put_back_under_a_number_is_loaded_whole(database).await;
    println!("tables_of_the_version_before_are_brought_up_to_date");
    tables_of_the_version_before_are_brought_up_to_date(database).await;
    if database.kind() == Kind::Mariadb {
        println!("verdicts_take_few_statements");
        verdicts_take_few_statements(database).await;
        println!("a_migration_that_was_broken_off_is_run_again");
        a_migration_that_was_broken_off_is_run_again(database).await;
    }
}

/// A database with two zones, two partitions and a region, all of them published.
struct Stage<'d> {
    database: &'d Database,
    name: String,
    store: Store,
    /// The current generation when the case began.
    generation: u64,
}

impl<'d> Stage<'d> {
    async fn new(database: &'d Database) -> Stage<'d> {
        let name = database.empty();
        let store = Store::open(&database.url(&name)).await.expect("opens");
        let generation = store.commit(0, &[region(1, "europe")]).await.expect("commits");
        let mut stage = Stage { database, name, store, generation };
        stage.begin().await;
        stage
    }

    /// Makes everything as it was before the first case.
    async fn begin(&mut self) {
        self.sql(
            r#"DELETE FROM zone; DELETE FROM "partition"; DELETE FROM policy; DELETE FROM server;
               UPDATE region SET name = 'europe';
               INSERT INTO zone (origin, text) VALUES ('a.', 'first'), ('b.', 'first');
               INSERT INTO "partition" (name, text) VALUES ('p', 'first'), ('q', 'first')"#,
        );
        let seen = self.news().await.seen;
        self.generation = self.shared().publish_direct(seen, &[]).await.expect("nobody else publishes");
    }

    fn shared(&self) -> &Shared {
        self.store.shared().expect("it is shared")
    }

    /// Executes statements in which `"` stand around names that need it.
    fn sql(&self, text: &str) {
        let text = match self.database.kind() {
            Kind::Postgres => text.to_owned(),
            Kind::Mariadb => text.replace('"', "`"),
        };
        self.database.sql(&self.name, &text);
    }

    /// What there is above the generation.
    async fn news(&self) -> News {
        self.shared().news(self.generation).await.expect("it is there")
    }
}

type Texts = BTreeMap<String, Option<String>>;

/// Zones, partitions, and whether policies are among the parts; `None` for anything.
type Told = Option<(Texts, Texts, bool)>;

fn texts(texts: &[(&str, Option<&str>)]) -> Texts {
    texts.iter().map(|(name, text)| ((*name).to_owned(), text.map(str::to_owned))).collect()
}

async fn changes_are_told_by_name(database: &Database) {
    let only = |zones: &[(&str, Option<&str>)], partitions: &[(&str, Option<&str>)], policies| {
        Some((texts(zones), texts(partitions), policies))
    };
    let cases: [(&[&str], Told); 15] = [
        (&["UPDATE zone SET text = 'x' WHERE origin = 'b.'"], only(&[("b.", Some("x"))], &[], false)),
        (&["UPDATE zone SET text = 'x' WHERE origin = 'none.'"], only(&[], &[], false)),
        (&["INSERT INTO zone (origin, text) VALUES ('c.', 'x')"], only(&[("c.", Some("x"))], &[], false)),
        (&["DELETE FROM zone WHERE origin = 'a.'"], only(&[("a.", None)], &[], false)),
        (
            &["UPDATE zone SET origin = 'c.' WHERE origin = 'a.'"],
            only(&[("a.", None), ("c.", Some("first"))], &[], false),
        ),
        (&["DELETE FROM zone"], only(&[("a.", None), ("b.", None)], &[], false)),
        (
            &["UPDATE zone SET text = 'x' WHERE origin = 'b.'", "DELETE FROM zone WHERE origin = 'b.'"],
            only(&[("b.", None)], &[], false),
        ),
        (&[r#"UPDATE "partition" SET text = 'x' WHERE name = 'q'"#], only(&[], &[("q", Some("x"))], false)),
        (
            &[r#"UPDATE "partition" SET name = 'r' WHERE name = 'q'"#],
            only(&[], &[("q", None), ("r", Some("first"))], false),
        ),
        (
            &[r#"INSERT INTO "partition" (name, text) VALUES ('r', 'x')"#, r#"DELETE FROM "partition""#],
            only(&[], &[("p", None), ("q", None), ("r", None)], false),
        ),
        (&["INSERT INTO server (address, up) VALUES ('192.0.2.1', 0)"], only(&[], &[], false)),
        (
            &[
                r#"INSERT INTO policy (answers, when_all_down, "partition") VALUES (1, 'answer', 'p')"#,
                "INSERT INTO policy_name (policy_id, position, name) SELECT id, 0, 'www.a.' FROM policy",
            ],
            only(&[], &[], true),
        ),
        (&["UPDATE region SET name = 'asia'"], None),
        // What a name server before the fourth version logged.
        (&["UPDATE zone SET text = 'x' WHERE origin = 'b.'", "UPDATE change_log SET name = NULL"], None),
        // So many that everything is loaded.
        (
            &["INSERT INTO zone (origin, text) SELECT concat(d.a, e.a, '.'), '' FROM \
                 (SELECT 0 AS a UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 \
                  UNION SELECT 6 UNION SELECT 7 UNION SELECT 8) d, \
                 (SELECT 0 AS a UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 \
                  UNION SELECT 6 UNION SELECT 7 UNION SELECT 8) e"],
            None,
        ),
    ];
    let mut stage = Stage::new(database).await;
    for (statements, expected) in cases {
        statements.iter().for_each(|statement| stage.sql(statement));
        let told = match stage.news().await.standing {
            Standing::Parts(parts) => Some((parts.zones, parts.partitions, parts.policies.is_some())),
            Standing::All(_) => None,
        };
        assert_eq!(told, expected, "{statements:?}");
        stage.begin().await;
    }
    // What another name server commits is told alike.
    let put = Change::PutPolicy(policy(&["www.a."], &["europe"]).into());
    let changes = [zone("a.", "x"), Change::DeleteZone { origin: "b.".into() }, put];
    stage.store.commit(stage.generation, &changes).await.expect("commits");
    let Standing::Parts(parts) = stage.news().await.standing else { panic!("no region was changed") };
    assert_eq!(parts.zones, texts(&[("a.", Some("x")), ("b.", None)]));
    assert_eq!((parts.partitions, parts.policies.map(|policies| policies.len())), (texts(&[]), Some(1)));
}

async fn zones_are_kept_as_they_were_published(database: &Database) {
    // In MariaDB REPLACE, in PostgreSQL what does the same.
    let replace = match database.kind() {
        Kind::Mariadb => "REPLACE INTO zone (origin, text) VALUES ('b.', 'x')",
        Kind::Postgres => {
            "INSERT INTO zone (origin, text) VALUES ('b.', 'x') \
             ON CONFLICT (origin) DO UPDATE SET text = excluded.text"
        }
    };
    let update = "UPDATE zone SET text = 'x' WHERE origin = 'b.'";
    let delete = "DELETE FROM zone WHERE origin = 'b.'";
    let insert = "INSERT INTO zone (origin, text) VALUES ('b.', 'y')";
    let new = "INSERT INTO zone (origin, text) VALUES ('c.', 'y')";
    // In MariaDB nothing tells of TRUNCATE.
    let empty = match database.kind() {
        Kind::Mariadb => "DELETE FROM zone",
        Kind::Postgres => "TRUNCATE zone",
    };
    let cases: [(&[&str], &[&str]); 9] = [
        (&[update], &["b."]),
        (&[empty, insert, new], &["a.", "b."]),
        (&[update, "UPDATE zone SET text = 'z'"], &["a.", "b."]),
        (&[replace, update], &["b."]),
        (&[delete, insert, update], &["b."]),
        (&[update, delete], &["b."]),
        (&["UPDATE zone SET origin = 'c.' WHERE origin = 'b.'", "UPDATE zone SET text = 'z'"], &["a.", "b."]),
        (&[new, "UPDATE zone SET text = 'z' WHERE origin = 'c.'"], &[]),
        (&[new, "DELETE FROM zone WHERE origin = 'c.'", new], &[]),
    ];
    let mut stage = Stage::new(database).await;
    for (statements, expected) in cases {
        statements.iter().for_each(|statement| stage.sql(statement));
        let expected: BTreeMap<String, String> =
            expected.iter().map(|name| ((*name).to_owned(), "first".to_owned())).collect();
        let News { seen, before, .. } = stage.news().await;
        assert_eq!(before, expected, "{statements:?}");
        // From the next generation on it is that one's zones that are kept.
        stage.generation = stage.shared().publish_direct(seen, &[]).await.expect("nobody else publishes");
        let published = stage.store.load().await.expect("loads").zones;
        stage.sql("UPDATE zone SET text = 'last'");
        assert_eq!(stage.news().await.before, published, "{statements:?}");
        stage.begin().await;
    }
}

async fn what_is_published_on_top_is_published_once(database: &Database) {
    let mut stage = Stage::new(database).await;
    let other = Store::open(&database.url(&stage.name)).await.expect("opens");
    let other = other.shared().expect("it is shared");
    stage.sql("UPDATE zone SET text = 'x' WHERE origin = 'b.'");
    let (seen, first) = (stage.news().await.seen, stage.generation);
    let on_top = [zone("b.", "raised")];
    stage.generation = stage.shared().publish_direct(seen, &on_top).await.expect("nobody else publishes");
    assert_eq!(stage.generation, first + 1);
    let late = other.publish_direct(seen, &on_top).await;
    assert_eq!(late, Err(CommitError::Conflict { current: stage.generation }));

    // The other one is told of it as of any change.
    let News { seen, standing, before } = other.news(first).await.expect("loads");
    assert_eq!((seen.generation, seen.published), (stage.generation, seen.changes));
    let Standing::Parts(parts) = standing else { panic!("no region was changed") };
    assert_eq!((parts.zones, before), (texts(&[("b.", Some("raised"))]), BTreeMap::new()));
    let what = database.sql(&stage.name, "SELECT what FROM generation ORDER BY number DESC LIMIT 1");
    assert!(what.ends_with(" made directly; zone b. put"), "{what}");

    // One that cannot be stored leaves all as it is.
    stage.sql("UPDATE zone SET text = 'y' WHERE origin = 'b.'");
    let seen = stage.news().await.seen;
    let refused = stage.shared().publish_direct(seen, &[zone("B.", "")]).await;
    assert!(matches!(refused, Err(CommitError::Refused { change: 0, .. })), "{refused:?}");
    let News { seen: after, before, .. } = stage.news().await;
    assert_eq!((after, before), (seen, [("b.".to_owned(), "raised".to_owned())].into()));
    // Nobody commits on top of what is not published.
    assert_eq!(stage.store.commit(stage.generation, &[]).await, Err(CommitError::Unpublished));
    let published = stage.shared().publish_direct(seen, &[]).await.expect("nobody else publishes");
    assert_eq!(stage.store.commit(published, &[]).await, Ok(published + 1));
}

async fn what_was_put_back_under_a_number_is_loaded_whole(database: &Database) {
    let stage = Stage::new(database).await;
    let (shared, generation) = (stage.shared(), stage.generation);
    let seen = shared.look().await.expect("looks");
    assert!(!shared.is_another(seen));
    // As a dump that another name server has gone on from.
    stage.sql("UPDATE generation SET publisher = 'another'");
    let put_back = shared.look().await.expect("looks");
    assert!(shared.is_another(put_back) && put_back != seen);
    let conflict = Err(CommitError::Conflict { current: generation });
    assert_eq!(stage.store.commit(generation, &[]).await, conflict);
    let News { seen, standing, .. } = shared.news(generation).await.expect("loads");
    assert!(matches!(standing, Standing::All(_)), "{standing:?}");
    // Loading it is not going on from it.
    stage.store.load().await.expect("loads");
    assert_eq!(stage.store.commit(generation, &[]).await, conflict);
    shared.take(seen);
    assert!(!shared.is_another(seen));
    assert_eq!(stage.store.commit(generation, &[]).await, Ok(generation + 1));
}

async fn tables_of_the_version_before_are_brought_up_to_date(database: &Database) {
    let name = database.empty();
    let place = Place::read(&database.url(&name)).expect("a URL").expect("of a shared database");
    let mut sql = place.connect().await.expect("connects");
    let versions = versions(&sql);
    assert_eq!(versions.last().map(|(version, ..)| *version), Some(6));
    migrate(&mut sql, Path::new("test"), &versions[..1]).await.expect("makes the tables");
    sql.close().await.expect("closes");
    for insert in [
        "INSERT INTO zone (origin, text) VALUES ('a.', 'first')",
        "INSERT INTO region (id, name) VALUES (1, 'europe')",
        "INSERT INTO policy VALUES (1, 1, 'answer', 'default', 'weighted')",
        "INSERT INTO policy_name (policy_id, position, name) VALUES (1, 0, 'www.a.')",
        "INSERT INTO policy_server (policy_id, position, address) VALUES (1, 0, '192.0.2.1')",
        "INSERT INTO policy_row (policy_id, address, region_id, ttl) VALUES (1, '192.0.2.1', 1, 60)",
    ] {
        database.sql(&name, insert);
    }

    let store = Store::open(&database.url(&name)).await.expect("opens");
    let shared = store.shared().expect("it is shared");
    let News { seen, standing, before } = shared.news(0).await.expect("loads");
    assert_eq!((seen.generation, seen.published, seen.changes), (0, 0, 6));
    assert_eq!(before, BTreeMap::new());
    let Standing::All(contents) = standing else { panic!("{standing:?}") };
    assert_eq!(contents.zones["a."], "first");
    let server = &contents.policies[0].servers[0];
    assert_eq!((server.target.to_string(), server.regions["europe"].ttl), ("192.0.2.1".into(), Some(60)));
    assert_eq!(shared.publish_direct(seen, &[]).await, Ok(1));
    // The cells go with their server, and a server may be a name.
    let name_of_server = format!("{}.example.", "a".repeat(60));
    let rename = format!("UPDATE policy_server SET address = '{name_of_server}'");
    database.sql(&name, &format!("DELETE FROM policy_server; INSERT INTO policy_server (policy_id, position, address) VALUES (1, 0, '192.0.2.1'); {rename}"));
    let News { seen, standing, .. } = shared.news(1).await.expect("loads");
    let Standing::Parts(parts) = standing else { panic!("{standing:?}") };
    let policies = parts.policies.expect("they were changed");
    let server = &policies[0].servers[0];
    assert_eq!((server.target.to_string(), server.regions.len()), (name_of_server, 0));
    assert_eq!(shared.publish_direct(seen, &[]).await, Ok(2));
    database.sql(&name, "UPDATE zone SET text = 'x'");
    let News { standing, before, .. } = shared.news(2).await.expect("loads");
    assert_eq!(before, [("a.".to_owned(), "first".to_owned())].into());
    assert!(matches!(standing, Standing::Parts(parts) if parts.zones == texts(&[("a.", Some("x"))])));
}

/// Whoever remembers keeps others from publishing, and a statement to a database far away takes long.
async fn verdicts_take_few_statements(database: &Database) {
    let name = database.empty();
    let store = Store::open(&database.url(&name)).await.expect("opens");
    let counted = || -> u32 {
        let text = "SELECT variable_value FROM information_schema.global_status \
                    WHERE variable_name = 'COM_STMT_EXECUTE'";
        database.sql(&name, text).parse().expect("a count")
    };
    let held = Some(Held { failing: true, since: 1 });
    let verdict = |number: u32| Verdict { server: Ipv4Addr::from(number).into(), probe: "web".into(), held };
    let verdicts: Vec<Verdict> = (0..1_200).map(verdict).collect();
    let before = counted();
    store.remember(&verdicts).await.expect("it is taken");
    // The lock, and of each 500 what is deleted and what is put.
    assert_eq!(counted() - before, 1 + 2 * 3);
}

/// What makes tables in MariaDB is no transaction: where it was broken off, the next start goes on.
async fn a_migration_that_was_broken_off_is_run_again(database: &Database) {
    let name = database.empty();
    drop(Store::open(&database.url(&name)).await.expect("makes the tables"));
    for version in [3, 4, 5] {
        database
            .sql(&name, &format!("UPDATE _sqlx_migrations SET success = FALSE WHERE version >= {version}"));
        drop(Store::open(&database.url(&name)).await.expect("goes on"));
    }
    // In the middle of the first, before anything of the second.
    database.sql(&name, "DELETE FROM _sqlx_migrations WHERE version > 3");
    database.sql(&name, "UPDATE _sqlx_migrations SET success = FALSE");
    for broken in ["TRIGGER zone_insert", "TRIGGER server_delete", "PROCEDURE log_name", "TABLE zone_before"]
    {
        database.sql(&name, &format!("DROP {broken}"));
    }
    let store = Store::open(&database.url(&name)).await.expect("goes on");
    database.sql(&name, "INSERT INTO zone (origin, text) VALUES ('a.', 'first')");
    let News { before, .. } = store.shared().expect("it is shared").news(0).await.expect("loads");
    assert_eq!(before.len(), 0, "it was not there");
    database.sql(&name, "DELETE FROM zone");
}
