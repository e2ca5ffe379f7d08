//! How clients reach servers: the options of `replay` for transports, TLS and distance.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Fault;
use clap::Args;
use replay::send::carrier::{Carrier, Carriers, Ports, Shares};
use replay::send::distance::{Distances, ROUND_TRIP_MAX, SAMPLE_MAX};
use replay::send::tls::{Tls, Trust};

use super::time;
use crate::config::tls::AUTHORITIES;

/// The options.
#[derive(Args, Debug)]
pub(super) struct Transports {
    /// As recorded, or by shares of clients: udp=70%,tcp=20%,tls=10%
    #[arg(long, value_name = "SHARES", default_value = "recorded", value_parser = carriers)]
    transport: Carriers,
    /// Where servers listen for DNS over TLS
    #[arg(long, value_name = "PORT", default_value_t = 853, value_parser = clap::value_parser!(u16).range(1..))]
    tls_port: u16,
    /// Where servers listen for DNS over QUIC
    #[arg(long, value_name = "PORT", default_value_t = 853, value_parser = clap::value_parser!(u16).range(1..))]
    quic_port: u16,
    /// Where servers listen for DNS over HTTPS
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    https_port: u16,
    /// The path of DNS over HTTPS
    #[arg(long, value_name = "PATH", default_value = "/dns-query", value_parser = path)]
    https_path: String,
    /// Trust the authorities of this PEM file; those of the host where not given
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    tls_ca: Option<PathBuf>,
    /// The name that servers' certificates are for; their address where not given
    #[arg(long, value_name = "NAME")]
    tls_name: Option<String>,
    /// Take any certificate
    #[arg(long)]
    insecure: bool,
    /// Have each connection begin with a full handshake, none with an earlier session
    #[arg(long)]
    no_resumption: bool,
    /// Put clients at a distance: round trips drawn evenly, such as 0..140ms, or from the lines of a file
    #[arg(long, value_name = "LOW..HIGH|FILE", value_parser = distances)]
    rtt: Option<Distances>,
}

impl Transports {
    pub(super) fn carriers(&self) -> Carriers {
        self.transport
    }

    pub(super) fn ports(&self) -> Ports {
        Ports { tls: self.tls_port, quic: self.quic_port, https: self.https_port }
    }

    pub(super) fn https_path(&self) -> String {
        self.https_path.clone()
    }

    pub(super) fn distances(&self) -> Option<Distances> {
        self.rtt.clone()
    }

    /// An option that tells something of TLS alone.
    fn unused(&self) -> Option<&'static str> {
        let options = [
            ("--tls-ca", self.tls_ca.is_some()),
            ("--tls-name", self.tls_name.is_some()),
            ("--insecure", self.insecure),
            ("--no-resumption", self.no_resumption),
        ];
        options.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// TLS, where some client needs it.
    ///
    /// # Errors
    /// What is wrong with its options; that they are given where nobody does.
    pub(super) fn tls(&self) -> Result<Option<Arc<Tls>>, Fault> {
        let is_secure = |carrier: &Carrier| carrier.is_secure() && self.transport.uses(*carrier);
        if !Carrier::ALL.iter().any(is_secure) {
            return self.unused().map_or(Ok(None), |option| {
                let what = "it has no effect where no client uses TLS, QUIC or HTTPS";
                Err(Fault::whole(option, what, "--transport with a share of them, such as tls=100%"))
            });
        }
        let file = self.tls_ca.as_deref().unwrap_or(Path::new(AUTHORITIES));
        let trust = if self.insecure {
            Trust::Anybody
        } else {
            Trust::read(file).map_err(|cause| {
                let expected =
                    "a PEM file of the authorities that signed the servers' certificates, or --insecure";
                Fault::whole("--tls-ca", format!("{}: {cause}", file.display()), expected)
            })?
        };
        let made = Tls::new(&trust, self.tls_name.as_deref(), !self.no_resumption);
        let made = made.map_err(|cause| Fault::whole("--tls-name", cause, "such as dns.example.com"))?;
        Ok(Some(Arc::new(made)))
    }
}

/// Reads shares of transports, which must be all.
fn carriers(text: &str) -> Result<Carriers, String> {
    let expected = "expected `recorded`, or shares of udp, tcp, tls, quic and https that make 100 %, such as udp=70%,tcp=20%,tls=10%";
    if text == "recorded" {
        return Ok(Carriers::Recorded);
    }
    let mut shares = [None; Carrier::ALL.len()];
    for part in text.split(',') {
        let (name, share) = part.split_once('=').ok_or(expected)?;
        let at = Carrier::ALL.iter().position(|known| known.name() == name).ok_or(expected)?;
        let share: f64 = share.strip_suffix('%').and_then(|share| share.parse().ok()).ok_or(expected)?;
        if shares[at].replace(share / 100.0).is_some() {
            return Err(expected.into());
        }
    }
    let shares = Shares::new(shares.map(|share| share.unwrap_or(0.0)));
    Ok(Carriers::Shares(shares.ok_or(expected)?))
}

fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|octet| octet.is_ascii_graphic());
    if is_path { Ok(text.into()) } else { Err("expected a path, such as /dns-query".into()) }
}

/// Reads round-trip times: two bounds, or a file with one a line.
fn distances(text: &str) -> Result<Distances, String> {
    let known = |text: &str| {
        let read = time(text)?;
        if read <= ROUND_TRIP_MAX { Ok(read) } else { Err("expected at most 10s".to_owned()) }
    };
    if let Some((low, high)) = text.split_once("..").filter(|(_, high)| high.starts_with(char::is_numeric)) {
        let high = known(high)?;
        let low = if low == "0" { Duration::ZERO } else { known(low)? };
        return if low <= high {
            Ok(Distances::Between(low, high))
        } else {
            Err("expected the shorter one first, such as 0..140ms".into())
        };
    }
    let content = std::fs::read_to_string(text).map_err(|cause| {
        format!("expected two times, such as 0..140ms, or a file, which cannot be read: {cause}")
    })?;
    let mut times = Vec::new();
    for (at, line) in content.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if times.len() >= SAMPLE_MAX {
            return Err(format!("line {}: expected at most {SAMPLE_MAX} times", at + 1));
        }
        times.push(known(line).map_err(|cause| format!("line {}: {line}: {cause}", at + 1))?);
    }
    if times.is_empty() {
        Err("expected a time in it, such as 35ms".into())
    } else {
        Ok(Distances::Sample(times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_all() {
        let shares = |shares| Shares::new(shares).map(Carriers::Shares);
        for (text, expected) in [
            ("recorded", Some(Carriers::Recorded)),
            ("udp=70%,tcp=30%", shares([0.7, 0.3, 0.0, 0.0, 0.0])),
            ("tcp=100%", shares([0.0, 1.0, 0.0, 0.0, 0.0])),
            ("udp=70%,tcp=20%,tls=10%", shares([0.7, 0.2, 0.1, 0.0, 0.0])),
            ("quic=50%,https=50%", shares([0.0, 0.0, 0.0, 0.5, 0.5])),
            ("udp=70%", None),
            ("udp=70%,udp=30%", None),
            ("udp=170%,tcp=-70%", None),
            ("dtls=100%", None),
            ("tcp", None),
        ] {
            assert_eq!(carriers(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn distances_are_bounds_or_lines() {
        let ms = Duration::from_millis;
        assert_eq!(distances("0..140ms"), Ok(Distances::Between(ms(0), ms(140))));
        assert_eq!(distances("20ms..1s"), Ok(Distances::Between(ms(20), ms(1_000))));
        let file = std::env::temp_dir().join(format!("pointsman-rtt-{}", std::process::id()));
        let path = file.to_str().expect("it is text");
        for (content, expected) in [
            ("# near\n5ms\n\n 90ms\n", Ok(vec![ms(5), ms(90)])),
            ("5ms\nfar\n", Err("line 2: far")),
            ("11s\n", Err("line 1: 11s: expected at most 10s")),
            ("# none\n", Err("expected a time in it")),
        ] {
            std::fs::write(&file, content).expect("it can be written");
            match (distances(path), expected) {
                (Ok(found), Ok(times)) => assert_eq!(found, Distances::Sample(times)),
                (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
                (found, expected) => panic!("{found:?}, not {expected:?}"),
            }
        }
        std::fs::remove_file(&file).expect("it is there");
        for text in ["140ms..0", "0..11s", "0..140", "no-such-file"] {
            assert!(distances(text).is_err(), "{text}");
        }
    }
}
