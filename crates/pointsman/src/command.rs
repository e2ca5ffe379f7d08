//! The subcommands, a module each.

pub(crate) mod agent;
pub(crate) mod balance;
pub(crate) mod completions;
pub(crate) mod control;
pub(crate) mod explain;
pub(crate) mod key;
pub(crate) mod man;
pub(crate) mod partition;
pub(crate) mod policy;
pub(crate) mod region;
pub(crate) mod replay;
pub(crate) mod reverse;
pub(crate) mod serve;
pub(crate) mod server;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod zone;

use clap::Args;

/// A change that is only made to what the caller knows.
#[derive(Args, Clone, Debug)]
pub(crate) struct Precondition {
    /// Make the change only if the tag is still this one, as `get --tag` prints it
    #[arg(long, value_name = "TAG", value_parser = tag)]
    if_match: Option<String>,
}

/// Takes a tag with or without its quotes.
fn tag(text: &str) -> Result<String, String> {
    let tag = text.trim_matches('"');
    if !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"') {
        Ok(tag.into())
    } else {
        Err("expected a tag as `get --tag` prints it".into())
    }
}
