//! What an agent sees, shown live.

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use agent::View;
use api::{AgentBalancer, AgentQuota, AgentService, AgentStatus};
use tokio::sync::oneshot;

use crate::demo::screen::grouped;
use crate::failure::Failure;
use crate::session;
use crate::terminal;

/// How often the table is drawn.
const TABLE_PERIOD: Duration = Duration::from_millis(200);

/// How often a line or an object is written.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// The length of the bar of a queue, in characters.
const BAR: u64 = 10;

/// Shows a status again and again.
#[derive(Debug)]
pub(super) struct Print(Form);

#[derive(Debug)]
enum Form {
    Json,
    Lines,
    /// The lines of the table that was drawn last.
    Table(usize),
}

impl Print {
    /// Chooses by what stands behind stdout.
    pub(super) fn new(json: bool) -> Print {
        Print(match (json, terminal::takes_pictures(io::stdout().is_terminal())) {
            (true, _) => Form::Json,
            (false, true) => Form::Table(0),
            (false, false) => Form::Lines,
        })
    }

    /// Shows it on a thread of its own, so that a reader who stops reading holds up nobody; until who began it has lost
    /// interest, or the output takes nothing more, which is told.
    ///
    /// # Errors
    /// [`Failure`], where the system has no thread for it; [`Failure::output`] is told later.
    pub(super) fn begin(mut self, view: View) -> Result<oneshot::Receiver<Failure>, Failure> {
        let (tell, told) = oneshot::channel();
        let thread = std::thread::Builder::new().name("print".into());
        let begun = thread.spawn(move || {
            while !tell.is_closed() {
                std::thread::sleep(self.period());
                if let Err(failure) = self.show(&view.status()) {
                    // Nobody waits for it any more where it all ends.
                    let _ = tell.send(failure);
                    return;
                }
            }
        });
        begun.map_err(|cause| Failure::Failed(format!("failed to begin to print: {cause}")))?;
        Ok(told)
    }

    /// From one [`Print::show`] to the next.
    fn period(&self) -> Duration {
        match self.0 {
            Form::Table(_) => TABLE_PERIOD,
            Form::Json | Form::Lines => LINE_PERIOD,
        }
    }

    /// Shows how it is now.
    ///
    /// # Errors
    /// [`Failure::output`].
    fn show(&mut self, status: &AgentStatus) -> Result<(), Failure> {
        let text = match &mut self.0 {
            Form::Json => serde_json::to_string(status).expect("numbers and text") + "\n",
            Form::Lines => {
                status.services.iter().map(|service| line(service, status.uptime_seconds) + "\n").collect()
            }
            Form::Table(drawn) => {
                let (columns, rows) = terminal::size();
                let lines = table(status);
                let mut lines: Vec<String> =
                    lines.iter().map(|line| terminal::cut(line, columns).into()).collect();
                // What has scrolled out of sight cannot be drawn over; the cursor needs a line too.
                lines.truncate(rows.saturating_sub(1));
                let text = terminal::over(*drawn, &lines);
                *drawn = lines.len();
                text
            }
        };
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
            .map_err(|cause| Failure::output(&cause))
    }
}

/// A service in one line.
fn line(service: &AgentService, seconds: u64) -> String {
    if service.sockets == 0 {
        return format!("{seconds:>4} s  {}  absent: no credit", service.service);
    }
    let AgentService { backlog, backlog_limit, free, drops, credit, .. } = service;
    let heard = service.balancers.iter().filter(|balancer| balancer.heard).count();
    format!(
        "{seconds:>4} s  {}  queue {backlog} of {backlog_limit}, free {free}, delay {}, drained {}/s, drops {drops}, \
         {}credit {credit}, heard {heard} of {}{}",
        service.service,
        delay(service.queue_delay_us),
        service.drain_per_second.map_or("-".into(), grouped),
        service.quota.map_or(String::new(), |left| format!("quota {}, ", quota(left))),
        service.balancers.len(),
        if service.draining { ", draining" } else { "" },
    )
}

/// All services, and their balancers below them.
fn table(status: &AgentStatus) -> Vec<String> {
    let mut services = session::table(&[
        "service",
        "sockets",
        "queue",
        "",
        "free",
        "charge",
        "delay",
        "drained/s",
        "drops",
        "quota",
        "credit",
    ]);
    for service in &status.services {
        let state = match (service.sockets, service.draining) {
            (0, _) => " absent",
            (_, true) => " draining",
            _ => "",
        };
        services.add_row([
            format!("{}{state}", service.service),
            service.sockets.to_string(),
            bar(service.backlog, service.backlog_limit),
            format!("{} of {}", grouped(service.backlog), grouped(service.backlog_limit)),
            grouped(service.free),
            service.charge_octets.map_or("-".into(), |octets| octets.to_string()),
            delay(service.queue_delay_us),
            service.drain_per_second.map_or("-".into(), grouped),
            grouped(service.drops),
            service.quota.map_or("-".into(), quota),
            grouped(service.credit),
        ]);
    }
    let mut balancers =
        session::table(&["balancer", "service", "heard", "sent", "answered", "a second", "credit"]);
    for service in &status.services {
        for balancer in &service.balancers {
            let AgentBalancer { sent, answered, demand_per_second, credit, .. } = balancer;
            let heard = match (balancer.heard, balancer.heard_ms_ago) {
                (_, None) => "never".into(),
                (true, Some(_)) => "yes".into(),
                (false, Some(millis)) => format!("{} s ago", millis / 1_000),
            };
            let [sent, answered, demand, credit] =
                [sent, answered, demand_per_second, credit].map(|count| grouped(*count));
            balancers.add_row([
                balancer.address.clone(),
                service.service.clone(),
                heard,
                sent,
                answered,
                demand,
                credit,
            ]);
        }
    }
    let text = session::lines(services) + "\n\n" + &session::lines(balancers);
    text.lines().map(str::to_owned).collect()
}

fn bar(part: u64, whole: u64) -> String {
    let blocks = if whole == 0 { 0 } else { (part * BAR).div_ceil(whole).min(BAR) };
    "█".repeat(usize::try_from(blocks).unwrap_or(0)) + &"·".repeat(usize::try_from(BAR - blocks).unwrap_or(0))
}

/// What is left of a quota, of how much.
fn quota(quota: AgentQuota) -> String {
    let millis = |micros: f64| micros / 1e3;
    format!("{:.1} of {:.1} ms", millis(f64::from(quota.left_us)), millis(quota.quota_us as f64))
}

fn delay(micros: u64) -> String {
    match micros {
        0 => "0".into(),
        micros if micros < 1_000 => format!("{micros} us"),
        micros => format!("{:.1} ms", micros as f64 / 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> AgentStatus {
        let service = AgentService {
            service: "udp:192.0.2.1:53".into(),
            sockets: 2,
            look: "duplicate".into(),
            backlog: 24,
            backlog_limit: 512,
            free: 430,
            charge_octets: Some(832),
            drain_per_second: Some(12_500),
            queue_delay_us: 1_920,
            drops: 3,
            credit: 226,
            draining: false,
            quota: Some(AgentQuota {
                quota_us: 20_000,
                period_us: 100_000,
                refill_us: 40_000,
                left_us: 12_345,
                cost_ns: 80_000,
            }),
            balancers: vec![AgentBalancer {
                address: "192.0.2.9:5390".into(),
                balancer: Some("1".into()),
                heard: true,
                heard_ms_ago: Some(4),
                sent: 1_234_567,
                answered: 1_234_540,
                credit: 226,
                demand_per_second: 12_480,
                reports: 99,
            }],
        };
        let absent =
            AgentService { service: "tcp:192.0.2.1:53".into(), look: "absent".into(), ..Default::default() };
        AgentStatus { version: "0".into(), uptime_seconds: 7, services: vec![service, absent] }
    }

    #[test]
    fn a_table() {
        let expected = "\
service                  sockets  queue                  free  charge  delay   drained/s  drops  quota            credit
udp:192.0.2.1:53         2        █·········  24 of 512  430   832     1.9 ms  12,500     3      12.3 of 20.0 ms  226
tcp:192.0.2.1:53 absent  0        ··········  0 of 0     0     -       0       -          0      -                0

balancer        service           heard  sent       answered   a second  credit
192.0.2.9:5390  udp:192.0.2.1:53  yes    1,234,567  1,234,540  12,480    226";
        assert_eq!(table(&status()).join("\n"), expected);
    }

    #[test]
    fn a_line_a_second() {
        let lines: Vec<String> = status().services.iter().map(|service| line(service, 7)).collect();
        assert_eq!(
            lines,
            [
                "   7 s  udp:192.0.2.1:53  queue 24 of 512, free 430, delay 1.9 ms, drained 12,500/s, drops 3, quota 12.3 of \
                 20.0 ms, credit 226, heard 1 of 1",
                "   7 s  tcp:192.0.2.1:53  absent: no credit",
            ]
        );
    }
}
