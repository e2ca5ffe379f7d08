//! `pointsman partition`: which region a client address is in.

use std::net::IpAddr;
use std::path::PathBuf;

use api::{Lookup, PartitionPut, PartitionSummary};
use clap::{Args, Subcommand};
use hyper::Method;

use super::Precondition;
use crate::failure::Failure;
use crate::session::{self, Connection};
use web::client::{Call, encoded, segment};

/// Where partitions are.
const PATH: &str = "/v1/partitions";

/// The arguments of `partition`.
#[derive(Args, Debug)]
pub(crate) struct Partition {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// List the partitions
    #[command(after_help = "Example:\n  pointsman partition list")]
    List,
    /// Print a partition as lines `prefix,region`
    #[command(after_help = "Example:\n  pointsman partition get default > partition.csv")]
    Get {
        /// The partition's name
        #[arg(default_value = "default")]
        name: String,
        /// Print the partition's tag instead, for --if-match
        #[arg(long)]
        tag: bool,
    },
    /// Add or replace a partition from lines `prefix,region`
    #[command(after_help = "Example:\n  pointsman partition put partition.csv")]
    Put {
        /// The file of lines `prefix,region`; - for stdin
        file: PathBuf,
        /// The partition's name
        #[arg(long, default_value = "default")]
        name: String,
        #[command(flatten)]
        precondition: Precondition,
    },
    /// Delete a partition that no policy uses
    #[command(after_help = "Example:\n  pointsman partition delete by-country")]
    Delete {
        /// The partition's name
        name: String,
        #[command(flatten)]
        precondition: Precondition,
    },
    /// Tell the region of an address
    #[command(after_help = "Example:\n  pointsman partition lookup 192.0.2.77")]
    Lookup {
        /// The client's address
        #[arg(value_parser = super::address)]
        address: IpAddr,
        /// The partition's name
        #[arg(long, default_value = "default")]
        name: String,
    },
}

impl Partition {
    /// Lists, prints, puts or deletes partitions over the API, or looks an address up in one.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let session = self.connection.begin()?;
        match self.action {
            Action::List => session.look(PATH, list).await,
            Action::Get { name, tag } => session.text(Call::new(Method::GET, path(&name)), tag).await,
            Action::Put { file, name, precondition } => {
                let mut call = Call::new(Method::PUT, path(&name));
                call.body = Some(session::body(&file, "text/csv")?);
                call.if_match = precondition.if_match;
                session.add(call, |put| done(&name, put)).await
            }
            Action::Delete { name, precondition } => {
                let mut call = Call::new(Method::DELETE, path(&name));
                call.if_match = precondition.if_match;
                session.change(call, &format!("partition {name} deleted")).await
            }
            Action::Lookup { address, name } => {
                let address = encoded(&address.to_string());
                let path = format!("{}/lookup?address={address}", path(&name));
                session.look(path, lookup).await
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("{PATH}/{}", segment(name))
}

fn done(name: &str, put: &PartitionPut) -> (String, u64) {
    let prefixes = if put.prefixes == 1 { "prefix" } else { "prefixes" };
    (format!("partition {name} with {} {prefixes}", put.prefixes), put.generation)
}

fn list(partitions: Vec<PartitionSummary>) -> String {
    let mut table = session::table(&["PARTITION", "PREFIXES"]);
    for partition in partitions {
        table.add_row([partition.name, partition.prefixes.to_string()]);
    }
    session::lines(table)
}

fn lookup(found: Lookup) -> String {
    let mut table = session::table(&["REGION", "ID", "PREFIX"]);
    table.add_row([
        found.region.unwrap_or_else(|| "unclassified".into()),
        found.id.to_string(),
        found.prefix,
    ]);
    session::lines(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_puts_a_partition_is_told_how_much_it_holds() {
        let of = |prefixes| done("default", &PartitionPut { prefixes, generation: 7 });
        assert_eq!(of(1), ("partition default with 1 prefix".into(), 7));
        assert_eq!(of(2), ("partition default with 2 prefixes".into(), 7));
    }
}
