//! `pointsman region`: the classes of client addresses that a running server knows.

use api::{NewRegion, Region, RegionAdded};
use clap::{Args, Subcommand};
use hyper::Method;

use crate::failure::Failure;
use crate::session::{self, Connection, Session};
use web::client::{Body, Call};

/// Where regions are.
const PATH: &str = "/v1/regions";

/// The arguments of `region`.
#[derive(Args, Debug)]
pub(crate) struct Regions {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// List the regions; region 0, unclassified, is always there and in no list
    #[command(after_help = "Example:\n  pointsman region list")]
    List,
    /// Add a region
    #[command(after_help = "Example:\n  pointsman region add europe")]
    Add {
        /// The region's name, which no other region has
        name: String,
    },
    /// Remove a region: its rows go, its prefixes become region 0
    #[command(after_help = "Example:\n  pointsman region remove europe")]
    Remove {
        /// The region's name or number
        region: String,
    },
}

impl Regions {
    /// Lists, adds or removes regions over the API.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let session = self.connection.begin()?;
        match self.action {
            Action::List => session.look(PATH, list).await,
            Action::Add { name } => {
                let mut call = Call::new(Method::POST, PATH);
                call.body = Some(Body::json(&NewRegion { name: name.clone() }));
                let done = |added: &RegionAdded| {
                    (format!("region {name} has number {}", added.id), added.generation)
                };
                session.add(call, done).await
            }
            Action::Remove { region } => {
                let id = id(&session, &region).await?;
                let call = Call::new(Method::DELETE, format!("{PATH}/{id}"));
                session.change(call, &format!("region {region} removed")).await
            }
        }
    }
}

/// The number of the region that is called so, or that has this number.
async fn id(session: &Session, region: &str) -> Result<u32, Failure> {
    let regions: Vec<Region> = session.get(PATH).await?;
    let named = regions.iter().find(|known| known.name == region).map(|known| known.id);
    named.or_else(|| region.parse().ok()).ok_or_else(|| {
        Failure::Failed(format!(
            "there is no region {region}\n`pointsman region list` lists those there are."
        ))
    })
}

fn list(regions: Vec<Region>) -> String {
    let mut table = session::table(&["ID", "REGION"]);
    for region in regions {
        table.add_row([region.id.to_string(), region.name]);
    }
    session::lines(table)
}
