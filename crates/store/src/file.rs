//! The database's file: where it is, who holds it, and whether it is still the same.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use crate::error::OpenError;

/// The rights of a new database: only its owner reads and writes it. Its log and index get the same.
const MODE: u32 = 0o600;

/// The most that is read of a lock's file: a process id and its line end are shorter.
const PID_MAX: u64 = 20;

/// Which file a path leads to, however it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that `path` leads to now; `None` where there is none to be seen.
    pub(crate) fn of(path: &Path) -> Option<FileId> {
        fs::metadata(path).ok().map(|m| FileId { device: m.dev(), inode: m.ino() })
    }
}

/// Finds the path in `url`, with its folder made absolute and free of links, so that two ways to write it
/// cannot lead to two locks.
pub(crate) fn locate(url: &str) -> Result<PathBuf, OpenError> {
    let (path, name) = named(url)?;
    match path.canonicalize() {
        Ok(path) if path.is_dir() => Err(OpenError::NotAStore { path, what: "it is a folder".into() }),
        Ok(path) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Ok(target) = path.read_link() {
                let what = format!("it is a link to {}, where nothing is", target.display());
                return Err(OpenError::NotAStore { path: path.into(), what });
            }
            let folder = match path.parent() {
                Some(folder) if folder != Path::new("") => folder,
                _ => Path::new("."),
            };
            match folder.canonicalize() {
                Ok(folder) => Ok(folder.join(name)),
                Err(error) => Err(OpenError::at(path, &error)),
            }
        }
        Err(error) => Err(OpenError::at(path, &error)),
    }
}

/// The path in `url`, as it stands there, and its last part.
pub(crate) fn named(url: &str) -> Result<(&Path, &OsStr), OpenError> {
    let unsupported = || OpenError::Unsupported { url: url.to_owned() };
    let path = Path::new(url.strip_prefix("sqlite:").ok_or_else(unsupported)?);
    // In SQLite's own URLs this means a database in memory, which would not survive anything.
    let name = path.file_name().filter(|name| *name != ":memory:").ok_or_else(unsupported)?;
    Ok((path, name))
}

/// The lock that lets one process have the store open.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave the lock with a child that is just being started, until it has
        // closed its copy of the handle. The error, if any, is gone with the handle.
        let _ = self.0.unlock();
    }
}

/// Takes the lock on the store at `database`, for as long as the value returned lives.
///
/// The system releases it when the process ends in whatever way, so that a lock that was left behind
/// never stops a restart. It is a file of its own because closing any handle of the database itself
/// would release the locks that SQLite holds there.
pub(crate) fn lock(database: &Path) -> Result<Lock, OpenError> {
    let path = beside(database, ".lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(&path)
        .map_err(|error| OpenError::at(&path, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Who holds it is a courtesy: it may just be writing this down.
            let _ = file.take(PID_MAX).read_to_string(&mut pid);
            return Err(OpenError::InUse { path: database.to_path_buf(), pid: pid.trim().parse().ok() });
        }
        Err(TryLockError::Error(error)) => return Err(OpenError::at(&path, &error)),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|error| OpenError::at(&path, &error))?;
    Ok(Lock(file))
}

/// Creates an empty database that only its owner may read, where there is no file yet.
pub(crate) fn create(database: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(MODE).open(database) {
        Ok(_) => {
            // What is acknowledged later must be found after a power failure: so must its name.
            sync_folder_of(database)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::at(database, &error)),
    }
}

/// Sees whether this process may write the database, where there is one, and make others beside it; makes nothing.
pub(crate) fn check(database: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).open(database) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(OpenError::at(database, &error)),
        _ => {}
    }
    let may_make = AccessFlags::W_OK | AccessFlags::X_OK;
    let folder = folder_of(database);
    faccessat(AT_FDCWD, folder, may_make, AtFlags::AT_EACCESS)
        .map_err(|error| OpenError::at(folder, &error.into()))
}

/// The path of the copy that is kept of `database` when tables of this version are changed.
pub(crate) fn copy_of(database: &Path, version: i64) -> PathBuf {
    beside(database, &format!(".version-{version}"))
}

/// Creates an empty file for what will be `copy`, which only its owner may read; returns its path.
pub(crate) fn begin_copy(copy: &Path) -> Result<PathBuf, OpenError> {
    let begun = beside(copy, ".part");
    // What a copy that did not end has left; what else stands there is told of below.
    let _ = fs::remove_file(&begun);
    let opened = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&begun);
    opened.map(|_| ()).map_err(|error| OpenError::at(&begun, &error))?;
    Ok(begun)
}

/// Syncs what was begun and puts it in its place.
pub(crate) fn finish_copy(begun: &Path, copy: &Path) -> Result<(), OpenError> {
    File::open(begun)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(begun, copy))
        .map_err(|error| OpenError::at(copy, &error))?;
    sync_folder_of(copy)
}

/// The path of the write-ahead log of `database`, as SQLite names it.
pub(crate) fn log_of(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

/// Makes the names in a file's folder last.
fn sync_folder_of(path: &Path) -> Result<(), OpenError> {
    let folder = folder_of(path);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| OpenError::at(folder, &error))
}

/// The folder of a path that is absolute.
fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(ending);
    path.into()
}
