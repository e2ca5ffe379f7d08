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
    let mut keys: Vec<Key> = Vec::new();
    for file in files {
        match read_key(&file.value) {
            Ok(key) if keys.iter().any(|other| other.clashes(&key)) => {
                let what = "the key is among those before, or has the same tag as another one of the zone";
                faults.push(Fault::whole(file.value.to_string_lossy(), what, "each key once"));
            }
            Ok(key) => keys.push(key),
            Err(fault) => faults.push(fault),
        }
    }
    keys.into()
}

fn read_key(private: &Path) -> Result<Key, Fault> {
    let secret = file::read_secret(private, PART_MAX, EXPECTED)?;
    let public = file::read_text(&private.with_extension("key"), PART_MAX, EXPECTED)?;
    Key::read(&public, &secret).map_err(|what| Fault::whole(private.to_string_lossy(), what, EXPECTED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::Place;
    use nameserver::signing::fresh::{self, New};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn all_that_is_wrong_is_told_and_nothing_of_the_private_part() {
        let folder = std::env::temp_dir().join(format!("pointsman-signing-keys-{}", std::process::id()));
        fs::create_dir(&folder).expect("there is room for temporary folders");
        let write = |name: &str, text: &str, mode: u32| {
            fs::write(folder.join(name), text).expect("it is ours");
            fs::set_permissions(folder.join(name), Permissions::from_mode(mode)).expect("it is ours");
        };
        let secret = "Private-key-format: v1.3\nAlgorithm: 15 (ED25519)\nPrivateKey: c2VjcmV0\n";
        write("open.private", secret, 0o644);
        write("alone.private", secret, 0o600);
        write("wrong.private", secret, 0o600);
        write("wrong.key", "example. IN DNSKEY 256 3 15 l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4=", 0o644);
        let made = fresh::make(b"\x07example\0", New::Ed25519).expect("randomness");
        write("good.private", &made.private, 0o600);
        write("good.key", &made.public, 0o644);
        let names = ["open.private", "alone.private", "wrong.private", "good.private", "good.private"];
        let files = names.map(|name| Placed { value: folder.join(name), place: Place::Flag("signing-keys") });
        let mut faults = Faults::default();
        assert_eq!(read(&files, &mut faults).len(), 1);
        let told = faults.to_string();
        let expected = [
            "open.private: the file holds secrets",
            "alone.key: it cannot be read",
            "wrong.private: the private part",
            "good.private: the key is among those before",
        ];
        assert!(expected.iter().all(|expected| told.contains(expected)) && !told.contains("c2Vj"), "{told}");
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
