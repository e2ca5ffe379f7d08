//! How clients of `pointsman balance` learn where it speaks encrypted (RFC 9462).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::Faults;
use balancer::front;
use balancer::message::{DESIGNATED, RECORD_HEAD, SERVICES_MAX};
use balancer::rules::{Rule, Then};
use dns::Rtype;
use domain::base::Name;
use domain::base::rdata::ComposeRecordData;
use domain::rdata::svcb::{SvcParamsBuilder, Svcb};

use super::lower::{at, without_effect};
use super::spec::{BalanceSpec, Placed};

/// Where resolvers are told of, and nothing else is (RFC 9462 §6.4), folded and in wire form.
const RESOLVER: &[u8] = b"\x08resolver\x04arpa\0";

/// Two rules, where a name is given: who asks for resolvers is told of them, and there is nothing else at that name.
pub(super) fn rules(spec: &BalanceSpec, faults: &mut Faults) -> Vec<Rule> {
    let is_encrypted =
        !(spec.tls_listen.is_empty() && spec.https_listen.is_empty() && spec.quic_listen.is_empty());
    let listens = ("tls_listen, https_listen or quic_listen", is_encrypted);
    without_effect([(listens, "designate", at(&spec.designate))], faults);
    let Some(Placed { value, place }) = &spec.designate else { return Vec::new() };
    let name = value.parse::<Name<Vec<u8>>>().ok().filter(|name| !name.is_root());
    let Some(name) = name else {
        let what = format!("designate is {value:?}");
        faults.push(place.fault(what, "the name that the certificate is for, such as dns.example.com"));
        return Vec::new();
    };
    for Placed { value, place } in spec
        .tls_listen
        .iter()
        .chain(&spec.https_listen)
        .chain(&spec.quic_listen)
        .filter(|at| at.value.port() == 0)
    {
        let what = format!("{value} has no port that clients could be told of");
        faults.push(place.fault(what, "a port other than 0, or no designate"));
    }
    let mut services = services(spec, &name, true);
    if !fits(&services) {
        services = self::services(spec, &name, false);
    }
    if !fits(&services) {
        let what = format!("at {} addresses and ports it is more than one answer holds", services.len());
        faults.push(place.fault(what, "fewer ports at which it speaks encrypted"));
    }
    let rule = |name: &str, at: &[u8], then| Rule {
        name: name.into(),
        names: Some(vec![at.to_vec()]),
        types: Vec::new(),
        clients: Vec::new(),
        per_second: None,
        then,
    };
    vec![
        Rule { types: vec![Rtype::SVCB], ..rule("_dns.resolver.arpa", DESIGNATED, Then::Services(services)) },
        rule("resolver.arpa", RESOLVER, Then::Services(Vec::new())),
    ]
}

fn fits(services: &[Vec<u8>]) -> bool {
    services.iter().map(|data| RECORD_HEAD + data.len()).sum::<usize>() <= SERVICES_MAX
}

/// What is spoken at which port, with the addresses where that is, if there is room for them: what takes the fewest ways
/// there and back comes first.
fn services(spec: &BalanceSpec, name: &Name<Vec<u8>>, with_addresses: bool) -> Vec<Vec<u8>> {
    let (mut data, mut priority) = (Vec::new(), 0);
    for (alpn, path, listen) in [
        ("doq", None, &spec.quic_listen),
        ("dot", None, &spec.tls_listen),
        ("h2", Some(front::PATH), &spec.https_listen),
    ] {
        let mut ports: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
        for Placed { value, .. } in listen {
            ports.entry(value.port()).or_default().push(value.ip());
        }
        for (port, addresses) in ports {
            priority += 1;
            let addresses = if with_addresses { addresses } else { Vec::new() };
            data.push(service(priority, name, (alpn, path, port), &addresses));
        }
    }
    data
}

/// The data of one SVCB record (RFC 9460 §2.2, RFC 9461).
fn service(
    priority: u16,
    name: &Name<Vec<u8>>,
    (alpn, path, port): (&str, Option<&str>, u16),
    addresses: &[IpAddr],
) -> Vec<u8> {
    const FITS: &str = "a few octets of each are within any limit";
    let known = addresses.iter().filter(|address| !address.is_unspecified());
    let (mut v4, mut v6): (Vec<Ipv4Addr>, Vec<Ipv6Addr>) = (Vec::new(), Vec::new());
    for address in known {
        match address.to_canonical() {
            IpAddr::V4(address) => v4.push(address),
            IpAddr::V6(address) => v6.push(address),
        }
    }
    let mut params = SvcParamsBuilder::<Vec<u8>>::empty();
    params.alpn(&[alpn.as_bytes()]).expect(FITS);
    params.port(port).expect(FITS);
    if !v4.is_empty() {
        params.ipv4hint(v4).expect(FITS);
    }
    if !v6.is_empty() {
        params.ipv6hint(v6).expect(FITS);
    }
    if let Some(path) = path {
        params.dohpath(&format!("{path}{{?dns}}")).expect(FITS);
    }
    let params = params.freeze::<Vec<u8>>().expect(FITS);
    let service = Svcb::new(priority, name, params).expect(FITS);
    let mut data = Vec::new();
    service.compose_rdata(&mut data).expect("memory grows");
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{defaults, file};
    use domain::base::ParsedName;
    use domain::dep::octseq::Parser;
    use std::path::Path;

    /// The services that clients are told of, as text, or what is wrong.
    fn told(lines: &str) -> Result<Vec<String>, String> {
        let (mut faults, mut spec) = (Faults::default(), defaults());
        let text = format!("version = \"v1\"\n[balance]\n{lines}\n");
        file::read(Path::new("p.toml"), &text, &mut spec, &mut faults);
        let rules = rules(&spec.balance, &mut faults);
        faults.or(()).map_err(|faults| faults.to_string())?;
        let [Rule { then: Then::Services(services), types, .. }, rest] = &rules[..] else {
            return Ok(rules.iter().map(|rule| rule.name.clone()).collect());
        };
        assert_eq!((&types[..], &rest.then), (&[Rtype::SVCB][..], &Then::Services(Vec::new())));
        assert!(fits(services));
        let shown = |data: &Vec<u8>| {
            let mut parser = Parser::from_ref(&data[..]);
            let read =
                Svcb::<&[u8], ParsedName<&[u8]>>::parse(&mut parser).expect("the data of an SVCB record");
            read.to_string()
        };
        Ok(services.iter().map(shown).collect())
    }

    #[test]
    fn each_way_and_port_is_a_service() {
        assert_eq!(told("tls_listen = [\"192.0.2.1:853\"]"), Ok(vec![]), "nobody is to be told");
        let all = "designate = \"dns.example.com\"\ntls_listen = [\"192.0.2.1:853\", \"[2001:db8::1]:853\", \"0.0.0.0:8853\"]\n\
                   https_listen = [\"[::ffff:192.0.2.1]:443\"]\nquic_listen = [\"192.0.2.1:853\"]";
        let expected = [
            "1 dns.example.com. alpn=doq port=853 ipv4hint=192.0.2.1",
            "2 dns.example.com. alpn=dot port=853 ipv4hint=192.0.2.1 ipv6hint=2001:db8::1",
            "3 dns.example.com. alpn=dot port=8853",
            "4 dns.example.com. alpn=h2 port=443 ipv4hint=192.0.2.1 dohpath=/dns-query{?dns}",
        ];
        assert_eq!(told(all).expect("it is right"), expected);
    }

    #[test]
    fn what_does_not_fit_goes_without_addresses_or_is_a_fault() {
        let listen = |ports: std::ops::Range<u16>| {
            let each = |port: u16| format!("\"192.0.2.1:{port}\", \"[2001:db8::1]:{port}\"");
            let all: Vec<String> = ports.map(each).collect();
            told(&format!("designate = \"dns.example.com\"\ntls_listen = [{}]", all.join(", ")))
        };
        let told = listen(853..862).expect("without addresses there is room");
        assert_eq!((told.len(), &*told[0]), (9, "1 dns.example.com. alpn=dot port=853"));
        let wrong = listen(853..883).expect_err("there is no room");
        assert!(wrong.starts_with("p.toml:3:13: at 30 addresses and ports it is more than"), "{wrong}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (lines, expected) in [
            (
                "designate = \"dns.example.com\"",
                "p.toml:3:13: designate without tls_listen, https_listen or quic_listen has no effect",
            ),
            ("designate = \"a..b\"\ntls_listen = [\"192.0.2.1:853\"]", "p.toml:3:13: designate is \"a..b\""),
            ("designate = \".\"\ntls_listen = [\"192.0.2.1:853\"]", "p.toml:3:13: designate is \".\""),
            (
                "designate = \"a.example\"\ntls_listen = [\"192.0.2.1:0\"]",
                "p.toml:4:15: 192.0.2.1:0 has no port that clients could be told of",
            ),
        ] {
            let wrong = told(lines).expect_err("it is wrong");
            assert!(wrong.starts_with(expected), "{wrong}");
        }
    }
}
