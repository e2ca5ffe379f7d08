//! An end that costs little: each query is sent back as its own answer, in batches.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, Result, bail};
use net::udp::{Batch, UdpListener, bind};

/// Room for queries that wait, in octets.
const RECEIVE_BUFFER: usize = 32 << 20;

/// The longest query that is sent back, in octets.
const ECHOED_MAX: usize = 512;

/// Echoes at `address` while `work` is done, in a thread that does `enter` first.
///
/// # Errors
/// Those of `work` and `enter`, and where there is no socket.
pub fn during<T>(
    address: SocketAddr,
    enter: impl FnOnce() -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (ready, listener) = mpsc::channel::<Arc<UdpListener>>();
    thread::scope(|scope| {
        let echo = scope.spawn(move || {
            enter()?;
            let listener = Arc::new(bind(address, Some(RECEIVE_BUFFER)).context("the echo's socket")?);
            ready.send(listener.clone()).context("nobody waits for the echo")?;
            let mut batch = Batch::new(ECHOED_MAX);
            while batch.receive(&listener).context("the echo's socket")? > 0 {
                batch.answer_each(|query, out| {
                    let answer = out.get_mut(..query.bytes.len()).filter(|answer| answer.len() > 2)?;
                    answer.copy_from_slice(query.bytes);
                    answer[2] |= 0x80;
                    Some(query.bytes.len())
                });
                batch.send(&listener);
            }
            Ok(())
        });
        // Where the echo has failed there is no socket, and it has an error to tell.
        let done = listener.recv().ok().map(|listener| {
            let done = work();
            listener.stop();
            done
        });
        let Ok(ended) = echo.join() else { bail!("the echo panicked") };
        let ended: Result<()> = ended;
        ended?;
        done.context("the echo ended before it began")?
    })
}
