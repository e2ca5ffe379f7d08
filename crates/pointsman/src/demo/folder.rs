//! The folder of the store: one that is given and kept, or a temporary one.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// How many names are tried for a temporary folder: with 64 random bits, one is enough.
const TRIES_MAX: usize = 4;

/// A folder; a temporary one goes with it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    is_temporary: bool,
}

impl Folder {
    /// The folder at `path`, made where it is missing; a temporary one, of this user only, without.
    ///
    /// # Errors
    /// [`Failure::Failed`] where it cannot be made.
    pub(super) fn new(path: Option<&Path>) -> Result<Folder, Failure> {
        let made = match path {
            Some(path) => {
                fs::create_dir_all(path).map(|()| Folder { path: path.into(), is_temporary: false })
            }
            None => temporary(),
        };
        made.map_err(|cause| {
            let path = path.map_or_else(std::env::temp_dir, Path::to_path_buf);
            Failure::Failed(format!(
                "no folder for the store in {}: {cause}\nAnother is given by --dir.",
                path.display()
            ))
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_temporary {
            // What cannot be removed now will be by whoever clears temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn temporary() -> io::Result<Folder> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..TRIES_MAX {
        let path = std::env::temp_dir().join(format!("pointsman-demo-{:016x}", fastrand::u64(..)));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(Folder { path, is_temporary: true }),
            Err(cause) => last = cause,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_goes_and_a_given_one_stays() {
        let temporary = Folder::new(None).expect("there is room for temporary folders");
        let path = temporary.path().to_owned();
        let given = path.join("a/b");
        drop(Folder::new(Some(&given)).expect("folders can be made in a folder of ours"));
        assert!(given.is_dir());
        drop(temporary);
        assert!(!path.exists());
        let hidden = Path::new("/dev/null/demo");
        let failure = Folder::new(Some(hidden)).expect_err("a device holds no folders").to_string();
        assert!(failure.contains("/dev/null/demo") && failure.contains("--dir"), "{failure}");
    }
}
