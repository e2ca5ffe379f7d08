//! How many queries each client has under way at one thread: a table that never grows.

/// Places in the table. Clients whose hashes meet share one, and with it the limit.
const PLACES: usize = 1 << 14;

/// Queries under way by client.
#[derive(Debug)]
pub struct Clients {
    counts: Box<[u16]>,
    max: u16,
}

impl Clients {
    /// Nobody has any under way, and each may have `max`.
    pub fn new(max: u16) -> Clients {
        Clients { counts: vec![0; PLACES].into(), max }
    }

    /// Counts one more of the client with this hash, and returns where; `None` where it has as many as it may.
    #[inline]
    pub fn take(&mut self, hash: u64) -> Option<u32> {
        let place = hash as u32 % PLACES as u32;
        let count = &mut self.counts[place as usize];
        (*count < self.max).then(|| {
            *count += 1;
            place
        })
    }

    /// One that was counted there is no longer under way.
    #[inline]
    pub fn give_back(&mut self, place: u32) {
        let count = &mut self.counts[place as usize];
        *count = count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_limit() {
        let mut clients = Clients::new(2);
        let taken = [7, 7, 7, 8].map(|hash| clients.take(hash));
        assert_eq!(taken, [Some(7), Some(7), None, Some(8)]);
        clients.give_back(7);
        assert_eq!([7, 7].map(|hash| clients.take(hash)), [Some(7), None]);
    }
}
