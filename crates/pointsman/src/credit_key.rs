//! The key that a balancer and its agents share, as it stands in a file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use api::Fault;
use credit::Key;

/// The largest file of a key, in octets: its digits, and blanks around them.
const FILE_MAX: u64 = 256;

/// The rights that nobody may have in a file of a key: its group to write, others anything.
const FORBIDDEN_MODE: u32 = 0o027;

/// Reads the key in the file at `path`.
///
/// # Errors
/// What is wrong with the file; nothing of the key is told.
pub(crate) fn read(path: &Path) -> Result<Key, Fault> {
    let source = path.to_string_lossy();
    let unreadable = |cause: io::Error| {
        let expected = "a file that `pointsman key new FILE` has made";
        Fault::whole(source.clone(), format!("the key cannot be read: {cause}"), expected)
    };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & FORBIDDEN_MODE != 0 {
        let what = format!("the key is open to others (mode {mode:03o})");
        return Err(Fault::whole(source, what, "mode 600, or 640 for a group (chmod 600)"));
    }
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text).map_err(unreadable)?;
    Key::parse(&text).map_err(|what| {
        Fault::whole(
            source,
            format!("there is no key in it: {what}"),
            "64 hexadecimal digits, as `pointsman key new`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_where_only_its_owner_can() {
        let folder = std::env::temp_dir().join(format!("pointsman-credit-key-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("there is room for temporary folders");
        let path = folder.join("key");
        assert!(read(&path).is_err());
        for (text, mode, wrong) in [
            ("0a".repeat(32), 0o600, None),
            (format!("{}\n", "0A".repeat(32)), 0o640, None),
            ("0a".repeat(32), 0o644, Some("mode 644")),
            ("0a".repeat(31), 0o600, Some("62 characters")),
            ("0a".repeat(400), 0o600, Some("256 characters")),
            (format!("0x{}", "0a".repeat(31)), 0o600, Some("character 2")),
        ] {
            std::fs::write(&path, &text).expect("the folder can be written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
            let what = read(&path).err().map(|fault| fault.to_string());
            match wrong {
                None => assert_eq!(what, None, "{text}"),
                Some(wrong) => {
                    assert!(what.as_ref().is_some_and(|what| what.contains(wrong)), "{text}: {what:?}")
                }
            }
            assert!(!what.is_some_and(|what| what.contains("0a0a")), "the key is not told");
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
