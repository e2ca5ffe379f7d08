//! The names as a MaxMind database: any program that reads GeoIP data has them without a question.
//!
//! The form is MaxMind DB 2.0, addresses of both families in one tree, `{"name": "www.example"}` for each address that
//! has a name. A file is written whole and put in the place of the one before. It may not get larger than it was told:
//! addresses that have no room are left out, of both families alike, and counted.
//! ```text
//! nodes, 8 octets each: record of bit 0 | record of bit 1     separator 16     data     mark, metadata
//! record   < nodes: a node     = nodes: nothing     > nodes: data, at record - nodes - 16
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use net::shutdown::Shutdown;
use net::thread::Rests;

use crate::cache::{Reader, State};
use crate::ending::Ending;
use crate::name::NameText;
use net::whole::{self, Resting};

/// The least size that can be chosen, in octets: one IPv6 address takes two thousand.
pub const SIZE_MIN: usize = 1 << 16;

/// The largest size that can be chosen, in octets: half of what a record can point to.
pub const SIZE_MAX: usize = 1 << 31;

/// Between the tree and the data.
const SEPARATOR: usize = 16;

/// Before the metadata.
const MARK: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// What readers are told the database is of.
const TYPE: &str = "Pointsman-Names";

/// Marks a record that leads to data while the tree is built.
const DATA: u32 = 1 << 31;

/// How far IPv4 is from the root: its addresses stand at ::/96.
const V4_DEPTH: u32 = 96;

/// Where the database is written, and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file, which is replaced whole.
    pub path: PathBuf,
    /// How long after one file the next is written.
    pub interval: Duration,
    /// How large it may get, in octets.
    pub size: usize,
}

/// What was written, since start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Files that were written.
    pub written: AtomicU64,
    /// Files that could not be.
    pub failed: AtomicU64,
    /// Names in the last one.
    pub names: AtomicU64,
    /// Names that the last one had no room for.
    pub left_out: AtomicU64,
}

impl Options {
    /// Writes what is told at `now`, in seconds since 1970; what has expired, for another `stale` seconds. It is given up when
    /// `shutdown` begins, and the file before stays.
    pub fn write(&self, reader: &Reader, now: u32, stale: u32, counts: &Counts, shutdown: &Shutdown) {
        let mut database = Database::new(self.size);
        let (mut names, mut left_out, mut rests) = (0, 0, Rests::begin());
        let gone_over = reader.try_for_each(|address, entry, name| {
            rests.step();
            if entry.state == State::Name && entry.is_told(now, stale) {
                match database.insert(address, name) {
                    Ok(()) => names += 1,
                    Err(Full) => left_out += 1,
                }
            }
            if shutdown.is_begun() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if gone_over.is_break() {
            return;
        }
        let write = |file: &File| {
            let out = Ending::new(Resting::new(file), shutdown.clone());
            database.write(now, io::BufWriter::new(out))
        };
        // It is a face: other users' programs read it.
        let written = whole::replace(&self.path, 0o644, write);
        match written {
            Err(_) if shutdown.is_begun() => {}
            Ok(()) => {
                counts.written.fetch_add(1, Ordering::Relaxed);
                counts.names.store(names, Ordering::Relaxed);
                counts.left_out.store(left_out, Ordering::Relaxed);
                tracing::debug!(path = %self.path.display(), names, left_out, "the MMDB file is written");
            }
            Err(cause) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                let path = self.path.display();
                tracing::error!(
                    %path,
                    %cause,
                    "the MMDB file was not written; the one before stays, and it is written again after an interval"
                );
            }
        }
    }
}

/// What a database has no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A database that is being made.
#[derive(Debug)]
pub struct Database {
    nodes: Vec<[u32; 2]>,
    data: Vec<u8>,
    /// The node at ::/96.
    v4: usize,
    size: usize,
}

impl Database {
    /// An empty one that gets no larger than `size` octets, at least [`SIZE_MIN`].
    pub fn new(size: usize) -> Database {
        let mut database = Database {
            nodes: vec![[0; 2]],
            data: Vec::new(),
            v4: 0,
            // With room for the separator and the metadata.
            size: size.clamp(SIZE_MIN, SIZE_MAX) - SEPARATOR - 512,
        };
        for _ in 0..V4_DEPTH {
            database.v4 = database.child(database.v4, 0);
        }
        // ::ffff:0:0/96, too, as readers know it from other such files: 80 bits of zero and 16 of one.
        let mapped = (0..V4_DEPTH - 1).fold(0, |node, level| database.child(node, usize::from(level >= 80)));
        database.nodes[mapped][1] = database.v4 as u32;
        database
    }

    /// Adds the name of an address; of two names of one address the last is found.
    ///
    /// # Errors
    /// [`Full`] where the size might be passed.
    pub fn insert(&mut self, address: IpAddr, name: &NameText) -> Result<(), Full> {
        let (bits, depth, mut node) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32, self.v4),
            IpAddr::V6(v6) => (v6.to_bits(), 128, 0),
        };
        let most = 8 * (self.nodes.len() + depth) + self.data.len() + 8 + name.octets().len();
        if most > self.size {
            return Err(Full);
        }
        let bit = |level: usize| (bits >> (depth - 1 - level) & 1) as usize;
        for level in 0..depth - 1 {
            node = self.child(node, bit(level));
        }
        self.nodes[node][bit(depth - 1)] = DATA | self.data.len() as u32;
        self.data.push(0xe1);
        text(&mut self.data, b"name");
        text(&mut self.data, name.octets());
        Ok(())
    }

    fn child(&mut self, node: usize, bit: usize) -> usize {
        match self.nodes[node][bit] {
            // The root is nobody's child.
            0 => {
                self.nodes.push([0; 2]);
                self.nodes[node][bit] = self.nodes.len() as u32 - 1;
                self.nodes.len() - 1
            }
            child => child as usize,
        }
    }

    /// Writes the file; `now` is when it is made, in seconds since 1970.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write(&self, now: u32, mut out: impl Write) -> io::Result<()> {
        let count = self.nodes.len() as u32;
        for node in &self.nodes {
            for record in node {
                let record = match *record {
                    0 => count,
                    data if data & DATA != 0 => count + SEPARATOR as u32 + (data ^ DATA),
                    child => child,
                };
                out.write_all(&record.to_be_bytes())?;
            }
        }
        out.write_all(&[0; SEPARATOR])?;
        out.write_all(&self.data)?;
        out.write_all(MARK)?;
        out.write_all(&metadata(count, now))?;
        out.flush()
    }
}

fn metadata(nodes: u32, now: u32) -> Vec<u8> {
    let mut out = vec![0xe9];
    let numbers: [(&str, u8, u32); 6] = [
        ("binary_format_major_version", UINT16, 2),
        ("binary_format_minor_version", UINT16, 0),
        ("build_epoch", UINT64, now),
        ("ip_version", UINT16, 6),
        ("node_count", UINT32, nodes),
        ("record_size", UINT16, 32),
    ];
    for (key, kind, value) in numbers {
        text(&mut out, key.as_bytes());
        number(&mut out, kind, value);
    }
    text(&mut out, b"database_type");
    text(&mut out, TYPE.as_bytes());
    text(&mut out, b"description");
    out.push(0xe1);
    text(&mut out, b"en");
    text(&mut out, b"Names of addresses, as the reverse look-up service knows them");
    // An empty array: an extended type, whose number less 7 follows.
    text(&mut out, b"languages");
    out.extend_from_slice(&[0, 4]);
    out
}

const UINT16: u8 = 5;
const UINT32: u8 = 6;
/// An extended type: control octets have 0 for it, and then its number less 7.
const UINT64: u8 = 9;

fn number(out: &mut Vec<u8>, kind: u8, value: u32) {
    let octets = value.to_be_bytes();
    let octets = &octets[octets.iter().take_while(|octet| **octet == 0).count()..];
    match kind {
        8.. => out.extend_from_slice(&[octets.len() as u8, kind - 7]),
        _ => out.push(kind << 5 | octets.len() as u8),
    }
    out.extend_from_slice(octets);
}

/// A text of less than 285 octets.
fn text(out: &mut Vec<u8>, octets: &[u8]) {
    match octets.len() {
        length @ 0..29 => out.push(2 << 5 | length as u8),
        length => out.extend_from_slice(&[2 << 5 | 29, (length - 29) as u8]),
    }
    out.extend_from_slice(octets);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{self, Entry};
    use ::tests::folder::Folder;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn kept(text: &str) -> NameText {
        NameText::from_text(text.as_bytes()).expect("a name")
    }

    fn read(database: &Database) -> maxminddb::Reader<Vec<u8>> {
        let mut file = Vec::new();
        database.write(1_500_000_000, &mut file).unwrap();
        assert!(file.len() <= database.size + SEPARATOR + 512);
        maxminddb::Reader::from_source(file).expect("a database")
    }

    fn found(reader: &maxminddb::Reader<Vec<u8>>, address: IpAddr) -> Option<String> {
        let found = reader.lookup(address).expect("a whole tree");
        let data: Option<HashMap<String, String>> = found.decode().expect("whole data");
        data.map(|mut data| data.remove("name").expect("a name"))
    }

    #[test]
    fn names_are_found_by_another_reader() {
        let mut database = Database::new(SIZE_MIN);
        let long = format!("{}.{}.example", "a".repeat(63), "b".repeat(63));
        let all = [
            ("192.0.2.1", "www.example"),
            ("192.0.2.2", long.as_str()),
            ("0.0.0.0", "zero.example"),
            ("255.255.255.255", "abcdefghijklmnopq.example.com"),
            ("2001:db8::1", "six.example"),
        ];
        for (address, name) in all {
            database.insert(address.parse().unwrap(), &kept(name)).unwrap();
        }
        let reader = read(&database);
        for (address, name) in all {
            assert_eq!(found(&reader, address.parse().unwrap()).as_deref(), Some(name));
        }
        assert_eq!(found(&reader, "::ffff:192.0.2.1".parse().unwrap()).as_deref(), Some("www.example"));
        for absent in ["::fffe:192.0.2.1", "192.0.2.3", "2001:db8::2", "::1"] {
            assert_eq!(found(&reader, absent.parse().unwrap()), None, "{absent}");
        }
        assert_eq!(reader.metadata().database_type, TYPE);
        assert_eq!(reader.metadata().build_epoch, 1_500_000_000);
        reader.verify().expect("a file of the form");
    }

    #[test]
    fn what_has_no_room_is_left_out_and_counted() {
        let folder = std::env::temp_dir().join(format!("pointsman-mmdb-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (mut cache, reader) = cache::new(cache::LIMIT_MIN, 0, 7);
        for number in 0..5000u32 {
            let entry = Entry::new(State::Name, 1000, Duration::from_secs(60));
            cache.put(IpAddr::V4((number << 16).into()), entry, &kept(&format!("h{number}.example")));
        }
        let options =
            Options { path: folder.join("names.mmdb"), interval: Duration::from_secs(1), size: SIZE_MIN };
        let counts = Counts::default();
        options.write(&reader, 1001, 0, &counts, &Shutdown::new());
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (names, left_out) = (get(&counts.names), get(&counts.left_out));
        assert!(names > 300 && names + left_out == 5000, "{names} {left_out}");
        let file = std::fs::read(&options.path).unwrap();
        assert!(file.len() <= SIZE_MIN);
        let database = maxminddb::Reader::from_source(file).unwrap();
        let known = (0..5000u32).filter(|n| found(&database, IpAddr::V4((n << 16).into())).is_some()).count();
        assert_eq!(known as u64, names);
        // What has expired is there only where it is served.
        for (now, stale, expected) in [(1060, 0, 0), (1060, 1, names), (1061, 1, 0)] {
            options.write(&reader, now, stale, &counts, &Shutdown::new());
            assert_eq!(get(&counts.names), expected);
        }
        // A folder that is not there is told, and counted.
        let nowhere = Options { path: folder.join("no/names.mmdb"), ..options.clone() };
        nowhere.write(&reader, 1001, 0, &counts, &Shutdown::new());
        assert_eq!((get(&counts.written), get(&counts.failed)), (4, 1));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_stop_waits_for_no_file() {
        let folder = Folder::new();
        let (mut cache, reader) = cache::new(cache::LIMIT_MIN, 0, 7);
        for number in 0..100u32 {
            let entry = Entry::new(State::Name, 1000, Duration::from_secs(60));
            cache.put(IpAddr::V4(number.into()), entry, &kept("name.example"));
        }
        let path = folder.write("names.mmdb", "the one before").into();
        let options = Options { path, interval: Duration::from_secs(1), size: SIZE_MIN };
        let (counts, shutdown) = (Counts::default(), Shutdown::new());
        shutdown.begin();
        options.write(&reader, 1001, 0, &counts, &shutdown);
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!((get(&counts.written), get(&counts.failed)), (0, 0), "it is nobody's failure");
        assert_eq!(std::fs::read(&options.path).unwrap(), b"the one before");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn both_families_have_their_share_of_what_room_there_is() {
        let folder = std::env::temp_dir().join(format!("pointsman-mmdb-shares-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (mut cache, reader) = cache::new(cache::LIMIT_MIN, 0, 7);
        let six = |number: u32| IpAddr::V6((u128::from(number) << 96).into());
        for number in 0..5000 {
            let entry = Entry::new(State::Name, 1000, Duration::from_secs(60));
            cache.put(IpAddr::V4((number << 16).into()), entry, &kept("four.example"));
            cache.put(six(number), entry, &kept("six.example"));
        }
        let options =
            Options { path: folder.join("names.mmdb"), interval: Duration::from_secs(1), size: 1 << 18 };
        options.write(&reader, 1001, 0, &Counts::default(), &Shutdown::new());
        let database = maxminddb::Reader::from_source(std::fs::read(&options.path).unwrap()).unwrap();
        let known = |of: &dyn Fn(u32) -> IpAddr| {
            (1..5000).filter(|number| found(&database, of(*number)).is_some()).count()
        };
        let (four, six) = (known(&|number| IpAddr::V4((number << 16).into())), known(&six));
        assert!(four > 100 && six > 100, "{four} of IPv4, {six} of IPv6");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    proptest! {
        #[test]
        fn it_is_a_map(entries in proptest::collection::vec((any::<u128>(), any::<bool>(), "[a-z]{1,60}\\.[a-z]{1,60}"), 0..40)) {
            let mut database = Database::new(1 << 20);
            let mut model = HashMap::new();
            for (bits, six, name) in entries {
                let address = if six { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) };
                database.insert(address, &kept(&name)).unwrap();
                model.insert(address, name);
            }
            let reader = read(&database);
            for (address, name) in model {
                prop_assert_eq!(found(&reader, address), Some(name));
            }
        }
    }
}
