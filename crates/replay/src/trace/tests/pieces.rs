//! What came in pieces, and what of it the capture has lost: small captures that provoke each cause.

use super::*;

const CLIENT_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const SERVER_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// UDP with query 9 and a hundred zeros behind it, as pieces are cut from it.
fn payload() -> Vec<u8> {
    udp(&[query(9), vec![0; 100]].concat()).split_off(20)
}

/// A piece of a datagram: from where, in octets, and what.
fn piece(is_ipv6: bool, from: usize, octets: &[u8], more: bool) -> Vec<u8> {
    let (more, from) = (u16::from(more), from as u16);
    if is_ipv6 {
        let place = (from | more).to_be_bytes();
        let fragment = [17, 0, place[0], place[1], 0, 0, 0, 7];
        let length = ((8 + octets.len()) as u16).to_be_bytes();
        let header = [&[0x60, 0, 0, 0, length[0], length[1], 44, 64], &CLIENT_V6[..], &SERVER_V6].concat();
        return [&header[..], &fragment, octets].concat();
    }
    let mut packet = udp(&query(9));
    packet.truncate(20);
    packet[2..4].copy_from_slice(&((20 + octets.len()) as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&((from / 8) | (more << 13)).to_be_bytes());
    [&packet[..], octets].concat()
}

/// Ids of messages, and what was skipped.
type Expected<'a> = (&'a [u16], &'a [(Skip, u64)]);

/// Reads pieces, of which each says from where to where in [`payload`] it goes, whether there are more, and whether its
/// octets are others; both over IPv4 and IPv6. Beyond the payload are zeros.
fn check_fragments(pieces: &[(usize, usize, bool, bool)], expected: [Expected<'_>; 2]) {
    let mut octets = payload();
    octets.resize(65_535, 0);
    for (is_ipv6, (messages, causes)) in [(false, expected[0]), (true, expected[1])] {
        let packets = pieces.iter().map(|(from, to, more, is_other)| {
            let mut octets = octets[*from..*to].to_vec();
            if let (true, Some(octet)) = (is_other, octets.last_mut()) {
                *octet ^= 1;
            }
            piece(is_ipv6, *from, &octets, *more)
        });
        let (found, skipped) = ids(&packets.collect::<Vec<_>>());
        let skipped: Vec<_> = skipped.iter().collect();
        assert_eq!((&found[..], &skipped[..]), (messages, causes), "{pieces:?}, IPv6: {is_ipv6}");
    }
}

#[test]
fn fragments_that_contradict_each_other_give_no_message() {
    let end = payload().len();
    let (first, second, last) = ((0, 48, true, false), (48, 96, true, false), (96, end, false, false));
    let other = |(from, to, more, _)| (from, to, more, true);
    let both = |pieces: &[_], messages: &[u16], causes: &[(Skip, u64)]| {
        check_fragments(pieces, [(messages, causes); 2]);
    };
    let conflict = |pieces: &[_], count| both(pieces, &[], &[(Skip::FragmentConflict, count)]);
    both(&[first, second, last], &[9], &[]);
    // The same again, and a part of it, with other boundaries.
    both(&[first, first, last, last, second], &[9], &[(Skip::Repeated, 2)]);
    both(&[first, (8, 24, true, false), second, last], &[9], &[(Skip::Repeated, 1)]);
    both(&[second, last, (64, end, false, false), first], &[9], &[(Skip::Repeated, 1)]);
    // Beside what is there already stands something new: over IPv6 nobody does so.
    check_fragments(
        &[first, (40, 96, true, false), last],
        [(&[9], &[]), (&[], &[(Skip::FragmentConflict, 3)])],
    );
    // Other octets, whoever comes first, and whatever comes then.
    conflict(&[first, other(first), second, last], 4);
    conflict(&[other(second), second, first, last], 4);
    conflict(&[second, (0, 56, true, true), last], 3);
    conflict(&[first, other(first), first, first, second, last], 6);
    // Two ends; pieces behind the end; more behind the end; an end where there was more.
    conflict(&[last, (48, 95, false, false), first], 3);
    conflict(&[last, (136, 144, false, false), first, second], 4);
    conflict(&[last, (136, 144, true, false), first, second], 4);
    conflict(&[(48, 96, false, false), (88, 96, true, false), first], 3);
    conflict(&[second, (8, 48, false, false), last], 3);
    conflict(&[second, (48, 96, false, false), first], 3);
    // Whole, but less than UDP says.
    both(&[first, (48, 96, false, false)], &[], &[(Skip::Broken, 1)]);
}

#[test]
fn fragments_with_impossible_places_are_broken_ones() {
    let end = payload().len();
    let pieces = [(0, 48, true, false), (48, 96, true, false), (96, end, false, false)];
    for wrong in [
        // Nothing, and nothing at the end; not of eights; beyond the longest datagram.
        (48, 48, true, false),
        (end.next_multiple_of(8), end.next_multiple_of(8), false, false),
        (48, 95, true, false),
        (65_528, 65_535, true, false),
    ] {
        let expected: (&[u16], &[_]) = (&[9], &[(Skip::Broken, 1)]);
        check_fragments(&[pieces[0], wrong, pieces[1], pieces[2]], [expected; 2]);
    }
    for is_ipv6 in [false, true] {
        let longest = piece(is_ipv6, 65_528, &[0; 7], false);
        let longer = piece(is_ipv6, 65_528, &[0; 8], false);
        let skipped = ids(&[longest, longer]).1;
        assert_eq!(skipped.iter().collect::<Vec<_>>(), [(Skip::Broken, 1), (Skip::Fragment, 1)]);
    }
}

#[test]
fn fragments_of_fragments_become_whole_where_routers_make_them() {
    let end = payload().len();
    let pieces =
        [(0, 24, true, false), (24, 48, true, false), (48, 96, true, false), (96, end, false, false)];
    check_fragments(&pieces, [(&[9], &[]); 2]);
    // Over IPv6 only hosts make them: a header within what was put together is none.
    let inner = [&[17, 0, 0, 1, 0, 0, 0, 8], &payload()[..]].concat();
    let (one, rest) = inner.split_at(64);
    let nested = |octets: &[u8], from, more| {
        let mut packet = piece(true, from, octets, more);
        packet[40] = 44;
        packet
    };
    let (found, skipped) = ids(&[nested(one, 0, true), nested(rest, 64, false)]);
    assert_eq!((found, skipped.iter().collect::<Vec<_>>()), (vec![], vec![(Skip::Broken, 1)]));
    // Of what pieces say they carry, the first one's word counts (RFC 8200 §4.5).
    let payload = payload();
    let mut pieces = [piece(true, 0, &payload[..48], true), piece(true, 48, &payload[48..], false)];
    pieces[1][40] = 59;
    for order in [[0, 1], [1, 0]] {
        assert_eq!(ids(&order.map(|at| pieces[at].clone())).0, [9]);
    }
}

#[test]
fn fragments_are_waited_for_and_counted_within_limits() {
    let payload = payload();
    let [first, last] = [(0, 48, true), (48, payload.len(), false)]
        .map(|(from, to, more)| piece(false, from, &payload[from..to], more));
    let mut other = first.clone();
    other[30] ^= 1;
    // Each at so many milliseconds.
    let check = |packets: &[(u32, &Vec<u8>)], messages, causes: &[(Skip, u64)]| {
        let mut trace = read(pcap_at(101, packets.iter().copied()));
        let found = super::messages(&mut trace).0.len();
        assert_eq!((found, &trace.skipped().iter().collect::<Vec<_>>()[..]), (messages, causes));
    };
    check(&[(0, &first), (30_000, &last)], 1, &[]);
    check(&[(0, &first), (30_001, &last)], 0, &[(Skip::Fragment, 2)]);
    // Then the id may be another datagram's.
    let conflict = (Skip::FragmentConflict, 2);
    check(&[(0, &first), (1, &other), (30_001, &first), (30_002, &last)], 1, &[conflict]);

    let small = |at: usize| piece(false, at * 8, &[0; 8], true);
    let many: Vec<Vec<u8>> = (0..260).map(small).collect();
    assert_eq!(ids(&many).1.iter().collect::<Vec<_>>(), [(Skip::Fragment, 260)]);
    // What the snap length cut is not taken for whole.
    let cut = last[..last.len() - 1].to_vec();
    let skipped = ids(&[first.clone(), cut]).1;
    assert_eq!(skipped.iter().collect::<Vec<_>>(), [(Skip::Cut, 1), (Skip::Fragment, 1)]);
}

/// A part of a stream of the queries 1, 2, ... in which each has 23 octets.
struct Part {
    /// Milliseconds.
    at: u32,
    /// Octets of the stream.
    from: i64,
    octets: Vec<u8>,
    /// TCP's flags: [`FIN`], [`SYN`], [`RST`].
    flags: u8,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// From octet to octet of the stream.
fn part(from: usize, to: usize) -> Part {
    let octets: Vec<u8> = (1..=(to / 23 + 1) as u16).flat_map(|id| framed(&query(id))).collect();
    Part { at: 0, from: from as i64, octets: octets[from..to].to_vec(), flags: 0 }
}

/// The same query or queries.
fn parts(first: usize, last: usize) -> Part {
    part((first - 1) * 23, last * 23)
}

impl Part {
    fn at(self, at: u32) -> Part {
        Part { at, ..self }
    }

    fn with(self, flags: u8) -> Part {
        Part { flags, ..self }
    }

    /// With another octet at the end.
    fn other(mut self) -> Part {
        *self.octets.last_mut().expect("there is one") ^= 1;
        self
    }
}

/// SYN without data.
fn syn() -> Part {
    part(0, 0).with(SYN)
}

/// Reads parts of a stream, its numbers beginning at several places; holds ids and causes against what is expected.
fn check(parts: &[Part], expected: &[u16], causes: &[(Skip, u64)]) {
    for first in [0, 1_000, u32::MAX - 60, u32::MAX - 24, u32::MAX - 1, u32::MAX, i32::MAX as u32 - 30] {
        let packets: Vec<(u32, Vec<u8>)> = parts
            .iter()
            .map(|part| {
                let sequence = first.wrapping_add(u32::from(part.flags & SYN == 0) + part.from as u32);
                let mut packet = tcp(sequence, false, &part.octets);
                packet[33] |= part.flags;
                (part.at, packet)
            })
            .collect();
        let mut trace = read(pcap_at(101, packets.iter().map(|(at, packet)| (*at, packet))));
        let (found, damage) = messages(&mut trace);
        let found: Vec<u16> =
            found.iter().map(|message| u16::from_be_bytes([message.octets[0], message.octets[1]])).collect();
        let skipped: Vec<_> = trace.skipped().iter().collect();
        assert_eq!((&found[..], &skipped[..], damage), (expected, causes, None), "from {first} on");
    }
}

#[test]
fn gaps_in_a_stream_are_counted() {
    let no_data = (Skip::NoData, 1);
    check(&[syn(), parts(1, 1), parts(3, 3)], &[1, 3], &[no_data, (Skip::Gap, 1)]);
    // One gap, however much is missing in it; two, as soon as a message is between them.
    check(&[syn(), parts(1, 1), parts(5, 5), parts(6, 6)], &[1, 5, 6], &[no_data, (Skip::Gap, 1)]);
    check(&[syn(), parts(1, 1), parts(3, 3), parts(5, 5)], &[1, 3, 5], &[no_data, (Skip::Gap, 2)]);
    let useless = [no_data, (Skip::Gap, 1), (Skip::AfterGap, 1)];
    check(&[syn(), parts(1, 1), part(50, 60), parts(4, 4)], &[1, 4], &useless);
    // Within a message, whose end is missing, too; where it goes on, no message begins.
    let unfinished = [no_data, (Skip::Gap, 1), (Skip::AfterGap, 1), (Skip::Unfinished, 1)];
    check(&[syn(), part(0, 30), part(40, 46), parts(3, 3)], &[1, 3], &unfinished);
    check(&[syn(), part(0, 30), part(40, 69)], &[1], &unfinished);
    // Behind a gap without a message, whatever begins one.
    check(&[syn(), part(30, 40), parts(9, 9).at(1_100)], &[9], &useless);
    let reset = parts(20, 20).with(RST).at(1_100);
    let lost = [syn(), part(30, 40), reset, part(210, 220).at(1_101), parts(11, 11).at(1_102)];
    check(&lost, &[11], &[(Skip::NoData, 2), (Skip::Gap, 1), (Skip::AfterGap, 2)]);
    // What precedes the message's octets may stand in a segment of its own.
    let alone = [syn(), parts(1, 1), part(46, 48), part(48, 69)];
    check(&alone, &[1, 3], &[no_data, (Skip::Gap, 1)]);
}

#[test]
fn a_gap_at_the_end_is_known_by_what_says_how_far_the_stream_came() {
    let no_data = |count| (Skip::NoData, count);
    let none = |from: usize, flags| part(from, from).with(flags);
    check(&[syn(), parts(1, 1), none(46, FIN)], &[1], &[no_data(2), (Skip::Gap, 1)]);
    check(&[syn(), parts(1, 1), none(46, 0)], &[1], &[no_data(2), (Skip::Gap, 1)]);
    check(&[syn(), none(46, 0)], &[], &[no_data(2), (Skip::Gap, 1)]);
    // All is there: FIN has a number, an acknowledgement may be captured before its segment, a reset says nothing.
    check(&[syn(), parts(1, 2), none(46, FIN), none(47, 0)], &[1, 2], &[no_data(3)]);
    check(&[syn(), parts(1, 2), none(47, 0)], &[1, 2], &[no_data(2)]);
    check(&[syn(), none(46, 0), parts(1, 2), none(45, 0)], &[1, 2], &[no_data(3)]);
    check(&[syn(), parts(1, 1), none(900, RST)], &[1], &[no_data(2)]);
    // What was before the capture is none of it.
    check(&[none(23, 0), parts(3, 3)], &[3], &[no_data(1)]);
    // One gap is one, also where it is passed.
    check(&[syn(), parts(1, 1), none(46, 0), parts(3, 3)], &[1, 3], &[no_data(2), (Skip::Gap, 1)]);
    // A message without its end, and the next connection's.
    let mut next = syn();
    next.from = 500_000;
    let causes = [no_data(3), (Skip::Gap, 1), (Skip::Unfinished, 1)];
    check(&[syn(), part(0, 10), none(46, FIN), next], &[], &causes);
}

#[test]
fn what_fills_a_gap_is_used_in_time_and_counted_later() {
    let no_data = (Skip::NoData, 1);
    // A stream may end before a gap in it is filled.
    let fin = parts(3, 3).with(FIN);
    check(&[syn(), parts(1, 1), fin, parts(2, 2).at(900)], &[1, 2, 3], &[no_data]);
    // Somebody else's segment lets a second pass.
    let late = |filler: Part| [syn(), parts(1, 1), parts(3, 3), filler.at(2_000)];
    let causes = [no_data, (Skip::Gap, 1), (Skip::AfterGap, 1)];
    check(&late(parts(2, 2)), &[1, 3], &causes);
    check(&late(part(10, 40)), &[1, 3], &causes);
    // Of which the end is new.
    check(&late(parts(2, 4)), &[1, 3, 4], &causes[..2]);
    // What was read before, or behind, came again.
    let again = [no_data, (Skip::Repeated, 1), (Skip::Gap, 1)];
    check(&late(parts(1, 1)), &[1, 3], &again);
    check(&late(parts(3, 3)), &[1, 3], &again);
    // Nothing is read twice, where no message begins behind the gap.
    let lost = |last: Part| [syn(), parts(1, 1), part(30, 40), last.at(2_000)];
    check(&lost(parts(1, 1)), &[1], &[no_data, (Skip::Repeated, 1), (Skip::Gap, 1), (Skip::AfterGap, 1)]);
    check(&lost(parts(2, 2)), &[1, 2], &[no_data, (Skip::Gap, 1), (Skip::AfterGap, 1)]);
    // Pieces that waited in vain, as a larger one has all of them.
    let waited = [syn(), part(30, 40), part(30, 40), parts(1, 3)];
    check(&waited, &[1, 2, 3], &[no_data, (Skip::Repeated, 2)]);
}

#[test]
fn of_segments_with_other_content_the_first_is_taken() {
    let no_data = (Skip::NoData, 1);
    let causes = [no_data, (Skip::SegmentConflict, 1)];
    check(&[syn(), parts(1, 1), parts(1, 1).other()], &[1], &causes);
    check(&[syn(), parts(1, 1), parts(1, 1).other(), parts(2, 2)], &[1, 2], &causes);
    // With other boundaries, and with more behind it, which is left out, too.
    let mut wrong = part(10, 69);
    wrong.octets[5] ^= 1;
    check(&[syn(), parts(1, 2), wrong, parts(3, 3)], &[1, 2, 3], &causes);
    // In a message that is not whole yet.
    check(&[syn(), part(0, 30), part(20, 28).other(), part(30, 46)], &[1, 2], &causes);
    // Before and behind a gap: against what waits there.
    check(&[syn(), part(30, 69), part(0, 40).other(), parts(1, 2)], &[1, 2, 3], &causes);
    check(&[syn(), part(30, 69), part(40, 50).other(), parts(1, 2)], &[1, 2, 3], &causes);
    // The same with other boundaries is the same again, also where not all of it is kept.
    let long = parts(1, 40);
    check(&[syn(), long, part(5, 905)], &(1..=40).collect::<Vec<_>>(), &[no_data, (Skip::Repeated, 1)]);
    // Who asks whether the other is there sends any octet.
    let probe = part(22, 23).other();
    check(&[syn(), parts(1, 1), probe, parts(2, 2)], &[1, 2], &[no_data, (Skip::Repeated, 1)]);
}

#[test]
fn a_stream_begins_and_ends_in_any_way() {
    let no_data = |count| (Skip::NoData, count);
    // SYN with data (RFC 7413), which comes again, with it or without.
    let fast = || parts(1, 1).with(SYN);
    check(&[fast(), parts(2, 2)], &[1, 2], &[]);
    check(&[fast(), fast(), parts(1, 1), parts(2, 2)], &[1, 2], &[(Skip::Repeated, 2)]);
    check(&[fast(), parts(3, 3)], &[1, 3], &[(Skip::Gap, 1)]);
    // A reset may say why, which is no part of the stream, and may be anybody's.
    let mut reset = part(30, 30).with(RST);
    reset.octets = b"\0\x0cgoing away".to_vec();
    check(&[syn(), part(0, 30), reset, part(30, 69)], &[1, 2, 3], &[no_data(2)]);
    // Without its start: nothing to be waited for, nothing that came before it.
    check(&[part(10, 23), parts(2, 2), parts(1, 1)], &[2], &[(Skip::Repeated, 1), (Skip::Stream, 1)]);
}

#[test]
fn both_directions_are_streams_of_their_own() {
    let mut response = query(1);
    response[2] |= 0x80;
    let back = |sequence, is_first, octets: &[u8]| {
        let mut packet = tcp(sequence, is_first, octets);
        let (source, destination) =
            ([packet[12..16].to_vec(), packet[16..20].to_vec()], packet[20..24].to_vec());
        packet[12..20].copy_from_slice(&[&source[1][..], &source[0]].concat());
        packet[20..24].copy_from_slice(&[&destination[2..], &destination[..2]].concat());
        packet
    };
    let packets = [
        tcp(0, true, b""),
        back(0, true, b""),
        tcp(1, false, &framed(&query(1))),
        // The first response is missing.
        back(24, false, &framed(&response)),
        tcp(24, false, &framed(&query(2))),
    ];
    let (found, skipped) = ids(&packets);
    assert_eq!(found, [1, 2, 1]);
    assert_eq!(skipped.iter().collect::<Vec<_>>(), [(Skip::NoData, 2), (Skip::Gap, 1)]);
}

#[test]
fn what_the_snap_length_cut_is_no_gap() {
    let cut = |packet: Vec<u8>| packet[..packet.len() - 5].to_vec();
    let packets = [
        tcp(0, true, b""),
        cut(tcp(1, false, &framed(&query(1)))),
        tcp(24, false, &framed(&query(2))),
        cut(tcp(70, false, &framed(&query(4)))),
        tcp(93, false, b""),
    ];
    let (found, skipped) = ids(&packets);
    assert_eq!(found, [2]);
    let expected = [(Skip::Cut, 2), (Skip::NoData, 2), (Skip::Gap, 1), (Skip::Unfinished, 1)];
    assert_eq!(skipped.iter().collect::<Vec<_>>(), expected);
}
