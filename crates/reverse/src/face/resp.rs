//! The Redis protocol (RESP2, and RESP3 by HELLO): the key is an address, the value its name.
//!
//! | command | answer |
//! |---|---|
//! | GET, MGET | the name, or nil where there is no name to give |
//! | EXISTS | how many of the addresses have a name |
//! | TTL | the seconds for which the name may be kept; -1 where there is none to give, -2 where it is not known yet |
//! | PING, ECHO, INFO, QUIT | as Redis does |
//! | CLIENT NO-TOUCH ON, OFF | look-ups that follow are not counted: they ask again for what was not known yet |
//! | HELLO, COMMAND, CLIENT, CONFIG GET, SELECT 0 | what clients send at start |
//!
//! Everything else is an error, and changes nothing.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use net::clock::Clock;

use super::stream::{Conversation, OUTPUT_MAX, Step, Then};
use crate::backend::seconds;
use crate::cache::{TOGETHER, View};
use crate::front::Front;
use crate::known::{Known, WORDS};
use crate::name::NameText;
use read::{Command, command};

pub mod read;

/// Octets of the name that a client gives itself.
pub const CLIENT_NAME_MAX: usize = 64;

/// The longest name of a command, in octets.
const VERB_MAX: usize = 8;

/// The commands as COMMAND tells of them: name, words (negative for at least so many), the first key, the last (-1
/// for all), and from one to the next.
const COMMANDS: &[(&str, i64, i64, i64, i64)] = &[
    ("get", 2, 1, 1, 1),
    ("mget", -2, 1, -1, 1),
    ("exists", -2, 1, -1, 1),
    ("ttl", 2, 1, 1, 1),
    ("ping", -1, 0, 0, 0),
    ("echo", 2, 0, 0, 0),
    ("info", -1, 0, 0, 0),
    ("hello", -1, 0, 0, 0),
    ("command", -1, 0, 0, 0),
    ("client", -2, 0, 0, 0),
    ("config", -2, 0, 0, 0),
    ("select", 2, 0, 0, 0),
    ("quit", -1, 0, 0, 0),
];

/// What one connection has agreed upon.
#[derive(Clone, Debug)]
pub struct Session {
    client: IpAddr,
    id: u64,
    resp3: bool,
    name: Vec<u8>,
    /// The front for who asks again, while the client says that it does.
    again: Option<Front>,
}

/// A connection on the cache.
#[derive(Debug)]
pub struct Resp {
    /// Where addresses are looked up.
    pub front: Front,
    /// The clock by which entries expire.
    pub clock: Clock,
    /// The connection's version of the protocol, name and client.
    pub session: Session,
}

impl Conversation for Resp {
    fn answer(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step {
        if input.is_empty() {
            return Step { taken: 0, then: Then::Read };
        }
        self.session.answer(&self.front, &self.front.view(), seconds(self.clock.now()), input, out)
    }
}

/// Why a command is not done, as it is told.
struct Refused(&'static str);

const WORDS_WRONG: Refused = Refused("ERR wrong number of arguments");
const NO_ADDRESS: Refused = Refused("ERR the key is no IP address");
const NO_COMMAND: Refused = Refused(
    "ERR unknown command or option: this is a cache of names, and has GET, MGET, EXISTS, TTL, PING, ECHO and INFO",
);

impl Session {
    /// A connection of `client`; its `id` is what CLIENT ID says.
    pub fn new(client: IpAddr, id: u64) -> Session {
        Session { client, id, resp3: false, name: Vec::new(), again: None }
    }

    /// Answers the commands at the beginning of `input` at `now`, in seconds since 1970.
    pub fn answer(&mut self, front: &Front, view: &View, now: u32, input: &[u8], out: &mut Vec<u8>) -> Step {
        let asked = Asked { front, view, client: self.client, now };
        let (mut taken, mut words) = (0, Vec::new());
        // Those of GETs that follow each other.
        let mut addresses = Vec::with_capacity(TOGETHER);
        while out.len() < OUTPUT_MAX {
            let next = command(&input[taken..], &mut words);
            if let Command::Whole(length) = next {
                taken += length;
                if let [verb, key] = words[..]
                    && verb.eq_ignore_ascii_case(b"GET")
                    && let Some(address) = address(key)
                {
                    addresses.push(address);
                    if addresses.len() == TOGETHER {
                        self.names_of(&asked, &mut addresses, out);
                    }
                    continue;
                }
            }
            self.names_of(&asked, &mut addresses, out);
            match next {
                Command::Part => return Step { taken, then: Then::Read },
                Command::Malformed(why) => {
                    front.counts().refused.fetch_add(1, Ordering::Relaxed);
                    put(out, format_args!("-ERR Protocol error: {why}\r\n"));
                    return Step { taken, then: Then::Close };
                }
                Command::Whole(_) => {}
            }
            let Some((verb, arguments)) = words.split_first() else { continue };
            if verb.eq_ignore_ascii_case(b"QUIT") {
                out.extend_from_slice(b"+OK\r\n");
                return Step { taken, then: Then::Close };
            }
            // An answer that was begun is taken back.
            let begin = out.len();
            if let Err(Refused(why)) = self.obey(&asked, verb, arguments, out) {
                front.counts().refused.fetch_add(1, Ordering::Relaxed);
                out.truncate(begin);
                put(out, format_args!("-{why}\r\n"));
            }
        }
        Step { taken, then: Then::Again }
    }

    fn obey(
        &mut self,
        asked: &Asked<'_>,
        verb: &[u8],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let mut upper = [0; VERB_MAX];
        let upper = upper.get_mut(..verb.len()).ok_or(NO_COMMAND)?;
        upper.copy_from_slice(verb);
        upper.make_ascii_uppercase();
        match (&*upper, arguments) {
            (b"GET", [_]) => return Err(NO_ADDRESS),
            (b"MGET", keys @ [_, ..]) => {
                put(out, format_args!("*{}\r\n", keys.len()));
                let mut addresses = Vec::with_capacity(keys.len());
                for key in keys {
                    let Some(address) = address(key) else {
                        // As Redis does with keys that hold something else: the others have their answers.
                        self.names_of(asked, &mut addresses, out);
                        self.nil(out);
                        continue;
                    };
                    addresses.push(address);
                }
                self.names_of(asked, &mut addresses, out);
            }
            (b"EXISTS", keys @ [_, ..]) => {
                let has_name = |key: &&&[u8]| {
                    address(key)
                        .is_some_and(|address| matches!(self.look_up(asked, address), Known::Name(..)))
                };
                integer(out, keys.iter().filter(has_name).count() as u64);
            }
            (b"TTL", [key]) => match self.look_up(asked, address(key).ok_or(NO_ADDRESS)?) {
                Known::Name(since, _) => integer(out, u64::from(since.left)),
                Known::NotYet => out.extend_from_slice(b":-2\r\n"),
                Known::NoName(_) | Known::Failed(..) => out.extend_from_slice(b":-1\r\n"),
            },
            (b"PING", []) => out.extend_from_slice(b"+PONG\r\n"),
            (b"PING" | b"ECHO", [text]) => bulk(out, text),
            (b"INFO", _) => bulk(out, asked.info().as_bytes()),
            (b"HELLO", options) => self.hello(options, out)?,
            (b"COMMAND", options) => self.command(options, out)?,
            (b"CLIENT", [action, arguments @ ..]) => self.client(asked, action, arguments, out)?,
            (b"CONFIG", [action, _, ..]) if action.eq_ignore_ascii_case(b"GET") => self.map(out, 0),
            (b"SELECT", [b"0"]) => out.extend_from_slice(b"+OK\r\n"),
            (b"SELECT", [_]) => return Err(Refused("ERR DB index is out of range: there is but 0")),
            (b"AUTH", _) => return Err(Refused("ERR there is no password; who may ask is told by address")),
            (b"GET" | b"MGET" | b"EXISTS" | b"TTL" | b"PING" | b"ECHO" | b"SELECT" | b"CLIENT", _) => {
                return Err(WORDS_WRONG);
            }
            _ => return Err(NO_COMMAND),
        }
        Ok(())
    }

    /// Writes the names of these addresses, which are then none.
    fn names_of(&self, asked: &Asked<'_>, addresses: &mut Vec<IpAddr>, out: &mut Vec<u8>) {
        let Asked { front, view, client, now } = *asked;
        let front = self.again.as_ref().unwrap_or(front);
        front.look_up_each(view, addresses, client, now, |_, known, name| match known {
            Known::Name(..) => bulk(out, name.octets()),
            _ => self.nil(out),
        });
        addresses.clear();
    }

    fn look_up(&self, asked: &Asked<'_>, address: IpAddr) -> Known {
        let Asked { front, view, client, now } = *asked;
        let front = self.again.as_ref().unwrap_or(front);
        front.look_up(view, address, client, now, &mut { NameText::EMPTY })
    }

    fn hello(&mut self, options: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Refused> {
        let mut agreed = self.clone();
        if let [version, options @ ..] = options {
            agreed.resp3 = match *version {
                b"2" => false,
                b"3" => true,
                _ => return Err(Refused("NOPROTO unsupported protocol version: there are 2 and 3")),
            };
            match options {
                [] => {}
                [option, name] if option.eq_ignore_ascii_case(b"SETNAME") => agreed.set_name(name)?,
                [option, ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    return Err(Refused("ERR there is no password; who may ask is told by address"));
                }
                _ => return Err(Refused("ERR syntax error in HELLO: expected SETNAME and a name")),
            }
        }
        *self = agreed;
        self.map(out, 7);
        bulk(out, b"server");
        bulk(out, b"pointsman");
        bulk(out, b"version");
        bulk(out, env!("CARGO_PKG_VERSION").as_bytes());
        bulk(out, b"proto");
        integer(out, if self.resp3 { 3 } else { 2 });
        bulk(out, b"id");
        integer(out, self.id);
        bulk(out, b"mode");
        bulk(out, b"standalone");
        bulk(out, b"role");
        bulk(out, b"master");
        bulk(out, b"modules");
        out.extend_from_slice(b"*0\r\n");
        Ok(())
    }

    fn command(&self, options: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Refused> {
        match options {
            [] => {
                put(out, format_args!("*{}\r\n", COMMANDS.len()));
                for (name, words, first, last, step) in COMMANDS {
                    out.extend_from_slice(b"*10\r\n");
                    bulk(out, name.as_bytes());
                    put(out, format_args!(":{words}\r\n*2\r\n+readonly\r\n+fast\r\n"));
                    put(out, format_args!(":{first}\r\n:{last}\r\n:{step}\r\n"));
                    // No categories, tips, further keys and subcommands: clients read as many fields as Redis 7 has.
                    out.extend_from_slice(&b"*0\r\n".repeat(4));
                }
            }
            [option] if option.eq_ignore_ascii_case(b"COUNT") => integer(out, COMMANDS.len() as u64),
            // There are none, which clients that offer help can do with.
            [option, ..] if option.eq_ignore_ascii_case(b"DOCS") => self.map(out, 0),
            _ => return Err(NO_COMMAND),
        }
        Ok(())
    }

    fn client(
        &mut self,
        asked: &Asked<'_>,
        action: &[u8],
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let is = |name: &[u8]| action.eq_ignore_ascii_case(name);
        match arguments {
            [name] if is(b"SETNAME") => {
                self.set_name(name)?;
                out.extend_from_slice(b"+OK\r\n");
            }
            // Taken and not kept: nobody reads it.
            [_, _] if is(b"SETINFO") => out.extend_from_slice(b"+OK\r\n"),
            [turn]
                if is(b"NO-TOUCH")
                    && [&b"ON"[..], b"OFF"].iter().any(|word| turn.eq_ignore_ascii_case(word)) =>
            {
                self.again = turn.eq_ignore_ascii_case(b"ON").then(|| asked.front.again());
                out.extend_from_slice(b"+OK\r\n");
            }
            [] if is(b"ID") => integer(out, self.id),
            [] if is(b"GETNAME") && self.name.is_empty() => self.nil(out),
            [] if is(b"GETNAME") => bulk(out, &self.name),
            _ => return Err(NO_COMMAND),
        }
        Ok(())
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), Refused> {
        if name.len() > CLIENT_NAME_MAX || !name.iter().all(u8::is_ascii_graphic) {
            return Err(Refused("ERR a client's name is 64 letters at most, without blanks"));
        }
        self.name = name.to_vec();
        Ok(())
    }

    fn nil(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// The head of a map, which RESP2 has as an array.
    fn map(&self, out: &mut Vec<u8>, pairs: usize) {
        if self.resp3 {
            put(out, format_args!("%{pairs}\r\n"));
        } else {
            put(out, format_args!("*{}\r\n", 2 * pairs));
        }
    }
}

/// What look-ups of one batch share.
struct Asked<'a> {
    front: &'a Front,
    view: &'a View,
    client: IpAddr,
    now: u32,
}

impl Asked<'_> {
    /// What INFO tells: the counts of this face.
    fn info(&self) -> String {
        let counts = self.front.counts();
        let known = counts.known.each_ref().map(|count| count.load(Ordering::Relaxed));
        let mut text = format!(
            "# Server\r\nserver_name:pointsman\r\npointsman_version:{}\r\n\r\n# Stats\r\nkeyspace_hits:{}\r\nkeyspace_misses:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            known[0],
            known[1..].iter().sum::<u64>(),
        );
        for (word, count) in WORDS.iter().zip(known) {
            text.push_str(&format!("{word}:{count}\r\n"));
        }
        let (stale, refused) = (&counts.stale, &counts.refused);
        for (word, count) in [("stale", stale), ("refused", refused), ("door_full", &counts.door_full)] {
            text.push_str(&format!("{word}:{}\r\n", count.load(Ordering::Relaxed)));
        }
        text
    }
}

fn address(key: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(key).ok()?.parse().ok()
}

fn integer(out: &mut Vec<u8>, number: u64) {
    put(out, format_args!(":{number}\r\n"));
}

fn bulk(out: &mut Vec<u8>, octets: &[u8]) {
    out.push(b'$');
    decimal(out, octets.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(octets);
    out.extend_from_slice(b"\r\n");
}

/// Every name has its length before it: this takes a fraction of what formatting does.
fn decimal(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        decimal(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::dns::tests::{NOW, front};

    /// What is answered to `input`, and how far it came.
    fn said(input: &str) -> (String, Step) {
        let (front, _door) = front();
        let mut session = Session::new("127.0.0.1".parse().unwrap(), 7);
        let mut out = Vec::new();
        let step = session.answer(&front, &front.view(), NOW, input.as_bytes(), &mut out);
        (String::from_utf8(out).unwrap(), step)
    }

    #[test]
    fn commands_and_their_answers() {
        for (input, expected) in [
            ("GET 192.0.2.1", "$11\r\nwww.example\r\n"),
            ("get ::ffff:192.0.2.1", "$11\r\nwww.example\r\n"),
            ("GET 192.0.2.2", "$-1\r\n"),
            ("GET 192.0.2.3", "$-1\r\n"),
            ("GET 2001:db8::1", "$-1\r\n"),
            ("GET 192.0.2.5", "$11\r\nwww.example\r\n"),
            ("GET www.example", "-ERR the key is no IP address\r\n"),
            ("GET", "-ERR wrong number of arguments\r\n"),
            ("MGET 192.0.2.1 x 192.0.2.9", "*3\r\n$11\r\nwww.example\r\n$-1\r\n$-1\r\n"),
            ("EXISTS 192.0.2.1 192.0.2.2 192.0.2.1 x", ":2\r\n"),
            ("TTL 192.0.2.1", ":100\r\n"),
            ("TTL 192.0.2.5", ":30\r\n"),
            ("TTL 192.0.2.2", ":-1\r\n"),
            ("TTL 192.0.2.9", ":-2\r\n"),
            ("PING", "+PONG\r\n"),
            ("PING x", "$1\r\nx\r\n"),
            ("ECHO x", "$1\r\nx\r\n"),
            ("SELECT 0", "+OK\r\n"),
            ("SELECT 1", "-ERR DB index is out of range: there is but 0\r\n"),
            ("CONFIG GET save", "*0\r\n"),
            ("COMMAND COUNT", ":13\r\n"),
            ("COMMAND DOCS", "*0\r\n"),
            ("CLIENT GETNAME", "$-1\r\n"),
            ("CLIENT SETNAME a\nCLIENT GETNAME", "+OK\r\n$1\r\na\r\n"),
            ("CLIENT SETINFO LIB-NAME x", "+OK\r\n"),
            ("CLIENT ID", ":7\r\n"),
            ("HELLO 4", "-NOPROTO unsupported protocol version: there are 2 and 3\r\n"),
        ] {
            let input = format!("{input}\n");
            let (answers, step) = said(&input);
            assert_eq!(answers, expected, "{input}");
            assert_eq!(step, Step { taken: input.len(), then: Then::Read });
        }
        for refused in [
            "SET 192.0.2.1 x",
            "CONFIG SET x y",
            "CLIENT KILL x",
            "CLIENT NO-TOUCH x",
            "FLUSHALL",
            "SUBSCRIBE x",
            "\u{1}",
        ] {
            assert!(said(&format!("{refused}\n")).0.starts_with("-ERR unknown command"), "{refused}");
        }
    }

    #[test]
    fn who_asks_again_is_counted_once() {
        let (front, mut door) = front();
        let mut session = Session::new("127.0.0.1".parse().unwrap(), 7);
        let (mut said, view) = (Vec::new(), front.view());
        let again = "GET 192.0.2.9\nTTL 192.0.2.9\nMGET 192.0.2.9\nEXISTS 192.0.2.9\nGET 192.0.2.1\n";
        let input = format!("GET 192.0.2.9\nCLIENT NO-TOUCH ON\n{again}client no-touch off\nGET 192.0.2.1\n");
        let step = session.answer(&front, &view, NOW, input.as_bytes(), &mut said);
        assert_eq!(step.taken, input.len());
        let counted = front.counts().known.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counted, [1, 0, 0, 1]);
        // But the back end is told each time: what waits moves up.
        assert_eq!(std::iter::from_fn(|| door.try_recv().ok()).count(), 5);
    }

    #[test]
    fn resp3_is_agreed_upon_by_hello() {
        let (answers, _) =
            said("HELLO 3 SETNAME a\nGET 192.0.2.2\nCONFIG GET x\nCLIENT GETNAME\nHELLO 2\nGET 192.0.2.2\n");
        assert!(answers.starts_with("%7\r\n$6\r\nserver\r\n"), "{answers}");
        assert!(answers.contains("*0\r\n_\r\n%0\r\n$1\r\na\r\n*14\r\n"), "{answers}");
        assert!(answers.ends_with("*0\r\n$-1\r\n"), "{answers}");
        // What is refused changes nothing.
        assert!(said("HELLO 3 AUTH a b\nGET 192.0.2.2\n").0.ends_with("\r\n$-1\r\n"));
    }

    #[test]
    fn pipelined_look_ups_keep_their_order() {
        let (one, other) = ("GET 192.0.2.1\nGET 192.0.2.2\n", "$11\r\nwww.example\r\n$-1\r\n");
        let input = format!("{}PING\nGET x\n{one}TTL 192.0.2.9\n{one}", one.repeat(70));
        let expected =
            format!("{}+PONG\r\n-ERR the key is no IP address\r\n{other}:-2\r\n{other}", other.repeat(70));
        assert_eq!(said(&input), (expected, Step { taken: input.len(), then: Then::Read }));
    }

    #[test]
    fn a_batch_ends_when_its_room_is_full_and_a_conversation_when_it_is_broken() {
        let many = "GET 192.0.2.1\n".repeat(OUTPUT_MAX / 17);
        let (answers, step) = said(&many);
        assert!(answers.len() >= OUTPUT_MAX && step.taken < many.len() && step.then == Then::Again);
        let (answers, step) = said("PING\n*x\r\nPING\n");
        assert_eq!(answers, "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n");
        assert_eq!(step, Step { taken: 5, then: Then::Close });
        assert_eq!(said("QUIT\nPING\n"), ("+OK\r\n".into(), Step { taken: 5, then: Then::Close }));
    }

    #[test]
    fn the_table_of_commands_is_whole() {
        for (name, ..) in COMMANDS {
            let (answers, _) = said(&format!("{name}\n"));
            assert!(!answers.starts_with("-ERR unknown") || *name == "config", "{name}: {answers}");
        }
        let get = "*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n";
        assert!(said("COMMAND\n").0.starts_with(&format!("*13\r\n{get}*10\r\n$4\r\nmget\r\n")));
    }
}
