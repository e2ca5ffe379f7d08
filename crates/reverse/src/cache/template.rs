//! Names without their address: most providers' names have the address's own digits in them.
//!
//! Octets from 128 on stand for digits of the IPv4 address `a.b.c.d`; names have none of them.
//! ```text
//! 0x80 + i   octet i in decimal            0x90  a-b-c-d      0x92  d-c-b-a
//! 0x84 + i   with three digits             0x91  a.b.c.d      0x93  d.c.b.a
//! 0x88 + i   with two hexadecimal digits
//! ```
//! So a whole pool of addresses has one name to keep.

use crate::name::Room;

/// What stands for the decimal octets with a separator.
const WHOLE: [(u8, [u8; 7]); 4] = [
    (0x90, [0x80, b'-', 0x81, b'-', 0x82, b'-', 0x83]),
    (0x91, [0x80, b'.', 0x81, b'.', 0x82, b'.', 0x83]),
    (0x92, [0x83, b'-', 0x82, b'-', 0x81, b'-', 0x80]),
    (0x93, [0x83, b'.', 0x82, b'.', 0x81, b'.', 0x80]),
];

/// Writes `name` with the digits of `octets` replaced; without an address, as it is.
pub(super) fn encode(name: &[u8], octets: Option<[u8; 4]>, out: &mut Vec<u8>) {
    out.clear();
    let Some(octets) = octets else { return out.extend_from_slice(name) };
    let hex = octets.map(|octet| {
        [b"0123456789abcdef"[usize::from(octet >> 4)], b"0123456789abcdef"[usize::from(octet & 15)]]
    });
    let orders = [[0u8, 1, 2, 3], [3, 2, 1, 0]];
    let (mut at, mut expected) = (0, 0u8);
    while at < name.len() {
        let rest = &name[at..];
        let fresh = at == 0 || !name[at - 1].is_ascii_alphanumeric();
        let as_hex = orders.iter().find(|order| {
            fresh
                && rest.len() >= 8
                && order.iter().zip(rest.as_chunks::<2>().0).all(|(i, pair)| hex[usize::from(*i)] == *pair)
        });
        if let Some(order) = as_hex {
            out.extend(order.iter().map(|i| 0x88 + i));
            at += 8;
            continue;
        }
        let digits = rest.iter().take_while(|octet| octet.is_ascii_digit()).count();
        if digits == 0 {
            out.push(rest[0]);
            at += 1;
            continue;
        }
        let run = &rest[..digits];
        let padded = orders.iter().find(|order| {
            digits == 12
                && order
                    .iter()
                    .zip(run.as_chunks::<3>().0)
                    .all(|(i, three)| value(three) == Some(octets[usize::from(*i)]))
        });
        // Where two octets are equal, the one that follows the last is meant.
        let one =
            (0..4).map(|step| (expected + step) % 4).find(|i| value(run) == Some(octets[usize::from(*i)]));
        match (padded, one) {
            (Some(order), _) => out.extend(order.iter().map(|i| 0x84 + i)),
            (None, Some(i)) if digits == 3 && run[0] == b'0' => out.push(0x84 + i),
            (None, Some(i)) if run.len() == 1 || run[0] != b'0' => {
                out.push(0x80 + i);
                expected = (i + 1) % 4;
            }
            _ => out.extend_from_slice(run),
        }
        at += digits;
    }
    for (token, long) in WHOLE {
        if let Some(at) = out.windows(long.len()).position(|window| window == long) {
            out.splice(at..at + long.len(), [token]);
        }
    }
}

/// Where the part begins that other names may share: behind the first dot after all that is the address's own.
pub(super) fn shared_from(template: &[u8]) -> Option<usize> {
    let own = template.iter().rposition(|octet| *octet >= 0x80).unwrap_or(0);
    template[own..].iter().position(|octet| *octet == b'.').map(|dot| own + dot + 1)
}

/// What octets of templates have that stand for digits, in each of eight.
const TOKENS: u64 = 0x8080_8080_8080_8080;

/// Writes the lowest so many octets of eight of a template into `name`; an error where the name gets too long or the
/// template is none.
#[inline]
pub(super) fn decode(
    mut eight: u64,
    mut count: usize,
    octets: Option<[u8; 4]>,
    name: &mut Room<'_>,
) -> Result<(), ()> {
    loop {
        let tokens = eight & TOKENS;
        let plain = (tokens.trailing_zeros() / 8) as usize;
        if plain >= count {
            return name.append(eight, count);
        }
        name.append(eight, plain)?;
        eight >>= 8 * plain;
        stands_for(eight as u8, octets.ok_or(())?, name)?;
        eight >>= 8;
        count -= plain + 1;
    }
}

/// Writes what a token stands for.
#[inline]
fn stands_for(token: u8, octets: [u8; 4], name: &mut Room<'_>) -> Result<(), ()> {
    let value = octets[usize::from(token & 3)];
    let (hundreds, tens, ones) = digits(value);
    match token {
        0x80..=0x83 => decimal(value, name),
        0x84..=0x87 => name.append(u64::from_le_bytes([hundreds, tens, ones, 0, 0, 0, 0, 0]), 3),
        0x88..=0x8b => {
            let [high, low] = [value >> 4, value & 15].map(|d| b"0123456789abcdef"[usize::from(d)]);
            name.append(u64::from_le_bytes([high, low, 0, 0, 0, 0, 0, 0]), 2)
        }
        0x90..=0x93 => {
            let [a, b, c, d] = octets;
            let separator = if token & 1 == 0 { b'-' } else { b'.' };
            let [first @ .., last] = if token < 0x92 { [a, b, c, d] } else { [d, c, b, a] };
            for value in first {
                let (digits, count) = DECIMAL[usize::from(value)];
                let with = u64::from(digits) | u64::from(separator) << (8 * count);
                name.append(with, usize::from(count) + 1)?;
            }
            decimal(last, name)
        }
        _ => Err(()),
    }
}

const fn digits(value: u8) -> (u8, u8, u8) {
    (b'0' + value / 100, b'0' + value / 10 % 10, b'0' + value % 10)
}

#[inline]
fn decimal(value: u8, name: &mut Room<'_>) -> Result<(), ()> {
    let (digits, count) = DECIMAL[usize::from(value)];
    name.append(digits.into(), usize::from(count))
}

/// Each octet in decimal, the first digit lowest, and how many digits there are.
const DECIMAL: [(u32, u8); 256] = {
    let (mut all, mut value) = ([(0, 0); 256], 0);
    while value < 256 {
        let (hundreds, tens, ones) = digits(value as u8);
        all[value] = match value {
            100.. => (u32::from_le_bytes([hundreds, tens, ones, 0]), 3),
            10.. => (u32::from_le_bytes([tens, ones, 0, 0]), 2),
            _ => (ones as u32, 1),
        };
        value += 1;
    }
    all
};

/// The value of some digits, where it is an octet's.
fn value(digits: &[u8]) -> Option<u8> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::NameText;
    use proptest::prelude::*;

    fn encoded(name: &str, octets: [u8; 4]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(name.as_bytes(), Some(octets), &mut out);
        out
    }

    fn decoded(template: &[u8], octets: [u8; 4]) -> String {
        let mut name = NameText::EMPTY;
        let eight = |some: &[u8]| {
            let mut octets = [0xff; 8];
            octets[..some.len()].copy_from_slice(some);
            (u64::from_le_bytes(octets), some.len())
        };
        name.fill(|name| {
            let mut all = template.chunks(8).map(eight);
            all.try_for_each(|(eight, count)| decode(eight, count, Some(octets), name))
        })
        .unwrap();
        name.as_str().into()
    }

    #[test]
    fn a_pool_has_one_template() {
        for form in [
            |[a, b, c, d]: [u8; 4]| format!("ip-{a}-{b}-{c}-{d}.example.net"),
            |[a, b, c, d]: [u8; 4]| format!("{d}.{c}.{b}.{a}.dsl.example.net"),
            |[a, b, c, d]: [u8; 4]| format!("c{a:02x}{b:02x}-x.{a:02x}{b:02x}{c:02x}{d:02x}.example.net"),
            |[a, b, c, d]: [u8; 4]| format!("host{a:03}{b:03}{c:03}{d:03}.example.net"),
        ] {
            let (one, other) = ([93, 184, 216, 34], [93, 184, 17, 201]);
            assert_eq!(encoded(&form(one), one), encoded(&form(other), other), "{}", form(one));
            assert_eq!(decoded(&encoded(&form(one), one), other), form(other));
        }
        assert_eq!(encoded("ip-93-184-216-34.example", [93, 184, 216, 34]), b"ip-\x90.example");
    }

    #[test]
    fn the_shared_part_is_behind_the_address() {
        assert_eq!(shared_from(b"\x90.dsl.example.net"), Some(2));
        assert_eq!(shared_from(b"www.example.net"), Some(4));
        assert_eq!(shared_from(b"a.\x80b"), None);
        assert_eq!(shared_from(b"localhost"), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_the_same(octets: [u8; 4], parts in proptest::collection::vec(0..9usize, 1..12)) {
            let [a, b, c, d] = octets;
            let name: String = parts.into_iter().map(|part| match part {
                0 => format!("{a}"), 1 => format!("{b:03}"), 2 => format!("{c:02x}"), 3 => format!("{d}"),
                4 => "-".into(), 5 => ".".into(), 6 => "0".into(),
                7 => format!("{a:02x}{b:02x}{c:02x}{d:02x}"), _ => "x".to_owned(),
            }).collect();
            let template = encoded(&name, octets);
            prop_assert!(template.len() <= name.len());
            prop_assert_eq!(decoded(&template, octets), name);
        }
    }
}
