//! A large capture takes no more memory than a small one.

use std::io::Write;
use std::process::Command;
use std::thread;

use tests::folder::Folder;
use tests::program::{Program, memory_peak};

/// How much more memory ten times as much may take, in KiB: what an allocator may keep by chance.
const SLACK_KIB: u64 = 4 << 10;

/// Octets of padding in each query, so that there are fewer of them.
const PADDING: u16 = 1_100;

/// A packet of pcap: a query over UDP and IPv4, one of 1,000 clients and of 10,000 names.
fn packet(number: u32) -> Vec<u8> {
    let name = format!("n{:05}", number % 10_000);
    let mut dns = vec![(number >> 8) as u8, number as u8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    dns.push(name.len() as u8);
    dns.extend(name.as_bytes());
    dns.extend(b"\x07example\x03com\0\0\x01\0\x01");
    dns.extend(b"\0\0\x29\x04\xd0\0\0\0\0");
    dns.extend((PADDING + 4).to_be_bytes());
    dns.extend([0, 12]);
    dns.extend(PADDING.to_be_bytes());
    dns.extend(std::iter::repeat_n(0, PADDING.into()));
    let (udp, ip) = (8 + dns.len() as u16, 28 + dns.len() as u16);
    let client = number % 1_000;
    let mut octets = Vec::new();
    for word in [10 + number / 1_000, number % 1_000 * 1_000, ip.into(), ip.into()] {
        octets.extend(word.to_le_bytes());
    }
    octets.extend([0x45, 0]);
    octets.extend(ip.to_be_bytes());
    octets.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, (client >> 8) as u8, client as u8, 192, 0, 2, 53]);
    octets.extend([0x30, 0x39, 0, 53]);
    octets.extend(udp.to_be_bytes());
    octets.extend([0, 0]);
    octets.extend(dns);
    octets
}

/// The most resident memory in KiB of `trace info` on so many octets of capture, and the queries it has found.
fn peak(octets: usize) -> (u64, u64) {
    let folder = Folder::new();
    let pipe = folder.at("capture.pcap");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it is part of coreutils").success());
    let program = Program::start(&["trace", "info", &pipe, "--json"]);
    let process = program.pid().as_raw().cast_unsigned();
    let writing = thread::spawn(move || {
        let mut to = std::fs::File::options().write(true).open(&pipe).expect("the program reads it");
        // pcap, raw IP.
        let mut piece: Vec<u8> =
            [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes).concat();
        let (mut written, mut count) = (0, 0);
        while written < octets {
            piece.extend(packet(count));
            count += 1;
            if piece.len() > 60_000 {
                to.write_all(&piece).expect("the program reads it");
                written += piece.len();
                piece.clear();
            }
        }
        to.write_all(&piece).expect("the program reads it");
        // All but what is in the pipe was read, and the program is still there.
        (memory_peak(process).expect("the program is there") >> 10, u64::from(count))
    });
    let (peak, count) = writing.join().expect("it is written");
    let ended = program.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let info: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
    assert_eq!(info["queries"], count, "{info}");
    (peak, count)
}

#[test]
fn a_large_capture_takes_no_more_memory_than_a_small_one() {
    let (small, _) = peak(50 << 20);
    let (large, count) = peak(500 << 20);
    assert!(count > 400_000, "{count}");
    println!("{small} KiB for 50 MiB, {large} KiB for 500 MiB");
    assert!(large <= small + SLACK_KIB, "{small} KiB for 50 MiB, {large} KiB for 500 MiB");
}
