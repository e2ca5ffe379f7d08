//! Entity tags: what a client believes there is (RFC 9110 §13).

use axum::http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::reply::Failure;
use crate::book::{Condition, Etag};
use crate::edit::Refused;

/// What a header of preconditions says.
#[derive(Debug, PartialEq, Eq)]
pub enum Tags {
    /// `*`: whatever there is.
    Any,
    /// One of these; the flag tells those that were marked as weak.
    OneOf(Vec<(String, bool)>),
}

/// What a change depends on, for the editor to look at when the change's turn comes.
///
/// `current` looks up what there is; it is asked only where the header has several tags to choose from. What
/// is changed by another between this look and the change's turn is then a precondition that failed.
///
/// # Errors
/// 412 where no tag can match, 400 where the header cannot be read, or asks for what changes do not offer; that of
/// `current`.
pub(super) async fn condition(
    headers: &HeaderMap,
    current: impl AsyncFnOnce() -> Result<Option<Etag>, Failure>,
) -> Result<Condition, Failure> {
    let expected = match (tags(headers, IF_MATCH)?, tags(headers, IF_NONE_MATCH)?) {
        (None, None) => return Ok(Condition::Always),
        (Some(Tags::Any), None) => return Ok(Condition::Exists),
        (None, Some(Tags::Any)) => return Ok(Condition::Absent),
        (Some(Tags::OneOf(tags)), None) => tags,
        (_, Some(_)) => {
            let what = "a change heeds If-None-Match only as *, and not beside If-Match";
            return Err(Failure::new(StatusCode::BAD_REQUEST, what, "one of the two, or neither"));
        }
    };
    if let [(tag, false)] = expected.as_slice() {
        return Ok(Condition::Is(Etag(tag.clone())));
    }
    // Strong comparison (RFC 9110 §8.8.3.2): a weak tag never matches.
    let matches = |current: &Etag| expected.iter().any(|(tag, weak)| !weak && *tag == current.0);
    match current().await? {
        Some(current) if matches(&current) => Ok(Condition::Is(current)),
        current => Err(Refused::Precondition { current }.into()),
    }
}

/// Lets a change through that depends on nothing, where there are no tags that it could depend on.
///
/// # Errors
/// 412 where the change depends on a tag: no tag matches what has none.
pub(super) fn none(headers: &HeaderMap) -> Result<(), Failure> {
    if [IF_MATCH, IF_NONE_MATCH].iter().any(|name| headers.contains_key(name)) {
        let what = "regions and states of servers have no tags that If-Match or If-None-Match could match";
        return Err(Failure::new(StatusCode::PRECONDITION_FAILED, what, "a change without these headers"));
    }
    Ok(())
}

/// Something with a tag, or 304 for a client that has it.
pub(super) fn tagged(
    asked: &HeaderMap,
    etag: &Etag,
    content_type: &'static str,
    body: impl Into<axum::body::Body>,
) -> Result<Response, Failure> {
    let quoted = HeaderValue::from_str(&format!("\"{}\"", etag.0)).expect("tags are plain text");
    if is_known(asked, etag)? {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, quoted)]).into_response());
    }
    let headers = [(ETAG, quoted), (CONTENT_TYPE, HeaderValue::from_static(content_type))];
    Ok((headers, body.into()).into_response())
}

/// Whether the client has what there is, so that it need not be sent again.
///
/// # Errors
/// 400 where the header cannot be read.
fn is_known(headers: &HeaderMap, current: &Etag) -> Result<bool, Failure> {
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
    fn what_has_no_tag_matches_none() {
        let check = |lines: &[(HeaderName, &str)]| {
            let lines = lines.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header")));
            none(&HeaderMap::from_iter(lines)).map_err(|failure| failure.status.as_u16())
        };
        assert_eq!(check(&[]), Ok(()));
        for lines in [(IF_MATCH, "*"), (IF_MATCH, "\"a\""), (IF_NONE_MATCH, "*"), (IF_MATCH, "a")] {
            assert_eq!(check(std::slice::from_ref(&lines)), Err(412), "{lines:?}");
        }
    }

    #[tokio::test]
    async fn a_condition_is_read_from_either_header() {
        let check = async |lines: &[(HeaderName, &str)], current: Option<&str>| {
            let lines = lines.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header")));
            condition(&HeaderMap::from_iter(lines), async || Ok(current.map(|tag| Etag(tag.into()))))
                .await
                .map_err(|failure| failure.status.as_u16())
        };
        let is = |tag: &str| Ok(Condition::Is(Etag(tag.into())));
        for (value, current, expected) in [
            ("\"a\"", None, is("a")),
            ("\"a\", \"b\"", Some("b"), is("b")),
            ("\"a\", \"b\"", Some("c"), Err(412)),
            ("\"a\", \"b\"", None, Err(412)),
            ("*", None, Ok(Condition::Exists)),
            ("\"*\"", Some("a"), is("*")),
            ("W/\"a\"", Some("a"), Err(412)),
            ("a", Some("a"), Err(400)),
        ] {
            assert_eq!(check(&[(IF_MATCH, value)], current).await, expected, "{value} {current:?}");
        }
        assert_eq!(check(&[], None).await, Ok(Condition::Always));
        assert_eq!(check(&[(IF_NONE_MATCH, "*")], Some("a")).await, Ok(Condition::Absent));
        for lines in [&[(IF_NONE_MATCH, "\"a\"")][..], &[(IF_NONE_MATCH, "*"), (IF_MATCH, "*")]] {
            assert_eq!(check(lines, None).await, Err(400), "{lines:?}");
        }
    }
}
