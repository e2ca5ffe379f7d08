//! The template, which `serve --template` prints, and the manual's page: written from the declarations; the tests
//! hold the files to them.

use std::fmt::Write as _;

use super::control::keys::{CONTROL, SERVER as CONTROL_SERVER, SOURCE};
use super::keys::{
    BALANCE, DNSTAP, Default, Key, PARTITION, POOL, PRIMARY, PROBE, REVERSE, RULE, SECONDARY, SECTIONS,
    SERVER, Section, UPDATER, VIEW,
};

/// The longest line of the template's comments, in characters.
const COLUMNS_MAX: usize = 100;

/// What `etc/pointsman.template.toml` holds.
///
/// Settings are commented out by `#` alone, prose by `# `, so that a program can tell them apart.
pub(crate) fn template() -> String {
    let mut text = String::from(
        "# The configuration of `pointsman serve`, `reverse` and `balance`: every key, its default and what follows.\n\
         # Only version must be there. Take the # from before a setting to change it.\n\
         # Relative paths are relative to this file. Flags of `serve` replace what stands here.\n\
         # `pointsman serve --config FILE --check` lists everything that is wrong.\n",
    );
    for key in SERVER.keys {
        template_key(&mut text, key);
    }
    for section in SECTIONS {
        text += "\n";
        comment(&mut text, section.about);
        let _ = writeln!(text, "#[{}]", section.name);
        for key in section.keys {
            template_key(&mut text, key);
        }
    }
    text += "\n";
    comment(&mut text, DNSTAP.about);
    text += "#[dnstap]\n";
    template_dnstap(&mut text);
    text += "\n";
    comment(&mut text, SECONDARY.about);
    text += "#[[secondary]]\n";
    for key in SECONDARY.keys {
        template_key(&mut text, key);
    }
    template_heading(&mut text, &PRIMARY);
    template_heading(&mut text, &UPDATER);
    template_heading(&mut text, &VIEW);
    text += "\n";
    comment(&mut text, PROBE.about);
    text += "#[[probe]]\n";
    for key in PROBE.keys {
        // Beside another check they would contradict: what is uncommented must be right.
        if let Some(check) =
            [("certificate", "https"), ("command", "command")].iter().find(|(name, _)| *name == key.name)
        {
            let _ = writeln!(text, "\n#[[probe]]\n#name = \"by-{0}\"\n#check = \"{0}\"", check.1);
        }
        heading_key(&mut text, key);
    }
    text += "\n";
    comment(&mut text, PARTITION.about);
    text += "#[[partition]]\n";
    for key in PARTITION.keys {
        // Beside one another they would contradict: what is uncommented must be right.
        match key.name {
            "mmdb" => text += "\n#[[partition]]\n#name = \"by-country\"\n",
            "mrt" => text += "\n#[[partition]]\n#name = \"by-as-path\"\n",
            "ask" => text += "\n#[[partition]]\n#name = \"by-as-path\"\n",
            _ => {}
        }
        template_key(&mut text, key);
    }
    text += "\n";
    comment(&mut text, REVERSE.about);
    text += "#[reverse]\n";
    for key in REVERSE.keys {
        template_key(&mut text, key);
    }
    text += "\n";
    comment(&mut text, BALANCE.about);
    text += "#[balance]\n";
    for key in BALANCE.keys {
        template_key(&mut text, key);
    }
    template_heading(&mut text, &POOL);
    text += "\n";
    comment(&mut text, RULE.about);
    text += "#[[balance.rule]]\n";
    for key in RULE.keys {
        match key.name {
            // What is uncommented must be right, and there is no such file.
            "names_files" => {
                template_key(&mut text, key);
                let line = text.trim_end().rfind('\n').map_or(0, |end| end + 2);
                text.insert(line, ' ');
                continue;
            }
            // Beside one another they would contradict.
            "answer" => text += "\n#[[balance.rule]]\n#name = \"any\"\n#types = [\"ANY\"]\n",
            "addresses" => {
                text += "\n#[[balance.rule]]\n#name = \"portal\"\n#names = [\"portal.example.com\"]\n";
            }
            _ => {}
        }
        heading_key(&mut text, key);
    }
    text += "\n# As [dnstap], of the balancer's clients.\n#[balance.dnstap]\n";
    template_dnstap(&mut text);
    text
}

fn template_dnstap(text: &mut String) {
    for key in DNSTAP.keys {
        template_key(text, key);
        if key.name == "socket" {
            // Beside file it would contradict: what is uncommented must be right.
            let line = text.trim_end().rfind('\n').map_or(0, |end| end + 2);
            text.insert(line, ' ');
        }
    }
}

/// What `docs/reference/configuration.md` holds.
#[cfg(test)]
pub(super) fn manual() -> String {
    let mut text = String::from(
        "# Configuration\n\n\
         `pointsman serve` reads a TOML file given with `--config`; flags replace what it says, key by key. Without a\n\
         file everything has its default. [`etc/pointsman.template.toml`](../../etc/pointsman.template.toml) has every\n\
         key to copy from, and `--check` lists everything that is wrong, with file, line and column. Relative paths in\n\
         the file are relative to the file, those of flags to the current folder.\n\n\
         The file is read at start, and again on SIGHUP. Of what it says then `zone`, `policy`, `tsig_keys`, `signing_keys`,\n\
         `cookie_secrets`, `tls_certificate`, `tls_key`, `[[secondary]]`, `[[primary]]`, `[[updater]]`, `[[view]]` and\n\
         `[[partition]]` take effect, with the files that they name: all of it, or nothing if anything is wrong; then the log lists every fault, and the last configuration goes\n\
         on. Transfers that run end as they began. What was imported and is no longer named stays in the store. All other keys are taken at\n\
         start only: one that differs is named in the log. A server that gave root away reads as its `user`, keys too.\n\n\
         `pointsman reverse --config FILE` and `pointsman balance --config FILE` read the same form: their keys stand under\n\
         `[reverse]` and `[balance]`, all else is for `serve`.\n\
         Whichever reads the file lists wrong keys and values in all of it; what contradicts another key, and what is\n\
         wrong within a text such as `ttl`, only of its own. Theirs are read at start only: SIGHUP\n\
         changes nothing, but that `balance` reads its rules, certificate and key again, and begins a new dnstap file.\n\n\
         This page is written from the declarations of the keys.\n",
    );
    manual_section(&mut text, &SERVER, "## Above all headings");
    for section in SECTIONS {
        manual_section(&mut text, section, &format!("## `[{}]`", section.name));
    }
    manual_section(&mut text, &DNSTAP, "## `[dnstap]` and `[balance.dnstap]`");
    manual_section(&mut text, &SECONDARY, "## `[[secondary]]`");
    manual_section(&mut text, &PRIMARY, "## `[[primary]]`");
    manual_section(&mut text, &UPDATER, "## `[[updater]]`");
    manual_section(&mut text, &VIEW, "## `[[view]]`");
    manual_section(&mut text, &PROBE, "## `[[probe]]`");
    manual_section(&mut text, &PARTITION, "## `[[partition]]`");
    text += "\nThe flags `--partition [NAME=]CSV` and `--mmdb [NAME=]FILE` with `--regions CSV` and `--field WORD` stand \
             for such\nheadings, stacked in this order where several have one name; where any of them is given, the file's partitions \
             are not imported.\n";
    manual_section(&mut text, &REVERSE, "## `[reverse]`");
    manual_section(&mut text, &BALANCE, "## `[balance]`");
    manual_section(&mut text, &POOL, "## `[[balance.pool]]`");
    manual_section(&mut text, &RULE, "## `[[balance.rule]]`");
    text
}

/// What `etc/control.template.toml` holds.
pub(crate) fn control_template() -> String {
    let mut text = String::from(
        "# The configuration of `pointsman control`: every key, its default and what follows.\n\
         # Take the # from before a setting to change it. Relative paths are relative to this file.\n\
         # `pointsman control --config FILE --check` lists everything that is wrong;\n\
         # `pointsman control --config FILE --once --dry-run` shows what it would do.\n",
    );
    for key in CONTROL.keys {
        template_key(&mut text, key);
    }
    template_part(&mut text, &SOURCE);
    text += CONTROL_SOURCES;
    template_part(&mut text, &CONTROL_SERVER);
    text += CONTROL_SERVERS;
    text
}

/// Sources as they may be, one of each kind.
const CONTROL_SOURCES: &str = "
#[[source]]
#name = \"uptime\"
#kind = \"command\"
#command = [\"ssh\", \"{address}\", \"uptime\"]
#after = \"load average:\"
#threshold = 0.5
#
#[[source]]
#name = \"requests\"
#kind = \"prometheus\"
#url = \"http://{address}:9100/metrics\"
#metric = \"http_requests_total\"
#per_second = true
#threshold = 2000
#
#[[source]]
#name = \"sockets\"
#kind = \"json\"
#url = \"http://{address}:8080/status\"
#pointer = \"/sockets/open\"
#threshold = 10000
#weight = 0.5
#
#[[source]]
#name = \"disk\"
#kind = \"push\"
#threshold = 0.9
";

/// Servers as they may be.
const CONTROL_SERVERS: &str = "
#[[server]]
#address = \"192.0.2.1\"
#also = [\"2001:db8::1\"]
#ranks = { europe = 1, asia = 2 }
#
#[[server]]
#address = \"198.51.100.1\"
#capacity = 2.0
#ranks = { europe = 2, asia = 1 }
";

/// The keys under a heading, as prose.
fn template_part<S>(text: &mut String, section: &Section<S>) {
    *text += "\n";
    comment(text, &format!("[[{}]] {}", section.name, section.about));
    for key in section.keys {
        let mut about =
            format!("- {}: {} {} Expected: {}", key.name, key.about, key.consequence, key.kind.expected());
        match key.default {
            Default::Value(value) => {
                let _ = write!(about, "; {value} unless given");
            }
            Default::Absent { means, .. } => {
                let _ = write!(about, "; without it: {means}");
            }
            Default::Required(_) => {}
        }
        comment(text, &format!("{about}."));
    }
}

/// What `docs/reference/control-configuration.md` holds.
#[cfg(test)]
pub(super) fn control_manual() -> String {
    let mut text = String::from(
        "# Configuration of the control process\n\n\
         `pointsman control --config FILE` reads a TOML file.\n\
         [`etc/control.template.toml`](../../etc/control.template.toml) has every key to copy from (`--template` prints\n\
         it), and `--check` lists everything that is wrong, with file, line and column. Relative paths are relative to the\n\
         file. It is read once, at start. What the process does with it is in [control](control.md).\n\n\
         This page is written from the declarations of the keys.\n",
    );
    manual_section(&mut text, &CONTROL, "## Above all headings");
    manual_section(&mut text, &SOURCE, "## `[[source]]`");
    manual_section(&mut text, &CONTROL_SERVER, "## `[[server]]`");
    text
}

fn template_key<S>(text: &mut String, key: &Key<S>) {
    *text += "\n";
    comment(text, &format!("{} {}", key.about, key.consequence));
    let mut expected = key.kind.expected();
    if let Default::Absent { means, .. } = key.default {
        let _ = write!(expected, ". Without it: {means}");
    }
    comment(text, &format!("Expected: {expected}."));
    let mark = if matches!(key.default, Default::Required(_)) { "" } else { "#" };
    let _ = writeln!(text, "{mark}{} = {}", key.name, key.default.shown());
}

/// A heading that may be repeated, commented out, with its keys.
fn template_heading<S>(text: &mut String, section: &Section<S>) {
    *text += "\n";
    comment(text, section.about);
    let _ = writeln!(text, "#[[{}]]", section.name);
    for key in section.keys {
        heading_key(text, key);
    }
}

/// A key under a heading that is commented out, and what it requires with it.
fn heading_key<S>(text: &mut String, key: &Key<S>) {
    template_key(text, key);
    if matches!(key.default, Default::Required(_)) {
        let line = text.trim_end().rfind('\n').map_or(0, |end| end + 1);
        text.insert(line, '#');
    }
}

fn comment(text: &mut String, prose: &str) {
    let mut line = String::from("#");
    for word in prose.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        line += " ";
        line += word;
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
fn manual_section<S>(text: &mut String, section: &Section<S>, heading: &str) {
    let _ = writeln!(text, "\n{heading}");
    if !section.about.is_empty() {
        let _ = writeln!(text, "{}", section.about);
    }
    for key in section.keys {
        let _ = writeln!(text, "\n### `{}`\n{} {}\n", key.name, key.about, key.consequence);
        let array = if key.kind.is_list() { "an array of " } else { "" };
        let _ = writeln!(text, "- value: {array}{}", key.kind.expected());
        let default = match key.default {
            Default::Value(value) => format!("default: `{value}`"),
            Default::Absent { means, example } => format!("default: {means}; written as `{example}`"),
            Default::Required(value) => format!("required: `{value}`"),
        };
        let _ = writeln!(text, "- {default}");
        if let Some(flag) = key.flag {
            let _ = writeln!(text, "- flag: `--{flag} {}`", key.kind.value_name());
        }
    }
}
