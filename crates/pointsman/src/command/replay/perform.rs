//! A replay done: in this process, as one of several, or by several.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use api::replay::ReplayReport;
use api::{Fault, Faults};
use net::awake::Awake;
use net::hop::Hop;
use net::whole;
use replay::mutate::Mutation;
use replay::observe::Observer;
use replay::page::page;
use replay::remarks::{counted, lost_here, remarks};
use replay::report::{About, report};
use replay::schedule::census::Census;
use replay::schedule::{Met, Plan, Schedule};
use replay::send::carrier::Carrier;
use replay::send::{self, Done, LOG_HEADING, Live, Options, Process};
use replay::trace::looped::{self, Kept, Looped};
use replay::trace::{Trace, pcap};

use super::super::trace::nothing;
use super::line::Line;
use super::made::Made;
use super::shown::{Beside, shown, verdict};
use super::{LIVE_PERIOD, Names, Replay, Said, processes};
use crate::failure::Failure;
use crate::session;

/// The files of a report.
const REPORT: &str = "report.json";
const PAGE: &str = "index.html";

/// Their rights, less what the process's mask takes away.
const REPORT_MODE: u32 = 0o666;

/// What a run writes to while it goes on, and whom it reads.
struct Outputs {
    log: Option<File>,
    compare: Option<File>,
    observer: Option<Observer>,
}

impl Replay {
    /// Makes what is written to, has the queries sent, by this process or by several, and tells what came of it.
    ///
    /// # Errors
    /// [`Failure`]; the report is printed and written before.
    pub(super) fn replay(self, said: Said, live: &Arc<Live>) -> Result<(), Failure> {
        let begins = self.process.map(|_| processes::listen(live));
        // Whatever is wrong with the file is told before anything is sent.
        self.readable_again()?;
        let open = || self.open().map_err(|error| self.unreadable(&error));
        let first = open()?;
        let (format, is_packed) = (first.format(), first.is_packed());
        let damage = |done: &Done| {
            let damage = done.met.damage.as_ref();
            damage.map(|damage| damage.fault(&self.trace.to_string_lossy(), format, is_packed))
        };
        let mut made = Made::default();
        let outputs = self.outputs(&mut made)?;
        let Said { plan, mutation, tls, hops } = said;
        let _awake = self.awake()?;
        if self.processes > 1 && self.is_first() {
            let done = self.by_several(mutation.as_ref(), outputs, live)?;
            return self.conclude(&plan, mutation, &done, damage(&done), made);
        }
        let census = match plan.wanted() {
            None => {
                // It holds what it has read ahead.
                drop(first);
                Census::default()
            }
            Some(wanted) => {
                // Of a run that is stopped meanwhile nothing is sent, whatever the census is.
                let mut first = first;
                let steps =
                    std::iter::from_fn(|| first.step().filter(|_| !live.stop.load(Ordering::Relaxed)));
                Census::of(steps.filter_map(Result::transpose), wanted)
                    .map_err(|error| self.unreadable(&error))?
            }
        };
        let kept = if plan.loops > 1 { looped::kept(open()?) } else { None };
        let schedules = self.schedules(&plan, census, kept.as_ref());
        let options = self.options(mutation.clone(), tls, hops, outputs, begins);
        let done = self.by_this(|| send::run(schedules, options, live), live)?;
        if self.is_first() {
            self.conclude(&plan, mutation, &done, damage(&done), made)
        } else {
            processes::tell_done(&done)
        }
    }

    /// Whether this is the process that a user began.
    fn is_first(&self) -> bool {
        self.process.is_none()
    }

    /// Refuses what can be read only once: each thread reads the trace for itself, and the first look takes of it, too.
    fn readable_again(&self) -> Result<(), Failure> {
        // What is not there is told by who opens it; `-` is stdin elsewhere.
        let is_stdin = self.trace == Path::new("-");
        if !is_stdin && std::fs::metadata(&self.trace).map_or(true, |found| found.is_file()) {
            return Ok(());
        }
        let what = "it is no regular file, and a trace is read several times";
        Err(Failure::file(&self.trace, what, "a file; write what a pipe gives into one"))
    }

    fn open(&self) -> Result<Trace, replay::trace::Error> {
        Trace::open(&self.trace, self.port)
    }

    fn unreadable(&self, cause: &dyn std::fmt::Display) -> Failure {
        Failure::file(&self.trace, cause.to_string(), "")
    }

    /// Makes what is written to, and sees that a report can be. The first process makes files; all add to their ends.
    fn outputs(&self, made: &mut Made) -> Result<Outputs, Failure> {
        // The folder first: other outputs may be in it.
        if let Some(folder) = self.report.as_ref().filter(|_| self.is_first()) {
            made.folder(folder).map_err(|cause| match cause.kind() {
                io::ErrorKind::AlreadyExists => {
                    Failure::file(folder, "it cannot be made: it is there already, and no folder", "a folder")
                }
                _ => written(folder, &cause),
            })?;
            for path in [REPORT, PAGE].map(|name| folder.join(name)) {
                whole::check(&path).map_err(|cause| written(&path, &cause))?;
            }
        }
        let mut make = |path: &Option<PathBuf>, heading: usize| {
            let Some(path) = path else { return Ok(None) };
            let file = if self.is_first() {
                made.file(path, heading as u64)
            } else {
                File::options().append(true).open(path)
            };
            file.map(Some).map_err(|cause| written(path, &cause))
        };
        let (mut log, compare) = (make(&self.log, LOG_HEADING.len())?, make(&self.compare, pcap::HEADER)?);
        if let (Some(path), Some(log), true) = (&self.log, &mut log, self.is_first()) {
            let heading = log.write_all(LOG_HEADING.as_bytes());
            heading.map_err(|cause| {
                Failure::Failed(format!("{}: it cannot be written: {cause}", path.display()))
            })?;
        }
        let observed = |pid| {
            Observer::new(pid).map_err(|cause| {
                let expected = "a running process whose descriptors this user may read";
                Fault::whole("--observe", format!("{pid}: {cause}"), expected)
            })
        };
        let observer = self.observe.filter(|_| self.is_first()).map(observed).transpose()?;
        Ok(Outputs { log, compare, observer })
    }

    /// Keeps cores from resting where that is wanted, the first process for all.
    fn awake(&self) -> Result<Option<Awake>, Failure> {
        let awake = (self.awake && self.is_first()).then(Awake::begin).transpose();
        let what = |cause: io::Error| format!("cores cannot be kept from resting: {cause}");
        Ok(awake.map_err(|cause| Fault::whole("--awake", what(cause), ""))?)
    }

    /// A schedule for each thread.
    fn schedules(
        &self,
        plan: &Plan,
        census: Census,
        kept: Option<&Kept>,
    ) -> Vec<Schedule<Looped, impl FnMut() -> io::Result<Looped> + Send + use<>>> {
        let census = Arc::new(census);
        (0..self.threads)
            .map(|_| {
                let (trace, port, kept) = (self.trace.clone(), self.port, kept.cloned());
                let open = move || match &kept {
                    Some(kept) => Ok(Looped::Kept(Arc::clone(kept), 0)),
                    None => Trace::open(&trace, port)
                        .map(|trace| Looped::Read(Box::new(trace)))
                        .map_err(io::Error::other),
                };
                let schedule = Schedule::new(plan.clone(), Arc::clone(&census), open);
                let schedule = schedule.with_skipped(Looped::skipped);
                let schedule = match self.source_prefix {
                    Some(prefix) => schedule.with_sources(prefix),
                    None => schedule,
                };
                if self.compare.is_some() { schedule.with_responses() } else { schedule }
            })
            .collect()
    }

    fn options(
        &self,
        mutation: Option<Mutation>,
        tls: Option<Arc<replay::send::tls::Tls>>,
        frames: Vec<(SocketAddr, Hop)>,
        outputs: Outputs,
        begins: Option<JoinHandle<io::Result<u64>>>,
    ) -> Options {
        Options {
            servers: self.server.clone(),
            carriers: self.transports.carriers(),
            ports: self.transports.ports(),
            https_path: self.transports.https_path(),
            tls,
            distances: self.transports.distances(),
            has_sources: self.source_prefix.is_some(),
            frames,
            unique_names: self.names == Names::Unique,
            mutation,
            timeout: self.timeout,
            idle: self.idle,
            window: self.fast.then_some(self.window as usize),
            threads: usize::from(self.threads),
            process: Process {
                count: usize::from(self.processes),
                number: usize::from(self.process.unwrap_or(0)),
                begin: begins.map(processes::begin),
            },
            seed: self.seed,
            log: outputs.log,
            compare: outputs.compare,
            observer: outputs.observer,
        }
    }

    /// Has further processes do it.
    fn by_several(
        &self,
        mutation: Option<&Mutation>,
        outputs: Outputs,
        live: &Live,
    ) -> Result<Done, Failure> {
        let line = Line::begin();
        let show = || line.iter().for_each(|line| line.show(live));
        processes::run(usize::from(self.processes), mutation, live, outputs.observer, show)
    }

    /// Runs `run`, and tells how it goes: a terminal, or the process that began this one.
    fn by_this(&self, run: impl FnOnce() -> io::Result<Done> + Send, live: &Live) -> Result<Done, Failure> {
        let done = std::thread::scope(|scope| {
            let line = if self.is_first() { Line::begin() } else { None };
            let run = scope.spawn(run);
            while (line.is_some() || !self.is_first()) && !run.is_finished() {
                match &line {
                    Some(line) => line.show(live),
                    None => processes::tell_live(live),
                }
                std::thread::park_timeout(LIVE_PERIOD);
            }
            run.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
        });
        done.map_err(|cause| Failure::Failed(format!("failed to replay: {cause}")))
    }

    /// Tells what came of it, and of `damage` to the trace; what was `made` stays where something did.
    fn conclude(
        &self,
        plan: &Plan,
        mutation: Option<Mutation>,
        done: &Done,
        damage: Option<Fault>,
        made: Made,
    ) -> Result<(), Failure> {
        let about = About {
            trace: self.trace.to_string_lossy().into_owned(),
            servers: self.server.iter().map(ToString::to_string).collect(),
            pacing: plan.pacing,
            mutation,
            seed: self.seed,
            threads: usize::from(self.threads),
            processes: usize::from(self.processes),
            awake: self.awake,
            tolerance_us: self.tolerance.as_secs_f64() * 1e6,
        };
        let report = report(about, done);
        if report.queries == 0 && !report.interrupted {
            return Err(self.none_due(&done.met, damage));
        }
        let damage = damage.map(|damage| damage.to_string());
        if let Some(lost) = lost_here(&report) {
            // Who closed stderr wants to hear nothing.
            let _ = writeln!(io::stderr(), "pointsman: {lost}");
        }
        let mut broken = self.tell(&report, damage.as_deref())?;
        if broken.is_empty() {
            made.keep();
        }
        let file = |path: &Option<PathBuf>| {
            path.as_ref().map_or_else(String::new, |path| path.display().to_string())
        };
        let log = file(&self.log);
        broken.extend(done.log_error.as_ref().map(|error| format!("the log {log} is not whole: {error}")));
        let differing = done.differing.as_ref().and_then(|differing| differing.error.as_ref());
        let compare = file(&self.compare);
        broken.extend(
            differing
                .map(|error| format!("the capture {compare} of differing answers is not whole: {error}")),
        );
        let used = if report.queries > 0 { "; what stands before was replayed" } else { "" };
        let damage = damage.map(|damage| format!("{damage}{used}"));
        verdict(
            &report,
            Beside { asked: self.asked(&report), tls_error: done.tls_error.clone(), damage, broken },
        )
    }

    /// Prints a report, and then writes it: what nobody takes there is not lost here. What went wrong is a sentence each.
    fn tell(&self, report: &ReplayReport, damage: Option<&str>) -> Result<Vec<String>, Failure> {
        let mut remarks = remarks(report);
        let json = serde_json::to_vec_pretty(report)
            .map_err(|cause| Failure::Failed(format!("the report is no JSON: {cause}")))?;
        let printed = match self.json {
            true => session::print(&json),
            false => session::print(shown(report, &remarks).as_bytes()),
        };
        let mut broken = printed.err().map_or_else(Vec::new, |failure| failure.messages());
        // For who sees the page alone; beside the numbers it is told as what has failed.
        remarks.splice(..0, damage.map(|damage| format!("The trace breaks off: {damage}.")));
        let written = self.report.as_ref().map_or(Ok(()), |folder| write(folder, report, &json, &remarks));
        broken.extend(written.err());
        Ok(broken)
    }

    /// Where queries went: the servers, at the ports of the transports that were used.
    fn asked(&self, report: &ReplayReport) -> Vec<String> {
        let is_used =
            |carrier: &Carrier| report.transports.get(carrier.name()).is_some_and(|count| *count > 0);
        let ports = self.transports.ports();
        let mut asked = Vec::new();
        for carrier in Carrier::ALL.into_iter().filter(is_used) {
            for server in self.server.iter().map(|server| ports.of(carrier, *server).to_string()) {
                if !asked.contains(&server) {
                    asked.push(server);
                }
            }
        }
        asked
    }

    /// Why there was nothing to send.
    fn none_due(&self, met: &Met, damage: Option<Fault>) -> Failure {
        if met.queries == 0 {
            return nothing(&self.trace, damage, self.port, "query", met.responses, &met.skipped);
        }
        let mut faults = Faults::default();
        damage.into_iter().for_each(|damage| faults.push(damage));
        let queries = counted(met.queries, "query");
        let what = format!("{} leaves none of the clients that sent the {queries} of the trace", self.factor);
        faults.push(Fault::whole("--factor", what, "a greater one, or another --seed, which draws others"));
        faults.into()
    }
}

/// Puts a report's files into their folder, each whole or not at all; what is wrong is a sentence.
fn write(folder: &Path, report: &ReplayReport, json: &[u8], remarks: &[String]) -> Result<(), String> {
    for (name, content) in [(REPORT, json), (PAGE, page(report, remarks).as_bytes())] {
        let path = folder.join(name);
        let written = whole::replace(&path, REPORT_MODE, |mut file| file.write_all(content));
        written.map_err(|cause| format!("the report {} is not written: {cause}", path.display()))?;
    }
    Ok(())
}

fn written(path: &Path, cause: &io::Error) -> Failure {
    match cause.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::file(path, "it cannot be made: it is there already", "another name")
        }
        _ => Failure::file(path, format!("it cannot be made: {cause}"), ""),
    }
}
