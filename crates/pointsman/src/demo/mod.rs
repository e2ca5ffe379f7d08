//! `pointsman demo`: a name server with a sample zone, clients from everywhere, and changes that are watched from
//! outside until they reach the answers.
//!
//! In reading order:
//! - [`sample`]: what is served, who asks, and the script of changes.
//! - [`in_force`]: what a region may be answered; [`timeline`]: and when.
//! - [`watch`]: the clients, and what is made of their answers; [`wire`]: their messages; [`tally`]: their counts.
//! - [`play`]: sockets, clock and calls around it.
//! - [`screen`] and [`output`]: what is seen meanwhile; [`summary`]: what is said at the end.
//! - [`folder`]: where the store is.

mod folder;
mod in_force;
mod output;
mod play;
mod sample;
pub(crate) mod screen;
mod summary;
mod tally;
mod timeline;
mod watch;
mod wire;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use api::{NewRegion, Region};
use clap::Args;
use hyper::Method;
use nameserver::generation::Settings;
use nameserver::service::{Options, Service};

use crate::config::kind;
use crate::failure::Failure;
use crate::session;
use crate::supervision::Stop;
use folder::Folder;
use in_force::InForce;
use output::Output;
use play::Stage;
use sample::{Change, NEAREST, SITES};
use summary::Summary;
use watch::Watch;
use web::client::{Body, Call, Client, segment};

/// The address that the name server listens at where it is free, as the manual's examples have it.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5300);

/// The address of the API where it is free: the one that the other commands take by default.
const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8053);

/// For how long the demo may be told to run.
const LENGTH: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);

/// The arguments of `demo`.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// How long to run, such as 10s or 5min; until Ctrl-C where not given
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    length: Option<Duration>,
    /// Where the name server listens; 127.0.0.1:5300 where not given, or any port if that is taken
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Option<SocketAddr>,
    /// A folder for the store, which is kept; a temporary one where not given
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Worker threads; one leaves a small machine a core for the clients
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Print the summary as JSON; all else goes to stderr
    #[arg(long)]
    json: bool,
}

impl Demo {
    /// Shows what there is to be seen.
    ///
    /// # Errors
    /// [`Failure`]; anything that was wrong with answers or changes is one.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut stop = Stop::take()?.or_hang_up()?;
        let folder = Folder::new(self.dir.as_deref())?;
        let service = Service::start(self.options(&folder)).await?;
        let shown = self.show(&service, &mut stop).await;
        service.stop().await;
        shown
    }

    async fn show(&self, service: &Service, stop: &mut Stop) -> Result<(), Failure> {
        let api = format!("http://{}", service.api_address());
        let client = Client::new(&api, None)?;
        let generation = set_up(&client).await?;
        let mut rng = fastrand::Rng::new();
        let clients = sample::clients(&mut rng);
        let mut output = Output::new(self.json);
        let address = play::reached_at(service.listening()[0]);
        let name = sample::NAME.trim_end_matches('.');
        output.line(&format!(
            "dig @{} -p {} {name} A +subnet={}",
            address.ip(),
            address.port(),
            sample::EXAMPLE
        ))?;
        output.line("")?;
        output.legend()?;
        let in_force = InForce { matrix: &NEAREST, down: [false; SITES.len()] };
        let mut watch = Watch::new(in_force, generation, clients, rng);
        let stage = Stage { client, api, server: address, length: self.length };
        let time = play::play(&stage, &mut watch, &mut output, stop).await?;
        check_service(service, &mut watch);
        let summary = Summary::new(&watch, time);
        if self.json {
            let json = serde_json::to_vec_pretty(&summary).expect("a summary has a JSON form");
            session::print(&json)?;
        } else {
            output.line("")?;
            output.line(summary.text().trim_end())?;
        }
        match summary.ok {
            true => Ok(()),
            false => Err(Failure::Failed(format!("the demo went wrong:\n  {}", summary.faults.join("\n  ")))),
        }
    }

    fn options(&self, folder: &Folder) -> Options {
        let any = |address: SocketAddr| SocketAddr::new(address.ip(), 0);
        let preferred = |address: SocketAddr| if is_free(address) { address } else { any(address) };
        let listen = self.listen.unwrap_or_else(|| preferred(LISTEN));
        // The port may be free because nobody has begun to listen for DNS there.
        let api = if listen.port() == API.port() { any(API) } else { preferred(API) };
        Options {
            probes: nameserver::health::Probes::new(),
            listen: vec![listen],
            api,
            token: None,
            store: format!("sqlite:{}", folder.path().join("demo.db").display()),
            xdp: Vec::new(),
            workers: Some(self.workers.into()),
            settings: Settings::default(),
            cookies: true,
            rate_limit: None,
            tap: None,
            external: None,
            imports: Vec::new(),
            user: None,
            seed: None,
            tcp: net::tcp::Limits::default(),
            tls: None,
            transfer: nameserver::transfer::Config::default(),
            views: Vec::new(),
            signing_keys: std::sync::Arc::default(),
        }
    }
}

/// Puts the sample as an operator would, also into a store that had it; returns the generation that has it all.
async fn set_up(client: &Client) -> Result<u64, Failure> {
    let get = client.send(Call::new(Method::GET, "/v1/regions")).await?;
    let there: Vec<Region> = session::parsed(&get)?;
    let with = |method, path: String, body| Call { body: Some(body), ..Call::new(method, path) };
    let text = |media_type, content: &str, source: &str| Body {
        media_type,
        content: content.into(),
        source: source.into(),
    };
    let missing = sample::REGIONS[..sample::UNCLASSIFIED]
        .iter()
        .filter(|name| !there.iter().any(|region| region.name == **name));
    for name in missing {
        let body = Body::json(&NewRegion { name: (*name).into() });
        play::make(client, vec![with(Method::POST, "/v1/regions".into(), body)]).await?;
    }
    let zone = text("text/dns", sample::ZONE, "the demo's zone");
    let zone = with(Method::PUT, format!("/v1/zones/{}", segment(sample::ORIGIN)), zone);
    play::make(client, vec![zone]).await?;
    let partition = text("text/csv", sample::PARTITION, "the demo's partition");
    play::make(client, vec![with(Method::PUT, "/v1/partitions/default".into(), partition)]).await?;
    let mut generation = play::make(client, Change::Policy(&NEAREST).calls()).await?;
    for site in 0..SITES.len() {
        let up = play::make(client, Change::Site { site, up: true }.calls()).await?;
        generation = generation.max(up);
    }
    Ok(generation)
}

/// Notes what the server itself knows to have gone wrong.
fn check_service(service: &Service, watch: &mut Watch) {
    let editor = service.editor();
    if let Some(what) = editor.store_complaint() {
        watch.fault(format!("the store complained: {what}"));
    }
    // A change that failed may have been made all the same.
    if !watch.is_changing() {
        watch.check_generation(editor.published().load().number, watch.generation);
    }
}

/// Whether nobody is at an address, over UDP and TCP.
fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:5300".into())
}

fn length(text: &str) -> Result<Duration, String> {
    kind::time_within(text, &LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for (text, expected) in [
            ("10s", Some(10_000)),
            ("1500ms", Some(1_500)),
            ("5min", Some(300_000)),
            ("10", None),
            ("0s", None),
            ("25h", None),
            ("soon", None),
        ] {
            assert_eq!(length(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(address("[::1]:53"), Ok(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 53))));
        for text in ["127.0.0.1", "127.0.0.1:80000", "localhost:53"] {
            let told = address(text).expect_err(text);
            assert!(told.contains("such as 127.0.0.1:5300"), "{told}");
        }
    }

    #[test]
    fn what_is_taken_is_not_free() {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let address = tcp.local_addr().expect("it is bound");
        assert!(!is_free(address));
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        assert!(!is_free(udp.local_addr().expect("it is bound")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_sample_can_be_put_again() {
        let folder = Folder::new(None).expect("there is room for temporary folders");
        let any = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let demo = Demo { length: None, listen: any, dir: None, workers: 1, json: true };
        let mut options = demo.options(&folder);
        options.api.set_port(0);
        let service = Service::start(options).await.expect("the server starts");
        let client = Client::new(&format!("http://{}", service.api_address()), None).expect("a URL");
        let first = set_up(&client).await.expect("the sample is good");
        // Once more, as with a folder that was kept.
        let again = set_up(&client).await.expect("the sample is good");
        assert!(again >= first, "{again} {first}");
        service.stop().await;
    }
}
