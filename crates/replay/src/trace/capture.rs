//! Blocks of pcap and pcapng, and the packets in them.

use std::time::Duration;

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use super::Damage;
use super::skipped::Skip;
use super::source::{Failed, Source};

/// The longest block in octets: four times what capturing programs write (their longest packet has 256 KiB).
const BLOCK_MAX: usize = 1 << 20;

/// The size of the one buffer in octets, until a block does not fit: then it doubles, up to [`BLOCK_MAX`]. It is filled at
/// once, and to unpack more takes longer than a pause between two queries often is.
const BUFFER: usize = 4 << 10;

/// The octets that a section of pcapng begins with, in either byte order.
const SECTION: [u8; 4] = *b"\n\r\r\n";

/// The octets of a section of pcapng that say that its numbers are big-endian.
const BIG_ENDIAN: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];

/// The type of a block with a packet as pcapng had it first, obsolete since (draft-ietf-opsawg-pcapng).
const PACKET: u32 = 2;

/// The octets of such a block before those of the packet.
const PACKET_HEAD: usize = 20;

/// The type of a block that tells of a process.
const PROCESS: u32 = 0x8000_0001;

/// The octets of a block's type and of both its lengths.
const FRAME: u32 = 12;

/// What a block is called whose octets cannot be one.
const NO_BLOCK: &str = "this is no block: the file is damaged here";

/// The most interfaces in a section of pcapng; a capture of every interface of a large host has hundreds.
const INTERFACES_MAX: usize = 4_096;

/// A packet as it was captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    /// Since 1970-01-01 00:00 UTC.
    pub(super) time: Duration,
    /// The link type (LINKTYPE_ values of the pcap registry).
    pub(super) link: u16,
    /// From the link header on, as far as it was captured.
    pub(super) octets: &'a [u8],
    /// Whether there was more of it.
    pub(super) is_cut: bool,
}

/// A packet, or what is not known or not there, and how often.
pub(super) type Found<'a> = Result<Packet<'a>, (Skip, u64)>;

/// A stream of packets.
pub(super) struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    is_pcapng: bool,
    failed: Failed,
    packets: u64,
    /// The buffer's size in octets.
    buffer: usize,
    /// Octets before the block that is read next.
    offset: u64,
    interfaces: Interfaces,
}

/// How packets are to be understood.
#[derive(Default)]
struct Interfaces {
    known: Vec<Interface>,
    /// Whether the section's numbers are.
    is_big_endian: bool,
    /// The time of the last packet, which pcapng's simple packets have none of.
    last: Duration,
}

#[derive(Clone, Copy)]
struct Interface {
    link: u16,
    /// `if_tsresol`: units of 10^-n seconds, or with the high bit of 2^-n.
    resolution: u8,
    /// `if_tsoffset`, in seconds.
    offset: i64,
    /// The packets that were dropped so far, as statistics have it.
    dropped: u64,
}

impl Capture {
    /// Begins to read a file whose first octets are those of pcap or pcapng.
    pub(super) fn new(mut source: Source) -> Result<Capture, Damage> {
        let failed = source.failed();
        let broken = |what| Damage { packet: 0, offset: 0, what };
        // The library takes the first block from what fills the buffer once.
        let first = section_length(source.peek().map_err(|error| broken(error.to_string()))?);
        let buffer = first.max(BUFFER).next_power_of_two();
        if buffer > BLOCK_MAX {
            return Err(broken(too_long()));
        }
        let reader = create_reader(buffer, source).map_err(|error| {
            broken(failed.take().map_or_else(
                || match error {
                    PcapError::Incomplete(_) | PcapError::Eof | PcapError::UnexpectedEof => {
                        "the file ends within its header".into()
                    }
                    _ => "the file's header is broken".into(),
                },
                |error| error.to_string(),
            ))
        })?;
        let is_pcapng = reader.data().starts_with(&SECTION);
        Ok(Capture {
            reader,
            is_pcapng,
            failed,
            packets: 0,
            buffer,
            offset: 0,
            interfaces: Interfaces::default(),
        })
    }

    /// How many packets were read.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Reads a block, and gives the packet in it, if it has one, or what is not in the capture, and how often. `false` after
    /// the last block.
    ///
    /// # Errors
    /// What is wrong with the block; there are no more.
    pub(super) fn next(&mut self, take: impl FnOnce(Found<'_>)) -> Result<bool, Damage> {
        loop {
            if self.is_pcapng && is_shorter_than_its_frame(self.reader.data()) {
                return Err(self.damage(NO_BLOCK.into()));
            }
            let held = self.reader.data().len();
            let what: String = match self.reader.next() {
                Ok((length, block)) => {
                    let packet = self.interfaces.packet(&block);
                    let (length, packet) = match packet {
                        Ok(packet) => (length, packet),
                        Err(what) => return Err(self.damage(what.into())),
                    };
                    if let Some(packet) = packet {
                        if let Ok(packet) = &packet {
                            self.packets += 1;
                            self.interfaces.last = packet.time;
                        }
                        take(packet);
                    }
                    self.reader.consume(length);
                    self.offset += length as u64;
                    return Ok(true);
                }
                Err(PcapError::Eof) => match self.failed.take() {
                    None => return Ok(false),
                    Some(error) => error.to_string(),
                },
                Err(PcapError::Incomplete(_)) => match self.reader.refill() {
                    Ok(()) => {
                        // Nothing new and not at the end: the block fills the buffer and wants more.
                        if self.reader.data().len() > held || self.reader.reader_exhausted() {
                            continue;
                        }
                        too_long()
                    }
                    Err(_) => "the file cannot be read on".into(),
                },
                Err(PcapError::BufferTooSmall) if self.buffer < BLOCK_MAX => {
                    self.buffer *= 2;
                    self.reader.grow(self.buffer);
                    continue;
                }
                Err(PcapError::BufferTooSmall) => too_long(),
                Err(PcapError::UnexpectedEof) => "the file ends within this block".into(),
                Err(_) => NO_BLOCK.into(),
            };
            return Err(self.damage(what));
        }
    }

    fn damage(&self, what: String) -> Damage {
        let what = match self.failed.take() {
            Some(error) => format!("{what}: {error}"),
            None => what,
        };
        Damage { packet: self.packets + 1, offset: self.offset, what }
    }
}

/// The length that the first block of pcapng says it has; 0 where this is no pcapng.
fn section_length(head: &[u8]) -> usize {
    let [_, _, _, _, a, b, c, d, order @ ..] = head else { return 0 };
    let length = [*a, *b, *c, *d];
    match (head.starts_with(&SECTION), order.starts_with(&BIG_ENDIAN)) {
        (false, _) => 0,
        (true, true) => u32::from_be_bytes(length) as usize,
        (true, false) => u32::from_le_bytes(length) as usize,
    }
}

/// Whether what stands here is a block of a process with a length that is less than its frame's. The library takes the frame
/// from the length without a look, of blocks of this type alone.
fn is_shorter_than_its_frame(data: &[u8]) -> bool {
    let Some((kind, rest)) = data.split_first_chunk() else { return false };
    let Some(length) = rest.first_chunk() else { return false };
    let is_short = |read: fn([u8; 4]) -> u32| read(*kind) == PROCESS && read(*length) < FRAME;
    is_short(u32::from_le_bytes) || is_short(u32::from_be_bytes)
}

fn too_long() -> String {
    format!("a block of more than {BLOCK_MAX} octets: the file is damaged here")
}

impl Interfaces {
    /// The packet in a block, if it has one; what is not known or not there, and how often, where it is so.
    fn packet<'a>(&mut self, block: &'a PcapBlockOwned<'a>) -> Result<Option<Found<'a>>, &'static str> {
        let packet = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let resolution = if header.is_nanosecond_precision() { 9 } else { 6 };
                self.known =
                    vec![Interface { link: header.network.0 as u16, resolution, offset: 0, dropped: 0 }];
                return Ok(None);
            }
            PcapBlockOwned::Legacy(packet) => {
                let interface = self.known.first().ok_or("a packet before the file's header")?;
                let unit = if interface.resolution == 9 { 1 } else { 1_000 };
                let fraction = Duration::from_nanos(u64::from(packet.ts_usec) * unit);
                Packet {
                    time: Duration::from_secs(packet.ts_sec.into()) + fraction,
                    link: interface.link,
                    octets: packet.data,
                    is_cut: packet.caplen < packet.origlen,
                }
            }
            PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                self.known.clear();
                self.is_big_endian = section.big_endian();
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                if self.known.len() == INTERFACES_MAX {
                    return Err("too many interfaces");
                }
                self.known.push(Interface {
                    link: interface.linktype.0 as u16,
                    resolution: interface.if_tsresol,
                    // The library takes it for little-endian in any section.
                    offset: match self.is_big_endian {
                        true => interface.if_tsoffset.swap_bytes(),
                        false => interface.if_tsoffset,
                    },
                    dropped: 0,
                });
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let interface = self.known.get(packet.if_id as usize).ok_or("a packet of no interface")?;
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                Packet {
                    time: interface.time(ticks),
                    link: interface.link,
                    octets: packet.data.get(..packet.caplen as usize).unwrap_or(packet.data),
                    is_cut: packet.caplen < packet.origlen,
                }
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                let interface = self.known.first().ok_or("a packet of no interface")?;
                let whole = packet.data.get(..packet.origlen as usize);
                let octets = whole.unwrap_or(packet.data);
                Packet { time: self.last, link: interface.link, octets, is_cut: whole.is_none() }
            }
            PcapBlockOwned::NG(Block::InterfaceStatistics(statistics)) => {
                let Some(interface) = self.known.get_mut(statistics.if_id as usize) else { return Ok(None) };
                // The library takes them for little-endian in any section. They are counted from the capture's begin.
                let told = [statistics.isb_ifdrop(), statistics.isb_osdrop()].into_iter().flatten().flatten();
                let told = told.map(|count| if self.is_big_endian { count.swap_bytes() } else { count });
                let dropped = told.fold(0, u64::saturating_add);
                let more = dropped.saturating_sub(interface.dropped);
                interface.dropped += more;
                return Ok((more > 0).then_some(Err((Skip::Dropped, more))));
            }
            PcapBlockOwned::NG(Block::Unknown(block)) => {
                // The library takes it for little-endian in any section.
                let kind = if self.is_big_endian { block.block_type.swap_bytes() } else { block.block_type };
                if kind != PACKET {
                    return Ok(Some(Err((Skip::Block, 1))));
                }
                if block.block_len1 != block.block_len2 {
                    return Err(NO_BLOCK);
                }
                self.obsolete(block.data)?
            }
            PcapBlockOwned::NG(_) => return Ok(None),
        };
        Ok(Some(Ok(packet)))
    }

    /// The packet in the body of a block of the type [`PACKET`]; drops and options are passed over.
    fn obsolete<'a>(&self, body: &'a [u8]) -> Result<Packet<'a>, &'static str> {
        const TOO_LONG: &str = "a packet that is longer than its block";
        let (head, behind) = body.split_first_chunk::<PACKET_HEAD>().ok_or(TOO_LONG)?;
        let word = |at: usize| {
            let octets = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            if self.is_big_endian { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) }
        };
        let number = if self.is_big_endian { word(0) >> 16 } else { word(0) & 0xffff };
        let interface = self.known.get(number as usize).ok_or("a packet of no interface")?;
        let (captured, length) = (word(12), word(16));
        Ok(Packet {
            time: interface.time(u64::from(word(4)) << 32 | u64::from(word(8))),
            link: interface.link,
            octets: behind.get(..captured as usize).ok_or(TOO_LONG)?,
            is_cut: captured < length,
        })
    }
}

impl Interface {
    /// What the ticks of a packet mean; absurd ones become the nearest time that can be told.
    fn time(self, ticks: u64) -> Duration {
        const NANOS: u128 = 1_000_000_000;
        let exponent = u32::from(self.resolution & 0x7f);
        let nanos = match self.resolution & 0x80 {
            0 => 10_u128.checked_pow(exponent).map_or(0, |unit| u128::from(ticks) * NANOS / unit),
            _ => (u128::from(ticks) * NANOS) >> exponent,
        };
        let seconds = i128::try_from(nanos / NANOS).unwrap_or(i128::MAX).saturating_add(self.offset.into());
        // A remainder by a thousand million fits.
        Duration::new(u64::try_from(seconds.max(0)).unwrap_or(u64::MAX), (nanos % NANOS) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_times_in_any_unit() {
        let cases = [
            (6, 0, 1_500_000, Duration::from_millis(1_500)),
            (9, 10, 1, Duration::new(10, 1)),
            (0, 0, 7, Duration::from_secs(7)),
            (0, -8, 7, Duration::ZERO),
            (127, 0, u64::MAX, Duration::ZERO),
            (0x80 | 10, 0, 1_536, Duration::from_millis(1_500)),
            (0xff, 0, u64::MAX, Duration::ZERO),
            (0x80, i64::MAX, u64::MAX, Duration::from_secs(u64::MAX)),
        ];
        for (resolution, offset, ticks, expected) in cases {
            let interface = Interface { link: 1, resolution, offset, dropped: 0 };
            assert_eq!(interface.time(ticks), expected, "{ticks} at {resolution:#x} + {offset}");
        }
    }
}
