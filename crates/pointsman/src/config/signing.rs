//! The keys of signed zones, each of two files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Fault, Faults, file};
use nameserver::signing::Key;

use super::spec::Placed;

/// The largest file of either part, in octets: an RSA key of 4,096 bits has some 3,300.
const PART_MAX: u64 = 64 << 10;

/// What is expected of them.
const EXPECTED: &str = "a key as dnssec-keygen writes it: NAME.private, and NAME.key beside it";

/// Reads the keys, given by the files of their private parts; adds what is wrong to `faults`.
pub(super) fn read(files: &[Placed<PathBuf>], faults: &mut Faults) -> Arc<[Key]> {
    let keys = files.iter().filter_map(|file| read_key(&file.value).map_err(|fault| faults.push(fault)).ok());
    keys.collect()
}

fn read_key(private: &Path) -> Result<Key, Fault> {
    let secret = file::read_secret(private, PART_MAX, EXPECTED)?;
    let public = file::read_text(&private.with_extension("key"), PART_MAX, EXPECTED)?;
    Key::read(&public, &secret).map_err(|what| Fault::whole(private.to_string_lossy(), what, EXPECTED))
}
