//! Which crawler an address is: by a name that leads back to it, or by the addresses that its owner published.
//!
//! Crawlers are told by a file: a line begins with a crawler's name, which each of its lines repeats, and goes on with
//! what is its: suffixes of names, which match on the boundary of a label, and prefixes of addresses. `#` begins a
//! comment.
//! ```text
//! googlebot   googlebot.com google.com
//! googlebot   66.249.64.0/19 2001:4860:4801::/48     # published by the owner
//! gptbot      20.171.206.0/24                        # has no names
//! ```
//! Where several match, the longest suffix and the longest prefix do.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use api::{Fault, Faults};
use routing::Prefix;

use crate::cache::Verdict;
use crate::known::Known;
use crate::name::NameText;

/// The longest name of a crawler, in octets: it goes into headers.
pub const NAME_MAX: usize = 64;

/// The most crawlers: more than anybody lets in.
pub const CRAWLERS_MAX: usize = 4096;

/// The most suffixes and prefixes: some owners publish thousands of prefixes.
pub const MARKS_MAX: usize = 1 << 18;

/// The crawlers that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crawlers {
    names: Vec<String>,
    suffixes: HashMap<String, usize>,
    /// By their length.
    prefixes: BTreeMap<u8, HashMap<Prefix, usize>>,
}

/// Who an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity<'a> {
    /// The address is none of the crawlers.
    None,
    /// It is not known yet: the name, or whether it leads back to the address.
    NotYet,
    /// The address is this crawler's.
    Verified(&'a str),
    /// Not this crawler, though its name says so.
    Spoofed(&'a str),
}

impl<'a> Identity<'a> {
    /// As the faces and the metrics say it.
    pub fn word(&self) -> &'static str {
        match self {
            Identity::None => "none",
            Identity::NotYet => "not_yet",
            Identity::Verified(_) => "verified",
            Identity::Spoofed(_) => "spoofed",
        }
    }

    /// The crawler that it is, or claims to be.
    pub fn crawler(&self) -> Option<&'a str> {
        match self {
            Identity::None | Identity::NotYet => None,
            Identity::Verified(name) | Identity::Spoofed(name) => Some(name),
        }
    }
}

impl Crawlers {
    /// Reads the form above; `source` is what the text is called in faults.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(text: &str, source: &str) -> Result<Crawlers, Faults> {
        let (mut crawlers, mut faults) = (Crawlers::default(), Faults::default());
        let mut numbers = HashMap::new();
        let mut marks = 0;
        for (number, line) in text.lines().enumerate() {
            let written = line.split('#').next().unwrap_or_default();
            let mut fault = |word: &str, what: String, expected: &str| {
                let column = word.as_ptr() as usize - line.as_ptr() as usize + 1;
                let [number, column] = [number + 1, column].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
                faults.push(Fault::at(source, number, column, what, expected));
            };
            let mut words = written.split_ascii_whitespace();
            let Some(name) = words.next() else { continue };
            let is_name = |o: u8| o.is_ascii_lowercase() || o.is_ascii_digit() || matches!(o, b'-' | b'_');
            if name.len() > NAME_MAX || !name.bytes().all(is_name) {
                fault(name, format!("'{name}' is no name of a crawler"), "64 of a-z, 0-9, - and _ at most");
                continue;
            }
            let crawler = *numbers.entry(name).or_insert(crawlers.names.len());
            if crawler == CRAWLERS_MAX {
                fault(name, "too many crawlers".into(), "4096 at most");
                break;
            }
            if crawler == crawlers.names.len() {
                crawlers.names.push(name.to_owned());
            }
            let mut is_empty = true;
            for word in words {
                is_empty = false;
                marks += 1;
                if let Err(what) = crawlers.mark(crawler, word) {
                    fault(word, what, "a suffix such as googlebot.com, or a prefix such as 192.0.2.0/24");
                }
            }
            if is_empty {
                fault(
                    name,
                    format!("nothing is said of '{name}'"),
                    "a suffix of names or a prefix behind it",
                );
            }
            if marks > MARKS_MAX {
                fault(name, "too many suffixes and prefixes".into(), "262144 at most");
                break;
            }
        }
        faults.or(crawlers)
    }

    /// How many crawlers are known.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether a crawler of this name is known.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Whether no crawler is known.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Says which one an address is, given what is known of its name.
    ///
    /// An address that its owner published needs no name.
    pub fn identify(&self, address: IpAddr, known: &Known, name: &NameText) -> Identity<'_> {
        if self.is_empty() {
            return Identity::None;
        }
        if let Some(crawler) = self.by_address(address) {
            return Identity::Verified(crawler);
        }
        match known {
            Known::Name(_, verdict) => match (self.by_name(name.as_str()), verdict) {
                (None, _) => Identity::None,
                (Some(_), Verdict::NotYet) => Identity::NotYet,
                (Some(crawler), Verdict::Confirmed) => Identity::Verified(crawler),
                (Some(crawler), Verdict::Mismatch) => Identity::Spoofed(crawler),
            },
            Known::NoName(_) => Identity::None,
            Known::Failed(..) | Known::NotYet => Identity::NotYet,
        }
    }

    fn by_address(&self, address: IpAddr) -> Option<&str> {
        let mut longest_first = self.prefixes.iter().rev();
        let crawler = longest_first.find_map(|(length, of)| of.get(&Prefix::new(address, *length)?));
        Some(&self.names[*crawler?])
    }

    fn by_name(&self, name: &str) -> Option<&str> {
        let mut suffixes = std::iter::successors(Some(name), |rest| Some(rest.split_once('.')?.1));
        let crawler = suffixes.find_map(|suffix| self.suffixes.get(suffix));
        Some(&self.names[*crawler?])
    }

    fn mark(&mut self, crawler: usize, word: &str) -> Result<(), String> {
        let before = if word.contains(['/', ':']) || word.parse::<IpAddr>().is_ok() {
            let prefix = read_prefix(word)?;
            self.prefixes.entry(prefix.length()).or_default().insert(prefix, crawler)
        } else {
            let suffix = NameText::from_text(word.strip_prefix('.').unwrap_or(word).as_bytes());
            let suffix = suffix.ok_or(format!("'{word}' is no suffix of names"))?;
            self.suffixes.insert(suffix.as_str().to_owned(), crawler)
        };
        match before.filter(|before| *before != crawler) {
            Some(before) => Err(format!("'{word}' is of '{}' already", self.names[before])),
            None => Ok(()),
        }
    }
}

/// Reads an address, or a prefix, whose bits behind its length do not count. One of IPv4-mapped addresses is the IPv4 prefix
/// that it stands for, since no client has such an address.
fn read_prefix(text: &str) -> Result<Prefix, String> {
    let prefix = Prefix::read(text).ok_or_else(|| format!("'{text}' is no prefix"))?;
    let address = text.split('/').next().and_then(|address| address.parse().ok());
    let is_mapped = address.is_some_and(|address| Prefix::MAPPED.contains(address));
    if is_mapped && prefix.address().is_ipv6() {
        return Err(format!("'{text}' has fewer than the 96 bits that stand before an IPv4 address"));
    }
    Ok(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::Since;

    const FILE: &str = "\
# crawlers
googlebot  googlebot.com .google.com   66.249.64.0/19
googlebot  2001:4860:4801::/48
other      crawl.google.com 66.249.66.1
mapped     ::ffff:198.51.100.0/120 ::ffff:203.0.113.7
";

    fn identified(address: &str, name: &str, verdict: Verdict) -> String {
        let crawlers = Crawlers::read(FILE, "file").unwrap();
        let since = Since { age: 1, left: 1, stale: false };
        let name = NameText::from_text(name.as_bytes()).unwrap_or(NameText::EMPTY);
        let known = if name.octets().is_empty() { Known::NotYet } else { Known::Name(since, verdict) };
        let identity = crawlers.identify(address.parse().unwrap(), &known, &name);
        format!("{} {}", identity.word(), identity.crawler().unwrap_or("-"))
    }

    #[test]
    fn crawlers_are_known_by_confirmed_names_and_by_address() {
        use Verdict::{Confirmed, Mismatch, NotYet};
        for (address, name, verdict, expected) in [
            ("192.0.2.1", "a.googlebot.com", Confirmed, "verified googlebot"),
            ("192.0.2.1", "A.GoogleBot.com.", Confirmed, "verified googlebot"),
            ("192.0.2.1", "a.b.google.com", Confirmed, "verified googlebot"),
            ("192.0.2.1", "a.googlebot.com", Mismatch, "spoofed googlebot"),
            ("192.0.2.1", "a.googlebot.com", NotYet, "not_yet -"),
            ("192.0.2.1", "fakegooglebot.com", Confirmed, "none -"),
            ("192.0.2.1", "a.googlebot.com.example", Confirmed, "none -"),
            ("192.0.2.1", "x.crawl.google.com", Confirmed, "verified other"),
            ("192.0.2.1", "www.example", NotYet, "none -"),
            ("192.0.2.1", "", NotYet, "not_yet -"),
            ("66.249.95.255", "", NotYet, "verified googlebot"),
            ("66.249.96.0", "", NotYet, "not_yet -"),
            ("66.249.66.1", "a.googlebot.com", Mismatch, "verified other"),
            ("2001:4860:4801:1::1", "www.example", Mismatch, "verified googlebot"),
            ("2001:4860:4802::1", "www.example", Mismatch, "none -"),
            ("198.51.100.255", "", NotYet, "verified mapped"),
            ("198.51.101.0", "", NotYet, "not_yet -"),
            ("203.0.113.7", "", NotYet, "verified mapped"),
            ("203.0.113.8", "", NotYet, "not_yet -"),
        ] {
            assert_eq!(identified(address, name, verdict), expected, "{address} {name} {verdict:?}");
        }
    }

    #[test]
    fn nobody_is_a_crawler_where_none_is_known() {
        let none = Crawlers::default();
        let known = Known::NotYet;
        assert_eq!(none.identify("192.0.2.1".parse().unwrap(), &known, &NameText::EMPTY), Identity::None);
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        let text = "a  192.0.2.0/33\nA b.example\nb\nc 192.0.2.0/24 ex_ample!\nd 192.0.2.9/24 # masked\n\
                    e c.example ::ffff:192.0.2.0/95";
        let faults: Vec<String> = Crawlers::read(text, "file")
            .unwrap_err()
            .faults
            .iter()
            .map(|fault| fault.to_string().split(';').next().unwrap_or_default().to_owned())
            .collect();
        let expected = [
            "file:1:4: '192.0.2.0/33' is no prefix",
            "file:2:1: 'A' is no name of a crawler",
            "file:3:1: nothing is said of 'b'",
            "file:4:16: 'ex_ample!' is no suffix of names",
            "file:5:3: '192.0.2.9/24' is of 'c' already",
            "file:6:13: '::ffff:192.0.2.0/95' has fewer than the 96 bits that stand before an IPv4 address",
        ];
        assert_eq!(faults, expected);
        let many: String = (0..=CRAWLERS_MAX).map(|i| format!("c{i} n{i}.example\n")).collect();
        assert!(Crawlers::read(&many, "file").unwrap_err().to_string().contains("too many"));
        assert!(Crawlers::read("a b.example\nc B.example", "f").unwrap_err().to_string().contains("of 'a'"));
    }
}
