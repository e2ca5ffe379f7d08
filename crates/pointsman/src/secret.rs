//! Files of secrets, such as keys and tokens: only who runs the program, and the group, may read them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use api::Fault;

/// The rights that nobody may have in such a file: its group to write, others anything.
const FORBIDDEN_MODE: u32 = 0o027;

/// Reads the text of a file of secrets, of which no more than the first `most` octets; `expected` says what file it is to
/// be.
///
/// # Errors
/// That it cannot be read, is no text, or that others have rights to it; nothing of the text is told.
pub(crate) fn read(path: &Path, most: u64, expected: &str) -> Result<String, Fault> {
    let unreadable = |cause: io::Error| {
        Fault::whole(path.to_string_lossy(), format!("the file cannot be read: {cause}"), expected)
    };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & FORBIDDEN_MODE != 0 {
        let what = format!("the file holds secrets and is open to others (mode {mode:03o})");
        return Err(Fault::whole(path.to_string_lossy(), what, "mode 600, or 640 for a group (chmod 600)"));
    }
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn only_closed_files_are_read() {
        let folder = std::env::temp_dir().join(format!("pointsman-secret-{}", std::process::id()));
        fs::create_dir(&folder).expect("there is room for temporary folders");
        let path = folder.join("key");
        let told = |most| read(&path, most, "a key").map_err(|fault| fault.to_string());
        assert!(told(9).is_err_and(|fault| fault.contains("cannot be read") && fault.ends_with("a key")));
        fs::write(&path, "a secret").expect("the folder can be written");
        for (mode, is_closed) in [(0o600, true), (0o640, true), (0o400, true), (0o644, false), (0o660, false)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            match told(5) {
                Ok(text) => assert!(is_closed && text == "a sec", "{mode:o}"),
                Err(fault) => {
                    assert!(!is_closed && fault.contains(&format!("mode {mode:o}")), "{mode:o}: {fault}");
                    assert!(!fault.contains("a sec"), "{fault}");
                }
            }
        }
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
