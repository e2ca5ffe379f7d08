//! Files that are not worth the wait of a stop.

use std::io::{self, Write};

use net::shutdown::Shutdown;

/// Where something long is written to that is of no use any more once a shutdown has begun: all that is written then fails.
#[derive(Debug)]
pub(crate) struct Ending<W> {
    out: W,
    shutdown: Shutdown,
}

impl<W> Ending<W> {
    /// Writes to `out` until `shutdown` begins.
    pub(crate) fn new(out: W, shutdown: Shutdown) -> Ending<W> {
        Ending { out, shutdown }
    }

    fn look(&self) -> io::Result<()> {
        if self.shutdown.is_begun() { Err(io::Error::other("the service ends")) } else { Ok(()) }
    }
}

impl<W: Write> Write for Ending<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.look()?;
        self.out.write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.look()?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_after_the_beginning_of_a_shutdown_fails() {
        let (mut octets, shutdown) = (Vec::new(), Shutdown::new());
        let mut out = Ending::new(&mut octets, shutdown.clone());
        out.write_all(b"whole").and_then(|()| out.flush()).expect("it has not begun");
        shutdown.begin();
        // It must not be an error after which is tried again.
        assert!(out.write_all(b"half").is_err() && out.flush().is_err());
        assert_eq!(octets, b"whole");
    }
}
