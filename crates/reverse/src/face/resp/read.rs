//! Commands of the Redis protocol out of octets.
//!
//! A command is an array of bulk strings, `*2\r\n$3\r\nGET\r\n$9\r\n192.0.2.1\r\n`, or a line of words.

use crate::face::stream::INPUT_MAX;

/// Words of one command: MGET of a thousand addresses.
pub const WORDS_MAX: usize = 1024;

/// Octets of one word: addresses are short, and so is what clients tell of themselves.
pub const WORD_MAX: usize = 1024;

/// Octets of one command with its lengths.
pub const COMMAND_MAX: usize = INPUT_MAX;

/// Octets of a command that is a line of words.
pub const LINE_MAX: usize = 4096;

/// Octets of a line that holds a length: `*`, a sign and ten digits.
const LENGTH_LINE_MAX: usize = 12;

/// What the beginning of the octets is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A command of so many octets; without words it is to be passed over.
    Whole(usize),
    /// The beginning of one.
    Part,
    /// None, nor can the next one be found: why, as it is told.
    Malformed(&'static str),
}

/// Reads one command from the beginning of `input`; its words are put into `words`, which is emptied before.
pub fn command<'a>(input: &'a [u8], words: &mut Vec<&'a [u8]>) -> Command {
    words.clear();
    let read = match input.first() {
        None => Command::Part,
        Some(b'*') => array(input, words),
        Some(_) => line(input, words),
    };
    match read {
        Command::Part if input.len() >= COMMAND_MAX => Command::Malformed("too big a command"),
        read => read,
    }
}

fn array<'a>(input: &'a [u8], words: &mut Vec<&'a [u8]>) -> Command {
    let (count, mut at) = match length(input, 0) {
        Ok(Some(read)) => read,
        Ok(None) => return Command::Part,
        Err(()) => return Command::Malformed("invalid multibulk length"),
    };
    // Redis passes over arrays that are empty or null, too.
    let count = usize::try_from(count).unwrap_or(0);
    if count > WORDS_MAX {
        return Command::Malformed("too many words in a command");
    }
    for _ in 0..count {
        match input.get(at) {
            None => return Command::Part,
            Some(b'$') => {}
            Some(_) => return Command::Malformed("expected '$'"),
        }
        let (length, begin) = match length(input, at) {
            Ok(Some(read)) => read,
            Ok(None) => return Command::Part,
            Err(()) => return Command::Malformed("invalid bulk length"),
        };
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= WORD_MAX) else {
            return Command::Malformed("invalid bulk length");
        };
        let end = begin + length;
        let Some(terminator) = input.get(end..end + 2) else { return Command::Part };
        if terminator != b"\r\n" {
            return Command::Malformed("a bulk string is longer than its length");
        }
        words.push(&input[begin..end]);
        at = end + 2;
    }
    if at > COMMAND_MAX { Command::Malformed("too big a command") } else { Command::Whole(at) }
}

/// The number of a line whose kind is at `at`, and where the next line begins; `None` where it is cut.
fn length(input: &[u8], at: usize) -> Result<Option<(i64, usize)>, ()> {
    let rest = &input[at + 1..];
    let within = &rest[..rest.len().min(LENGTH_LINE_MAX)];
    let Some(end) = within.iter().position(|octet| *octet == b'\r') else {
        return if within.len() < LENGTH_LINE_MAX { Ok(None) } else { Err(()) };
    };
    let number = std::str::from_utf8(&rest[..end]).map_err(|_| ())?.parse().map_err(|_| ())?;
    match rest.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((number, at + 1 + end + 2))),
        Some(_) => Err(()),
    }
}

fn line<'a>(input: &'a [u8], words: &mut Vec<&'a [u8]>) -> Command {
    let within = &input[..input.len().min(LINE_MAX)];
    let Some(end) = within.iter().position(|octet| *octet == b'\n') else {
        let is_too_long = within.len() == LINE_MAX;
        return if is_too_long { Command::Malformed("too big an inline request") } else { Command::Part };
    };
    words.extend(within[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()));
    if words.len() > WORDS_MAX || words.iter().any(|word| word.len() > WORD_MAX) {
        return Command::Malformed("too many words in a command, or too long a word");
    }
    Command::Whole(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_as_clients_send_them() {
        let many = format!("*{}\r\n", WORDS_MAX + 1);
        let long = format!("*1\r\n${}\r\n", WORD_MAX + 1);
        let endless = "x".repeat(LINE_MAX);
        let whole = Command::Whole;
        for (input, expected, words) in [
            ("*1\r\n$4\r\nPING\r\n", whole(14), vec!["PING"]),
            ("*2\r\n$3\r\nGET\r\n$9\r\n192.0.2.1\r\n*1", whole(28), vec!["GET", "192.0.2.1"]),
            ("*1\r\n$0\r\n\r\n", whole(10), vec![""]),
            ("*1\r\n$2\r\n\r\n\r\n", whole(12), vec!["\r\n"]),
            ("*0\r\n", whole(4), vec![]),
            ("*-1\r\n", whole(5), vec![]),
            ("GET  192.0.2.1\r\nPING\n", whole(16), vec!["GET", "192.0.2.1"]),
            ("\r\n", whole(2), vec![]),
            ("\n", whole(1), vec![]),
            ("*x\r\n", Command::Malformed("invalid multibulk length"), vec![]),
            ("*1\r$", Command::Malformed("invalid multibulk length"), vec![]),
            ("*99999999999999\r\n", Command::Malformed("invalid multibulk length"), vec![]),
            (&many, Command::Malformed("too many words in a command"), vec![]),
            ("*1\r\n+OK\r\n", Command::Malformed("expected '$'"), vec![]),
            ("*1\r\n$-1\r\n", Command::Malformed("invalid bulk length"), vec![]),
            (&long, Command::Malformed("invalid bulk length"), vec![]),
            ("*1\r\n$1\r\nabc", Command::Malformed("a bulk string is longer than its length"), vec![]),
            (&endless, Command::Malformed("too big an inline request"), vec![]),
        ] {
            let mut read = Vec::new();
            assert_eq!(command(input.as_bytes(), &mut read), expected, "{input:?}");
            if matches!(expected, Command::Whole(_)) {
                assert_eq!(read, words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>(), "{input:?}");
            }
        }
    }

    #[test]
    fn a_command_that_fills_its_room_is_told() {
        let mut input = format!("*{WORDS_MAX}\r\n").into_bytes();
        while input.len() < COMMAND_MAX {
            input.extend_from_slice(format!("${WORD_MAX}\r\n{}\r\n", "x".repeat(WORD_MAX)).as_bytes());
        }
        let mut words = Vec::new();
        assert_eq!(command(&input, &mut words), Command::Malformed("too big a command"));
        assert_eq!(command(&input[..COMMAND_MAX - 1], &mut words), Command::Part);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_every_beginning_is_a_part(
            words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..6),
        ) {
            let mut input = format!("*{}\r\n", words.len()).into_bytes();
            for word in &words {
                input.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                input.extend_from_slice(word);
                input.extend_from_slice(b"\r\n");
            }
            let mut read = Vec::new();
            for cut in 0..input.len() {
                prop_assert_eq!(command(&input[..cut], &mut read), Command::Part);
            }
            prop_assert_eq!(command(&input, &mut read), Command::Whole(input.len()));
            prop_assert_eq!(read, words);
        }

        #[test]
        fn any_octets(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut words = Vec::new();
            if let Command::Whole(length) = command(&input, &mut words) {
                prop_assert!(length > 0 && length <= input.len());
            }
        }
    }
}
