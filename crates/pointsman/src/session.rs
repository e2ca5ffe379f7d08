//! What all commands of the API share: the connection's arguments, and what is printed.

use std::io::{self, Write};
use std::path::Path;

use api::file::{self, DATA_MAX};
use api::{Changed, Fault};
use clap::Args;
use comfy_table::{Table, presets};
use hyper::StatusCode;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::token;
use web::client::{Answer, Body, Call, Client};

/// Where the API is, and how answers are printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// The URL of the API
    #[arg(
        long,
        value_name = "URL",
        env = "POINTSMAN_API",
        default_value = "http://127.0.0.1:8053",
        hide_env_values = true,
        global = true
    )]
    api: String,
    #[command(flatten)]
    token: token::Source,
    /// Print what the API answers, as it is
    #[arg(long, global = true)]
    json: bool,
}

/// Makes calls and prints what comes back.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    client: Client,
    json: bool,
}

impl Connection {
    /// Begins a session.
    ///
    /// # Errors
    /// What is wrong with the URL and with the token, both.
    pub(crate) fn begin(self) -> Result<Session, Failure> {
        Session::begin(&self.token, self.json, |token| Client::new(&self.api, token))
    }
}

impl Session {
    /// A session of a client; `json` prints what is answered as it is.
    pub(crate) fn new(client: Client, json: bool) -> Session {
        Session { client, json }
    }

    /// Begins a session of the client that `made` makes with a token; `json` prints what is answered as it is.
    ///
    /// # Errors
    /// What is wrong with the token and with the client, both.
    pub(crate) fn begin(
        token: &token::Source,
        json: bool,
        made: impl FnOnce(Option<String>) -> Result<Client, Fault>,
    ) -> Result<Session, Failure> {
        let mut faults = api::Faults::default();
        let token = token.read().unwrap_or_else(|fault| {
            faults.push(fault);
            None
        });
        match made(token) {
            Ok(client) => Ok(faults.or(Session { client, json })?),
            Err(fault) => {
                faults.push(fault);
                Err(faults.into())
            }
        }
    }

    /// Makes a call and prints what it answers: as it is, or as `shown` for people.
    ///
    /// # Errors
    /// [`Failure`] of the call, or of printing.
    pub(crate) async fn show<T: DeserializeOwned>(
        &self,
        call: Call,
        shown: impl FnOnce(T) -> String,
    ) -> Result<(), Failure> {
        self.shown(&self.client.send(call).await?, shown)
    }

    /// Gets something short and prints it, as [`show`](Self::show) does.
    ///
    /// # Errors
    /// [`Failure`] of the call, or of printing.
    pub(crate) async fn look<T: DeserializeOwned>(
        &self,
        path: impl Into<String>,
        shown: impl FnOnce(T) -> String,
    ) -> Result<(), Failure> {
        self.shown(&self.client.look(path).await?, shown)
    }

    fn shown<T: DeserializeOwned>(
        &self,
        answer: &Answer,
        shown: impl FnOnce(T) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            return print(&answer.body);
        }
        print(shown(parsed(answer)?).as_bytes())
    }

    /// Makes a change and prints the generation that has it, after `done`.
    ///
    /// # Errors
    /// [`Failure`] of the call, or of printing.
    pub(crate) async fn change(&self, call: Call, done: &str) -> Result<(), Failure> {
        let answer = self.client.send(call).await?;
        if self.json {
            return print(&answer.body);
        }
        let Changed { generation } = parsed(&answer)?;
        print(served(done, generation, &answer).as_bytes())
    }

    /// Adds a region or the like, whose answer has more than a generation.
    ///
    /// # Errors
    /// [`Failure`] of the call, or of printing.
    pub(crate) async fn add<T: DeserializeOwned>(
        &self,
        call: Call,
        done: impl FnOnce(&T) -> (String, u64),
    ) -> Result<(), Failure> {
        let answer = self.client.send(call).await?;
        if self.json {
            return print(&answer.body);
        }
        let (done, generation) = done(&parsed(&answer)?);
        print(served(&done, generation, &answer).as_bytes())
    }

    /// Makes a call and prints the text that it answers, whether JSON was asked for or not; with `tag`, prints
    /// the text's tag instead.
    ///
    /// # Errors
    /// [`Failure`] of the call, or of printing.
    pub(crate) async fn text(&self, call: Call, tag: bool) -> Result<(), Failure> {
        let answer = self.client.send(call).await?;
        if !tag {
            return print(&answer.body);
        }
        print(answer.tag.ok_or_else(|| Failure::Failed("the API gave no tag".into()))?.as_bytes())
    }

    /// Gets what another call needs, which is short.
    ///
    /// # Errors
    /// [`Failure`] of the call.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        parsed(&self.client.look(path).await?)
    }
}

/// Reads a file to be sent; `-` is stdin.
///
/// # Errors
/// [`Failure::Faults`] where it cannot be read.
pub(crate) fn body(path: &Path, media_type: &'static str) -> Result<Body, Failure> {
    let (source, content) = match path == Path::new("-") {
        true => ("stdin".into(), file::read_from(io::stdin(), "stdin", DATA_MAX, "")?),
        false => (path.to_string_lossy().into_owned(), file::read(path, DATA_MAX, "")?),
    };
    Ok(Body { media_type, content, source })
}

/// A table with these headings and without lines: columns apart by two spaces.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(headings.iter().copied());
    table
}

/// A table's lines, without the blanks at their ends.
pub(crate) fn lines(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut lines: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    lines.truncate(lines.trim_end().len());
    lines
}

fn served(done: &str, generation: u64, answer: &Answer) -> String {
    match answer.status {
        StatusCode::ACCEPTED => format!(
            "{done}: stored as generation {generation}, which not every worker serves yet (pointsman status)"
        ),
        _ => format!("{done}: served as of generation {generation}"),
    }
}

/// What an answer of the API holds.
///
/// # Errors
/// [`Failure::Failed`] where it is something else.
pub(crate) fn parsed<T: DeserializeOwned>(answer: &Answer) -> Result<T, Failure> {
    serde_json::from_slice(&answer.body).map_err(|cause| {
        Failure::Failed(format!(
            "the API's answer is not understood: {cause}\nIs it the service that this command asks, and of the same version? \
             --json prints the answer as it is."
        ))
    })
}

/// Prints lines to stdout, with a line end where there is none.
///
/// # Errors
/// [`Failure::output`].
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    let end: &[u8] = if text.last().is_none_or(|last| *last == b'\n') { b"" } else { b"\n" };
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text)
        .and_then(|()| stdout.write_all(end))
        .and_then(|()| stdout.flush())
        .map_err(|cause| Failure::output(&cause))
}
