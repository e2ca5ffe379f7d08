//! The simulated clients and what is made of their answers: no socket and no clock.

use std::collections::VecDeque;
use std::time::Duration;

use routing::Prefix;

use super::in_force::InForce;
use super::sample::{Change, NAME, REGIONS, SITES};
use super::tally::Tally;
use super::timeline::{Timeline, Verdict};
use super::wire::{self, Family};

/// After how long without an answer a query is lost: on one machine, answers take less than a millisecond.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(1);

/// Within how long a change must be seen in an answer.
pub(super) const VISIBLE_MAX: Duration = Duration::from_secs(5);

/// The most queries that may wait for their answers, so that ids are never given twice.
const WAITING_MAX: usize = 8_192;

/// The most lost queries, as a share of all: a busy machine may stall a client for longer than its socket
/// buffers.
const LOST_MAX: f64 = 0.01;

/// The most things gone wrong that are told one by one; beyond, they are the same again.
const FAULTS_KEPT: usize = 8;

/// The most changes that are remembered for the summary.
const CHANGES_KEPT: usize = 1_000;

/// What the clients have asked and heard, and what was changed meanwhile.
pub(super) struct Watch {
    pub(super) tally: Tally,
    pub(super) timeline: Timeline,
    /// The changes, the newest last.
    pub(super) changes: VecDeque<Changed>,
    /// How many changes were begun.
    pub(super) begun: u64,
    /// The generation that has the last change that returned.
    pub(super) generation: u64,
    clients: [Vec<Prefix>; REGIONS.len()],
    rng: fastrand::Rng,
    /// What was asked, in order of ids.
    waiting: VecDeque<Waiting>,
    first_id: u16,
    faults: Vec<String>,
    faults_omitted: u64,
}

/// A change and how long it took, both since its call began.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Changed {
    pub(super) at: Duration,
    pub(super) what: String,
    pub(super) generation: u64,
    /// Until the first answer that follows it.
    pub(super) first_answer: Option<Duration>,
    /// Until the call returned.
    pub(super) returned: Option<Duration>,
    /// The region that is asked for until it is seen.
    telling: Option<usize>,
    /// How many generations it can have taken at most.
    calls: u64,
}

struct Waiting {
    sent: Duration,
    region: usize,
    family: Family,
    client: Prefix,
    is_answered: bool,
}

impl Watch {
    /// Begins with what is in force.
    pub(super) fn new(
        in_force: InForce,
        generation: u64,
        clients: [Vec<Prefix>; REGIONS.len()],
        rng: fastrand::Rng,
    ) -> Watch {
        Watch {
            tally: Tally::default(),
            timeline: Timeline::new(in_force),
            changes: VecDeque::new(),
            begun: 0,
            generation,
            clients,
            rng,
            waiting: VecDeque::new(),
            first_id: 0,
            faults: Vec::new(),
            faults_omitted: 0,
        }
    }

    /// Makes the next client's query: the regions in turn, and while a change is awaited, the one that will
    /// tell it. `None` while too many wait.
    pub(super) fn ask(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.waiting.len() >= WAITING_MAX {
            return None;
        }
        let turn = self.tally.queries as usize;
        let region = self.awaited().and_then(|change| change.telling).unwrap_or(turn % REGIONS.len());
        let family = if (turn / REGIONS.len()).is_multiple_of(2) { Family::V4 } else { Family::V6 };
        let clients = &self.clients[region];
        let client = clients[self.rng.usize(..clients.len())];
        // There are fewer than 2^16 that wait.
        let id = self.first_id.wrapping_add(self.waiting.len() as u16);
        self.waiting.push_back(Waiting { sent: now, region, family, client, is_answered: false });
        self.tally.queries += 1;
        Some(wire::query(id, family, client))
    }

    /// Judges what came in. An answer to nothing that waits is late, and counted as lost already.
    pub(super) fn hear(&mut self, now: Duration, message: &[u8]) {
        let Some(id) = wire::id(message) else { return };
        let place = usize::from(id.wrapping_sub(self.first_id));
        let Some(asked) = self.waiting.get_mut(place).filter(|asked| !asked.is_answered) else { return };
        asked.is_answered = true;
        let Waiting { sent, region, family, client, .. } = *asked;
        let address = match wire::address(message, family, client) {
            Ok(address) => address,
            Err(what) => return self.wrong(now, region, client, &what),
        };
        let Some(site) = SITES.iter().position(|site| site.servers().contains(&address)) else {
            return self.wrong(now, region, client, &format!("{address}, which no policy has"));
        };
        self.tally.answered(now, region, site);
        match self.timeline.judge(sent, now, region, site) {
            Verdict::AllowedBy(in_force) => self.tally.judged(&in_force, region, site),
            Verdict::Allowed => {}
            Verdict::Forbidden => {
                let what = format!("{address} ({}), which the policy in force forbids", SITES[site].name);
                return self.wrong(now, region, client, &what);
            }
        }
        let tells = self.timeline.tells(region, site);
        if let Some(change) = self.awaited_mut().filter(|_| tells) {
            change.first_answer = Some(now.saturating_sub(change.at));
        }
    }

    /// Gives up on what has waited too long.
    pub(super) fn expire(&mut self, now: Duration) {
        while let Some(oldest) = self.waiting.front() {
            if !oldest.is_answered {
                if now.saturating_sub(oldest.sent) < LOST_AFTER {
                    break;
                }
                self.tally.lost += 1;
            }
            self.waiting.pop_front();
            self.first_id = self.first_id.wrapping_add(1);
        }
        let unseen = self.awaited_mut().filter(|change| now.saturating_sub(change.at) > VISIBLE_MAX);
        if let Some(change) = unseen {
            change.telling = None;
            let what = format!("\"{}\" was in no answer after {} s", change.what, VISIBLE_MAX.as_secs());
            self.fault(what);
        }
    }

    /// Begins a change, which is about to be asked for.
    pub(super) fn begin(&mut self, now: Duration, change: &Change) {
        let before = self.timeline.latest();
        let after = before.after(change);
        let oldest = self.waiting.front().map_or(now, |asked| asked.sent);
        self.timeline.begin(now, after, oldest);
        if self.changes.len() == CHANGES_KEPT {
            self.changes.pop_front();
        }
        self.begun += 1;
        self.changes.push_back(Changed {
            at: now,
            what: change.what(),
            generation: 0,
            first_answer: None,
            returned: None,
            telling: after.telling(&before),
            calls: change.calls().len() as u64,
        });
    }

    /// Notes that the change is made, in `generation`, since `at`.
    pub(super) fn returned(&mut self, at: Duration, generation: u64) {
        self.timeline.returned(at);
        let Some(change) = self.changes.back_mut() else { return };
        change.generation = generation;
        change.returned = Some(at.saturating_sub(change.at));
        let expected = self.generation + change.calls;
        self.check_generation(generation, expected);
        self.generation = generation;
    }

    /// Notes where there were more generations than ours.
    pub(super) fn check_generation(&mut self, generation: u64, expected: u64) {
        if generation > expected {
            self.fault(format!(
                "generation {generation} is beyond {expected}: somebody else changed something, so that it is \
                 not known what is in force"
            ));
        }
    }

    /// Whether a change is still under way: its call has not returned, or no answer has told it.
    pub(super) fn is_changing(&self) -> bool {
        self.awaited().is_some() || self.changes.back().is_some_and(|change| change.returned.is_none())
    }

    /// Whether queries wait for their answers.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Notes what went wrong.
    pub(super) fn fault(&mut self, what: String) {
        if self.faults.len() < FAULTS_KEPT {
            self.faults.push(what);
        } else {
            self.faults_omitted += 1;
        }
    }

    /// Everything that went wrong.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = self.faults.clone();
        if self.faults_omitted > 0 {
            faults.push(format!("and {} more", self.faults_omitted));
        }
        let Tally { queries, lost, .. } = self.tally;
        if lost as f64 > LOST_MAX * queries as f64 {
            faults.push(format!("{lost} of {queries} queries were lost, more than {} %", LOST_MAX * 100.0));
        }
        if self.tally.answers == 0 {
            faults.push("no query was answered".into());
        }
        faults.extend(self.tally.deviations());
        faults
    }

    fn wrong(&mut self, now: Duration, region: usize, client: Prefix, what: &str) {
        self.tally.wrong += 1;
        let (at, region) = (now.as_secs_f64(), REGIONS[region]);
        self.fault(format!("{at:.1} s: {NAME} for {client} ({region}) was answered wrongly: {what}"));
    }

    /// The change that no answer has told yet.
    fn awaited(&self) -> Option<&Changed> {
        self.changes.back().filter(|change| change.is_awaited())
    }

    fn awaited_mut(&mut self) -> Option<&mut Changed> {
        self.changes.back_mut().filter(|change| change.is_awaited())
    }
}

impl Changed {
    fn is_awaited(&self) -> bool {
        self.first_answer.is_none() && self.telling.is_some()
    }
}

#[cfg(test)]
mod tests {
    use domain::base::iana::{Class, Rcode};
    use domain::base::{Message, MessageBuilder, Rtype, Ttl};
    use domain::rdata::{A, Aaaa};

    use super::super::sample::{self, NEAREST, SCRIPT};
    use super::*;

    const ASIA: usize = 2;
    const SINGAPORE: usize = 2;
    const NEW_YORK: usize = 1;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn watch() -> Watch {
        let mut rng = fastrand::Rng::with_seed(3);
        let clients = sample::clients(&mut rng);
        Watch::new(InForce { matrix: &NEAREST, down: [false; SITES.len()] }, 7, clients, rng)
    }

    /// Answers as a server would, with a site's server.
    fn answer(query: &[u8], site: usize) -> Vec<u8> {
        let query = Message::from_octets(query).expect("a query");
        let question = query.sole_question().expect("one question");
        let mut answer =
            MessageBuilder::new_vec().start_answer(&query, Rcode::NOERROR).expect("the answer fits");
        answer.header_mut().set_aa(true);
        let (name, ttl, servers) = (question.qname(), Ttl::from_secs(30), SITES[site].servers());
        for server in servers {
            match server {
                std::net::IpAddr::V4(v4) if question.qtype() == Rtype::A => {
                    answer.push((name, Class::IN, ttl, A::new(v4))).expect("the record fits");
                }
                std::net::IpAddr::V6(v6) if question.qtype() == Rtype::AAAA => {
                    answer.push((name, Class::IN, ttl, Aaaa::new(v6))).expect("the record fits");
                }
                _ => {}
            }
        }
        let subnet = query.opt().and_then(|opt| opt.opt().client_subnet()).expect("a client subnet");
        let mut answer = answer.additional();
        let options = answer.opt(|opt| opt.client_subnet(subnet.source_prefix_len(), 16, subnet.addr()));
        options.expect("the options fit");
        answer.finish()
    }

    /// Asks for each region once; those of asia are sent to `asia`, the others to new-york.
    fn round(watch: &mut Watch, now: Duration, asia: usize) {
        for _ in REGIONS {
            let query = watch.ask(now).expect("few wait");
            let region = watch.waiting.back().expect("it was asked just now").region;
            let site = if region == ASIA { asia } else { NEW_YORK };
            watch.hear(now, &answer(&query, site));
        }
        watch.expire(now);
    }

    #[test]
    fn a_change_is_seen_by_the_first_answer_that_only_it_can_make() {
        let mut watch = watch();
        round(&mut watch, ms(1), SINGAPORE);
        assert_eq!((watch.tally.answers, watch.tally.wrong), (4, 0));
        watch.begin(ms(10), &SCRIPT[2]);
        assert!(watch.is_changing());
        let telling = watch.ask(ms(11)).expect("few wait");
        assert_eq!(watch.waiting.back().map(|asked| asked.region), Some(ASIA));
        // What was in force before still may answer.
        watch.hear(ms(12), &answer(&telling, SINGAPORE));
        assert_eq!(watch.changes[0].first_answer, None);
        let telling = watch.ask(ms(13)).expect("few wait");
        watch.hear(ms(14), &answer(&telling, NEW_YORK));
        assert_eq!(watch.changes[0].first_answer, Some(ms(4)));
        assert!(watch.is_changing());
        watch.returned(ms(15), 8);
        assert!(!watch.is_changing());
        assert_eq!((watch.generation, watch.changes[0].returned), (8, Some(ms(5))));
        assert_eq!(watch.tally.wrong, 0);
        // Once the call has returned, it may not.
        round(&mut watch, ms(16), SINGAPORE);
        assert_eq!(watch.tally.wrong, 1);
        let faults = watch.faults();
        assert!(faults[0].contains("(asia) was answered wrongly: "), "{faults:?}");
        assert!(faults[0].ends_with("(singapore), which the policy in force forbids"), "{faults:?}");
        assert_eq!(faults.len(), 1);
    }

    #[test]
    fn changes_of_others_are_noticed() {
        let mut watch = watch();
        round(&mut watch, ms(0), SINGAPORE);
        for (change, generation, faults) in
            [(SCRIPT[0], 8, 0), (SCRIPT[2], 10, 0), (SCRIPT[3], 12, 0), (SCRIPT[1], 14, 1)]
        {
            watch.begin(ms(10), &change);
            watch.returned(ms(20), generation);
            assert_eq!(watch.faults().len(), faults, "{generation}");
        }
        assert!(watch.faults()[0].starts_with("generation 14 is beyond 13: somebody else"));
    }

    #[test]
    fn what_does_not_come_is_lost_and_what_comes_late_stays_so() {
        let mut watch = watch();
        let first = watch.ask(ms(0)).expect("few wait");
        let second = watch.ask(ms(500)).expect("few wait");
        watch.hear(ms(501), &answer(&second, NEW_YORK));
        watch.hear(ms(502), &answer(&second, NEW_YORK));
        watch.expire(ms(999));
        assert_eq!((watch.tally.lost, watch.waiting.len()), (0, 2));
        watch.expire(ms(1_000));
        assert_eq!((watch.tally.lost, watch.waiting.len()), (1, 0));
        watch.hear(ms(1_001), &answer(&first, NEW_YORK));
        watch.hear(ms(1_002), &[]);
        assert_eq!((watch.tally.queries, watch.tally.answers, watch.tally.wrong), (2, 1, 0));
        assert_eq!(watch.faults(), ["1 of 2 queries were lost, more than 1 %"]);
    }

    #[test]
    fn ids_are_never_given_twice_at_a_time() {
        let mut watch = watch();
        let asked = (0..WAITING_MAX + 5).filter_map(|_| watch.ask(ms(0))).count();
        assert_eq!(asked, WAITING_MAX);
        for round in 1..=10 {
            watch.expire(ms(1_000 * round));
            while watch.ask(ms(1_000 * round)).is_some() {}
        }
        let query = watch.ask(ms(1_000));
        assert_eq!(query, None);
        assert_eq!(watch.first_id, (WAITING_MAX * 10 % 65_536) as u16);
    }

    #[test]
    fn a_change_in_no_answer_is_a_fault_once() {
        let mut watch = watch();
        round(&mut watch, ms(0), SINGAPORE);
        watch.begin(ms(10), &SCRIPT[2]);
        watch.returned(ms(20), 8);
        watch.expire(ms(5_010));
        assert_eq!(watch.faults(), Vec::<String>::new());
        watch.expire(ms(5_011));
        watch.expire(ms(5_012));
        assert_eq!(watch.faults(), ["\"singapore down\" was in no answer after 5 s"]);
        assert!(!watch.is_changing());
    }

    #[test]
    fn many_faults_are_counted() {
        let mut watch = watch();
        watch.tally.queries = 1;
        watch.tally.answers = 1;
        (0..FAULTS_KEPT + 2).for_each(|n| watch.fault(format!("fault {n}")));
        let faults = watch.faults();
        assert_eq!(faults.len(), FAULTS_KEPT + 1);
        assert_eq!(faults[FAULTS_KEPT], "and 2 more");
    }
}
