//! Serial numbers of SOA records: which is the later one (RFC 1982).

/// Whether serial number `new` is greater than `old` on the circle of 2^32 numbers (RFC 1982 §3.2).
///
/// Numbers that are exactly 2^31 apart have no order; then it is false both ways.
pub fn is_greater(new: u32, old: u32) -> bool {
    new != old && new.wrapping_sub(old) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_go_round() {
        for (new, old, expected) in [
            (2, 1, true),
            (1, 1, false),
            (1, 2, false),
            (0, u32::MAX, true),
            (u32::MAX, 0, false),
            ((1 << 31) - 1, 0, true),
            (1 << 31, 0, false),
            (0, 1 << 31, false),
            ((1 << 31) + 1, 0, false),
            (0, (1 << 31) + 1, true),
        ] {
            assert_eq!(is_greater(new, old), expected, "{new} after {old}");
        }
    }
}
