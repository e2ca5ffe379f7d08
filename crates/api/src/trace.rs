//! What a trace is like, and what came of writing another: the numbers of `trace`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::Fault;

/// What a trace is like.
///
/// Start, length, gaps, clients and queries are the columns of the table of traces in LDplayer's evaluation
/// (IMC 2018).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceInfo {
    /// The file's format: `pcap`, `pcapng`, `C-DNS`, `dnstap` or `text`.
    pub format: String,
    /// Packets, lines of a text, pairs of C-DNS or frames of dnstap that were read.
    pub packets: u64,
    /// The earliest query's time in nanoseconds since 1970-01-01 00:00 UTC; absent (`null`) without queries, and of a
    /// query file, which has no times.
    pub start_ns: Option<u64>,
    /// From the earliest query to the latest; absent where `start_ns` is.
    pub seconds: Option<f64>,
    /// The mean time from a query to the next one; absent where no query follows another.
    pub gap_mean_seconds: Option<f64>,
    /// The standard deviation of that time.
    pub gap_deviation_seconds: Option<f64>,
    /// Queries whose time was before that of the query that they follow; these gaps are left out above.
    pub steps_back: u64,
    /// The packet (as in `packets`) that was the first such query's; 0 without one.
    pub step_back_packet: u64,
    /// The longest time from a query to the next one.
    pub longest_gap_seconds: Option<f64>,
    /// The packet (as in `packets`) after that time; 0 without one.
    pub longest_gap_packet: u64,
    /// Different client addresses, exact up to 4,194,304; beyond, at least so many.
    pub clients: u64,
    /// The busiest 1 % of clients' share of queries, from 0 to 1; at least one client, absent
    /// without queries.
    pub busiest_share: Option<f64>,
    /// Queries.
    pub queries: u64,
    /// Responses.
    pub responses: u64,
    /// Queries by transport: `udp`, `tcp`.
    pub transports: BTreeMap<String, u64>,
    /// Queries with DO set.
    pub dnssec_ok: u64,
    /// Queries by the UDP payload size of their EDNS; those without EDNS under `none`.
    pub edns_sizes: BTreeMap<String, u64>,
    /// Queries by type.
    pub types: BTreeMap<String, u64>,
    /// Queries whose question or EDNS cannot be read, or with another opcode; they are in no type, and not
    /// among those with DO or a size.
    pub unreadable: u64,
    /// Responses by their code, with the upper bits of EDNS.
    pub rcodes: BTreeMap<String, u64>,
    /// What gave no message, by cause.
    pub skipped: BTreeMap<String, u64>,
    /// Where the trace breaks off; absent when it was read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<TraceDamage>,
}

/// Who asks most in a trace, and for what: of each kind the most frequent, in falling order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceTop {
    /// Queries.
    pub queries: u64,
    /// Responses.
    pub responses: u64,
    /// Addresses, by their queries.
    pub clients: Vec<TraceCount>,
    /// Their networks, of IPv4 /24, of IPv6 /48.
    pub networks: Vec<TraceCount>,
    /// Names that were asked for, in lower case.
    pub names: Vec<TraceCount>,
    /// Their last two labels.
    pub domains: Vec<TraceCount>,
    /// Those of names that are not there, by responses (NXDOMAIN).
    pub missing: Vec<TraceCount>,
    /// Those of names for which something failed, by responses with another code than NOERROR and NXDOMAIN.
    pub failed: Vec<TraceCount>,
    /// Where the trace breaks off; absent when it was read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<TraceDamage>,
}

/// How often something was seen: the two differ where there were too many to tell all apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceCount {
    /// What.
    pub what: String,
    /// At most so often.
    pub most: u64,
    /// At least so often.
    pub least: u64,
}

/// The name of text among formats.
const TEXT: &str = "text";

/// What a trace of a format that [`TraceInfo::format`] names is counted in: `packet`, `line`, `pair` or `frame`.
pub fn unit(format: &str) -> &'static str {
    match format {
        TEXT => "line",
        "C-DNS" => "pair",
        "dnstap" => "frame",
        _ => "packet",
    }
}

/// Where a trace breaks off, and why. What stands before it has been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceDamage {
    /// The packet, the line of a text, the pair of C-DNS or the frame of dnstap; 1 for the first.
    pub packet: u64,
    /// Octets of the file, uncompressed, before the block, line or frame that cannot be read.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for TraceDamage {
    /// For who does not know the format: [`TraceDamage::fault`] says more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceDamage { packet, offset, what } = self;
        write!(f, "packet, line, pair or frame {packet}, octet {offset}: {what}")
    }
}

impl TraceDamage {
    /// The same for people, in a file of a format that [`TraceInfo::format`] names; where it `is_packed`, octets are told to
    /// be those that were unpacked.
    pub fn fault(&self, file: &str, format: &str, is_packed: bool) -> Fault {
        let TraceDamage { packet, offset, what } = self;
        if format == TEXT {
            return Fault { line: u32::try_from(*packet).ok(), ..Fault::whole(file, what, "") };
        }
        let (unit, unpacked) = (unit(format), if is_packed { " of what it unpacks to" } else { "" });
        Fault::whole(file, format!("{unit} {packet}, octet {offset}{unpacked}: {what}"), "")
    }
}

/// What came of writing a trace: of `trace convert`, `cut` and `mutate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceWritten {
    /// The file that was written.
    pub file: String,
    /// Messages that are in it.
    pub messages: u64,
    /// Messages that were to be written, but the form has no room for them: responses and what is no plain query
    /// in lines, times after 2106 and the like in pcap.
    pub left_out: u64,
    /// What gave no message, by cause.
    pub skipped: BTreeMap<String, u64>,
    /// What was changed; absent where nothing was to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutation: Option<TraceMutation>,
    /// Where the trace breaks off; absent when it was read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<TraceDamage>,
}

/// What was changed in a trace's queries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceMutation {
    /// What all draws begin with.
    pub seed: u64,
    /// Queries.
    pub queries: u64,
    /// Queries in which anything changed.
    pub changed: u64,
    /// Queries that were left alone as they cannot be read.
    pub unreadable: u64,
    /// Queries that were left alone as they have records beside OPT, such as a signature.
    pub with_records: u64,
    /// The changes, in the order in which they are made.
    pub changes: Vec<TraceChange>,
}

/// What came of one change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceChange {
    /// The change, as it is asked for.
    pub change: String,
    /// Who is drawn: `client`, with all of its queries, or `query`.
    pub by: String,
    /// Queries in the share.
    pub drawn: u64,
    /// Queries that are now different.
    pub changed: u64,
    /// Queries whose name would be longer than 255 octets.
    pub too_long: u64,
}

/// What came of making zones of a trace: of `trace zones`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceZones {
    /// The folder that was written.
    pub folder: String,
    /// Responses that were read, those that were left out among them.
    pub responses: u64,
    /// Responses of which nothing was used, by cause.
    pub left_out: BTreeMap<String, u64>,
    /// RRsets that were there again with other records: the first was taken.
    pub differing: u64,
    /// RRsets of no zone that their server has, such as addresses of name servers elsewhere.
    pub outside: u64,
    /// What no response shows and had to be made up: `soa` and `name_servers` of an apex, `zones` that only delegate,
    /// `delegations`, and `names` that are there without a record that was seen.
    pub made_up: BTreeMap<String, u64>,
    /// The zones, those above before those below.
    pub zones: Vec<TraceZone>,
    /// What gave no message, by cause.
    pub skipped: BTreeMap<String, u64>,
    /// Where the trace breaks off; absent when it was read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<TraceDamage>,
}

/// A zone that was made of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceZone {
    /// Its apex.
    pub origin: String,
    /// Its master file.
    pub file: String,
    /// Its records.
    pub records: u64,
    /// The addresses of the servers that have it.
    pub servers: Vec<IpAddr>,
    /// Records that are not in it, as they cannot be served beside the others.
    pub unservable: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_in_the_words_of_the_format() {
        let damage = TraceDamage { packet: 3, offset: 47, what: "it ends".into() };
        for (format, is_packed, expected) in [
            ("text", false, "a:3: it ends"),
            ("text", true, "a:3: it ends"),
            ("pcap", false, "a: packet 3, octet 47: it ends"),
            ("pcapng", true, "a: packet 3, octet 47 of what it unpacks to: it ends"),
            ("C-DNS", false, "a: pair 3, octet 47: it ends"),
            ("dnstap", false, "a: frame 3, octet 47: it ends"),
        ] {
            assert_eq!(damage.fault("a", format, is_packed).to_string(), expected);
        }
    }
}
