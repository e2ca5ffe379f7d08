//! IP datagrams that came in pieces.

use std::net::IpAddr;
use std::time::Duration;

use etherparse::defrag::IpDefragBuf;
use etherparse::{IpFragOffset, IpNumber};

use super::packet::Datagram;
use super::recent::Recent;
use super::skipped::{Skip, Skipped};

/// Half of the datagrams that may be in pieces at a time, each of at most 64 KiB: 32 MiB for all.
const HALF_MAX: usize = 256;

/// How long a datagram may be in pieces: as RFC 791 §3.2 and Linux have it, since ids come again.
const AGE_MAX: Duration = Duration::from_secs(30);

/// The most pieces of a datagram: 64 KiB in pieces of an Ethernet frame are 45. More attack readers.
const PIECES_MAX: u32 = 256;

/// The datagrams in pieces.
pub(super) struct Fragments {
    recent: Recent<Key, Pieces>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    id: u32,
}

struct Pieces {
    begun: Duration,
    count: u32,
    buffer: IpDefragBuf,
}

impl Default for Fragments {
    fn default() -> Fragments {
        Fragments { recent: Recent::new(HALF_MAX) }
    }
}

impl Fragments {
    /// Adds a piece; returns the whole payload when it is the last that was missing.
    ///
    /// # Errors
    /// [`Skip::Fragment`] for a piece that does not fit to the others.
    pub(super) fn add(
        &mut self,
        datagram: &Datagram<'_>,
        time: Duration,
        skipped: &mut Skipped,
    ) -> Result<Option<Vec<u8>>, Skip> {
        let Some(fragment) = datagram.fragment else { return Ok(None) };
        let offset = IpFragOffset::try_new(fragment.offset).map_err(|_| Skip::Fragment)?;
        let (source, destination) = (datagram.source, datagram.destination);
        let key = Key { source, destination, protocol: datagram.protocol, id: fragment.id };
        let mut pieces = match self.recent.take(&key) {
            Some(old) if time.abs_diff(old.begun) > AGE_MAX => {
                skipped.add(Skip::Fragment, old.count.into());
                Pieces::new(datagram.protocol, time)
            }
            Some(pieces) => pieces,
            None => Pieces::new(datagram.protocol, time),
        };
        let is_taken =
            pieces.count < PIECES_MAX && pieces.buffer.add(offset, fragment.more, datagram.payload).is_ok();
        if is_taken {
            pieces.count += 1;
            if pieces.buffer.is_complete() {
                return Ok(Some(pieces.buffer.take_bufs().0));
            }
        }
        for (_, gone) in self.recent.put(key, pieces) {
            skipped.add(Skip::Fragment, gone.count.into());
        }
        if is_taken { Ok(None) } else { Err(Skip::Fragment) }
    }

    /// Counts what never became whole.
    pub(super) fn finish(&mut self, skipped: &mut Skipped) {
        for (_, gone) in self.recent.drain() {
            skipped.add(Skip::Fragment, gone.count.into());
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.recent.iter().map(|pieces| pieces.buffer.data().capacity()).sum()
    }
}

impl Pieces {
    fn new(protocol: u8, begun: Duration) -> Pieces {
        Pieces { begun, count: 0, buffer: IpDefragBuf::new(IpNumber(protocol), Vec::new(), Vec::new()) }
    }
}
