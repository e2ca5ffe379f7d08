//! The Host header where no token is asked for: a page in the operator's browser may reach the loopback
//! address under a name of its own (DNS rebinding), but it cannot change the Host that the browser sends.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;

use crate::reply::Failure;

/// Lets a request pass that was sent to an address or to localhost, or that names no host.
///
/// # Errors
/// The refusal of all others.
pub fn check(request: &Request) -> Result<(), Failure> {
    match request.headers().get(HOST) {
        Some(host) if !host.to_str().is_ok_and(is_local) => Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "without a token, the API is not served under a host's name",
            "an address or localhost as the host, or a server that was started with a token",
        )),
        _ => Ok(()),
    }
}

/// Whether this host is an address, or localhost; a port may follow.
pub fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => name,
        _ => host,
    };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    literal.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_local() {
        for (host, local) in [
            ("127.0.0.1", true),
            ("127.0.0.1:8053", true),
            ("[::1]:8053", true),
            ("[::1]", true),
            ("localhost", true),
            ("LocalHost:8053", true),
            ("evil.example", false),
            ("evil.example:8053", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("127.0.0.1:80:80", false),
            (":8053", false),
            ("", false),
        ] {
            assert_eq!(is_local(host), local, "{host:?}");
        }
    }
}
