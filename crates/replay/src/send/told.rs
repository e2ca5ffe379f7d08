//! What every stream of a client, whatever it speaks, tells of its queries, and how much of them may wait in it.

use super::tally::Cause;

/// Octets of queries that may wait for a handshake or for the socket: some thousand queries. Beyond, a query is lost.
pub(super) const UNWRITTEN_MAX: usize = 256 << 10;

/// What is told of a stream.
pub(super) enum Told<'a> {
    /// A message.
    Message(&'a [u8]),
    /// A query that is not answered on its own, though others may be.
    Failed(u16, Cause),
    /// A query that the server has not looked at, as it takes nothing more on this connection.
    Unprocessed(u16),
    /// The handshake is done; whether an earlier session was resumed.
    Secured { is_resumed: bool },
}
