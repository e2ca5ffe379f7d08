//! What came of a replay: `report.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::trace::{TraceDamage, TraceMutation};

/// A distribution as points: percent, microseconds.
pub type Series = Vec<(f64, f64)>;

/// What came of a replay.
///
/// A query is *due* when the schedule says, *sent* when the call that sent it returned (over a new connection: when the
/// connection was begun), and its latency from sent counts from that call's beginning. Queries that are lost are in no
/// latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The trace's file.
    pub trace: String,
    /// The servers.
    pub servers: Vec<String>,
    /// When queries were due: `recorded`, `rate`, `poisson` or `fast`.
    pub pacing: String,
    /// The seed of all draws.
    pub seed: u64,
    /// Threads that sent, of all processes.
    pub threads: u64,
    /// Processes that sent.
    #[serde(default = "one")]
    pub processes: u64,
    /// Whether the host's cores were kept from resting.
    #[serde(default)]
    pub awake: bool,
    /// From the beginning to the last query or answer; the wait for answers that never come is not in it.
    pub seconds: f64,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// Queries that were due.
    pub queries: u64,
    /// Queries that were answered.
    pub answers: u64,
    /// Octets of all answers, truncated ones too, as DNS messages without what transports add.
    pub answer_octets: u64,
    /// Queries that were not.
    pub lost: u64,
    /// Those by cause: `timeout`, `dropped` (by our own machine), `refused`, `reset`, `closed`, `unreachable`, `no-socket`, `evicted`, `no-room`,
    /// `given-up`, `interrupted`, `handshake`, `http-status`.
    pub lost_by: BTreeMap<String, u64>,
    /// Answers by their code, with the upper bits that EDNS has.
    pub rcodes: BTreeMap<String, u64>,
    /// Queries by the transport that was first used: `udp`, `tcp`, `tls`, `quic`, `https`.
    pub transports: BTreeMap<String, u64>,
    /// Truncated answers, whose queries were asked again over TCP.
    pub tc_retries: u64,
    /// Queries that were asked again on another connection, as the server took no more on the first and had not looked at
    /// them; each time counts.
    #[serde(default)]
    pub unprocessed: u64,
    /// Messages beside the answers.
    pub unexpected: Unexpected,
    /// Sent minus due; nothing with `fast`, which has no due times.
    pub lateness_us: Option<Percentiles>,
    /// The most that the 99.9th percentile of lateness may be, in microseconds.
    pub tolerance_us: f64,
    /// Whether it is; nothing where lateness was not measured.
    pub on_time: Option<bool>,
    /// What held the senders up, beside their work.
    #[serde(default)]
    pub held_up: HeldUp,
    /// From due to answer; nothing with `fast`.
    pub latency_us: Option<Percentiles>,
    /// From sent to answer.
    pub latency_sent_us: Option<Percentiles>,
    /// Clients, copies counted.
    pub clients: u64,
    /// Answers to clients that had sent fewer than ten queries in the minute; latency from sent.
    pub quiet: Latency,
    /// Answers to all others; latency from sent.
    pub busy: Latency,
    /// Sockets.
    pub sockets: Sockets,
    /// Queries due in each second.
    pub due_per_second: Vec<u64>,
    /// Queries sent in each second.
    pub sent_per_second: Vec<u64>,
    /// Queries answered in each second.
    pub answered_per_second: Vec<u64>,
    /// Distributions, for plots: `lateness`, `latency`, `latency_sent`, `quiet`, `busy`; without points where nothing was
    /// measured.
    pub curves: BTreeMap<String, Series>,
    /// What was changed in the queries; absent where nothing was to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutation: Option<TraceMutation>,
    /// Answers beside the recorded ones; absent where they were not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// The server in each second; absent where it was not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_seconds: Option<Vec<ServerSecond>>,
    /// What was met in the trace.
    pub schedule: ScheduleMet,
}

/// What reports say that are older than further processes.
fn one() -> u64 {
    1
}

/// A distribution in microseconds, of at least one that was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The least.
    pub min: f64,
    /// The lower quartile.
    pub p25: f64,
    /// The median.
    pub p50: f64,
    /// The upper quartile.
    pub p75: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The most.
    pub max: f64,
}

/// What holds senders up beside their work, summed over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldUp {
    /// How long threads were ready and had no core, as others had it, in microseconds.
    pub waited_us: f64,
    /// What the machine's host took from all its cores, in microseconds, counted in steps of 10,000.
    pub stolen_us: f64,
}

/// Clients of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Answers.
    pub answers: u64,
    /// How long they took, from sent.
    pub latency_us: Option<Percentiles>,
}

/// Messages that are no first answer to a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unexpected {
    /// Answers to queries that had been lost.
    pub late: u64,
    /// Further answers to answered queries.
    pub duplicates: u64,
    /// What belongs to no query, and what is no response.
    pub aliens: u64,
}

/// The sockets of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// Datagram sockets opened, one a client.
    pub udp: u64,
    /// Datagram sockets that all clients of a thread share, where their addresses are from a prefix; in no other count
    /// here.
    #[serde(default)]
    pub shared: u64,
    /// Connections begun over TCP.
    pub tcp: u64,
    /// Connections begun over TLS.
    #[serde(default)]
    pub tls: u64,
    /// Connections begun over QUIC.
    #[serde(default)]
    pub quic: u64,
    /// Connections begun over HTTPS.
    #[serde(default)]
    pub https: u64,
    /// TCP connections that came about, those under TLS and HTTPS too.
    pub tcp_established: u64,
    /// Handshakes of TLS that were done in full.
    #[serde(default)]
    pub handshakes_full: u64,
    /// Handshakes of TLS that went on with an earlier session.
    #[serde(default)]
    pub handshakes_resumed: u64,
    /// Connections that the server ended.
    #[serde(alias = "tcp_closed_by_server")]
    pub closed_by_server: u64,
    /// Those of them at which queries waited, and none had been answered.
    #[serde(default)]
    pub closed_unanswered: u64,
    /// Closed because they were idle.
    pub closed_idle: u64,
    /// Closed because too many were open.
    pub evicted: u64,
    /// The most open at once, summed over threads.
    pub most_open: u64,
    /// The most that may be open at once, summed over threads: 80 % of the descriptor limit of each process.
    #[serde(default)]
    pub limit: u64,
    /// Opened at a further loopback address, as ports had run out.
    pub further_sources: u64,
}

/// Answers beside the recorded ones of the same queries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Answers whose query has a recorded response.
    pub compared: u64,
    /// Those with the same code and the same records.
    pub same: u64,
    /// Those with the same code of which one is truncated: their records are not compared.
    pub truncated: u64,
    /// All others: `rcode` (another code), `answer` (other records in the answer section), `referral` (other NS records
    /// where neither has answers), `unreadable`.
    pub differing: BTreeMap<String, u64>,
    /// Answers whose query has no recorded response.
    pub unrecorded: u64,
    /// Recorded responses that belong to no query of the two seconds before them.
    pub unmatched: u64,
    /// Differing pairs in the file.
    pub pairs_kept: u64,
    /// Differing pairs beyond what the file may hold.
    pub pairs_beyond: u64,
}

/// The server's processes at the end of a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerSecond {
    /// Processes: the one that was named, and all that it began.
    pub processes: u64,
    /// Processor time of their own in this second, in cores.
    pub user: f64,
    /// Processor time of the kernel for them in this second, in cores.
    pub system: f64,
    /// The same by core, counted for that on which each thread was last seen.
    #[serde(default)]
    pub cores: Vec<f64>,
    /// The share of this second in which each core of the host did anything, for whomever.
    #[serde(default)]
    pub host_cores: Vec<f64>,
    /// Resident memory; what processes share is counted for each.
    pub resident_octets: u64,
    /// Their TCP sockets by state.
    pub tcp: BTreeMap<String, u64>,
    /// Memory of their TCP and UDP sockets, in octets, as the kernel charges it; nothing where it does not tell, as of those
    /// in another network namespace.
    #[serde(default)]
    pub socket_octets: Option<u64>,
    /// Pages of memory that TCP sockets of the whole host take.
    pub host_tcp_pages: u64,
}

/// What was met while the trace became a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleMet {
    /// Responses in the trace, which are not sent.
    pub responses: u64,
    /// What gave no message, by cause.
    #[serde(default)]
    pub skipped: BTreeMap<String, u64>,
    /// How often the trace's clock was set, back or by more than a day.
    pub jumps: u64,
    /// Queries handed out before their turn, as too many copies waited.
    pub crowded: u64,
    /// Clients, copies counted, whose source address another had before.
    #[serde(default)]
    pub sharing: u64,
    /// Queries of clients beyond those that are told apart, whose source addresses are drawn.
    #[serde(default)]
    pub unnumbered: u64,
    /// Queries that could not be given a name of their own.
    pub unchanged: u64,
    /// Where the trace breaks off; absent when it was read as far as needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<TraceDamage>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_was_not_measured_is_null() {
        let report = serde_json::to_value(ReplayReport::default()).expect("it is JSON");
        for place in [
            "/lateness_us",
            "/on_time",
            "/latency_us",
            "/latency_sent_us",
            "/quiet/latency_us",
            "/busy/latency_us",
        ] {
            assert_eq!(report.pointer(place), Some(&Value::Null), "{place}");
        }
    }

    #[test]
    fn older_reports_are_read() {
        let report = ReplayReport::default();
        let mut older = serde_json::to_value(&report).expect("it is JSON");
        for (place, key) in [
            ("", "unprocessed"),
            ("", "on_time"),
            ("/sockets", "shared"),
            ("/sockets", "closed_unanswered"),
            ("/schedule", "sharing"),
            ("/schedule", "unnumbered"),
        ] {
            let place = older.pointer_mut(place).and_then(Value::as_object_mut).expect("an object");
            assert!(place.remove(key).is_some(), "{key}");
        }
        // A key that had another name.
        let sockets = older.pointer_mut("/sockets").and_then(Value::as_object_mut).expect("an object");
        let count = sockets.remove("closed_by_server").expect("it is there");
        sockets.insert("tcp_closed_by_server".into(), count);
        assert_eq!(serde_json::from_value::<ReplayReport>(older).expect("it is a report"), report);
    }
}
