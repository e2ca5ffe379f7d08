//! A day of a real web server: NASA's, 1 August 1995, of which the page requests are looked up as they came.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use reverse::NameText;
use reverse::backend::Behaviour;
use reverse::cache::Why;
use reverse::question::Answered;

use super::model::Page;
use super::server::{Counts, Server};
use crate::machine;

/// Ends of the paths that are no pages: the paper looks up clients for pages alone.
const NO_PAGES: [&str; 7] = [".gif", ".jpg", ".jpeg", ".xbm", ".mpg", ".wav", ".bmp"];

/// Page requests in order of time, and the names of their clients.
pub(crate) struct Log {
    pages: Vec<Page>,
    /// By the number in the client's address; none where the log has an address itself.
    names: Vec<Option<NameText>>,
}

impl Log {
    /// Reads the log: a line for each request, with host, time and path among its fields, compressed with xz.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is none of such a log.
    pub(crate) fn read(path: &Path) -> Result<Log> {
        Log::of(&machine::unpacked(path)?)
    }

    fn of(text: &str) -> Result<Log> {
        let mut log = Log { pages: Vec::new(), names: Vec::new() };
        let mut clients: HashMap<String, usize> = HashMap::new();
        let mut first = None;
        for (number, line) in text.lines().enumerate().skip(1) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [host, _, time, _, path, ..] = fields[..] else {
                anyhow::bail!("line {}: too few fields", number + 1);
            };
            let path = path.to_ascii_lowercase();
            if NO_PAGES.iter().any(|end| path.ends_with(end)) {
                continue;
            }
            let time: u64 =
                time.parse().with_context(|| format!("line {}: {time} is no time", number + 1))?;
            let begun = *first.get_or_insert(time);
            let client = *clients.entry(host.to_owned()).or_insert_with(|| {
                let is_address = host.parse::<Ipv4Addr>().is_ok();
                log.names.push(if is_address { None } else { NameText::from_text(host.as_bytes()) });
                log.names.len() - 1
            });
            let at = Duration::from_secs(time.saturating_sub(begun));
            log.pages.push(Page { at, address: address(client) });
        }
        log.pages.sort_by_key(|page| page.at);
        Ok(log)
    }

    /// Page requests.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Clients, and the share of them that has no name.
    pub(crate) fn clients(&self) -> (usize, f64) {
        let nameless = self.names.iter().filter(|name| name.is_none()).count();
        (self.names.len(), nameless as f64 / self.names.len().max(1) as f64)
    }

    /// Looks all clients up as they came, with answers that come at once; every eighth client's servers fail where
    /// `failing` says so.
    pub(crate) fn run(&self, behaviour: Behaviour, failing: bool) -> Counts {
        let names = self.names.clone();
        let upstream = move |address: Ipv4Addr| {
            let client = (u32::from(address) - u32::from(FIRST)) as usize;
            let answered = match names.get(client) {
                // One in eight is 12.5 %; the paper saw 12 % of its questions fail.
                _ if failing && client % 8 == 3 => Answered::Failed(Why::Servfail),
                Some(Some(name)) => Answered::Name(*name, 86_400),
                _ => Answered::NoName(86_400),
            };
            (answered, Duration::ZERO)
        };
        let mut server = Server::new(behaviour, Box::new(upstream));
        for page in &self.pages {
            server.look_up(page.at, page.address);
        }
        server.counts()
    }
}

/// The address of the first client.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);

fn address(client: usize) -> Ipv4Addr {
    (u32::from(FIRST) + client as u32).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rapid_dns::server::standard;

    #[test]
    fn pages_are_looked_up_and_pictures_are_not() {
        let text = "host\tlogname\ttime\tmethod\turl\n\
                    a.example\t-\t100\tGET\t/\n\
                    a.example\t-\t101\tGET\t/one.GIF\n\
                    192.0.2.1\t-\t102\tGET\t/index.html\n\
                    a.example\t-\t160\tGET\t/two.html\n";
        let log = Log::of(text).expect("a log");
        assert_eq!((log.len(), log.clients()), (3, (2, 0.5)));
        let counts = log.run(standard(), false);
        let expected = Counts { requests: 3, hits: 1, named: 1, questions: 2, ages: 60, ..Counts::default() };
        assert_eq!(counts, expected);
        assert!(Log::of("head\nno fields\n").is_err());
    }
}
