//! Places on Earth (RFC 1876): degrees, minutes and seconds, and metres.

use std::fmt::Write as _;
use std::slice::Iter;

use super::plain;

/// The octets of a LOC record's data (RFC 1876 §2).
pub(super) const LENGTH: usize = 16;

/// The equator and the prime meridian, from which thousandths of a second of arc are counted.
const MIDDLE: i64 = 1 << 31;

/// The height from which centimetres are counted: 100 km below the sea, the reference of GPS.
const BOTTOM_CM: i64 = 10_000_000;

/// Size, horizontal and vertical precision where they are not given: 1 m, 10 km, 10 m (RFC 1876 §3).
const PRECISIONS: [u8; 3] = [0x12, 0x16, 0x13];

/// The greatest size or precision, in centimetres.
const PRECISION_MAX_CM: u64 = 9_000_000_000;

/// Reads `D [M [S]] N|S D [M [S]] E|W ALTITUDE [SIZE [HORIZONTAL [VERTICAL]]]`.
pub(super) fn read(words: &mut Iter<'_, &[u8]>) -> Option<[u8; LENGTH]> {
    let latitude = angle(words, 90, ["N", "S"])?;
    let longitude = angle(words, 180, ["E", "W"])?;
    let altitude = plain(words.next()?)?;
    let (is_below, metres) = altitude.strip_prefix('-').map_or((false, altitude), |depth| (true, depth));
    let height = i64::try_from(centimetres(metres)?).ok()?;
    let altitude = BOTTOM_CM.checked_add(if is_below { -height } else { height })?;
    let altitude = u32::try_from(altitude).ok()?;
    let mut precisions = PRECISIONS;
    for (precision, word) in precisions.iter_mut().zip(words) {
        *precision = rounded(centimetres(plain(word)?)?)?;
    }
    let mut data = [0; LENGTH];
    data[1..4].copy_from_slice(&precisions);
    data[4..8].copy_from_slice(&latitude.to_be_bytes());
    data[8..12].copy_from_slice(&longitude.to_be_bytes());
    data[12..].copy_from_slice(&altitude.to_be_bytes());
    Some(data)
}

/// Writes all that [`read`] reads; `None` for another version than 0, and what is on no globe.
pub(super) fn text(data: &[u8]) -> Option<String> {
    let data: &[u8; LENGTH] = data.try_into().ok()?;
    let [0, precisions @ .., _, _, _, _, _, _, _, _, _, _, _, _] = data else { return None };
    let number = |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    let mut text = String::new();
    for (at, limit, [up, down]) in [(4, 90, ["N", "S"]), (8, 180, ["E", "W"])] {
        let from_middle = i64::from(number(at)) - MIDDLE;
        let thousandths = from_middle.unsigned_abs();
        if thousandths > limit * 3_600_000 {
            return None;
        }
        let (seconds, rest) = (thousandths / 1000, thousandths % 1000);
        let (degrees, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let half = if from_middle < 0 { down } else { up };
        write!(text, "{degrees} {minutes} {seconds}.{rest:03} {half} ")
            .expect("writing to a string cannot fail");
    }
    let height = i64::from(number(12)) - BOTTOM_CM;
    let sign = if height < 0 { "-" } else { "" };
    text += sign;
    text += &metres(height.unsigned_abs());
    for precision in precisions {
        let (digit, zeros) = (u64::from(precision >> 4), u32::from(precision & 0x0f));
        text.push(' ');
        text += &metres(digit.checked_mul(10u64.checked_pow(zeros)?)?);
    }
    Some(text)
}

/// Reads an angle of up to `limit` degrees and its half of the globe, as thousandths of a second from the other pole.
fn angle(words: &mut Iter<'_, &[u8]>, limit: u64, [up, down]: [&str; 2]) -> Option<u32> {
    // Degrees, minutes, seconds: thousandths of a second in each, digits behind the point, the most of it.
    let mut units = [(3_600_000, 0, limit * 1000), (60_000, 0, 59_000), (1000, 3, 59_999)].into_iter();
    let mut thousandths = 0;
    let from_middle = loop {
        let word = plain(words.next()?)?;
        let distance = i64::try_from(thousandths).ok().filter(|_| units.len() < 3);
        if word.eq_ignore_ascii_case(up) {
            break distance?;
        }
        if word.eq_ignore_ascii_case(down) {
            break -distance?;
        }
        let (unit, places, most) = units.next()?;
        thousandths += decimal(word, places, 3).filter(|value| *value <= most)? * unit / 1000;
    };
    u32::try_from(MIDDLE + from_middle).ok().filter(|_| thousandths <= limit * 3_600_000)
}

/// Reads metres, with an `m` behind them or none.
fn centimetres(word: &str) -> Option<u64> {
    decimal(word.strip_suffix(['m', 'M']).unwrap_or(word), 2, 2)
}

/// Reads digits with up to so many behind a point, as a multiple of 10 to the power of `-scale`.
fn decimal(word: &str, places_max: usize, scale: usize) -> Option<u64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let are_digits = |digits: &str| digits.bytes().all(|octet| octet.is_ascii_digit());
    if whole.is_empty() || fraction.len() > places_max || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    format!("{whole}{fraction:0<scale$}").parse().ok()
}

/// A size as its first digit and the number of zeros behind it: what is behind the first digit is lost
/// (RFC 1876 §2).
fn rounded(centimetres: u64) -> Option<u8> {
    if centimetres > PRECISION_MAX_CM {
        return None;
    }
    let zeros = centimetres.checked_ilog10().unwrap_or(0);
    let digit = centimetres / 10u64.pow(zeros);
    Some((digit as u8) << 4 | zeros as u8)
}

fn metres(centimetres: u64) -> String {
    match centimetres % 100 {
        0 => format!("{}m", centimetres / 100),
        rest => format!("{}.{rest:02}m", centimetres / 100),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_place_reads_back() {
        let precision = (1u8..=9, 0u8..=9).prop_map(|(digit, zeros)| digit << 4 | zeros);
        let precision = prop_oneof![Just(0), precision];
        let precisions = [precision.clone(), precision.clone(), precision];
        let (latitude, longitude) = (-324_000_000i64..=324_000_000, -648_000_000i64..=648_000_000);
        proptest!(|(precisions in precisions, latitude in latitude, longitude in longitude, height in any::<u32>())| {
            let mut data = vec![0];
            data.extend(precisions);
            for number in [MIDDLE + latitude, MIDDLE + longitude, height.into()] {
                data.extend(u32::try_from(number).expect("it is on the globe").to_be_bytes());
            }
            let text = text(&data).expect("it is on the globe");
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            let read = read(&mut words.iter());
            prop_assert_eq!(read.as_ref().map(|read| &read[..]), Some(&data[..]), "{}", text);
        });
    }
}
