//! Back ends of a running balancer that come, go and rest.

use std::net::SocketAddr;

use api::{BackEndStatus, NewBackEnd};
use clap::Args;
use hyper::Method;
use rustls::pki_types::ServerName;
use web::client::{Body, Call};

use super::{Connection, status};
use crate::config::kind;
use crate::failure::Failure;

/// A back end to be added.
#[derive(Args, Debug)]
pub(super) struct Add {
    /// Its address, with a port where it is not 53; over TLS with #NAME of its certificate behind it, and a port where it is
    /// not 853
    #[arg(value_name = "ADDR[#NAME]", value_parser = kind::named)]
    server: (SocketAddr, Option<ServerName<'static>>),
    /// Its weight, for policies that have weights
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    weight: u32,
    /// A pool that it is in, of those in the balancer's configuration; the default one where none is given
    #[arg(long, value_name = "NAME")]
    pool: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// A back end of a balancer.
#[derive(Args, Debug)]
pub(super) struct Named {
    /// Its address, with a port where it is not 53; or with #NAME of its certificate behind it, and a port where it is not 853
    #[arg(value_name = "ADDR[#NAME]", value_parser = kind::named)]
    server: (SocketAddr, Option<ServerName<'static>>),
    #[command(flatten)]
    connection: Connection,
}

impl Add {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (address, tls) = self.server;
        let tls = tls.map(|name| name.to_str().into_owned());
        let new = NewBackEnd { address: address.to_string(), tls, weight: self.weight, pools: self.pool };
        let mut call = Call::new(Method::POST, "/v1/backends");
        call.body = Some(Body::json(&new));
        self.connection.begin()?.show(call, shown).await
    }
}

impl Named {
    pub(super) async fn remove(self) -> Result<(), Failure> {
        let call = Call::new(Method::DELETE, format!("/v1/backends/{}", path(self.server.0)));
        self.connection.begin()?.show(call, shown).await
    }

    pub(super) async fn change(self, what: &str) -> Result<(), Failure> {
        let call = Call::new(Method::POST, format!("/v1/backends/{}/{what}", path(self.server.0)));
        self.connection.begin()?.show(call, shown).await
    }
}

fn shown(back_ends: Vec<BackEndStatus>) -> String {
    status::fitted(status::table(&back_ends))
}

/// An address as a part of a path: the brackets of IPv6 are none of its letters.
fn path(address: SocketAddr) -> String {
    address.to_string().replace('[', "%5B").replace(']', "%5D")
}
