//! The loop of a UDP worker allocates nothing.
//!
//! In a test program of its own, for it brings its own allocator.
#![allow(unsafe_code, reason = "an allocator can be written in no other way")]

use net::udp::{self, BATCH_MAX, Batch, Sent};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};

/// The system's allocator, which counts calls per thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // None while the thread ends; nothing is counted then.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every method passes its arguments on to the system's allocator unchanged and returns what that
// returns. Counting allocates nothing: the thread-local is constant and needs no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are those of this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are those of this call.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are those of this call.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn receive_answer_and_send_allocate_nothing() {
    let listener = udp::bind("0.0.0.0:0".parse().expect("an address"), None).expect("loopback binds");
    let asked = ([127, 0, 0, 1], listener.local_address().port());
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    let mut batch = Batch::new(1232);
    let mut sent = Sent::default();
    let mut seen = 0;
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the allocator does not count");
    for _ in 0..50 {
        for _ in 0..BATCH_MAX {
            client.send_to(b"a query of some length", SocketAddr::from(asked)).expect("loopback sends");
            seen += 1;
        }
        let mut left = BATCH_MAX;
        while left > 0 {
            left -= batch.receive(&listener).expect("datagrams are there");
            batch.answer_each(|datagram, out| {
                out[..datagram.bytes.len()].copy_from_slice(datagram.bytes);
                Some(datagram.bytes.len())
            });
            let now = batch.send(&listener);
            sent = Sent { sent: sent.sent + now.sent, failed: sent.failed + now.failed };
        }
    }
    assert_eq!(ALLOCATIONS.get(), before, "allocations in the loop");
    assert_eq!(sent, Sent { sent: seen, failed: 0 });
}
