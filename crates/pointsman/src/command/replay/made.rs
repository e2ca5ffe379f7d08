//! What was made for a run before it begins: what cannot be written is told then, and a run that fails before it has
//! written anything leaves nothing behind.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Files and folders that were made. When dropped, those go that hold nothing.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// With the octets that a file has before something is in it.
    files: Vec<(PathBuf, u64)>,
    /// Inner ones first.
    folders: Vec<PathBuf>,
}

impl Made {
    /// Makes a file that is not there yet; with no more than `heading` octets it holds nothing.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(super) fn file(&mut self, path: &Path, heading: u64) -> io::Result<File> {
        let file = File::create_new(path)?;
        self.files.push((path.into(), heading));
        Ok(file)
    }

    /// Makes a folder, with those that it is in; one that is there is left as it is.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(super) fn folder(&mut self, folder: &Path) -> io::Result<()> {
        self.folders.extend(folder.ancestors().take_while(|folder| !folder.exists()).map(Into::into));
        fs::create_dir_all(folder)
    }

    /// Leaves all where it is.
    pub(super) fn keep(mut self) {
        (self.files, self.folders) = Default::default();
    }
}

impl Drop for Made {
    /// What cannot be removed stays: why the run has failed is told, and matters more.
    fn drop(&mut self) {
        for (path, heading) in &self.files {
            if fs::metadata(path).is_ok_and(|found| found.len() <= *heading) {
                let _ = fs::remove_file(path);
            }
        }
        // Not those that something else is in.
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_nothing_goes_unless_it_is_kept() {
        let folder = std::env::temp_dir().join(format!("pointsman-made-{}", std::process::id()));
        let at = |name: &str| folder.join(name);
        let make = |inner: &Path| {
            let mut made = Made::default();
            made.folder(inner).expect("it can be made");
            made.file(&inner.join("empty"), 0).expect("it can be made");
            made
        };
        for (heading, octets, is_kept, stays) in
            [(3, "", false, false), (3, "abc", false, false), (3, "abcd", false, true), (3, "", true, true)]
        {
            let mut made = make(&at("outer/inner"));
            made.file(&at("outer/log"), heading).expect("it can be made");
            fs::write(at("outer/log"), octets).expect("it can be written");
            if is_kept {
                made.keep()
            } else {
                drop(made)
            }
            assert_eq!(at("outer/log").exists(), stays, "{octets:?}");
            assert_eq!(at("outer/inner/empty").exists(), is_kept, "{octets:?}");
            assert_eq!(folder.exists(), stays, "{octets:?}");
            let _ = fs::remove_dir_all(&folder);
        }
        fs::create_dir(&folder).expect("it can be made");
        fs::write(at("report"), "a report").expect("it can be written");
        assert!(Made::default().folder(&at("report/inner")).is_err(), "a file is no folder");
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
