//! `pointsman trace zones`: the zones behind a trace's responses, as files that can be served.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use api::{Fault, Faults, TraceZone, TraceZones};
use nameserver::names::NameHash;
use nameserver::zone::{self, read};
use replay::remarks::counted;
use replay::zones::{Counts, LeftOut, Made, MadeUp, Record, Seen};

use super::{Input, damaged, nothing, print_json};
use crate::failure::Failure;
use crate::session;
use crate::supervision::Stop;

/// How often a zone is built, without the records that it cannot have, until it is given up.
const ROUNDS_MAX: usize = 64;

/// The longest name of a file that is made of a zone's name, in octets: longer ones are numbered.
const FILE_NAME_MAX: usize = 200;

/// The most zones of the table for people: of more the last line tells. `--json` has all.
const ZONES_SHOWN: usize = 40;

/// The configuration in the folder.
const CONFIGURATION: &str = "pointsman.toml";

/// Reads a trace's responses and writes the zones that they show into a new folder.
///
/// # Errors
/// [`Failure`]; what could be read of a damaged trace is written before, and nothing once a signal has come.
pub(super) fn run(input: &Input, folder: &Path, hierarchy: bool, json: bool) -> Result<(), Failure> {
    if fs::symlink_metadata(folder).is_ok() {
        return Err(Failure::file(folder, "it cannot be made: it is there already", "another name"));
    }
    // Told before a trace of hours is read.
    drop(Partial::make(folder)?);
    let (mut trace, progress) = input.open()?;
    let (mut seen, mut queries, mut broken) = (Seen::default(), 0, None);
    for message in &mut trace {
        match message {
            Ok(message) => {
                queries += u64::from(!message.is_response());
                seen.add(&message);
            }
            Err(damage) => broken = Some(damage),
        }
    }
    progress.end();
    let damage = broken.as_ref().map(|damage| input.damage(&trace, damage));
    let counts = seen.counts;
    if counts.responses == 0 {
        return Err(nothing(&input.file, damage, input.port, "response", queries, trace.skipped()));
    }
    let made = Made::of(seen, hierarchy);
    if made.zones.is_empty() {
        return Err(no_zones(input, damage, &counts));
    }
    let name = input.file.file_name().unwrap_or_default().to_string_lossy();
    // Before there is anything to take away.
    let mut stop = Stop::take()?.or_hang_up()?;
    let mut told = written(folder, &made, hierarchy, &name, &mut || stop.is_wanted())?;
    told.responses = counts.responses;
    told.left_out = counts.left_out().map(|(why, count)| (why.name().into(), count)).collect();
    (told.differing, told.outside) = (counts.differing, made.outside);
    told.skipped = trace.skipped().named();
    told.damage = broken;
    // Also where nobody reads it, the exit code is that of the trace.
    let printed = match json {
        true => print_json(&told),
        false => session::print(shown(&told, &made.made_up).as_bytes()),
    };
    damage.map_or(printed, |damage| Err(damaged(&damage)))
}

/// What to say of responses that show no zone.
fn no_zones(input: &Input, damage: Option<Fault>, counts: &Counts) -> Failure {
    let why: Vec<String> =
        counts.left_out().map(|(why, count)| format!("{count} {}", why.description())).collect();
    let what =
        format!("no zone can be made of its {}: {}", counted(counts.responses, "response"), why.join(", "));
    let mut faults = Faults::default();
    damage.into_iter().for_each(|damage| faults.push(damage));
    let expected = "a capture at an authoritative server, or at a resolver's way to the world";
    faults.push(Fault::whole(input.file.to_string_lossy(), what, expected));
    faults.into()
}

/// Writes zones and configuration: all of them, or nothing, as where it `is_interrupted`.
fn written(
    folder: &Path,
    made: &Made,
    hierarchy: bool,
    trace: &str,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<TraceZones, Failure> {
    let partial = Partial::make(folder)?;
    fs::create_dir(partial.0.join("zones")).map_err(|cause| unmade(folder, &cause))?;
    let unwritten =
        |cause: io::Error| Failure::Failed(format!("{}: it cannot be written: {cause}", folder.display()));
    let mut servers: BTreeMap<&[u8], BTreeSet<IpAddr>> = BTreeMap::new();
    for alike in &made.servers {
        for zone in &alike.zones {
            servers.entry(zone).or_default().extend(&alike.addresses);
        }
    }
    let mut told = TraceZones { folder: folder.display().to_string(), ..TraceZones::default() };
    for (index, zone) in made.zones.iter().enumerate() {
        if is_interrupted() {
            return Err(Failure::Failed(format!("interrupted; {} is not written", folder.display())));
        }
        let origin = dns::name::to_text(&zone.origin);
        let (text, unservable) = servable(&zone.records, &zone.master(), &origin)?;
        let file = format!("zones/{}.zone", file_name(&origin, index));
        let heading =
            format!("; {origin} by the responses of {}: what was asked for, no more.\n", one_line(trace));
        fs::write(partial.0.join(&file), heading + &text).map_err(unwritten)?;
        told.zones.push(TraceZone {
            origin,
            file,
            records: text.lines().count() as u64,
            servers: servers.get(&*zone.origin).into_iter().flatten().copied().collect(),
            unservable,
        });
    }
    let MadeUp { soa, name_servers, zones, delegations, names } = made.made_up;
    let made_up = [
        ("soa", soa),
        ("name_servers", name_servers),
        ("zones", zones),
        ("delegations", delegations),
        ("names", names),
    ];
    told.made_up = made_up.into_iter().map(|(what, count)| (what.into(), count)).collect();
    fs::write(partial.0.join(CONFIGURATION), configuration(&told, made, hierarchy, trace))
        .map_err(unwritten)?;
    fs::rename(&partial.0, folder).map_err(unwritten)?;
    Ok(told)
}

/// A folder in the making, which goes when dropped; once it has its own name, there is none of this one.
struct Partial(PathBuf);

impl Partial {
    /// Makes it beside where the folder is to be.
    fn make(folder: &Path) -> Result<Partial, Failure> {
        let mut partial = folder.as_os_str().to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = PathBuf::from(partial);
        fs::create_dir(&partial).map_err(|cause| unmade(folder, &cause))?;
        Ok(Partial(partial))
    }
}

fn unmade(folder: &Path, cause: &io::Error) -> Failure {
    Failure::file(folder, format!("it cannot be made: {cause}"), "")
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A zone in canonical text, without the records that it cannot have, and how many those are: a trace of hours can show an
/// alias and, later, what has taken its place.
fn servable(records: &[Record], master: &str, origin: &str) -> Result<(String, u64), Failure> {
    let mut lines: Vec<&str> = master.lines().collect();
    let include = |_: &str| Err("a record includes nothing".to_owned());
    for _ in 0..ROUNDS_MAX {
        let text = lines.join("\n") + "\n";
        let source = read::Source { name: origin, text: text.as_bytes(), origin: None, include: &include };
        let hash = NameHash::new(0);
        let built = read::read(&source).and_then(|read| zone::Zone::build(&read, origin, &hash));
        let faults = match built {
            Ok(zone) => return Ok((zone.to_text(), (records.len() - lines.len()) as u64)),
            Err(faults) => faults,
        };
        let wrong: BTreeSet<usize> =
            faults.faults.iter().filter_map(|fault| Some(fault.line? as usize - 1)).collect();
        if wrong.is_empty() {
            return Err(faults.into());
        }
        let mut at = 0..;
        lines.retain(|_| at.next().is_none_or(|at| !wrong.contains(&at)));
    }
    let what = format!("the zone still has faults without the first {} of them", records.len() - lines.len());
    Err(Failure::Failed(format!("{origin}: {what}")))
}

/// A zone's name as that of a file, without the final dot; the root is `root`.
fn file_name(origin: &str, index: usize) -> String {
    let name = match origin.strip_suffix('.') {
        Some("") => return "root".into(),
        // It is the name of the root's.
        Some("root") => return "%72oot".into(),
        name => name.unwrap_or(origin),
    };
    let mut file = String::new();
    for c in name.chars() {
        match c {
            'a'..='z' | '0'..='9' | '-' | '_' | '.' => file.push(c),
            c => file += &format!("%{:02x}", u32::from(c)),
        }
    }
    // A name that begins with a dot is hidden.
    let file = file.strip_prefix('.').map(|rest| format!("%2e{rest}")).unwrap_or(file);
    if file.len() > FILE_NAME_MAX { format!("%{index}") } else { file }
}

/// A text in which no line ends, for a comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The configuration that serves the zones: with `hierarchy` each at the addresses of its servers, else at one.
fn configuration(told: &TraceZones, made: &Made, hierarchy: bool, trace: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let list = |values: Vec<String>| match values.as_slice() {
        [one] => format!("[{one}]"),
        several => format!("[\n    {},\n]", several.join(",\n    ")),
    };
    let files = list(told.zones.iter().map(|zone| quoted(&zone.file)).collect());
    let trace = one_line(trace);
    let mut text = format!("# The zones behind the responses of {trace}.\nversion = \"v1\"\n");
    if hierarchy {
        text += "# Every address of its network namespace is ours there: the guide says how.\n\
                 listen = [\"0.0.0.0:53\", \"[::]:53\"]\n";
    }
    text += &format!("store = \"sqlite:pointsman.db\"\nzone = {files}\n");
    if hierarchy {
        for servers in &made.servers {
            let addresses =
                list(servers.addresses.iter().map(|address| quoted(&address.to_string())).collect());
            let zones = list(servers.zones.iter().map(|zone| quoted(&dns::name::to_text(zone))).collect());
            text += &format!("\n[[view]]\naddresses = {addresses}\nzones = {zones}\n");
        }
    }
    text
}

fn shown(told: &TraceZones, made_up: &MadeUp) -> String {
    let mut table = session::table(&["ZONE", "RECORDS", "SERVERS", "FILE"]);
    for zone in told.zones.iter().take(ZONES_SHOWN) {
        let (records, servers) = (zone.records.to_string(), zone.servers.len().to_string());
        table.add_row([zone.origin.clone(), records, servers, zone.file.clone()]);
    }
    let more = match told.zones.len().saturating_sub(ZONES_SHOWN) {
        0 => String::new(),
        more => format!("\nand {}", counted(more as u64, "zone more")),
    };
    let records = told.zones.iter().map(|zone| zone.records).sum();
    let unservable: u64 = told.zones.iter().map(|zone| zone.unservable).sum();
    let left_out = LeftOut::ALL.into_iter().filter_map(|why| Some((why, *told.left_out.get(why.name())?)));
    let left_out = left_out.map(|(why, count)| (count, "response", why.description()));
    let records_left_out = [
        (told.outside, "RRset", "of no zone that their server has"),
        (told.differing, "RRset", "that came again with other records: the first was taken"),
        (unservable, "record", "that cannot be served beside the others"),
    ];
    let left_out = listed("Left out", left_out.chain(records_left_out));
    let made_up = [
        (made_up.soa, "SOA record", ""),
        (made_up.name_servers, "NS set", "of an apex"),
        (made_up.zones, "zone", "that only delegates"),
        (made_up.delegations, "delegation", ""),
        (made_up.names, "name", "without a record that was seen (type 65280)"),
    ];
    let made_up = listed("Made up", made_up);
    let (folder, zones) = (&told.folder, counted(told.zones.len() as u64, "zone"));
    format!(
        "{folder}: {zones}, {} of {}\n\n{}{more}{left_out}{made_up}\n\nServe them: pointsman serve --config {}",
        counted(records, "record"),
        counted(told.responses, "response"),
        session::lines(table),
        Path::new(folder).join(CONFIGURATION).display(),
    )
}

/// How many of what there are, a line each, below a heading; nothing where there are none.
fn listed<'a>(heading: &str, counts: impl IntoIterator<Item = (u64, &'a str, &'a str)>) -> String {
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let lines: Vec<String> =
        counts.map(|(count, what, then)| format!("\n  {} {then}", counted(count, what))).collect();
    match lines.is_empty() {
        true => String::new(),
        false => {
            format!("\n\n{heading}:{}", lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_their_zones() {
        let long =
            "a".repeat(63) + "." + &"b".repeat(63) + "." + &"c".repeat(63) + "." + &"d".repeat(60) + ".";
        for (origin, expected) in [
            (".", "root"),
            ("root.", "%72oot"),
            ("example.com.", "example.com"),
            ("a/b.example.", "a%2fb.example"),
            ("\\..example.", "%5c..example"),
            (&long, "%7"),
        ] {
            assert_eq!(file_name(origin, 7), expected);
        }
    }

    #[test]
    fn an_interrupt_leaves_nothing_of_the_folder() {
        let place = ::tests::folder::Folder::new();
        let zones = ["one", "two"].map(|name| {
            let origin = dns::name::folded_from_text(name).expect("a name").into_boxed_slice();
            let soa =
                Record { owner: Box::clone(&origin), rtype: dns::Rtype::SOA, ttl: 60, data: vec![0; 22] };
            let ns = Record { owner: Box::clone(&origin), rtype: dns::Rtype::NS, ttl: 60, data: vec![0] };
            replay::zones::Zone { origin, records: vec![soa, ns] }
        });
        let made = Made { zones: zones.into(), ..Made::default() };
        let folder = place.path().join("zones of yesterday");
        let mut looks = 0;
        let mut second = || {
            looks += 1;
            looks == 2
        };
        let Err(Failure::Failed(told)) = written(&folder, &made, false, "yesterday.pcap", &mut second) else {
            panic!("it is interrupted")
        };
        assert_eq!(told, format!("interrupted; {} is not written", folder.display()));
        assert_eq!(fs::read_dir(place.path()).expect("the folder is there").count(), 0);
        assert!(written(&folder, &made, false, "yesterday.pcap", &mut || false).is_ok());
        assert!(folder.join("zones/two.zone").is_file());
    }

    #[test]
    fn what_cannot_be_served_beside_the_others_is_left_out() {
        let record =
            |rtype, data: &[u8]| Record { owner: Box::new([0]), rtype, ttl: 60, data: data.to_vec() };
        let soa = [&[0; 2][..], &[0; 20]].concat();
        let records = vec![
            record(dns::Rtype::SOA, &soa),
            record(dns::Rtype::NS, &[0]),
            // An address has four octets.
            record(dns::Rtype::A, &[192, 0, 2]),
            record(dns::Rtype::A, &[192, 0, 2, 1]),
        ];
        let zone = replay::zones::Zone { origin: Box::new([0]), records };
        let Ok((text, unservable)) = servable(&zone.records, &zone.master(), ".") else {
            panic!("it can be served")
        };
        assert_eq!((unservable, text.lines().count()), (1, 3), "{text}");
        assert!(text.contains("\n. 60 IN A 192.0.2.1\n"), "{text}");
    }
}
