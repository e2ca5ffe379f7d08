//! A set of back ends: a bit for each.

use super::BACK_ENDS_MAX;

/// A set of back ends by their places, at most [`BACK_ENDS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u64);

const _: () = assert!(BACK_ENDS_MAX == u64::BITS as usize);

impl Set {
    /// None.
    pub const EMPTY: Set = Set(0);

    /// Those whose bits are set.
    pub const fn from_bits(bits: u64) -> Set {
        Set(bits)
    }

    /// A bit for each.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// These and one more.
    #[must_use]
    #[inline]
    pub fn with(self, index: usize) -> Set {
        Set(self.0 | 1 << index)
    }

    /// These but for one.
    #[must_use]
    #[inline]
    pub fn without(self, index: usize) -> Set {
        Set(self.0 & !(1 << index))
    }

    /// Those that are in both.
    #[must_use]
    #[inline]
    pub fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// Those that are in either.
    #[must_use]
    #[inline]
    pub fn or(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// Whether this one is among them.
    #[inline]
    pub fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 != 0
    }

    /// How many they are.
    #[inline]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The one before which there are `count`, in rising order.
    #[inline]
    pub fn nth(self, count: usize) -> Option<usize> {
        let mut left = self.0;
        for _ in 0..count {
            left &= left.wrapping_sub(1);
        }
        (left != 0).then(|| left.trailing_zeros() as usize)
    }

    /// All of them in rising order.
    #[inline]
    pub fn iter(self) -> Members {
        Members { left: self.0 }
    }
}

impl FromIterator<usize> for Set {
    fn from_iter<I: IntoIterator<Item = usize>>(members: I) -> Set {
        members.into_iter().fold(Set::EMPTY, Set::with)
    }
}

/// The members of a set, one by one.
#[derive(Clone, Debug)]
pub struct Members {
    left: u64,
}

impl Iterator for Members {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(bit as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order() {
        let set: Set = [1, 5, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [1, 5, 63]);
        assert_eq!((0..4).map(|n| set.nth(n)).collect::<Vec<_>>(), [Some(1), Some(5), Some(63), None]);
        assert_eq!((set.len(), set.without(5).len(), set.with(5)), (3, 2, set));
        assert!(set.contains(63) && !set.contains(0) && Set::EMPTY.is_empty());
        assert_eq!(set.and(Set::from_bits(0x22)).iter().collect::<Vec<_>>(), [1, 5]);
        assert_eq!(set.or(Set::from_bits(0x24)).iter().collect::<Vec<_>>(), [1, 2, 5, 63]);
    }
}
