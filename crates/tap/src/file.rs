//! A tap's file. A stream of frames ends with STOP and cannot be appended to, so each file is one stream: what is
//! there already is put aside under a name of its own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Who asked for what is private: others than owner and group may not read it.
const MODE: u32 = 0o640;

/// How many names are tried for a file that is put aside: that many within one second are a fault elsewhere.
const ASIDE_TRIES: u32 = 100;

/// Makes a new file; an older one that holds something is renamed to `PATH.SECONDS`, with the Unix time.
///
/// # Errors
/// What the system says; or that the path is no regular file, which is left alone.
pub(super) fn create(path: &Path, unix_seconds: u64) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => {
            return Err(io::Error::other("it is there and no regular file"));
        }
        Ok(there) if there.len() > 0 => fs::rename(path, aside(path, unix_seconds)?)?,
        // An empty one holds nothing to be kept.
        Ok(_) => fs::remove_file(path)?,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(cause),
    }
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)
}

/// A name that nothing has.
fn aside(path: &Path, unix_seconds: u64) -> io::Result<PathBuf> {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{unix_seconds}"));
        if number > 0 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    };
    let free = (0..ASIDE_TRIES).map(name).find(|name| fs::symlink_metadata(name).is_err());
    free.ok_or_else(|| io::Error::other("no name is free for the older file"))
}
