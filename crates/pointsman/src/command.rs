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

use std::net::IpAddr;

use clap::Args;

/// A change that is only made to what the caller knows.
#[derive(Args, Clone, Debug)]
pub(crate) struct Precondition {
    /// Make the change only if the tag is still this one, as `get --tag` prints it
    #[arg(long, value_name = "TAG", value_parser = tag)]
    if_match: Option<String>,
}

/// Takes the address of one host, an IPv6 one also in brackets, as beside a port.
fn address(text: &str) -> Result<IpAddr, String> {
    let bare =
        text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).filter(|bare| bare.contains(':'));
    bare.unwrap_or(text).parse().map_err(|_| {
        let prefix = if text.contains('/') { ", not a prefix" } else { "" };
        format!("expected one address{prefix}, such as 192.0.2.1 or 2001:db8::1")
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_host() {
        for (text, expected) in [
            ("192.0.2.1", Ok("192.0.2.1")),
            ("2001:db8::1", Ok("2001:db8::1")),
            ("[2001:db8::1]", Ok("2001:db8::1")),
            ("[192.0.2.1]", Err("expected one address, such as")),
            ("10.1.2", Err("expected one address, such as 192.0.2.1 or 2001:db8::1")),
            ("10.1.0.0/16", Err("expected one address, not a prefix, such as 192.0.2.1 or 2001:db8::1")),
        ] {
            match (address(text), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected),
                (Err(told), Err(expected)) => assert!(told.starts_with(expected), "{told}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
