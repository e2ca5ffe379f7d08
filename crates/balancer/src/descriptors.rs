//! How many descriptors a balancer may need, and whether it may have as many.

use net::admission::GIVING_WAY_MAX;

use crate::exchange::OPEN_MAX;

/// Descriptors that are neither workers' nor clients' nor of back ends, with room to spare: HTTP's connections, credit, log,
/// listeners, and connections that give way.
const OTHERS: usize = web::serve::CONNECTIONS_MAX + 64 + GIVING_WAY_MAX;

/// Descriptors of each worker: its socket for clients, what it waits with, and both ends of what the relay wakes it by.
const OF_A_WORKER: usize = 4;

/// Descriptors of each back end, beside its sockets at workers: connections, and a probe.
const OF_A_BACK_END: usize = OPEN_MAX + 1;

/// What may be open.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    /// What the system allows.
    limit: u64,
    workers: usize,
    sockets: usize,
    connections_max: usize,
    datagrams_max: usize,
}

impl Descriptors {
    /// Raises the limit on descriptors as far as it goes. There are so many workers, each with so many sockets for each back
    /// end, so many connections of clients, and so many datagrams for them at a time, each from a socket of its own.
    pub fn raise(
        workers: usize,
        sockets: usize,
        connections_max: usize,
        datagrams_max: usize,
    ) -> Descriptors {
        let limit = net::descriptors::raise().unwrap_or_else(|cause| {
            tracing::warn!(%cause, "the limit on open files is not known");
            u64::MAX
        });
        Descriptors { limit, workers, sockets, connections_max, datagrams_max }
    }

    /// Warns where so many back ends may need more than may be open.
    pub fn check(&self, back_ends: usize) {
        let Descriptors { limit, workers, sockets, connections_max, datagrams_max } = *self;
        let needed = self.needed(back_ends);
        if needed > limit {
            tracing::warn!(
                limit,
                needed,
                workers,
                sockets,
                back_ends,
                connections_max,
                datagrams_max,
                "fewer files can be open than workers x sockets x back ends and TCP may need: raise `ulimit -n` \
                 (LimitNOFILE), or lower workers, sockets or, where queries over TCP go on as datagrams, outstanding_max"
            );
        }
    }

    fn needed(&self, back_ends: usize) -> u64 {
        let datagrams = self.workers * (OF_A_WORKER + self.sockets * back_ends);
        let of_connections = self.connections_max + self.datagrams_max;
        (datagrams + of_connections + OF_A_BACK_END * back_ends + OTHERS) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_grows_with_all_that_may_be_open() {
        let needed = |workers, sockets, back_ends, datagrams_max| {
            Descriptors { limit: 0, workers, sockets, connections_max: 800, datagrams_max }.needed(back_ends)
        };
        let base = needed(0, 4, 0, 0);
        assert_eq!(base, 800 + OTHERS as u64);
        assert_eq!(needed(32, 4, 8, 0) - base, 32 * (4 + 4 * 8) + 8 * (OPEN_MAX as u64 + 1));
        assert_eq!(needed(0, 4, 0, 2_000) - base, 2_000);
    }
}
