//! IP datagrams that came in pieces (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! What a receiver made of pieces that contradict each other is not to be known, as systems differ. So none of their
//! datagram gives a message, whatever of it comes later.

use std::net::IpAddr;
use std::time::Duration;

use etherparse::defrag::IpDefragBuf;
use etherparse::{IpFragOffset, IpNumber};

use super::packet::{Datagram, FRAGMENT};
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
    /// Of IPv6 always the same: what a piece says of it counts for the first one only.
    protocol: u8,
    id: u32,
}

struct Pieces {
    begun: Duration,
    /// Those that are in the buffer, and not counted yet.
    count: u32,
    /// What the first one says that the datagram carries.
    protocol: u8,
    buffer: IpDefragBuf,
    /// Why there is no datagram to become whole.
    refused: Option<Skip>,
}

/// Where a piece belongs, in octets of its datagram's payload.
#[derive(Clone, Copy)]
struct Place {
    start: u16,
    end: u16,
    is_last: bool,
}

impl Default for Fragments {
    fn default() -> Fragments {
        Fragments { recent: Recent::new(HALF_MAX) }
    }
}

impl Fragments {
    /// Adds a piece; returns the whole payload and its protocol when it is the last that was missing.
    ///
    /// # Errors
    /// Why the piece is of no use: [`Skip::Broken`], [`Skip::Repeated`], [`Skip::FragmentConflict`] or [`Skip::Fragment`].
    pub(super) fn add(
        &mut self,
        datagram: &Datagram<'_>,
        time: Duration,
        skipped: &mut Skipped,
    ) -> Result<Option<(u8, Vec<u8>)>, Skip> {
        let Some(fragment) = datagram.fragment else { return Ok(None) };
        let place = Place::of(fragment.offset, fragment.more, datagram.payload)?;
        let Datagram { source, destination, .. } = *datagram;
        let protocol = if source.is_ipv4() { datagram.protocol } else { FRAGMENT };
        let key = Key { source, destination, protocol, id: fragment.id };
        let mut pieces = match self.recent.take(&key) {
            Some(old) if time.abs_diff(old.begun) > AGE_MAX => {
                skipped.add(Skip::Fragment, old.count.into());
                Pieces::new(time)
            }
            Some(pieces) => pieces,
            None => Pieces::new(time),
        };
        let added = pieces.add(place, datagram);
        if let Err(skip) = added
            && pieces.refused.is_some()
        {
            skipped.add(skip, std::mem::take(&mut pieces.count).into());
        }
        if pieces.refused.is_none() && pieces.buffer.is_complete() {
            return Ok(Some((pieces.protocol, pieces.buffer.take_bufs().0)));
        }
        for (_, gone) in self.recent.put(key, pieces) {
            skipped.add(Skip::Fragment, gone.count.into());
        }
        added.map(|()| None)
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
    fn new(begun: Duration) -> Pieces {
        Pieces { begun, count: 0, protocol: 0, buffer: empty(), refused: None }
    }

    /// Takes a piece, or refuses it: alone where it is the same again, else with all of its datagram.
    fn add(&mut self, place: Place, datagram: &Datagram<'_>) -> Result<(), Skip> {
        if let Some(skip) = self.refused {
            return Err(skip);
        }
        match self.fit(place, datagram) {
            Ok(()) => {
                self.count += 1;
                if place.start == 0 {
                    self.protocol = datagram.protocol;
                }
                Ok(())
            }
            Err(Skip::Repeated) => Err(Skip::Repeated),
            Err(skip) => {
                self.buffer = empty();
                self.refused = Some(skip);
                Err(skip)
            }
        }
    }

    /// Puts a piece where it belongs, unless it repeats or contradicts what is there.
    ///
    /// What has the same octets as are there already and no others repeats them, as Linux has it; RFC 8200 §4.5 says so of
    /// the same piece only. With others beside them it is taken, of IPv4.
    fn fit(&mut self, place: Place, datagram: &Datagram<'_>) -> Result<(), Skip> {
        let (octets, Place { start, end, is_last }) = (datagram.payload, place);
        let mut sections = self.buffer.sections().iter();
        let is_end_other = match self.buffer.end() {
            Some(last) => {
                if is_last {
                    end != last
                } else {
                    end >= last
                }
            }
            // Behind each piece so far there is more.
            None => is_last && sections.any(|section| section.end >= end),
        };
        if is_end_other {
            return Err(Skip::FragmentConflict);
        }
        for section in self.buffer.sections() {
            let (from, to) = (section.start.max(start), section.end.min(end));
            if from >= to {
                continue;
            }
            let there = &self.buffer.data()[from.into()..to.into()];
            let is_same = *there == octets[usize::from(from - start)..usize::from(to - start)];
            if is_same && (from, to) == (start, end) {
                return Err(Skip::Repeated);
            }
            if !is_same || datagram.source.is_ipv6() {
                return Err(Skip::FragmentConflict);
            }
        }
        let offset = IpFragOffset::try_new(start / 8).map_err(|_| Skip::Fragment)?;
        if self.count == PIECES_MAX || self.buffer.add(offset, !is_last, octets).is_err() {
            return Err(Skip::Fragment);
        }
        Ok(())
    }
}

impl Place {
    /// Where a piece belongs that begins at so many times eight octets. One of no octets, one that ends within eight though
    /// more follows, and one beyond the longest datagram belong nowhere (RFC 8200 §4.5).
    fn of(offset: u16, more: bool, octets: &[u8]) -> Result<Place, Skip> {
        let start = offset.checked_mul(8).ok_or(Skip::Broken)?;
        let length = u16::try_from(octets.len()).map_err(|_| Skip::Broken)?;
        let end = start.checked_add(length).ok_or(Skip::Broken)?;
        if octets.is_empty() || more && !length.is_multiple_of(8) {
            return Err(Skip::Broken);
        }
        Ok(Place { start, end, is_last: !more })
    }
}

/// A buffer's own protocol is not looked at.
fn empty() -> IpDefragBuf {
    IpDefragBuf::new(IpNumber(0), Vec::new(), Vec::new())
}
