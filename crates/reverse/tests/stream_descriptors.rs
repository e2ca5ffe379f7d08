//! A face over TCP without file descriptors says so, and goes on.
//!
//! In a test program of its own, for the limit is the whole process's.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use net::admission::Admission;
use net::shutdown::Shutdown;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use reverse::face::stream::{Conversation, Counters, Step, Then, serve};
use routing::Acl;

/// What a test that hangs is ended by.
const PATIENCE: Duration = Duration::from_secs(20);

struct Silent;

impl Conversation for Silent {
    fn answer(&mut self, input: &[u8], _: &mut Vec<u8>) -> Step {
        Step { taken: input.len(), then: Then::Read }
    }
}

async fn until(is: impl Fn() -> bool, what: &str) {
    let waiting = async {
        while !is() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect(what);
}

#[tokio::test]
async fn out_of_descriptors_is_told_once_and_passes() {
    let listener = net::tcp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (counters, shutdown, told) =
        (Arc::<Counters>::default(), Shutdown::new(), Arc::<AtomicU64>::default());
    let tells = told.clone();
    let tell = move |cause: &std::io::Error| {
        assert_eq!(cause.raw_os_error(), Some(Errno::EMFILE as i32));
        tells.fetch_add(1, Ordering::Relaxed);
    };
    let places = Admission::new(1, 1);
    let serving =
        serve(listener, places, Acl::default(), counters.clone(), shutdown.clone(), tell, |_| Silent);
    let task = tokio::spawn(serving);
    // The listener is registered before descriptors run out.
    tokio::task::yield_now().await;

    let client = TcpStream::connect(address).unwrap();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // All descriptors up to the client's are taken: the next one would be above the limit.
    let lowest_free = client.try_clone().unwrap().as_raw_fd() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, lowest_free, hard).unwrap();
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    until(|| count(&counters.accept_failed) >= 2, "accepting fails, and is tried again").await;
    assert_eq!((count(&counters.accepted), count(&told)), (0, 1), "it is told once, not each time");

    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    until(|| count(&counters.accepted) == 1, "the connection that waited is accepted").await;
    drop(client);
    shutdown.begin();
    task.await.unwrap().unwrap();
}
