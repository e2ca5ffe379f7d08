//! A server's load, from what several sources say of it.
//!
//! Each source has a scale of its own: the paper's control process "would likely use a large number of load metrics,
//! each with its own thresholds" (section 5.2). Here they become two numbers that mean the same for all of them.

/// The largest load that is believed, over its threshold: no server has so much, and what is read as more is an error.
pub const LOAD_MAX: f64 = 1e12;

/// What a source's values mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Above this value a server is overloaded; above 0.
    pub threshold: f64,
    /// Up to this value a server has all its room.
    pub low: f64,
    /// From this value on it has none; above `low`.
    pub high: f64,
    /// How much the source counts beside the others, above 0.
    pub weight: f64,
}

/// How loaded a server is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Load over threshold: above 1 the server is overloaded.
    pub relative: f64,
    /// What Algorithm II's first pass gives: 1 up to the low watermark, 0 from the high one on, straight between them.
    pub room: f64,
}

impl Load {
    /// Puts together what all sources say of one server: weighted means, except that one resource that is used up is
    /// not made up for by others. So the load is that of the worst source where one is above its threshold, and there
    /// is no room where one is at its high watermark.
    ///
    /// `None` without any value, where one is missing (half of the sources may be the half that is well), and where the
    /// load is above [`LOAD_MAX`].
    pub fn of(values: &[(Scale, Option<f64>)]) -> Option<Load> {
        let values: Option<Vec<(Scale, f64)>> =
            values.iter().map(|(scale, value)| Some((*scale, (*value)?))).collect();
        let values = values.filter(|values| !values.is_empty())?;
        let weights: f64 = values.iter().map(|(scale, _)| scale.weight).sum();
        let mean = |of: fn(&Scale, f64) -> f64| {
            values.iter().map(|(scale, value)| scale.weight * of(scale, *value)).sum::<f64>() / weights
        };
        let all = |of: fn(&Scale, f64) -> f64| values.iter().map(move |(scale, value)| of(scale, *value));
        let worst = all(Scale::relative).fold(0.0, f64::max);
        let least = all(Scale::room).fold(1.0, f64::min);
        let load = Load {
            relative: if worst > 1.0 { worst } else { mean(Scale::relative) },
            room: if least <= 0.0 { 0.0 } else { mean(Scale::room) },
        };
        (load.relative <= LOAD_MAX).then_some(load)
    }
}

impl Scale {
    fn relative(&self, value: f64) -> f64 {
        value / self.threshold
    }

    fn room(&self, value: f64) -> f64 {
        ((self.high - value) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// Whether a value can be a load: a number, not below 0. What cannot is as if nothing had been said.
pub fn is_possible(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_put_together_by_hand() {
        let cpu = Scale { threshold: 0.5, low: 0.4, high: 0.6, weight: 3.0 };
        let sockets = Scale { threshold: 100.0, low: 50.0, high: 150.0, weight: 1.0 };
        for (values, expected) in [
            // One source alone.
            (vec![(cpu, Some(0.25))], Some((0.5, 1.0))),
            (vec![(cpu, Some(0.55))], Some((1.1, 0.25))),
            // (3 × 0.5 + 1 × 0.9) / 4, and (3 × 1 + 1 × 0.6) / 4.
            (vec![(cpu, Some(0.25)), (sockets, Some(90.0))], Some((0.6, 0.9))),
            // Sockets are above their threshold, which no idle processor makes up for.
            (vec![(cpu, Some(0.0)), (sockets, Some(120.0))], Some((1.2, 0.825))),
            (vec![(cpu, Some(0.0)), (sockets, Some(150.0))], Some((1.5, 0.0))),
            (vec![(cpu, Some(0.7)), (sockets, Some(0.0))], Some((1.4, 0.0))),
            // One is missing, or all.
            (vec![(cpu, Some(0.25)), (sockets, None)], None),
            (vec![], None),
            // No number is so large; nor any load, and sums of such would be no numbers.
            (vec![(Scale { threshold: 1e-10, ..cpu }, Some(1e305))], None),
            (vec![(cpu, Some(1e300))], None),
        ] {
            let load = Load::of(&values).map(|load| (load.relative, load.room));
            match (load, expected) {
                (None, None) => {}
                (Some(found), Some(expected)) => {
                    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
                    assert!(near(found.0, expected.0) && near(found.1, expected.1), "{values:?}: {found:?}");
                }
                _ => panic!("{values:?}: {load:?} is not {expected:?}"),
            }
        }
    }

    #[test]
    fn absurd_values_are_none() {
        for (value, possible) in
            [(0.0, true), (1e9, true), (-0.1, false), (f64::NAN, false), (f64::INFINITY, false)]
        {
            assert_eq!(is_possible(value), possible, "{value}");
        }
    }
}
