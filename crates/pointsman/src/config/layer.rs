//! From what was given of a partition to the layer that is imported: exactly one source, and nothing beside it that
//! belongs to another.

use std::path::PathBuf;

use api::Faults;
use nameserver::as_path;
use nameserver::import::Layer;
use routing::proximity::mmdb::Field;

use super::spec::{PartitionSpec, Placed, resolve};

/// What the layer is imported from, or asked for where somebody `is_asked` at all; `None` with at least one fault.
pub(super) fn lower(partition: &PartitionSpec, is_asked: bool, faults: &mut Faults) -> Option<Layer> {
    let sources = [("csv", &partition.csv), ("mmdb", &partition.mmdb), ("mrt", &partition.mrt)];
    let mut sources = sources.into_iter().filter_map(|(key, source)| Some((key, source.as_ref()?)));
    let first = sources.next();
    if let Some(ask) = partition.ask.as_ref().filter(|ask| ask.value) {
        misplaced(partition, "ask", faults);
        if let Some((_, source)) = first {
            faults.push(source.place.fault("there is a file beside ask", "a heading [[partition]] for each"));
        }
        if !is_asked {
            faults.push(ask.place.fault("there is nobody to ask", "service under [external]"));
        }
        return Some(Layer::Ask);
    }
    let Some((key, source)) = first else {
        let what = "the partition has no source";
        faults.push(partition.place.fault(what, "csv, or mmdb and regions, or mrt and servers, or ask"));
        return None;
    };
    if let Some((second, _)) = sources.next() {
        faults.push(source.place.fault(format!("there are both {key} and {second}"), "one of them"));
        return None;
    }
    misplaced(partition, key, faults);
    match key {
        "csv" => Some(Layer::Csv(resolve(source))),
        "mmdb" => mmdb(source, partition, faults),
        _ => as_path(source, partition, faults),
    }
}

/// Finds keys that belong to another source than `source`.
fn misplaced(partition: &PartitionSpec, source: &str, faults: &mut Faults) {
    let keys = [
        ("regions", "mmdb", partition.regions.as_ref().map(|regions| &regions.place)),
        ("field", "mmdb", partition.field.as_ref().map(|field| &field.place)),
        ("servers", "mrt", partition.servers.first().map(|server| &server.place)),
        ("relations", "mrt", partition.relations.as_ref().map(|relations| &relations.place)),
    ];
    for (key, belongs, place) in keys {
        if let Some(place) = place.filter(|_| belongs != source) {
            let expected = format!("{key} only beside {belongs}");
            faults.push(place.fault(format!("{key} beside {source}"), expected));
        }
    }
}

fn mmdb(source: &Placed<PathBuf>, partition: &PartitionSpec, faults: &mut Faults) -> Option<Layer> {
    let Some(regions) = &partition.regions else {
        let what = "there is an mmdb and no regions";
        let expected = "a file of lines code,region (key regions, flag --regions)";
        faults.push(source.place.fault(what, expected));
        return None;
    };
    let field = match partition.field.as_ref().map(|field| field.value) {
        Some("continent") => Field::Continent,
        Some("asn") => Field::Asn,
        _ => Field::Country,
    };
    Some(Layer::Mmdb { path: resolve(source), regions: resolve(regions), field })
}

fn as_path(source: &Placed<PathBuf>, partition: &PartitionSpec, faults: &mut Faults) -> Option<Layer> {
    let mut servers: Vec<as_path::Server> = Vec::new();
    for Placed { value, place } in &partition.servers {
        if servers.iter().any(|known| known.address == value.address) {
            faults.push(place.fault(format!("servers has {} twice", value.address), "each server once"));
        }
        servers.push(*value);
    }
    if servers.is_empty() || servers.len() > as_path::SERVERS_MAX {
        let what = format!("there is an mrt, and servers has {}", servers.len());
        let expected = format!("1 to {} servers: who is near is told for them", as_path::SERVERS_MAX);
        faults.push(source.place.fault(what, expected));
        return None;
    }
    let relations = partition.relations.as_ref().map(resolve);
    Some(Layer::AsPath { table: resolve(source), servers, relations })
}
