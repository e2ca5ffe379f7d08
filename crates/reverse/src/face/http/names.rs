//! `/v1/names`: what is known of one address, or of many.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use api::{AskedAddress, KnownAddress, Problem};
use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use utoipa::IntoParams;
use web::path::Segments;
use web::{Failure, Peer};

use super::Http;
use crate::backend::seconds;
use crate::cache::{TOGETHER, View};
use crate::crawlers::Identity;
use crate::front::Front;
use crate::known::Known;
use crate::name::NameText;

/// The longest bulk request, in octets.
pub const BULK_MAX: usize = 1 << 20;

/// Addresses in one bulk request: the answers, of which none is longer than 600 octets, are in memory together.
pub const LINES_MAX: usize = 10_000;

/// Bulk requests under way at a time; one more is refused with 503.
pub const BULKS_MAX: usize = 16;

/// The type of a line each.
const NDJSON: &str = "application/x-ndjson";

/// The path of an address.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "declares the parameter; `one` reads it")]
struct AddressPath {
    /// The address.
    #[param(required = true, schema_with = api::server::address)]
    address: String,
}

/// Says what is known of an address.
#[utoipa::path(
    get, path = "/v1/names/{address}", operation_id = "name", tag = "names",
    params(AddressPath),
    responses(
        (status = 200, description = "What is known of it now.", body = KnownAddress),
        (status = 400, description = "That is no address, or not UTF-8 when decoded.", body = Problem),
        (status = 401, description = "Only this machine may ask, and asks under a host's name.", body = Problem),
    ),
)]
pub(super) async fn one(
    State(http): State<Http>,
    Extension(Peer(peer)): Extension<Peer>,
    Segments(text): Segments<String>,
) -> Result<Response, Failure> {
    let address = text.parse().map_err(|_| {
        http.front.counts().refused.fetch_add(1, Ordering::Relaxed);
        let what = format!("'{text}' is no address");
        Failure::new(StatusCode::BAD_REQUEST, what, "an IPv4 or IPv6 address such as 192.0.2.1")
    })?;
    let now = seconds(http.clock.now());
    let mut name = NameText::EMPTY;
    let known = http.front.look_up(&http.front.view(), address, peer.ip(), now, &mut name);
    let known = tell(&http.front, address, known, &name);
    // Whether somebody is the crawler that the name claims may be known one question later.
    let cache = match known.left_seconds {
        Some(left) if known.identity != Identity::NotYet.word() => format!("max-age={left}"),
        _ => "no-store".to_owned(),
    };
    Ok(([(CACHE_CONTROL, cache)], Json(known)).into_response())
}

/// Says what is known of many addresses, a line each, in their order.
#[utoipa::path(
    post, path = "/v1/names", operation_id = "names", tag = "names",
    request_body(
        description = "An address a line: as it is, as a JSON string, or as the member `address` of an object; \
                       10,000 lines and 1 MiB at most. Blank lines are neither counted nor answered.",
        content((String = "application/x-ndjson"), (String = "text/plain")),
    ),
    responses(
        (
            status = 200, content_type = "application/x-ndjson", body = KnownAddress,
            description = "An object for each line, in their order; a Problem for one that is no address, none for a \
                           blank one.",
        ),
        (status = 400, description = "The body broke off.", body = Problem),
        (status = 401, description = "Only this machine may ask, and asks under a host's name.", body = Problem),
        (status = 403, description = "Only this machine may ask, and a page of another origin does.", body = Problem),
        (status = 408, description = "The body came too slowly.", body = Problem),
        (status = 413, description = "There are too many addresses, or the body is too long.", body = Problem),
        (status = 415, description = "The body is of another type.", body = Problem),
        (status = 503, description = "Too many bulk requests are under way.", body = Problem),
    ),
)]
pub(super) async fn bulk(
    State(http): State<Http>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
) -> Result<Response, Failure> {
    let Ok(_place) = http.bulks.clone().try_acquire_owned() else {
        let what = "too many bulk requests are under way";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, what, "the same again shortly"));
    };
    let text = web::body::read(request, &[NDJSON, "text/plain"], BULK_MAX).await?;
    let now = seconds(http.clock.now());
    let lines = answer(&http.front, &http.front.view(), peer.ip(), now, &text)?;
    Ok(([(CONTENT_TYPE, NDJSON), (CACHE_CONTROL, "no-store")], lines).into_response())
}

/// Answers the lines of a bulk request: each is an address as it is, as a JSON string, or as the member `address` of an
/// object. What is none is told in its line's place, by its number among all lines; blank lines have no answer.
///
/// # Errors
/// The refusal of too many lines.
pub fn answer(front: &Front, view: &View, client: IpAddr, now: u32, text: &[u8]) -> Result<Vec<u8>, Failure> {
    let lines = || {
        let lines = text.split(|octet| *octet == b'\n').map(<[u8]>::trim_ascii);
        (1_usize..).zip(lines).filter(|(_, line)| !line.is_empty())
    };
    if lines().nth(LINES_MAX).is_some() {
        front.counts().refused.fetch_add(1, Ordering::Relaxed);
        let expected = format!("at most {LINES_MAX} in a request");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "there are too many addresses", expected));
    }
    let (mut out, mut addresses) = (Vec::new(), Vec::with_capacity(TOGETHER));
    let know = |addresses: &mut Vec<IpAddr>, out: &mut Vec<u8>| {
        front.look_up_each(view, addresses, client, now, |address, known, name| {
            let written = serde_json::to_writer(&mut *out, &tell(front, address, known, name));
            end_line(out, written);
        });
        addresses.clear();
    };
    for (number, line) in lines() {
        match address(line) {
            Some(address) => addresses.push(address),
            None => {
                know(&mut addresses, &mut out);
                front.counts().refused.fetch_add(1, Ordering::Relaxed);
                let expected = "192.0.2.1, \"192.0.2.1\" or {\"address\": \"192.0.2.1\"}";
                let problem = Problem::new(format!("line {number} is no address"), expected);
                let written = serde_json::to_writer(&mut out, &problem);
                end_line(&mut out, written);
            }
        }
        if addresses.len() == TOGETHER {
            know(&mut addresses, &mut out);
        }
    }
    know(&mut addresses, &mut out);
    Ok(out)
}

fn end_line(out: &mut Vec<u8>, written: serde_json::Result<()>) {
    written.expect("a vector takes everything");
    out.push(b'\n');
}

fn address(line: &[u8]) -> Option<IpAddr> {
    if let Some(b'"' | b'{') = line.first() {
        return serde_json::from_slice::<AskedAddress>(line).ok()?.text().parse().ok();
    }
    std::str::from_utf8(line).ok()?.parse().ok()
}

/// Says what was found.
fn tell(front: &Front, address: IpAddr, known: Known, name: &NameText) -> KnownAddress {
    let identity = front.identify(address, &known, name);
    let mut said = KnownAddress {
        address: address.to_canonical().to_string(),
        state: known.word().into(),
        identity: identity.word().into(),
        crawler: identity.crawler().map(Into::into),
        ..KnownAddress::default()
    };
    let since = match known {
        Known::Name(since, verdict) => {
            said.name = Some(name.as_str().into());
            said.verdict = Some(verdict.word().into());
            since
        }
        Known::NoName(since) => since,
        Known::Failed(why, since) => {
            said.why = Some(why.word().into());
            since
        }
        Known::NotYet => return said,
    };
    (said.age_seconds, said.left_seconds, said.stale) = (Some(since.age), Some(since.left), since.stale);
    said
}
