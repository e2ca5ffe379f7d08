//! What the tests and the measurements need beyond Rust, as Debian packages, and their installation.
//!
//! A C compiler with its headers (`gcc`, `libc6-dev`) is needed, too, but not listed: without it Rust
//! cannot link this very program.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::checkout::Checkout;
use crate::process::Failure;

/// A package that some test or measurement needs.
pub(crate) struct Package {
    name: &'static str,
    /// Which test or measurement needs it, and what for.
    why: &'static str,
    probe: Probe,
}

/// How to see that what we need of a package is there, whichever way it was installed.
enum Probe {
    /// A program of this name is in a folder of PATH, or in one for system programs.
    Program(&'static str),
    /// Python finds these modules.
    Modules(&'static str),
    /// A file of this path is in a folder for libraries.
    Library(&'static str),
}

impl Package {
    /// A package that is there when a program is.
    pub(crate) const fn program(name: &'static str, program: &'static str, why: &'static str) -> Package {
        Package { name, why, probe: Probe::Program(program) }
    }

    /// A package that is there when a file is, by its path in a folder for libraries.
    pub(crate) const fn library(name: &'static str, path: &'static str, why: &'static str) -> Package {
        Package { name, why, probe: Probe::Library(path) }
    }
}

/// The packages that tests need.
pub(crate) const TESTS: &[Package] = &[
    Package { name: "adduser", why: "our package makes a user", probe: Probe::Program("adduser") },
    Package {
        name: "apache2-bin",
        why: "a web server that has its clients checked",
        probe: Probe::Program("apache2"),
    },
    Package { name: "bind9", why: "a secondary of ours", probe: Probe::Program("named") },
    Package {
        name: "bind9-dnsutils",
        why: "dig: a second client for answers and TCP",
        probe: Probe::Program("dig"),
    },
    Package { name: "bind9-utils", why: "a signer of zones", probe: Probe::Program("dnssec-signzone") },
    Package {
        name: "caddy",
        why: "a web server that has its clients checked",
        probe: Probe::Program("caddy"),
    },
    Package { name: "curl", why: "the client of the guide about crawlers", probe: Probe::Program("curl") },
    Package {
        name: "dnsdist",
        why: "a back end that takes the PROXY protocol",
        probe: Probe::Program("dnsdist"),
    },
    Package { name: "dpkg-dev", why: "what our package depends on", probe: Probe::Program("dpkg-shlibdeps") },
    Package { name: "fstrm-bin", why: "a reader of dnstap's socket", probe: Probe::Program("fstrm_capture") },
    Package {
        name: "haproxy",
        why: "a web server that has its clients checked",
        probe: Probe::Program("haproxy"),
    },
    Package { name: "iproute2", why: "networks of a test's own", probe: Probe::Program("ip") },
    Package { name: "knot", why: "a third server to compare answers with", probe: Probe::Program("knotd") },
    Package {
        name: "knot-dnsutils",
        why: "kdig: a client for client subnet, TLS, QUIC",
        probe: Probe::Program("kdig"),
    },
    Package {
        name: "mariadb-server",
        why: "a store that name servers share",
        probe: Probe::Program("mariadbd"),
    },
    Package {
        name: "mmdb-bin",
        why: "mmdblookup: a reader of MaxMind databases",
        probe: Probe::Program("mmdblookup"),
    },
    Package {
        name: "nginx-light",
        why: "a web server that has its clients checked",
        probe: Probe::Program("nginx"),
    },
    Package { name: "nsd", why: "a second server to compare answers with", probe: Probe::Program("nsd") },
    Package { name: "openssl", why: "a maker of certificates", probe: Probe::Program("openssl") },
    Package {
        name: "postgresql-15",
        why: "a store that name servers share",
        probe: Probe::Library("15/bin/postgres"),
    },
    Package { name: "prometheus", why: "promtool: a judge of the alerts", probe: Probe::Program("promtool") },
    Package {
        name: "python3-venv",
        why: "the tests of the API (schemathesis) and of our Python package",
        probe: Probe::Modules("venv, ensurepip"),
    },
    Package {
        name: "redis-tools",
        why: "redis-cli: a client of the reverse look-up service",
        probe: Probe::Program("redis-cli"),
    },
    Package {
        name: "strace",
        why: "proof that a sync comes before its answer",
        probe: Probe::Program("strace"),
    },
    Package {
        name: "unbound",
        why: "a resolver that validates, one with a reverse zone of ours, a server over TLS and HTTPS",
        probe: Probe::Program("unbound"),
    },
];

/// Where Debian keeps programs for the system, which PATH leaves out for most users.
const SYSTEM_PROGRAMS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where Debian keeps libraries, by architecture.
const LIBRARIES: &str = "/usr/lib";

/// A look for a program; it may start Python once.
const PROBE_MAX: Duration = Duration::from_secs(30);
/// The download of a few megabytes from a slow mirror, and another installation that holds the lock.
const INSTALL_MAX: Duration = Duration::from_secs(600);

/// Installs the packages named by its arguments; as root. Debian starts the services of what it installs
/// unless the program policy-rc.d says 101, so it says that for as long as this takes; and it would start
/// them at every boot, so they are disabled.
const INSTALL: &str = r#"
set -eu
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 143' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update || echo "apt-get update failed; trying with the package lists that are here" >&2
apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
for service in $(dpkg-query --listfiles "$@" | sed -n 's|^/etc/init\.d/||p'); do
    update-rc.d "$service" disable
done
"#;

/// Packages that are missing, by their names.
#[derive(Debug)]
pub(crate) struct Missing(Vec<&'static str>);

/// Sees that every one of `packages` is there, and with `install` installs those that are not.
///
/// # Errors
/// [`Missing`] when some are missing and were not to be installed; another error when that failed.
pub(crate) fn provide(checkout: &Checkout, packages: &'static [Package], install: bool) -> Result<()> {
    let missing = missing(checkout, packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("missing: {:<16} {}", package.name, package.why);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if !install {
        bail!(Missing(names));
    }
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root && checkout.runner.run(checkout.command("sudo").args(["-n", "true"]), PROBE_MAX).is_err() {
        bail!(
            "installing needs root, or sudo without a question: run `sudo -v` first, or: {}",
            by_hand(&names)
        );
    }
    let mut command = if is_root { checkout.command("sh") } else { checkout.command("sudo") };
    if !is_root {
        command.args(["-n", "sh"]);
    }
    checkout.runner.run(command.args(["-c", INSTALL, "install"]).args(&names), INSTALL_MAX)?;
    let still = self::missing(checkout, packages)?;
    if !still.is_empty() {
        let names: Vec<&str> = still.iter().map(|package| package.name).collect();
        bail!("installed, but still not found: {}", names.join(", "));
    }
    Ok(())
}

fn missing(checkout: &Checkout, packages: &'static [Package]) -> Result<Vec<&'static Package>, Failure> {
    let mut missing = Vec::new();
    for package in packages {
        let is_there = match package.probe {
            Probe::Program(name) => is_program(name),
            Probe::Library(path) => is_library(path),
            Probe::Modules(names) => {
                let mut python = checkout.command("python3");
                succeeds(
                    checkout,
                    python.args(["-c", &format!("import {names}")]).stderr(std::process::Stdio::null()),
                )?
            }
        };
        if !is_there {
            missing.push(package);
        }
    }
    Ok(missing)
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = SYSTEM_PROGRAMS.iter().map(|folder| Path::new(folder).to_path_buf());
    std::env::split_paths(&path).chain(system).any(|folder| folder.join(name).is_file())
}

fn is_library(path: &str) -> bool {
    let folders = std::fs::read_dir(LIBRARIES).into_iter().flatten().flatten();
    folders.map(|folder| folder.path()).any(|folder| folder.join(path).is_file())
}

/// Whether a program succeeds; one that cannot be started does not.
fn succeeds(checkout: &Checkout, command: &mut Command) -> Result<bool, Failure> {
    match checkout.runner.run(command, PROBE_MAX) {
        Ok(()) => Ok(true),
        Err(Failure::NotStarted(_) | Failure::Ended(_)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn by_hand(names: &[&str]) -> String {
    format!("sudo apt-get update && sudo apt-get install --yes --no-install-recommends {}", names.join(" "))
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Debian packages are needed that are not here; this line installs them:")?;
        writeln!(f, "{}", by_hand(&self.0))?;
        write!(f, "or let --install behind this command do it, which also keeps their services from starting")
    }
}

impl std::error::Error for Missing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_sorted_and_say_why() {
        for packages in [TESTS, crate::bench::PACKAGES] {
            assert!(packages.is_sorted_by_key(|package| package.name));
            assert!(packages.iter().all(|package| !package.why.is_empty()));
        }
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(is_program("sh"));
        assert!(!is_program("no-program-has-this-name"));
    }

    #[test]
    fn what_is_missing_is_told_in_one_line() {
        let told = Missing(vec!["nsd", "strace"]).to_string();
        let lines: Vec<&str> = told.lines().filter(|line| line.contains("apt-get")).collect();
        let line = "sudo apt-get update && sudo apt-get install --yes --no-install-recommends nsd strace";
        assert_eq!(lines, [line]);
    }
}
