//! The running service that is asked for names, over the Redis protocol.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use replay::remarks::counted;

use crate::failure::Failure;

/// Octets of one answer of the service: a name, or an error that is told.
const ANSWER_MAX: u64 = 1024;

/// How long the service may take for an answer: it never waits for anything itself.
const SERVICE_MAX: Duration = Duration::from_secs(5);

/// How long the service may take to be there again once it has ended a connection: it reads its snapshot before it begins.
pub(super) const RESTART_MAX: Duration = Duration::from_secs(10);

/// The time between two looks for names that are not known yet, or for a service that is started anew.
const LOOK: Duration = Duration::from_millis(50);

/// A connection to a running service.
pub(super) struct Service {
    address: SocketAddr,
    /// How long it may take to be there again.
    restart: Duration,
    stream: BufReader<TcpStream>,
    /// How often it was connected again.
    again: u64,
}

/// Addresses of which the names are asked for.
struct Asked {
    /// Those that are without an answer, or without one that will do.
    wanted: Vec<IpAddr>,
    names: HashMap<IpAddr, String>,
    /// When no name is waited for any more.
    until: Instant,
}

impl Asked {
    fn drop_named(&mut self) {
        self.wanted.retain(|address| !self.names.contains_key(address));
    }
}

impl Service {
    pub(super) fn connect(address: SocketAddr, restart: Duration) -> Result<Service, Failure> {
        match connected(address) {
            Ok(stream) => Ok(Service { address, restart, stream, again: 0 }),
            Err(cause) => Err(unreachable(address, &cause)),
        }
    }

    /// Connects again, as soon as the service is there again.
    fn connect_again(&mut self) -> io::Result<()> {
        let until = Instant::now() + self.restart;
        self.stream = loop {
            match connected(self.address) {
                Err(_) if Instant::now() < until => std::thread::sleep(LOOK),
                tried => break tried?,
            }
        };
        self.again += 1;
        Ok(())
    }

    /// The names of these addresses, as far as they are known, or get known within `wait`. A connection that the service
    /// has ended, for it was silent for long or the service was started anew, is made again, once, and what has no name yet
    /// is asked for again.
    pub(super) fn names(
        &mut self,
        addresses: &[IpAddr],
        wait: Duration,
    ) -> Result<HashMap<IpAddr, String>, Failure> {
        let until = Instant::now() + wait;
        let mut asked = Asked { wanted: addresses.to_vec(), names: HashMap::new(), until };
        let mut named = self.name(&mut asked);
        if named.as_ref().is_err_and(|cause| ENDED.contains(&cause.kind())) {
            named = self.connect_again().and_then(|()| self.name(&mut asked));
        }
        named.map_err(|cause| unreachable(self.address, &cause))?;
        Ok(asked.names)
    }

    fn name(&mut self, asked: &mut Asked) -> io::Result<()> {
        asked.drop_named();
        // Each is counted where it is first asked for, and not while it is waited for.
        let mut waits = false;
        loop {
            self.ask("GET", &asked.wanted, |address, name| {
                name.map(|name| asked.names.insert(address, name));
            })?;
            asked.drop_named();
            let left = asked.until.saturating_duration_since(Instant::now());
            if asked.wanted.is_empty() || left.is_zero() {
                break;
            }
            if !waits {
                waits = true;
                self.tell("CLIENT NO-TOUCH ON")?;
            }
            // -1 is known to have none to give, -2 is not known yet; others got their name since it was asked for.
            let mut nameless = HashSet::new();
            self.ask("TTL", &asked.wanted, |address, state| {
                state.filter(|state| state == "-1").map(|_| nameless.insert(address));
            })?;
            asked.wanted.retain(|address| !nameless.contains(address));
            if asked.wanted.is_empty() {
                break;
            }
            std::thread::sleep(LOOK.min(left));
        }
        if waits {
            self.tell("CLIENT NO-TOUCH OFF")?;
        }
        Ok(())
    }

    /// Says on stderr how often the service was connected again.
    pub(super) fn tell_restarts(&self) {
        if self.again > 0 {
            let ended = counted(self.again, "connection");
            // Nobody may read it.
            let _ = writeln!(
                io::stderr(),
                "pointsman: the service ended {ended}; what was not answered was asked again"
            );
        }
    }

    /// Hands on the answer for each address, `None` for nil.
    fn ask(
        &mut self,
        verb: &str,
        addresses: &[IpAddr],
        mut each: impl FnMut(IpAddr, Option<String>),
    ) -> io::Result<()> {
        let asked: String = addresses.iter().map(|address| format!("{verb} {address}\r\n")).collect();
        self.stream.get_mut().write_all(asked.as_bytes())?;
        for address in addresses {
            each(*address, answer(&mut self.stream)?);
        }
        Ok(())
    }

    /// Tells it something that has no answer of interest.
    fn tell(&mut self, command: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        answer(&mut self.stream).map(drop)
    }
}

fn connected(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, SERVICE_MAX)?;
    stream.set_read_timeout(Some(SERVICE_MAX))?;
    stream.set_write_timeout(Some(SERVICE_MAX))?;
    Ok(BufReader::new(stream))
}

/// How a connection fails that the other end has ended.
const ENDED: [io::ErrorKind; 4] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
];

fn unreachable(address: SocketAddr, cause: &io::Error) -> Failure {
    let why = match cause.kind() {
        // What the system calls a limit on reading or writing that is over.
        io::ErrorKind::WouldBlock => format!("nothing came for {} s", SERVICE_MAX.as_secs()),
        _ => cause.to_string(),
    };
    Failure::Unreachable(format!(
        "the service at {address} does not answer: {why}; start one with `pointsman reverse --resp {address}`"
    ))
}

/// Reads an answer of the Redis protocol: a text, a number, or nil.
fn answer(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let read = |from: &mut dyn BufRead| -> io::Result<String> {
        let mut line = Vec::new();
        from.take(ANSWER_MAX).read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(String::from_utf8_lossy(line).into_owned())
    };
    let head = read(from)?;
    match head.split_at_checked(1) {
        Some(("$", "-1")) => Ok(None),
        Some(("$", _)) => read(from).map(Some),
        Some((":" | "+", text)) => Ok(Some(text.to_owned())),
        _ => Err(io::Error::other(format!("it said {head:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_service() {
        let read = |text: &str| answer(&mut text.as_bytes()).map_err(|cause| cause.to_string());
        assert_eq!(read("$11\r\nwww.example\r\n"), Ok(Some("www.example".into())));
        assert_eq!(read("$-1\r\n"), Ok(None));
        assert_eq!(read(":-2\r\n"), Ok(Some("-2".into())));
        assert!(read("-ERR no\r\n").unwrap_err().contains("ERR no"));
        assert!(read("$11\r\nwww").is_err() && read("").is_err() && read(&"x".repeat(5000)).is_err());
    }

    #[test]
    fn silence_is_told_as_such() {
        let silence = io::ErrorKind::WouldBlock.into();
        let Failure::Unreachable(told) = unreachable("192.0.2.1:6379".parse().unwrap(), &silence) else {
            panic!("it is unreachable")
        };
        assert!(told.contains("does not answer: nothing came for 5 s; start one"), "{told}");
    }

    #[test]
    fn a_name_that_comes_between_two_questions_is_taken() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut service = Service::connect(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        let script = [
            ("GET 192.0.2.1", "$-1"),
            ("CLIENT NO-TOUCH ON", "+OK"),
            ("TTL 192.0.2.1", ":100"),
            ("GET 192.0.2.1", "$12\r\nhost.example"),
            ("CLIENT NO-TOUCH OFF", "+OK"),
        ];
        let told = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            for (asked, said) in script {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                assert_eq!(line.trim_end(), asked);
                stream.get_mut().write_all(format!("{said}\r\n").as_bytes()).unwrap();
            }
        });
        let address = "192.0.2.1".parse().unwrap();
        let names = service.names(&[address], Duration::from_secs(30)).unwrap();
        assert_eq!(names.get(&address).map(String::as_str), Some("host.example"));
        told.join().unwrap();
    }

    #[test]
    fn what_the_service_has_not_answered_when_it_ends_is_asked_again_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut service = Service::connect(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        // What is asked on each connection, and what is said before it ends.
        let script: [(&[&str], &str); 4] = [
            (&["GET 192.0.2.1", "GET 192.0.2.2"], "$7\r\na.first\r\n$8\r\nhalf"),
            (&["GET 192.0.2.2"], "$8\r\na.second\r\n"),
            (&["GET 192.0.2.3"], ""),
            (&[], ""),
        ];
        let told = std::thread::spawn(move || {
            for (asked, said) in script {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                for expected in asked {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    assert_eq!(line.trim_end(), *expected);
                }
                stream.get_mut().write_all(said.as_bytes()).unwrap();
            }
        });
        let [first, second, third] = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
        let names = service.names(&[first, second], Duration::ZERO).unwrap();
        let named = [first, second].map(|address| names.get(&address).map(String::as_str));
        assert_eq!(named, [Some("a.first"), Some("a.second")]);
        // The second connection has ended, too, and the third ends before its answer: then it is told.
        let Err(Failure::Unreachable(what)) = service.names(&[third], Duration::ZERO) else { panic!() };
        assert_eq!(service.again, 2, "{what}");
        // So it is where nobody is there any more.
        service.stream = connected(service.address).unwrap();
        told.join().unwrap();
        assert!(matches!(service.names(&[third], Duration::ZERO), Err(Failure::Unreachable(_))));
        assert_eq!(service.again, 2);
    }

    #[test]
    fn a_service_that_is_started_anew_is_waited_for() {
        // An address of its own: others take free ports of 127.0.0.1.
        let listener = std::net::TcpListener::bind("127.77.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut service = Service::connect(at, RESTART_MAX).unwrap();
        let told = std::thread::spawn(move || {
            let before = listener.accept().unwrap();
            drop((listener, before));
            let mut stream = BufReader::new(std::net::TcpListener::bind(at).unwrap().accept().unwrap().0);
            stream.read_line(&mut String::new()).unwrap();
            stream.get_mut().write_all(b"$12\r\nhost.example\r\n").unwrap();
        });
        let address = "192.0.2.1".parse().unwrap();
        let names = service.names(&[address], Duration::ZERO).unwrap();
        assert_eq!((names.get(&address).map(String::as_str), service.again), (Some("host.example"), 1));
        told.join().unwrap();
    }
}
