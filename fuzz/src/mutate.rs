//! Damage to inputs: bits flipped, lengths changed, pieces of other inputs spliced in.

use fastrand::Rng;

/// The longest input in octets: beyond every limit of a name, a label and an option, and quick to run.
pub const INPUT_MAX: usize = 4_096;

/// The most changes to one input; more than a few and nothing is left that a reader would look into.
const CHANGES_MAX: usize = 8;

/// The longest piece that is removed, repeated or spliced in at once, in octets.
const PIECE_MAX: usize = 64;

/// Octets at which DNS readers and text readers turn: label and pointer bounds, signs, ends.
const OCTETS: [u8; 14] =
    [0x00, 0x01, 0x3f, 0x40, 0x7f, 0x80, 0xc0, 0xff, b'\n', b'"', b'\\', b'.', b'0', b' '];

/// One of `seeds`, or at times plain noise, with one to eight changes; at most [`INPUT_MAX`] octets.
pub fn damaged(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let is_noise = seeds.is_empty() || rng.u8(..16) == 0;
    let mut input = if is_noise { noise(rng) } else { seeds[rng.usize(..seeds.len())].clone() };
    // One change in half of the inputs, two in a quarter: most readers stop at the first fault.
    let changes = 1 + (1..CHANGES_MAX).take_while(|_| rng.bool()).count();
    for _ in 0..changes {
        change(&mut input, seeds, rng);
    }
    input.truncate(INPUT_MAX);
    input
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    let length = rng.usize(..=PIECE_MAX);
    std::iter::repeat_with(|| rng.u8(..)).take(length).collect()
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    let piece = piece_of(input.len(), rng);
    let at = rng.usize(..=input.len());
    match rng.u8(..9) {
        0 if !input.is_empty() => input[piece.start] ^= 1 << rng.u8(..8),
        1 if !input.is_empty() => input[piece.start] = OCTETS[rng.usize(..OCTETS.len())],
        2 => input.insert(at, OCTETS[rng.usize(..OCTETS.len())]),
        3 => drop(input.drain(piece)),
        4 => {
            let again = input[piece].to_vec();
            input.splice(at..at, again);
        }
        5 => {
            let noise = noise(rng);
            input.splice(at..at, noise);
        }
        6 => input.truncate(at),
        7 if !seeds.is_empty() => {
            let other = &seeds[rng.usize(..seeds.len())];
            let spliced = piece_of(other.len(), rng);
            input.splice(piece, other[spliced].iter().copied());
        }
        // A length or a count, most often of two octets.
        _ if input.len() >= 2 => {
            let start = rng.usize(..input.len() - 1);
            let values = [0, 1, input.len() as u16, u16::MAX, rng.u16(..)];
            input[start..start + 2].copy_from_slice(&values[rng.usize(..values.len())].to_be_bytes());
        }
        _ => input.push(rng.u8(..)),
    }
}

/// A piece of an input of this length; it is empty only where the input is.
fn piece_of(length: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    if length == 0 {
        return 0..0;
    }
    let start = rng.usize(..length);
    start..start + rng.usize(1..=PIECE_MAX.min(length - start))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn inputs_are_bounded_and_varied() {
        let seeds = vec![b"a seed".to_vec(), vec![7; INPUT_MAX]];
        let mut rng = Rng::with_seed(1);
        let inputs: HashSet<Vec<u8>> = (0..2_000).map(|_| damaged(&seeds, &mut rng)).collect();
        assert!(inputs.iter().all(|input| input.len() <= INPUT_MAX));
        assert!(inputs.len() > 1_500, "{} different inputs of 2,000", inputs.len());
        assert!(inputs.iter().any(|input| input.windows(4).any(|window| window == b"seed")));
    }

    #[test]
    fn noise_needs_no_seeds() {
        let mut rng = Rng::with_seed(1);
        assert!((0..100).any(|_| !damaged(&[], &mut rng).is_empty()));
    }
}
