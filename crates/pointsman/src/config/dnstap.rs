//! What dnstap tells, and where that goes, which is looked at before anything else is done: a wrong path is told with all else
//! that is wrong.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use api::Faults;
use net::whole;

use nameserver::generation::NSID_MAX;
use tap::Destination;

use super::lower::{at, given, without_effect};
use super::spec::{DnstapSpec, Placed, resolve};

/// Who is told, if anybody; `nsid` is what the server is called where nothing else is said.
pub(super) fn lower(
    spec: &DnstapSpec,
    nsid: Option<&Placed<String>>,
    faults: &mut Faults,
) -> Option<tap::Config> {
    let DnstapSpec { socket, file, file_max, sample, messages, identity } = spec;
    let tapped = ("socket or file", socket.is_some() || file.is_some());
    let keys = [
        (("file", file.is_some()), "file_max", at(file_max)),
        (tapped, "sample", at(sample)),
        (tapped, "messages", at(messages)),
        (tapped, "identity", at(identity)),
    ];
    without_effect(keys, faults);
    let destination = match (socket, file) {
        (None, None) => return None,
        (Some(socket), None) => Destination::Socket(resolve(socket)),
        (None, Some(file)) => Destination::File(resolve(file)),
        (Some(_), Some(file)) => {
            faults.push(file.place.fault("dnstap has both socket and file", "one of them"));
            return None;
        }
    };
    if let Some(Placed { value, place }) = identity
        && value.len() > NSID_MAX
    {
        let what = format!("identity has {} octets", value.len());
        faults.push(place.fault(what, format!("at most {NSID_MAX}")));
    }
    let has = |word| messages.iter().any(|message| message.value == word);
    let identity = identity.as_ref().or(nsid);
    Some(tap::Config {
        destination,
        file_max: given(file_max.clone()),
        // The key's range ends below.
        sample: u32::try_from(given(sample.clone())).unwrap_or(u32::MAX),
        queries: has("query"),
        responses: has("response"),
        identity: identity.map(|identity| identity.value.clone()).unwrap_or_default(),
    })
}

/// Adds to `faults` why the file could not be made, or why nobody could ever listen at the socket.
pub(super) fn check(spec: &DnstapSpec, faults: &mut Faults) {
    if let Some(path) = &spec.socket {
        look("socket", path, no_socket, "a socket, or nothing yet", faults);
    }
    if let Some(path) = &spec.file {
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
            ("file", DnstapSpec { file: given(), ..DnstapSpec::default() }, as_file),
            ("socket", DnstapSpec { socket: given(), ..DnstapSpec::default() }, as_socket),
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
