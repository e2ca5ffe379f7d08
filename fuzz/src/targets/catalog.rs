//! Catalogs of zones, as a primary gives them one after the other.

use std::sync::Arc;

use dns::Folded;
use nameserver::book::{Book, Edit};
use nameserver::generation::Settings;
use nameserver::names::NameHash;
use nameserver::transfer::catalog::{members, text};
use nameserver::transfer::{Primaries, Primary};
use nameserver::zone::{Zone, read};

const CATALOG: &[u8] = b"\x03cat\0";

/// What is listed comes, and what is not goes; what is broken changes nothing; and what is read is written as the same.
pub(super) fn catalog(octets: &[u8]) {
    let mut book = Book::empty(1, Settings::default());
    let hash = book.generation.hash.clone();
    let primary = Primary { catalogs: [CATALOG.to_vec()].into(), ..Primary::default() };
    book.apply(Edit::Primaries(Arc::new(Primaries(vec![primary])))).expect("there is no zone yet");
    let name = Folded::read(CATALOG).expect("a name");
    for version in octets.split(|octet| *octet == 0) {
        let Ok(edit) = Edit::given_zone("fuzz", &name, version, &hash) else { continue };
        let before = book.imports.clone();
        let mut trial = book.clone();
        match trial.apply(edit) {
            Ok(_) => book = trial,
            Err(refused) => {
                assert!(!refused.to_string().is_empty());
                continue;
            }
        }
        let listed = book.listed();
        book.apply(Edit::Catalogs).expect("what is listed is taken, or left alone");
        let again = book.listed();
        assert!(again.is_done() && again.ignored == listed.ignored);
        let zone = book.generation.zones.all().get(&name, &hash).expect("it was given");
        let listed = members(zone).expect("a broken one is refused");
        let came = book.imports.keys().filter(|path| path.starts_with("member ")).count();
        assert_eq!(came, listed.len() - again.ignored.len(), "{before:?} {:?}", book.imports);
        let written = text(&name, 7, &listed);
        let include = |_: &str| Err("nothing is included".to_string());
        let source = read::Source { name: "fuzz", text: written.as_bytes(), origin: None, include: &include };
        let master = read::read(&source).unwrap_or_else(|faults| panic!("{faults}\n{written}"));
        let built = Zone::build(&master, "fuzz", &NameHash::new(2))
            .unwrap_or_else(|faults| panic!("{faults}\n{written}"));
        assert_eq!(members(&built), Ok(listed), "{written}");
    }
}

/// One that grows and shrinks, moves a zone and is broken, in versions that are parted by an octet 0.
pub(super) fn catalogs() -> Vec<Vec<u8>> {
    let head = "$ORIGIN cat.\n$TTL 0\n@ SOA . . 1 60 60 600 0\n@ NS invalid.\nversion TXT 2\n";
    let versions = [
        "a.zones PTR one.\nb.zones PTR Two.example.\n",
        "a.zones PTR one.\ncoo.a.zones PTR other.\ngroup.a.zones TXT x\nc.zones PTR \\000\\032.example.\n",
        "a.zones PTR one.\nb.zones PTR one.\nversion TXT 3\nc.zones PTR d.\nc.zones PTR e.\n",
        "d.zones PTR one.\ne.zones PTR cat.\nf.zones PTR .\n",
        "",
    ];
    let all = versions.map(|lines| format!("{head}{lines}")).join("\0");
    vec![all.into(), versions.map(|lines| format!("{head}{lines}")).join("").into()]
}
