//! Which servers of a policy the name server leaves out of answers (docs/concepts/health.md).

use std::collections::BTreeSet;

use api::{Policy, ProbeState, ProbeVerdict, Server, ServerState, Target, WhenAllDown};

/// Why a server is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// An operator has set it down.
    Down,
    /// Its probe fails.
    Failing,
}

impl Out {
    /// The reason, in words.
    pub fn why(self) -> &'static str {
        match self {
            Out::Down => "it is down",
            Out::Failing => "its probe fails",
        }
    }
}

/// Why each of the policy's servers is left out; `None` for one that may be drawn, also where it is only because nobody is
/// left of its family.
pub fn of(policy: &Policy, servers: &[ServerState], probes: &[ProbeState]) -> Vec<Option<Out>> {
    let down: BTreeSet<&Target> =
        servers.iter().filter(|state| !state.up).map(|state| &state.target).collect();
    let failing: BTreeSet<(&str, &str)> = probes
        .iter()
        .filter(|state| state.state == ProbeVerdict::Failing)
        .map(|state| (state.server.as_str(), state.probe.as_str()))
        .collect();
    let why = |server: &Server| {
        let shown = server.target.to_string();
        let is_failing = |probe: &String| failing.contains(&(shown.as_str(), probe.as_str()));
        match down.contains(&server.target) {
            true => Some(Out::Down),
            false => server.probe.as_ref().is_some_and(is_failing).then_some(Out::Failing),
        }
    };
    let mut out: Vec<Option<Out>> = policy.servers.iter().map(why).collect();
    if policy.when_all_down == WhenAllDown::Answer {
        for is_v4 in [true, false] {
            let family = policy.servers.iter().zip(&mut out);
            open(family.filter(|(server, _)| server.target.is_ipv4() == is_v4).map(|(_, out)| out).collect());
        }
    }
    out
}

/// Lets a family of which all are left out be drawn: those whose probes fail, for that is a guess; all where there are
/// none.
fn open(family: Vec<&mut Option<Out>>) {
    if family.iter().any(|out| out.is_none()) {
        return;
    }
    let is_guess = family.iter().any(|out| **out == Some(Out::Failing));
    for out in family {
        if !is_guess || *out == Some(Out::Failing) {
            *out = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_left_out_is_as_the_name_server_has_it() {
        let (down, failing) = (Some(Out::Down), Some(Out::Failing));
        let check = |when: &str, is_down: &[&str], fails: &[&str], expected: [Option<Out>; 4]| {
            let servers = r#"[{"address":"192.0.2.1","probe":"web"},{"address":"192.0.2.2","probe":"web"},
                {"address":"192.0.2.3"},{"address":"2001:db8::1","probe":"web"}]"#;
            let text = format!("{{\"when_all_down\":\"{when}\",\"servers\":{servers}}}");
            let policy = Policy::read("test", &text).expect("a policy");
            let states = policy.servers.iter().map(|server| server.target.clone());
            let is_up = |target: &Target| !is_down.contains(&target.to_string().as_str());
            let states = states.map(|target| ServerState { up: is_up(&target), target });
            let probe = |text: &&str| {
                let (probe, server) = text.split_once(' ').expect("a probe and an address");
                ProbeState {
                    server: server.into(),
                    probe: probe.into(),
                    state: ProbeVerdict::Failing,
                    since: None,
                    last: None,
                    message: None,
                }
            };
            let probes: Vec<ProbeState> = fails.iter().map(probe).collect();
            let found = of(&policy, &states.collect::<Vec<_>>(), &probes);
            assert_eq!(found, expected, "{when} {is_down:?} {fails:?}");
        };
        let v4 = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
        check("answer", &[], &[], [None; 4]);
        check("answer", &["192.0.2.1"], &["web 192.0.2.1", "web 192.0.2.2"], [down, failing, None, None]);
        // Another probe of the same server, and the probe of a server that is under none.
        check("answer", &[], &["mail 192.0.2.1", "web 192.0.2.3"], [None; 4]);
        // Nobody is left of a family: what probes say is not believed, and what an operator says where it is all.
        check("answer", &[], &["web 2001:db8::1"], [None; 4]);
        check("answer", &v4, &["web 2001:db8::1"], [None; 4]);
        check("answer", &v4[2..], &["web 192.0.2.1", "web 192.0.2.2"], [None, None, down, None]);
        check("empty", &v4, &["web 2001:db8::1"], [down, down, down, failing]);
    }
}
