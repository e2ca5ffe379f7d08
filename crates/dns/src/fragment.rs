//! Records that are written again and again, composed once.

use domain::base::iana::{Class, Rtype};

use crate::name::is_within;
use crate::writer::wire_length;

/// A record in wire form whose names end in pointers at one name of the message: the zone's, wherever in the
/// asked name that begins.
#[derive(Clone, Debug, Default)]
pub struct Fragment {
    octets: Box<[u8]>,
    /// Where in `octets` the pointers stand.
    pointers: Box<[u16]>,
}

impl Fragment {
    /// The SOA record of a zone.
    ///
    /// `origin` is folded; `soa` is the record's data, names uncompressed.
    ///
    /// # Panics
    /// Where `soa` is not the data of a SOA record: it was checked when the zone was read.
    pub fn soa(origin: &[u8], ttl: u32, soa: &[u8]) -> Fragment {
        let mut octets = vec![0; 2];
        let mut pointers = vec![0];
        octets.extend_from_slice(&Rtype::SOA.to_int().to_be_bytes());
        octets.extend_from_slice(&Class::IN.to_int().to_be_bytes());
        octets.extend_from_slice(&ttl.to_be_bytes());
        let length_at = octets.len();
        octets.extend_from_slice(&[0; 2]);
        let (primary, rest) = soa.split_at(wire_length(soa));
        let (mailbox, numbers) = rest.split_at(wire_length(rest));
        for name in [primary, mailbox] {
            if is_within(&name.to_ascii_lowercase(), origin) {
                octets.extend_from_slice(&name[..name.len() - origin.len()]);
                pointers.push(octets.len() as u16);
                octets.extend_from_slice(&[0; 2]);
            } else {
                octets.extend_from_slice(name);
            }
        }
        octets.extend_from_slice(numbers);
        let length = (octets.len() - length_at - 2) as u16;
        octets[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        Fragment { octets: octets.into(), pointers: pointers.into() }
    }

    /// How many octets it takes in a message.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.octets.len()
    }

    /// Writes it to `out`, which has its length, for a name that stands at `at` in the message.
    #[inline]
    pub(crate) fn write(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.octets);
        let pointer = (0xc000 | at as u16).to_be_bytes();
        for &place in &self.pointers {
            out[usize::from(place)..usize::from(place) + 2].copy_from_slice(&pointer);
        }
    }
}
