//! What a report says to people, and to the exit code.

use api::replay::{Comparison, HeldUp, Percentiles, ReplayReport, Sockets};
use replay::remarks::counted;
use replay::trace::Skip;

use super::super::trace::{changed, skipped};
use crate::failure::Failure;
use crate::session;

/// What a run says beside its report.
#[derive(Default)]
pub(super) struct Beside {
    /// Where queries went, with the ports of their transports.
    pub(super) asked: Vec<String>,
    /// Why the first connection under TLS, or the first query on one, failed.
    pub(super) tls_error: Option<String>,
    /// Where the trace breaks off.
    pub(super) damage: Option<String>,
    /// Outputs that are not whole, each as a sentence.
    pub(super) broken: Vec<String>,
}

/// What the exit code says of a report, with all that is wrong; what failed decides before what was late.
pub(super) fn verdict(report: &ReplayReport, beside: Beside) -> Result<(), Failure> {
    let mut failed = beside.broken;
    failed.extend(beside.damage);
    // What was only cut off by an interruption may have been answered.
    let cut_off = report.lost_by.get("interrupted").copied().unwrap_or(0);
    if report.answers == 0 && report.lost > cut_off {
        let causes: Vec<String> =
            report.lost_by.iter().map(|(cause, count)| format!("{} {count}", named(cause))).collect();
        let why = beside.tls_error.map(|error| format!("; the first failure was: {error}"));
        failed.push(format!(
            "nobody answered at {}: {}{}{}",
            beside.asked.join(", "),
            causes.join(", "),
            why.unwrap_or_default(),
            unasked(report).unwrap_or_default()
        ));
    }
    let late = report.lateness_us.filter(|_| report.on_time == Some(false)).map(|lateness| {
        let awake = if report.awake { "" } else { " --awake on a virtual machine," };
        format!(
            "OUT OF TOLERANCE: 99.9 % of the queries were sent within {:.0} us of their time, more than the {:.0} us \
             allowed (--tolerance).\nThis run is no faithful replay: use{awake} more --threads, a slower --speed or a \
             quieter machine ({}).",
            lateness.p999,
            report.tolerance_us,
            held_up(&report.held_up)
        )
    });
    match (failed.is_empty(), late) {
        (true, None) => Ok(()),
        (true, Some(late)) => Err(Failure::Late(late)),
        (false, late) => {
            failed.extend(late);
            Err(Failure::Failed(failed.join("\n")))
        }
    }
}

/// A cause of a loss, as people are told it: what refuses is a port, and no name server with its REFUSED.
fn named(cause: &str) -> &str {
    if cause == "refused" { "port unreachable" } else { cause }
}

/// That not all servers can have been asked, where that is so.
fn unasked(report: &ReplayReport) -> Option<String> {
    let (clients, servers) = (report.clients, report.servers.len());
    (clients < servers as u64).then(|| {
        let asks = if clients == 1 { "client, which stays" } else { "clients, each of which stays" };
        format!("\nNot all of the {servers} servers were asked: there was {clients} {asks} with one of them.")
    })
}

/// The report for people, with its remarks.
pub(super) fn shown(report: &ReplayReport, remarks: &[String]) -> String {
    let share = |count: u64| match report.queries {
        0 => "-".into(),
        queries => format!("{:.2} %", count as f64 * 100.0 / queries as f64),
    };
    let mut counts = session::table(&["QUERIES", "COUNT", "SHARE"]);
    let mut row = |what: &str, count: u64| {
        counts.add_row([what.to_owned(), count.to_string(), share(count)]);
    };
    row("due", report.queries);
    row("answered", report.answers);
    report.rcodes.iter().for_each(|(rcode, count)| row(&format!("  {rcode}"), *count));
    row("lost", report.lost);
    report.lost_by.iter().for_each(|(cause, count)| row(&format!("  {}", named(cause)), *count));
    report.transports.iter().for_each(|(transport, count)| row(&format!("over {transport}"), *count));
    row("truncated, asked again over tcp", report.tc_retries);

    let mut times = session::table(&["MICROSECONDS", "P50", "P90", "P99", "P99.9", "MAX"]);
    let mut row = |what: &str, times_us: Option<Percentiles>| {
        let told = times_us.map(|Percentiles { p50, p90, p99, p999, max, .. }| {
            [p50, p90, p99, p999, max].map(|time| format!("{time:.1}"))
        });
        let told = told.unwrap_or_else(|| ["-"; 5].map(str::to_owned));
        times.add_row(std::iter::once(what.to_owned()).chain(told));
    };
    row("lateness (sent - due)", report.lateness_us);
    row("latency from due", report.latency_us);
    row("latency from sent", report.latency_sent_us);
    row("  quiet clients", report.quiet.latency_us);
    row("  busy clients", report.busy.latency_us);

    let mutation = report.mutation.as_ref().map_or_else(String::new, |told| format!("\n\n{}", changed(told)));
    let comparison = report.comparison.as_ref().map_or_else(String::new, compared);
    let skips = Skip::ALL.into_iter().filter_map(|skip| {
        let count = report.schedule.skipped.get(skip.name())?;
        Some((skip, *count))
    });
    let skipped = skipped(skips).map_or_else(String::new, |told| format!("\n{told}"));
    let remarks: String = remarks.iter().map(|remark| format!("\n{remark}")).collect();
    let sockets = &report.sockets;
    let unexpected = &report.unexpected;
    format!(
        "{}\n\n{}\n\n{} in {:.3} s; {:.0} queries a second\n\
         sockets: {}, {}; at most {} open; closed {} idle, {} for others, {} by the server\n\
         unexpected: {} late, {}, {}\n\
         held up: {}{skipped}{remarks}{mutation}{comparison}",
        session::lines(counts),
        session::lines(times),
        counted(report.clients, "client"),
        report.seconds,
        report.queries as f64 / report.seconds.max(f64::MIN_POSITIVE),
        datagrams(sockets),
        connections(sockets),
        sockets.most_open,
        sockets.closed_idle,
        sockets.evicted,
        sockets.closed_by_server,
        unexpected.late,
        counted(unexpected.duplicates, "duplicate"),
        counted(unexpected.aliens, "alien"),
        held_up(&report.held_up),
    )
}

/// What held the senders up, in words.
fn held_up(told: &HeldUp) -> String {
    format!(
        "{:.1} ms with other programs on the core, {:.0} ms with the machine's host",
        told.waited_us / 1e3,
        told.stolen_us / 1e3
    )
}

/// Sockets for datagrams: where clients share them, they have none of their own.
fn datagrams(sockets: &Sockets) -> String {
    match sockets.shared {
        0 => format!("{} UDP", sockets.udp),
        shared => format!("{shared} UDP shared by all clients"),
    }
}

/// Connections, those over TCP first, with how many of them came about; and handshakes, where some are encrypted.
fn connections(sockets: &Sockets) -> String {
    let Sockets { tcp, tls, https, quic, tcp_established, handshakes_full, handshakes_resumed, .. } = sockets;
    let some = |count: u64, name: &str| if count > 0 { format!(", {count} {name}") } else { String::new() };
    let mut told = format!("{tcp} TCP{}{}", some(*tls, "TLS"), some(*https, "HTTPS"));
    if tcp + tls + https > 0 {
        told += &format!(" ({tcp_established} established)");
    }
    told += &some(*quic, "QUIC");
    if tls + https + quic > 0 {
        told += &format!("; handshakes {handshakes_full} full, {handshakes_resumed} resumed");
    }
    told
}

/// Answers beside the recorded ones, as a table.
fn compared(told: &Comparison) -> String {
    let mut table = session::table(&["ANSWER BESIDE THE RECORDED", "COUNT"]);
    let mut row = |what: &str, count: u64| {
        table.add_row([what.to_owned(), count.to_string()]);
    };
    row("same", told.same);
    told.differing.iter().for_each(|(what, count)| row(&format!("differs: {what}"), *count));
    row("one is truncated", told.truncated);
    row("none was recorded", told.unrecorded);
    let beyond = match told.pairs_beyond {
        0 => String::new(),
        count => format!(", {count} beyond its limit"),
    };
    let unmatched = match told.unmatched {
        0 => String::new(),
        1 => "; 1 recorded response belongs to no query".into(),
        count => format!("; {count} recorded responses belong to no query"),
    };
    let (lines, kept) = (session::lines(table), counted(told.pairs_kept, "differing pair"));
    format!("\n\n{lines}\n\n{kept} kept{beyond}{unmatched}")
}

#[cfg(test)]
mod tests {
    use api::replay::{Latency, ScheduleMet};

    use super::*;

    #[test]
    fn all_that_is_wrong_is_told() {
        let damage = || Some("a.pcap: it ends".to_owned());
        const LATE: &str = "OUT OF TOLERANCE";
        const NOBODY: &str =
            "nobody answered at 127.0.0.1:8853: port unreachable 5; the first failure was: no";
        const ENDS: &str = "a.pcap: it ends";
        for (is_late, is_answered, damage, broken, expected) in [
            (false, true, None, None, &[][..]),
            (true, true, None, None, &[LATE]),
            (false, false, None, None, &[NOBODY]),
            (true, false, None, None, &[NOBODY, LATE]),
            (true, true, damage(), None, &[ENDS, LATE]),
            (true, false, damage(), Some("the log"), &["the log", ENDS, NOBODY, LATE]),
        ] {
            let report = ReplayReport {
                queries: 5,
                answers: if is_answered { 5 } else { 0 },
                lost: if is_answered { 0 } else { 5 },
                lost_by: [("refused".into(), 5)].into(),
                lateness_us: Some(Percentiles::default()),
                on_time: Some(!is_late),
                ..ReplayReport::default()
            };
            let beside = Beside {
                asked: vec!["127.0.0.1:8853".into()],
                tls_error: Some("no".into()),
                damage,
                broken: broken.into_iter().map(Into::into).collect(),
            };
            match verdict(&report, beside) {
                Ok(()) => assert!(expected.is_empty(), "{expected:?}"),
                Err(Failure::Late(told)) => assert!(expected == [LATE] && told.contains(LATE), "{told}"),
                Err(failure) => {
                    let told = failure.to_string();
                    assert!(expected != [LATE] && !expected.is_empty(), "{told}");
                    let places: Vec<_> = expected.iter().map(|part| told.find(part)).collect();
                    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {told}");
                    assert_eq!(told.contains(LATE), is_late, "{told}");
                }
            }
        }
    }

    #[test]
    fn who_interrupts_is_told_that_nobody_answered_where_some_waited_in_vain() {
        for (timeouts, is_told) in [(0, false), (3, true)] {
            let report = ReplayReport {
                interrupted: true,
                queries: 5,
                lost: 5,
                lost_by: [("interrupted".into(), 5 - timeouts), ("timeout".into(), timeouts)].into(),
                ..ReplayReport::default()
            };
            assert_eq!(verdict(&report, Beside::default()).is_err(), is_told, "{timeouts}");
        }
    }

    #[test]
    fn who_cannot_have_been_asked_is_told() {
        for (clients, expected) in [(1, Some("1 client, which")), (2, Some("2 clients, each")), (3, None)] {
            let servers = ["192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53"].map(String::from).into();
            let lost_by = [("refused".into(), 5)].into();
            let report =
                ReplayReport { queries: 5, lost: 5, lost_by, clients, servers, ..ReplayReport::default() };
            let told = verdict(&report, Beside::default()).expect_err("nobody answered").to_string();
            assert_eq!(told.contains("Not all of the 3 servers"), expected.is_some(), "{told}");
            assert!(expected.is_none_or(|part| told.contains(part)), "{told}");
        }
    }

    #[test]
    fn what_was_not_measured_has_no_numbers() {
        let times = Some(Percentiles { p50: 1.5, ..Percentiles::default() });
        let lateness = ReplayReport { lateness_us: times, ..ReplayReport::default() };
        let quiet = ReplayReport {
            latency_sent_us: times,
            quiet: Latency { answers: 1, latency_us: times },
            ..ReplayReport::default()
        };
        for (report, expected) in [
            (ReplayReport::default(), ["-"; 5]),
            (lateness, ["1.5", "-", "-", "-", "-"]),
            (quiet, ["-", "-", "1.5", "1.5", "-"]),
        ] {
            let told = shown(&report, &[]);
            let rows = ["lateness (", "latency from due", "latency from sent", "  quiet", "  busy"];
            let p50 = rows.map(|row| {
                let line = told.lines().find(|line| line.starts_with(row)).expect("a row");
                line.split_whitespace().rev().nth(4).expect("five numbers")
            });
            assert_eq!(p50, expected, "{told}");
        }
    }

    #[test]
    fn the_table_says_what_its_numbers_mean() {
        // Recorded retries have a remark.
        let skipped = [("cut", 1), ("gap", 2), ("retry", 3)];
        let schedule = ScheduleMet {
            skipped: skipped.map(|(key, count)| (key.to_owned(), count)).into(),
            ..ScheduleMet::default()
        };
        let remarks = ["Interrupted: so".into(), "And so".into()];
        let told = shown(&ReplayReport { clients: 1, schedule, ..ReplayReport::default() }, &remarks);
        for part in [
            "\nInterrupted: so\nAnd so",
            "1 client in",
            "\nskipped: cut by the capture's snap length (1), gaps in TCP streams (2)\n",
            "0 duplicates",
            ": 0 UDP, 0 TCP; at most 0 open",
        ] {
            assert!(told.contains(part), "no '{part}' in: {told}");
        }
        let sockets = Sockets { shared: 2, tcp: 5, ..Sockets::default() };
        let told = shown(&ReplayReport { sockets, ..ReplayReport::default() }, &[]);
        assert!(told.contains("\nsockets: 2 UDP shared by all clients, 5 TCP ("), "{told}");
    }

    #[test]
    fn what_came_about_stands_behind_what_is_over_tcp() {
        let quic = Sockets { quic: 221, handshakes_full: 221, ..Sockets::default() };
        let tls = Sockets { tls: 20, tcp_established: 19, ..quic };
        for (sockets, expected) in [
            (Sockets::default(), "0 TCP"),
            (Sockets { tcp: 5, tcp_established: 4, ..Sockets::default() }, "5 TCP (4 established)"),
            (quic, "0 TCP, 221 QUIC; handshakes 221 full, 0 resumed"),
            (tls, "0 TCP, 20 TLS (19 established), 221 QUIC; handshakes 221 full, 0 resumed"),
        ] {
            assert_eq!(connections(&sockets), expected);
        }
    }
}
