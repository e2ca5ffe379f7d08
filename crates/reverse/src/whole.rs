//! A file put whole in its place, also without hurry.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use net::thread::Rests;

/// Writes a file beside `path`, syncs it, and puts it there, so that there is always a whole file, this one or the
/// one before. Of `mode`, the process's mask takes away.
///
/// # Errors
/// What the system or `write` says; the file at `path` is then what it was, or, where only its folder could not be synced,
/// the new one, which a crash may take back.
pub fn replace(path: &Path, mode: u32, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let (beside, file) = begin(path, mode)?;
    let written = (|| {
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

/// Sees whether a file can be put at `path`: one is begun beside it, and removed.
///
/// # Errors
/// What the system says.
pub fn check(path: &Path) -> io::Result<()> {
    let (beside, _) = begin(path, 0o600)?;
    fs::remove_file(beside)
}

/// Makes the file beside `path`; one that is there was left by a process that did not end it.
fn begin(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    match fs::remove_file(&beside) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    Ok((beside, file))
}

/// Where something long is written to that nobody waits for: it rests between its pieces.
#[derive(Debug)]
pub struct Resting<W> {
    out: W,
    rests: Rests,
}

impl<W> Resting<W> {
    /// Begins to write.
    pub fn new(out: W) -> Resting<W> {
        Resting { out, rests: Rests::begin() }
    }
}

impl<W: Write> Write for Resting<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let written = self.out.write(octets);
        self.rests.step();
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
