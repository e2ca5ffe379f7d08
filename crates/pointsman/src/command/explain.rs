//! `pointsman explain`: why a client is sent where it is.

use std::net::IpAddr;

use api::{AddressType, Explain as Question, Explanation};
use clap::Args;
use hyper::Method;

use crate::failure::Failure;
use crate::session::{self, Connection};
use web::client::{Body, Call};

/// The arguments of `explain`.
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The name that the client asks for
    name: String,
    /// The type that it asks for: A or AAAA
    #[arg(value_name = "TYPE", default_value = "A", value_parser = address_type)]
    qtype: AddressType,
    /// Whom the answer goes by: the client subnet where the resolver sends one, else the resolver's address
    #[arg(long, value_name = "ADDR", value_parser = super::address)]
    client: IpAddr,
    #[command(flatten)]
    connection: Connection,
}

impl Explain {
    /// Asks the server why it would answer so, and prints that.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let question = Question { name: self.name, qtype: self.qtype, client: self.client };
        let mut call = Call::new(Method::POST, "/v1/explain");
        call.body = Some(Body::json(&question));
        self.connection.begin()?.show(call, shown).await
    }
}

fn address_type(text: &str) -> Result<AddressType, String> {
    match text {
        _ if text.eq_ignore_ascii_case("A") => Ok(AddressType::A),
        _ if text.eq_ignore_ascii_case("AAAA") => Ok(AddressType::Aaaa),
        _ => Err("policies answer A and AAAA".into()),
    }
}

fn shown(explanation: Explanation) -> String {
    let mut table = session::table(&["SERVER", "STATE", "PROBABILITY", "DRAWN FIRST", "TTL"]);
    for server in &explanation.row {
        let target = server.target.to_string();
        let drawn = explanation.probabilities.get(&target);
        table.add_row([
            target,
            match (server.up, server.health) {
                (false, _) => "down",
                (true, Some(verdict)) => verdict.word(),
                (true, None) => "up",
            }
            .into(),
            format!("{:.4}", server.probability),
            drawn.map_or("never".into(), |probability| format!("{probability:.4}")),
            format!("{} s", server.ttl),
        ]);
    }
    let answer = match explanation.answer.len() {
        0 => "nothing (NODATA)".into(),
        _ => format!("{} for {} s", explanation.answer.join(" "), explanation.ttl),
    };
    let decision = format!(
        "policy      {}\npartition   {}\nregion      {} ({})\nscope       /{}\nwhy         {}\nan answer   {answer}\n\
         generation  {}\nepoch       {}",
        explanation.policy,
        explanation.partition,
        explanation.region.as_deref().unwrap_or("unclassified"),
        explanation.id,
        explanation.scope,
        explanation.why,
        explanation.generation,
        explanation.epoch,
    );
    if explanation.row.is_empty() { decision } else { format!("{decision}\n\n{}", session::lines(table)) }
}
