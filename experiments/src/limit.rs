//! Where a value must lie, and how numbers are told.

use std::fmt;

/// Where a value must lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// At this value or above it.
    AtLeast(f64),
    /// At this value or below it.
    AtMost(f64),
    /// From the first value to the second, both included.
    Between(f64, f64),
    /// At just this value.
    Exactly(f64),
}

impl Limit {
    /// Whether a value lies within the limit.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Limit::AtLeast(least) => value >= least,
            Limit::AtMost(most) => value <= most,
            Limit::Between(least, most) => (least..=most).contains(&value),
            Limit::Exactly(one) => value == one,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Limit::AtLeast(least) => write!(f, "at least {}", told(least)),
            Limit::AtMost(most) => write!(f, "at most {}", told(most)),
            Limit::Between(least, most) => write!(f, "from {} to {}", told(least), told(most)),
            Limit::Exactly(one) => write!(f, "exactly {}", told(one)),
        }
    }
}

/// A number as people read it: whole ones with their thousands apart, others to four digits; what is none was not measured.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "not measured".into();
    }
    if value.fract() != 0.0 {
        let decimals = (3 - value.abs().log10().floor() as i32).clamp(0, 6);
        return format!("{value:.*}", decimals as usize);
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A limit as it was set; one that was computed has more digits than people read.
fn told(value: f64) -> String {
    let exact = value.to_string();
    if exact.len() > "-0.99999".len() { number(value) } else { exact }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_or_do_not() {
        for (limit, inside, outside) in [
            (Limit::AtLeast(2.0), vec![2.0, 3.0], vec![1.9, f64::NAN]),
            (Limit::AtMost(2.0), vec![2.0, -1.0], vec![2.1, f64::NAN]),
            (Limit::Between(1.0, 2.0), vec![1.0, 2.0], vec![0.9, 2.1, f64::NAN]),
            (Limit::Exactly(5.0), vec![5.0], vec![5.1, f64::NAN]),
        ] {
            assert!(inside.iter().all(|value| limit.holds(*value)), "{limit}");
            assert!(!outside.iter().any(|value| limit.holds(*value)), "{limit}");
        }
    }

    #[test]
    fn limits_are_told_as_they_were_set() {
        for (limit, told) in [
            (Limit::AtLeast(0.99995), "at least 0.99995"),
            (Limit::AtMost(1.1 * 1.1 * 1.1), "at most 1.331"),
            (Limit::Between(-0.5, 1e3 / 7.0), "from -0.5 to 142.9"),
            (Limit::Exactly(100_000.0), "exactly 100000"),
        ] {
            assert_eq!(limit.to_string(), told);
        }
    }

    #[test]
    fn numbers_read_well() {
        for (value, text) in [
            (0.0, "0"),
            (36_150_400.0, "36,150,400"),
            (-1_234.0, "-1,234"),
            (92.4, "92.40"),
            (0.0123, "0.01230"),
            (12_345.6, "12346"),
            (f64::NAN, "not measured"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
