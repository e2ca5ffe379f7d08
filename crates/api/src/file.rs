//! Files that a person wrote: read whole and within a limit; secrets only where nobody else may read them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Fault;

/// The most octets that a file of data has, such as a zone or a table of routes: 1 GiB.
///
/// A wrong path, such as `/dev/zero`, has no end.
pub const DATA_MAX: u64 = 1 << 30;

/// The most octets that a configuration has, and whatever else is written by hand: 16 MiB.
pub const WRITTEN_MAX: u64 = 16 << 20;

/// The rights that nobody may have to a file with secrets: its group to write, others any.
const FORBIDDEN_MODE: u32 = 0o027;

/// What compressed files begin with (RFC 1952, RFC 8878, the formats of xz and bzip2), and the programs that unpack them.
const COMPRESSIONS: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2")];

/// Reads all of a file that has `most` octets at most; `expected` says what file it is to be.
///
/// # Errors
/// That it cannot be read, or is larger.
pub fn read(path: &Path, most: u64, expected: &str) -> Result<Vec<u8>, Fault> {
    read_from(open(path, expected)?, &path.to_string_lossy(), most, expected)
}

/// As [`read`], what is open already; `source` is what faults call it.
///
/// # Errors
/// As [`read`] has them.
pub fn read_from(open: impl Read, source: &str, most: u64, expected: &str) -> Result<Vec<u8>, Fault> {
    let mut octets = Vec::new();
    open.take(most + 1).read_to_end(&mut octets).map_err(|cause| unreadable(source, &cause, expected))?;
    if octets.len() as u64 > most {
        return Err(Fault::whole(source, format!("it is larger than {most} octets"), expected));
    }
    Ok(octets)
}

/// As [`read`], a text.
///
/// # Errors
/// As [`read`] and [`text`] have them.
pub fn read_text(path: &Path, most: u64, expected: &str) -> Result<String, Fault> {
    text(&path.to_string_lossy(), read(path, most, expected)?)
}

/// As [`read_text`], secrets, to which nobody but the file's owner has rights, or its group to read.
///
/// # Errors
/// As [`read_text`], or that others have rights to it; nothing of what is in it is told.
pub fn read_secret(path: &Path, most: u64, expected: &str) -> Result<String, Fault> {
    let (file, source) = (open(path, expected)?, path.to_string_lossy());
    let metadata = file.metadata().map_err(|cause| unreadable(&source, &cause, expected))?;
    if metadata.is_dir() {
        return Err(unreadable(&source, &io::ErrorKind::IsADirectory.into(), expected));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & FORBIDDEN_MODE != 0 {
        let what = format!("the file holds secrets and is open to others (mode {mode:03o})");
        return Err(Fault::whole(source, what, "mode 600, or 640 for a group (chmod 600)"));
    }
    text(&source, read_from(file, &source, most, expected)?)
}

/// Takes octets of `source` as a text.
///
/// # Errors
/// The place of the first octet that is not UTF-8; or that they are compressed.
pub fn text(source: &str, octets: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(octets).map_err(|cause| {
        let (octets, good) = (cause.as_bytes(), cause.utf8_error().valid_up_to());
        if let Some(fault) = compressed(source, octets, "a text in UTF-8") {
            return fault;
        }
        let before = &octets[..good];
        let line = before.iter().filter(|octet| **octet == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|octet| **octet != b'\n').count() + 1;
        let what = format!("the octet {:02x} is not UTF-8", octets[good]);
        let place = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Fault::at(source, place(line), place(column), what, "a text in UTF-8")
    })
}

/// That octets of `source`, which are none of what is `expected`, are compressed, where they begin so.
pub fn compressed(source: &str, octets: &[u8], expected: &str) -> Option<Fault> {
    // What bzip2 writes begins with letters.
    str::from_utf8(octets).err()?;
    let (_, program) = COMPRESSIONS.iter().find(|(magic, _)| octets.starts_with(magic))?;
    let what = format!("it is compressed with {program}");
    Some(Fault::whole(source, what, format!("{expected}, unpacked first ({program} -d)")))
}

fn open(path: &Path, expected: &str) -> Result<File, Fault> {
    File::open(path).map_err(|cause| unreadable(&path.to_string_lossy(), &cause, expected))
}

fn unreadable(source: &str, cause: &io::Error, expected: &str) -> Fault {
    Fault::whole(source, format!("it cannot be read: {cause}"), expected)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;
    use ::tests::folder::Folder;

    fn told<T>(read: Result<T, Fault>) -> Result<T, String> {
        read.map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let folder = Folder::new();
        let path = folder.path().join("zone");
        let missing = told(read(&path, 9, "a zone")).expect_err("it is not there");
        assert!(missing.contains("cannot be read") && missing.ends_with("expected a zone"), "{missing}");
        fs::write(&path, "nine, all").expect("the folder can be written");
        assert_eq!(told(read(&path, 9, "")), Ok(b"nine, all".to_vec()));
        assert!(told(read(&path, 8, "")).is_err_and(|told| told.ends_with("larger than 8 octets")));
        assert!(told(read(Path::new("/dev/zero"), 1 << 20, "")).is_err_and(|told| told.contains("larger")));
    }

    #[test]
    fn what_is_no_text_has_a_place() {
        assert_eq!(
            told(text("f", b"a\nb\xffc".to_vec())),
            Err("f:2:2: the octet ff is not UTF-8; expected a text in UTF-8".into())
        );
        assert_eq!(told(text("f", "ä".into())), Ok("ä".into()));
        assert!(told(text("f", b"\xc3".to_vec())).is_err_and(|told| told.starts_with("f:1:1:")));
    }

    #[test]
    fn what_is_compressed_is_told_as_such() {
        for (octets, program) in [
            (&b"\x1f\x8b\x08\x08M\x91"[..], "gzip"),
            (b"\xfd7zXZ\0\0\x04\xe6", "xz"),
            (b"(\xb5/\xfd$A", "zstd"),
            (b"BZh91AY&SYm\xdd", "bzip2"),
        ] {
            let expected = format!(
                "f: it is compressed with {program}; expected a text in UTF-8, unpacked first ({program} -d)"
            );
            assert_eq!(told(text("f", octets.to_vec())), Err(expected));
        }
        // Of a text these are only its first letters.
        assert_eq!(told(text("f", b"BZh91AY".to_vec())), Ok("BZh91AY".into()));
    }

    #[test]
    fn secrets_are_only_read_from_closed_files() {
        let folder = Folder::new();
        let path = folder.path().join("key");
        fs::write(&path, "a secret").expect("the folder can be written");
        for (mode, is_closed) in [(0o600, true), (0o640, true), (0o400, true), (0o644, false), (0o660, false)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            match told(read_secret(&path, 8, "a key")) {
                Ok(text) => assert!(is_closed && text == "a secret", "{mode:o}"),
                Err(told) => {
                    assert!(!is_closed && told.contains(&format!("mode {mode:o}")), "{mode:o}: {told}");
                    assert!(!told.contains("a secret"), "{told}");
                }
            }
        }
        let told = told(read_secret(folder.path(), 8, "a key")).expect_err("it is a folder");
        assert!(told.ends_with(": it cannot be read: is a directory; expected a key"), "{told}");
    }
}
