//! Every metric, declared once: the endpoint and the page of reference are made from it.

use std::sync::atomic::{AtomicU64, Ordering};

use api::ProbeVerdict;
use net::xdp::Dropped;
use web::metrics::Kind;

use super::{Cause, Metric, Read as _, TRANSPORTS};

/// Everything that is exported.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "pointsman_build_info",
        help: "Always 1; the label is the version of the program.",
        kind: Kind::Gauge,
        unit: "none",
        labels: &["version"],
        read: |source, samples| samples.push([source.status.version.clone()], 1),
    },
    Metric {
        name: "pointsman_uptime_seconds",
        help: "Seconds since start.",
        kind: Kind::Gauge,
        unit: "seconds",
        labels: &[],
        read: |source, samples| samples.push([], source.status.uptime_seconds),
    },
    Metric {
        name: "pointsman_generation",
        help: "The current generation.",
        kind: Kind::Gauge,
        unit: "number",
        labels: &[],
        read: |source, samples| samples.push([], source.status.generation),
    },
    Metric {
        name: "pointsman_worker_generation",
        help: "The generation that each worker serves; 0 for the moment in which it takes the next one.",
        kind: Kind::Gauge,
        unit: "number",
        labels: &["worker"],
        read: |source, samples| {
            for state in &source.status.workers {
                samples.push([state.worker.to_string()], state.generation);
            }
        },
    },
    Metric {
        name: "pointsman_slowest_worker_generation",
        help: "The oldest generation that any worker serves.",
        kind: Kind::Gauge,
        unit: "number",
        labels: &[],
        read: |source, samples| {
            let served = source.status.workers.iter().map(|state| state.generation);
            samples.push([], served.min().unwrap_or(source.status.generation));
        },
    },
    Metric {
        name: "pointsman_store_ok",
        help: "1 while the store takes changes, 0 while it does not.",
        kind: Kind::Gauge,
        unit: "0 or 1",
        labels: &[],
        read: |source, samples| samples.push([], u64::from(source.status.store.ok)),
    },
    Metric {
        name: "pointsman_store_followed_total",
        help: "How often generations of other name servers on the same store were taken over; those that come together \
               count once.",
        kind: Kind::Counter,
        unit: "times",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.following.followed.load(Ordering::Relaxed)),
    },
    Metric {
        name: "pointsman_store_direct_total",
        help: "What became of changes that others made in the store's tables directly: published as a generation by \
               this name server, or refused, for they cannot be served here.",
        kind: Kind::Counter,
        unit: "times",
        labels: &["outcome"],
        read: |source, samples| {
            let following = &source.metrics.following;
            samples.push(["published".into()], following.published.load(Ordering::Relaxed));
            samples.push(["refused".into()], following.refused.load(Ordering::Relaxed));
        },
    },
    Metric {
        name: "pointsman_store_outrun_total",
        help: "Commits that another name server on the same store was quicker than; they are made again on its \
               generation.",
        kind: Kind::Counter,
        unit: "commits",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.following.outrun.load(Ordering::Relaxed)),
    },
    Metric {
        name: "pointsman_store_lost_total",
        help: "Looks at a shared store that failed; it is tried again after a pause of 50 ms, doubled up to 2 s.",
        kind: Kind::Counter,
        unit: "looks",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.following.lost.load(Ordering::Relaxed)),
    },
    Metric {
        name: "pointsman_store_take_over_failed_total",
        help: "How often what others changed in a shared store could not be loaded; it is tried again after a pause of \
               up to 100 ms, doubled up to 30 s.",
        kind: Kind::Counter,
        unit: "times",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.following.failed.load(Ordering::Relaxed)),
    },
    Metric {
        name: "pointsman_store_stuck_since_seconds",
        help: "Since when what others changed in a shared store could not be loaded, in Unix time; 0 while it can be. \
               The status says why.",
        kind: Kind::Gauge,
        unit: "seconds",
        labels: &[],
        read: |source, samples| samples.push([], source.status.store.stuck_since.unwrap_or(0)),
    },
    Metric {
        name: "pointsman_changes_panicked_total",
        help: "Changes that made the program panic, for a fault of ours: they are not made, and the log says where.",
        kind: Kind::Counter,
        unit: "changes",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.panicked.load(Ordering::Relaxed)),
    },
    Metric {
        name: "pointsman_zones",
        help: "Zones.",
        kind: Kind::Gauge,
        unit: "zones",
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.zones),
    },
    Metric {
        name: "pointsman_zones_warned",
        help: "Zones that validators will not believe in all, that secondaries cannot take, or that have expired; \
               `pointsman zone list` says which, and why.",
        kind: Kind::Gauge,
        unit: "zones",
        labels: &[],
        read: |source, samples| samples.push([], source.warned),
    },
    Metric {
        name: "pointsman_records",
        help: "Records of all zones.",
        kind: Kind::Gauge,
        unit: "records",
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.records),
    },
    Metric {
        name: "pointsman_signatures_expire_timestamp_seconds",
        help: "When the first signature of a signed zone expires, of the zone that is the first of all; without signed \
               zones there is no sample.",
        kind: Kind::Gauge,
        unit: "seconds since 1970",
        labels: &["zone"],
        read: |source, samples| {
            if let Some((zone, until)) = &source.first_to_expire {
                samples.push([zone.clone()], u64::from(*until));
            }
        },
    },
    Metric {
        name: "pointsman_regions",
        help: "Regions, without region 0.",
        kind: Kind::Gauge,
        unit: "regions",
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.regions),
    },
    Metric {
        name: "pointsman_partitions",
        help: "Partitions.",
        kind: Kind::Gauge,
        unit: "partitions",
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.partitions),
    },
    Metric {
        name: "pointsman_policies",
        help: "Policies.",
        kind: Kind::Gauge,
        unit: "policies",
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.policies),
    },
    Metric {
        name: "pointsman_names",
        help: "Names that policies serve.",
        kind: Kind::Gauge,
        unit: "names",
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.names),
    },
    Metric {
        name: "pointsman_servers",
        help: "Distinct servers of all policies.",
        kind: Kind::Gauge,
        unit: "servers",
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.servers),
    },
    Metric {
        name: "pointsman_servers_down",
        help: "Servers that are down.",
        kind: Kind::Gauge,
        unit: "servers",
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.servers_down),
    },
    Metric {
        name: "pointsman_probe_passing",
        help: "1 while a server passes its probe, 0 while it fails; of a server of which nothing is known there is no \
               sample.",
        kind: Kind::Gauge,
        unit: "0 or 1",
        labels: &["server", "probe"],
        read: |source, samples| {
            for state in source.probes.iter().filter(|state| state.state != ProbeVerdict::Unknown) {
                let passing = state.state == ProbeVerdict::Passing;
                samples.push([state.server.to_string(), state.probe.clone()], u64::from(passing));
            }
        },
    },
    Metric {
        name: "pointsman_probe_last_timestamp_seconds",
        help: "When a server was last probed, with the result, passed or failed, and the reason in one word.",
        kind: Kind::Gauge,
        unit: "seconds since 1970",
        labels: &["server", "probe", "result", "reason"],
        read: |source, samples| {
            for state in source.probes {
                if let Some(last) = &state.last {
                    let result = if last.passed { "passed" } else { "failed" };
                    let labels =
                        [state.server.to_string(), state.probe.clone(), result.into(), last.reason.clone()];
                    samples.push(labels, last.at);
                }
            }
        },
    },
    Metric {
        name: "pointsman_probes_total",
        help: "Probes that were done, by result; panicked are those that our own code broke off, which say nothing of \
               the server.",
        kind: Kind::Counter,
        unit: "probes",
        labels: &["result"],
        read: |source, samples| {
            samples.push(["passed".into()], source.status.health.passed);
            samples.push(["failed".into()], source.status.health.failed);
            samples.push(["panicked".into()], source.status.health.panicked);
        },
    },
    Metric {
        name: "pointsman_probes_delayed_total",
        help: "Probes that waited, for 64 ran already.",
        kind: Kind::Counter,
        unit: "probes",
        labels: &[],
        read: |source, samples| samples.push([], source.status.health.delayed),
    },
    Metric {
        name: "pointsman_health_epoch",
        help: "How often a server began to pass or to fail a probe since start: the number of this fast state.",
        kind: Kind::Gauge,
        unit: "number",
        labels: &[],
        read: |source, samples| samples.push([], source.status.health.epoch),
    },
    Metric {
        name: "pointsman_update_seconds",
        help: "How long changes took from being taken to being served by the slowest worker; those that share a \
               commit count once.",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &[],
        read: |source, samples| samples.observed([&*source.metrics.updates], 1e6),
    },
    Metric {
        name: "pointsman_queries_total",
        help: "Messages that came in, by transport, the type that was asked for, the answer's response code, and the \
               verdict: answered, truncated (TC), streamed (a transfer) or dropped. Rare types are together in other, \
               answers without a question in none; what was not answered by one message has none for both.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &["transport", "type", "rcode", "verdict"],
        read: |source, samples| {
            for transport in TRANSPORTS {
                for ([rtype, rcode, verdict], count) in source.metrics.queries(transport) {
                    samples.push([transport.into(), rtype, rcode, verdict], count);
                }
            }
        },
    },
    Metric {
        name: "pointsman_routed_answers_total",
        help: "Answers that a policy decided, by policy, the client's region and the server that stands first: \
               unclassified is a client of no region, none an answer without one. What is removed keeps its name; \
               what was so before the first scrape that would tell of it is in removed. The first 8192 together are told \
               apart for each worker and TCP listener, the others are in other.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &["policy", "region", "server"],
        read: |source, samples| {
            for (labels, count) in source.routed {
                samples.push(labels.clone(), *count);
            }
            let tables = source.metrics.counted();
            samples.push(["other"; 3].map(Into::into), tables.map(|counted| counted.routed.other()).sum());
        },
    },
    Metric {
        name: "pointsman_dropped_total",
        help: "Messages that got no answer, by transport and cause.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &["transport", "cause"],
        read: |source, samples| {
            for transport in TRANSPORTS {
                for (cause, count) in source.metrics.dropped(transport) {
                    samples.push([transport.into(), cause.into()], count);
                }
            }
        },
    },
    Metric {
        name: "pointsman_worker_queries_total",
        help: "Messages that came in over UDP, by worker.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &["worker"],
        read: |source, samples| samples.workers(source, |worker| &worker.queries),
    },
    Metric {
        name: "pointsman_worker_batches_total",
        help: "Batches in which messages came in over UDP, by worker.",
        kind: Kind::Counter,
        unit: "batches",
        labels: &["worker"],
        read: |source, samples| samples.workers(source, |worker| &worker.batches),
    },
    Metric {
        name: "pointsman_worker_overflowed_total",
        help: "Messages that the system dropped before a worker saw them, mostly for its socket was full, by worker; \
               they are no part of any other number.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &["worker"],
        read: |source, samples| {
            for (number, socket) in source.metrics.sockets.iter().enumerate() {
                // A socket that cannot be asked has no sample.
                if let Some(Ok(dropped)) = socket.upgrade().map(|socket| socket.kernel_drops()) {
                    samples.push([number.to_string()], dropped.into());
                }
            }
            for (number, queue) in source.metrics.queues() {
                samples.push([number.to_string()], queue.dropped().overrun);
            }
        },
    },
    Metric {
        name: "pointsman_worker_receive_failures_total",
        help: "Calls to receive messages that the system failed, by worker; each is made again.",
        kind: Kind::Counter,
        unit: "calls",
        labels: &["worker"],
        read: |source, samples| {
            for (number, socket) in source.metrics.sockets.iter().enumerate() {
                if let Some(socket) = socket.upgrade() {
                    samples.push([number.to_string()], socket.receive_failures());
                }
            }
            for (number, queue) in source.metrics.queues() {
                samples.push([number.to_string()], queue.receive_failures());
            }
        },
    },
    Metric {
        name: "pointsman_worker_frames_dropped_total",
        help: "Frames from an interface that were dropped, by worker and cause: malformed (no whole datagram), checksum, \
               source (nothing can be sent there).",
        kind: Kind::Counter,
        unit: "frames",
        labels: &["worker", "cause"],
        read: |source, samples| {
            for (number, queue) in source.metrics.queues() {
                let Dropped { malformed, checksum, source, .. } = queue.dropped();
                for (cause, count) in [("malformed", malformed), ("checksum", checksum), ("source", source)] {
                    samples.push([number.to_string(), cause.to_string()], count);
                }
            }
        },
    },
    Metric {
        name: "pointsman_rate_limit_slipped_total",
        help: "Answers over UDP above the rate that went out without their records.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.sum("udp", |worker| &worker.rate_slipped)),
    },
    Metric {
        name: "pointsman_rate_limit_exempt_total",
        help: "Answers over UDP that no rate limits, for their clients' cookies or signatures are valid.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.sum("udp", |worker| &worker.rate_exempt)),
    },
    Metric {
        name: "pointsman_dnstap_written_total",
        help: "Messages that dnstap's socket or file took.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tap.written.load(Ordering::Relaxed)),
    },
    Metric {
        name: "pointsman_dnstap_dropped_total",
        help: "Messages for dnstap that were lost, by cause: full, for they came faster than they were taken; \
               failed, for the reader went or the file took no more; or limit, for the file has dnstap.file_max.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &["cause"],
        read: |source, samples| {
            let full = TRANSPORTS.map(|transport| source.metrics.sum(transport, |c| &c.tap_full));
            samples.push(["full".into()], full.iter().sum());
            samples.push(["failed".into()], source.metrics.tap.failed.load(Ordering::Relaxed));
            samples.push(["limit".into()], source.metrics.tap.beyond.load(Ordering::Relaxed));
        },
    },
    Metric {
        name: "pointsman_import_faults",
        help: "Faults of the configuration's files when they were last imported, at start or at a reload: where there \
               are any, nothing of them is served that was not before. The status has the first ones.",
        kind: Kind::Gauge,
        unit: "faults",
        labels: &[],
        read: |source, samples| samples.push([], source.status.imports.faults),
    },
    Metric {
        name: "pointsman_partition_ok",
        help: "1 while the files of an imported partition could be read when they were last looked at, 0 where not.",
        kind: Kind::Gauge,
        unit: "0 or 1",
        labels: &["partition"],
        read: |source, samples| {
            for state in &source.status.partitions {
                samples.push([state.name.clone()], u64::from(state.ok));
            }
        },
    },
    Metric {
        name: "pointsman_partition_counts",
        help: "What was counted when the files of an imported partition were last read, such as routes or as_sets.",
        kind: Kind::Gauge,
        unit: "things",
        labels: &["partition", "what"],
        read: |source, samples| {
            for state in &source.status.partitions {
                for (what, count) in &state.counts {
                    samples.push([state.name.clone(), what.clone()], *count);
                }
            }
        },
    },
    Metric {
        name: "pointsman_external_known",
        help: "Blocks of addresses whose region the external proximity service has said, as far as that still holds.",
        kind: Kind::Gauge,
        unit: "blocks",
        labels: &[],
        read: |source, samples| {
            if let Some(external) = &source.status.external {
                samples.push([], external.known);
            }
        },
    },
    Metric {
        name: "pointsman_external_connected",
        help: "1 while there is a connection to the external proximity service, 0 while there is none.",
        kind: Kind::Gauge,
        unit: "0 or 1",
        labels: &[],
        read: |source, samples| {
            if let Some(external) = &source.status.external {
                samples.push([], u64::from(external.connected));
            }
        },
    },
    Metric {
        name: "pointsman_external_waiting",
        help: "Blocks of addresses that the external proximity service is to be asked about.",
        kind: Kind::Gauge,
        unit: "blocks",
        labels: &[],
        read: |source, samples| {
            if let Some(external) = &source.status.external {
                samples.push([], external.waiting);
            }
        },
    },
    Metric {
        name: "pointsman_external_events_total",
        help: "What happened with the external proximity service: blocks asked and told, questions late, lines \
               malformed, lines with unknown regions, lines unasked, connections failed, blocks leaked and notes lost.",
        kind: Kind::Counter,
        unit: "events",
        labels: &["event"],
        read: |source, samples| {
            for (event, count) in source.status.external.iter().flat_map(|external| &external.events) {
                samples.push([event.clone()], *count);
            }
        },
    },
    Metric {
        name: "pointsman_rotation_shared_total",
        help: "Turns of policies that rotate, taken in a cell that several names share because the table is full.",
        kind: Kind::Counter,
        unit: "turns",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.fast.rotation.beyond()),
    },
    Metric {
        name: "pointsman_tcp_connections_total",
        help: "TCP connections that were accepted and served.",
        kind: Kind::Counter,
        unit: "connections",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.accepted)),
    },
    Metric {
        name: "pointsman_tcp_refused_total",
        help: "TCP connections that were not served, by cause.",
        kind: Kind::Counter,
        unit: "connections",
        labels: &["cause"],
        read: |source, samples| {
            samples.push(["full".into()], source.metrics.tcp_sum(|tcp| &tcp.refused_full));
            samples.push(["per_client".into()], source.metrics.tcp_sum(|tcp| &tcp.refused_per_client));
            samples.push(["aborted".into()], source.metrics.tcp_sum(|tcp| &tcp.accept_aborted));
        },
    },
    Metric {
        name: "pointsman_tcp_accept_failed_total",
        help: "Times that the system had no descriptor or memory for a TCP connection.",
        kind: Kind::Counter,
        unit: "attempts",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.accept_failed)),
    },
    Metric {
        name: "pointsman_tcp_streams_total",
        help: "Queries over TCP that were answered by a stream of messages: transfers.",
        kind: Kind::Counter,
        unit: "streams",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.streams)),
    },
    Metric {
        name: "pointsman_tcp_stream_messages_total",
        help: "Messages of those streams.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.stream_messages)),
    },
    Metric {
        name: "pointsman_tcp_streams_cut_total",
        help: "Streams whose connection ended before them.",
        kind: Kind::Counter,
        unit: "streams",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.streams_cut)),
    },
    Metric {
        name: "pointsman_tcp_ended_total",
        help: "Connections over TCP and TLS that ended, by what ended them; tls_failed is a client that came to no terms.",
        kind: Kind::Counter,
        unit: "connections",
        labels: &["cause"],
        read: |source, samples| {
            let causes: [Cause<net::tcp::Counters, AtomicU64>; 12] = [
                ("handler", |tcp| &tcp.ended_by_handler),
                ("client", |tcp| &tcp.ended_by_client),
                ("cut_short", |tcp| &tcp.ended_cut_short),
                ("reset", |tcp| &tcp.ended_reset),
                ("idle", |tcp| &tcp.ended_idle),
                ("query_late", |tcp| &tcp.ended_query_late),
                ("answers_untaken", |tcp| &tcp.ended_answers_untaken),
                ("lifetime", |tcp| &tcp.ended_lifetime),
                ("gave_way", |tcp| &tcp.ended_gave_way),
                ("tls_failed", |tcp| &tcp.ended_no_terms),
                ("shutdown", |tcp| &tcp.ended_by_shutdown),
                ("panicked", |tcp| &tcp.handler_panics),
            ];
            for (cause, counter) in causes {
                samples.push([cause.into()], source.metrics.tcp_sum(counter));
            }
        },
    },
    Metric {
        name: "pointsman_transfers_total",
        help: "Requests for a zone, by what became of them; each that was started is finished or cut, or goes on. Those \
               that are incremental are among the started ones: they give what changed alone.",
        kind: Kind::Counter,
        unit: "requests",
        labels: &["outcome"],
        read: |source, samples| {
            let counted = source.metrics.transfers.counters();
            let answered = [
                ("started", &counted.started),
                ("incremental", &counted.incremental),
                ("finished", &counted.finished),
                ("current", &counted.current),
            ];
            for (outcome, count) in answered.into_iter().chain(counted.refused()) {
                samples.push([outcome.into()], count.load(Ordering::Relaxed));
            }
        },
    },
    Metric {
        name: "pointsman_tsig_failed_total",
        help: "Signed messages that were not believed, by cause.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &["cause"],
        read: |source, samples| {
            samples.transfers(
                source,
                &[
                    ("bad_key", |t| &t.bad_key),
                    ("bad_signature", |t| &t.bad_signature),
                    ("bad_time", |t| &t.bad_time),
                    ("bad_truncation", |t| &t.bad_truncation),
                    ("malformed", |t| &t.bad_form),
                ],
            );
        },
    },
    Metric {
        name: "pointsman_notify_total",
        help: "Notifications of secondaries, by what became of them.",
        kind: Kind::Counter,
        unit: "notifications",
        labels: &["outcome"],
        read: |source, samples| {
            samples.transfers(
                source,
                &[
                    ("sent", |t| &t.notify_sent),
                    ("send_failed", |t| &t.notify_send_failed),
                    ("acknowledged", |t| &t.notify_acknowledged),
                    ("refused", |t| &t.notify_refused),
                    ("given_up", |t| &t.notify_given_up),
                    ("put_off", |t| &t.notify_put_off),
                    ("stray_answer", |t| &t.notify_stray),
                ],
            );
        },
    },
    Metric {
        name: "pointsman_notified_total",
        help: "Notifications of primaries, by what became of them.",
        kind: Kind::Counter,
        unit: "notifications",
        labels: &["outcome"],
        read: |source, samples| {
            samples.transfers(
                source,
                &[
                    ("taken", |t| &t.notified),
                    ("refused", |t| &t.notified_refused),
                    ("no_zone", |t| &t.notified_no_zone),
                ],
            );
        },
    },
    Metric {
        name: "pointsman_zone_updates_total",
        help: "Updates of zones by clients (RFC 2136), by what became of them: made; idle, for all was so already; unmet, for a \
               prerequisite did not hold; refused, for nobody may make them or the zone would not be right; malformed; full, for \
               too many waited; failed, for the store did not take them, or others were quicker.",
        kind: Kind::Counter,
        unit: "updates",
        labels: &["outcome"],
        read: |source, samples| {
            samples.transfers(
                source,
                &[
                    ("made", |t| &t.updates_made),
                    ("idle", |t| &t.updates_idle),
                    ("unmet", |t| &t.updates_unmet),
                    ("refused", |t| &t.updates_refused),
                    ("malformed", |t| &t.updates_malformed),
                    ("full", |t| &t.updates_full),
                    ("failed", |t| &t.updates_failed),
                ],
            );
        },
    },
    Metric {
        name: "pointsman_refreshes_total",
        help: "Times that a zone was asked for at its primary, by what became of it: it was as it was, it was taken, or no \
               address gave it. Those that are incremental are among the taken ones: only what changed came.",
        kind: Kind::Counter,
        unit: "refreshes",
        labels: &["outcome"],
        read: |source, samples| {
            samples.transfers(
                source,
                &[
                    ("confirmed", |t| &t.confirmed),
                    ("taken", |t| &t.taken),
                    ("incremental", |t| &t.taken_incrementally),
                    ("failed", |t| &t.failed),
                ],
            );
        },
    },
    Metric {
        name: "pointsman_primary_zones",
        help: "Zones that primaries give us, by how they are: failing ones could not be had when they were last asked for; \
               expired ones are answered SERVFAIL; what is left alone is listed by a catalog, and here otherwise.",
        kind: Kind::Gauge,
        unit: "zones",
        labels: &["state"],
        read: |source, samples| {
            let state = &source.status.primaries;
            for (name, count) in [
                ("well", state.zones - state.failing),
                ("failing", state.failing - state.expired),
                ("expired", state.expired),
                ("left_alone", state.left_alone),
            ] {
                samples.push([name.into()], count);
            }
        },
    },
    Metric {
        name: "pointsman_api_responses_total",
        help: "Answers of the API, by HTTP's status code: from 400 on, requests that were refused.",
        kind: Kind::Counter,
        unit: "responses",
        labels: &["status"],
        read: |source, samples| {
            for (status, count) in source.metrics.api.responses() {
                samples.push([status.to_string()], count);
            }
        },
    },
    Metric {
        name: "pointsman_api_texts_unsent_total",
        help: "Zones, partitions and long policies that were asked for and not sent (503), since too many were on their \
               way to clients.",
        kind: Kind::Counter,
        unit: "texts",
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.texts_unsent.load(Ordering::Relaxed)),
    },
    Metric {
        name: "pointsman_api_accept_failed_total",
        help: "Times that the system had no descriptor or memory for a connection to the API.",
        kind: Kind::Counter,
        unit: "attempts",
        labels: &[],
        read: |source, samples| {
            samples.push([], source.metrics.api.accept_failed.load(Ordering::Relaxed));
        },
    },
    Metric {
        name: "pointsman_api_connections_cut_total",
        help: "Connections to the API that did not end by themselves, by cause: malformed, for what came was no \
               request; head_late, for no whole head came in time, or before another client needed the place; \
               untaken, for nothing was taken of an answer; broken; or lifetime, for they were too old.",
        kind: Kind::Counter,
        unit: "connections",
        labels: &["cause"],
        read: |source, samples| {
            let causes: [Cause<web::Counters, AtomicU64>; 5] = [
                ("malformed", |api| &api.malformed),
                ("head_late", |api| &api.head_late),
                ("untaken", |api| &api.untaken),
                ("broken", |api| &api.broken),
                ("lifetime", |api| &api.lifetime),
            ];
            for (cause, counter) in causes {
                samples.push([cause.into()], counter(&source.metrics.api).load(Ordering::Relaxed));
            }
        },
    },
];
