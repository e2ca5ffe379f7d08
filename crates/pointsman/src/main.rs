//! The program: command line, configuration, start and stop of what the subcommand names.
//!
//! In reading order:
//! - [`cli`]: what can be said; [`command`]: the subcommands, a module each.
//! - [`demo`]: a name server with clients from everywhere, to look at.
//! - [`config`]: every key of `serve`, declared once; [`log`]: what is logged.
//! - [`session`]: what the commands of the API share; [`origin`]: which zone a file is of.
//! - [`token`]: the API's token in a file; [`credit_key`]: the key of balancers and agents in one.
//! - [`near`]: addresses that may be loaded without asking anybody.
//! - [`supervision`]: who runs the process is told how far it is, and asks by signals.
//! - [`terminal`]: pictures that are drawn over themselves.
//! - [`failure`]: why a command did not succeed, and the exit code.

mod cli;
mod command;
mod config;
mod credit_key;
mod demo;
mod failure;
mod log;
mod near;
mod origin;
mod session;
mod supervision;
mod terminal;
mod token;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let said = cli::CommandLine::parse();
    let done = match tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("control").build() {
        Ok(runtime) => {
            let done = runtime.block_on(said.run());
            // Whoever needs what is read in the background has waited for it; a reload that a stop ended has not.
            runtime.shutdown_background();
            done
        }
        Err(cause) => Err(failure::Failure::Failed(format!("the system gives no threads: {cause}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let said = failure.to_string();
            if !said.is_empty() {
                // Where stderr is closed there is nobody to tell; the code still says it.
                let _ = writeln!(std::io::stderr(), "{said}");
            }
            failure.exit_code()
        }
    }
}
