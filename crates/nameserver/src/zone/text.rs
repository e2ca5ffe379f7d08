//! A zone as a master file again: what the API shows and the store keeps.

use std::fmt::{Arguments, Write};

use domain::base::name::{Name, ParsedName};
use domain::base::rdata::ParseRecordData;
use domain::base::zonefile_fmt::{self, FormatWriter, ZonefileFmt};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;

use super::{Found, Rrset, Zone};
use dns::Rtype;

impl Zone {
    /// The zone in canonical text: one record a line, absolute names in their canonical order (RFC 4034
    /// §6.1), the SOA record first.
    ///
    /// Reading it again builds the same zone.
    pub fn to_text(&self) -> String {
        let names = self.names.iter().map(|(name, node)| (name, Found { node, is_apex: false }.sets()));
        let hidden = (0..self.links.hidden.len()).map(|index| self.links.hidden.get(index));
        let mut owners: Vec<(Vec<u8>, &[u8], &[u8])> = names
            .chain(hidden)
            .filter(|(_, sets)| !sets.is_empty())
            .map(|(name, sets)| (order_key(name), name, sets))
            .collect();
        owners.sort_unstable_by(|a, b| (&a.0, a.2).cmp(&(&b.0, b.2)));
        let mut text = String::with_capacity(self.records * 48);
        for (_, name, sets) in owners {
            let owner = dns::name::to_text(name);
            let mut sets: Vec<Rrset<'_>> = Rrset::all(sets).flat_map(|set| [set, set.signatures()]).collect();
            sets.sort_by_key(|set| (set.rtype != Rtype::SOA, set.rtype.to_int()));
            for set in sets {
                for data in set.data() {
                    let data = shown(set.rtype, data);
                    writeln!(text, "{owner} {} IN {} {data}", set.ttl, set.rtype)
                        .expect("writing to a string cannot fail");
                }
            }
        }
        text
    }
}

/// Record data in presentation format.
fn shown(rtype: Rtype, data: &[u8]) -> String {
    let mut parser = Parser::from_ref(data);
    match ZoneRecordData::<&[u8], ParsedName<&[u8]>>::parse_rdata(rtype, &mut parser) {
        Ok(Some(data)) => {
            let mut line = Line(String::new());
            data.fmt(&mut line).expect("writing to a string cannot fail");
            line.0
        }
        // Data that was read from text reads again; the generic form is right for any (RFC 3597 §5).
        _ => data.iter().fold(format!("\\# {} ", data.len()), |mut text, octet| {
            write!(text, "{octet:02x}").expect("writing to a string cannot fail");
            text
        }),
    }
}

/// Record data on one line, its names escaped.
struct Line(String);

impl FormatWriter for Line {
    fn fmt_token(&mut self, token: Arguments<'_>) -> zonefile_fmt::Result {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        let token = token.to_string();
        // Of all that is not quoted, only absolute names end so.
        if token.ends_with('.') && !token.starts_with('"') {
            self.0.push_str(&dns::name::escape(&token));
        } else {
            self.0.push_str(&token);
        }
        Ok(())
    }

    fn begin_block(&mut self) -> zonefile_fmt::Result {
        Ok(())
    }

    fn end_block(&mut self) -> zonefile_fmt::Result {
        Ok(())
    }

    fn fmt_comment(&mut self, _: Arguments<'_>) -> zonefile_fmt::Result {
        Ok(())
    }

    fn newline(&mut self) -> zonefile_fmt::Result {
        Ok(())
    }
}

/// Octets that sort as names do: labels from the root downward.
fn order_key(name: &[u8]) -> Vec<u8> {
    let name = Name::from_slice(name).expect("names of a zone are valid");
    let mut labels: Vec<&[u8]> = name.iter().map(|label| label.as_slice()).collect();
    labels.reverse();
    let mut key = Vec::with_capacity(name.len());
    for label in labels {
        // A zero octet must sort behind the end of a label.
        for &octet in label {
            if octet < 2 {
                key.push(1);
            }
            key.push(octet);
        }
        key.push(0);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use crate::names::NameHash;
    use crate::zone::Zone;

    #[test]
    fn names_with_characters_of_the_master_file_read_back() {
        let build = |text: &str| {
            let include = |_: &str| Err("nothing is included".to_owned());
            let source = read::Source {
                name: "t",
                text: text.as_bytes(),
                origin: Some(b"\x07example\0"),
                include: &include,
            };
            Zone::build(&read::read(&source).expect("a master file"), "t", &NameHash::new(1)).expect("a zone")
        };
        let name = r#"\;\"\(\)\@\$\\\.\ \200"#;
        let text = build(&format!(
            "$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS ns\n{name} NS {name}\n\\@ MX 1 \\@\nns SRV 1 2 3 {name}.x\n\
             h HTTPS 1 {name} alpn=h2\nt TXT \"; a ( b\"\n"
        ))
        .to_text();
        assert!(text.contains(&format!("{name}.example. 60 IN NS {name}.example.\n")), "{text}");
        assert_eq!(build(&text).to_text(), text);
    }
}
