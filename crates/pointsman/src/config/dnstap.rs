//! Where dnstap goes, looked at before anything is imported: a wrong path is told with all else that is wrong.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use api::Faults;
use net::whole;

use super::spec::{Placed, Spec, resolve};

/// Adds to `faults` why the file could not be made, or why nobody could ever listen at the socket.
pub(super) fn check(spec: &Spec, faults: &mut Faults) {
    if let Some(path) = &spec.dnstap_socket {
        look("socket", path, no_socket, "a socket, or nothing yet", faults);
    }
    if let Some(path) = &spec.dnstap_file {
        look("file", path, no_file, "a file in a folder that is there", faults);
    }
}

fn look(
    key: &str,
    given: &Placed<PathBuf>,
    wrong: fn(&Path) -> Option<String>,
    expected: &str,
    faults: &mut Faults,
) {
    let path = resolve(given);
    if let Some(found) = wrong(&path) {
        let what = format!("{key} is {}, and {found}", path.display());
        faults.push(given.place.fault(what, expected));
    }
}

/// The reader, which makes the socket and maybe its folder, may start later than we do.
fn no_socket(path: &Path) -> Option<String> {
    let is_other = fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket());
    is_other.then(|| "it is there and no socket".into())
}

/// A link is no file here, as it would not be followed but replaced.
fn no_file(path: &Path) -> Option<String> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Some("it is there and no regular file".into());
    }
    whole::check(path).err().map(|cause| format!("it cannot be written: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::Place;
    use ::tests::folder::Folder;
    use std::os::unix::net::UnixListener;

    /// Looks at `name` as the file and as the socket.
    fn check(folder: &Folder, name: &str, as_file: Option<&str>, as_socket: Option<&str>) {
        let path = folder.at(name);
        let given = || Some(Placed { value: path.clone().into(), place: Place::Default });
        for (key, spec, wrong) in [
            ("file", Spec { dnstap_file: given(), ..Spec::default() }, as_file),
            ("socket", Spec { dnstap_socket: given(), ..Spec::default() }, as_socket),
        ] {
            let mut faults = Faults::default();
            super::check(&spec, &mut faults);
            let told: Vec<String> = faults.faults.into_iter().map(|fault| fault.what).collect();
            let expected = wrong.map(|wrong| format!("{key} is {path}, and {wrong}"));
            assert_eq!(told, Vec::from_iter(expected));
        }
    }

    #[test]
    fn what_could_never_be_written_is_a_fault() {
        let folder = Folder::new();
        folder.write("file", "an older one");
        let _listening = UnixListener::bind(folder.at("socket")).expect("the folder can be written");
        let (no_file, no_socket) = ("it is there and no regular file", "it is there and no socket");
        check(&folder, "new", None, None);
        check(&folder, "file", None, Some(no_socket));
        check(&folder, "socket", Some(no_file), None);
        check(&folder, ".", Some(no_file), Some(no_socket));
        for name in ["nowhere/new", "file/new"] {
            check(&folder, name, Some("it cannot be written: there is no such folder"), None);
        }
        assert_eq!(fs::read(folder.at("file")).expect("it is there"), b"an older one");
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 2, "nothing is left of a look");
    }
}
