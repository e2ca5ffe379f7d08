//! A balancer that does not start, for the system refuses it descriptors, leaves no thread behind.
//!
//! In a test program of its own, for the limit is the whole process's, and only falls.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use balancer::client_address::ClientAddress;
use balancer::connections::Onward;
use balancer::field::{DEFAULT_POOL, Pools};
use balancer::watch::{Probing, question};
use balancer::{Options, Server, Service};
use net::client::is_out_of_descriptors;
use net::tcp::Limits;
use nix::sys::resource::{Resource, setrlimit};

/// What a test that hangs is ended by.
const PATIENCE: Duration = Duration::from_secs(60);

/// More descriptors than these options need.
const ENOUGH: u64 = 40;

fn options() -> Options {
    Options {
        listen: vec![([127, 0, 0, 1], 0).into(); 2],
        back_ends: vec![Server {
            address: ([127, 0, 0, 1], 9).into(),
            tls: None,
            weight: 1,
            pools: Pools::DEFAULT,
        }],
        pools: vec![DEFAULT_POOL.into()],
        rules: Vec::new(),
        user: None,
        policy: "wrr".into(),
        workers: Some(2),
        timeout: Duration::from_secs(1),
        tries: 1,
        sockets: 1,
        outstanding_max: 16,
        per_client_max: 16,
        onward: Onward::Connections,
        allow: None,
        cache: None,
        tap: None,
        client_address: ClientAddress::Hidden,
        tcp: Limits::default(),
        encrypted: Vec::new(),
        quic: Vec::new(),
        probing: Probing {
            question: question(b"\0", 2, false),
            client_address: ClientAddress::Hidden,
            is_strict: false,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            slow_start: Duration::ZERO,
        },
        trust: None,
        credit: None,
        http: Some(([127, 0, 0, 1], 0).into()),
        token: None,
    }
}

/// How many threads there are, without the runtime's. One that has just begun does not have its name yet.
fn threads() -> usize {
    // Entries would keep the folder open, and there may be no descriptor left for more.
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it");
    let tasks: Vec<_> = tasks.map(|task| task.expect("it can be read").path().join("comm")).collect();
    let names = tasks.iter().filter_map(|name| match fs::read_to_string(name) {
        Err(cause) if is_out_of_descriptors(&cause) => panic!("threads are left that have all descriptors"),
        name => name.ok(),
    });
    names.filter(|name| !name.starts_with("tokio")).count()
}

#[tokio::test]
async fn what_does_not_start_leaves_no_thread() {
    let lowest_free = File::open("/dev/null").expect("a descriptor is left").as_raw_fd() as u64;
    let before = threads();
    let (mut started, mut refused) = (0, 0);
    for limit in (lowest_free + 1..lowest_free + ENOUGH).rev() {
        setrlimit(Resource::RLIMIT_NOFILE, limit, limit).expect("the limit can be lowered");
        match Service::start(options()).await {
            Ok(service) => {
                service.stop().await;
                started += 1;
            }
            Err(_) => refused += 1,
        }
        // A thread may still be seen for a moment after it was joined.
        let until = Instant::now() + PATIENCE;
        while threads() > before {
            assert!(Instant::now() < until, "threads are left, with {limit} descriptors");
            tokio::task::yield_now().await;
        }
    }
    assert!(started > 0 && refused > 0, "{started} {refused}");
}
