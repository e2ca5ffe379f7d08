//! Names and addresses in a request's path; what is any text there, as a partition's name, is [`Segments`].

use std::net::IpAddr;

use api::Target;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

use web::path::{ROOT, Segments};

use super::reply::Failure;

/// A domain name in the path, in lower case and with the final dot, as all that is said of it has it.
pub(super) struct Domain(pub(super) String);

/// A server in the path: its address or name.
pub(super) struct Server(pub(super) Target);

/// A region's number in the path.
pub(super) struct Id(pub(super) u32);

impl<S: Send + Sync> FromRequestParts<S> for Domain {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Segments(name) = Segments::<String>::from_request_parts(parts, state).await?;
        let name = if name.eq_ignore_ascii_case(ROOT) { ".".into() } else { name };
        match dns::name::folded_from_text(&name) {
            Ok(folded) => Ok(Domain(dns::name::to_text(&folded))),
            Err(what) => {
                Err(Failure::new(StatusCode::BAD_REQUEST, what, "a domain name such as www.example.com"))
            }
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Server {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Segments(name) = Segments::<String>::from_request_parts(parts, state).await?;
        let server = match name.parse() {
            Ok(address) => Ok(Target::Address(address)),
            Err(_) => dns::name::host_from_text(&name).map(|wire| Target::Cname(dns::name::to_text(&wire))),
        };
        server.map(Server).map_err(|what| {
            Failure::new(StatusCode::BAD_REQUEST, what, "an IPv4 or IPv6 address, or a server's name")
        })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Segments(name) = Segments::<String>::from_request_parts(parts, state).await?;
        // `parse` would take a sign too.
        let digits = name.bytes().all(|byte| byte.is_ascii_digit());
        name.parse().ok().filter(|_| digits).map(Id).ok_or_else(|| {
            let what = format!("'{name}' is no region's number");
            Failure::new(StatusCode::BAD_REQUEST, what, "a whole number")
        })
    }
}

/// Reads an address of the path or the query.
pub(super) fn address(text: &str) -> Result<IpAddr, Failure> {
    text.parse().map_err(|_| {
        let what = format!("'{text}' is no address");
        Failure::new(StatusCode::BAD_REQUEST, what, "an IPv4 or IPv6 address")
    })
}
