//! Zones signed afresh, by BIND's tools.

use std::process::Command;

use crate::folder::Folder;

/// Signs a zone with a key of its own; returns the signed file. The key is beside it, as `ORIGIN.key`.
///
/// `chain` are options of dnssec-signzone.
///
/// # Panics
/// Where it cannot be signed.
pub fn sign(folder: &Folder, origin: &str, text: &str, chain: &[&str]) -> String {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(folder.path()).output();
        let output = output.unwrap_or_else(|cause| panic!("{program} (Debian: bind9-utils): {cause}"));
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it writes text").trim().to_string()
    };
    let key = run("dnssec-keygen", &["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", origin]);
    std::fs::copy(folder.at(&format!("{key}.key")), folder.at(&format!("{origin}.key")))
        .expect("it was made");
    let public = std::fs::read_to_string(folder.at(&format!("{key}.key"))).expect("it was made");
    let file = folder.write(origin, format!("$ORIGIN {origin}.\n{text}{public}"));
    let signed = folder.at(&format!("{origin}.signed"));
    run("dnssec-signzone", &[&["-z", "-o", origin, "-f", &signed], chain, &[&file, &key]].concat());
    signed
}
