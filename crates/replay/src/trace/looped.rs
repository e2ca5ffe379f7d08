//! A trace that is gone through several times: read once, where it is short.

use std::sync::Arc;

use super::{Damage, Message, Skipped, Trace};

/// The most memory that a trace is kept in, in octets: some 300,000 queries. A longer one is read anew each time.
pub const KEPT_MAX: usize = 64 << 20;

/// What a message takes beside its octets: itself, its counts, and what the allocator needs for both.
const BESIDE: usize = size_of::<Message>() + size_of::<Arc<Message>>() + 48;

/// The messages of a trace, of which there are no others.
pub type Kept = Arc<[Arc<Message>]>;

/// Reads a trace whole; `None` where it takes more than [`KEPT_MAX`], or where it is damaged or has what gives no message,
/// which is told as it is read.
pub fn kept(trace: Trace) -> Option<Kept> {
    kept_within(trace, KEPT_MAX)
}

fn kept_within(mut trace: Trace, most: usize) -> Option<Kept> {
    let (mut messages, mut taken) = (Vec::new(), 0);
    while let Some(step) = trace.step() {
        let message = step.ok()?;
        if *trace.skipped() != Skipped::NONE {
            return None;
        }
        let Some(mut message) = message else { continue };
        message.octets.shrink_to_fit();
        taken += BESIDE + message.octets.len();
        if taken > most {
            return None;
        }
        messages.push(Arc::new(message));
    }
    (*trace.skipped() == Skipped::NONE).then(|| messages.into())
}

/// One time through a trace; an iterator of its messages, with `None` where it read on within what gives none.
#[derive(Debug)]
pub enum Looped {
    /// Read as it comes.
    Read(Box<Trace>),
    /// Kept, from so many messages on.
    Kept(Kept, usize),
}

impl Looped {
    /// What gave no message so far, by cause.
    pub fn skipped(&self) -> &Skipped {
        match self {
            Looped::Read(trace) => trace.skipped(),
            Looped::Kept(..) => &Skipped::NONE,
        }
    }
}

impl Iterator for Looped {
    type Item = Result<Option<Arc<Message>>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Looped::Read(trace) => Some(trace.step()?.map(|message| message.map(Arc::new))),
            Looped::Kept(messages, next) => {
                let message = messages.get(*next)?;
                *next += 1;
                Some(Ok(Some(Arc::clone(message))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::PORT;
    use std::io::Cursor;

    fn trace(text: &str) -> Trace {
        Trace::read(Cursor::new(text.to_owned()), PORT).expect("lines")
    }

    #[test]
    fn a_short_whole_trace_is_kept_as_it_was() {
        let lines = "1.0 192.0.2.1:1 udp a. A -\n# between\n2.0 192.0.2.2:1 tcp bcd. MX rd,edns=1232\n";
        let read: Vec<_> = Looped::Read(Box::new(trace(lines))).collect();
        assert!(read.len() == 2 && read.iter().all(Result::is_ok));
        let kept = kept(trace(lines)).expect("it is short");
        for _ in 0..2 {
            assert_eq!(Looped::Kept(Arc::clone(&kept), 0).collect::<Vec<_>>(), read);
        }
        let taken = kept.iter().map(|message| BESIDE + message.octets.len()).sum::<usize>();
        assert!(kept_within(trace(lines), taken).is_some() && kept_within(trace(lines), taken - 1).is_none());
        assert!(super::kept(trace(&format!("{lines}nothing\n"))).is_none(), "damage is told where it stands");
    }
}
