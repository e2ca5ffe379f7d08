//! Edits against one another: what each leaves behind, and what it must not break.

use routing::RegionId;
use std::net::IpAddr;
use store::{Contents, Parts};

use super::*;
use crate::names::NameHash;
use crate::signing::tests::{GenerateParams, key_with_record};
use crate::signing::{Key, Signing, TRUSTED, ZONE_KEY};
use crate::transfer::Primary;
use crate::zone::check_in_step;

const ZONE: &str = "$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\nalias CNAME ns\nsub NS ns\n";

const POLICY: &str = r#"{"names":["WWW.example","*.cdn.example."],"servers":[
    {"address":"192.0.2.1","regions":{"eu":{"probability":1}}},{"address":"192.0.2.2","regions":{"us":{}}}]}"#;

/// A book with a zone, two regions, a partition and a policy, and what was stored for it.
fn book() -> (Book, Vec<Change>) {
    let mut book = Book::empty(1, Settings::default());
    let mut changes = Vec::new();
    for edit in [zone("example", ZONE), region("eu"), region("us")] {
        changes.extend(book.apply(edit).unwrap());
    }
    let partition = partition(&book, "10.0.0.0/8,eu\n10.1.0.0/16,us\n");
    for edit in [partition, policy(POLICY)] {
        changes.extend(book.apply(edit).unwrap());
    }
    (book, changes)
}

fn zone(origin: &str, text: &str) -> Edit {
    Edit::zone(origin, text.as_bytes(), Condition::Always, &NameHash::new(1)).unwrap()
}

fn region(name: &str) -> Edit {
    Edit::AddRegion { name: name.into() }
}

/// Puts the default partition, compiled by the regions of `book`.
fn partition(book: &Book, text: &str) -> Edit {
    Edit::partition("default", "p", text.into(), Condition::Always, book.regions.clone()).unwrap()
}

fn policy(text: &str) -> Edit {
    Edit::policy(None, "policy", text.into(), Condition::Always).unwrap()
}

fn refused(book: &Book, edit: Edit) -> String {
    book.clone().apply(edit).map(|_| ()).unwrap_err().to_string()
}

fn decides(book: &Book, name: &str) -> bool {
    let (name, hash) = (folded(name, "").unwrap(), &book.generation.hash);
    book.generation
        .zones
        .all()
        .closest(&name, false, hash)
        .is_some_and(|zone| zone.policy_at(&name, hash).is_some())
}

#[test]
fn a_partition_holds_no_character_zero() {
    let (book, _) = book();
    let text = b"10.0.0.0/8,eu\n# a\0b\0\n10.1.0.0/16,us\n\0".to_vec();
    let put = Edit::partition("default", "p", text, Condition::Always, book.regions.clone());
    let faults = put.map(|_| ()).unwrap_err();
    let zeros: Vec<(Option<u32>, Option<u32>)> = faults
        .faults
        .iter()
        .filter(|fault| fault.what.contains("U+0000"))
        .map(|fault| (fault.line, fault.column))
        .collect();
    assert_eq!(zeros, [(Some(2), Some(4)), (Some(4), Some(1))], "{faults}");
}

#[test]
fn a_partition_without_a_prefix_is_refused() {
    let (book, _) = book();
    let put = |text: &str| {
        let put = Edit::partition("default", "p", text.into(), Condition::Always, book.regions.clone());
        put.map(|_| ()).map_err(|faults| faults.to_string())
    };
    for text in ["", "prefix,region\n", "# a\n", "@eu,192.0.2.1,1\n"] {
        let told = put(text).unwrap_err();
        assert!(told.starts_with("p: no prefix in it; expected at least one line"), "{text:?}: {told}");
    }
    put("0.0.0.0/0,-\n").expect("it is said that nobody has a region");
}

/// What a store would hold after these changes.
fn stored(changes: &[Change]) -> Contents {
    let mut contents = Contents::default();
    for change in changes {
        match change.clone() {
            Change::PutZone { origin, text } => drop(contents.zones.insert(origin, text)),
            Change::ChangeZone { .. } => panic!("no zone is changed in part here"),
            Change::AddRegion { id, name } => {
                contents.regions.insert(id, name);
                contents.next_region_id = id + 1;
            }
            Change::RemoveRegion { id } => {
                let name = contents.regions.remove(&id).unwrap();
                for server in contents.policies.iter_mut().flat_map(|policy| &mut policy.servers) {
                    server.regions.remove(&name);
                }
            }
            Change::PutPartition { name, text } => drop(contents.partitions.insert(name, text)),
            Change::PutPolicy(policy) => {
                contents.policies.retain(|known| known.names[0] != policy.names[0]);
                contents.policies.push(Arc::unwrap_or_clone(policy));
            }
            Change::SetServer { server, up } => drop(contents.servers.insert(server, up)),
            other => panic!("{other} is not made here"),
        }
    }
    contents
}

#[test]
fn what_was_stored_loads_to_the_same_book() {
    let (mut book, mut changes) = book();
    changes.extend(book.apply(Edit::RemoveRegion { id: 2 }).unwrap());
    changes.extend(book.apply(Edit::SetServer { server: "192.0.2.1".parse().unwrap(), up: false }).unwrap());
    let loaded = Book::load(stored(&changes), 1, Settings::default()).unwrap();
    assert_eq!(loaded.policy("www.example"), book.policy("www.example"));
    assert_eq!(loaded.partition("default"), book.partition("default"));
    assert_eq!(loaded.zone("example"), book.zone("example"));
    assert_eq!(loaded.next_region_id, book.next_region_id);
    let (leaf, name) = loaded.lookup("default", "10.1.2.3".parse().unwrap()).unwrap();
    assert!(leaf.region.is_none() && name.is_empty(), "a removed region's prefixes hide what is around them");
    let up = |book: &Book| book.generation.state().is_up(&"192.0.2.1".parse().unwrap());
    assert_eq!((up(&loaded), up(&book)), (false, false));
}

#[test]
fn data_that_is_no_longer_taken_does_not_keep_a_stored_zone_from_loading() {
    let text = "example. 60 IN SOA ns.example. hm.example. 1 2 3 4 5\nexample. 60 IN NS ns.example.\n\
                x.example. 60 IN AFSDB \\# 3 000102\n";
    let contents = Contents { zones: [("example.".into(), text.into())].into(), ..Contents::default() };
    let book = Book::load(contents, 1, Settings::default()).unwrap();
    assert_eq!(book.zone("example").map(|(text, _)| text).as_deref(), Some(text));
    assert!(Edit::zone("example", text.as_bytes(), Condition::Always, &NameHash::new(1)).is_err());
}

#[test]
fn a_stored_text_of_others_may_hold_what_is_no_longer_taken_and_a_fault_quotes_its_line() {
    let load = |more: &str| {
        // No canonical text: a TTL is missing, as another program may have written it.
        let text = format!(
            "$TTL 60\nexample. SOA ns.example. hm.example. 1 2 3 4 5\nexample. NS ns.example.\n{more}\n"
        );
        let contents = Contents { zones: [("example.".into(), text)].into(), ..Contents::default() };
        Book::load(contents, 1, Settings::default()).map(|_| ()).map_err(|faults| faults.to_string())
    };
    assert_eq!(load("a.example. SVCB 1 . dohpath=/q\nb.example. DS 1 13 2"), Ok(()));
    let told = load("a.example. A 192.0.2.300").unwrap_err();
    assert!(told.starts_with("stored zone example.:4:14: "), "{told}");
    assert!(told.contains(", in 'a.example. A 192.0.2.300'"), "{told}");
    let told = load("a.example. CNAME b.\na.example. A 192.0.2.3").unwrap_err();
    assert!(told.contains("other data (A), in 'a.example. CNAME b.'; expected"), "{told}");
}

#[test]
fn a_stored_policys_names_are_canonical() {
    let (_, changes) = book();
    let mut contents = stored(&changes);
    let before = contents.policies[0].names.clone();
    for (index, written, canonical) in
        [(0, r"w\119w.example.", "www.example."), (1, r"\042.cdn.example.", "*.cdn.example.")]
    {
        contents.policies[0].names[index] = written.into();
        let faults = Book::load(contents.clone(), 1, Settings::default()).map(|_| ()).unwrap_err();
        let told = format!("/names/{index}: {written} is another form of {canonical}");
        assert!(faults.to_string().contains(&told), "{faults}");
        contents.policies[0].names.clone_from(&before);
    }
    Book::load(contents.clone(), 1, Settings::default()).unwrap();
    let servers = &mut contents.policies[0].servers;
    servers.truncate(1);
    servers[0].target = Target::Cname(r"w\119w.test.".into());
    let faults = Book::load(contents, 1, Settings::default()).map(|_| ()).unwrap_err();
    assert!(
        faults.to_string().contains(r"/servers/0/cname: w\119w.test. is another form of www.test."),
        "{faults}"
    );
}

#[test]
fn a_region_beyond_all_others_is_told() {
    let (book, changes) = book();
    for (last, is_served) in [(RegionId::MAX.get(), true), (RegionId::MAX.get() + 1, false)] {
        let contents = Contents { next_region_id: last + 1, ..stored(&changes) };
        let (loaded, followed) =
            (Book::load(contents.clone(), 1, Settings::default()).err(), book.following(contents).err());
        assert_eq!((loaded.is_none(), followed.is_none()), (is_served, is_served), "{last}");
        for faults in [loaded, followed].into_iter().flatten() {
            assert!(faults.to_string().contains("the id 16777215 is too high"), "{faults}");
        }
    }
}

#[test]
fn a_partition_is_compiled_beforehand_and_again_where_the_regions_are_others() {
    let (before, _) = book();
    let edit = partition(&before, "10.0.0.0/8,us\n");
    let Edit::PutPartition { compiled, .. } = &edit else { panic!("it puts a partition") };
    let mut book = before.clone();
    book.apply(edit.clone()).unwrap();
    assert!(Arc::ptr_eq(&book.partitions["default"], compiled));

    let mut book = before;
    book.apply(Edit::RemoveRegion { id: 2 }).unwrap();
    assert!(refused(&book, edit.clone()).contains("us"));
    book.apply(region("us")).unwrap();
    book.apply(edit).unwrap();
    let (leaf, name) = book.lookup("default", "10.1.2.3".parse().unwrap()).unwrap();
    assert_eq!((leaf.region.get(), name), (3, "us"));
}

/// What of `after` differs from `before`, as a store tells it.
fn parts(before: &Contents, after: &Contents) -> Parts {
    let texts = |before: &BTreeMap<String, String>, after: &BTreeMap<String, String>| {
        let names = before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name));
        names.map(|name| (name.clone(), after.get(name).cloned())).collect()
    };
    Parts {
        zones: texts(&before.zones, &after.zones),
        partitions: texts(&before.partitions, &after.partitions),
        policies: (before.policies != after.policies).then(|| after.policies.clone()),
        servers: after.servers.clone(),
        imports: after.imports.clone(),
    }
}

/// All that a book serves, to be compared: zones, partitions, policies with what their partitions say of some addresses,
/// and which policy decides some names.
fn served(book: &Book) -> String {
    let hash = &book.generation.hash;
    let mut zones: Vec<(String, bool)> =
        book.generation.zones.all().iter().map(|zone| (zone.to_text(), zone.is_steered())).collect();
    zones.sort();
    let partitions: Vec<(&String, &String)> =
        book.partitions.iter().map(|(name, partition)| (name, &partition.text)).collect();
    let clients: [IpAddr; 3] = ["10.0.0.1", "10.1.2.3", "192.0.2.1"].map(|client| client.parse().unwrap());
    let mut policies: Vec<(&api::Policy, [u32; 3])> = Vec::new();
    for (_, steered) in book.generation.policies.iter() {
        let region = |client| steered.policy.partition().lookup(client).region.get();
        policies.push((&steered.spec, clients.map(region)));
    }
    policies.sort_by(|a, b| a.0.names.cmp(&b.0.names));
    let names = ["www.example", "*.cdn.example", "a.example", "www.test", "third"].map(|name| {
        let name = folded(name, "").unwrap();
        let zone = book.generation.zones.all().closest(&name, false, hash)?;
        let policy = book.generation.policies.get(zone.policy_at(&name, hash)?)?;
        Some((zone.origin().clone(), dns::name::to_text(policy.key())))
    });
    format!("{zones:#?}{partitions:#?}{policies:#?}{names:#?}{:?}", book.servers)
}

#[test]
fn views_stay_in_step_with_every_edit() {
    let (mut book, changes) = book();
    let wire = |name: &str| folded(name, "").unwrap().wire().to_vec();
    let view = |address: [u8; 4], zones: &[&str]| View {
        addresses: vec![address.into()],
        zones: zones.iter().map(|zone| wire(zone)).collect(),
    };
    let views = [view([192, 0, 2, 1], &["example", "test"]), view([192, 0, 2, 2], &["cdn.example"])];
    let at = |book: &Book, last: u8| book.generation.zones.at([192, 0, 2, last].into()).len();
    for (edit, zones) in [
        (Edit::Views(views.into()), [1, 0, 0]),
        (zone("test", ZONE), [2, 0, 0]),
        (zone("other", ZONE), [2, 0, 1]),
        // The policy's names below move to it: both zones are changed.
        (zone("cdn.example", ZONE), [2, 1, 1]),
        (Edit::DeletePolicy { owner: "www.example".into(), condition: Condition::Always }, [2, 1, 1]),
        (policy(POLICY), [2, 1, 1]),
        (Edit::DeleteZone { origin: "test".into(), condition: Condition::Always }, [1, 1, 1]),
        (Edit::Views([view([192, 0, 2, 2], &["other"])].into()), [2, 1, 2]),
    ] {
        book.apply(edit).unwrap();
        assert_eq!([1, 2, 3].map(|last| at(&book, last)), zones);
        check_in_step(&book.generation.zones);
    }
    let before = stored(&changes);
    let mut after = before.clone();
    after.zones.insert("other.".into(), format!("$ORIGIN other.\n{ZONE}"));
    let all = book.following(after.clone()).unwrap();
    let parts = all.following_parts(0, parts(&after, &before)).unwrap();
    for (book, zones) in [(all, [1, 1, 1]), (parts, [1, 0, 1])] {
        assert_eq!([1, 2, 3].map(|last| at(&book, last)), zones);
        check_in_step(&book.generation.zones);
    }
}

/// How many records lead from a version of a zone to the one that is there.
fn steps(book: &Book, origin: &str, serial: u32) -> Option<usize> {
    let origin = folded(origin, "").unwrap();
    let zone = book.generation.zones.all().get(&origin, &book.generation.hash).unwrap();
    Some(zone.since(serial)?.iter().map(|difference| difference.records(0).count()).sum())
}

/// A zone of a serial number, with an address of `a`.
fn numbered(serial: u32, address: &str) -> String {
    format!("@ 60 SOA ns hm {serial} 2 3 4 5\n@ 60 NS ns\na 60 A {address}\n")
}

#[test]
fn what_changed_is_held_against_what_was_served() {
    let mut book = Book::empty(1, Settings::default());
    book.secondaries = Arc::new(Secondaries(vec![crate::transfer::Secondary::default()]));
    let mut changes = book.apply(zone("test", &numbered(7, "192.0.2.1"))).unwrap();
    changes.extend(book.apply(zone("test", &numbered(8, "192.0.2.2"))).unwrap());
    let before = stored(&changes);
    let mut after = before.clone();
    after.zones.insert("test.".into(), format!("$ORIGIN test.\n{}", numbered(8, "192.0.2.3")));
    let read = book.following_parts(0, parts(&before, &after)).unwrap();
    assert_eq!(steps(&read, "test", 8), None, "two versions have this number");
    for mut draft in [read, book.following(after.clone()).unwrap()] {
        let raised = draft.raise_serials(&before.zones, &book.generation).unwrap();
        assert_eq!(raised.changes.len(), 1);
        assert_eq!([7, 8, 9].map(|serial| steps(&draft, "test", serial)), [Some(8), Some(4), None]);
    }
    // What another name server was told.
    after.zones.insert("test.".into(), format!("$ORIGIN test.\n{}", numbered(9, "192.0.2.3")));
    let mut book = book.following_parts(0, parts(&before, &after)).unwrap();
    assert_eq!(steps(&book, "test", 8), Some(4));
    let all = book.following(after).unwrap();
    assert_eq!(steps(&all, "test", 8), Some(4), "it has not changed since");
    book.apply(zone("test", &numbered(10, "192.0.2.3"))).unwrap();
    assert_eq!([8, 9].map(|serial| steps(&book, "test", serial)), [Some(6), Some(2)]);
}

#[test]
fn a_serial_that_another_version_may_have_had_leads_nowhere() {
    let mut book = Book::empty(1, Settings::default());
    let put = |book: &mut Book, origin: &str, serial, address| {
        book.apply(zone(origin, &numbered(serial, address))).unwrap();
        steps(book, origin, serial - 1)
    };
    put(&mut book, "test", 7, "192.0.2.1");
    // Nobody followed it then, and nothing held its numbers up.
    put(&mut book, "test", 7, "192.0.2.2");
    book.secondaries = Arc::new(Secondaries(vec![crate::transfer::Secondary::default()]));
    assert_eq!(put(&mut book, "test", 8, "192.0.2.3"), None);
    assert_eq!(put(&mut book, "test", 9, "192.0.2.4"), Some(4));
    put(&mut book, "new.test", 7, "192.0.2.1");
    assert_eq!(put(&mut book, "new.test", 8, "192.0.2.2"), Some(4));
    // It was there before, under any number.
    book.apply(Edit::DeleteZone { origin: "test".into(), condition: Condition::Always }).unwrap();
    put(&mut book, "test", 9, "192.0.2.5");
    assert_eq!(put(&mut book, "test", 10, "192.0.2.6"), None);
    assert_eq!(put(&mut book, "test", 11, "192.0.2.7"), Some(4));
}

/// Of what a book can be made.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Parts,
    Everything,
    Nothing,
}

/// What is changed in a store.
type Step<'a> = &'a dyn Fn(&mut Contents);

#[test]
fn changed_parts_make_the_book_that_everything_makes() {
    let (_, changes) = book();
    let mut before = stored(&changes);
    before.zones.insert("test.".into(), format!("$ORIGIN test.\n{ZONE}"));
    let mut served_now = Book::load(before.clone(), 1, Settings::default()).unwrap();
    let zone = |origin: &str, more: &str| (origin.to_string(), format!("$ORIGIN {origin}\n{ZONE}{more}"));
    let steps: [(&str, By, Step); 16] = [
        ("nothing", By::Parts, &|_| {}),
        ("a record", By::Parts, &|c| c.zones.extend([zone("example.", "new TXT x\n")])),
        ("a zone more", By::Parts, &|c| c.zones.extend([zone("a.test.", "")])),
        ("a zone less", By::Parts, &|c| _ = c.zones.remove("a.test.")),
        ("a zone in between", By::Parts, &|c| c.zones.extend([zone("cdn.example.", "")])),
        ("its end: the policy's names go back", By::Everything, &|c| _ = c.zones.remove("cdn.example.")),
        ("a zone under another name", By::Nothing, &|c| {
            c.zones.insert("b.test.".into(), zone("other.", "").1);
        }),
        ("records that no policy may be beside", By::Nothing, &|c| {
            c.zones.extend([zone("example.", "www CNAME ns\n")]);
        }),
        ("a partition that a policy uses", By::Parts, &|c| {
            c.partitions.insert("default".into(), "10.0.0.0/8,us\n".into());
        }),
        ("a partition more, which a policy uses now", By::Parts, &|c| {
            c.partitions.insert("other".into(), "192.0.2.0/24,eu\n".into());
            c.policies[0].partition = "other".into();
        }),
        ("the default partition's end", By::Parts, &|c| _ = c.partitions.remove("default")),
        ("the end of one in use", By::Nothing, &|c| _ = c.partitions.remove("other")),
        ("both back", By::Parts, &|c| {
            c.policies[0].partition = "default".into();
            c.partitions.insert("default".into(), "10.1.0.0/16,eu\n".into());
            c.partitions.remove("other");
        }),
        ("a zone and a policy in it", By::Parts, &|c| {
            c.zones.extend([zone("third.", "")]);
            c.policies[0].names.push("third.".into());
        }),
        ("both gone", By::Parts, &|c| {
            c.zones.remove("third.");
            c.policies[0].names.pop();
        }),
        ("a policy moved, and its zone gone", By::Parts, &|c| {
            c.policies[0].names = vec!["www.test.".into()];
            c.zones.remove("example.");
        }),
    ];
    for (what, by, change) in steps {
        let mut after = before.clone();
        change(&mut after);
        let parts = served_now.following_parts(0, parts(&before, &after));
        let all = served_now.following(after.clone());
        assert_eq!((parts.is_ok(), all.is_ok()), (by == By::Parts, by != By::Nothing), "{what}");
        if let Ok(parts) = &parts {
            assert_eq!(served(parts), served(all.as_ref().unwrap()), "{what}");
        }
        if let Ok(book) = parts.or(all) {
            (served_now, before) = (book, after);
        }
    }
}

#[test]
fn a_region_takes_its_columns_along_and_its_id_is_spent() {
    let (mut book, _) = book();
    book.apply(Edit::RemoveRegion { id: 1 }).unwrap();
    let (spec, _) = book.policy("www.example").unwrap();
    assert!(spec.servers[0].regions.is_empty() && spec.servers[1].regions.contains_key("us"));
    book.apply(region("eu")).unwrap();
    assert_eq!(book.region_id("eu").map(RegionId::get), Some(3));
    assert!(refused(&book, region("eu")).contains("already"));
    let edit = Edit::HaveRegions { names: ["eu", "af", "us", "af"].map(String::from).into() };
    let added = book.clone().apply(edit).unwrap();
    assert!(matches!(&added[..], [Change::AddRegion { name, .. }] if name == "af"), "{added:?}");
    assert!(refused(&book, region("a,b")).contains("no name for a region"));
}

#[test]
fn a_policys_names_follow_it() {
    let (mut book, _) = book();
    assert!(decides(&book, "www.example") && decides(&book, "*.cdn.example"));
    book.apply(policy(&POLICY.replace("*.cdn", "new"))).unwrap();
    assert!(!decides(&book, "*.cdn.example") && decides(&book, "new.example"));
    let stranger = POLICY.replace("WWW", "other").replace("*.cdn", "www");
    assert!(refused(&book, policy(&stranger)).contains("belongs to the policy www.example."));
    assert_eq!(
        refused(&book, Edit::DeletePolicy { owner: "new.example".into(), condition: Condition::Always }),
        "there is no policy new.example."
    );
    book.apply(Edit::DeletePolicy { owner: "www.example.".into(), condition: Condition::Always }).unwrap();
    assert!(!decides(&book, "www.example") && book.generation.policies.is_empty());
}

#[test]
fn servers_of_no_policy_are_forgotten_but_for_what_was_said_of_them() {
    let (mut book, _) = book();
    let set = |up| Edit::SetServer { server: "192.0.2.1".parse().unwrap(), up };
    book.apply(set(false)).unwrap();
    book.apply(policy(&POLICY.replace("192.0.2.1", "192.0.2.9"))).unwrap();
    let mut again = book.clone();
    again.apply(policy(POLICY)).unwrap();
    assert!(!again.generation.state().is_up(&"192.0.2.1".parse().unwrap()), "it was never set up again");
    book.apply(set(true)).unwrap();
    assert!(!book.generation.state().any_out());
    assert_eq!(refused(&book, set(true)), "there is no server 192.0.2.1 in any policy");
}

#[test]
fn the_key_is_a_name_wherever_it_is_listed() {
    let put = |owner: &str, names: &str| {
        let mut book = book().0;
        let text = POLICY.replace(r#"["WWW.example","*.cdn.example."]"#, names);
        let edit = Edit::policy(Some(owner), "p", text.into(), Condition::Always).unwrap();
        book.apply(edit).map(|_| book.policy(owner).unwrap().0.names).map_err(|refused| refused.to_string())
    };
    assert_eq!(put("k.example", "[]").unwrap(), ["k.example."]);
    assert_eq!(put("k.example", r#"["a.example"]"#).unwrap(), ["k.example.", "a.example."]);
    assert_eq!(put("k.example", r#"["a.example","K.example."]"#).unwrap(), ["k.example.", "a.example."]);
    assert!(
        put("k.example", r#"["k.example","a.example","K.example"]"#).unwrap_err().contains("listed twice")
    );
    assert!(put("alias.example", "[]").unwrap_err().contains("CNAME"));
}

#[test]
fn a_policys_form_is_read_without_a_book_and_its_meaning_with_one() {
    let form = |text: &[u8]| {
        Edit::policy(None, "p", text.to_vec(), Condition::Always).map(drop).unwrap_err().to_string()
    };
    assert!(form(b"\xff").starts_with("p:1:1: the octet ff is not UTF-8; "), "{}", form(b"\xff"));
    assert_eq!(form(b"{\"names\":7}").lines().count(), 2, "a name of the wrong type, and no servers");
    let (book, _) = book();
    for (from, to, told) in [
        ("\"names\":[\"WWW.example\",\"*.cdn.example.\"],", "", "policy: the policy has no name"),
        ("us", "mars", "policy:2:105: there is no region 'mars'"),
    ] {
        let refused = refused(&book, policy(&POLICY.replace(from, to)));
        assert!(refused.starts_with(told), "{refused}");
    }
}

#[test]
fn policies_stand_where_their_addresses_are_ours_to_decide() {
    let (book, _) = book();
    for (name, why) in [
        ("alias.example", "CNAME"),
        ("a.sub.example", "delegation"),
        ("elsewhere.test", "none of our zones"),
        ("bad..example", "not a domain name"),
    ] {
        let text = POLICY.replace("*.cdn.example.", name);
        let told = refused(&book, policy(&text));
        assert!(told.starts_with("policy:1:25: "), "{told}");
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn an_alias_stands_alone_and_is_one_name() {
    let (mut book, _) = book();
    let put = |servers: &str| format!("{{\"names\":[\"to.example\"],{servers}}}");
    for (servers, expected) in [
        (
            r#""servers":[{"cname":"a.test"},{"address":"192.0.2.1"}]"#,
            "policy:1:66: addresses and names are servers of one policy; expected all with address, or all with cname",
        ),
        (
            r#""answers":0,"servers":[{"cname":"a.test"}]"#,
            "policy:1:35: an alias is one name, not 0; expected 1",
        ),
        (
            r#""servers":[{"cname":"192.0.2.1"}]"#,
            "policy:1:45: '192.0.2.1' is no name; expected a domain name",
        ),
        (r#""servers":[{"cname":"2001:db8::1"}]"#, "policy:1:45: '2001:db8::1' is no name; expected"),
        (r#""servers":[{"cname":"a..test"}]"#, "policy:1:45: 'a..test' is not a domain name"),
        (
            r#""servers":[{"cname":"a.test"},{"cname":"A.TEST."}]"#,
            "policy:1:64: the server a.test. is listed twice; expected each server once",
        ),
        (
            r#""servers":[{"cname":"a.test"},{"cname":"To.example"}]"#,
            "policy:1:64: to.example. would be an alias of itself; expected another name",
        ),
    ] {
        let told = refused(&book, policy(&put(servers)));
        assert!(told.starts_with(expected), "{servers}: {told}");
    }
    let alias = r#"{"names":["to.example","NS.example"],"servers":[{"cname":"A.test"}]}"#;
    let told = refused(&book, policy(alias));
    assert!(
        told.starts_with("policy:1:24: ns.example. has records of type A, beside which no alias"),
        "{told}"
    );

    let changes = book.apply(policy(&alias.replace("NS.", "other."))).unwrap();
    let Change::PutPolicy(stored) = &changes[0] else { panic!("{changes:?}") };
    assert_eq!(stored.servers[0].target.to_string(), "a.test.", "as all that is said of it has it");
    let told = refused(&book, zone("example", &format!("{ZONE}other TXT x\n")));
    let expected = "body:7:1: other.example. has records of type TXT, beside which no alias can be, and a policy decides it";
    assert!(told.starts_with(expected), "{told}");
    // What is steered to addresses has other records, and can be no alias.
    book.apply(zone("example", &format!("{ZONE}www TXT x\n"))).unwrap();
    let told = refused(&book, policy(r#"{"names":["www.example"],"servers":[{"cname":"a.test"}]}"#));
    assert!(told.contains("www.example. has records of type TXT"), "{told}");
}

#[test]
fn a_zone_that_secondaries_follow_by_name_gets_no_new_policies() {
    let name = |text: &str| folded(text, "").unwrap().wire().to_vec();
    let secondary = |zones: &[&str]| crate::transfer::Secondary {
        zones: zones.iter().map(|zone| name(zone)).collect(),
        ..crate::transfer::Secondary::default()
    };
    let (mut book, _) = book();
    let other = r#"{"names":["other.example"],"servers":[{"address":"192.0.2.1"}]}"#;
    book.secondaries = Arc::new(Secondaries(vec![secondary(&["example", "cdn.example"])]));
    let told = refused(&book, policy(other));
    assert!(told.contains("other.example. is in the zone example., which secondaries follow"), "{told}");
    book.clone().apply(policy(POLICY)).expect("what was steered before may change");
    let told = refused(&book, zone("cdn.example", ZONE));
    assert!(told.starts_with("body:2:1: secondaries follow the zone, and cannot take it with"), "{told}");

    book.secondaries = Arc::new(Secondaries(vec![secondary(&[]), secondary(&["example.net"])]));
    book.clone().apply(policy(other)).expect("all zones are not this one");
    book.apply(zone("cdn.example", ZONE)).expect("all zones are not this one");
}

/// What a zone begins with that is signed, with TTLs of its own, as a signer writes them.
const SIGNED: &str = "@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n";

#[test]
fn what_a_policy_answers_in_a_signed_zone_is_signed_as_long_as_both_are_there() {
    let (key, record) = key_with_record(&GenerateParams::EcdsaP256Sha256, ZONE_KEY);
    let signature = "RRSIG A 13 2 60 20300101000000 20200101000000 1 example. AAAA\n";
    let signed = |more: &str| format!("{SIGNED}{record}www 60 A 192.0.2.99\nwww 60 {signature}{more}");
    let plain = format!("{SIGNED}www 60 A 192.0.2.99\n");
    let mut book = Book::empty(1, Settings::default());
    book.choose_signing(Arc::new(Signing::new(vec![key].into(), 1_800_000_000))).unwrap();
    let signatures = |book: &Book| {
        let (www, hash) = (folded("www.example", "").unwrap(), &book.generation.hash);
        book.generation.signed.find(hash.of(&www), www.wire()).map(|found| found.value.clone())
    };
    let text = r#"{"names":["www.example"],"servers":[{"address":"192.0.2.1"},{"address":"192.0.2.2"}]}"#;
    let mut changes = book.apply(zone("example", &signed(""))).unwrap();
    changes.extend(book.apply(policy(text)).unwrap());
    let first = signatures(&book).expect("it is signed");

    // What has not changed is not signed again: whoever changes the rows, or the rest of the zone.
    let weights = text.replace("2.1\"}", "2.1\",\"default\":{\"probability\":7}}");
    for edit in [policy(&weights), zone("example", &signed("more 60 TXT x\n"))] {
        let mut book = book.clone();
        book.apply(edit).unwrap();
        assert!(Arc::ptr_eq(&signatures(&book).unwrap(), &first));
    }
    let before = stored(&changes);
    let mut after = before.clone();
    after.zones.insert("example.".into(), format!("$ORIGIN example.\n{}", signed("x 60 TXT x\n")));
    for book in [book.following(after.clone()), book.following_parts(0, parts(&before, &after))] {
        assert!(Arc::ptr_eq(&signatures(&book.unwrap()).unwrap(), &first));
    }

    // Others go, or the zone is signed no more.
    let delete = Edit::DeletePolicy { owner: "www.example".into(), condition: Condition::Always };
    for edit in [delete, zone("example", &plain)] {
        let mut book = book.clone();
        book.apply(edit).unwrap();
        assert!(signatures(&book).is_none());
    }
    after.zones.insert("example.".into(), format!("$ORIGIN example.\n{plain}"));
    assert!(signatures(&book.following(after).unwrap()).is_none());
    // A policy that was there before comes to a zone that is signed now.
    let mut book = book.following(before).unwrap();
    book.apply(zone("example", &plain)).unwrap();
    book.apply(zone("example", &signed(""))).unwrap();
    assert!(signatures(&book).is_some());
}

/// A zone that is signed here, with a policy, and what was stored for it.
struct SignedHere {
    book: Book,
    changes: Vec<Change>,
    keys: Arc<[Key]>,
}

impl SignedHere {
    const NOW: u64 = 1_800_000_000;
    const POLICY: &str = r#"{"names":["www.example"],"servers":[{"address":"192.0.2.1"}]}"#;

    fn new() -> SignedHere {
        let (key, _) = key_with_record(&GenerateParams::EcdsaP256Sha256, TRUSTED);
        let mut book = Book::empty(1, Settings::default());
        let mut changes = book.apply(zone("example", &SignedHere::text(1, "a"))).unwrap();
        changes.extend(book.apply(policy(SignedHere::POLICY)).unwrap());
        let keys: Arc<[Key]> = vec![key].into();
        book.choose_signing(Arc::new(Signing::new(keys.clone(), SignedHere::NOW))).unwrap();
        SignedHere { book, changes, keys }
    }

    /// The zone at a serial number, with a text.
    fn text(serial: u32, text: &str) -> String {
        format!("{}more 60 TXT {text}\n", SIGNED.replace(" 1 2 ", &format!(" {serial} 2 ")))
    }

    /// The store with another text of the zone.
    fn stored_with(&self, serial: u32, text: &str) -> Contents {
        let mut stored = stored(&self.changes);
        stored
            .zones
            .insert("example.".into(), format!("$ORIGIN example.\n{}", SignedHere::text(serial, text)));
        stored
    }

    fn served(book: &Book) -> Arc<Zone> {
        book.generation
            .zones
            .all()
            .get(&folded("example", "").unwrap(), &book.generation.hash)
            .unwrap()
            .clone()
    }

    /// The signature over the NS set, which is the same in all versions.
    fn signature(book: &Book) -> Option<Vec<u8>> {
        SignedHere::served(book).ns().signatures().data().next().map(<[u8]>::to_vec)
    }

    /// The NSEC record of the policy's name.
    fn told(book: &Book) -> Option<Vec<u8>> {
        let (zone, www) = (SignedHere::served(book), folded("www.example", "").unwrap());
        let found = zone.glue(&www, &book.generation.hash)?;
        found.rrset(dns::Rtype::NSEC)?.data().next().map(<[u8]>::to_vec)
    }
}

#[test]
fn a_zone_that_is_signed_here_stays_so_while_nothing_changes() {
    let here = SignedHere::new();
    let (first, served) =
        (SignedHere::signature(&here.book).expect("it is signed"), SignedHere::served(&here.book));
    assert_eq!((served.unproven(), served.is_steered()), (None, true));
    let mut given = Book::empty(1, Settings::default());
    given.apply(zone("example", &SignedHere::text(1, "a"))).unwrap();
    assert_eq!(here.book.zone("example"), given.zone("example"), "it is shown as it was given");

    // Here, or in a store that others change, too.
    let (before, after) = (stored(&here.changes), here.stored_with(2, "b"));
    let mut edited = here.book.clone();
    edited.apply(zone("example", &SignedHere::text(2, "b"))).unwrap();
    let followed = here.book.following(after.clone()).unwrap();
    let in_parts = here.book.following_parts(0, parts(&before, &after)).unwrap();
    // A number that a program did not raise is raised among those that are given.
    let mut raised = here.book.following(here.stored_with(1, "b")).unwrap();
    let told = raised.raise_serials(&before.zones, &here.book.generation).unwrap();
    let [Change::PutZone { text, .. }] = &told.changes[..] else { panic!("{told:?}") };
    assert!(text.contains(" 2 2 3 4 5") && !text.contains("RRSIG"), "{text}");
    for later in [edited, followed, in_parts, raised] {
        let now = SignedHere::served(&later);
        assert_eq!((SignedHere::signature(&later), now.serial()), (Some(first.clone()), served.serial() + 1));
        assert_eq!((now.unproven(), later.generation.signed.len()), (None, 1));
    }
    let mut again = here.book.clone();
    again.choose_signing(Arc::new(Signing::new(here.keys.clone(), SignedHere::NOW + 1))).unwrap();
    assert!(Arc::ptr_eq(&SignedHere::served(&again), &served));
}

#[test]
fn a_zone_is_signed_anew_with_each_period_and_as_long_as_its_key_is_here() {
    let here = SignedHere::new();
    let (first, served) = (SignedHere::signature(&here.book), SignedHere::served(&here.book));
    let mut later = here.book.clone();
    later
        .choose_signing(Arc::new(Signing::new(here.keys.clone(), SignedHere::NOW + 3 * 24 * 3_600)))
        .unwrap();
    let renewed = SignedHere::served(&later);
    assert!(SignedHere::signature(&later) != first && renewed.signed_until() > served.signed_until());
    assert_eq!(renewed.serial(), served.serial() + 1, "secondaries see that there are new ones");

    let mut without = here.book.clone();
    without.choose_signing(Arc::new(Signing::new(Arc::default(), SignedHere::NOW))).unwrap();
    // What a primary gives is served as it is.
    let mut given = here.book.clone();
    let zones = [folded("example", "").unwrap().wire().to_vec()].into();
    let primary = Primary { zones, ..Primary::default() };
    given.apply(Edit::Primaries(Arc::new(Primaries(vec![primary])))).unwrap();
    for unsigned in [without, given] {
        let zone = SignedHere::served(&unsigned);
        assert_eq!((zone.is_signed(), zone.serial(), unsigned.generation.signed.len()), (false, 1, 0));
    }
}

#[test]
fn what_is_proven_of_a_policys_name_is_what_it_answers() {
    let here = SignedHere::new();
    let first = SignedHere::told(&here.book).expect("the policy alone has the name");
    let v6 = SignedHere::POLICY.replace("192.0.2.1", "2001:db8::1");
    let (mut edited, mut deleted) = (here.book.clone(), here.book.clone());
    edited.apply(policy(&v6)).unwrap();
    edited.sign_proofs();
    let second = SignedHere::told(&edited).expect("it is there");
    assert_ne!(second, first);
    deleted.apply(Edit::DeletePolicy { owner: "www.example".into(), condition: Condition::Always }).unwrap();
    deleted.sign_proofs();
    assert_eq!((SignedHere::told(&deleted), SignedHere::served(&deleted).unproven()), (None, None));

    let mut changes = here.changes.clone();
    changes.extend(edited.clone().apply(policy(&v6)).unwrap());
    let (before, after) = (stored(&here.changes), stored(&changes));
    for followed in [here.book.following(after.clone()), here.book.following_parts(0, parts(&before, &after))]
    {
        assert_eq!(SignedHere::told(&followed.unwrap()), Some(second.clone()));
    }
    // New rows change nothing of it.
    let mut rows = here.book.clone();
    rows.apply(policy(&SignedHere::POLICY.replace("2.1\"", "2.1\",\"default\":{\"probability\":7}")))
        .unwrap();
    rows.sign_proofs();
    assert!(Arc::ptr_eq(&SignedHere::served(&rows), &SignedHere::served(&here.book)));
}

#[test]
fn a_zone_that_would_break_a_policy_is_refused() {
    let (mut book, _) = book();
    book.choose_signing(Arc::new(Signing::new(Arc::default(), 0))).unwrap();
    let broken = format!("{ZONE}www CNAME ns\ncdn NS ns\n");
    let told = refused(&book, zone("example", &broken));
    for at in ["body:7:1: www.example. has a CNAME", "body:8:1: *.cdn.example. is at or below a delegation"] {
        assert!(told.lines().any(|line| line.starts_with(at)), "{told}");
    }
    for (more, at, expected) in [
        ("CDN DNAME ns\n", "body:7:1: *.cdn.example. is below a DNAME", "the policy deleted first"),
        (
            "ns TXT x\n@ DNSKEY 256 3 13 AAAA\n",
            "body:8:1: www.example. is in the signed zone example., and no key of it is here",
            "one of its keys in signing_keys",
        ),
    ] {
        let told = refused(&book, zone("example", &format!("{ZONE}{more}")));
        assert!(told.starts_with(at) && told.contains(&format!("; expected {expected}")), "{told}");
    }
    let told = refused(&book, Edit::DeleteZone { origin: "example".into(), condition: Condition::Always });
    assert!(told.contains("a policy has the name"), "{told}");
}

#[test]
fn a_new_zone_in_between_takes_the_names_over() {
    let (mut book, _) = book();
    book.apply(zone("example", &format!("{ZONE}cdn TXT x\n"))).unwrap();
    assert!(decides(&book, "www.example"), "a zone that is put again keeps its policies");
    let child = "$TTL 60\n@ SOA ns hm 1 2 3 4 5\n@ NS ns\n";
    book.apply(zone("cdn.example", child)).unwrap();
    let deeper = folded("*.cdn.example", "").unwrap();
    let hash = &book.generation.hash;
    let holds = |origin: &str| {
        let origin = folded(origin, "").unwrap();
        book.generation.zones.all().get(&origin, hash).unwrap().policy_at(&deeper, hash).is_some()
    };
    assert_eq!((holds("example"), holds("cdn.example")), (false, true));
}

#[test]
fn a_tag_that_does_not_match_stops_the_edit() {
    let (book, _) = book();
    let (_, tag) = book.policy("www.example").unwrap();
    let put = |condition| Edit::policy(None, "p", POLICY.into(), condition).unwrap();
    assert!(book.clone().apply(put(Condition::Is(tag))).is_ok());
    assert!(book.clone().apply(put(Condition::Exists)).is_ok());
    assert!(matches!(
        book.clone().apply(put(Condition::Is(Etag("0".into())))),
        Err(Refused::Precondition { current: Some(_) })
    ));
    let absent =
        Edit::zone("absent", b"@ 1 SOA a b 1 1 1 1 1\n@ 1 NS a\n", Condition::Exists, &NameHash::new(1));
    assert!(matches!(book.clone().apply(absent.unwrap()), Err(Refused::Precondition { current: None })));
}
