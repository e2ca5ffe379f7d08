//! The key that a balancer and its agents share, as it stands in a file.

use std::path::Path;

use api::{Fault, file};
use credit::Key;

/// The largest file of a key, in octets: its digits, and blanks around them.
const FILE_MAX: u64 = 256;

/// Reads the key in the file at `path`.
///
/// # Errors
/// What is wrong with the file; nothing of the key is told.
pub(crate) fn read(path: &Path) -> Result<Key, Fault> {
    let text = file::read_secret(path, FILE_MAX, "a file that `pointsman key new FILE` has made")?;
    Key::parse(&text).map_err(|what| {
        Fault::whole(
            path.to_string_lossy(),
            format!("there is no key in it: {what}"),
            "64 hexadecimal digits, as `pointsman key new` writes them",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_no_key_is_refused_and_not_told() {
        let folder = std::env::temp_dir().join(format!("pointsman-credit-key-{}", std::process::id()));
        fs::create_dir(&folder).expect("there is room for temporary folders");
        let path = folder.join("key");
        for (text, wrong) in [
            ("0a".repeat(32), None),
            (format!("{}\n", "0A".repeat(32)), None),
            ("0a".repeat(31), Some("62 characters")),
            ("0a".repeat(400), Some("larger than 256 octets")),
            (format!("0x{}", "0a".repeat(31)), Some("character 2")),
        ] {
            fs::write(&path, &text).expect("the folder can be written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
            let what = read(&path).err().map(|fault| fault.to_string());
            match wrong {
                None => assert_eq!(what, None, "{text}"),
                Some(wrong) => {
                    assert!(what.as_ref().is_some_and(|what| what.contains(wrong)), "{text}: {what:?}")
                }
            }
            assert!(!what.is_some_and(|what| what.contains("0a0a")), "the key is not told");
        }
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
