//! What a share of values does not pass, and what is in their middle: the one rule of all that is told.

/// The first of ascending values up to which at least this share of them lies (nearest rank); `None` of nothing.
pub fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// The middle of few ascending values: of an even number the mean of the two that are there, as the lower one alone would
/// flatter whoever is to be low; `None` of nothing.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[last / 2].midpoint(sorted[last.div_ceil(2)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_at_their_rank() {
        for (values, share, expected) in [
            (&[][..], 0.5, None),
            (&[7], 0.0, Some(7)),
            (&[7], 1.0, Some(7)),
            (&[1, 2, 3, 4], 0.0, Some(1)),
            (&[1, 2, 3, 4], 0.5, Some(2)),
            (&[1, 2, 3, 4], 0.51, Some(3)),
            (&[1, 2, 3, 4, 5], 0.5, Some(3)),
            (&[1, 2, 3, 4, 5], 0.99, Some(5)),
        ] {
            assert_eq!(quantile(values, share), expected, "{share} of {values:?}");
        }
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!(quantile(&hundred, 0.99), Some(99), "one in a hundred passes it");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        for (values, expected) in [
            (&[][..], None),
            (&[7.0], Some(7.0)),
            (&[1.0, 2.0, 9.0], Some(2.0)),
            (&[1.0, 2.0, 4.0, 9.0], Some(3.0)),
            (&[1.0, f64::INFINITY], Some(f64::INFINITY)),
        ] {
            assert_eq!(median(values), expected, "{values:?}");
        }
    }
}
