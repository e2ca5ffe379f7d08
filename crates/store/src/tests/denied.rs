//! What a shared database refuses, and what its administrators have set up for all who use it.

use tests::database::{Database, Kind};

use super::{refused, zone};
use crate::shared::sql::{Place, Sql, values};
use crate::{CommitError, Contents, Store, StoreError};

/// All that holds for every shared database.
pub(super) async fn check(database: &Database) {
    println!("who_is_not_let_in_is_told_how_to_go_on");
    who_is_not_let_in_is_told_how_to_go_on(database).await;
    println!("a_database_that_is_read_only_says_so_and_is_written_afterwards");
    a_database_that_is_read_only_says_so_and_is_written_afterwards(database).await;
    println!("what_is_set_up_for_others_does_not_hold_for_us");
    what_is_set_up_for_others_does_not_hold_for_us(database).await;
    println!("texts_are_kept_as_they_are");
    texts_are_kept_as_they_are(database).await;
    println!("who_was_cut_off_connects_anew");
    who_was_cut_off_connects_anew(database).await;
}

async fn who_is_not_let_in_is_told_how_to_go_on(database: &Database) {
    const USER: &str = "cannot be reached: CAUSE; correct the user and the password in its URL, or have";
    let name = database.empty();
    let (port, scheme) = (database.port(), database.url("").split_once(':').expect("a URL").0.to_owned());
    // Once it is asked for a password, none is taken for granted.
    let of_both = [
        ("guest:hunter2@127.0.0.1:PORT/NAME", USER),
        ("guest@127.0.0.1:PORT/NAME", USER),
        ("hunter:hunter2@127.0.0.1:PORT/NAME", USER),
        (
            "guest:right@127.0.0.1:PORT/NAME",
            "may not be written: CAUSE; have its user own that database (PostgreSQL), or have all rights in it (MariaDB)",
        ),
        (
            "admin@127.0.0.1:PORT/nowhere",
            "cannot be reached: CAUSE; create that database, or correct its name",
        ),
        (
            "admin@127.0.0.1:1/NAME",
            "cannot be reached: Connection refused (os error 111); start the database, or",
        ),
        (
            "admin:hunter2@nowhere.invalid/NAME",
            "correct the host in its URL, or see why this system does not resolve it",
        ),
    ];
    let of_one = match database.kind() {
        Kind::Postgres => {
            let hba = database.sql(&name, "SHOW hba_file");
            let lines = "'host all guest 127.0.0.1/32 scram-sha-256', 'host all admin 127.0.0.1/32 trust'";
            database.sql(&name, "CREATE ROLE guest LOGIN PASSWORD 'right'");
            database.sql(&name, &format!("COPY (SELECT unnest(ARRAY[{lines}])) TO '{hba}'"));
            // Who connects once another time is told is asked by the new lines.
            let loaded = || database.sql(&name, "SELECT pg_conf_load_time()");
            let before = loaded();
            database.sql(&name, "SELECT pg_reload_conf()");
            assert!((0..100).any(|_| loaded() != before), "its lines are not read");
            [
                (
                    "admin@127.0.0.1:PORT/NAME?sslmode=require",
                    "server does not support TLS; set up TLS in the database, or",
                ),
                (
                    "admin@127.0.0.1/NAME?host=/nowhere",
                    "No such file or directory (os error 2); correct the path in its URL",
                ),
            ]
        }
        Kind::Mariadb => {
            let text = "CREATE USER guest@'%' IDENTIFIED BY 'right'; GRANT USAGE ON *.* TO guest@'%'";
            database.sql(&name, text);
            [
                (
                    "admin@127.0.0.1:PORT/NAME?ssl-mode=REQUIRED",
                    "server does not support TLS; set up TLS in the database, or",
                ),
                (
                    "admin@127.0.0.1/NAME?socket=/nowhere",
                    "No such file or directory (os error 2); correct the path in its URL",
                ),
            ]
        }
    };
    for (rest, words) in of_both.into_iter().chain(of_one) {
        let url = format!("{scheme}://{}", rest.replace("PORT", &port.to_string()).replace("NAME", &name));
        let told = Store::open(&url).await.expect_err("it is refused").to_string();
        for words in words.split("CAUSE") {
            assert!(told.contains(words), "{url}: {told}");
        }
        assert!(!told.contains("hunter2") && !told.contains("right@"), "{url}: {told}");
        // Nothing of the library's own words.
        assert!(!told.contains("error ") || told.contains("(os error "), "{url}: {told}");
    }
}

async fn a_database_that_is_read_only_says_so_and_is_written_afterwards(database: &Database) {
    let name = database.empty();
    // Whom MariaDB does not exempt.
    let url = match database.kind() {
        Kind::Postgres => database.url(&name),
        Kind::Mariadb => {
            database.sql(&name, &format!("CREATE USER writer@'%'; GRANT ALL ON {name}.* TO writer@'%'"));
            database.url(&name).replace("admin@", "writer@")
        }
    };
    let (only, again) = match database.kind() {
        Kind::Postgres => {
            let set = format!("ALTER DATABASE {name} SET default_transaction_read_only");
            (format!("{set} = on"), format!("BEGIN READ WRITE; {set} = off; COMMIT"))
        }
        Kind::Mariadb => ("SET GLOBAL read_only = 1".into(), "SET GLOBAL read_only = 0".into()),
    };
    let first = Store::open(&url).await.expect("opens");
    first.commit(0, &[zone("a.", "first")]).await.expect("commits");
    database.sql(&name, &only);
    let store = Store::open(&url).await.expect("its tables are there");
    for _ in 0..2 {
        let Err(CommitError::Store(error @ StoreError::Permission { .. })) =
            store.commit(1, &[zone("a.", "second")]).await
        else {
            panic!("it is written")
        };
        let told = error.to_string();
        assert!(
            told.contains("it is a standby, or was made read-only: name the one that may be written"),
            "{told}"
        );
        assert_eq!(store.load().await.expect("it is read").zones["a."], "first");
    }
    database.sql(&name, &again);
    // A connection of PostgreSQL that was there before is as it was, and is not used again after it failed.
    let _ = store.commit(0, &[]).await;
    assert_eq!(store.commit(1, &[zone("a.", "second")]).await, Ok(2));
}

async fn what_is_set_up_for_others_does_not_hold_for_us(database: &Database) {
    let name = database.empty();
    drop(Store::open(&database.url(&name)).await.expect("makes the tables"));
    let (set, reset, ours): (&[&str], &[&str], &[(&str, &str)]) = match database.kind() {
        Kind::Postgres => (
            &[
                "SET statement_timeout = '20s'",
                "SET idle_in_transaction_session_timeout = '20s'",
                "SET default_transaction_isolation = 'serializable'",
                "SET synchronous_commit = 'off'",
            ],
            &["RESET ALL"],
            &[
                ("SELECT current_setting('statement_timeout')", "0"),
                ("SELECT current_setting('idle_in_transaction_session_timeout')", "0"),
                ("SELECT current_setting('transaction_isolation')", "read committed"),
                ("SELECT current_setting('synchronous_commit')", "on"),
            ],
        ),
        Kind::Mariadb => (
            &[
                "max_statement_time = 20",
                "idle_transaction_timeout = 20",
                "idle_write_transaction_timeout = 20",
                "tx_isolation = 'READ-COMMITTED'",
                "autocommit = 0",
                "sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'",
            ],
            &[
                "max_statement_time = DEFAULT",
                "idle_transaction_timeout = DEFAULT",
                "idle_write_transaction_timeout = DEFAULT",
                "tx_isolation = DEFAULT",
                "autocommit = DEFAULT",
                "sql_mode = DEFAULT",
            ],
            &[
                ("SELECT CAST(@@max_statement_time AS CHAR)", "0.000000"),
                ("SELECT CAST(@@idle_transaction_timeout AS CHAR)", "0"),
                ("SELECT CAST(@@idle_write_transaction_timeout AS CHAR)", "0"),
                ("SELECT CAST(@@autocommit AS CHAR)", "ON"),
                ("SELECT @@character_set_connection", "utf8mb4"),
            ],
        ),
    };
    let have = |settings: &[&str]| {
        for setting in settings {
            let text = match database.kind() {
                Kind::Postgres => format!("ALTER DATABASE {name} {setting}"),
                Kind::Mariadb => format!("SET GLOBAL {setting}"),
            };
            database.sql(&name, &text);
        }
    };
    have(set);
    let place = Place::read(&database.url(&name)).expect("a URL").expect("of a shared database");
    let mut sql = place.connect().await.expect("connects");
    have(reset);
    for (text, expected) in ours {
        let (found,): (String,) = sql.row(text, values![]).await.unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(found, *expected, "{text}");
    }
    // What is read is of one moment.
    let count = async |sql: &mut Sql| -> i64 {
        sql.row::<(i64,)>("SELECT count(*) FROM server", values![]).await.expect("it is read").0
    };
    sql.begin_reading().await.expect("begins");
    assert_eq!(count(&mut sql).await, 0);
    database.sql(&name, "INSERT INTO server (address, up) VALUES ('192.0.2.1', 1)");
    assert_eq!(count(&mut sql).await, 0);
    sql.raw("COMMIT").await.expect("ends");
    // And outside of a transaction of this one, which nothing else has begun.
    assert_eq!(count(&mut sql).await, 1);
    database.sql(&name, "DELETE FROM server");
    assert_eq!(count(&mut sql).await, 0);
}

/// Whatever the database's own character set is: that of MariaDB in these tests is latin1.
async fn texts_are_kept_as_they_are(database: &Database) {
    let name = database.empty();
    let store = Store::open(&database.url(&name)).await.expect("opens");
    let texts =
        ["\u{1F600} x", "\u{e4}\u{308}", "blank at its end ", "BLANK", "blank", "\u{10ffff}", "%_\\'\"`?$1"];
    let mut changes = Vec::new();
    for (id, text) in (1..).zip(texts) {
        changes.push(super::region(id, text));
        changes.push(crate::Change::PutPartition { name: text.into(), text: text.into() });
        changes.push(crate::Change::Imported { path: text.into(), digest: text.into() });
    }
    store.commit(0, &changes).await.expect("commits");
    let contents = store.load().await.expect("loads");
    let expected = Contents {
        generation: 1,
        regions: (1..).zip(texts.map(str::to_owned)).collect(),
        next_region_id: texts.len() as u32 + 1,
        partitions: texts.map(|text| (text.to_owned(), text.to_owned())).into(),
        imports: texts.map(|text| (text.to_owned(), text.to_owned())).into(),
        ..Contents::default()
    };
    assert_eq!(contents, expected);
    // Its own client reads what we wrote.
    let found = database.sql(&name, "SELECT octet_length(name) FROM region WHERE id = 1");
    assert_eq!(found, texts[0].len().to_string());

    // A text that is too long is the change's fault, and the store works on.
    if database.kind() == Kind::Mariadb {
        let long = "x".repeat(16 << 20);
        let (change, what) = refused(store.commit(1, &[zone("a.", "text"), zone("b.", &long)]).await);
        assert_eq!(change, 1);
        assert!(what.contains("raise max_allowed_packet there"), "{what}");
        let fits = &long[..long.len() - (8 << 10)];
        assert_eq!(store.commit(1, &[zone("a.", "text"), zone("b.", fits)]).await, Ok(2));
        assert_eq!(store.load().await.expect("loads").zones["b."], fits);
    }
}

/// As an administrator does, or a time-out of the database, or its restart.
async fn who_was_cut_off_connects_anew(database: &Database) {
    let name = database.empty();
    let store = Store::open(&database.url(&name)).await.expect("opens");
    let cut = || match database.kind() {
        Kind::Postgres => {
            let text = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' \
                                AND pid <> pg_backend_pid()"
            );
            database.sql("postgres", &text);
        }
        Kind::Mariadb => {
            let text = format!("SELECT id FROM information_schema.processlist WHERE db = '{name}'");
            for id in database.sql("mysql", &text).lines() {
                database.sql("mysql", &format!("KILL {id}"));
            }
        }
    };
    for generation in 0..3 {
        assert_eq!(store.commit(generation, &[zone("a.", "")]).await, Ok(generation + 1));
        cut();
        store.load().await.expect("loads");
        cut();
        assert_eq!(store.has_published(generation + 1).await, Ok(true));
        cut();
    }
    // In the turn it is lost with what it held; the next call has a new one.
    let shared = store.shared().expect("it is shared");
    shared.take_turn().await.expect("nobody has it");
    cut();
    assert_eq!(store.commit(3, &[zone("a.", "")]).await, Ok(4));
}
