//! `pointsman balance` and the agents that grant it credit, where one of them stops, reports get lost, or few connections
//! may wait: no query is.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Instant;

use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};
use tests::balancing::{Balancing, Scripted, answer};
use tests::credit::{BadWay, key_file};
use tests::folder::Folder;
use tests::http::Client;
use tests::peer::free_address;
use tests::program::{PROGRAM_WAIT, Program};
use tests::query::{self, Question};

/// Starts a balancer that takes reports; nobody is too slow for it.
fn balancing(back_ends: &[SocketAddr], key: &str, more: &[&str]) -> Balancing {
    let usual = ["--http", "127.0.0.1:0", "--workers", "1", "--timeout", "30s"];
    let credit = ["--credit", "127.0.0.1:0", "--key", key];
    Balancing::start(back_ends, &[&usual[..], &credit, more].concat())
}

fn agent(service: &str, balancer: SocketAddr, key: &str) -> Program {
    let to = balancer.to_string();
    Program::start(&["agent", "--service", service, "--balancer", &to, "--key", key, "--http", "127.0.0.1:0"])
}

/// Asks, and is answered, until it is as wanted; returns how often.
fn ask_until(balancing: &Balancing, mut wanted: impl FnMut() -> bool) -> usize {
    let (until, mut count) = (Instant::now() + PROGRAM_WAIT, 0);
    loop {
        assert_eq!(Question::new("www.example", "A").udp(balancing.dns).rcode, "NOERROR");
        count += 1;
        if wanted() {
            return count;
        }
        assert!(Instant::now() < until, "it never is as wanted");
    }
}

fn has_lease(balancing: &Balancing, back_end: SocketAddr) -> bool {
    !balancing.back_end(back_end)["credit"].is_null()
}

/// What the only worker's last pick went by.
fn step(balancing: &Balancing) -> String {
    let status = balancing.client().call("GET", "/v1/status", "").json();
    let steps = status["steps"].as_object().expect("an object");
    steps.keys().next().cloned().unwrap_or_default()
}

/// No query was given up, sent twice or left behind.
fn nothing_was_lost(balancing: &Balancing) {
    for name in ["failed", "shed", "steered", "retries", "no_id", "full", "full_client"] {
        assert_eq!(balancing.metric(&format!("pointsman_balance_{name}_total")), 0.0, "{name}");
    }
    let status = balancing.client().call("GET", "/v1/status", "").json();
    for back_end in status["back_ends"].as_array().expect("a list") {
        assert_eq!((&back_end["in_flight"], &back_end["timeouts"]), (&0.into(), &0.into()), "{back_end}");
    }
}

/// One agent stops, and then the other: what they have granted runs out, the policy goes on with less and less, and what
/// is in flight meanwhile is answered.
#[test]
fn agents_that_stop_take_nothing_with_them() {
    let folder = Folder::new();
    let key = key_file(&folder);
    let holding = || {
        let held = std::sync::Mutex::new(Vec::new());
        Scripted::start(move |query, _, socket, from| {
            let mut held = held.lock().expect("nothing panics");
            held.push((answer(query, 0), from));
            match query[13] {
                b'h' => {}
                b'r' => held.drain(..).for_each(|(reply, to)| {
                    socket.send_to(&reply, to).expect("loopback sends");
                }),
                _ => {
                    let (reply, to) = held.pop().expect("it was put there");
                    socket.send_to(&reply, to).expect("loopback sends");
                }
            }
        })
    };
    let servers = [holding(), holding()];
    let addresses = servers.each_ref().map(|server| server.address);
    let balancing = balancing(&addresses, &key, &[]);
    let to = balancing.credit.expect("it was asked for");
    let agents = addresses.map(|address| agent(&format!("udp:{address}"), to, &key));
    let all_lease = |is_leased| addresses.iter().all(|address| has_lease(&balancing, *address) == is_leased);
    ask_until(&balancing, || all_lease(true) && step(&balancing) == "credit");

    let (client, held) = (query::socket(balancing.dns), 8);
    for number in 0..held {
        let mut message = Question::new("held.example", "A").message();
        message[..2].copy_from_slice(&[9, number]);
        client.send(&message).expect("loopback sends");
    }
    let in_flight = || addresses.map(|address| balancing.back_end(address)["in_flight"].as_u64());
    ask_until(&balancing, || in_flight().iter().flatten().sum::<u64>() == u64::from(held));

    agents[0].signal(Signal::SIGSTOP);
    ask_until(&balancing, || !has_lease(&balancing, addresses[0]) && has_lease(&balancing, addresses[1]));
    agents[1].signal(Signal::SIGSTOP);
    ask_until(&balancing, || all_lease(false));
    let mut steps = Vec::new();
    ask_until(&balancing, || {
        steps.push(step(&balancing));
        steps.last().is_some_and(|step| step == "latency")
    });
    steps.dedup();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    // The first lasts for half a second, which a busy machine may miss.
    assert!(["two_choices", "latency"].ends_with(&steps), "{steps:?}");

    for address in addresses {
        assert_eq!(Question::new("release.example", "A").udp(address).rcode, "NOERROR");
    }
    let mut answered = vec![0; usize::from(held)];
    for _ in 0..held {
        let mut reply = [0; 512];
        client.recv(&mut reply).expect("an answer");
        assert_eq!((reply[0], reply[3] & 0x0f), (9, 0));
        answered[usize::from(reply[1])] += 1;
    }
    assert!(answered.iter().all(|count| *count == 1), "{answered:?}");
    nothing_was_lost(&balancing);

    agents.iter().for_each(|agent| agent.signal(Signal::SIGCONT));
    ask_until(&balancing, || all_lease(true) && step(&balancing) == "credit");
    nothing_was_lost(&balancing);
    balancing.stop();
}

/// An agent drains its service, and is gone without having taken that back.
#[test]
fn what_an_agent_has_drained_ends_with_it() {
    let folder = Folder::new();
    let key = key_file(&folder);
    let server = Scripted::answering(0);
    let balancing = balancing(&[server.address], &key, &[]);
    let service = format!("udp:{}", server.address);
    let agent = agent(&service, balancing.credit.expect("it was asked for"), &key);
    balancing.wait(server.address, |_| has_lease(&balancing, server.address));
    agent.signal(Signal::SIGUSR1);
    balancing.wait(server.address, |status| status["standing"] == "draining");
    let resume = format!("/v1/backends/{}/resume", server.address);
    let until = Instant::now() + PROGRAM_WAIT;
    // A busy machine may let a lease run out.
    loop {
        let refused = balancing.client().call("POST", &resume, "");
        if refused.status == 409 {
            assert!(refused.text().contains("SIGUSR2"), "{}", refused.text());
            break;
        }
        assert!(Instant::now() < until, "{}", refused.text());
    }
    balancing.wait(server.address, |status| status["standing"] == "draining");
    drop(agent);
    balancing.wait(server.address, |status| status["standing"] == "up");
    balancing.stop();
}

/// Half of all reports get lost, nine of ten, all, and then none; each that comes is repeated behind the next one.
#[test]
fn lost_and_repeated_reports_lose_no_query() {
    let folder = Folder::new();
    let key = key_file(&folder);
    let server = Scripted::answering(0);
    let balancing = balancing(&[server.address], &key, &[]);
    let way = BadWay::to(balancing.credit.expect("it was asked for"));
    let _agent = agent(&format!("udp:{}", server.address), way.address, &key);
    let has_lease = || has_lease(&balancing, server.address);
    let mut asked = ask_until(&balancing, has_lease);
    for percent in [50, 90] {
        way.lose(percent);
        let [lost, passed] = way.counts();
        asked += ask_until(&balancing, || {
            let [now_lost, now_passed] = way.counts();
            now_lost >= lost + 20 && now_passed >= passed + 4
        });
    }
    way.lose(100);
    asked += ask_until(&balancing, || !has_lease());
    assert_ne!(step(&balancing), "blind");
    way.lose(0);
    asked += ask_until(&balancing, has_lease);
    assert!(balancing.metric("pointsman_balance_reports_total{verdict=\"repeated\"}") >= 8.0);
    assert_eq!(server.asked(), asked);
    nothing_was_lost(&balancing);
    balancing.stop();
}

/// A server that accepts nobody for a while, at which ten connections may wait, beside one without an agent: at most ten
/// do, the kernel turns nobody away, all others are answered meanwhile, and these when it goes on.
#[test]
fn where_ten_connections_may_wait_no_more_are_made() {
    let until = Instant::now() + PROGRAM_WAIT;
    // A busy machine may keep agent or balancer from running for so long that nothing is granted: then it is tried again.
    while !ten_may_wait() {
        assert!(Instant::now() < until, "credit never lasts");
    }
}

/// Tells whether credit was there all the time.
fn ten_may_wait() -> bool {
    const QUERIES: u8 = 60;
    let folder = Folder::new();
    let key = key_file(&folder);
    let addresses = [free_address(), free_address()];
    let _alive = addresses.map(|address| Scripted::answering_at(address, 0));
    let narrow = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    narrow.bind(&addresses[0].into()).expect("it is free");
    narrow.listen(10).expect("it is bound");
    let (opens, opened) = channel();
    std::thread::spawn(move || {
        // It ends with the test where that fails before.
        if opened.recv().is_ok() {
            serve(&narrow.into());
        }
    });
    let wide = TcpListener::bind(addresses[1]).expect("it is free");
    std::thread::spawn(move || serve(&wide));

    let balancing = balancing(&addresses, &key, &["--tcp", "tcp"]);
    let to = balancing.credit.expect("it was asked for");
    let mut agent = agent(&format!("tcp:{}", addresses[0]), to, &key);
    let line = agent.line("listening on http://");
    let http = line.rsplit('/').next().and_then(|address| address.parse().ok()).expect("an address");
    let until = Instant::now() + PROGRAM_WAIT;
    while balancing.metric("pointsman_balance_reports_total{verdict=\"fresh\"}") < 1.0 {
        assert!(Instant::now() < until, "no report comes");
    }

    let mut client = query::connect(balancing.dns);
    for number in 0..QUERIES {
        let mut message = Question::new("www.example", "A").message();
        message[..2].copy_from_slice(&[9, number]);
        query::send(&mut client, &message).expect("it is taken");
    }
    let all = usize::from(QUERIES);
    let mut answered = vec![0; all];
    let mut take = |count: usize| {
        for _ in 0..count {
            let reply = query::receive(&mut client).expect("an answer");
            assert_eq!((reply[0], reply[3] & 0x0f), (9, 0));
            answered[usize::from(reply[1])] += 1;
        }
    };
    let count = |address, what: &str| {
        let status = balancing.back_end(address);
        status[what].as_u64().expect("a number") as usize
    };
    let until = Instant::now() + PROGRAM_WAIT;
    let waiting = loop {
        let waiting = count(addresses[0], "in_flight");
        if waiting + count(addresses[1], "answered") == all {
            break waiting;
        }
        assert!(Instant::now() < until, "{waiting} wait");
    };
    if balancing.metric("pointsman_balance_picks_total{why=\"credit\"}") < f64::from(QUERIES) {
        return false;
    }
    assert!(waiting <= 10, "{waiting}");
    take(all - waiting);
    opens.send(()).expect("the server listens");
    take(waiting);
    assert!(answered.iter().all(|count| *count == 1), "{answered:?}");
    // What the agent says is from after all that.
    loop {
        let seen = Client::new(http).call("GET", "/v1/status", "").json()["services"][0].clone();
        if seen["balancers"][0]["sent"].as_u64() >= Some(waiting as u64) && seen["backlog_limit"] == 10 {
            assert_eq!(seen["drops"], 0, "{seen}");
            break;
        }
        assert!(Instant::now() < until, "{seen}");
    }
    nothing_was_lost(&balancing);
    balancing.stop();
    true
}

/// Answers whatever is asked over connections, a thread each.
fn serve(listener: &TcpListener) {
    let converse = |mut stream: TcpStream| {
        while let Ok(query) = query::receive(&mut stream) {
            if query::send(&mut stream, &answer(&query, 0)).is_err() {
                return;
            }
        }
    };
    // Threads end with the test's process, or with their connections.
    for stream in listener.incoming().map_while(Result::ok) {
        std::thread::spawn(move || converse(stream));
    }
}
