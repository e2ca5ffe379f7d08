//! Pairs of answers that differ, kept as packets.

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::trace::{Message, pcap};

/// The most octets of messages that are kept: a person looks at some of them, and the counts have all.
const OCTETS_MAX: usize = 64 << 20;

/// A file of differing pairs, which all threads share: query, recorded response, the response now.
#[derive(Debug)]
pub(super) struct Differing(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None` once it failed.
    to: Option<pcap::Writer<BufWriter<File>>>,
    octets: usize,
    told: DifferingKept,
}

/// What became of the differing pairs.
#[derive(Debug, Default)]
pub struct DifferingKept {
    /// Those in the file.
    pub kept: u64,
    /// Those beyond what the file may hold, or without a place in a capture.
    pub beyond: u64,
    /// Why the file is not whole.
    pub error: Option<io::Error>,
}

impl Differing {
    pub(super) fn new(file: File) -> io::Result<Differing> {
        let to = Some(pcap::Writer::new(BufWriter::new(file))?);
        Ok(Differing(Mutex::new(Inner { to, octets: 0, told: DifferingKept::default() })))
    }

    /// Keeps a pair; `server` gave the second one, `after` its query.
    ///
    /// The response now gets the recorded query's id, so that programs which read the file see that they belong
    /// together.
    pub(super) fn keep(
        &self,
        query: &Message,
        recorded: &Message,
        mut octets: Vec<u8>,
        server: SocketAddr,
        after: Duration,
    ) {
        if let (Some(ours), Some(id)) = (octets.first_chunk_mut::<2>(), query.octets.first_chunk()) {
            *ours = *id;
        }
        // A packet has addresses of one family; the recorded port is where programs look for DNS.
        let server = match server.is_ipv4() == query.client.is_ipv4() {
            true => SocketAddr::new(server.ip(), query.server.port()),
            false => query.server,
        };
        let given = Message { time: query.time.saturating_add(after), server, octets, ..query.clone() };
        let messages = [query, recorded, &given];
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { to, octets, told } = &mut *inner;
        let more: usize = messages.iter().map(|message| message.octets.len()).sum();
        let has_room = *octets + more <= OCTETS_MAX && messages.iter().all(|message| pcap::has_room(message));
        let Some(writer) = to.as_mut().filter(|_| has_room) else {
            told.beyond += 1;
            return;
        };
        match messages.iter().try_for_each(|message| writer.write(message)) {
            Ok(()) => {
                *octets += more;
                told.kept += 1;
            }
            Err(error) => {
                *to = None;
                told.error = Some(error);
            }
        }
    }

    /// Ends the file.
    pub(super) fn finish(self) -> DifferingKept {
        let Inner { to, mut told, .. } = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = to.map(pcap::Writer::finish) {
            told.error = Some(error);
        }
        told
    }
}
