//! A listener without file descriptors waits and goes on.
//!
//! In a test program of its own, for the limit is the whole process's.

use net::shutdown::Shutdown;
use net::tcp::{self, Counters, Limits, Verdict};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a test that hangs is ended by.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn out_of_descriptors_is_counted_and_passes() {
    let listener = tcp::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback binds");
    let address = listener.local_addr().expect("a bound socket has an address");
    let (counters, shutdown) = (Arc::new(Counters::default()), Shutdown::new());
    let told = Arc::new(AtomicU64::new(0));
    let task = tokio::spawn(tcp::serve(
        (listener, None),
        Arc::new(Limits::default().admission()),
        Limits::default(),
        Arc::clone(&counters),
        shutdown.clone(),
        {
            let told = Arc::clone(&told);
            move |cause| {
                assert_eq!(cause.raw_os_error(), Some(Errno::EMFILE as i32));
                told.fetch_add(1, Ordering::Relaxed);
            }
        },
        |_, _| |_: &[u8], _: &mut [u8]| Verdict::Close,
    ));
    // The listener is registered before descriptors run out.
    tokio::task::yield_now().await;

    let mut client = TcpStream::connect(address).expect("the listener listens");
    client.set_read_timeout(Some(PATIENCE)).expect("the option can be set");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit can be read");
    // All descriptors up to the client's are taken: the next one would be above the limit.
    let lowest_free = client.try_clone().expect("a descriptor is left").as_raw_fd() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, lowest_free, hard).expect("the limit can be lowered");
    let waiting = async {
        while counters.accept_failed.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("accepting fails, and is tried again");
    assert_eq!(counters.accepted.load(Ordering::Relaxed), 0);
    assert_eq!(told.load(Ordering::Relaxed), 1, "it is told once, not each time");

    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the limit can be raised again");
    let waiting = async {
        while counters.accepted.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the connection that waited is accepted");
    shutdown.begin();
    task.await.expect("no panic").expect("no error");
    assert_eq!(client.read(&mut [0; 1]).expect("the connection ends well"), 0);
}
