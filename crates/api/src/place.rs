//! Where a value stands in a JSON text, so that every fault can name line and column.
//!
//! What a person wrote is checked for its meaning after it was read, and its places are forgotten by then. An [`Origin`] maps
//! JSON pointers (RFC 6901), in which those checks name a value, to places.

use std::collections::HashMap;
use std::fmt::{Display, Write};

use crate::fault::{Fault, Faults};
use crate::json::{Scanner, Text};

/// Something wrong with the meaning of a value, which a JSON pointer (RFC 6901) names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointed {
    /// The value, such as `/servers/1/address`; made with [`pointer()`].
    pub pointer: String,
    /// What is wrong, in lower case, without a full stop.
    pub what: String,
    /// What was expected instead; may be empty.
    pub expected: String,
}

/// What a checked value was read from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Its name in faults: a file's path, `body`, or what the value is, such as `policy www.example.com`.
    pub source: &'a str,
    /// The JSON text, where it is at hand.
    pub text: Option<&'a str>,
}

impl Origin<'_> {
    /// Turns pointed faults into faults with line and column, in the order of the text. A value that is not in the text is
    /// placed where the innermost one around it begins. Where the text is not at hand the pointer follows the source's
    /// name.
    pub fn place(&self, pointed: Vec<Pointed>) -> Faults {
        let mut faults = Faults::default();
        let Some(text) = self.text.and_then(|text| Text::check(self.source, text).ok()) else {
            for fault in pointed {
                let source = format!("{} {}", self.source, fault.pointer);
                faults.push(Fault::whole(source, fault.what, fault.expected));
            }
            return faults;
        };
        let pointers = pointed.iter().flat_map(|fault| around(&fault.pointer));
        let mut places: HashMap<&str, Option<usize>> = pointers.map(|pointer| (pointer, None)).collect();
        locate(&mut text.scanner(), &mut String::new(), &mut places);
        let place = |fault: &Pointed| around(&fault.pointer).filter_map(|pointer| places[pointer]).last();
        let mut placed: Vec<(usize, &Pointed)> =
            pointed.iter().map(|fault| (place(fault).unwrap_or(0), fault)).collect();
        placed.sort_by_key(|(at, _)| *at);
        for (at, fault) in placed {
            faults.push(text.fault(at, fault.what.clone(), fault.expected.clone()));
        }
        faults
    }
}

/// The JSON pointer of these keys and indices, with `~` and `/` escaped (RFC 6901 §3).
pub fn pointer(tokens: &[&dyn Display]) -> String {
    let mut pointer = String::new();
    for token in tokens {
        extend(&mut pointer, token);
    }
    pointer
}

/// Makes a pointer one of something in the value that it names.
fn extend(pointer: &mut String, token: impl Display) {
    let token = token.to_string().replace('~', "~0").replace('/', "~1");
    write!(pointer, "/{token}").expect("a String takes everything");
}

/// The pointers of the values around the one that `pointer` names, from the outermost on, and it.
fn around(pointer: &str) -> impl Iterator<Item = &str> {
    pointer.match_indices('/').map(|(at, _)| &pointer[..at]).chain([pointer])
}

/// Passes over the next value, whose pointer is `path`, and notes where it and the values in it begin, as far as `places` has
/// their pointers. Of a key that stands there twice the first counts.
fn locate(scanner: &mut Scanner<'_>, path: &mut String, places: &mut HashMap<&str, Option<usize>>) {
    let first = scanner.peek();
    match places.get_mut(path.as_str()) {
        Some(place) if place.is_none() => *place = Some(scanner.at),
        _ => return scanner.skip(),
    }
    let length = path.len();
    match first {
        Some(b'{') => {
            scanner.at += 1;
            while let Some((_, key)) = scanner.key() {
                extend(path, key);
                locate(scanner, path, places);
                path.truncate(length);
            }
        }
        Some(b'[') => {
            scanner.at += 1;
            let mut index = 0_usize;
            while scanner.has_more(b']') {
                extend(path, index);
                locate(scanner, path, places);
                path.truncate(length);
                index += 1;
            }
        }
        _ => scanner.skip(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "{\n  \"a/b\": [1, {\"x~\": \"\\u00e9\\\"\"}, null],\n  \"c\": -1.5e3, \"c\": 2}\n";

    #[test]
    fn pointers_lead_to_places() {
        for (keys, line, column) in [
            (&[][..], 1, 1),
            (&["a/b"], 2, 10),
            (&["a/b", "0"], 2, 11),
            (&["a/b", "1", "x~"], 2, 21),
            (&["a/b", "1", "none", "x"], 2, 14),
            (&["a/b", "2"], 2, 34),
            (&["a/b", "3"], 2, 10),
            (&["c"], 3, 8),
            (&["c", "d"], 3, 8),
            (&["d"], 1, 1),
        ] {
            let keys: Vec<&dyn Display> = keys.iter().map(|key| key as &dyn Display).collect();
            let pointer = pointer(&keys);
            let fault = Pointed { pointer: pointer.clone(), what: "bad".into(), expected: "good".into() };
            let faults = Origin { source: "body", text: Some(TEXT) }.place(vec![fault.clone()]);
            assert_eq!(faults.faults, [Fault::at("body", line, column, "bad", "good")], "{pointer}");
            let faults = Origin { source: "policy x", text: None }.place(vec![fault]);
            assert_eq!(faults.to_string(), format!("policy x {pointer}: bad; expected good"));
        }
    }

    #[test]
    fn faults_come_in_the_order_of_the_text() {
        let fault =
            |pointer: &str| Pointed { pointer: pointer.into(), what: "bad".into(), expected: "".into() };
        let pointed = ["/c", "/a~1b/1", "", "/a~1b/0"].map(fault).into();
        let faults = Origin { source: "body", text: Some(TEXT) }.place(pointed);
        let places: Vec<_> = faults.faults.iter().map(|fault| (fault.line, fault.column)).collect();
        assert_eq!(
            places,
            [(1, 1), (2, 11), (2, 14), (3, 8)].map(|(line, column)| (Some(line), Some(column)))
        );
    }

    proptest! {
        /// Also where it is no JSON.
        #[test]
        fn any_pointer_into_any_text_has_a_place(
            text in "[\\[\\]{},:\"\\\\ 0-9a-zé\n]{0,30}|(?s).{0,40}",
            pointer in "(/.{0,3}){0,4}|.{0,9}",
        ) {
            let pointed = Pointed { pointer, what: "bad".into(), expected: "".into() };
            let faults = Origin { source: "body", text: Some(&text) }.place(vec![pointed]);
            prop_assert_eq!(faults.faults.len(), 1);
        }
    }
}
