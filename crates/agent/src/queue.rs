//! What the kernel says of the queues of a service, and how much room that is. Pure.

use std::time::Duration;

/// What the kernel says of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Tells the socket from all others of the machine: its inode.
    pub inode: u32,
    /// What waits in it.
    pub waiting: Waiting,
    /// What the kernel has turned away at it since it was made; begins again at 0 after 2^32.
    pub drops: u32,
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Datagrams to be received, in octets of the kernel's memory.
    Datagrams {
        /// What is charged to the socket, by which the kernel admits datagrams (`sk_rmem_alloc`).
        charged: u32,
        /// What may be charged (`sk_rcvbuf`).
        room: u32,
        /// The part of what is charged that really waits. The rest was received, and the kernel gives it back later:
        /// where it comes to a quarter of the room, or the queue is empty (`forward_deficit` of `udp_sock`). In a
        /// sample that is not whole it is all that is charged.
        queued: u32,
    },
    /// Connections to be accepted.
    Connections {
        /// How many.
        waiting: u32,
        /// How many may be.
        limit: u32,
    },
}

/// All sockets of a service at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken.
    pub at: Duration,
    /// The sockets; none where the service was not found.
    pub queues: Vec<Queue>,
}

/// What a service can take, in datagrams or connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// How many more will not be turned away.
    pub free: u64,
    /// How many wait: the longest queue times the number of sockets.
    pub length: u64,
    /// How many can wait.
    pub limit: u64,
}

impl Room {
    /// The room in queues, where a datagram is charged `charge` octets.
    ///
    /// The kernel picks one of several sockets by the addresses of the datagram, so what is free in the others is of
    /// no use to who lands in the fullest one: the room is that of the fullest times their number.
    ///
    /// # Panics
    /// Where `charge` is 0.
    pub fn of(queues: &[Queue], charge: u32) -> Self {
        let rooms = queues.iter().map(|queue| match queue.waiting {
            Waiting::Datagrams { charged, room, queued } => Self {
                free: (room.saturating_sub(charged) / charge).into(),
                length: queued.div_ceil(charge).into(),
                limit: (room / charge).into(),
            },
            Waiting::Connections { waiting, limit } => Self {
                free: limit.saturating_sub(waiting).into(),
                length: waiting.into(),
                limit: limit.into(),
            },
        });
        let count = queues.len() as u64;
        let fullest = rooms.reduce(|one, other| Self {
            free: one.free.min(other.free),
            length: one.length.max(other.length),
            limit: one.limit.min(other.limit),
        });
        let Self { free, length, limit } = fullest.unwrap_or_default();
        Self { free: free * count, length: length * count, limit: limit * count }
    }
}

/// How many sockets' drops are remembered: more than a server has, and little memory.
const SOCKETS_MAX: usize = 4096;

/// Adds up what was turned away at sockets that come and go.
#[derive(Clone, Debug, Default)]
pub struct Drops {
    total: u64,
    /// Inode and last count of each socket.
    last: Vec<(u32, u32)>,
    has_begun: bool,
}

impl Drops {
    /// Takes the counts of a sample; returns how many are new.
    ///
    /// What was dropped before the first sample does not count; what a socket that comes later has dropped does.
    pub fn observe(&mut self, queues: &[Queue]) -> u64 {
        let mut more = 0;
        for queue in queues {
            match self.last.iter_mut().find(|(inode, _)| *inode == queue.inode) {
                Some((_, last)) => {
                    more += u64::from(queue.drops.wrapping_sub(std::mem::replace(last, queue.drops)))
                }
                None => {
                    if self.has_begun {
                        more += u64::from(queue.drops);
                    }
                    if self.last.len() < SOCKETS_MAX {
                        self.last.push((queue.inode, queue.drops));
                    }
                }
            }
        }
        // Where nothing is there, it may be between two starts.
        if !queues.is_empty() {
            self.last.retain(|(inode, _)| queues.iter().any(|queue| queue.inode == *inode));
            self.has_begun = true;
        }
        self.total += more;
        more
    }

    /// All that was turned away since the first sample.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(inode: u32, charged: u32, room: u32, queued: u32) -> Queue {
        Queue { inode, waiting: Waiting::Datagrams { charged, room, queued }, drops: 0 }
    }

    fn connections(inode: u32, waiting: u32, limit: u32) -> Queue {
        Queue { inode, waiting: Waiting::Connections { waiting, limit }, drops: 0 }
    }

    #[test]
    fn room_is_that_of_the_fullest_times_the_number() {
        // The states of a socket of 256 slots as they were measured: what is charged and what is queued differ.
        const ROOM: u32 = 212_992;
        for (queues, room) in [
            (vec![], (0, 0, 0)),
            (vec![datagrams(1, 0, ROOM, 0)], (256, 0, 256)),
            (vec![datagrams(1, ROOM, ROOM, 163_072)], (0, 196, 256)),
            (vec![datagrams(1, 106_496, ROOM, 79_872)], (128, 96, 256)),
            (vec![datagrams(1, 53_248, ROOM, 832)], (192, 1, 256)),
            // A mixture: part of a charge is a datagram that waits, and no room for one.
            (vec![datagrams(1, 833, ROOM, 833)], (254, 2, 256)),
            // The kernel lets one go beyond.
            (vec![datagrams(1, ROOM + 832, ROOM, ROOM)], (0, 256, 256)),
            (vec![datagrams(1, 0, ROOM, 0), datagrams(2, 83_200, ROOM, 83_200)], (312, 200, 512)),
            (vec![datagrams(1, 0, 832, 0), datagrams(2, 0, ROOM, 0)], (2, 0, 2)),
            (vec![connections(1, 3, 10)], (7, 3, 10)),
            (vec![connections(1, 11, 10)], (0, 11, 10)),
            (vec![connections(1, 0, 10), connections(2, 8, 10)], (4, 16, 20)),
        ] {
            let found = Room::of(&queues, 832);
            assert_eq!((found.free, found.length, found.limit), room, "{queues:?}");
        }
    }

    #[test]
    fn drops_are_added_up_over_sockets_that_come_and_go() {
        let mut drops = Drops::default();
        let at = |inode, count| Queue { drops: count, ..connections(inode, 0, 1) };
        for (queues, more) in [
            (vec![], 0),
            (vec![at(1, 50)], 0),
            (vec![at(1, 53), at(2, 4)], 7),
            (vec![at(1, 53), at(2, 4)], 0),
            (vec![], 0),
            // The same sockets as before.
            (vec![at(1, 54), at(2, 4)], 1),
            // Started again.
            (vec![at(3, u32::MAX)], u64::from(u32::MAX)),
            (vec![at(3, 1)], 2),
        ] {
            assert_eq!(drops.observe(&queues), more, "{queues:?}");
        }
        assert_eq!(drops.total(), 8 + u64::from(u32::MAX) + 2);
    }
}
