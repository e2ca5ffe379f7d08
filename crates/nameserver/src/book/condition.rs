//! What must hold for a change to be made (RFC 9110 §13.1).

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::Refused;

/// What stands for the content of something: equal content, equal tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etag(pub String);

impl Etag {
    /// The tag of some text, the same in all versions of the program: stores keep it, and several servers share them.
    pub fn of(text: &[u8]) -> Etag {
        let mut hasher = SipHasher13::new();
        hasher.write(text);
        Etag(format!("{:016x}", hasher.finish()))
    }
}

/// What must hold, when its turn comes, for that which a change puts or deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// It is there.
    Exists,
    /// It is not there.
    Absent,
    /// It is there, and this is its tag.
    Is(Etag),
}

impl Condition {
    /// Whether it holds; `current` looks up the tag of what is there, where that is asked.
    ///
    /// # Errors
    /// [`Refused::Precondition`] and [`Refused::Exists`] with what is there.
    pub(super) fn check(&self, current: impl FnOnce() -> Option<Etag>) -> Result<(), Refused> {
        let current = if *self == Condition::Always { None } else { current() };
        match (self, current) {
            (Condition::Always, _) | (Condition::Exists, Some(_)) | (Condition::Absent, None) => Ok(()),
            (Condition::Is(wanted), Some(current)) if *wanted == current => Ok(()),
            (Condition::Absent, Some(current)) => Err(Refused::Exists { current }),
            (Condition::Exists | Condition::Is(_), current) => Err(Refused::Precondition { current }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_what_it_was_when_stores_kept_it() {
        let expected = ["d1fba762150c532c", "d41ac78703412bdd"];
        assert_eq!([&b""[..], b"example.com. 300 IN A 192.0.2.1\n"].map(|text| Etag::of(text).0), expected);
    }

    #[test]
    fn a_condition_holds_or_tells_what_is_there() {
        let is = |tag: &str| Condition::Is(Etag(tag.into()));
        for (condition, current, expected) in [
            (Condition::Always, None, None),
            (Condition::Always, Some("a"), None),
            (Condition::Exists, Some("a"), None),
            (Condition::Exists, None, Some("there is nothing of this name that If-Match could match")),
            (Condition::Absent, None, None),
            (Condition::Absent, Some("a"), Some("it exists: its tag is \"a\"; get it first")),
            (is("a"), Some("a"), None),
            (is("a"), Some("b"), Some("it has changed meanwhile: its tag is \"b\"; get it again")),
            (is("a"), None, Some("there is nothing of this name that If-Match could match")),
        ] {
            let found = condition.check(|| current.map(|tag| Etag(tag.into())));
            let told = found.err().map(|refused| refused.to_string());
            assert_eq!(told.as_deref(), expected, "{condition:?} {current:?}");
        }
    }
}
