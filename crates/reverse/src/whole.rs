//! A file put whole in its place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file beside `path`, syncs it, and puts it there, so that there is always a whole file, this one or the
/// one before. Of `mode`, the process's mask takes away.
///
/// # Errors
/// What the system or `write` says; the file at `path` is then what it was.
pub fn replace(path: &Path, mode: u32, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    match fs::remove_file(&beside) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let written = (|| {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        write(&file)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}
