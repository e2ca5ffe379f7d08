//! What a report's numbers mean for whoever relies on them, in sentences.

use api::replay::ReplayReport;

use crate::report::RETRY;
use crate::schedule::sources::CLIENTS_MAX;
use crate::send::tally::Cause;
use crate::trace::Skip;

/// More descriptors than a thread takes beside those of its sockets, files of its process counted.
const FILES_MAX: u64 = 64;

/// What was otherwise than a reader of the numbers would think; on the terminal and on the page.
pub fn remarks(report: &ReplayReport) -> Vec<String> {
    let schedule = &report.schedule;
    let mut all = Vec::new();
    if report.interrupted {
        all.push(
            "Interrupted: what was due later was not sent, and what waited for an answer is lost.".into(),
        );
    }
    if let Some(blocks) = schedule.skipped.get(Skip::Block.name()) {
        all.push(format!(
            "{} of the trace passed over, as their type is not known: packets in them, if there are any, were not sent.",
            counted(*blocks, "block")
        ));
    }
    if let Some(dropped) = schedule.skipped.get(Skip::Dropped.name()) {
        all.push(format!(
            "{dropped} dropped while the trace was captured, as it says itself (packets, or messages of C-DNS): queries \
             among these were not sent."
        ));
    }
    if let Some(gaps) = schedule.skipped.get(Skip::Gap.name()) {
        all.push(format!(
            "{} in TCP streams of the trace: queries in the segments that are missing there were not sent.",
            counted(*gaps, "gap")
        ));
    }
    if let Some(retries) = schedule.skipped.get(RETRY) {
        all.push(format!(
            "{} over TCP left out: each was recorded as the retry of one over UDP that was truncated now, too, and asked \
             again already.",
            counted(*retries, "query")
        ));
    }
    if let Some(dropped) = report.lost_by.get(Cause::Dropped.name()) {
        all.push(format!(
            "{} lost here (dropped): so many answers found no room at the replay's own sockets. Raise net.core.rmem_max, \
             or use more --threads or a slower --speed.",
            counted(*dropped, "query")
        ));
    }
    if schedule.jumps > 0 {
        all.push(format!(
            "The trace's clock was set {}: more than 1 s back, or more than a day forward. The schedule goes on there as \
             if no time had passed.",
            counted(schedule.jumps, "time")
        ));
    }
    if schedule.crowded > 0 {
        all.push(format!(
            "{} handed out before their turn, as more copies waited than there is room for: their due times hold, but \
             not the order.",
            counted(schedule.crowded, "query")
        ));
    }
    if schedule.sharing > 0 {
        all.push(format!(
            "{} had a source address that another had before: there are more clients, copies counted, than addresses in \
             --source-prefix. All addresses are shared evenly.",
            counted(schedule.sharing, "client")
        ));
    }
    if schedule.unnumbered > 0 {
        all.push(format!(
            "{} came from drawn source addresses, of which clients may share some: no more than {CLIENTS_MAX} clients \
             are told apart.",
            counted(schedule.unnumbered, "query")
        ));
    }
    // Shared sockets are those of addresses of clients' own.
    if report.sockets.closed_unanswered > 0 && report.clients > 1 && report.sockets.shared == 0 {
        all.push(format!(
            "{} closed by the server before any answer. All come from this host's address, and it may limit the connections \
             of one client: --source-prefix gives each client an address of its own, and a smaller --factor or a shorter \
             --idle keeps fewer open at once.",
            counted(report.sockets.closed_unanswered, "connection")
        ));
    }
    if report.unprocessed > 0 {
        all.push(format!(
            "{} asked again on another connection, as the server took no more on the first (GOAWAY) and had not looked at \
             them.",
            counted(report.unprocessed, "query")
        ));
    }
    all
}

/// What the replay itself lost, before the server could answer; nothing where that was none.
pub fn lost_here(report: &ReplayReport) -> Option<String> {
    let of = |cause: Cause| report.lost_by.get(cause.name()).copied().unwrap_or(0);
    let named = |causes: [Cause; 2]| -> Vec<String> {
        let some = causes.into_iter().filter(|cause| of(*cause) > 0);
        some.map(|cause| format!("{} {}", cause.name(), of(cause))).collect()
    };
    let sockets = named([Cause::Evicted, Cause::NoSocket]);
    let room = named([Cause::NoRoom, Cause::GivenUp]);
    let mut ways = Vec::new();
    if !sockets.is_empty() {
        ways.push(format!("{}: {}", sockets.join(", "), unopened(report)));
    }
    if !room.is_empty() {
        ways.push(format!(
            "{}: more were under way than there is room for, or a query was too long for its transport; use more --threads, a \
             slower --speed or a shorter --timeout",
            room.join(", ")
        ));
    }
    let count = [Cause::Evicted, Cause::NoSocket, Cause::NoRoom, Cause::GivenUp].map(of).iter().sum();
    let whom = "lost here, before the server could answer";
    (count > 0).then(|| format!("{} {whom} ({}).", counted(count, "query"), ways.join("; ")))
}

/// Why sockets could not be opened or stay open, with what helps.
fn unopened(report: &ReplayReport) -> String {
    let sockets = &report.sockets;
    let (open, limit) = (sockets.most_open, sockets.limit);
    let is_evicted = sockets.evicted > 0 || report.lost_by.contains_key(Cause::Evicted.name());
    // Who has no descriptor left closes another socket first.
    if !is_evicted && limit.saturating_sub(open) >= FILES_MAX * report.threads.max(1) {
        return if sockets.shared > 0 {
            "there are descriptors, but some addresses in --source-prefix are none of this host (ip route add local PREFIX \
             dev lo; for IPv6 also sysctl net.ipv6.ip_nonlocal_bind=1), or had no port left, against which a prefix of more \
             addresses or a shorter --idle helps"
                .into()
        } else {
            "there are descriptors, but no port was left; use --source-prefix or a shorter --idle".into()
        };
    }
    let told = counted(open, "socket");
    // The limit is no more than what may be: who has few descriptors has most of them open already.
    if open < limit {
        format!(
            "{told} could be open, not {limit} (80 % of the descriptor limit), as each thread has its share, the program's \
             own files take descriptors too, or ports ran out; raise that limit (ulimit -n), or use more --processes; \
             against a want of ports, use --source-prefix or a shorter --idle"
        )
    } else {
        format!(
            "{told} could be open, 80 % of the descriptor limit; raise that limit (ulimit -n), or use more --processes"
        )
    }
}

/// So many of something, such as `1 query` and `2 queries`.
pub fn counted(count: u64, what: &str) -> String {
    match (count, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::replay::{ScheduleMet, Sockets};

    #[test]
    fn what_is_otherwise_is_told() {
        let of = |interrupted, jumps, crowded| {
            let schedule = ScheduleMet { jumps, crowded, ..ScheduleMet::default() };
            remarks(&ReplayReport { interrupted, schedule, ..ReplayReport::default() })
        };
        let shared = |sharing, unnumbered| {
            let schedule = ScheduleMet { sharing, unnumbered, ..ScheduleMet::default() };
            remarks(&ReplayReport { schedule, ..ReplayReport::default() })
        };
        let closed = |closed_unanswered, clients, shared| {
            let sockets = Sockets { closed_unanswered, shared, ..Sockets::default() };
            remarks(&ReplayReport { clients, sockets, ..ReplayReport::default() })
        };
        let unprocessed = remarks(&ReplayReport { unprocessed: 2, ..ReplayReport::default() });
        let skipped = |name: &str| {
            let schedule = ScheduleMet { skipped: [(name.into(), 3)].into(), ..ScheduleMet::default() };
            remarks(&ReplayReport { schedule, ..ReplayReport::default() })
        };
        let lost = |cause: &str| {
            let lost_by = [(cause.into(), 4)].into();
            remarks(&ReplayReport { lost_by, ..ReplayReport::default() })
        };
        for nothing in [
            lost("timeout"),
            skipped("link"),
            of(false, 0, 0),
            closed(0, 9, 0),
            closed(1, 1, 0),
            closed(5, 9, 1),
        ] {
            assert_eq!(nothing, Vec::<String>::new());
        }
        for (told, parts) in [
            (of(true, 0, 0), &["Interrupted"][..]),
            (lost("dropped"), &["4 queries lost here (dropped)"]),
            (skipped(RETRY), &["3 queries over TCP left out"]),
            (skipped("block"), &["3 blocks of the trace passed over"]),
            (skipped("gap"), &["3 gaps in TCP streams of the trace: "]),
            (skipped("dropped"), &["3 dropped while the trace was captured, "]),
            (of(false, 1, 0), &["set 1 time:"]),
            (of(true, 2, 30), &["Interrupted", "set 2 times:", "30 queries handed out"]),
            (unprocessed, &["2 queries asked again on another"]),
            (closed(5, 105, 0), &["5 connections closed by the server before any answer"]),
            (shared(1, 0), &["1 client had a source address that another had"]),
            (shared(4_466, 9), &["4466 clients had", "9 queries came from drawn source addresses"]),
        ] {
            assert_eq!(told.len(), parts.len(), "{told:?}");
            assert!(told.iter().zip(parts).all(|(told, part)| told.contains(part)), "{told:?}");
        }
    }

    #[test]
    fn what_was_lost_here_is_told_with_the_way_out() {
        let open = |most_open, lost: &[(&str, u64)]| {
            let lost_by = lost.iter().map(|(cause, count)| ((*cause).into(), *count)).collect();
            let sockets = Sockets { limit: 12, most_open, ..Sockets::default() };
            lost_here(&ReplayReport { lost_by, sockets, ..ReplayReport::default() })
        };
        let of = |lost| open(12, lost);
        for (shared, expected) in [(1, "ip route add local"), (0, "use --source-prefix")] {
            let sockets = Sockets { limit: 50_000, shared, ..Sockets::default() };
            let lost_by = [("no-socket".into(), 7)].into();
            let told =
                lost_here(&ReplayReport { lost_by, sockets, ..ReplayReport::default() }).expect("some are");
            assert!(told.contains("no-socket 7: ") && told.contains(expected), "{told}");
            assert!(!told.contains("ulimit") && !told.contains("could be open"), "{told}");
        }
        let few = open(4, &[("evicted", 3)]).expect("some are");
        assert!(few.contains("evicted 3: 4 sockets could be open, not 12 ("), "{few}");
        assert!(few.contains("ulimit -n") && few.contains("--source-prefix"), "{few}");
        assert_eq!(of(&[("timeout", 9), ("interrupted", 2)]), None);
        for (lost, parts) in [
            (
                &[("evicted", 1_800), ("no-socket", 15), ("timeout", 4)][..],
                &["1815 queries", "evicted 1800, no-socket 15: 12 sockets", "ulimit -n", "--processes"][..],
            ),
            (&[("no-room", 1)], &["1 query", "no-room 1: more", "--threads"]),
            (&[("given-up", 2), ("evicted", 3)], &["5 queries", "evicted 3: ", "; given-up 2: "]),
        ] {
            let told = of(lost).expect("some are");
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        }
    }
}
