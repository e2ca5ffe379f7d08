//! The program: command line, configuration, start and stop of what the subcommand names.
//!
//! In reading order:
//! - [`cli`]: what can be said; [`command`]: the subcommands, a module each.
//! - [`demo`]: a name server with clients from everywhere, to look at.
//! - [`config`]: every key of `serve`, declared once; [`log`]: what is logged.
//! - [`session`]: what the commands of the API share; [`origin`]: which zone a file is of.
//! - [`token`]: the API's token in a file; [`credit_key`]: the key of balancers and agents in one.
//! - [`account`]: the user that a service becomes.
//! - [`near`]: addresses that may be loaded without asking anybody.
//! - [`supervision`]: who runs the process is told how far it is, and asks by signals.
//! - [`terminal`]: pictures that are drawn over themselves.
//! - [`failure`]: why a command did not succeed, and the exit code.

mod account;
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

use std::io::{self, Write};
use std::panic;
use std::process::{self, ExitCode};

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use failure::Failure;

fn main() -> ExitCode {
    let said = match cli::CommandLine::try_parse() {
        Ok(said) => said,
        Err(fault) if fault.use_stderr() => fault.exit(),
        Err(help) => {
            let printed = help.print().and_then(|()| io::stdout().flush());
            return ended(printed.map_err(|cause| Failure::output(&cause)));
        }
    };
    ended(match runtime() {
        Ok(runtime) => {
            let done = runtime.block_on(async {
                supervision::outlast_full_files()?;
                said.run().await
            });
            // Whoever needs what is read in the background has waited for it; a reload that a stop ended has not.
            runtime.shutdown_background();
            done
        }
        Err(cause) => Err(Failure::Failed(format!("the system gives no threads: {cause}"))),
    })
}

/// Says what did not succeed, and how the process ends.
fn ended(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let said = failure.to_string();
            if !said.is_empty() {
                // Where stderr is closed there is nobody to tell; the code still says it.
                let _ = writeln!(io::stderr(), "{said}");
            }
            failure.exit_code()
        }
    }
}

/// Makes what runs the commands. Where the system gives no threads for it, tokio panics, and would wait for them for ever
/// while it unwinds: the process ends instead, with the code of what failed.
fn runtime() -> io::Result<Runtime> {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|panic| {
        let what = panic.payload_as_str().unwrap_or("no threads");
        let _ = writeln!(io::stderr(), "the system gives no threads: {what}");
        process::exit(1);
    }));
    let runtime = Builder::new_multi_thread().enable_all().thread_name("control").build();
    panic::set_hook(usual);
    runtime
}
