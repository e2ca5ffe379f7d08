//! A tap's reader at a Unix stream socket: the handshake of Frame Streams, and writing with patience.
//!
//! All that blocks does so for [`TICK`] at a time and then asks `give_up`.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use dns::frame_streams::{Control, DNSTAP, Frame, push_control, split_first};

/// How long a system call may block before we look up.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// The most octets that are read for one control frame: more than the longest takes.
const READ: usize = 1024;

/// Greets a reader: READY, ACCEPT, START.
///
/// # Errors
/// What the system says; [`ErrorKind::InvalidData`] where the reader takes no dnstap; [`ErrorKind::TimedOut`] when it
/// is given up.
pub(super) fn greet(stream: &mut UnixStream, give_up: &mut dyn FnMut() -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    let mut out = Vec::new();
    push_control(&mut out, Control::Ready, Some(DNSTAP));
    write_all(stream, &out, give_up)?;
    expect(stream, Control::Accept, give_up)?;
    out.clear();
    push_control(&mut out, Control::Start, Some(DNSTAP));
    write_all(stream, &out, give_up)
}

/// Takes leave: STOP, FINISH.
///
/// # Errors
/// As [`greet`] has them.
pub(super) fn leave(stream: &mut UnixStream, give_up: &mut dyn FnMut() -> bool) -> io::Result<()> {
    let mut out = Vec::new();
    push_control(&mut out, Control::Stop, None);
    write_all(stream, &out, give_up)?;
    expect(stream, Control::Finish, give_up)
}

/// Writes all of it, however slowly it is read.
///
/// # Errors
/// What the system says; [`ErrorKind::TimedOut`] when it is given up.
pub(super) fn write_all(
    stream: &mut UnixStream,
    mut octets: &[u8],
    give_up: &mut dyn FnMut() -> bool,
) -> io::Result<()> {
    while !octets.is_empty() {
        match stream.write(octets) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => octets = &octets[written..],
            Err(cause) => wait_or(cause, give_up)?,
        }
    }
    Ok(())
}

/// Reads one control frame, which must be of this kind; ACCEPT must take dnstap.
fn expect(stream: &mut UnixStream, wanted: Control, give_up: &mut dyn FnMut() -> bool) -> io::Result<()> {
    let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
    let (mut buffer, mut held) = ([0; READ], 0);
    loop {
        match split_first(&buffer[..held]).map_err(|malformed| invalid(malformed.to_string()))? {
            Some((Frame::Control(found, types), _)) if found == wanted => {
                if wanted == Control::Accept && !types.has(DNSTAP) {
                    return Err(invalid("the reader does not take dnstap".into()));
                }
                return Ok(());
            }
            Some((found, _)) => return Err(invalid(format!("{found:?}; expected {wanted:?}"))),
            None if held == buffer.len() => return Err(invalid(format!("no frame; expected {wanted:?}"))),
            None => {}
        }
        match stream.read(&mut buffer[held..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => held += read,
            Err(cause) => wait_or(cause, give_up)?,
        }
    }
}

/// Goes on after what passes, unless it is given up.
fn wait_or(cause: io::Error, give_up: &mut dyn FnMut() -> bool) -> io::Result<()> {
    match cause.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock | ErrorKind::TimedOut if give_up() => Err(ErrorKind::TimedOut.into()),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(()),
        _ => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(control: Control, content_type: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        push_control(&mut out, control, content_type);
        out
    }

    #[test]
    fn a_reader_is_greeted_and_left_in_form() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        let reader = std::thread::spawn(move || {
            let receive = |stream: &mut UnixStream, expected: Vec<u8>| {
                let mut octets = vec![0; expected.len()];
                stream.read_exact(&mut octets).expect("the writer writes");
                assert_eq!(octets, expected);
            };
            receive(&mut theirs, control(Control::Ready, Some(DNSTAP)));
            theirs.write_all(&control(Control::Accept, Some(DNSTAP))).expect("the writer reads");
            receive(&mut theirs, control(Control::Start, Some(DNSTAP)));
            receive(&mut theirs, vec![7; 3]);
            receive(&mut theirs, control(Control::Stop, None));
            theirs.write_all(&control(Control::Finish, None)).expect("the writer reads");
        });
        let mut never = || false;
        greet(&mut ours, &mut never).expect("greeted");
        write_all(&mut ours, &[7; 3], &mut never).expect("written");
        leave(&mut ours, &mut never).expect("left");
        reader.join().expect("all came in order");
    }

    #[test]
    fn what_is_no_reader_of_dnstap_is_refused() {
        let cases = [
            (control(Control::Accept, Some(b"another")), ErrorKind::InvalidData),
            (control(Control::Accept, None), ErrorKind::InvalidData),
            (control(Control::Finish, None), ErrorKind::InvalidData),
            (vec![0, 0, 0, 0, 0, 0, 2, 1], ErrorKind::InvalidData),
            ([&[0, 0, 4, 0][..], &[1; READ]].concat(), ErrorKind::InvalidData),
            (Vec::new(), ErrorKind::UnexpectedEof),
        ];
        for (said, expected) in cases {
            let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
            theirs.write_all(&said).expect("there is room");
            theirs.shutdown(std::net::Shutdown::Write).expect("it is open");
            let refused = greet(&mut ours, &mut || false).expect_err("no reader");
            assert_eq!(refused.kind(), expected, "{said:02x?}: {refused}");
        }
    }

    #[test]
    fn a_reader_that_does_nothing_is_given_up() {
        let (mut ours, _theirs) = UnixStream::pair().expect("a pair");
        let refused = greet(&mut ours, &mut || true).expect_err("no reader");
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
        let refused = write_all(&mut ours, &vec![0; 16 << 20], &mut || true).expect_err("nobody reads");
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
    }
}
