use super::*;
use crate::name::NameText;
use std::time::Duration;

use proptest::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);

fn kept(text: &str) -> NameText {
    NameText::from_text(text.as_bytes()).expect("a name")
}

fn v4(number: u32) -> IpAddr {
    IpAddr::V4(number.into())
}

fn put(cache: &mut Writer, address: IpAddr, name: &str) {
    match name {
        "-" => cache.put(address, Entry::new(State::NoName, 1000, DAY), &NameText::EMPTY),
        name => cache.put(address, Entry::new(State::Name, 1000, DAY), &kept(name)),
    }
}

fn got(reader: &Reader, address: IpAddr) -> Option<String> {
    let mut name = NameText::EMPTY;
    let entry = reader.view().get(address, &mut name)?;
    Some(if entry.state == State::Name { name.as_str().into() } else { "-".into() })
}

#[test]
fn what_was_put_is_there() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    let six: IpAddr = "2001:db8::1".parse().unwrap();
    for (address, name) in
        [(v4(0), "zero.example"), (v4(9), "-"), (v4(u32::MAX), "localhost"), (six, "six.example")]
    {
        assert_eq!(got(&reader, address), None);
        put(&mut cache, address, name);
        assert_eq!(got(&reader, address).as_deref(), Some(name));
    }
    put(&mut cache, v4(9), "now.example");
    assert_eq!((got(&reader, v4(9)).as_deref(), cache.len()), (Some("now.example"), 4));
}

#[test]
fn what_expired_is_swept_after_its_grace() {
    let (mut cache, _) = new(LIMIT_MIN, 3600, 7);
    put(&mut cache, v4(1), "one.example");
    cache.put(v4(2), Entry::new(State::Failed(Why::Timeout), 1000, Duration::from_secs(1)), &NameText::EMPTY);
    cache.put(v4(3), Entry::new(State::Asked, 1000, Duration::from_secs(1)), &NameText::EMPTY);
    for (now, left) in [(1000, 3), (1001, 2), (1301, 1), (1000 + 86_400 + 3599, 1), (1000 + 86_400 + 3600, 0)]
    {
        (0..Writer::SWEEPS).for_each(|_| cache.sweep(now));
        assert_eq!(cache.len(), left, "at {now}");
    }
    assert_eq!(cache.counts().expired, 3);
}

#[test]
fn the_limit_holds_and_later_entries_win() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    for number in 0..150_000u32 {
        let entry = Entry::new(State::Name, 1000 + number / 10, DAY);
        cache.put(v4(number.wrapping_mul(0x9e37_79b9)), entry, &kept(&format!("h{number}.example.net")));
        if number % 5_000 == 0 {
            (0..2 * Writer::SWEEPS).for_each(|_| cache.sweep(1000));
        }
        assert!(cache.octets() <= 2 * LIMIT_MIN, "{} octets", cache.octets());
    }
    assert!(cache.counts().evicted > 10_000 && cache.counts().collections > 0);
    let late =
        (140_000..150_000u32).filter(|n| got(&reader, v4(n.wrapping_mul(0x9e37_79b9))).is_some()).count();
    let early = (0..10_000u32).filter(|n| got(&reader, v4(n.wrapping_mul(0x9e37_79b9))).is_some()).count();
    assert!(late > 20 * early && late > 5000, "{late} of the last, {early} of the first");
}

#[test]
fn names_without_numbers_make_room_as_those_beyond_the_limit() {
    let (mut cache, reader) = new(256 << 20, 0, 7);
    cache.names.most = 32;
    for number in 0..70_000u32 {
        let entry = Entry::new(State::Name, 1000 + number / 10, DAY);
        cache.put(v4(number), entry, &kept(&format!("h{number:040}.example.net")));
        if number % 2_000 == 0 {
            (0..2 * Writer::SWEEPS).for_each(|_| cache.sweep(1000));
        }
    }
    let known = |numbers: std::ops::Range<u32>| numbers.filter(|n| got(&reader, v4(*n)).is_some()).count();
    assert_eq!((known(0..10_000), known(60_000..70_000), cache.counts().no_room), (0, 10_000, 0));
    assert!(cache.len() < 50_000, "{}", cache.len());
    // While names are collected, those in use have room beside those that were.
    assert!(reader.view().root.segments.len() <= 64, "{}", reader.view().root.segments.len());
}

#[test]
fn what_comes_while_names_are_collected_keeps_to_the_limit() {
    let (mut cache, _) = new(LIMIT_MIN, 0, 7);
    let mut numbers = 0u32..;
    let mut fill = |cache: &mut Writer| {
        let before = cache.counts().no_room;
        while cache.counts().no_room == before {
            let number = numbers.next().expect("there is room for fewer");
            put(cache, v4(number), &format!("{number:060x}.{number:060x}.example"));
        }
    };
    fill(&mut cache);
    cache.sweep(1000);
    fill(&mut cache);
    (0..Writer::SWEEPS).for_each(|_| cache.sweep(1000));
    assert_eq!(cache.counts().collections, 1);
    assert!(cache.octets() <= LIMIT_MIN, "{} octets", cache.octets());
}

#[test]
fn a_name_without_room_leaves_that_it_was_asked_for() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    cache.names.most = 1;
    for number in 0.. {
        put(&mut cache, v4(number), &format!("h{number}.example"));
        if cache.counts().no_room > 0 {
            break;
        }
    }
    let state = |address| reader.view().get(address, &mut NameText::EMPTY.clone()).map(|entry| entry.state);
    let late = "some.name.that.is.not.there.yet.example";
    // Else it would be asked for again and again, for a name that is not kept.
    cache.put(v4(u32::MAX), Entry::new(State::Asked, 1000, DAY), &NameText::EMPTY);
    put(&mut cache, v4(u32::MAX), late);
    assert_eq!(state(v4(u32::MAX)), Some(State::Asked));
    // But what is not true any more goes.
    for address in [v4(0), v4(1 << 31)] {
        put(&mut cache, address, "-");
        put(&mut cache, address, late);
        assert_eq!(state(address), None);
    }
    assert_eq!(cache.counts().no_room, 4);
}

#[test]
fn names_are_collected() {
    let (mut cache, reader) = new(64 << 20, 0, 7);
    for round in 0..20u32 {
        for number in 0..5000u32 {
            put(&mut cache, v4(number), &format!("r{round}.n{number}.some-longer-name.example"));
        }
        (0..2 * Writer::SWEEPS).for_each(|_| cache.sweep(1000));
    }
    assert!(cache.counts().collections >= 5, "{:?}", cache.counts());
    assert!(cache.octets() < 3 << 20, "{} octets", cache.octets());
    for number in 0..5000 {
        assert_eq!(got(&reader, v4(number)), Some(format!("r19.n{number}.some-longer-name.example")));
    }
}

#[test]
fn names_are_collected_in_parts_while_others_are_put() {
    let (mut cache, reader) = new(64 << 20, 0, 7);
    // All of the shard that is swept first, so that it has many parts.
    let mut numbers = (0u32..).filter(|number| shard(number.hash(7)) == 0);
    let mut known: Vec<u32> = numbers.by_ref().take(3000).collect();
    for round in ["old", "new"] {
        for number in &known {
            put(&mut cache, v4(*number), &format!("{round}{number}.example"));
        }
    }
    let mut parts = 1;
    while !cache.sweep_part(1000) {
        parts += 1;
        // Enough for it to grow now and then, where it is begun anew.
        for number in numbers.by_ref().take(100) {
            put(&mut cache, v4(number), &format!("new{number}.example"));
            known.push(number);
        }
    }
    assert!(parts > 5, "{parts}");
    (0..Writer::SWEEPS).for_each(|_| cache.sweep(1000));
    assert_eq!(cache.counts().collections, 1);
    for number in known {
        assert_eq!(got(&reader, v4(number)), Some(format!("new{number}.example")));
    }
}

#[test]
fn readers_see_whole_entries_while_they_are_written() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    let done = std::sync::atomic::AtomicBool::new(false);
    let names = ["a.example", "bb.other.example", "ccc.third.example"];
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut name, mut seen) = (NameText::EMPTY, 0u32);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let view = reader.view();
                for number in 0..64 {
                    let Some(entry) = view.get(v4(number), &mut name) else { continue };
                    // Name and expiry are changed together.
                    let which =
                        names.iter().position(|text| *text == name.as_str()).expect("a name that was put");
                    assert_eq!(entry.expiry as usize % 3, which);
                    seen += 1;
                }
            }
            seen
        });
        for round in 0..20_000u32 {
            let (number, which) = (round * 7 % 64, round as usize % 3);
            let expiry = 3000 + 3 * round + which as u32 - (3000 + 3 * round) % 3;
            cache.put(v4(number), Entry { expiry, ..Entry::new(State::Name, 0, DAY) }, &kept(names[which]));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reading.join().expect("no torn entry was seen");
    });
}

#[test]
fn a_name_that_is_renewed_is_never_out_of_sight() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    let six: IpAddr = "2001:db8::1".parse().expect("an address");
    let renewed = |expiry| Entry { expiry, ..Entry::new(State::Name, 0, DAY) };
    let done = std::sync::atomic::AtomicBool::new(false);
    cache.put(v4(1), renewed(1), &kept("one.example"));
    cache.put(six, renewed(1), &kept("six.example"));
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(got(&reader, v4(1)).as_deref(), Some("one.example"));
                assert_eq!(got(&reader, six).as_deref(), Some("six.example"));
            }
        });
        for expiry in 2..100_000 {
            cache.put(v4(1), renewed(expiry), &kept("one.example"));
            cache.put(six, renewed(expiry), &kept("six.example"));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reading.join().expect("it was always there");
    });
}

#[test]
fn a_name_that_changes_is_never_out_of_sight() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    let six: IpAddr = "2001:db8::1".parse().expect("an address");
    let names = ["one.example", "other.example"];
    let changed = |number: u32| Entry { expiry: 2_000_000 + number, ..Entry::new(State::Name, 0, DAY) };
    let put = |cache: &mut Writer, number: u32| {
        for address in [v4(1), v4(2), six] {
            cache.put(address, changed(number), &kept(names[number as usize % 2]));
        }
    };
    put(&mut cache, 0);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (view, mut name) = (reader.view(), NameText::EMPTY);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for address in [v4(1), v4(2), six] {
                    let entry = view.get(address, &mut name).expect("it is known all the time");
                    assert_eq!(name.as_str(), names[entry.expiry as usize % 2]);
                }
            }
        });
        (1..20_000).for_each(|number| put(&mut cache, number));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reading.join().expect("it was always there, and whole");
    });
}

#[test]
fn a_view_has_names_that_were_put_since() {
    let (mut cache, reader) = new(64 << 20, 0, 7);
    put(&mut cache, v4(1), "first.example");
    put(&mut cache, v4(2), "first.example");
    let view = reader.view();
    // More than a segment of other names, so that the next one is where this view cannot look.
    (0..10_000).for_each(|number| put(&mut cache, v4(2), &format!("h{number}.some-longer-name.example")));
    put(&mut cache, v4(1), "second.example");
    let mut name = NameText::EMPTY;
    let entry = view.get(v4(1), &mut name);
    assert_eq!((entry.is_some(), name.as_str()), (true, "second.example"));
    let mut seen = Vec::new();
    view.get_each(&[v4(1)], |_, entry, name| seen.push((entry.is_some(), name.as_str().to_owned())));
    assert_eq!(seen, [(true, "second.example".to_owned())]);
}

#[test]
fn a_snapshot_is_read_back() {
    let (mut cache, reader) = filled();
    let mut file = Vec::new();
    snapshot::write(&reader.view(), 1001, &mut file).unwrap();
    let (mut read, again) = snapshot::read(&file[..], 64 << 20, 0).unwrap();
    assert_eq!(read.len(), cache.len());
    let all = |reader: &Reader| {
        let mut all = Vec::new();
        reader.for_each(|address, entry, name| all.push((address, entry.expiry, name.as_str().to_owned())));
        all.sort();
        all
    };
    assert!(all(&again) == all(&reader));
    // The names are collected at once, and new ones join those that are there.
    (0..2 * Writer::SWEEPS).for_each(|_| read.sweep(1001));
    put(&mut read, v4(77), "ip-0-0-0-77.pool.example");
    put(&mut cache, v4(77), "ip-0-0-0-77.pool.example");
    assert!(all(&again) == all(&reader));
    assert_eq!(read.counts().collections, 1);
}

#[test]
fn a_snapshot_has_what_memory_keeps() {
    // (what is known, when it expires, whether it is kept at 1000 with 3,600 s beyond)
    let known = [
        (State::Name, 999, true),
        (State::NoName, 999, true),
        (State::Name, 1000, true),
        (State::Failed(Why::Timeout), 999, true),
        (State::Failed(Why::Timeout), 700, false),
        // The clock was far ahead when it was learned.
        (State::Name, 1_000_000, true),
    ];
    let (mut cache, reader) = new(LIMIT_MIN, 3600, 7);
    for (number, (state, expiry, _)) in (0..).zip(known) {
        let learned = Entry::new(state, expiry - 100, Duration::from_secs(100));
        cache.put(v4(number), learned, &kept("one.example"));
    }
    let kept_of = |reader: &Reader| {
        let mut name = NameText::EMPTY;
        let mut expiry = |number| reader.view().get(v4(number), &mut name).map(|entry| entry.expiry);
        (0..known.len() as u32).map(&mut expiry).collect::<Vec<_>>()
    };
    let expected: Vec<_> = known.iter().map(|(_, expiry, is_kept)| is_kept.then_some(*expiry)).collect();
    let mut file = Vec::new();
    snapshot::write(&reader.view(), 1000, &mut file).unwrap();
    assert_eq!(kept_of(&snapshot::read(&file, LIMIT_MIN, 3600).unwrap().1), expected);
    (0..Writer::SWEEPS).for_each(|_| cache.sweep(1000));
    assert_eq!(kept_of(&reader), expected);
    // As memory does, it lets go of them in the end.
    file.clear();
    snapshot::write(&reader.view(), 4599, &mut file).unwrap();
    let expected = [None, None, Some(1000), None, None, Some(1_000_000)];
    assert_eq!(kept_of(&snapshot::read(&file, LIMIT_MIN, 3600).unwrap().1), expected);
}

#[test]
fn a_snapshot_of_a_full_cache_is_read_under_its_limit_also_while_names_are_collected() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    (0..60_000).for_each(|number| put(&mut cache, v4(number), &format!("h{number:060}.example.net")));
    // Whenever it is written, over one round of sweeps.
    let mut largest = 0;
    for _ in 0..4 {
        let mut file = Vec::new();
        snapshot::write(&reader.view(), 1001, &mut file).unwrap();
        let (read, _) = snapshot::read(&file[..], LIMIT_MIN, 0).unwrap();
        assert_eq!(read.len(), cache.len());
        largest = largest.max(file.len());
        (0..Writer::SWEEPS / 4).for_each(|_| cache.sweep(1000));
    }
    assert!(largest > LIMIT_MIN + LIMIT_MIN / 8, "{largest}");
    // Read again, it soon keeps to its limit.
    let mut file = Vec::new();
    snapshot::write(&reader.view(), 1001, &mut file).unwrap();
    let (mut read, _) = snapshot::read(&file[..], LIMIT_MIN, 0).unwrap();
    (0..=Writer::SWEEPS).for_each(|_| read.sweep(1001));
    assert!(read.len() > 10_000 && read.octets() <= LIMIT_MIN, "{} {}", read.len(), read.octets());
}

fn filled() -> (Writer, Reader) {
    let (mut cache, reader) = new(64 << 20, 0, 7);
    for number in 0..3000u32 {
        let octets = number.to_be_bytes();
        let [a, b, c, d] = octets;
        put(&mut cache, v4(number), &format!("ip-{a}-{b}-{c}-{d}.pool.example"));
        put(&mut cache, v4(number + 100_000), "-");
        put(&mut cache, IpAddr::V6((u128::from(number) << 64).into()), &format!("six{number}.example"));
    }
    cache.put(v4(5), Entry::new(State::Name, 0, Duration::from_secs(1000)), &kept("expired.example"));
    cache.put(
        v4(5),
        Entry::new(State::Failed(Why::Servfail), 1000, Duration::from_secs(60)),
        &NameText::EMPTY,
    );
    (cache, reader)
}

#[test]
fn a_snapshot_that_is_none_is_refused() {
    let mut file = Vec::new();
    snapshot::write(&filled().1.view(), 1001, &mut file).unwrap();
    let refused = |file: &[u8], limit| snapshot::read(file, limit, 0).expect_err("refused").to_string();
    for cut in [0, 7, 20, 40, 5000, file.len() - 1] {
        assert_eq!(refused(&file[..cut], 64 << 20), "it is cut short");
    }
    for (at, expected) in
        [(0, "no snapshot"), (12, "version"), (5000, "checksum"), (file.len() - 3, "checksum")]
    {
        let mut file = file.clone();
        file[at] ^= 0x40;
        let said = refused(&file, 64 << 20);
        assert!(said.contains(expected), "{at}: {said}");
    }
    assert!(refused(&file, 1000).contains("more than the cache may"));
    // Of a later version, and of a machine with the other byte order.
    for version in [4u32, 3u32.swap_bytes()] {
        let mut file = file.clone();
        file[12..16].copy_from_slice(&version.to_ne_bytes());
        assert_eq!(
            refused(&file, 64 << 20),
            format!("it has version {version}, and this program reads version 3")
        );
    }
    assert!(refused(&[&file[..], b"more"].concat(), 64 << 20).contains("beyond its end"));
    // The checksum is right: its first segment has another number, or a slot is being written.
    let slots = 5 + 2 * SHARDS + 1;
    for (at, word) in [(5 + 2 * SHARDS, 9), (slots, entry::BUSY << 48)] {
        let mut words: Vec<u64> = file.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let (sum, content) = words.split_last_mut().expect("a checksum");
        content[at] = word;
        *sum = snapshot::checksum(content.iter().copied());
        let forged: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(refused(&forged, 64 << 20).contains("damaged: a slot, or a name in a segment"), "{at}");
    }
    assert_eq!(refused(&[], 64 << 20), "it is cut short");
}

#[test]
fn starts_within_a_collection_pile_nothing_up() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    (0..30_000).for_each(|number| put(&mut cache, v4(number), &format!("h{number:060}.example.net")));
    let mut file = Vec::new();
    snapshot::write(&reader.view(), 1001, &mut file).unwrap();
    for start in 0..6 {
        let (mut read, reader) =
            snapshot::read(&file, LIMIT_MIN, 0).unwrap_or_else(|why| panic!("{start}: {why}"));
        // Three quarters of those of IPv4.
        (0..SHARDS * 3 / 4).for_each(|_| read.sweep(1000));
        file.clear();
        snapshot::write(&reader.view(), 1001, &mut file).unwrap();
        assert_eq!((read.len(), read.counts().evicted), (30_000, 0));
    }
    let (mut read, _) = snapshot::read(&file, LIMIT_MIN, 0).unwrap();
    (0..=Writer::SWEEPS).for_each(|_| read.sweep(1000));
    assert_eq!(read.len(), 30_000);
    assert!(read.octets() < LIMIT_MIN && read.counts().no_room == 0, "{}", read.octets());
}

#[test]
fn names_that_somebody_still_reads_after_a_collection_shed_none() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    (0..30_000).for_each(|number| put(&mut cache, v4(number), &format!("h{number:060}.example.net")));
    cache.dropped = 30_000;
    let view = reader.view();
    (0..=2 * Writer::SWEEPS).for_each(|_| cache.sweep(1000));
    assert_eq!((cache.len(), cache.counts().evicted, cache.counts().collections), (30_000, 0, 1));
    let mut name = NameText::EMPTY;
    assert!(view.get(v4(7), &mut name).is_some() && !name.octets().is_empty());
}

#[test]
fn names_of_a_snapshot_that_are_none_are_taken_out() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    put(&mut cache, v4(1), "one.example");
    put(&mut cache, v4(2), "two.example");
    let long = "a".repeat(64);
    for (number, text) in ["a\n192.0.2.1.example", &long, "127.0.0.1", ""].into_iter().enumerate() {
        let mut name = NameText::EMPTY;
        text.bytes().for_each(|octet| name.push(octet).unwrap());
        cache.put(v4(10 + number as u32), Entry::new(State::Name, 1000, DAY), &name);
        cache.put(IpAddr::V6((number as u128).into()), Entry::new(State::Name, 1000, DAY), &name);
    }
    let mut file = Vec::new();
    snapshot::write(&reader.view(), 1001, &mut file).unwrap();
    // The second one's tail is in a segment that is not there.
    let head = file.windows(4).position(|octets| octets == b"\x03two").expect("it is there");
    file[head + 6] = 9;
    let mut words: Vec<u64> = file.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let (sum, content) = words.split_last_mut().expect("a checksum");
    *sum = snapshot::checksum(content.iter().copied());
    let file: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let (read, reader) = snapshot::read(&file, LIMIT_MIN, 0).unwrap();
    let mut text = Vec::new();
    text::write(&reader, 1001, &mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "0.0.0.1\t87400\tone.example\n");
    assert_eq!((read.len(), read.counts().evicted), (1, 9));
    assert_eq!(got(&reader, v4(10)), None);
}

#[test]
fn a_file_is_replaced_whole() {
    let folder = std::env::temp_dir().join(format!("pointsman-names-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("names.cache");
    let (_, reader) = filled();
    for _ in 0..2 {
        snapshot::save(&reader.view(), 1001, &path).unwrap();
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(snapshot::load(&path, 64 << 20, 0).unwrap().0.len(), 9000);
    assert!(matches!(snapshot::load(&folder.join("none"), 64 << 20, 0), Err(snapshot::Unread::Absent)));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn text_in_and_out() {
    let lines =
        "::ffff:192.0.2.1\t2000\twww.example\n2001:db8::1\t3000\t-\n192.0.2.2\t900\texpired.example\n";
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    assert_eq!(
        text::read(lines.as_bytes(), 1000, &mut cache, |line, what| panic!("{line}: {what}")).unwrap(),
        3
    );
    assert_eq!(got(&reader, IpAddr::from([192, 0, 2, 1])).as_deref(), Some("www.example"));
    let mut out = Vec::new();
    assert_eq!(text::write(&reader, 1000, &mut out).unwrap(), 2);
    let out = String::from_utf8(out).unwrap();
    let mut out: Vec<&str> = out.lines().collect();
    out.sort_unstable();
    assert_eq!(out, ["192.0.2.1\t2000\twww.example", "2001:db8::1\t3000\t-"]);
    let long = format!("192.0.2.1\t2000\t{}", "a".repeat(text::LINE_MAX));
    let endless = "a".repeat(1 << 20);
    let wrong = [
        ("192.0.2.1", "no expiry"),
        ("x\t1\ta.example", "no address"),
        ("192.0.2.1\tx\ta", "no time"),
        ("192.0.2.1\t2000", "no name"),
        ("192.0.2.1\t2000\ta b", "no name that is kept"),
        ("192.0.2.1\t2000\ta.example\tb", "more behind the name"),
        (&long, "longer than 307 octets"),
        (&endless, "longer than 307 octets"),
        ("192.0.2.1", "what follows an endless line is not read"),
    ];
    let lines: String = wrong.iter().map(|(line, _)| format!("192.0.2.9\t2000\t-\n{line}\n")).collect();
    let mut told = Vec::new();
    text::read(lines.as_bytes(), 0, &mut cache, |line, what| told.push((line, what))).unwrap();
    assert_eq!(told.len(), wrong.len() - 1);
    for (at, ((line, what), (_, expected))) in told.iter().zip(wrong).enumerate() {
        assert!(*line == 2 * (at as u64 + 1) && what.contains(expected), "{line}: {what}");
    }
}

#[test]
fn what_comes_when_the_limit_is_reached_has_slots_all_the_same() {
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    (0..60_000).for_each(|number| put(&mut cache, v4(number), &format!("h{number:060}.example.net")));
    assert!(cache.octets() > LIMIT_MIN - LIMIT_MIN / 8, "{} octets", cache.octets());
    let six = |number: u32| IpAddr::V6((u128::from(number) << 64).into());
    (0..500).for_each(|number| put(&mut cache, six(number), "-"));
    let known = (0..500).filter(|number| got(&reader, six(*number)).is_some()).count();
    assert_eq!(known, 500);
    cache.put_prefix(v4(0xc000_0200), 24, Entry::new(State::NoName, 1000, DAY));
    assert!(cache.prefix(v4(0xc000_0200), 24).is_some());
    // A snapshot of it is read under the same limit, also where all else are slots.
    let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
    (0..200_000).for_each(|number| put(&mut cache, v4(number), "-"));
    (0..3_000).for_each(|number| put(&mut cache, six(number), "-"));
    let mut file = Vec::new();
    snapshot::write(&reader.view(), 1001, &mut file).unwrap();
    assert_eq!(snapshot::read(&file[..], LIMIT_MIN, 0).unwrap().0.len(), cache.len());
}

#[test]
fn lines_beyond_the_limit_take_the_place_of_what_expires_first() {
    // By their order, and all at the same time: then any of them go.
    for step in [1, 0] {
        let lines: String = (0..45_000u32)
            .map(|number| {
                let address = std::net::Ipv4Addr::from(number.wrapping_mul(0x9e37_79b9));
                format!("{address}\t{}\th{number:060}.example.net\n", 10_000 + step * number)
            })
            .collect();
        let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
        let count = text::read(lines.as_bytes(), 1000, &mut cache, |line, what| panic!("{line}: {what}"));
        assert_eq!(count.unwrap(), 45_000);
        assert!(cache.octets() <= 2 * LIMIT_MIN, "{} octets", cache.octets());
        let last =
            (40_000..45_000u32).filter(|n| got(&reader, v4(n.wrapping_mul(0x9e37_79b9))).is_some()).count();
        assert!(last > 4_000 && cache.len() > 25_000, "{step}: {last} of the last, {} of all", cache.len());
    }
}

/// 34,938 addresses of name servers with what their PTR was in 2017 (a sparse sample: few share anything).
#[test]
fn real_names_take_forty_octets_at_most() {
    use std::io::Read;
    let folder =
        std::env::var_os("POINTSMAN_DATA").map_or("../../../shared/data".into(), std::path::PathBuf::from);
    let Ok(file) = std::fs::File::open(folder.join("reverse/ptr-2017-08.csv.xz")) else {
        println!("skipped: reverse/ptr-2017-08.csv.xz is not in {}", folder.display());
        return;
    };
    let mut lines = String::new();
    lzma_rust2::XzReader::new(file, true).read_to_string(&mut lines).expect("the file is whole");
    let (mut cache, reader) = new(64 << 20, 0, 7);
    let (mut names, mut refused) = (0, 0);
    for line in lines.lines().skip(1) {
        let (address, name) = line.split_once(',').expect("two fields");
        let Ok(address @ IpAddr::V4(_)) = address.parse() else { continue };
        match NameText::from_text(name.as_bytes()) {
            Some(kept) => {
                names += 1;
                cache.put(address, Entry::new(State::Name, 1000, DAY), &kept);
                assert_eq!(got(&reader, address).as_deref(), Some(kept.as_str()));
            }
            None => {
                refused += usize::from(!name.is_empty());
                put(&mut cache, address, "-");
            }
        }
    }
    let mean = cache.octets() as f64 / cache.len() as f64;
    assert!(cache.len() > 30_000 && names > 20_000 && refused < 100, "{} {names} {refused}", cache.len());
    assert!(mean <= 40.0, "{mean:.1} octets an entry, {} entries, {names} names", cache.len());
}

proptest! {
    /// Whatever is put, in whatever order, a look-up gives what was put last.
    #[test]
    fn it_is_a_map(puts in proptest::collection::vec((0..300u32, any::<bool>(), 0..50u8), 0..2000)) {
        let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
        let mut model = std::collections::HashMap::new();
        for (number, six, name) in puts {
            let address = if six { IpAddr::V6(u128::from(number).into()) } else { v4(number) };
            let name = if name == 0 { "-".to_owned() } else { format!("n{name}.{number}.example") };
            put(&mut cache, address, &name);
            model.insert(address, name);
            if number == 0 {
                cache.sweep(1000);
            }
        }
        prop_assert_eq!(cache.len(), model.len());
        let addresses: Vec<IpAddr> = model.keys().copied().chain([v4(77_777)]).collect();
        let mut together = Vec::new();
        reader.view().get_each(&addresses, |address, entry, name| {
            let name = if name.octets().is_empty() { "-" } else { name.as_str() };
            together.push((address, entry.map(|_| name.to_owned())));
        });
        let expected = addresses.iter().map(|address| (*address, model.get(address).cloned()));
        prop_assert_eq!(together, expected.collect::<Vec<_>>());
        for (address, name) in model {
            prop_assert_eq!(got(&reader, address), Some(name));
        }
    }

    #[test]
    fn a_damaged_snapshot_panics_nowhere(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut: prop::sample::Index,
    ) {
        let (mut cache, reader) = new(LIMIT_MIN, 0, 7);
        (0..50).for_each(|number| put(&mut cache, v4(number), &format!("h{number}.example")));
        let mut file = Vec::new();
        snapshot::write(&reader.view(), 1001, &mut file).unwrap();
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        let _ = snapshot::read(&file[..cut.index(file.len())], LIMIT_MIN, 0);
        let _ = snapshot::read(&file[..], LIMIT_MIN, 0);
    }
}

#[test]
fn what_is_short_and_something_else_is_not_called_cut() {
    for (octets, expected) in [
        ("", "it is cut short"),
        ("pm-names", "it is cut short"),
        ("192.0.2.1\t1\t-\n", "it is no snapshot of names"),
        ("x", "it is no snapshot of names"),
    ] {
        let told =
            snapshot::read(octets.as_bytes(), usize::MAX, 0).map(|_| ()).map_err(|why| why.to_string());
        assert_eq!(told, Err(expected.to_owned()), "{octets:?}");
    }
}
