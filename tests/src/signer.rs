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
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(folder.path()).output();
        let output = output.unwrap_or_else(|cause| panic!("{program} (Debian: bind9-utils): {cause}"));
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it writes text").trim().to_string()
    };
    let key = run("dnssec-keygen", &["-q", "-a", algorithm, "-f", "KSK", origin]);
    for part in ["key", "private"] {
        std::fs::copy(folder.at(&format!("{key}.{part}")), folder.at(&format!("{origin}.{part}")))
            .expect("it was made");
    }
    let public = std::fs::read_to_string(folder.at(&format!("{key}.key"))).expect("it was made");
    let file = folder.write(origin, format!("$ORIGIN {origin}.\n{text}{public}"));
    let signed = folder.at(&format!("{origin}.signed"));
    run("dnssec-signzone", &[&["-z", "-o", origin, "-f", &signed], chain, &[&file, &key]].concat());
    signed
}
