//! `pointsman policy`: which servers the clients of each region are sent to.

use std::collections::BTreeSet;
use std::path::PathBuf;

use api::{Entry, Fault, Order, Policy, WhenAllDown};
use clap::{Args, Subcommand};
use hyper::Method;

use super::Precondition;
use crate::failure::Failure;
use crate::session::{self, Connection};
use web::client::{Call, segment};

/// Where policies are.
const PATH: &str = "/v1/policies";

/// The arguments of `policy`.
#[derive(Args, Debug)]
pub(crate) struct Policies {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// List the policies
    #[command(after_help = "Example:\n  pointsman policy list")]
    List,
    /// Print a policy: a table of probability and TTL for each server and region, or with --json what `put` takes
    #[command(after_help = "Example:\n  pointsman policy get www.example.com --json > www.json")]
    Get {
        /// The policy's first name; the final dot may be left out
        owner: String,
        /// Print the policy's tag instead, for --if-match
        #[arg(long)]
        tag: bool,
    },
    /// Add or replace a policy from JSON
    #[command(after_help = "Example:\n  pointsman policy put www.json")]
    Put {
        /// The file; - for stdin
        file: PathBuf,
        /// The policy's first name, where it is not the first of `names` in the file
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        #[command(flatten)]
        precondition: Precondition,
    },
    /// Delete a policy: its names answer what their zone has
    #[command(after_help = "Example:\n  pointsman policy delete www.example.com")]
    Delete {
        /// The policy's first name; the final dot may be left out
        owner: String,
        #[command(flatten)]
        precondition: Precondition,
    },
}

impl Policies {
    /// Lists, prints, puts or deletes policies over the API.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let session = self.connection.begin()?;
        match self.action {
            Action::List => session.look(PATH, list).await,
            Action::Get { owner, tag: true } => {
                session.text(Call::new(Method::GET, path(&owner)), true).await
            }
            Action::Get { owner, tag: false } => session.look(path(&owner), matrix).await,
            Action::Put { file, owner, precondition } => {
                let body = session::body(&file, "application/json")?;
                let owner = owner.map_or_else(|| first_name(&body.content, &body.source), Ok)?;
                let done = format!("policy {owner}");
                let mut call = Call::new(Method::PUT, path(&owner));
                (call.body, call.if_match) = (Some(body), precondition.if_match);
                session.change(call, &done).await
            }
            Action::Delete { owner, precondition } => {
                let mut call = Call::new(Method::DELETE, path(&owner));
                call.if_match = precondition.if_match;
                session.change(call, &format!("policy {owner} deleted")).await
            }
        }
    }
}

fn path(owner: &str) -> String {
    format!("{PATH}/{}", segment(owner))
}

/// The policy's key as its file has it. What else is wrong with the file is the server's to say, in full.
fn first_name(text: &[u8], source: &str) -> Result<String, Failure> {
    let policy: serde_json::Value = serde_json::from_slice(text).map_err(|cause| {
        let expected = "a policy as `policy get --json` prints it";
        if text.trim_ascii().is_empty() {
            return Fault::whole(source, "it is empty", expected);
        }
        let place = |n: usize| u32::try_from(n.max(1)).unwrap_or(u32::MAX);
        Fault::at(source, place(cause.line()), place(cause.column()), "this is no JSON", expected)
    })?;
    let name = policy.get("names").and_then(|names| names.get(0)).and_then(|name| name.as_str());
    let expected = "\"names\": [\"NAME\", ...], or --owner NAME";
    let named = name.ok_or_else(|| Fault::whole(source, "the policy names no name", expected))?;
    Ok(named.to_owned())
}

fn list(policies: Vec<Policy>) -> String {
    let mut table = session::table(&["POLICY", "NAMES", "SERVERS", "REGIONS", "PARTITION", "ANSWERS"]);
    for policy in policies {
        let regions = regions(&policy).len();
        table.add_row([
            policy.names.first().cloned().unwrap_or_default(),
            policy.names.len().to_string(),
            policy.servers.len().to_string(),
            regions.to_string(),
            policy.partition,
            answers(policy.answers),
        ]);
    }
    session::lines(table)
}

/// MyXDNS's matrix: a row a server, the default column first.
fn matrix(policy: Policy) -> String {
    let regions = regions(&policy);
    let headings: Vec<&str> =
        ["SERVER", "default"].into_iter().chain(regions.iter().map(String::as_str)).collect();
    let mut table = session::table(&headings);
    for server in &policy.servers {
        let of_regions = regions.iter().map(|region| server.regions.get(region).map_or("-".into(), entry));
        table.add_row([server.target.to_string(), entry(&server.default)].into_iter().chain(of_regions));
    }
    let when_all_down = match policy.when_all_down {
        WhenAllDown::Answer => "answered all the same",
        WhenAllDown::Empty => "left out",
    };
    let order = match policy.order {
        Order::Weighted => "weighted: drawn by the probabilities",
        Order::Fixed => "fixed: as listed",
        Order::Rotate => "rotate: as listed, each query one further",
        Order::Nearest => "nearest: the most probable or best ranked first",
    };
    format!(
        "names      {}\npartition  {}\nanswers    {}\norder      {order}\nall down   {when_all_down}\n\
         entries    probability / TTL; * where none is given\n\n{}",
        policy.names.join(" "),
        policy.partition,
        answers(policy.answers),
        session::lines(table),
    )
}

fn regions(policy: &Policy) -> BTreeSet<String> {
    policy.servers.iter().flat_map(|server| server.regions.keys().cloned()).collect()
}

fn entry(entry: &Entry) -> String {
    let probability = entry.probability.map_or("*".into(), |probability| probability.to_string());
    let ttl = entry.ttl.map_or("*".into(), |ttl| format!("{ttl} s"));
    format!("{probability} / {ttl}")
}

fn answers(answers: u16) -> String {
    if answers == 0 { "all".into() } else { answers.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_shows_what_is_given_and_what_is_not() {
        let text = r#"{"names":["www.example.com."],"answers":0,"servers":[
            {"address":"192.0.2.1","default":{"probability":0.5,"ttl":30},"regions":{"europe":{"probability":0.9}}},
            {"address":"2001:db8::1","regions":{"asia":{"ttl":60}}}]}"#;
        let policy = serde_json::from_str(text).expect("the test gives a policy");
        let expected = "\
names      www.example.com.
partition  default
answers    all
order      weighted: drawn by the probabilities
all down   answered all the same
entries    probability / TTL; * where none is given

SERVER       default     asia      europe
192.0.2.1    0.5 / 30 s  -         0.9 / *
2001:db8::1  * / *       * / 60 s  -";
        assert_eq!(matrix(policy), expected);
    }

    #[test]
    fn the_first_name_is_the_key() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = first_name(text.as_bytes(), "www.json").map_err(|failure| failure.to_string());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "for {text}");
        };
        check(r#"{"names":["a.","b."],"servers":5}"#, Ok("a."));
        let expected = r#"expected "names": ["NAME", ...], or --owner NAME"#;
        let none = format!("www.json: the policy names no name; {expected}");
        check(r#"{"servers":[]}"#, Err(&none));
        check(r#"{"names":[]}"#, Err(&none));
        let empty = "www.json: it is empty; expected a policy as `policy get --json` prints it";
        check("", Err(empty));
        check(" \n", Err(empty));
        check("x", Err("www.json:1:1: this is no JSON; expected a policy as `policy get --json` prints it"));
        check(
            "{\n  names",
            Err("www.json:2:3: this is no JSON; expected a policy as `policy get --json` prints it"),
        );
    }
}
