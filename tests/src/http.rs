//! A client of the API: one connection, kept open, one request at a time (RFC 9112).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long an answer may take: a change waits up to five seconds for the slowest worker, on a machine that
/// has much else to do.
pub const HTTP_WAIT: Duration = Duration::from_secs(60);

/// A client with at most one connection.
#[derive(Debug)]
pub struct Client {
    server: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Client {
    /// A client that has not connected yet.
    pub fn new(server: SocketAddr) -> Client {
        Client { server, connection: None }
    }

    /// Makes a call that must be answered; the type of a body follows from the path.
    ///
    /// # Panics
    /// Where no answer comes.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Response {
        self.send(method, path, &[], body.as_bytes())
            .unwrap_or_else(|cause| panic!("{method} {path}: no answer: {cause}"))
    }

    /// Makes a call that must succeed, and at once: 202 would be durable, but not yet served.
    ///
    /// # Errors
    /// Where no whole answer comes, or another one than 200; with the reason.
    pub fn done(&mut self, method: &str, path: &str, body: &str) -> io::Result<Response> {
        let response = self.send(method, path, &[], body.as_bytes())?;
        if response.status == 200 {
            return Ok(response);
        }
        let (status, why) = (response.status, response.text());
        Err(io::Error::other(format!("{method} {path} was answered with {status}: {why}")))
    }

    /// A number of `/metrics`, by its name with its labels; `None` where it is not there.
    ///
    /// # Panics
    /// Where no answer comes, or it is no number.
    pub fn metric(&mut self, name: &str) -> Option<f64> {
        let text = self.call("GET", "/metrics", "").text();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value.parse().expect("a number"))
    }

    /// Makes a call with further headers.
    ///
    /// # Errors
    /// Where no whole answer comes; nothing is known then of a change that was asked for.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(self.server)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(HTTP_WAIT))?;
                stream.set_write_timeout(Some(HTTP_WAIT))?;
                BufReader::new(stream)
            }
        };
        let is_given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !is_given("host") {
            head += &format!("Host: {}\r\n", self.server);
        }
        if !body.is_empty() && !is_given("content-type") {
            head += &format!("Content-Type: {}\r\n", media_type(path));
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        connection.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let response = read(&mut connection)?;
        if response.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        Ok(response)
    }
}

impl Response {
    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// Where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|cause| panic!("{cause}: {}", self.text()))
    }

    /// The generation that a change names.
    ///
    /// # Panics
    /// Where the body names none.
    pub fn generation(&self) -> u64 {
        self.json()["generation"].as_u64().unwrap_or_else(|| panic!("no generation: {}", self.text()))
    }
}

fn media_type(path: &str) -> &'static str {
    if path.starts_with("/v1/zones/") {
        "text/dns"
    } else if path.starts_with("/v1/partitions/") {
        "text/csv"
    } else {
        "application/json"
    }
}

fn read(connection: &mut BufReader<TcpStream>) -> io::Result<Response> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut line = || {
        let mut line = String::new();
        match connection.read_line(&mut line)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            _ => Ok(line.trim_end().to_owned()),
        }
    };
    let status = line()?;
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| broken("no status"))?;
    let mut headers = Vec::new();
    loop {
        let line = line()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| broken("no header"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut response = Response { status, headers, body: Vec::new() };
    // 304 has no body; everything else of this API tells its length.
    let length = response.header("content-length").map_or(Ok(0), str::parse);
    response.body.resize(length.map_err(|_| broken("no length"))?, 0);
    connection.read_exact(&mut response.body)?;
    Ok(response)
}
