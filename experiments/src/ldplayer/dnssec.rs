//! Figure 10: answers of a root server as its keys grow, and as all clients ask for signatures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use api::replay::ReplayReport;
use experiments::traces;
use replay::plot::{Axis, Line, Plot};

use super::servers;
use super::stage::Stage;
use crate::options::{Run, Size};
use crate::process::{Server, read};
use crate::report::{Limit, Report, number};

/// LDplayer's medians in Mb/s with 2048-bit keys: as captured (72.3 % of queries ask for signatures), and all.
const PUBLISHED: (f64, f64) = (225.0, 296.0);

/// What 2048 bits in the place of 1024 add to its bandwidth, as a share.
const PUBLISHED_KEYS: f64 = 0.32;

/// How a zone is signed.
struct Signing {
    name: &'static str,
    /// Bits of the key that signs the zone.
    bits: u32,
    /// Whether a second such key is being rolled in, and both sign.
    is_rollover: bool,
}

const SIGNINGS: &[Signing] = &[
    Signing { name: "1024", bits: 1024, is_rollover: false },
    Signing { name: "2048", bits: 2048, is_rollover: false },
    Signing { name: "1024, rollover", bits: 1024, is_rollover: true },
    Signing { name: "2048, rollover", bits: 2048, is_rollover: true },
];

/// One bar of the figure.
struct Arm {
    server: &'static str,
    signing: &'static str,
    /// Percent of queries with DO; `None` as captured.
    asked: Option<u32>,
    /// Mb of answers for each second of the trace.
    megabits: f64,
    report: ReplayReport,
}

/// Does this part.
pub(super) fn perform(stage: &Stage, run: &Run, report: &mut Report) -> Result<()> {
    if run.size == Size::Smoke {
        return Ok(());
    }
    report.heading("DNSSEC (figure 10)");
    report.say(
        "The root zone of 2018, its signatures taken off, is signed anew by BIND's dnssec-signzone: RSA/SHA-256, a key \
         of 2048 bits for the keys, one of 1024 or 2048 bits for the zone; in a rollover the zone has the signatures of \
         two. The root server's minute asks Debian's NSD and us, with DO as captured (70.9 %) and on every query. \
         Bandwidth is octets of DNS messages over UDP and TCP, without headers below.",
    );
    let Some(root) = servers::root(stage, report)? else { return Ok(()) };
    let plain = plain(stage, &root)?;
    let signings = run.size.of(SIGNINGS, &SIGNINGS[..2], &SIGNINGS[..0]);
    let mut arms = Vec::new();
    for signing in signings {
        let signed = sign(stage, &plain, signing)?;
        for name in ["nsd", "pointsman"] {
            let server = match name {
                "nsd" => servers::nsd(stage, &signed, "  tcp-count: 10000\n")?,
                _ => servers::ours(stage, &signed)?,
            };
            for asked in [None, Some(100)] {
                arms.push(ask(stage, run, &server, name, signing.name, asked)?);
            }
        }
    }
    told(&arms, report);
    Ok(())
}

fn ask(
    stage: &Stage,
    run: &Run,
    server: &Server,
    name: &'static str,
    signing: &'static str,
    asked: Option<u32>,
) -> Result<Arm> {
    // The minute has no more than 172 queries a second, so ten times its speed changes no answer.
    let seed = run.seed.to_string();
    // Clients have their own addresses, as servers limit the connections of one.
    let mut options = vec!["--speed", "10", "--seed", &seed, "--source-prefix", "127.1.0.0/16"];
    let all = asked.map(|percent| format!("do={percent}%"));
    options.extend(all.iter().flat_map(|change| ["--mutate", change]));
    let report = stage.pointsman.replay(&stage.minute, server.address, &options)?;
    // Not how long the replay took, which waits for what is lost.
    let (seconds, _) = traces::to_root_rate(&stage.minute, run.seed)?;
    let megabits = report.answer_octets as f64 * 8.0 / 1e6 / seconds;
    Ok(Arm { server: name, signing, asked, megabits, report })
}

fn told(arms: &[Arm], report: &mut Report) {
    let of = |server: &str, signing: &str, asked: Option<u32>| {
        arms.iter()
            .find(|arm| arm.server == server && arm.signing == signing && arm.asked == asked)
            .map(|arm| arm.megabits)
    };
    let mut rows = Vec::new();
    for arm in arms {
        let base = of(arm.server, "2048", None).unwrap_or(f64::NAN);
        let answers = arm.report.answers;
        let asked = arm.asked.map_or("as captured".to_owned(), |percent| format!("{percent} %"));
        rows.push(vec![
            arm.server.to_owned(),
            arm.signing.to_owned(),
            asked.clone(),
            number(arm.megabits),
            format!("{:+.1} %", (arm.megabits / base - 1.0) * 100.0),
            number(arm.report.answer_octets as f64 / answers.max(1) as f64),
            number(arm.report.tc_retries as f64),
        ]);
        let share = answers as f64 / arm.report.queries as f64;
        let name = format!("{}, {}, DO {asked}: answered", arm.server, arm.signing);
        report.must(name, Limit::AtLeast(0.99), share);
    }
    let head = [
        "server",
        "zone key",
        "DO",
        "Mb/s",
        "over 2048, as captured",
        "octets an answer",
        "asked again over TCP",
    ];
    report.table("Bandwidth of answers", &head, rows);
    let (captured, all) = PUBLISHED;
    let mut rows = Vec::new();
    for server in ["nsd", "pointsman"] {
        let ratio = |over: Option<f64>, under: Option<f64>| {
            over.zip(under).map(|(over, under)| (over / under - 1.0) * 100.0)
        };
        let all_ask = ratio(of(server, "2048", Some(100)), of(server, "2048", None));
        let keys = ratio(of(server, "2048", Some(100)), of(server, "1024", Some(100)));
        for (what, published, ours) in [
            ("all ask for signatures, in the place of 72.3 %", (all / captured - 1.0) * 100.0, all_ask),
            ("2048 bits in the place of 1024", PUBLISHED_KEYS * 100.0, keys),
        ] {
            let ours = ours.map_or("-".into(), |ours| format!("{ours:+.1} %"));
            rows.push(vec![what.to_owned(), server.to_owned(), format!("{published:+.1} %"), ours]);
        }
    }
    report.table("What it adds", &["change", "server", "LDplayer", "here"], rows);
    let signings: Vec<&str> = SIGNINGS.iter().map(|signing| signing.name).collect();
    let lines = [("nsd", None), ("nsd", Some(100)), ("pointsman", None), ("pointsman", Some(100))]
        .map(|(server, asked)| {
            let points = (0_u32..)
                .zip(&signings)
                .filter_map(|(at, signing)| Some((f64::from(at), of(server, signing, asked)?)));
            let asked = asked.map_or("as captured".into(), |percent| format!("DO {percent} %"));
            Line::new(format!("{server}, {asked}"), points.collect())
        })
        .into();
    let marks = (0_u32..).zip(&signings).map(|(at, name)| (f64::from(at), (*name).to_owned())).collect();
    let plot = Plot { across: Axis { marks, ..Axis::default() }, up: Axis::titled("Mb/s of answers"), lines };
    report.plot("Figure 10: bandwidth by the zone's key", plot);
}

/// The zone without what signing has put into it.
fn plain(stage: &Stage, root: &Path) -> Result<PathBuf> {
    let text = fs::read_to_string(root).with_context(|| format!("{}", root.display()))?;
    let signed = |line: &&str| {
        let rtype = line.split_ascii_whitespace().nth(3);
        !matches!(rtype, Some("RRSIG" | "NSEC" | "DNSKEY"))
    };
    let plain: Vec<&str> = text.lines().filter(signed).collect();
    let path = stage.folder.join("root.plain");
    fs::write(&path, plain.join("\n") + "\n").with_context(|| format!("{}", path.display()))?;
    Ok(path)
}

fn sign(stage: &Stage, plain: &Path, signing: &Signing) -> Result<PathBuf> {
    let folder = stage.folder.join(format!("keys-{}-{}", signing.bits, signing.is_rollover));
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let run = |program: &str, words: &[&str]| -> Result<String> {
        let said = read(Command::new(program).args(words).current_dir(&folder));
        let said = said.with_context(|| format!("{program} (Debian: bind9-utils)"))?;
        // Before anything that it complains of.
        Ok(said.lines().next().unwrap_or_default().to_owned())
    };
    let key = |bits: u32, more: &[&str]| {
        run("dnssec-keygen", &[&["-q", "-a", "RSASHA256", "-b", &bits.to_string()], more, &["."]].concat())
    };
    let mut keys = vec![key(2048, &["-f", "KSK"])?, key(signing.bits, &[])?];
    if signing.is_rollover {
        keys.push(key(signing.bits, &[])?);
    }
    let mut text = fs::read_to_string(plain).with_context(|| format!("{}", plain.display()))?;
    for key in &keys {
        text += &fs::read_to_string(folder.join(format!("{key}.key"))).context("a key")?;
    }
    fs::write(folder.join("zone"), text).context("the zone")?;
    let mut words = vec!["-o", ".", "-f", "signed", "-k", &keys[0], "zone"];
    words.extend(keys[1..].iter().map(String::as_str));
    run("dnssec-signzone", &words)?;
    Ok(folder.join("signed"))
}
