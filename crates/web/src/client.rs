//! A client of HTTP APIs, ours above all: everything is bounded, and a connection ends with its call unless it is to be
//! kept.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Fault, Faults, Problem};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_MATCH, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::path::ROOT;

/// How long a connection may take to be made: a server that is there accepts within a round trip.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take unless it is told otherwise: the largest zones compile in less, and the server itself
/// gives up waiting for its workers after 5 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// How long an answer may take that is short, and that nothing has to be done for: who looks at a server that hangs is to know
/// soon. Ours asks its store for 2 s at most before it tells its status.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be kept idle. A server may close it when it has waited long enough for a request, ours after
/// [`HEAD_WAIT`](crate::serve::HEAD_WAIT), and a request that comes just then is lost.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// The largest answer in octets unless it is told otherwise: a zone of some millions of records.
pub const ANSWER_MAX: usize = 512 << 20;

/// Who is asked, as it is told where nobody answers.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// What is asked, as the beginning of a sentence has it: "the API".
    pub name: &'static str,
    /// The option or key by which the URL is given.
    pub source: &'static str,
    /// The command that should be running there.
    pub program: &'static str,
    /// A URL as it may be.
    pub example: &'static str,
    /// The option or key by which the token is given; empty where none is asked for.
    pub token: &'static str,
    /// What goes on where it cannot do what it is asked just then (503), and where more is told, as a sentence; empty where its
    /// own words say all.
    pub unavailable: &'static str,
    /// Whether it is Pointsman's own: then a refusal is in the words of its API, and a tunnel is a way to it.
    pub is_ours: bool,
}

/// The name server's API, as the commands ask it.
pub const API: Asked = Asked {
    name: "the API",
    source: "--api or POINTSMAN_API",
    program: "pointsman serve",
    example: "a URL such as http://127.0.0.1:8053",
    token: "--token-file FILE or POINTSMAN_TOKEN",
    unavailable: "The last generation goes on; `pointsman status` tells how the store is.",
    is_ours: true,
};

/// The reverse look-up service's HTTP face, as the commands ask it.
pub const REVERSE: Asked = Asked {
    name: "the API",
    source: "--http or POINTSMAN_REVERSE",
    program: "pointsman reverse --http ADDR",
    example: "a URL such as http://127.0.0.1:8054",
    token: "",
    unavailable: "",
    is_ours: true,
};

/// The balancer's HTTP, as the commands ask it.
pub const BALANCE: Asked = Asked {
    name: "the API",
    source: "--http or POINTSMAN_BALANCE",
    program: "pointsman balance --http ADDR",
    example: "a URL such as http://127.0.0.1:8055",
    token: "--token-file FILE or POINTSMAN_TOKEN",
    unavailable: "",
    is_ours: true,
};

/// The most of an answer that is no problem of the API that an error quotes, in characters.
const QUOTE_MAX: usize = 200;

/// Where the API is, and what it is told there.
#[derive(Clone, Debug)]
pub struct Client {
    /// The URL as it was given, for people.
    url: String,
    /// Host and port, as the system's resolver takes them and as the Host header has them.
    authority: String,
    /// What stands before the API's own paths; without a final slash.
    prefix: String,
    token: Option<String>,
    asked: Asked,
    timeout: Duration,
    answer_max: usize,
    /// The connection of the last call, where it is to be kept.
    kept: Option<Arc<Mutex<Option<Connection>>>>,
}

/// A connection, which ends with this.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// What goes wrong on it is told to the sender too.
    driver: JoinHandle<hyper::Result<()>>,
    used: Instant,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What came back, whole.
struct Received {
    status: StatusCode,
    tag: Option<String>,
    /// Whether a token is asked for (RFC 9110 §11.6.1).
    is_challenge: bool,
    body: Bytes,
}

/// Why a call did not do what it was made for.
#[derive(Clone, Debug)]
pub enum Unmet {
    /// Nobody answers.
    Unreachable(String),
    /// What was sent is wrong.
    Faults(Faults),
    /// It was refused, or what was answered is of no use.
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// Why, and how to go on.
        what: String,
    },
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmet::Unreachable(what) | Unmet::Refused { what, .. } => f.write_str(what),
            Unmet::Faults(faults) => write!(f, "{faults}"),
        }
    }
}

impl std::error::Error for Unmet {}

/// What is asked of the API.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method of the request.
    pub method: Method,
    /// The path from `/v1` on, encoded.
    pub path: String,
    /// The body of the request, where it has one.
    pub body: Option<Body>,
    /// The tag that what is changed must have, without quotes.
    pub if_match: Option<String>,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub struct Body {
    /// Its media type, such as `application/json`.
    pub media_type: &'static str,
    /// The octets that are sent.
    pub content: Vec<u8>,
    /// What stands in faults for the `body`: the file that it is from.
    pub source: String,
}

/// What the API answered, where it did what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, one of success.
    pub status: StatusCode,
    /// The tag of what was got, without quotes.
    pub tag: Option<String>,
    /// The body of the answer.
    pub body: Bytes,
}

impl Call {
    /// A call without a body.
    pub fn new(method: Method, path: impl Into<String>) -> Call {
        Call { method, path: path.into(), body: None, if_match: None }
    }
}

impl Body {
    /// A shape of the API as JSON.
    ///
    /// # Panics
    /// Where the shape has no form as JSON: those of the API have one.
    pub fn json(shape: &impl Serialize) -> Body {
        let content = serde_json::to_vec(shape).expect("the API's shapes have text keys only");
        Body { media_type: "application/json", content, source: "the request".into() }
    }
}

impl Client {
    /// A client of the name server's API at `url`, which may be only a host and a port.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn new(url: &str, token: Option<String>) -> Result<Client, Fault> {
        Client::of(url, token, API)
    }

    /// A client of anybody's API at `url`, which may be only a host and a port.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn of(url: &str, token: Option<String>, asked: Asked) -> Result<Client, Fault> {
        let fault = |what: String| Fault::whole(asked.source, what, asked.example);
        // As a service is told where to listen.
        let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = whole.parse().map_err(|_| fault(format!("{url:?} is no URL")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                let what = format!("{url:?}: {} is asked over plain http, without TLS", asked.name);
                let tunnel =
                    "http:// to a loopback address, through a tunnel (ssh -L) where it is another machine";
                let expected = if asked.is_ours { tunnel } else { asked.example };
                return Err(Fault::whole(asked.source, what, expected));
            }
            _ => return Err(fault(format!("{url:?} does not begin with http://"))),
        }
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(|| fault(format!("{url:?} names no host")))?;
        if uri.query().is_some() {
            return Err(fault(format!("{url:?} has a query")));
        }
        // Else a token would go to whoever has the port of HTTP.
        let behind_host = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let port = match (behind_host, authority.port_u16()) {
            ("", _) => 80,
            (_, Some(port)) if port != 0 => port,
            _ => return Err(fault(format!("{url:?} has a port that is none"))),
        };
        Ok(Client {
            url: whole,
            authority: format!("{}:{port}", authority.host()),
            prefix: uri.path().trim_end_matches('/').into(),
            token,
            asked,
            timeout: ANSWER_TIMEOUT,
            answer_max: ANSWER_MAX,
            kept: None,
        })
    }

    /// The URL, with `http://` before it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same client, with less patience: an answer, connection and all, may take `timeout` and have `answer_max`
    /// octets.
    pub fn within(self, timeout: Duration, answer_max: usize) -> Client {
        Client { timeout, answer_max, ..self }
    }

    /// The same client, for who calls again and again: a call takes the connection of the one before. Copies share it.
    pub fn keeping(self) -> Client {
        Client { kept: Some(Arc::default()), ..self }
    }

    /// Makes a call, and waits for the whole of its answer.
    ///
    /// # Errors
    /// [`Unmet`]; whatever is no success is refused.
    pub async fn send(&self, call: Call) -> Result<Answer, Unmet> {
        let source = call.body.as_ref().map(|body| body.source.clone());
        let path = call.path.clone();
        let received = tokio::time::timeout(self.timeout, self.exchange(call))
            .await
            .map_err(|_| self.unreachable(format!("no answer within {} ms", self.timeout.as_millis())))??;
        if received.status.is_success() {
            Ok(Answer { status: received.status, tag: received.tag, body: received.body })
        } else {
            Err(self.refused(&received, &path, source.as_deref()))
        }
    }

    /// Gets something short: as [`send`](Self::send), but within 10 s in all.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn look(&self, path: impl Into<String>) -> Result<Answer, Unmet> {
        let timeout = self.timeout.min(LOOK_TIMEOUT);
        self.clone().within(timeout, self.answer_max).send(Call::new(Method::GET, path)).await
    }

    async fn exchange(&self, call: Call) -> Result<Received, Unmet> {
        let mut connection = match self.last().await {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let sent = connection.sender.send_request(self.request(call)).await;
        let received = self.receive(sent.map_err(|cause| self.lost(cause))?).await?;
        if let Some(kept) = &self.kept {
            connection.used = Instant::now();
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        }
        Ok(received)
    }

    /// The connection of the last call, where it can be used again.
    async fn last(&self) -> Option<Connection> {
        let kept = self.kept.as_ref()?;
        let mut connection = kept.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let is_fresh = connection.used.elapsed() < IDLE_MAX;
        (is_fresh && connection.sender.ready().await.is_ok()).then_some(connection)
    }

    async fn connect(&self) -> Result<Connection, Unmet> {
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.authority))
            .await
            .map_err(|_| self.unreachable(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|cause| self.unreachable(cause.to_string()))?;
        // Else the end of a request would wait until its beginning is acknowledged (RFC 896). Where it cannot be set, the
        // connection has ended, and the call says so.
        let _ = stream.set_nodelay(true);
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|cause| self.lost(cause))?;
        Ok(Connection { sender, driver: tokio::spawn(connection), used: Instant::now() })
    }

    fn lost(&self, cause: impl fmt::Display) -> Unmet {
        self.unreachable(format!("the connection was lost: {cause}"))
    }

    fn request(&self, call: Call) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.prefix, call.path))
            .header(HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(tag) = call.if_match {
            request = request.header(IF_MATCH, format!("\"{tag}\""));
        }
        let mut content = Vec::new();
        if let Some(body) = call.body {
            request = request.header(CONTENT_TYPE, body.media_type);
            content = body.content;
        }
        request.body(Full::new(content.into())).expect("paths are encoded, tokens and tags visible ASCII")
    }

    async fn receive(&self, response: Response<hyper::body::Incoming>) -> Result<Received, Unmet> {
        let status = response.status();
        let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
        let tag = tag.map(|tag| tag.trim_matches('"').to_owned());
        let is_challenge = response.headers().contains_key(WWW_AUTHENTICATE);
        let body = Limited::new(response.into_body(), self.answer_max).collect().await.map_err(|cause| {
            if cause.is::<LengthLimitError>() {
                let what = format!("the answer of {} is larger than {} octets", self.url, self.answer_max);
                Unmet::Refused { status, what }
            } else {
                self.lost(cause)
            }
        })?;
        Ok(Received { status, tag, is_challenge, body: body.to_bytes() })
    }

    fn unreachable(&self, why: String) -> Unmet {
        Unmet::Unreachable(format!(
            "{} at {} cannot be reached: {why}\nIs the server running ({})? Another address is given by {}.",
            self.asked.name, self.url, self.asked.program, self.asked.source
        ))
    }

    /// Sorts what the API says where it does not do what it was asked.
    fn refused(&self, received: &Received, path: &str, source: Option<&str>) -> Unmet {
        let Received { status, is_challenge, ref body, .. } = *received;
        let problem = serde_json::from_slice::<Problem>(body).ok().filter(|_| self.asked.is_ours);
        let Some(problem) = problem else {
            return Unmet::Refused { status, what: self.not_ours(status, path, body) };
        };
        if !problem.faults.is_empty() {
            let mut faults = Faults { faults: problem.faults, omitted: problem.omitted };
            if let Some(source) = source {
                name_source(&mut faults, source);
            }
            return Unmet::Faults(faults);
        }
        let mut what = problem.what;
        if !problem.expected.is_empty() {
            let _ = write!(what, "; expected {}", problem.expected);
        }
        match status {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                Unmet::Faults(Fault::whole(source.unwrap_or("the request"), what, "").into())
            }
            _ => {
                if let Some(hint) = self.way_on(status, is_challenge) {
                    let _ = write!(what, "\n{hint}");
                }
                Unmet::Refused { status, what }
            }
        }
    }

    fn way_on(&self, status: StatusCode, is_challenge: bool) -> Option<String> {
        match status {
            // Where none is asked for, a host's name is refused, and no token helps.
            StatusCode::UNAUTHORIZED if !is_challenge || self.asked.token.is_empty() => None,
            StatusCode::UNAUTHORIZED if self.token.is_none() => {
                Some(format!("Give the server's token with {}.", self.asked.token))
            }
            StatusCode::UNAUTHORIZED => {
                Some(format!("The token given with {} is not the server's.", self.asked.token))
            }
            StatusCode::SERVICE_UNAVAILABLE if !self.asked.unavailable.is_empty() => {
                Some(self.asked.unavailable.into())
            }
            _ => None,
        }
    }

    fn not_ours(&self, status: StatusCode, path: &str, body: &[u8]) -> String {
        let mut what = format!("{}{path} answered {status}", self.url.trim_end_matches('/'));
        if self.asked.is_ours {
            what += ", which is not in the words of Pointsman's API";
        }
        let text: String = String::from_utf8_lossy(body).chars().take(QUOTE_MAX).collect();
        if !text.trim().is_empty() {
            let _ = write!(what, ": {:?}", text.trim());
        }
        what
    }
}

/// Encodes one segment of a path (RFC 3986 §3.3), the name `.` as [`ROOT`].
pub fn segment(name: &str) -> String {
    if name == "." { ROOT.into() } else { encoded(name) }
}

/// Encodes everything but unreserved characters (RFC 3986 §2.3), for a segment or a value in a query.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// Puts the file's name where the API says `body`.
fn name_source(faults: &mut Faults, source: &str) {
    for fault in faults.faults.iter_mut().filter(|fault| fault.source == "body") {
        fault.source = source.into();
    }
}

#[cfg(test)]
mod tests;
