//! How far the lines came, noted in a file, and where to go on.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use net::whole::Held;

use crate::failure::Failure;

/// How often it is noted how far the lines came.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// How far the lines came, in octets of stdin and of stdout, and the inode of stdin, as it stands in a file, a line each.
///
/// The inode's device is left out: over a restart of the machine many have another number.
pub(super) struct Noted {
    pub(super) input: u64,
    pub(super) output: u64,
    inode: u64,
    last: Instant,
    /// Held against other runs, which would write to the same file.
    _held: Held,
}

impl Noted {
    /// Goes on where a file says, or begins.
    pub(super) fn begin(
        path: &Path,
        input: &mut File,
        mut output: &File,
        length: u64,
    ) -> Result<Noted, Failure> {
        let failed = |what: &str| Failure::Failed(format!("{}: {what}", path.display()));
        let is_file = |file: &File| file.metadata().is_ok_and(|file| file.is_file());
        if !is_file(input) || !is_file(output) {
            return Err(failed("--resume needs files: < access.log >> named.log"));
        }
        let cause = |cause: io::Error| failed(&cause.to_string());
        let held = net::whole::hold(path).map_err(cause)?;
        let held = held.ok_or_else(|| failed("another run has it; wait for its end"))?;
        let inode = input.metadata().map_err(cause)?.ino();
        let (read, written, noted) = match fs::read_to_string(path) {
            Ok(text) => noted(&text)
                .ok_or_else(|| failed("it does not say how far the lines came; remove it to begin anew"))?,
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => {
                (0, output.metadata().map_err(cause)?.len(), None)
            }
            Err(unread) => return Err(cause(unread)),
        };
        if noted.is_some_and(|noted| noted != inode) {
            return Err(failed(
                "stdin is another file than the one that it is of; was it rotated? end the old one first \
                 (< access.log.1), then remove it to begin anew",
            ));
        }
        if read > length || written > output.metadata().map_err(cause)?.len() {
            return Err(failed(
                "the files are shorter than what was done; were they rotated? remove it to begin anew",
            ));
        }
        input.seek(SeekFrom::Start(read)).map_err(cause)?;
        // What was written after the last note is written again.
        output.set_len(written).map_err(cause)?;
        output.seek(SeekFrom::Start(written)).map_err(cause)?;
        let noted = Noted { input: read, output: written, inode, last: Instant::now(), _held: held };
        // What ends before the first note goes on from here, too.
        noted.write(path)?;
        Ok(noted)
    }

    /// Writes it down, once a second, or now.
    pub(super) fn note(&mut self, path: &Path, out: &mut BufWriter<File>, now: bool) -> Result<(), Failure> {
        if !now && self.last.elapsed() < NOTE_INTERVAL {
            return Ok(());
        }
        self.last = Instant::now();
        out.flush().map_err(|cause| Failure::output(&cause))?;
        // A note never says more than what is there, also after the machine has stopped.
        out.get_ref().sync_data().map_err(|cause| Failure::output(&cause))?;
        self.write(path)
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let noted = net::whole::replace(path, 0o600, |mut file| {
            file.write_all(format!("{}\n{}\n{}\n", self.input, self.output, self.inode).as_bytes())
        });
        noted.map_err(|cause| Failure::Failed(format!("{}: {cause}", path.display())))
    }
}

/// What a note says: octets of stdin and stdout, and the inode, which those of older programs do not have.
fn noted(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let mut numbers = text.lines().map(|line| line.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next().map_or(Some(None), |inode| inode.map(Some))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_of_one_file_also_when_the_next_is_longer() {
        assert_eq!(noted("5\n7\n"), Some((5, 7, None)), "of an older program");
        assert_eq!(noted("5\n7\n9\n"), Some((5, 7, Some(9))));
        assert_eq!([noted(""), noted("5\n"), noted("5\n7\nx\n")], [None; 3]);

        let folder = std::env::temp_dir().join(format!("pointsman-filter-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [log, rotated, out, state] = ["log", "log.1", "out", "state"].map(|name| folder.join(name));
        let begin = |text: Option<&str>, log: &Path| {
            if let Some(text) = text {
                fs::write(log, text).unwrap();
            }
            let mut input = File::open(log).unwrap();
            let output = File::options().create(true).append(true).open(&out).unwrap();
            let length = input.metadata().unwrap().len();
            let noted = Noted::begin(&state, &mut input, &output, length);
            noted.map(|noted| (noted, BufWriter::new(output))).map_err(|failure| format!("{failure:?}"))
        };
        let (mut first, mut to) = begin(Some("192.0.2.1 a\n"), &log).unwrap();
        assert_eq!(fs::read_to_string(&state).unwrap().lines().next(), Some("0"), "before the first line");
        first.input = 12;
        first.note(&state, &mut to, true).unwrap();
        let second = begin(None, &log).err().unwrap();
        assert!(second.contains("another run has it"), "{second}");
        drop(first);
        fs::rename(&log, &rotated).unwrap();
        let refused = begin(Some("192.0.2.2 b\n192.0.2.3 c\n"), &log).err().unwrap();
        assert!(refused.contains("was it rotated?"), "{refused}");
        assert_eq!(begin(None, &rotated).unwrap().0.input, 12, "the old one can be ended");
        fs::remove_dir_all(&folder).unwrap();
    }
}
