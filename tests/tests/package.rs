//! The Debian package: built, and installed, upgraded, removed and purged as the guides say.
//!
//! It all happens in a copy of this system that is laid over it (overlayfs) and gone with the test: other mounts,
//! other processes, a network of its own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tests::folder::Folder;
use tests::guide::{self, blocks, compare, prompts};
use tests::program;

/// Lays the copy over the system and runs the commands there. Its arguments: the folder, and what is copied in.
const ENTER: &str = r#"
set -eu
cd "$1"
mount -t tmpfs tmpfs .
cd "$1"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/work" root || exit 77
ip link set lo up
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount -t tmpfs tmpfs root/run
mkdir -p root/run/systemd/system root/guide root/usr/local/bin
cp -r "$2/." root/guide
mv root/guide/systemctl root/usr/local/bin/
exec chroot root /usr/bin/env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /bin/bash /guide/commands
"#;

/// What `mount` cannot do here.
const NO_OVERLAY: i32 = 77;

/// What systemd would do with the one unit, as far as the guides go: it starts what the unit starts, as its user and
/// with its one right, and waits until it is ready or has ended.
const SYSTEMCTL: &str = r#"#!/bin/bash
set -eu
kept=/run/pointsman.pid
start() {
    [ ! -e "$kept" ] || return 0
    install -d -o pointsman -g pointsman -m 700 /var/lib/pointsman
    cd "$(sed -n 's/^WorkingDirectory=//p' /usr/lib/systemd/system/pointsman.service)"
    command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/pointsman.service)
    setpriv --reuid pointsman --regid pointsman --init-groups --no-new-privs --inh-caps +net_bind_service \
        --ambient-caps +net_bind_service $command >/run/pointsman.log 2>&1 &
    echo $! >"$kept"
    grep -q -m1 ready <(tail -n +1 --pid=$! -f /run/pointsman.log) || { cat /run/pointsman.log >&2; exit 1; }
}
stop() {
    [ -e "$kept" ] || return 0
    kill "$(cat "$kept")"
    tail --pid="$(cat "$kept")" -f /dev/null
    rm "$kept"
}
case "$*" in
    daemon-reload) ;;
    "enable --now pointsman") start; echo "Created symlink" ;;
    "disable --now pointsman.service") stop ;;
    "try-restart pointsman.service") [ ! -e "$kept" ] || { stop; start; } ;;
    # Never started here.
    "disable --now pointsman-"*.service | "try-restart pointsman-"*.service)
        [ -e "/usr/lib/systemd/system/${*: -1}" ] ;;
    *) echo "systemctl $*: no guide needs that" >&2; exit 1 ;;
esac
"#;

/// A command and what it prints.
type Prompt<'a> = (&'a str, Vec<&'a str>);

#[test]
fn the_package_is_installed_upgraded_and_removed_as_the_guides_say() {
    let Some(package) = package() else { return };
    let guides = ["install.md", "upgrade.md", "uninstall.md"].map(guide::read);
    let folder = Folder::new();
    let brought = folder.path().join("brought");
    fs::create_dir(&brought).expect("a folder");
    let name = package.file_name().expect("a file has a name");
    fs::copy(&package, brought.join(name)).expect("the package is there");

    let [mut install, mut upgrade, mut uninstall] = guides.each_ref().map(|text| commands(text, &brought));
    // What the guides say beside the commands.
    drop(install.splice(
        1..1,
        [
            ("ls /run/pointsman.pid /var/lib/pointsman 2>&1 | wc -l", vec!["2"]),
            (
                "getent passwd pointsman | cut -d: -f1,6,7",
                vec!["pointsman:/var/lib/pointsman:/usr/sbin/nologin"],
            ),
            (
                "stat -c '%a %U' /usr/bin/pointsman /etc/pointsman/pointsman.toml /etc/default/pointsman-agent",
                vec!["755 root", "644 root", "644 root"],
            ),
        ],
    ));
    install.extend([
        ("stat -c '%a %U' /var/lib/pointsman/pointsman.db", vec!["600 pointsman"]),
        ("cp /run/pointsman.pid /guide/before", vec![]),
    ]);
    upgrade.extend([
        ("cmp -s /run/pointsman.pid /guide/before || echo another", vec!["another"]),
        ("grep ^listen /etc/pointsman/pointsman.toml", vec![r#"listen = ["127.0.0.1:53"]"#]),
    ]);
    uninstall.extend([
        ("cat /run/pointsman.pid 2>/dev/null || echo stopped", vec!["stopped"]),
        ("grep -c www example.com.kept", vec!["1"]),
        ("dpkg --listfiles pointsman 2>/dev/null || echo unknown", vec!["unknown"]),
    ]);
    let all = [install, upgrade, uninstall].concat();
    let Some(printed) = run(&all, &folder, &brought) else { return };
    for ((command, expected), printed) in all.iter().zip(&printed) {
        compare(command, printed, expected);
    }
}

#[test]
fn what_the_documentation_links_to_is_in_the_package() {
    let installed = assets();
    let mut links = 0;
    for (target, source) in &installed {
        if source.extension() != Some("md".as_ref()) {
            continue;
        }
        let text = fs::read_to_string(source).expect("an asset is there");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || link.contains("://") {
                continue;
            }
            links += 1;
            let to = normal(&target.parent().expect("a file is in a folder").join(path));
            let is_there = installed.keys().any(|there| there.starts_with(&to));
            assert!(is_there, "{} leads to {link}, which is not in the package", source.display());
        }
    }
    assert!(links > 100, "there are links: {links}");
}

#[test]
fn units_are_as_systemd_reads_them_and_hardened_alike() {
    let folder = Folder::new();
    let units = ["", "-agent", "-balance", "-reverse"].map(|unit| {
        let name = format!("pointsman{unit}.service");
        let text = fs::read_to_string(root().join("pkg").join(&name)).expect("the unit is there");
        let program = program::path().to_string_lossy().into_owned();
        (folder.write(&name, text.replace("/usr/bin/pointsman", &program)), text)
    });
    let hardening = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("ProtectSystem="));
        // An agent asks the kernel for sockets; the calls beside the usual ones are each service's own.
        let alike = lines.filter(|line| !line.starts_with('#') && !line.starts_with("SystemCallFilter="));
        alike.map(|line| line.replace(" AF_NETLINK", "")).collect()
    };
    for (_, text) in &units {
        assert_eq!(hardening(text), hardening(&units[0].1), "{text}");
        assert!(
            text.contains("SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n")
        );
    }
    let mut verify = Command::new("systemd-analyze");
    match verify.args(["verify", "--man=no"]).args(units.map(|(path, _)| path)).output() {
        Ok(verified) => {
            let said = String::from_utf8_lossy(&verified.stderr);
            assert!(verified.status.success() && said.is_empty(), "{said}");
        }
        Err(_) => tests::data::skip("units: no systemd-analyze here"),
    }
}

/// Builds the package of the program as the tests have it; `None` where it cannot be built and installed.
fn package() -> Option<PathBuf> {
    let root = root();
    let skip = |why: &str| {
        tests::data::skip(&format!("the Debian package: {why}"));
        None
    };
    if !root.join("target/tools/cargo-deb.version").exists() {
        return skip("no cargo-deb in target/tools; `cargo xtask test --install` puts it there");
    }
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can install it");
    }
    if Command::new("dpkg").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("no dpkg here");
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    build.args(["run", "--quiet", "--package", "xtask", "--", "package", "--program"]).arg(program::path());
    let built = build.current_dir(root).output().expect("cargo starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let files = fs::read_dir(root.join("target/package")).expect("the package's folder");
    let package = files
        .map(|file| file.expect("an entry").path())
        .find(|path| path.extension() == Some("deb".as_ref()));
    let package = package.expect("a package");

    let contents =
        Command::new("dpkg-deb").arg("--contents").arg(&package).output().expect("dpkg-deb starts");
    let contents = String::from_utf8_lossy(&contents.stdout).into_owned();
    for path in [
        "/usr/bin/pointsman",
        "/usr/lib/systemd/system/pointsman.service",
        "/usr/lib/systemd/system/pointsman-agent.service",
        "/usr/lib/systemd/system/pointsman-balance.service",
        "/usr/lib/systemd/system/pointsman-reverse.service",
        "/etc/default/pointsman-agent",
        "/etc/pointsman/pointsman.toml",
        "/usr/share/man/man1/pointsman-serve.1.gz",
        "/usr/share/bash-completion/completions/pointsman",
        "/usr/share/fish/vendor_completions.d/pointsman.fish",
        "/usr/share/zsh/vendor-completions/_pointsman",
        "/usr/share/doc/pointsman/copyright",
        "/usr/share/doc/pointsman/docs/guides/install.md",
    ] {
        assert!(
            contents.lines().any(|line| line.ends_with(&format!(" .{path}"))),
            "no {path} in\n{contents}"
        );
    }
    let description = Command::new("dpkg-deb")
        .arg("--field")
        .arg(&package)
        .arg("Description")
        .output()
        .expect("dpkg-deb starts");
    let description = String::from_utf8_lossy(&description.stdout).into_owned();
    // What stands in lists of packages is the first line alone.
    assert!(description.lines().nth(1).is_some_and(|line| line.starts_with(" Pointsman ")), "{description}");
    Some(package)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the root")
}

/// What is copied from the checkout into the package: where it is there, and here. As cargo-deb has it, a pattern keeps
/// the folders from its first star on.
fn assets() -> BTreeMap<PathBuf, PathBuf> {
    let manifest = fs::read_to_string(root().join("crates/pointsman/Cargo.toml")).expect("a manifest");
    let (_, list) = manifest.split_once("assets = [").expect("the package has assets");
    let mut installed = BTreeMap::new();
    for line in
        list.lines().map(str::trim).take_while(|line| *line != "]").filter(|line| line.starts_with('['))
    {
        let [pattern, target, _]: [String; 3] =
            serde_json::from_str(line.trim_end_matches(',')).expect("an asset");
        let pattern = pattern.trim_start_matches("../").to_owned();
        let parts: Vec<&str> = pattern.split('/').collect();
        let kept = parts.iter().position(|part| part.contains('*')).unwrap_or(parts.len() - 1);
        for source in matching(root().to_path_buf(), &parts) {
            let path = source.strip_prefix(root()).expect("it is in the checkout");
            let behind: PathBuf = path.iter().skip(kept).collect();
            let is_folder = target.ends_with('/');
            let target = Path::new("/").join(&target);
            installed.insert(if is_folder { target.join(behind) } else { target }, source);
        }
    }
    installed
}

/// The files below a folder that fit a pattern, in which a star stands for any part of a name.
fn matching(folder: PathBuf, parts: &[&str]) -> Vec<PathBuf> {
    let Some((part, rest)) = parts.split_first() else {
        return if folder.is_file() { vec![folder] } else { Vec::new() };
    };
    let Some((begin, end)) = part.split_once('*') else { return matching(folder.join(part), rest) };
    let fits =
        |name: &str| name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end);
    let entries = fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.expect("an entry"));
    let fitting = entries.filter(|entry| entry.file_name().to_str().is_some_and(fits));
    fitting.flat_map(|entry| matching(entry.path(), rest)).collect()
}

/// A path without steps back.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.iter() {
        match part.to_str() {
            Some("..") => drop(normal.pop()),
            Some(".") => {}
            _ => normal.push(part),
        }
    }
    normal
}

/// The commands of a guide, for root or for anybody; its files are written into `folder`.
fn commands<'g>(text: &'g str, folder: &Path) -> Vec<Prompt<'g>> {
    let mut all = Vec::new();
    for (kind, content) in blocks(text) {
        match kind.split_once(' ') {
            Some(("file", name)) => fs::write(folder.join(name), content).expect("the folder takes files"),
            None if kind == "root" => all.extend(prompts(content)),
            _ => {}
        }
    }
    assert!(!all.is_empty(), "the guide has commands");
    all
}

/// Runs the commands in the copy; returns what each printed. `None` where there can be no copy.
fn run(commands: &[Prompt<'_>], folder: &Folder, brought: &Path) -> Option<Vec<String>> {
    let place = folder.path().join("place");
    fs::create_dir(&place).expect("a folder");
    let mut script = String::from("cd /guide\n");
    for (command, _) in commands {
        // Each output ends in a line with the exit code.
        script += &format!("{{ {command}\n}} </dev/null; echo \"@@ $?\"\n");
    }
    fs::write(brought.join("commands"), script).expect("the folder takes files");
    let systemctl = brought.join("systemctl");
    fs::write(&systemctl, SYSTEMCTL).expect("the folder takes files");
    fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private"]);
    let output = enter.args(["bash", "-c", ENTER, "enter"]).arg(&place).arg(brought).output();
    let output = output.expect("unshare starts");
    let told = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_OVERLAY) {
        tests::data::skip(&format!("the Debian package: nothing can be laid over this system: {told}"));
        return None;
    }
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut printed = Vec::new();
    let mut rest = stdout.as_str();
    for (command, _) in commands {
        let (text, behind) = rest.split_once("@@ ").unwrap_or_else(|| panic!("{command}: {stdout}\n{told}"));
        let (code, behind) = behind.split_once('\n').expect("the line has an end");
        assert_eq!(code, "0", "{command}: {text}\n{told}");
        printed.push(text.to_owned());
        rest = behind;
    }
    Some(printed)
}
