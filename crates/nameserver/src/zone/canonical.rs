//! The canonical form of record data (RFC 4034 §6.2): what signatures are over, and whether records are the same.

use std::borrow::Cow;
use std::ops::Range;

use dns::Rtype;

/// Record data in canonical form: names in it are folded, of the types that RFC 4034 lists and that are in use (of the others
/// RFC 6840 §5.1 took NSEC out, and A6, NXT and SIG are obsolete). All others stay as they are (RFC 3597 §7).
pub(super) fn canonical(rtype: Rtype, data: &[u8]) -> Cow<'_, [u8]> {
    let names = names_in(rtype, data);
    // No length of a label is a letter.
    if !data[names.clone()].iter().any(u8::is_ascii_uppercase) {
        return data.into();
    }
    let mut folded = data.to_vec();
    folded[names].make_ascii_lowercase();
    folded.into()
}

/// Where the names are that are folded.
fn names_in(rtype: Rtype, data: &[u8]) -> Range<usize> {
    let (mut start, mut end) = (0, data.len());
    match rtype {
        Rtype::NS | Rtype::MD | Rtype::MF | Rtype::CNAME | Rtype::MB | Rtype::MG | Rtype::MR => {}
        Rtype::PTR | Rtype::DNAME | Rtype::MINFO | Rtype::RP => {}
        Rtype::SOA => end = end.saturating_sub(super::SOA_NUMBERS),
        Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::PX => start = 2,
        Rtype::SRV => start = 6,
        Rtype::NAPTR => {
            start = 4;
            for _ in 0..3 {
                start += 1 + data.get(start).map_or(0, |length| usize::from(*length));
            }
        }
        _ => start = end,
    }
    start.min(end)..end
}

#[cfg(test)]
mod tests {
    use super::super::Walk;
    use super::super::tests::{HEAD, build, name};
    use super::*;
    use crate::names::NameHash;

    #[test]
    fn only_names_are_folded_and_only_of_old_types() {
        for (record, folded) in [
            ("NS A.B.", "NS a.b."),
            ("MX 16705 A.B.", "MX 16705 a.b."),
            ("PX 16705 A.B. C.D.", "PX 16705 a.b. c.d."),
            ("SRV 16705 16705 16705 A.B.", "SRV 16705 16705 16705 a.b."),
            ("NAPTR 16705 16705 \"A\" \"BC\" \"DEF\" A.B.", "NAPTR 16705 16705 \"A\" \"BC\" \"DEF\" a.b."),
            ("RP A.B. C.D.", "RP a.b. c.d."),
            ("TXT \"A\"", "TXT \"A\""),
            ("CAA 0 ISSUE \"A\"", "CAA 0 ISSUE \"A\""),
            ("SVCB 1 A.B.", "SVCB 1 A.B."),
            ("LP 10 A.B.", "LP 10 A.B."),
        ] {
            let data = |record: &str| {
                let (zone, hash) = (build(&format!("{HEAD}x {record}\n")), NameHash::new(1));
                let (Walk::Name(found) | Walk::Delegation(found, _)) = zone.walk(&name("x.example"), &hash)
                else {
                    panic!("x exists")
                };
                let set = found.rrsets().next().expect("it has one");
                (set.rtype, set.data().next().expect("of one record").to_vec())
            };
            let (rtype, octets) = data(record);
            assert_eq!(canonical(rtype, &octets), data(folded).1, "{record}");
            for length in 0..octets.len() {
                let _ = canonical(rtype, &octets[..length]);
            }
        }
        // ORIGIN. MAILBOX. 16705 16705 16705 16705 16705
        let soa = [&b"\x01A\0\x01B\0"[..], &[b'A'; 20]].concat();
        assert_eq!(canonical(Rtype::SOA, &soa), [&b"\x01a\0\x01b\0"[..], &[b'A'; 20]].concat());
    }
}
