use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// What a server answers: status, a header, body.
type Canned = (u16, Option<(&'static str, &'static str)>, &'static str);

/// How a server asks for a token.
const CHALLENGE: (&str, &str) = ("www-authenticate", "Bearer realm=\"pointsman\"");

/// A request as the server saw it, in one line.
type Seen = String;

/// Answers one request, and tells what it was.
async fn serve(answer: Canned) -> (Client, tokio::task::JoinHandle<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let url = format!("http://{}/behind/", listener.local_addr().expect("it is bound"));
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("the client connects");
        let (tell, told) = std::sync::mpsc::channel();
        let service = service_fn(move |request: Request<Incoming>| {
            let tell = tell.clone();
            async move {
                let header =
                    |name| request.headers().get(name).map_or("-", |value| value.to_str().expect("ASCII"));
                let head = format!(
                    "{} {} {} {} {}",
                    request.method(),
                    request.uri(),
                    header(AUTHORIZATION),
                    header(IF_MATCH),
                    header(CONTENT_TYPE),
                );
                let body = request.into_body().collect().await.expect("the body comes whole").to_bytes();
                tell.send(format!("{head} {}", String::from_utf8_lossy(&body))).expect("the test waits");
                let (status, header, body) = answer;
                let mut response = Response::builder().status(status);
                if let Some((name, value)) = header {
                    response = response.header(name, value);
                }
                Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).expect("a response"))
            }
        });
        // The client closes as soon as it has its answer, which is no error of ours.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        told.recv().expect("a request came")
    });
    (Client::new(&url, Some("secret".into())).expect("a URL"), server)
}

fn put() -> Call {
    let body = Body { media_type: "text/dns", content: b"zone".to_vec(), source: "a.zone".into() };
    Call { method: Method::PUT, path: "/v1/zones/a".into(), body: Some(body), if_match: Some("t".into()) }
}

#[tokio::test]
async fn what_is_asked_is_what_arrives() {
    let (client, server) = serve((202, Some(("etag", "\"5f\"")), "{\"generation\":7}\n")).await;
    let answer = client.send(put()).await.expect("the server answers");
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert_eq!(answer.tag.as_deref(), Some("5f"));
    assert_eq!(&answer.body[..], b"{\"generation\":7}\n");
    let seen = server.await.expect("the server ends");
    assert_eq!(seen, "PUT /behind/v1/zones/a Bearer secret \"t\" text/dns zone");
}

async fn check(answer: Canned, exit: &str, told: &str) {
    let (client, server) = serve(answer).await;
    let failure = client.send(put()).await.expect_err("the server refuses");
    server.await.expect("the server ends");
    let found = match &failure {
        Unmet::Refused { .. } => "failed",
        Unmet::Faults(_) => "faults",
        Unmet::Unreachable(_) => "unreachable",
    };
    let failure = failure.to_string();
    assert_eq!((found, failure.replace(&client.url, "URL").as_str()), (exit, told), "for {answer:?}");
}

#[tokio::test]
async fn refusals_say_what_where_and_how_to_go_on() {
    let faults = r#"{"what":"the body has 3 faults","omitted":1,"faults":[
        {"source":"body","line":3,"column":7,"what":"unknown type AA","expected":"a type"},
        {"source":"other.zone","what":"empty"}]}"#;
    check(
        (422, None, faults),
        "faults",
        "a.zone:3:7: unknown type AA; expected a type\nother.zone: empty\nand 1 more",
    )
    .await;
    let long = r#"{"what":"the body is too long","expected":"at most 4 MiB"}"#;
    check((413, None, long), "faults", "a.zone: the body is too long; expected at most 4 MiB").await;
    check((412, None, r#"{"what":"it has changed"}"#), "failed", "it has changed").await;
    check((404, None, r#"{"what":"there is no zone a."}"#), "failed", "there is no zone a.").await;
    check(
        (401, Some(CHALLENGE), r#"{"what":"the token is wrong"}"#),
        "failed",
        "the token is wrong\nThe token given with --token-file FILE or POINTSMAN_TOKEN is not the server's.",
    )
    .await;
    let not_asked_for = r#"{"what":"not under a host's name"}"#;
    check((401, None, not_asked_for), "failed", "not under a host's name").await;
    check(
        (503, None, r#"{"what":"the disk is full"}"#),
        "failed",
        "the disk is full\nThe last generation goes on; `pointsman status` tells how the store is.",
    )
    .await;
    let (client, _) = serve((503, None, r#"{"what":"too many changes are under way"}"#)).await;
    let told = Client { asked: BALANCE, ..client }.send(put()).await.map(drop);
    assert!(
        matches!(&told, Err(Unmet::Refused { what, .. }) if what == "too many changes are under way"),
        "a balancer has no store: {told:?}"
    );
    check(
        (502, None, "<html>Bad Gateway</html>"),
        "failed",
        "URLv1/zones/a answered 502 Bad Gateway, which is not in the words of Pointsman's API: \"<html>Bad \
         Gateway</html>\"",
    )
    .await;
}

#[tokio::test]
async fn who_asks_for_no_token_is_given_none() {
    let (at, server) = serve((401, Some(CHALLENGE), r#"{"what":"not under a host's name"}"#)).await;
    let client = Client::of(at.url(), None, REVERSE).expect("a URL");
    let told = client.look("/v1/status").await.expect_err("it refuses").to_string();
    server.await.expect("the server ends");
    assert_eq!(told, "not under a host's name");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_apart() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let address = free.local_addr().expect("it is bound");
    let client = Client::new(&format!("http://{address}"), None).expect("a URL");
    drop(free);
    let refused = client.send(Call::new(Method::GET, "/v1/status")).await.expect_err("nobody is there");
    let Unmet::Unreachable(told) = refused else { panic!("{refused:?}") };
    assert!(told.starts_with(&format!("the API at http://{address} cannot be reached: ")), "{told}");
    assert!(told.contains("pointsman serve"), "{told}");

    let rude = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let client =
        Client::new(&format!("http://{}", rude.local_addr().expect("it is bound")), None).expect("a URL");
    let hang_up = tokio::spawn(async move { drop(rude.accept().await) });
    let lost = client.send(Call::new(Method::GET, "/v1/status")).await.expect_err("it hangs up");
    hang_up.await.expect("the server ends");
    assert!(matches!(lost, Unmet::Unreachable(_)), "{lost:?}");
}

// The clock runs by itself while everybody waits.
#[tokio::test(start_paused = true)]
async fn who_only_looks_does_not_wait_for_long() {
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let url = format!("http://{}", mute.local_addr().expect("it is bound"));
    let client = Client::new(&url, None).expect("a URL");
    let hasty = client.clone().within(Duration::from_secs(1), ANSWER_MAX);
    for (unmet, wait) in [
        (client.look("/v1/status").await, "10000 ms"),
        (hasty.look("/v1/status").await, "1000 ms"),
        (client.send(put()).await, "120000 ms"),
        (client.send(Call::new(Method::GET, "/v1/zones/a")).await, "120000 ms"),
    ] {
        let told = unmet.expect_err("nobody answers").to_string();
        assert!(told.contains(&format!(": no answer within {wait}\n")), "{told}");
    }
}

#[tokio::test]
async fn a_connection_is_kept_where_that_is_wanted_and_while_it_is_good() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    // How many calls come on each connection.
    let server = tokio::spawn(async move {
        let mut seen = [0; 4];
        for (number, calls) in seen.iter_mut().enumerate() {
            let (mut stream, _) = listener.accept().await.expect("the client connects");
            let mut heads = Vec::new();
            while stream.read_buf(&mut heads).await.expect("the connection is closed in order") > 0 {
                if heads.ends_with(b"\r\n\r\n") {
                    heads.clear();
                    *calls += 1;
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    stream.write_all(answer).await.expect("the client reads");
                    if (number, *calls) == (0, 2) {
                        break;
                    }
                }
            }
        }
        seen
    });
    let call = |client: &Client| {
        let client = client.clone();
        async move { client.send(Call::new(Method::GET, "/v1/status")).await.expect("it answers") }
    };
    let client = Client::new(&url, None).expect("a URL").keeping();
    let kept = client.kept.clone().expect("it keeps");
    let is_closed = || kept.lock().unwrap().as_ref().is_some_and(|connection| connection.sender.is_closed());
    for _ in 0..2 {
        call(&client).await;
    }
    while !is_closed() {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        call(&client).await;
    }
    tokio::time::pause();
    tokio::time::advance(IDLE_MAX).await;
    tokio::time::resume();
    call(&client).await;
    drop((client, kept.lock().unwrap().take()));
    call(&Client::new(&url, None).expect("a URL")).await;
    assert_eq!(server.await.expect("the server ends"), [2, 3, 1, 1]);
}

#[test]
fn urls_are_plain_http() {
    for (url, authority, prefix) in [
        ("http://127.0.0.1:8053", "127.0.0.1:8053", ""),
        ("http://[::1]:8053/", "[::1]:8053", ""),
        ("[::1]:8053", "[::1]:8053", ""),
        ("localhost:8053/pointsman", "localhost:8053", "/pointsman"),
        ("http://dns.example/pointsman/", "dns.example:80", "/pointsman"),
    ] {
        let client = Client::new(url, None).expect("a URL");
        assert_eq!((client.authority.as_str(), client.prefix.as_str()), (authority, prefix));
    }
    for (url, what) in [
        (
            "https://127.0.0.1:8053",
            "\"https://127.0.0.1:8053\": the API is asked over plain http, without TLS",
        ),
        ("ftp://localhost", "\"ftp://localhost\" does not begin with http://"),
        ("http:/localhost", "\"http:/localhost\" has a port that is none"),
        ("http://me@localhost", "\"http://me@localhost\" names no host"),
        ("http://localhost:99999", "\"http://localhost:99999\" has a port that is none"),
        ("http://[::1]:", "\"http://[::1]:\" has a port that is none"),
        ("http://localhost:0", "\"http://localhost:0\" has a port that is none"),
        ("http://localhost/?a=b", "\"http://localhost/?a=b\" has a query"),
        ("", "\"\" is no URL"),
    ] {
        assert_eq!(
            Client::new(url, None).map(|client| client.url).map_err(|fault| fault.what),
            Err(what.into())
        );
    }
}

#[test]
fn names_become_segments() {
    for (name, expected) in [
        ("example.com.", "example.com."),
        (".", "=2E"),
        ("*.example.com", "%2A.example.com"),
        ("a/b?c#d e", "a%2Fb%3Fc%23d%20e"),
        ("2001:db8::1", "2001%3Adb8%3A%3A1"),
        ("münchen", "m%C3%BCnchen"),
    ] {
        assert_eq!(segment(name), expected);
    }
}
