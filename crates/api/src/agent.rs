//! How an agent beside a server is doing.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How an agent is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentStatus {
    /// The program's version.
    pub version: String,
    /// Seconds since start.
    pub uptime_seconds: u64,
    /// What it looks at.
    pub services: Vec<AgentService>,
}

/// What an agent sees of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentService {
    /// The service, as `udp:192.0.2.1:53`.
    pub service: String,
    /// How many sockets it has.
    pub sockets: usize,
    /// How they are looked at between hellos: `duplicate`, `netlink`, or `absent` where there is none.
    pub look: String,
    /// Datagrams or connections that wait: the fullest queue times the number of sockets.
    pub backlog: u64,
    /// How many can wait.
    pub backlog_limit: u64,
    /// How many more will not be turned away.
    pub free: u64,
    /// Octets of the kernel's memory that a datagram takes, once that was learned.
    pub charge_octets: Option<u32>,
    /// Datagrams or connections that are taken in a second, once that was measured.
    pub drain_per_second: Option<u64>,
    /// How long the last in the queue will wait, in microseconds.
    pub queue_delay_us: u64,
    /// Datagrams or connections that the kernel has turned away since the agent was started.
    pub drops: u64,
    /// How many all balancers together may send on top of what they had sent when it was looked.
    pub credit: u64,
    /// Whether it takes no more.
    pub draining: bool,
    /// What its quota of processor time leaves the server; nothing where it has none, or too little is known of it.
    pub quota: Option<AgentQuota>,
    /// Whom it is told.
    pub balancers: Vec<AgentBalancer>,
}

/// What a server's quota of processor time leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentQuota {
    /// How much it may use in each period, in microseconds.
    pub quota_us: u64,
    /// From one refill to the next, in microseconds.
    pub period_us: u64,
    /// Until the next refill, in microseconds.
    pub refill_us: u64,
    /// What is left until then, in microseconds; below 0 where more was used than there was.
    pub left_us: i32,
    /// What a query costs of it, in nanoseconds.
    pub cost_ns: u64,
}

/// What an agent knows of one balancer about one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentBalancer {
    /// Where reports go.
    pub address: String,
    /// How it names itself, in hexadecimal; nothing before it was heard.
    pub balancer: Option<String>,
    /// Whether a hello is in force.
    pub heard: bool,
    /// Milliseconds since the last hello.
    pub heard_ms_ago: Option<u64>,
    /// Queries or connections that it has sent since it was started.
    pub sent: u64,
    /// How many of them were answered or have ended.
    pub answered: u64,
    /// How many it may send on top of that.
    pub credit: u64,
    /// Queries or connections a second, averaged.
    pub demand_per_second: u64,
    /// Reports that it was sent.
    pub reports: u64,
}
