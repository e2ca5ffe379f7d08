//! A connection to a database that others have open, too: one face for two drivers.

#[cfg(not(all(feature = "postgres", feature = "mysql")))]
use std::convert::Infallible;
use std::time::Duration;

#[cfg(feature = "mysql")]
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow, query, query_as, raw_sql};

use crate::error::{BUSY_TIMEOUT, OpenError, shown};

/// How long a statement may take, beside the time for its octets: a database that is there but does not answer must
/// not hold up changes for ever, and a table of a million records is loaded in less.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How many octets of a statement the way to a database takes in a second, at least: 2 Mbit/s.
const SENT_PER_SECOND_MIN: u64 = 256 << 10;

/// How long the making of a connection may take, and the statement that tells whether one is alive. Both come before a
/// call and are small, and who stops must be done before systemd kills it.
pub(crate) const ALIVE_WAIT: Duration = Duration::from_secs(5);

/// How many octets a packet with a text has beside it, at most: the text's name and what the protocol needs.
#[cfg(feature = "mysql")]
const BESIDE_TEXT: usize = 4 << 10;

/// What the driver of PostgreSQL knows behind the question mark of a URL; `options[...]` it knows, too.
#[cfg(feature = "postgres")]
const POSTGRES_PARAMETERS: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// What that of MariaDB knows, but for the character set and the time zone, which are not for a URL to say: another set
/// would write texts that other name servers read as something else.
#[cfg(feature = "mysql")]
const MYSQL_PARAMETERS: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslca",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "socket",
];

/// Has PostgreSQL send nothing but errors: the driver would log notices in its own words.
#[cfg(feature = "postgres")]
pub(super) const QUIET: &str = "SET client_min_messages = error";

/// Where a database is, and as whom to go there.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    #[cfg(feature = "postgres")]
    Postgres(Box<PgConnectOptions>),
    #[cfg(feature = "mysql")]
    Mysql(Box<MySqlConnectOptions>),
    /// What the program was built without; it makes the other arms complete where it was.
    #[cfg(not(all(feature = "postgres", feature = "mysql")))]
    #[allow(dead_code, reason = "there is no value of it")]
    Absent(Infallible),
}

/// A connection.
pub(crate) enum Sql {
    #[cfg(feature = "postgres")]
    Postgres(Box<PgConnection>),
    #[cfg(feature = "mysql")]
    Mysql(Box<MySqlConnection>),
    #[cfg(not(all(feature = "postgres", feature = "mysql")))]
    #[allow(dead_code, reason = "there is no value of it")]
    Absent(Infallible),
}

/// What stands for a `?`.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Integer(Option<i64>),
    Real(Option<f64>),
    Text(Option<String>),
}

impl Value {
    /// About how many octets it is on its way.
    pub(super) fn octets(&self) -> usize {
        match self {
            Value::Integer(_) | Value::Real(_) => size_of::<u64>(),
            Value::Text(text) => text.as_ref().map_or(0, String::len),
        }
    }
}

/// A list of values, each of which a [`Value`] can be made from.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::shared::sql::Value::from($value)),*] };
}
pub(crate) use values;

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Integer(Some(value))
    }
}

impl From<Option<u32>> for Value {
    fn from(value: Option<u32>) -> Self {
        Value::Integer(value.map(i64::from))
    }
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Self {
        Value::Real(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(Some(value.into()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(Some(value))
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Value::Text(value)
    }
}

/// What a row can be read as, whichever database it is from.
pub(crate) trait Shape: OfPostgres + OfMysql + Send + Unpin {}
impl<T: OfPostgres + OfMysql + Send + Unpin> Shape for T {}

#[cfg(feature = "postgres")]
pub(crate) trait OfPostgres: for<'r> FromRow<'r, PgRow> {}
#[cfg(feature = "postgres")]
impl<T: for<'r> FromRow<'r, PgRow>> OfPostgres for T {}
#[cfg(not(feature = "postgres"))]
pub(crate) trait OfPostgres {}
#[cfg(not(feature = "postgres"))]
impl<T> OfPostgres for T {}

#[cfg(feature = "mysql")]
pub(crate) trait OfMysql: for<'r> FromRow<'r, MySqlRow> {}
#[cfg(feature = "mysql")]
impl<T: for<'r> FromRow<'r, MySqlRow>> OfMysql for T {}
#[cfg(not(feature = "mysql"))]
pub(crate) trait OfMysql {}
#[cfg(not(feature = "mysql"))]
impl<T> OfMysql for T {}

impl Place {
    /// Reads a URL; `None` where it is not of a shared database, or of one that the program was built without.
    pub(crate) fn read(url: &str) -> Result<Option<Place>, OpenError> {
        let wrong = |cause: String| OpenError::Url { url: shown(url), cause };
        // The driver's own words are behind the library's.
        let unread = |cause: sqlx::Error| {
            let cause = cause.to_string();
            wrong(cause.rsplit("error with configuration: ").next().unwrap_or(&cause).into())
        };
        match url.split_once("://").map(|(scheme, _)| scheme) {
            #[cfg(feature = "postgres")]
            Some("postgres" | "postgresql") => {
                check(url, POSTGRES_PARAMETERS).map_err(wrong)?;
                let options: PgConnectOptions = url.parse().map_err(unread)?;
                Ok(Some(Place::Postgres(Box::new(options.disable_statement_logging()))))
            }
            #[cfg(feature = "mysql")]
            Some("mysql" | "mariadb") => {
                check(url, MYSQL_PARAMETERS).map_err(wrong)?;
                let options: MySqlConnectOptions = url.parse().map_err(unread)?;
                if options.get_database().is_none_or(str::is_empty) {
                    return Err(wrong("it names no database".into()));
                }
                // Ours is set below; the time zone is no business of ours.
                let options = options.pipes_as_concat(false).no_engine_substitution(false).timezone(None);
                Ok(Some(Place::Mysql(Box::new(options.disable_statement_logging()))))
            }
            _ => Ok(None),
        }
    }

    /// Connects within [`ALIVE_WAIT`], with what must hold for every statement of ours.
    pub(crate) async fn connect(&self) -> Result<Sql, sqlx::Error> {
        tokio::time::timeout(ALIVE_WAIT, self.connect_at_last()).await.map_err(|_| late())?
    }

    /// As [`Place::connect`], however long it takes.
    async fn connect_at_last(&self) -> Result<Sql, sqlx::Error> {
        let wait = BUSY_TIMEOUT.as_secs();
        let (mut sql, settings): (Sql, String) = match self {
            #[cfg(feature = "postgres")]
            Place::Postgres(options) => (
                Sql::Postgres(Box::new(options.connect().await?)),
                // The triggers leave our commits to us. An answer means that it is on the disk. How long a statement
                // and a transaction may take is ours to say, whatever others may, who do not load all that there is.
                format!(
                    "SET pointsman.commits = 'on'; SET lock_timeout = '{wait}s'; {QUIET}; \
                     SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                     SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN \
                     ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout'); \
                     SELECT set_config('synchronous_commit', 'on', false) \
                     WHERE current_setting('synchronous_commit') IN ('off', 'local')"
                ),
            ),
            #[cfg(feature = "mysql")]
            Place::Mysql(options) => (
                Sql::Mysql(Box::new(options.connect().await?)),
                // As above. A transaction that reads sees one state in this isolation only.
                format!(
                    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ANSI_QUOTES,NO_ENGINE_SUBSTITUTION', \
                     innodb_lock_wait_timeout = {wait}, @pointsman_commits = 1, autocommit = 1, \
                     tx_isolation = 'REPEATABLE-READ', max_statement_time = 0, idle_transaction_timeout = 0, \
                     idle_write_transaction_timeout = 0"
                ),
            ),
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Place::Absent(never) => match *never {},
        };
        sql.raw(&settings).await?;
        Ok(sql)
    }
}

/// Refuses a URL with a parameter that its driver does not know, or with what may be a password in another place.
/// Drivers pass over such a parameter, so that TLS which was asked for in other words would not be had; and that of
/// PostgreSQL logs its value.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn check(url: &str, known: &[&str]) -> Result<(), String> {
    let query = url.split('#').next().and_then(|url| url.split_once('?')).map_or("", |(_, query)| query);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) =
            parameter.split_once('=').map_or((parameter, None), |(key, value)| (key, Some(value)));
        let is_option = known.contains(&"options") && key.starts_with("options[") && key.ends_with(']');
        if is_option || known.contains(&key) {
            continue;
        }
        // What does not look like one may be a part of a password with a question mark in it.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_shown = value.is_some() && key.chars().all(plain) && !query.contains('@');
        let key = if is_shown { format!("'{key}'") } else { "behind its question mark".into() };
        return Err(format!("the parameter {key} is not known; there are {}", known.join(", ")));
    }
    match shown(url).ends_with("...") {
        true => Err("an @ stands behind its host".into()),
        false => Ok(()),
    }
}

/// A query with its values.
macro_rules! bound {
    ($query:expr, $values:expr) => {{
        let mut query = $query;
        for value in $values {
            query = match value {
                Value::Integer(value) => query.bind(value),
                Value::Real(value) => query.bind(value),
                Value::Text(value) => query.bind(value),
            };
        }
        query
    }};
}

impl Sql {
    /// Executes statements without values.
    pub(crate) async fn raw(&mut self, text: &str) -> Result<(), sqlx::Error> {
        let statements = raw_sql(AssertSqlSafe(text));
        match self {
            #[cfg(feature = "postgres")]
            Sql::Postgres(sql) => answered(text.len(), statements.execute(&mut **sql)).await.map(drop),
            #[cfg(feature = "mysql")]
            Sql::Mysql(sql) => answered(text.len(), statements.execute(&mut **sql)).await.map(drop),
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Sql::Absent(never) => match *never {},
        }
    }

    /// Executes a statement with a value for each `?`; returns how many rows it changed.
    pub(crate) async fn run(&mut self, text: &str, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        let octets = text.len() + values.iter().map(Value::octets).sum::<usize>();
        match self {
            #[cfg(feature = "postgres")]
            Sql::Postgres(sql) => {
                let query = bound!(query(AssertSqlSafe(numbered(text))), values);
                answered(octets, query.execute(&mut **sql)).await.map(|done| done.rows_affected())
            }
            #[cfg(feature = "mysql")]
            Sql::Mysql(sql) => {
                let query = bound!(query(AssertSqlSafe(text)), values);
                answered(octets, query.execute(&mut **sql)).await.map(|done| done.rows_affected())
            }
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Sql::Absent(never) => match *never {},
        }
    }

    /// All rows that a statement yields.
    pub(crate) async fn rows<T: Shape>(
        &mut self,
        text: &str,
        values: Vec<Value>,
    ) -> Result<Vec<T>, sqlx::Error> {
        let octets = text.len() + values.iter().map(Value::octets).sum::<usize>();
        match self {
            #[cfg(feature = "postgres")]
            Sql::Postgres(sql) => {
                let query = bound!(query_as::<_, T>(AssertSqlSafe(numbered(text))), values);
                answered(octets, query.fetch_all(&mut **sql)).await
            }
            #[cfg(feature = "mysql")]
            Sql::Mysql(sql) => {
                let query = bound!(query_as::<_, T>(AssertSqlSafe(text)), values);
                answered(octets, query.fetch_all(&mut **sql)).await
            }
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Sql::Absent(never) => match *never {},
        }
    }

    /// The one row that a statement yields.
    pub(crate) async fn row<T: Shape>(&mut self, text: &str, values: Vec<Value>) -> Result<T, sqlx::Error> {
        self.rows(text, values).await?.pop().ok_or(sqlx::Error::RowNotFound)
    }

    /// How long a text may be that is sent, in octets, where the database has a limit below
    /// [`TEXT_MAX`](crate::TEXT_MAX).
    pub(crate) async fn text_max(&mut self) -> Result<Option<usize>, sqlx::Error> {
        match self {
            #[cfg(feature = "postgres")]
            Sql::Postgres(_) => Ok(None),
            #[cfg(feature = "mysql")]
            Sql::Mysql(_) => {
                let (packet,): (i64,) =
                    self.row("SELECT CAST(@@max_allowed_packet AS SIGNED)", values![]).await?;
                Ok(Some(usize::try_from(packet).unwrap_or(0).saturating_sub(BESIDE_TEXT)))
            }
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Sql::Absent(never) => match *never {},
        }
    }

    /// Begins a transaction that sees one state of the database and changes nothing.
    pub(crate) async fn begin_reading(&mut self) -> Result<(), sqlx::Error> {
        match self {
            #[cfg(feature = "postgres")]
            Sql::Postgres(_) => self.raw("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await,
            #[cfg(feature = "mysql")]
            Sql::Mysql(_) => self.raw("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await,
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Sql::Absent(never) => match *never {},
        }
    }

    /// Begins a transaction that changes what is served, which nobody else can do until its end; returns the number of
    /// the last change.
    pub(crate) async fn begin_writing(&mut self) -> Result<i64, sqlx::Error> {
        self.raw("BEGIN").await?;
        self.last_change().await
    }

    /// The number of the last change, in a transaction in which nobody else changes what is served from here on.
    pub(crate) async fn last_change(&mut self) -> Result<i64, sqlx::Error> {
        let (changes,) = self.row("SELECT changes FROM writer FOR UPDATE", values![]).await?;
        Ok(changes)
    }

    /// Closes it.
    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            #[cfg(feature = "postgres")]
            Sql::Postgres(sql) => sql.close().await,
            #[cfg(feature = "mysql")]
            Sql::Mysql(sql) => sql.close().await,
            #[cfg(not(all(feature = "postgres", feature = "mysql")))]
            Sql::Absent(never) => match never {},
        }
    }
}

/// Waits for the answer to a statement of so many octets.
async fn answered<T>(
    octets: usize,
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let wait = ANSWER_WAIT + Duration::from_secs(octets as u64 / SENT_PER_SECOND_MIN);
    tokio::time::timeout(wait, statement).await.unwrap_or_else(|_| Err(late()))
}

/// What came of a statement that was not answered in time.
pub(super) fn late() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer"))
}

/// A statement with `$1`, `$2` and so on for each `?`, as PostgreSQL has them. No text of ours has a `?` elsewhere.
#[cfg(feature = "postgres")]
fn numbered(text: &str) -> String {
    let mut numbered = String::with_capacity(text.len() + 16);
    for (index, part) in text.split('?').enumerate() {
        if index > 0 {
            numbered.push_str(&format!("${index}"));
        }
        numbered.push_str(part);
    }
    numbered
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn each_question_mark_gets_its_number() {
        for (text, expected) in [
            ("SELECT 1", "SELECT 1"),
            ("SELECT a FROM b WHERE c = ? AND d = ?", "SELECT a FROM b WHERE c = $1 AND d = $2"),
            ("?", "$1"),
        ] {
            assert_eq!(numbered(text), expected);
        }
    }
}

#[cfg(all(test, feature = "postgres", feature = "mysql"))]
mod connecting {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_parameter_that_is_not_known_is_refused_and_its_value_not_told() {
        for (url, named) in [
            ("postgres://admin@db/dns?ssl_mode=hunter2", "'ssl_mode'"),
            ("postgresql://admin@db/dns?sslmode=require&&sslpassword=hunter2", "'sslpassword'"),
            ("mysql://admin@db/dns?ssl-mode=REQUIRED&sslrootcert=hunter2#x=y", "'sslrootcert'"),
            ("mariadb://admin@db/dns?options[a]=hunter2", "behind its question mark"),
            ("postgres://admin@db/dns?hunter2", "behind its question mark"),
            ("postgres://admin@db/dns?sslpassword%3Dhunter2=", "behind its question mark"),
            ("postgres://admin:12?hunter2=3&x@db/dns", "behind its question mark"),
            ("mysql://admin@db/dns?charset=hunter2", "'charset'"),
        ] {
            let told = Place::read(url).expect_err("it is not known").to_string();
            assert!(told.contains(&format!("the parameter {named} is not known")), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
        for url in [
            "postgres://admin@db/dns?sslmode=verify-full&sslrootcert=/db.pem&options[lock_timeout]=5s&options=-c%20a=b",
            "mysql://admin@db/dns?ssl-mode=VERIFY_IDENTITY&ssl-ca=/db.pem&socket=/run/db",
            "postgres://admin@db/dns?",
        ] {
            assert!(matches!(Place::read(url), Ok(Some(_))), "{url}");
        }
    }

    #[test]
    fn what_else_is_wrong_with_a_url_is_told_without_its_password() {
        for (url, words) in [
            ("mysql://admin:hunter2@db", "'mysql://admin@db' is wrong: it names no database;"),
            ("mysql://admin:hunter2@db/", "it names no database;"),
            ("postgres://admin:hunter2@db:99999/dns", "is wrong: invalid port number;"),
            ("postgres://admin:hunter2@:5432/dns", "is wrong: empty host;"),
            ("postgres://admin:hunter2@db/dns?sslmode=on", r#"is wrong: unknown value "on" for `ssl_mode`;"#),
            ("mysql://admin:hunter2@db/dns?ssl-mode=on", r#"is wrong: unknown value "on" for `ssl_mode`;"#),
            (
                "postgres://admin:12?sslmode=hunter2@db/dns",
                "'postgres://...' is wrong: an @ stands behind its host;",
            ),
            ("mysql://admin:12/hunter2@db/dns", "'mysql://...' is wrong: an @ stands behind its host;"),
        ] {
            let told = Place::read(url).expect_err("it is wrong").to_string();
            assert!(told.contains(words) && !told.contains("hunter2"), "{url}: {told}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_does_not_answer_is_not_waited_for_long() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("it is bound");
        for scheme in ["postgres", "mysql"] {
            let place = Place::read(&format!("{scheme}://a@{address}/a")).expect("a URL");
            let place = place.expect("of a shared database");
            let ended = tokio::time::timeout(ALIVE_WAIT * 2, place.connect()).await.expect("it ends");
            assert!(ended.is_err_and(|error| error.to_string().contains("no answer")), "{scheme}");
        }
    }
}
