//! What a server is answered as: an address, or another name.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a server of a policy is answered as; no two servers of a policy are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The address that is answered: an A record for IPv4, AAAA for IPv6.
    #[schema(value_type = String, example = "192.0.2.1")]
    Address(IpAddr),
    /// The name that is answered in a CNAME record; in lower case and with the final dot, but where it was only just read.
    #[schema(example = "www.cdn.example.")]
    Cname(String),
}

impl Target {
    /// The address, where it is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Target::Address(address) => Some(*address),
            Target::Cname(_) => None,
        }
    }

    /// The name, where it is one.
    pub fn cname(&self) -> Option<&str> {
        match self {
            Target::Address(_) => None,
            Target::Cname(name) => Some(name),
        }
    }

    /// How it is called as the host of a URL, or where TLS asks for a name: a name without its final dot, and an address of
    /// IPv6 without brackets.
    pub fn host(&self) -> String {
        match self {
            Target::Address(address) => address.to_string(),
            Target::Cname(name) => name.strip_suffix('.').unwrap_or(name).to_owned(),
        }
    }

    /// Whether it is an address of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.address().is_some_and(|address| address.is_ipv4())
    }

    /// Whether it is a name.
    pub fn is_cname(&self) -> bool {
        self.cname().is_some()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Address(address) => address.fmt(f),
            Target::Cname(name) => f.pad(name),
        }
    }
}

/// Neither an address nor an absolute name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTarget;

impl FromStr for Target {
    type Err = NoTarget;

    /// Reads what `Display` writes: an address, or a name that ends with a dot, of which nothing else is checked.
    fn from_str(text: &str) -> Result<Target, NoTarget> {
        match text.parse() {
            Ok(address) => Ok(Target::Address(address)),
            Err(_) if text.ends_with('.') => Ok(Target::Cname(text.into())),
            Err(_) => Err(NoTarget),
        }
    }
}

impl<A: Into<IpAddr>> From<A> for Target {
    fn from(address: A) -> Target {
        Target::Address(address.into())
    }
}

impl PartialEq<IpAddr> for Target {
    fn eq(&self, other: &IpAddr) -> bool {
        self.address() == Some(*other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["192.0.2.1", "2001:db8::1", "www.cdn.example.", "."] {
            let target: Target = text.parse().expect("it is one");
            assert_eq!(target.to_string(), text);
            assert_eq!(target.is_cname(), text.ends_with('.'));
            assert_eq!(target.host(), text.trim_end_matches('.'));
        }
        for text in ["", "192.0.2.300", "www.cdn.example"] {
            assert_eq!(text.parse::<Target>(), Err(NoTarget), "{text}");
        }
    }
}
