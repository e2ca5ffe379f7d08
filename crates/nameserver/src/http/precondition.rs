//! Entity tags: what a client believes there is (RFC 9110 §13).

use axum::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};

use super::reply::Failure;
use crate::book::Etag;
use crate::edit::Refused;

/// What a header of preconditions says.
#[derive(Debug, PartialEq, Eq)]
pub enum Tags {
    /// `*`: whatever there is.
    Any,
    /// One of these; the flag tells those that were marked as weak.
    OneOf(Vec<(String, bool)>),
}

/// What the editor takes for any tag; no tag of content is like it.
const ANY: &str = "*";

/// The tag that a change depends on, for the editor to compare when the change's turn comes.
///
/// `current` looks up what there is; it is asked only where the header has several tags to choose from. What
/// is changed by another between this look and the change's turn is then a precondition that failed.
///
/// # Errors
/// 412 where no tag can match, 400 where the header cannot be read, or asks for what changes do not offer.
pub(super) fn if_match(
    headers: &HeaderMap,
    current: impl FnOnce() -> Option<Etag>,
) -> Result<Option<Etag>, Failure> {
    if headers.contains_key(IF_NONE_MATCH) {
        let what = "If-None-Match is not heeded by changes";
        return Err(Failure::new(StatusCode::BAD_REQUEST, what, "If-Match, or neither"));
    }
    let tags = match tags(headers, IF_MATCH)? {
        None => return Ok(None),
        Some(Tags::Any) => return Ok(Some(Etag(ANY.into()))),
        Some(Tags::OneOf(tags)) => tags,
    };
    if let [(tag, false)] = tags.as_slice()
        && tag != ANY
    {
        return Ok(Some(Etag(tag.clone())));
    }
    // Strong comparison (RFC 9110 §8.8.3.2): a weak tag never matches.
    let matches = |current: &Etag| tags.iter().any(|(tag, weak)| !weak && *tag == current.0);
    match current() {
        Some(current) if matches(&current) => Ok(Some(current)),
        current => Err(Refused::Precondition { current }.into()),
    }
}

/// Whether the client has what there is, so that it need not be sent again.
///
/// # Errors
/// 400 where the header cannot be read.
pub(super) fn is_known(headers: &HeaderMap, current: &Etag) -> Result<bool, Failure> {
    Ok(match tags(headers, IF_NONE_MATCH)? {
        None => false,
        Some(Tags::Any) => true,
        Some(Tags::OneOf(tags)) => tags.iter().any(|(tag, _)| *tag == current.0),
    })
}

fn tags(headers: &HeaderMap, name: HeaderName) -> Result<Option<Tags>, Failure> {
    let lines: Option<Vec<&str>> = headers.get_all(&name).iter().map(|line| line.to_str().ok()).collect();
    let malformed = || {
        let what = format!("{name} cannot be read");
        Failure::new(StatusCode::BAD_REQUEST, what, "tags in double quotes, with commas between them, or *")
    };
    let lines = lines.ok_or_else(malformed)?;
    if lines.is_empty() {
        return Ok(None);
    }
    Tags::read(&lines.join(",")).map(Some).ok_or_else(malformed)
}

impl Tags {
    /// Reads `*` or a list of tags; empty elements are allowed (RFC 9110 §5.6.1.2). The list is bounded by
    /// [`HEAD_MAX`](web::serve::HEAD_MAX).
    pub fn read(value: &str) -> Option<Tags> {
        let mut rest = value.trim_matches([' ', '\t']);
        if rest == "*" {
            return Some(Tags::Any);
        }
        let mut tags = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix(',') {
                rest = after.trim_start_matches([' ', '\t']);
                continue;
            }
            let (weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |quoted| (true, quoted));
            let (tag, after) = quoted.strip_prefix('"')?.split_once('"')?;
            if tag.bytes().any(|byte| !byte.is_ascii_graphic()) {
                return None;
            }
            tags.push((tag.to_owned(), weak));
            rest = after.trim_start_matches([' ', '\t']);
            if !rest.is_empty() && !rest.starts_with(',') {
                return None;
            }
        }
        (!tags.is_empty()).then_some(Tags::OneOf(tags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_rfc_9110_has_them() {
        let one = |tag: &str| Some(Tags::OneOf(vec![(tag.into(), false)]));
        for (value, expected) in [
            ("*", Some(Tags::Any)),
            ("\"a\"", one("a")),
            ("\"\"", one("")),
            (" \"a,b\" ", one("a,b")),
            ("W/\"a\"", Some(Tags::OneOf(vec![("a".into(), true)]))),
            ("\"a\", W/\"b\"", Some(Tags::OneOf(vec![("a".into(), false), ("b".into(), true)]))),
            (",\"a\",,", one("a")),
            ("", None),
            (",", None),
            ("a", None),
            ("\"a", None),
            ("\"a b\"", None),
            ("\"a\"\"b\"", None),
            ("w/\"a\"", None),
            ("*, \"a\"", None),
        ] {
            assert_eq!(Tags::read(value), expected, "{value}");
        }
    }

    #[test]
    fn if_match_yields_the_tag_to_compare_or_412() {
        let check = |value: &str, current: Option<&str>| {
            let headers = HeaderMap::from_iter([(IF_MATCH, value.parse().expect("a header"))]);
            if_match(&headers, || current.map(|tag| Etag(tag.into())))
                .map(|tag| tag.expect("a tag").0)
                .map_err(|failure| failure.status.as_u16())
        };
        for (value, current, expected) in [
            ("\"a\"", None, Ok("a")),
            ("\"a\", \"b\"", Some("b"), Ok("b")),
            ("\"a\", \"b\"", Some("c"), Err(412)),
            ("\"a\", \"b\"", None, Err(412)),
            ("*", None, Ok("*")),
            ("\"*\"", Some("a"), Err(412)),
            ("W/\"a\"", Some("a"), Err(412)),
            ("a", Some("a"), Err(400)),
        ] {
            assert_eq!(check(value, current), expected.map(Into::into), "{value} {current:?}");
        }
        assert!(if_match(&HeaderMap::new(), || None).is_ok_and(|tag| tag.is_none()));
        let never = HeaderMap::from_iter([(IF_NONE_MATCH, "*".parse().expect("a header"))]);
        assert_eq!(if_match(&never, || None).unwrap_err().status, StatusCode::BAD_REQUEST);
    }
}
