//! `pointsman server`: which servers may be drawn.

use api::{NewServerState, ServerState};
use clap::{Args, Subcommand};
use hyper::Method;

use crate::failure::Failure;
use crate::session::{self, Connection};
use web::client::{Body, Call, segment};

/// Where servers are.
const PATH: &str = "/v1/servers";

/// The arguments of `server`.
#[derive(Args, Debug)]
pub(crate) struct Servers {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// List the servers of all policies, and which of them are up
    #[command(after_help = "Example:\n  pointsman server list")]
    List,
    /// Let a server be drawn again
    #[command(after_help = "Example:\n  pointsman server up 192.0.2.1")]
    Up {
        /// The server's address; its name where it is a name
        #[arg(value_name = "ADDRESS")]
        server: String,
    },
    /// Keep a server from being drawn, also after a restart
    #[command(after_help = "Example:\n  pointsman server down 192.0.2.1")]
    Down {
        /// The server's address; its name where it is a name
        #[arg(value_name = "ADDRESS")]
        server: String,
    },
}

impl Servers {
    /// Lists servers over the API, or takes one up or down.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let session = self.connection.begin()?;
        let (server, up) = match self.action {
            Action::List => return session.look(PATH, list).await,
            Action::Up { server } => (server, true),
            Action::Down { server } => (server, false),
        };
        let mut call = Call::new(Method::PUT, format!("{PATH}/{}/state", segment(&server)));
        call.body = Some(Body::json(&NewServerState { up }));
        session.change(call, &format!("server {server} {}", word(up))).await
    }
}

fn list(servers: Vec<ServerState>) -> String {
    let mut table = session::table(&["SERVER", "STATE"]);
    for server in servers {
        table.add_row([server.target.to_string(), word(server.up).into()]);
    }
    session::lines(table)
}

fn word(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}
