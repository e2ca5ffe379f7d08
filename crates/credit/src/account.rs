//! The balancer's end: which reports count, and what may still be sent.
//!
//! One [`Account`] for each service. The rules:
//! - No credit without a valid lease. A lease runs from when the hello was *sent* that the report answers, by the
//!   balancer's own clock: a report that was long on its way is void when it comes, and no clocks are compared.
//! - A limit is a place on the balancer's own count of what it has sent. So a lost report changes nothing, a report
//!   that is repeated changes nothing, and what is in flight is counted once.
//! - Reports answer hellos by nonce and sequence. After a restart the nonce is another, and old reports are void.

use std::collections::VecDeque;
use std::time::Duration;

use crate::message::{Hello, Report, Service};

/// How many hellos are remembered, with the time at which each was sent: more than a lease's worth where they are
/// as close as [`HELLO_SPACING`](crate::HELLO_SPACING) allows. A report that answers an older one is late.
pub const HELLOS_MAX: usize = 64;

/// What a balancer knows of the credit at one service.
#[derive(Clone, Debug)]
pub struct Account {
    balancer: u64,
    nonce: u64,
    service: Service,
    /// Sequence of the last hello.
    sequence: u64,
    /// When each of the last hellos was sent; the last one's sequence is `sequence`.
    hellos: VecDeque<Duration>,
    /// Sequence of the last report or introduction that was taken.
    heard: u64,
    leased: Option<Leased>,
}

/// The last report that counts.
#[derive(Clone, Copy, Debug)]
struct Leased {
    report: Report,
    /// Until when it is valid.
    until: Duration,
}

/// What became of a report. All but [`Taken::Fresh`] leave the credit as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in force.
    Fresh,
    /// It answers no hello of this nonce: answer with a hello, at once and to where it came from. It may be a repeated
    /// one from anywhere, so only a [`Fresh`](Taken::Fresh) report says where further hellos go.
    Introduction,
    /// It is not newer than the one in force: repeated, or overtaken.
    Repeated,
    /// Its lease was over when it came, or it answers a hello that is no longer remembered.
    Late,
    /// It is about another service, or answers a hello that was never sent.
    Alien,
}

impl Account {
    /// Opens an account without credit.
    ///
    /// `balancer` names this balancer, over restarts; `nonce` is drawn at each start.
    ///
    /// # Panics
    /// Where one of the two is 0, which no hello may have.
    pub fn new(balancer: u64, nonce: u64, service: Service) -> Self {
        assert!(balancer != 0 && nonce != 0, "a balancer and its nonce are not 0");
        Self { balancer, nonce, service, sequence: 0, hellos: VecDeque::new(), heard: 0, leased: None }
    }

    /// Which service it is about.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Makes the next hello, which is sent at `now`; `sent` and `answered` are as in [`Hello`].
    pub fn hello(&mut self, now: Duration, sent: u64, answered: u64) -> Hello {
        if self.hellos.len() == HELLOS_MAX {
            self.hellos.pop_front();
        }
        self.hellos.push_back(now);
        self.sequence += 1;
        let Self { balancer, nonce, service, sequence, heard, .. } = *self;
        Hello { balancer, nonce, service, sequence, heard, sent, answered }
    }

    /// Takes a report that came at `now`.
    pub fn take(&mut self, report: &Report, now: Duration) -> Taken {
        if report.service != self.service {
            return Taken::Alien;
        }
        if (report.balancer, report.nonce) != (self.balancer, self.nonce) {
            self.heard = report.sequence;
            return Taken::Introduction;
        }
        let Some(age) = self.sequence.checked_sub(report.hello) else { return Taken::Alien };
        let place = |report: &Report| (report.hello, report.sequence);
        if self.leased.is_some_and(|leased| place(report) <= place(&leased.report)) {
            return Taken::Repeated;
        }
        let age = usize::try_from(age).unwrap_or(usize::MAX);
        let sent = self.hellos.len().checked_sub(1).and_then(|last| last.checked_sub(age));
        let Some(sent) = sent.and_then(|index| self.hellos.get(index)) else { return Taken::Late };
        let until = sent.saturating_add(report.lease);
        if until <= now {
            return Taken::Late;
        }
        self.heard = report.sequence;
        self.leased = Some(Leased { report: *report, until });
        Taken::Fresh
    }

    /// How much may be sent at `now` by a balancer that has sent `sent`; `None` without a valid lease.
    pub fn credit(&self, now: Duration, sent: u64) -> Option<u64> {
        self.report(now).map(|report| report.limit.saturating_sub(sent))
    }

    /// The report in force at `now`, if any.
    pub fn report(&self, now: Duration) -> Option<&Report> {
        self.leased.as_ref().filter(|leased| now < leased.until).map(|leased| &leased.report)
    }

    /// The last report that counted, with the time at which its lease ends or has ended.
    pub fn last(&self) -> Option<(&Report, Duration)> {
        self.leased.as_ref().map(|leased| (&leased.report, leased.until))
    }

    /// Whether half of the credit of the report in force is used, so that a hello should not wait for the interval.
    ///
    /// Hellos are no closer than [`HELLO_SPACING`](crate::HELLO_SPACING), which is the caller's to see to.
    pub fn is_half_used(&self, now: Duration, sent: u64) -> bool {
        self.report(now).zip(self.credit(now, sent)).is_some_and(|(report, credit)| {
            let granted = report.limit.saturating_sub(report.sent);
            granted > 0 && credit <= granted / 2
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{INTERVAL, LEASE};
    use proptest::prelude::*;

    const BALANCER: u64 = 7;
    const NONCE: u64 = 11;

    fn service() -> Service {
        "udp:192.0.2.1:53".parse().expect("a service")
    }

    fn account() -> Account {
        Account::new(BALANCER, NONCE, service())
    }

    /// A report that answers a hello and grants `credit` from there.
    fn answer(hello: &Hello, sequence: u64, credit: u64) -> Report {
        Report {
            balancer: hello.balancer,
            nonce: hello.nonce,
            service: hello.service,
            sequence,
            hello: hello.sequence,
            sent: hello.sent,
            limit: hello.sent + credit,
            queue_delay: Duration::ZERO,
            drops: 0,
            backlog: 0,
            backlog_limit: 256,
            lease: LEASE,
            draining: false,
            quota: None,
        }
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn there_is_no_credit_without_a_lease() {
        let mut account = account();
        assert_eq!(account.credit(ms(0), 0), None);
        let hello = account.hello(ms(100), 40, 30);
        assert_eq!(account.credit(ms(100), 40), None);
        assert_eq!(account.take(&answer(&hello, 1, 10), ms(101)), Taken::Fresh);
        for (now, sent, credit) in [
            (101, 40, Some(10)),
            (101, 45, Some(5)),
            (101, 50, Some(0)),
            (159, 51, Some(0)),
            // From when the hello was sent, not from when the report came.
            (160, 40, None),
        ] {
            assert_eq!(account.credit(ms(now), sent), credit, "at {now} ms with {sent} sent");
        }
        assert!(account.last().is_some_and(|(report, until)| report.limit == 50 && until == ms(160)));
    }

    #[test]
    fn a_report_is_held_against_the_hello_that_it_answers() {
        let mut account = account();
        let hellos: Vec<Hello> = (0..4).map(|number| account.hello(INTERVAL * number, 0, 0)).collect();
        let now = INTERVAL * 3;
        let other_service = "tcp:192.0.2.1:53".parse().expect("a service");
        let fresh = answer(&hellos[2], 5, 10);
        for (report, taken) in [
            (Report { service: other_service, ..fresh }, Taken::Alien),
            (Report { nonce: NONCE + 1, ..fresh }, Taken::Introduction),
            (Report { balancer: 0, nonce: 0, ..fresh }, Taken::Introduction),
            (Report { hello: 5, ..fresh }, Taken::Alien),
            // Its hello is a lease old.
            (answer(&hellos[0], 4, 10), Taken::Late),
            (Report { hello: 0, ..fresh }, Taken::Late),
            (Report { lease: ms(20), ..fresh }, Taken::Late),
            (fresh, Taken::Fresh),
            (fresh, Taken::Repeated),
            (answer(&hellos[2], 4, 99), Taken::Repeated),
            (answer(&hellos[1], 6, 99), Taken::Repeated),
            (answer(&hellos[2], 6, 8), Taken::Fresh),
            // The agent was started again: what it reports answers a later hello.
            (answer(&hellos[3], 1, 12), Taken::Fresh),
        ] {
            let before = account.credit(now, 0);
            assert_eq!(account.take(&report, now), taken, "{report:?}");
            if taken != Taken::Fresh {
                assert_eq!(account.credit(now, 0), before, "{report:?}");
            }
        }
        assert_eq!(account.credit(now, 0), Some(12));
    }

    #[test]
    fn a_restarted_balancer_is_not_fooled_by_old_reports() {
        let mut before = account();
        let hello = before.hello(ms(0), 1_000_000, 0);
        let old = answer(&hello, 9, 500);
        assert_eq!(before.take(&old, ms(1)), Taken::Fresh);
        let mut after = Account::new(BALANCER, NONCE + 1, service());
        after.hello(ms(2), 0, 0);
        assert_eq!(after.take(&old, ms(3)), Taken::Introduction);
        assert_eq!(after.credit(ms(3), 0), None);
        // The agent learns from the next hello that it was heard.
        assert_eq!(after.hello(ms(4), 0, 0).heard, 9);
    }

    #[test]
    fn half_of_the_credit_asks_for_a_hello() {
        let mut account = account();
        let hello = account.hello(ms(0), 100, 0);
        assert!(!account.is_half_used(ms(0), 100));
        account.take(&answer(&hello, 1, 10), ms(1));
        for (sent, expected) in [(100, false), (104, false), (105, true), (110, true), (120, true)] {
            assert_eq!(account.is_half_used(ms(1), sent), expected, "{sent} sent");
        }
        account.take(&answer(&hello, 2, 0), ms(1));
        assert!(!account.is_half_used(ms(1), 100), "there is nothing to use");
        assert!(!account.is_half_used(ms(60), 110), "there is no lease");
    }

    #[test]
    fn as_many_hellos_are_remembered_as_fit_into_a_lease() {
        let mut account = account();
        let hellos: Vec<Hello> = (0..2 * HELLOS_MAX as u64).map(|at| account.hello(ms(at), at, 0)).collect();
        let now = ms(2 * HELLOS_MAX as u64 - 1);
        let oldest = HELLOS_MAX;
        let long = |hello: &Hello, sequence| Report { lease: ms(1_000), ..answer(hello, sequence, 1) };
        assert_eq!(account.take(&long(&hellos[oldest - 1], 1), now), Taken::Late);
        assert_eq!(account.take(&long(&hellos[oldest], 2), now), Taken::Fresh);
        assert_eq!(account.take(&long(&hellos[2 * HELLOS_MAX - 1], 3), now), Taken::Fresh);
    }

    /// What the network does to a report.
    #[derive(Clone, Copy, Debug)]
    struct Fate {
        is_lost: bool,
        /// Milliseconds that it is on its way.
        late: u64,
        /// Milliseconds after which it comes again, if it does.
        again: Option<u64>,
    }

    fn fates() -> impl Strategy<Value = Vec<(u64, Fate)>> {
        let fate = (any::<bool>(), 0..200_u64, proptest::option::of(0..2_000_u64))
            .prop_map(|(is_lost, late, again)| Fate { is_lost, late, again });
        proptest::collection::vec((0..50_u64, fate), 1..40)
    }

    proptest! {
        /// Whatever is lost, late or out of order: the credit in force is one that an answer to a hello of the last
        /// lease has granted, and what comes again changes nothing.
        #[test]
        fn loss_delay_and_repetition_never_add_credit(fates in fates()) {
            let (mut once, mut again) = (account(), account());
            // (when, is it the first copy, report)
            let mut arrivals: Vec<(u64, bool, Report)> = Vec::new();
            let mut hellos = Vec::new();
            for (number, (credit, fate)) in fates.iter().enumerate() {
                let at = 20 * number as u64;
                let hello = once.hello(ms(at), number as u64 * 10, 0);
                prop_assert_eq!(again.hello(ms(at), number as u64 * 10, 0).sent, hello.sent);
                hellos.push(hello);
                let report = answer(&hello, number as u64, *credit);
                if !fate.is_lost {
                    arrivals.push((at + fate.late, true, report));
                    arrivals.extend(fate.again.map(|more| (at + fate.late + more, false, report)));
                }
                // What comes until the next hello.
                arrivals.sort_by_key(|(when, is_first, report)| (*when, !is_first, report.sequence));
                let due = arrivals.iter().take_while(|(when, ..)| *when < at + 20).count();
                for (when, is_first, report) in arrivals.drain(..due) {
                    if is_first {
                        once.take(&report, ms(when));
                    }
                    again.take(&report, ms(when));
                    let credit = once.credit(ms(when), 0);
                    prop_assert_eq!(again.credit(ms(when), 0), credit);
                    if let Some(limit) = credit {
                        let granted = fates.iter().enumerate().any(|(number, (credit, _))| {
                            let (at, sent) = (20 * number as u64, number as u64 * 10);
                            sent + credit == limit && ms(at) <= ms(when) && ms(when) < ms(at) + LEASE
                        });
                        prop_assert!(granted, "{limit} at {when} ms");
                    }
                }
            }
        }
    }
}
