//! Whether a server may be drawn: what an operator sets, and keeps over a restart.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AnyOfBuilder, KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};

/// A server of any policy, or one whose state was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerState {
    /// The address that is answered.
    #[schema(schema_with = address)]
    pub address: IpAddr,
    /// Whether it may be drawn; true until it is set otherwise.
    pub up: bool,
}

/// The state to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewServerState {
    /// Whether the server may be drawn.
    pub up: bool,
}

/// The schema of an IPv4 or IPv6 address in text form (RFC 5952).
pub fn address() -> Schema {
    let format = |format| {
        ObjectBuilder::new().schema_type(Type::String).format(Some(SchemaFormat::KnownFormat(format)))
    };
    AnyOfBuilder::new()
        .item(format(KnownFormat::Ipv4))
        .item(format(KnownFormat::Ipv6))
        .description(Some("An IPv4 or IPv6 address."))
        .into()
}
