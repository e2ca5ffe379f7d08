//! What bodies the API takes.

use axum::extract::Request;
use serde::de::DeserializeOwned;

use api::{Fault, Faults};

use super::reply::Failure;

pub(super) use web::body::read;

/// The longest zone or partition that is taken over HTTP, in octets: a million records, or all routed
/// prefixes of the Internet several times over. Longer ones come from files.
pub const TEXT_MAX: usize = 64 << 20;

/// The longest policy in octets, the same as of a file: whoever controls its rows puts all of what was read there.
pub const POLICY_MAX: usize = api::file::WRITTEN_MAX as usize;

/// The longest other body in octets: each holds a name and an address at most.
pub const JSON_MAX: usize = 16 << 10;

/// What any text may be sent as.
pub(super) const PLAIN: &str = "text/plain";

/// The type of all that is neither a master file nor CSV.
pub(super) const JSON: &str = "application/json";

/// Reads a JSON object of at most [`JSON_MAX`] octets.
pub(super) async fn object<T: DeserializeOwned>(request: Request) -> Result<T, Failure> {
    let text = read(request, &[JSON], JSON_MAX).await?;
    parse(&text).map_err(|fault| Faults::from(fault).into())
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Fault> {
    // Serde would also take a list of the members' values in their order.
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(Fault::at("body", 1, 1, "no JSON object", "'{'"));
    }
    serde_json::from_slice(text).map_err(|cause| {
        let said = cause.to_string();
        let what = said.split(" at line ").next().unwrap_or_default();
        let place = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        Fault::at("body", place(cause.line()), place(cause.column()), what, "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Explain, NewRegion};

    #[test]
    fn faults_of_json_have_their_place() {
        let region = |text: &str| parse::<NewRegion>(text.as_bytes()).map_err(|fault| fault.to_string());
        assert_eq!(region(" {\"name\":\"a\"}"), Ok(NewRegion { name: "a".into() }));
        for (text, fault) in [
            ("", "body:1:1: no JSON object; expected '{'"),
            ("[\"a\"]", "body:1:1: no JSON object; expected '{'"),
            ("{}", "body:1:2: missing field `name`"),
            ("{\n\"name\":3}", "body:2:8: invalid type: integer `3`, expected a string"),
            ("{\"name\":\"a\"} x", "body:1:14: trailing characters"),
            ("{\"name\":\"a\",\"x\":1}", "body:1:15: unknown field `x`, expected `name`"),
        ] {
            assert_eq!(region(text), Err(fault.into()), "{text}");
        }
        assert!(parse::<Explain>(br#"{"name":"a","type":"MX","client":"::1"}"#).is_err());
    }
}
