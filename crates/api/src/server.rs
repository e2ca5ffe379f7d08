//! Whether a server may be drawn: what an operator sets, and keeps over a restart.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AnyOfBuilder, KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};

use crate::target::Target;

/// A server of any policy, or one whose state was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerState {
    /// What is answered: `address` or `cname`.
    #[serde(flatten)]
    pub target: Target,
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
