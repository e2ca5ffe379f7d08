//! The loop: each execution's input follows from the target's seeds and kept inputs, a seed and an index alone.

use std::ops::Range;
use std::panic;

use fastrand::Rng;

use crate::corpus::{kept, to_hex};
use crate::mutate;
use crate::targets::Target;

/// An input on which a target panicked.
#[derive(Debug)]
pub struct Failure {
    /// Which execution it was.
    pub index: u64,
    /// The input.
    pub input: Vec<u8>,
    /// What the panic said.
    pub message: String,
}

impl Failure {
    /// Tells the failure of the target of this name, the input in hexadecimal, and the command that repeats it.
    pub fn report(&self, target: &str) -> String {
        let input = to_hex(&self.input);
        format!(
            "{target}: execution {} panics: {}\n  repeat: cargo run -p fuzz -- {target} --input '{input}'",
            self.index, self.message
        )
    }
}

/// Runs a target on the inputs of a range of executions, and stops at the first panic.
///
/// # Errors
/// The execution that panicked.
pub fn run(target: &Target, seed: u64, executions: Range<u64>) -> Result<(), Failure> {
    let seeds = [(target.seeds)(), kept(target.name)].concat();
    for index in executions {
        let input = input(&seeds, seed, index);
        if let Err(panic) = panic::catch_unwind(|| (target.run)(&input)) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let message =
                text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without text");
            return Err(Failure { index, message: message.to_owned(), input });
        }
    }
    Ok(())
}

/// The input of one execution: first each of the seeds as it is, then damaged ones.
pub fn input(seeds: &[Vec<u8>], seed: u64, index: u64) -> Vec<u8> {
    if let Some(whole) = usize::try_from(index).ok().and_then(|index| seeds.get(index)) {
        return whole.clone();
    }
    // Neighbouring seeds and indices must not give neighbouring generators.
    let mixed = Rng::with_seed(seed).u64(..) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mutate::damaged(seeds, &mut Rng::with_seed(mixed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panics_on_a_long_word(input: &[u8]) {
        let longest = input.split(|octet| *octet == b' ').map(<[u8]>::len).max();
        assert!(longest.is_none_or(|length| length < 100), "a long word");
    }

    const LONG_WORD: Target = Target {
        name: "long word",
        run: panics_on_a_long_word,
        seeds: || vec![b"some short words".to_vec()],
    };

    #[test]
    fn a_panic_is_found_and_can_be_repeated_from_its_index() {
        let found = run(&LONG_WORD, 1, 0..20_000).expect_err("the loop makes a long word");
        assert_eq!(found.message, "a long word");
        let again = run(&LONG_WORD, 1, found.index..found.index + 1).expect_err("the same input");
        assert_eq!(again.input, found.input);
        assert_ne!(input(&(LONG_WORD.seeds)(), 2, found.index), found.input, "another seed, another input");
    }

    #[test]
    fn the_seeds_come_first_as_they_are() {
        let seeds = (LONG_WORD.seeds)();
        assert_eq!(input(&seeds, 1, 0), seeds[0]);
        assert_ne!(input(&seeds, 1, 1), seeds[0]);
    }
}
