//! Hellos and reports between a balancer and its agents.
//!
//! Damaged octets end at their digest. So each input is read twice: as it is, and under a digest made anew, as if
//! whoever has the key had sent it.

use std::time::Duration;

use credit::key::MAC_LEN;
use credit::{Account, HELLO_LEN, Heard, Hearing, Hello, Key, Quota, REPORT_LEN, Refused, Report, Taken};

fn key() -> Key {
    Key::new(&[7; 32])
}

/// The same octets under a digest of their own.
fn signed(octets: &[u8]) -> Vec<u8> {
    let message = &octets[..octets.len().saturating_sub(MAC_LEN)];
    let mac = key().sign(message);
    [message, &mac[..octets.len() - message.len()]].concat()
}

/// A hello that is read is the same when it is written, and counts once.
pub(super) fn hello(octets: &[u8]) {
    let _ = Hello::read(octets, &key());
    let octets = signed(octets);
    match Hello::read(&octets, &key()) {
        Ok(hello) => {
            let mut out = [0; HELLO_LEN];
            hello.write(&key(), &mut out);
            assert_eq!(Hello::read(&out, &key()), Ok(hello));
            let mut hearing = Hearing::default();
            assert_eq!(hearing.take(&hello, hello.heard..=hello.heard), Heard::First);
            assert_eq!(hearing.take(&hello, 0..=u64::MAX), Heard::Old);
        }
        Err(refused) => assert_eq!(refused == Refused::Length, octets.len() != HELLO_LEN),
    }
}

pub(super) fn hellos() -> Vec<Vec<u8>> {
    let hello = |service: &str, sent| Hello {
        balancer: 1,
        nonce: 2,
        service: service.parse().expect("a service"),
        sequence: 3,
        heard: 4,
        sent,
        answered: sent / 2,
    };
    let write = |hello: Hello| {
        let mut out = vec![0; HELLO_LEN];
        hello.write(&key(), &mut out);
        out
    };
    [hello("udp:192.0.2.1:53", 0), hello("tcp:[2001:db8::1]:853", u64::MAX)].map(write).into()
}

/// A report that is read is the same when it is written, and whatever it says, an account does its sums.
pub(super) fn report(octets: &[u8]) {
    let _ = Report::read(octets, &key());
    let octets = signed(octets);
    match Report::read(&octets, &key()) {
        Ok(report) => {
            let mut out = [0; REPORT_LEN];
            report.write(&key(), &mut out);
            assert_eq!(Report::read(&out, &key()), Ok(report));
            account(&report);
        }
        Err(refused) => assert_eq!(refused == Refused::Length, octets.len() != REPORT_LEN),
    }
}

fn account(report: &Report) {
    let mut account = Account::new(1, 2, report.service);
    account.hello(Duration::ZERO, 0, 0);
    let now = Duration::from_millis(1);
    for report in [*report, Report { balancer: 1, nonce: 2, hello: 1, ..*report }] {
        let taken = account.take(&report, now);
        assert_eq!(account.report(now).is_some(), taken == Taken::Fresh);
        for sent in [0, report.limit, u64::MAX] {
            let credit = account.credit(now, sent);
            assert!(credit.is_none_or(|credit| credit == report.limit.saturating_sub(sent)));
            account.is_half_used(now, sent);
        }
        account = Account::new(1, 2, report.service);
        account.hello(Duration::ZERO, 0, 0);
    }
}

pub(super) fn reports() -> Vec<Vec<u8>> {
    let report = |service: &str, nonce, draining| Report {
        balancer: 1,
        nonce,
        service: service.parse().expect("a service"),
        sequence: 9,
        hello: 1,
        sent: 100,
        limit: 150,
        queue_delay: Duration::from_micros(700),
        drops: 3,
        backlog: 12,
        backlog_limit: 256,
        lease: Duration::from_millis(60),
        draining,
        quota: draining.then_some(Quota {
            quota: Duration::from_millis(20),
            period: Duration::from_millis(100),
            refill: Duration::from_millis(70),
            left_us: -300,
            cost: Duration::from_micros(250),
        }),
    };
    let write = |report: Report| {
        let mut out = vec![0; REPORT_LEN];
        report.write(&key(), &mut out);
        out
    };
    [report("udp:192.0.2.1:53", 2, false), report("tcp:[2001:db8::1]:853", 0, true)].map(write).into()
}
