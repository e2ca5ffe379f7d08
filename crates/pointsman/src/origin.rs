//! Which zone a master file is of, so that people need not say it twice.

use std::path::Path;

use nameserver::import::origin_of_file;

/// Finds the zone's name: the owner of the SOA record; else, where that is written relative to an origin that
/// the file does not give, what the file is called.
pub(crate) fn of(path: &Path, text: &[u8]) -> Option<String> {
    of_text(text).or_else(|| of_name(path))
}

/// The owner of the first SOA record, made absolute by `$ORIGIN` (RFC 1035 §5.1).
fn of_text(text: &[u8]) -> Option<String> {
    let mut origin: Option<String> = None;
    let mut owner: Option<String> = None;
    for line in text.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line.split(|byte| *byte == b';').next().unwrap_or_default());
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if first.eq_ignore_ascii_case("$ORIGIN") {
            origin = words.next().and_then(|name| absolute(name, origin.as_deref()));
            continue;
        }
        if first.starts_with('$') {
            continue;
        }
        let owned_by_last = line.starts_with([' ', '\t']);
        if !owned_by_last {
            owner = absolute(first, origin.as_deref());
        }
        // The type stands behind at most a TTL and a class.
        let mut before_data = line.split_ascii_whitespace().skip(usize::from(!owned_by_last)).take(3);
        if before_data.any(|word| word.eq_ignore_ascii_case("SOA")) {
            return owner;
        }
    }
    None
}

fn absolute(name: &str, origin: Option<&str>) -> Option<String> {
    match (name, origin) {
        ("@", origin) => origin.map(str::to_owned),
        (name, _) if name.ends_with('.') => Some(name.to_owned()),
        (name, Some(".")) => Some(format!("{name}.")),
        (name, Some(origin)) => Some(format!("{name}.{origin}")),
        (_, None) => None,
    }
}

/// What `serve --zone` takes the file's name for; stdin has none.
fn of_name(path: &Path) -> Option<String> {
    let origin = origin_of_file(path).filter(|_| path != Path::new("-"))?;
    Some(dns::name::to_text(&origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, text: &str, expected: Option<&str>) {
        assert_eq!(of(Path::new(file), text.as_bytes()).as_deref(), expected, "for {file} with {text:?}");
    }

    #[test]
    fn the_soa_owner_comes_first_then_the_files_name() {
        check("x.zone", "; a zone\n$TTL 60\nexample.com. 60 IN SOA ns h 1 2 3 4 5\n", Some("example.com."));
        check("x.zone", "$ORIGIN example.com.\n@ IN SOA ns h (\n", Some("example.com."));
        check("x.zone", "$ORIGIN com.\nexample SOA ns h (\n", Some("example.com."));
        check("x.zone", "$origin com.\n$ORIGIN example\n@ soa ns h (\n", Some("example.com."));
        check("x.zone", "$ORIGIN .\n@ SOA a. b. 1 2 3 4 5", Some("."));
        check("x.zone", ". 86400 IN SOA a. b. 1 2 3 4 5", Some("."));
        check("x.zone", "$ORIGIN .\nexample 1 IN SOA a. b. 1 2 3 4 5", Some("example."));
        check("x.zone", "example.net. NS ns\n\tIN SOA ns h 1 2 3 4 5\n", Some("example.net."));
        check("/etc/zones/example.com.zone", "@ IN SOA ns h 1 2 3 4 5", Some("example.com."));
        check("example.com.db", "", Some("example.com."));
        check("db.example.com", "", Some("example.com."));
        check("db.example.com.zone", "", Some("example.com."));
        check("db.com", "", None);
        check("com.zone", "", None);
        check("com.", "", None);
        check("db.192.0.2", "", None);
        check("db.2.0.192.in-addr.arpa", "", Some("2.0.192.in-addr.arpa."));
        check("db.root", ". 86400 IN SOA a. b. 1 2 3 4 5", Some("."));
        check("example.com", "www IN A 192.0.2.1 ; SOA\n", Some("example.com."));
        check("-", "@ IN SOA ns h 1 2 3 4 5", None);
        check(".zone", "", None);
    }
}
