//! The command line: what can be said, and where it goes.

use clap::{CommandFactory, Parser, Subcommand};

use crate::command::agent::Agent;
use crate::command::balance::Balance;
use crate::command::completions::Completions;
use crate::command::control::Control;
use crate::command::explain::Explain;
use crate::command::key::Key;
use crate::command::man::Man;
use crate::command::partition::Partition;
use crate::command::policy::Policies;
use crate::command::region::Regions;
use crate::command::replay::{self, Replay};
use crate::command::reverse::Reverse;
use crate::command::serve::Serve;
use crate::command::server::Servers;
use crate::command::status::Status;
use crate::command::trace::{self, Trace};
use crate::command::zone::Zone;
use crate::demo::Demo;
use crate::failure::{EXIT_CODES, Failure, UNREACHABLE};

/// The most columns of help: longer lines are hard to read, and without a terminal there is no width.
const COLUMNS_MAX: usize = 100;

/// One program for DNS traffic: it steers clients to the right site, balances queries over name servers, names
/// addresses, and replays recorded traffic
#[derive(Parser, Debug)]
#[command(
    name = "pointsman",
    version,
    max_term_width = COLUMNS_MAX,
    after_help = ends("pointsman serve --zone example.com.zone")
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show a name server at work: sample zone, simulated clients, changes and how soon they are answered
    #[command(after_help = ends_alone("pointsman demo --for 10s"))]
    Demo(Demo),
    /// Serve zones over UDP and TCP, and the API over HTTP
    #[command(after_help = ends_alone("pointsman serve --zone example.com.zone --listen 127.0.0.1:5300"))]
    Serve(Serve),
    /// List, get, put and delete zones
    #[command(after_help = ends("pointsman zone put example.com.zone"))]
    Zone(Zone),
    /// List, add and remove regions
    #[command(after_help = ends("pointsman region add europe"))]
    Region(Regions),
    /// List, get, put and delete partitions, and look addresses up in them
    #[command(after_help = ends("pointsman partition put partition.csv"))]
    Partition(Partition),
    /// List, get, put and delete policies
    #[command(after_help = ends("pointsman policy put www.json"))]
    Policy(Policies),
    /// List servers, and take them up and down
    #[command(after_help = ends("pointsman server down 192.0.2.1"))]
    Server(Servers),
    /// Tell why a client is sent where it is
    #[command(after_help = ends("pointsman explain www.example.com A --client 192.0.2.77"))]
    Explain(Explain),
    /// Tell how the server is doing
    #[command(after_help = ends("pointsman status"))]
    Status(Status),
    /// Let the load of the servers decide: measure it, recompute the rows of a policy, install them
    #[command(after_help = ends("pointsman control --config control.toml --once --dry-run"))]
    Control(Control),
    /// Answer with names of addresses, at once or not at all, and learn them in the background
    #[command(after_help = ends("pointsman reverse --upstream 192.0.2.53 --dns 127.0.0.1:5353 --http 127.0.0.1:8054"))]
    Reverse(Box<Reverse>),
    /// Spread queries over name servers by what each can take
    #[command(after_help = ends("pointsman balance --listen 192.0.2.53:53 --backend 192.0.2.1 --backend 192.0.2.2"))]
    Balance(Box<Balance>),
    /// Tell balancers what the server beside it can still take
    #[command(after_help = ends_alone(
        "pointsman agent --service udp:192.0.2.1:53 --balancer 192.0.2.10:5380 --key credit.key"
    ))]
    Agent(Box<Agent>),
    /// Make the key that balancers and agents share, or one that a zone is signed with
    #[command(after_help = ends_alone("pointsman key new credit.key"))]
    Key(Key),
    /// Tell what recorded traffic is like, convert it, cut it and change it
    #[command(after_help = trace::ENDS)]
    Trace(Trace),
    /// Send the queries of recorded traffic again, on time
    #[command(after_help = replay::ENDS)]
    Replay(Box<Replay>),
    /// Print what a shell reads to complete these commands
    #[command(after_help = ends_alone("pointsman completions bash > pointsman.bash"))]
    Completions(Completions),
    /// Write manual pages, one for each command
    #[command(after_help = ends_alone("pointsman man /usr/local/share/man/man1"))]
    Man(Man),
}

impl CommandLine {
    /// Runs the command.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Demo(demo) => demo.run().await,
            Command::Serve(serve) => serve.run().await,
            Command::Zone(zone) => zone.run().await,
            Command::Region(region) => region.run().await,
            Command::Partition(partition) => partition.run().await,
            Command::Policy(policy) => policy.run().await,
            Command::Server(server) => server.run().await,
            Command::Explain(explain) => explain.run().await,
            Command::Status(status) => status.run().await,
            Command::Control(control) => control.run().await,
            Command::Reverse(reverse) => reverse.run().await,
            Command::Balance(balance) => balance.run().await,
            Command::Agent(agent) => agent.run().await,
            Command::Key(key) => key.run(),
            Command::Trace(trace) => trace.run(),
            Command::Replay(replay) => replay.run().await,
            Command::Completions(completions) => completions.run(CommandLine::command()),
            Command::Man(man) => man.run(CommandLine::command()),
        }
    }
}

/// How the help of a command ends that asks an API.
fn ends(example: &str) -> String {
    format!("{EXIT_CODES}\n{UNREACHABLE}\n\nExample:\n  {example}")
}

/// How the help of a command ends that asks none.
fn ends_alone(example: &str) -> String {
    format!("{EXIT_CODES}\n\nExample:\n  {example}")
}

#[cfg(test)]
mod tests;
