//! Load sources: what is asked for a server's load, and what of its answer is the load.
//!
//! [`text`] finds the value in what came; this module goes and gets it. Whatever a source answers is foreign: it has
//! [`ANSWER_MAX`] octets and the time that is configured, and what cannot be read is a reading that failed.

pub mod text;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use api::{Fault, Target};
use hyper::Method;
use tokio::process::Command;
use web::client::{Asked, Call, Client, Unmet};

use crate::load::Scale;
use text::Sample;

/// The largest answer of a source in octets: a page of metrics of a busy exporter has a tenth.
pub const ANSWER_MAX: usize = 4 << 20;

/// What stands in URLs, pointers, labels and commands for the server's address.
pub const ADDRESS: &str = "{address}";

/// Who a source asks, as it is told where nobody answers.
const ASKED: Asked = Asked {
    name: "the load",
    source: "url",
    program: "what the source asks",
    example: "a URL such as http://{address}:9100/metrics",
    token: "nothing: sources send none",
    unavailable: "",
    is_ours: false,
};

/// A source of loads.
#[derive(Clone, Debug)]
pub struct Source {
    /// The source's name, as reports, metrics and the log have it; unique.
    pub name: String,
    /// What the source's values mean: threshold, watermarks and weight.
    pub scale: Scale,
    /// Whether the load is by how much the value grows in a second.
    pub per_second: bool,
    /// Where the values are from.
    pub kind: Kind,
}

/// Where a source's values are from.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A value in a JSON document.
    Json {
        /// The URL of the document; `{address}` in it stands for the server, of a name without the final dot.
        url: String,
        /// The JSON pointer to the number in it (RFC 6901); empty where the document is the number.
        pointer: String,
    },
    /// A metric in Prometheus's text format.
    Prometheus {
        /// The URL of the page; `{address}` in it stands for the server, of a name without the final dot.
        url: String,
        /// The name and the labels of the samples whose sum is the value.
        sample: Sample,
    },
    /// The output of a command, which is run without a shell.
    Command {
        /// The program and its arguments.
        line: Vec<String>,
        /// The folder that it runs in.
        folder: PathBuf,
        /// The text behind which the value stands.
        after: String,
    },
    /// Reports that the servers send to the face; nobody is asked.
    Pushed,
}

impl Kind {
    /// Asks for the value of `server`; `None` for what is reported, not asked for.
    ///
    /// # Errors
    /// What went wrong, in one line.
    pub async fn measure(&self, server: &Target, timeout: Duration) -> Option<Result<f64, String>> {
        Some(match self {
            Kind::Json { url, pointer } => match page(url, server, timeout).await {
                Ok(page) => text::json(&page, &pointer.replace(ADDRESS, &server.host())),
                Err(why) => Err(why),
            },
            Kind::Prometheus { url, sample } => match page(url, server, timeout).await {
                Ok(page) => sample.with(ADDRESS, &server.host()).read(&String::from_utf8_lossy(&page)),
                Err(why) => Err(why),
            },
            Kind::Command { line, folder, after } => {
                match tokio::time::timeout(timeout, output(line, folder, server)).await {
                    Ok(Ok(output)) => text::number_after(&output, after),
                    Ok(Err(why)) => Err(why),
                    Err(_) => Err(format!("{} has not ended within {} ms", line[0], timeout.as_millis())),
                }
            }
            Kind::Pushed => return None,
        })
    }
}

/// Sees whether a URL, with an address in its place, is one that can be asked.
///
/// # Errors
/// What is wrong with it.
pub fn check(url: &str) -> Result<(), Fault> {
    client(url, &[192, 0, 2, 1].into()).map(|_| ())
}

/// The client of a URL, and the path that is asked for.
fn client(url: &str, server: &Target) -> Result<(Client, String), Fault> {
    let written = match server.address() {
        Some(IpAddr::V6(address)) => format!("[{address}]"),
        _ => server.host(),
    };
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let path = url[host..].find(['/', '?']).map_or(url.len(), |path| host + path);
    let (base, path) = url.split_at(path);
    // Only a host is written in brackets (RFC 3986 §3.2.2).
    let (base, path) = (base.replace(ADDRESS, &written), path.replace(ADDRESS, &server.host()));
    let path = if path.starts_with('/') { path } else { format!("/{path}") };
    // What the client sends must be a URI as a whole, too.
    let whole = format!("{base}{path}");
    if whole.parse::<hyper::Uri>().is_err() {
        return Err(Fault::whole(ASKED.source, format!("{whole:?} is no URL"), ASKED.example));
    }
    Ok((Client::of(&base, None, ASKED)?, path))
}

async fn page(url: &str, server: &Target, timeout: Duration) -> Result<Vec<u8>, String> {
    let (client, path) = client(url, server).map_err(|fault| fault.what)?;
    let answer = client.within(timeout, ANSWER_MAX).send(Call::new(Method::GET, path)).await;
    answer.map(|answer| answer.body.into()).map_err(|unmet| first_line(&unmet))
}

/// A refusal without its hints, which are for people at a command line.
fn first_line(unmet: &Unmet) -> String {
    unmet.to_string().lines().next().unwrap_or_default().to_owned()
}

/// What a command prints; it is killed, with all that it started, when nobody waits for it any more.
async fn output(line: &[String], folder: &Path, server: &Target) -> Result<String, String> {
    let mut words = line.iter().map(|word| word.replace(ADDRESS, &server.host()));
    let name = words.next().ok_or("there is no command")?;
    let mut command = Command::new(&name);
    command.args(words);
    // Numbers have a point in this one.
    command.env("LC_ALL", "C").current_dir(folder);
    let output = net::group::output(&mut command, ANSWER_MAX).await;
    let Output { status, stdout, stderr } = output.map_err(|cause| format!("{name}: {cause}"))?;
    if !status.success() {
        let stderr = String::from_utf8_lossy(&stderr);
        return Err(format!("{name} ended with {status}: {}", stderr.lines().next().unwrap_or_default()));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn refusals_are_told_in_the_words_of_http_with_the_path() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let site = listener.local_addr().expect("it is bound");
        // A problem of somebody else's API is only quoted.
        let body = "{\"what\":\"gone\"}";
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("it is asked");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut head).await.expect("a request comes");
            }
            let answer = format!("HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.expect("the client reads");
        });
        let kind = Kind::Json { url: format!("http://{site}/load?of={{address}}"), pointer: String::new() };
        let refused =
            kind.measure(&[192, 0, 2, 1].into(), Duration::from_secs(60)).await.expect("it is asked for");
        server.await.expect("the server ends");
        let told = format!("http://{site}/load?of=192.0.2.1 answered 404 Not Found: {body:?}");
        assert_eq!(refused, Err(told));
        let secret = check("https://{address}/load").expect_err("there is no TLS");
        assert_eq!(secret.what, "\"https://192.0.2.1\": the load is asked over plain http, without TLS");
        assert_eq!(secret.expected, ASKED.example);
    }

    #[test]
    fn urls_have_the_address_and_a_path() {
        for (url, address, base, path) in [
            ("http://{address}:9100/metrics", "192.0.2.1", "http://192.0.2.1:9100", "/metrics"),
            ("http://{address}:9100", "2001:db8::1", "http://[2001:db8::1]:9100", "/"),
            ("http://a.example?x={address}", "192.0.2.1", "http://a.example", "/?x=192.0.2.1"),
            ("http://a.example/{address}", "2001:db8::1", "http://a.example", "/2001:db8::1"),
            ("http://{address}/x?of={address}", "cdn.example.", "http://cdn.example", "/x?of=cdn.example"),
        ] {
            let server = address.parse().expect("an address or a name");
            let (client, asked) = client(url, &server).expect("a URL");
            assert_eq!((client.url(), asked.as_str()), (base, path), "{url}");
        }
        for url in ["https://{address}/", "{address}:9100/metrics", "http://", "http://a.example/a b"] {
            assert!(check(url).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn commands_are_run_without_a_shell_and_not_for_ever() {
        let server = Target::from([192, 0, 2, 1]);
        let run = async |line: &[&str], after: &str| {
            let line = line.iter().map(|word| (*word).into()).collect();
            let kind = Kind::Command { line, folder: "/usr".into(), after: after.into() };
            kind.measure(&server, Duration::from_millis(500)).await.expect("it is asked for")
        };
        assert_eq!(run(&["echo", "load of {address}: 0.75,"], "192.0.2.1:").await, Ok(0.75));
        let failed = run(&["false"], "").await.expect_err("it fails");
        assert!(failed.starts_with("false ended with exit status: 1"), "{failed}");
        assert!(run(&["/nowhere/uptime"], "").await.is_err());
        let late = run(&["cat", "/dev/zero"], "").await.expect_err("it has no end");
        assert_eq!(late, "cat has not ended within 500 ms");
        let lost = run(&["ls", "-d", "/usr/bin", "bin"], "").await.expect_err("there is no number");
        assert!(!lost.contains("ended with"), "it runs in its folder: {lost}");

        // The program may be the server's own.
        let folder = std::env::temp_dir().join(format!("pointsman-source-own-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        std::os::unix::fs::symlink("/bin/sh", folder.join("192.0.2.1")).expect("the folder is ours");
        let own = folder.join("{address}").to_string_lossy().into_owned();
        assert_eq!(run(&[own.as_str(), "-c", "echo 7"], "").await, Ok(7.0));
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
