//! A trace that is written: whole, or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use replay::trace::{Message, pcap, text};

use crate::failure::Failure;

/// A file in the making. Until [`Output::finish`] it has another name beside its own, and goes when dropped.
pub(super) struct Output {
    out: PathBuf,
    partial: PathBuf,
    form: Form,
}

enum Form {
    /// Lines of text, or of a query file: how a query is written.
    Lines(BufWriter<File>, fn(&Message) -> Option<String>),
    Packets(pcap::Writer<BufWriter<File>>),
}

impl Output {
    /// Begins a file, in the form that the end of its name tells.
    ///
    /// # Errors
    /// A name that tells none, a file that is there already, a folder that cannot be written to.
    pub(super) fn create(out: &Path) -> Result<Output, Failure> {
        let extension = out.extension().and_then(|extension| extension.to_str());
        if !matches!(extension, Some("txt" | "queries" | "pcap")) {
            let what = "the form is told by the end of its name, and this one is not supported";
            return Err(Failure::file(out, what, "FILE.txt, FILE.queries or FILE.pcap"));
        }
        if fs::symlink_metadata(out).is_ok() {
            return Err(Failure::file(out, "it cannot be made: it is there already", "another name"));
        }
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = out.with_file_name(name);
        let unmade = |cause: io::Error| Failure::file(out, format!("it cannot be made: {cause}"), "");
        let to = BufWriter::new(File::create_new(&partial).map_err(unmade)?);
        let begun = match extension {
            Some("txt") => {
                let mut to = to;
                writeln!(to, "{}", text::HEADING).map(|()| Form::Lines(to, text::line))
            }
            Some("queries") => Ok(Form::Lines(to, text::question)),
            _ => pcap::Writer::new(to).map(Form::Packets),
        };
        let form = begun.map_err(|cause| {
            let _ = fs::remove_file(&partial);
            unmade(cause)
        })?;
        Ok(Output { out: out.to_owned(), partial, form })
    }

    /// What the file is called until it is whole.
    pub(super) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Writes a message; `false` where the form has no room for it.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn write(&mut self, message: &Message) -> Result<bool, Failure> {
        let written = match &mut self.form {
            Form::Lines(to, line) => match line(message) {
                Some(line) => writeln!(to, "{line}").map(|()| true),
                None => Ok(false),
            },
            Form::Packets(to) if pcap::has_room(message) => to.write(message).map(|()| true),
            Form::Packets(_) => Ok(false),
        };
        written.map_err(|cause| unwritten(&self.out, &cause))
    }

    /// Ends the file, and gives it its name.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let done = match &mut self.form {
            Form::Lines(to, _) => to.flush().and_then(|()| to.get_ref().sync_all()),
            Form::Packets(to) => to.flush().and_then(|()| to.get_ref().get_ref().sync_all()),
        };
        done.and_then(|()| fs::rename(&self.partial, &self.out)).map_err(|cause| unwritten(&self.out, &cause))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Once it has its name, there is none of this one.
        let _ = fs::remove_file(&self.partial);
    }
}

fn unwritten(out: &Path, cause: &io::Error) -> Failure {
    Failure::Failed(format!("{}: it cannot be written: {cause}; what was written is removed", out.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use replay::trace::{PORT, Trace};

    use super::*;

    const LINES: &str = "10.000000001 192.0.2.1:5353 udp Example.com. A rd,edns=1232,do\n\
                         11.000000000 [2001:db8::1]:99 tcp www.example. TYPE65280 -\n";

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("pointsman-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a new folder");
            Folder(path)
        }

        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("it is there");
            let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string();
            let mut names: Vec<String> = entries.map(|entry| name(entry).expect("text")).collect();
            names.sort_unstable();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn messages(file: Vec<u8>) -> Vec<Message> {
        let trace = Trace::read(Cursor::new(file), PORT).expect("it is right");
        trace.map(|message| message.expect("it is right")).collect()
    }

    fn write(out: &Path, messages: &[Message]) -> Vec<bool> {
        let mut output = Output::create(out).unwrap_or_else(|failure| panic!("{failure}"));
        let written = messages.iter().map(|message| output.write(message).expect("there is room")).collect();
        output.finish().expect("there is room");
        written
    }

    #[test]
    fn each_form_reads_back() {
        let folder = Folder::new("forms");
        let (packets, lines) = (folder.0.join("a.pcap"), folder.0.join("a.txt"));
        assert_eq!(write(&packets, &messages(LINES.into())), [true, true]);
        write(&lines, &messages(fs::read(&packets).expect("it was written")));
        let written = fs::read_to_string(&lines).expect("it was written");
        assert_eq!(written, format!("{}\n{LINES}", text::HEADING));
        let queries = folder.0.join("a.queries");
        write(&queries, &messages(written.into()));
        assert_eq!(
            fs::read_to_string(&queries).expect("it was written"),
            "Example.com. A\nwww.example. TYPE65280\n"
        );

        // What a form has no room for is told.
        let mut late = messages(LINES.into());
        late[0].time = std::time::Duration::from_secs(1 << 32);
        late[1].octets[2] |= 0x80;
        assert_eq!(write(&folder.0.join("b.pcap"), &late), [false, true]);
        assert_eq!(write(&folder.0.join("b.txt"), &late), [true, false]);
        assert_eq!(folder.files(), ["a.pcap", "a.queries", "a.txt", "b.pcap", "b.txt"]);
    }

    #[test]
    fn what_is_not_finished_is_not_there() {
        let folder = Folder::new("unfinished");
        let out = folder.0.join("a.pcap");
        let mut output = Output::create(&out).expect("it can be made");
        output.write(&messages(LINES.into())[0]).expect("there is room");
        assert!(folder.files()[0].ends_with(".partial"));
        drop(output);
        assert_eq!(folder.files(), Vec::<String>::new());

        // A folder of its name came meanwhile.
        let output = Output::create(&out).expect("it can be made");
        fs::create_dir(&out).expect("a new folder");
        let failure = output.finish().expect_err("the name is taken").to_string();
        assert!(failure.contains("it cannot be written"), "{failure}");
        assert_eq!(folder.files(), ["a.pcap"]);
        let failure = Output::create(&out).map(|_| ()).expect_err("it is there").to_string();
        assert!(failure.contains("it is there already"), "{failure}");
        assert!(Output::create(&folder.0.join("a.pdf")).is_err());
    }
}
