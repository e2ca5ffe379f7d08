//! A folder for one test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder, removed with all that is in it when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty folder that nobody else has.
    ///
    /// # Panics
    /// Where the system refuses it.
    #[expect(clippy::new_without_default, reason = "it makes something")]
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // A process of the same number may have left some: in a namespace of its own each is the first.
        let name = format!("pointsman-test-{}-{number}-{:08x}", std::process::id(), fastrand::u32(..));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a temporary folder can be made");
        Folder(path.canonicalize().expect("the folder was made"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of `name` in it, as text.
    pub fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file in it; returns the file's path.
    ///
    /// # Panics
    /// Where the system refuses it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.at(name);
        std::fs::write(&path, content).expect("the folder can be written");
        path
    }

    /// Writes a file in it that only its owner can read; returns its path.
    ///
    /// # Panics
    /// Where the system refuses it.
    pub fn write_secret(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.write(name, content);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's cleaning.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
