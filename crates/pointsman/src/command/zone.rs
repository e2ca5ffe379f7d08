//! `pointsman zone`: the zones of a running server.

use std::path::PathBuf;

use api::{Fault, ZoneSummary};
use clap::{Args, Subcommand};
use hyper::Method;
use jiff::Timestamp;

use super::Precondition;
use crate::failure::Failure;
use crate::origin;
use crate::session::{self, Connection};
use web::client::{Call, segment};

/// The arguments of `zone`.
#[derive(Args, Debug)]
pub(crate) struct Zone {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// List the zones
    #[command(after_help = "Example:\n  pointsman zone list")]
    List,
    /// Print a zone as a master file
    #[command(after_help = "Example:\n  pointsman zone get example.com > example.com.zone")]
    Get {
        /// The zone's name; the final dot may be left out
        origin: String,
        /// Print the zone's tag instead, for --if-match
        #[arg(long)]
        tag: bool,
    },
    /// Add or replace a zone from a master file (RFC 1035)
    #[command(after_help = "Example:\n  pointsman zone put example.com.zone")]
    Put {
        /// The master file; - for stdin
        file: PathBuf,
        /// The zone's name, where neither the file's SOA record nor its name tells it
        #[arg(long, value_name = "NAME")]
        origin: Option<String>,
        #[command(flatten)]
        precondition: Precondition,
    },
    /// Delete a zone that no policy uses
    #[command(after_help = "Example:\n  pointsman zone delete example.com")]
    Delete {
        /// The zone's name; the final dot may be left out
        origin: String,
        #[command(flatten)]
        precondition: Precondition,
    },
}

impl Zone {
    /// Lists, prints, puts or deletes zones over the API.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let session = self.connection.begin()?;
        match self.action {
            Action::List => session.look("/v1/zones", list).await,
            Action::Get { origin, tag } => session.text(Call::new(Method::GET, path(&origin)), tag).await,
            Action::Put { file, origin, precondition } => {
                let body = session::body(&file, "text/dns")?;
                let origin = origin.or_else(|| origin::of(&file, &body.content)).ok_or_else(|| {
                    let what = "neither the SOA record nor the file's name tells which zone this is";
                    Fault::whole(&*body.source, what, "--origin NAME")
                })?;
                let done = format!("zone {origin}");
                let mut call = Call::new(Method::PUT, path(&origin));
                (call.body, call.if_match) = (Some(body), precondition.if_match);
                session.change(call, &done).await
            }
            Action::Delete { origin, precondition } => {
                let mut call = Call::new(Method::DELETE, path(&origin));
                call.if_match = precondition.if_match;
                session.change(call, &format!("zone {origin} deleted")).await
            }
        }
    }
}

fn path(origin: &str) -> String {
    format!("/v1/zones/{}", segment(origin))
}

fn list(zones: Vec<ZoneSummary>) -> String {
    let mut table = session::table(&["ZONE", "SERIAL", "RECORDS", "SIGNED UNTIL"]);
    let mut warnings = String::new();
    for zone in zones {
        for what in zone.warnings {
            warnings += &format!("\nwarning: {}: {what}", zone.origin);
        }
        let until = zone.signed_until.and_then(|until| Timestamp::from_second(until.into()).ok());
        table.add_row([
            zone.origin,
            zone.serial.to_string(),
            zone.records.to_string(),
            until.map_or("-".into(), |until| until.to_string()),
        ]);
    }
    session::lines(table) + &warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_stand_below_the_zones() {
        let zone = |origin: &str, warnings: &[&str]| ZoneSummary {
            origin: origin.into(),
            serial: 7,
            records: 12,
            signed_until: None,
            warnings: warnings.iter().map(|what| (*what).into()).collect(),
        };
        let shown = list(vec![zone("a.", &[]), zone("b.", &["it is wrong", "it is old"])]);
        let expected = "\
ZONE  SERIAL  RECORDS  SIGNED UNTIL
a.    7       12       -
b.    7       12       -
warning: b.: it is wrong
warning: b.: it is old";
        assert_eq!(shown, expected);
    }
}
