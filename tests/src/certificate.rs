//! Certificates for one test, by OpenSSL's tool: an authority, and a server's that it has signed.

use std::process::Command;

use crate::folder::Folder;

/// What OpenSSL's tool is told first: a new key and a certificate for it.
pub const MAKE: [&str; 7] =
    ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// The files of a server's certificate.
#[derive(Debug)]
pub struct Certificate {
    /// The authority's certificate.
    pub authority: String,
    /// The server's certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Certificate {
    /// Makes an authority and a certificate for `dns.example.com` and 127.0.0.1.
    ///
    /// # Panics
    /// Where that fails.
    pub fn new(folder: &Folder) -> Certificate {
        let at = |name: &str| folder.at(&format!("{name}.pem"));
        let run = |arguments: &[&str]| {
            let output = Command::new("openssl").args(arguments).output();
            let output = output.unwrap_or_else(|cause| panic!("openssl (Debian: openssl): {cause}"));
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let (authority, authority_key) = (at("authority"), at("authority.key"));
        let own = ["-days", "2", "-subj", "/CN=an authority", "-out", &authority, "-keyout", &authority_key];
        run(&[&MAKE[..], &own].concat());
        let (certificate, key) = (at("server"), at("server.key"));
        let signed =
            ["-CA", &authority, "-CAkey", &authority_key, "-days", "2", "-subj", "/CN=dns.example.com"];
        let names = [
            "-addext",
            "subjectAltName=DNS:dns.example.com,IP:127.0.0.1",
            "-addext",
            "basicConstraints=CA:FALSE",
        ];
        run(&[&MAKE[..], &signed, &names, &["-out", &certificate, "-keyout", &key]].concat());
        Certificate { authority, certificate, key }
    }
}
