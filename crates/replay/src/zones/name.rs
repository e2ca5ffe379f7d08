//! Names in wire form and lower case, and which of several is the closest.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::iter;

/// A valid uncompressed name in lower case.
pub(super) type Name = Box<[u8]>;

/// The root.
pub(super) const ROOT: &[u8] = &[0];

/// The name without its first label; `None` of the root.
pub(super) fn parent(name: &[u8]) -> Option<&[u8]> {
    match name.first() {
        None | Some(0) => None,
        Some(length) => name.get(1 + usize::from(*length)..),
    }
}

/// The name and all above it, up to the root.
pub(super) fn upward(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::successors(Some(name), |name| parent(name))
}

/// How many labels a name has, the root's not counted.
pub(super) fn labels(name: &[u8]) -> usize {
    upward(name).count() - 1
}

/// The first of the name and of those above it that is in the set.
pub(super) fn closest<'a>(set: &'a BTreeSet<Name>, name: &[u8]) -> Option<&'a Name> {
    upward(name).find_map(|name| set.get(name))
}

/// The same, of those above it alone.
pub(super) fn closest_above<'a>(set: &'a BTreeSet<Name>, name: &[u8]) -> Option<&'a Name> {
    closest(set, parent(name)?)
}

/// A name of these labels below another; `None` where it would be too long.
pub(super) fn below(labels: &[&str], name: impl Borrow<[u8]>) -> Option<Name> {
    let mut wire = Vec::new();
    for label in labels {
        wire.push(u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?);
        wire.extend_from_slice(label.as_bytes());
    }
    wire.extend_from_slice(name.borrow());
    (wire.len() <= LENGTH_MAX).then(|| wire.into())
}

/// The most octets of a name (RFC 1035 §3.1).
const LENGTH_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_found_by_going_upward() {
        let name = |text: &str| Name::from(dns::name::folded_from_text(text).expect("a name"));
        let set = BTreeSet::from([name("example."), name("."), name("b.example.")]);
        for (asked, expected, above) in [
            ("a.b.example.", "b.example.", Some("b.example.")),
            ("b.example.", "b.example.", Some("example.")),
            ("c.example.", "example.", Some("example.")),
            ("test.", ".", Some(".")),
            (".", ".", None),
        ] {
            assert_eq!(closest(&set, &name(asked)), Some(&name(expected)), "{asked}");
            assert_eq!(closest_above(&set, &name(asked)), above.map(name).as_ref(), "{asked}");
        }
        assert_eq!((labels(ROOT), labels(&name("a.b."))), (0, 2));
        assert_eq!(below(&["a", "b"], ROOT), Some(name("a.b.")));
        let long = below(&["a"; 127], ROOT).expect("127 labels of one octet are 255 octets");
        assert_eq!(below(&["a"], long), None);
        assert_eq!(below(&[""], ROOT), None);
    }
}
