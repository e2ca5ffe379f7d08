//! Octets read ahead by a thread of their own, so that neither a disk nor a decompressor holds up who uses them: one that
//! makes room for its window alone takes several milliseconds at once.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// The most octets of a piece.
const PIECE: usize = 64 << 10;

/// Pieces that are ready at most: a megabyte, seconds of a busy server's traffic.
const PIECES: usize = 16;

/// What a thread reads ahead. The thread ends when this is dropped, or as soon as it has read on then.
pub(super) struct Ahead {
    /// An empty one is the end.
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Cursor<Vec<u8>>,
    is_over: bool,
}

impl Ahead {
    /// Begins to read.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(super) fn begin(source: impl Read + Send + 'static) -> io::Result<Ahead> {
        let (to, pieces) = sync_channel(PIECES);
        thread::Builder::new().name("read-ahead".into()).spawn(move || read(source, &to))?;
        Ok(Ahead { pieces, piece: Cursor::default(), is_over: false })
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.is_over && self.piece.position() == self.piece.get_ref().len() as u64 {
            let next = self.pieces.recv().unwrap_or_else(|_| {
                // Its panic was told where it happened.
                Err(io::Error::other("the thread that reads ahead has failed"))
            });
            self.is_over = next.as_ref().map_or(true, Vec::is_empty);
            self.piece = Cursor::new(next?);
        }
        self.piece.read(buffer)
    }
}

/// Reads until the end, an error, or until nobody wants it any more.
fn read(mut source: impl Read, to: &SyncSender<io::Result<Vec<u8>>>) {
    // Where this is refused, it has as much of a core as others.
    let _ = net::thread::stand_back();
    loop {
        let mut piece = vec![0; PIECE];
        let next = match source.read(&mut piece) {
            Ok(length) => {
                piece.truncate(length);
                Ok(piece)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = next.as_ref().map_or(true, Vec::is_empty);
        if to.send(next).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn all_is_read_up_to_the_end() {
        let octets: Vec<u8> = (0..PIECE * (PIECES + 3) + 7).map(|at| (at % 251) as u8).collect();
        let mut read = Vec::new();
        let mut ahead = Ahead::begin(Cursor::new(octets.clone())).expect("a thread");
        ahead.read_to_end(&mut read).expect("no error");
        assert!(read == octets);
        assert_eq!(ahead.read(&mut [0; 4]).expect("still the end"), 0);
    }

    #[test]
    fn what_stands_before_an_error_is_read() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::InvalidData.into())
            }
        }
        let mut ahead = Ahead::begin(Cursor::new([1, 2, 3]).chain(Failing)).expect("a thread");
        let mut read = Vec::new();
        let error = ahead.read_to_end(&mut read).expect_err("it fails");
        assert_eq!((read, error.kind()), (vec![1, 2, 3], io::ErrorKind::InvalidData));
    }

    #[test]
    fn a_panic_is_an_error() {
        struct Panicking;
        impl Read for Panicking {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                panic!("a decompressor's")
            }
        }
        let mut ahead = Ahead::begin(Panicking).expect("a thread");
        assert!(ahead.read(&mut [0; 4]).is_err());
    }

    #[test]
    fn it_reads_no_further_than_it_may_and_ends_when_it_is_dropped() {
        struct Endless(mpsc::Sender<()>);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.send(()).map_err(io::Error::other)?;
                Ok(buffer.len())
            }
        }
        let (reads, counted) = mpsc::channel();
        let ahead = Ahead::begin(Endless(reads)).expect("a thread");
        // One more than fit waits for room.
        for _ in 0..=PIECES {
            counted.recv().expect("it reads");
        }
        drop(ahead);
        assert!(counted.iter().count() <= 1, "it goes on");
    }
}
