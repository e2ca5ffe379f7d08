//! The command line.

/// What the command line may say; `xtask`, which builds this program, tells it without.
pub(crate) const USAGE: &str = include_str!("../usage.txt");

/// Which measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Lookups,
    Answer,
    Agent,
    Serve,
    Reverse,
    Replay,
    Floods,
    Balance,
    Proximity,
    Shared,
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) what: What,
    pub(crate) quick: bool,
    pub(crate) keep: bool,
    pub(crate) rounds: usize,
    /// The arms, rows or parts that are measured; empty for all.
    pub(crate) only: Vec<String>,
    pub(crate) seed: u64,
}

impl Options {
    /// Reads the words behind the program's name.
    ///
    /// # Errors
    /// What is wrong with the words, as a sentence.
    pub(crate) fn read(words: &[String]) -> Result<Options, String> {
        let mut words = words.iter().map(String::as_str);
        let what = match words.next() {
            Some("lookups") => What::Lookups,
            Some("answer") => What::Answer,
            Some("agent") => What::Agent,
            Some("serve") => What::Serve,
            Some("reverse") => What::Reverse,
            Some("replay") => What::Replay,
            Some("floods") => What::Floods,
            Some("balance") => What::Balance,
            Some("proximity") => What::Proximity,
            Some("shared") => What::Shared,
            other => return Err(format!("what to measure? {}", other.unwrap_or("nothing was given"))),
        };
        let mut options = Options { what, quick: false, keep: false, rounds: 0, only: Vec::new(), seed: 1 };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word {
                "--quick" => options.quick = true,
                "--keep" => options.keep = true,
                "--rounds" => options.rounds = number(value()?)? as usize,
                "--seed" => options.seed = number(value()?)?,
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                other => return Err(format!("{other} is no option")),
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.quick { 1 } else { 3 };
        }
        Ok(options)
    }

    /// Whether this arm or row is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        let read = |text: &str| Options::read(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let options = read("serve --quick --only nsd,tcp --seed 7").expect("all known");
        assert!(options.quick && options.wants("nsd") && options.wants("tcp") && !options.wants("knot"));
        assert_eq!((options.rounds, options.seed), (1, 7));
        assert_eq!(read("lookups").expect("known").rounds, 3);
        for wrong in ["", "fly", "serve --rounds", "serve --rounds x", "serve --fast"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
