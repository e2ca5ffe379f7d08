//! A file put whole in its place, also without hurry.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use crate::thread::Rests;

/// Writes a file beside `path`, syncs it, and puts it there, so that there is always a whole file, this one or the
/// one before. Of `mode`, the process's mask takes away. Where `path` is a link, what it leads to is replaced.
///
/// # Errors
/// What the system or `write` says, and that something else than a regular file is there; the file at `path` is then what
/// it was, or, where only its folder could not be synced, the new one, which a crash may take back.
pub fn replace(path: &Path, mode: u32, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let path = place(path)?;
    let (beside, file) = begin(&path, mode)?;
    let written = (|| {
        write(&file)?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        File::open(folder(&path))?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Sees whether this process may put a file at `path`, and makes nothing.
///
/// # Errors
/// Why it may not.
pub fn check(path: &Path) -> io::Result<()> {
    let path = place(path)?;
    let folder = folder(&path);
    if !folder.is_dir() {
        return Err(io::Error::other("there is no such folder"));
    }
    let may_make = AccessFlags::W_OK | AccessFlags::X_OK;
    Ok(faccessat(AT_FDCWD, folder, may_make, AtFlags::AT_EACCESS)?)
}

/// Holds `path`, for as long as the value lives, against others who would hold it: by a lock on a file beside it, as the
/// file itself is replaced. The system releases it when the process ends in whatever way; the file stays. `None` where
/// another holds it.
///
/// # Errors
/// What the system says.
pub fn hold(path: &Path) -> io::Result<Option<Held>> {
    let beside = beside(&place(path)?, ".lock")?;
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(beside)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(Held(lock))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(cause)) => Err(cause),
    }
}

/// What holds a path, as long as it lives.
#[derive(Debug)]
pub struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        // A child that is just being started has the file open, too, until its own program runs: closing is not enough.
        let _ = self.0.unlock();
    }
}

/// Where the file is, or is to be, that `path` leads to. A device is not replaced by a file, and what a link would lead to
/// is not guessed.
fn place(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::other("it is a folder")),
        Ok(found) if !found.is_file() => Err(io::Error::other("it is there and no regular file")),
        Ok(_) => path.canonicalize(),
        Err(_) if path.is_symlink() => Err(io::Error::other("it is a link that leads to no file")),
        Err(_) => Ok(path.into()),
    }
}

/// The folder of a file; a name alone is in the current one.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// A file of the same name and an end.
fn beside(path: &Path, end: &str) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(end);
    Ok(path.with_file_name(name))
}

/// Makes the file beside `path`; one that is there was left by a process that did not end it.
fn begin(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let beside = beside(path, ".new")?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use ::tests::folder::Folder;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn put(path: &str, text: &str) -> Result<(), String> {
        replace(Path::new(path), 0o600, |mut file| file.write_all(text.as_bytes()))
            .map_err(|cause| cause.to_string())
    }

    #[test]
    fn what_is_no_file_is_left_and_a_link_goes_on_leading_there() {
        let folder = Folder::new();
        fs::create_dir(folder.at("other")).expect("it is ours");
        let old = folder.write("other/file", "old");
        for (name, to) in [("link", "other/file"), ("loop", "loop"), ("nothing", "none")] {
            symlink(to, folder.at(name)).expect("it is ours");
        }
        let _listening = UnixListener::bind(folder.at("socket")).expect("it is ours");
        for (name, expected) in [
            ("link", None),
            ("new", None),
            ("nothing", Some("it is a link that leads to no file")),
            ("loop", Some("it is a link that leads to no file")),
            ("socket", Some("it is there and no regular file")),
            ("other", Some("it is a folder")),
        ] {
            let path = folder.at(name);
            let checked = check(Path::new(&path)).err().map(|cause| cause.to_string());
            assert_eq!(checked.as_deref(), expected, "{name}");
            assert_eq!(put(&path, name).err().as_deref(), expected, "{name}");
        }
        assert_eq!(fs::read(old).expect("it is there"), b"link");
        assert_eq!(fs::read(folder.at("new")).expect("it is there"), b"new");
        let entries = fs::read_dir(folder.path()).expect("it is there");
        let links = entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_symlink()));
        assert_eq!(links.count(), 3);
        let nowhere = check(Path::new(&folder.at("nowhere/file"))).err().map(|cause| cause.to_string());
        assert_eq!(nowhere.as_deref(), Some("there is no such folder"));
    }

    #[test]
    fn one_holds_a_file_by_whichever_name() {
        let folder = Folder::new();
        let file = folder.write("file", "");
        symlink(&file, folder.at("link")).expect("it is ours");
        let hold = |name: &str| hold(Path::new(&folder.at(name))).expect("the folder can be written");
        let held = hold("file");
        assert!(held.is_some() && hold("link").is_none() && hold("other").is_some());
        drop(held);
        assert!(hold("link").is_some());
    }
}
