//! Zones signed afresh, by BIND's tools.

use std::process::Command;

use crate::folder::Folder;

/// Signs a zone with a key of its own; returns the signed file. The key is beside it, as `ORIGIN.key` and
/// `ORIGIN.private`.
///
/// `chain` are options of dnssec-signzone.
///
/// # Panics
/// Where it cannot be signed.
pub fn sign(folder: &Folder, origin: &str, text: &str, chain: &[&str]) -> String {
    sign_by(folder, origin, text, chain, "ECDSAP256SHA256")
}

/// As [`sign`], by a key of this algorithm.
///
/// # Panics
/// As [`sign`].
pub fn sign_by(folder: &Folder, origin: &str, text: &str, chain: &[&str], algorithm: &str) -> String {
    let key = generate(folder, origin, &["-a", algorithm, "-f", "KSK"]);
    for part in ["key", "private"] {
        std::fs::copy(folder.at(&format!("{key}.{part}")), folder.at(&format!("{origin}.{part}")))
            .expect("it was made");
    }
    let public = std::fs::read_to_string(folder.at(&format!("{key}.key"))).expect("it was made");
    let file = folder.write(origin, format!("$ORIGIN {origin}.\n{text}{public}"));
    let signed = folder.at(&format!("{origin}.signed"));
    run(folder, "dnssec-signzone", &[&["-z", "-o", origin, "-f", &signed], chain, &[&file, &key]].concat());
    signed
}

/// Makes a key, with these options of dnssec-keygen; returns the name of its files, without `.key` and `.private`.
///
/// # Panics
/// Where it cannot be made.
pub fn generate(folder: &Folder, origin: &str, options: &[&str]) -> String {
    run(folder, "dnssec-keygen", &[&["-q"], options, &[origin]].concat())
}

/// Holds a zone's text against what a signed zone is to have: all sets signed, the chain whole, and nothing beside.
///
/// # Panics
/// Where it has not.
pub fn verify(folder: &Folder, origin: &str, text: &str) {
    let file = folder.write(&format!("{origin}.given"), text);
    run(folder, "dnssec-verify", &["-q", "-x", "-o", origin, &file]);
}

fn run(folder: &Folder, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder.path()).output();
    let output = output.unwrap_or_else(|cause| panic!("{program} (Debian: bind9-utils): {cause}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).expect("it writes text").trim().to_string()
}
