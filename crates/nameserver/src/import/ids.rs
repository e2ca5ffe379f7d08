//! The regions' numbers, written back beside the files that give codes their regions.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;

use api::file::{self, DATA_MAX};
use routing::RegionId;
use routing::proximity::mmdb::{Codes, Field};

use super::{Import, Layer, shown};
use crate::book::Book;

/// Writes the regions' numbers beside the files that say which code is in which region, as the control process of the
/// MyXDNS paper does (§5.1): `FILE.ids`, of lines `region,id`.
///
/// # Errors
/// Files that cannot be written, each with its cause; the others are.
pub fn write_ids(imports: &[Import], book: &Book) -> Result<(), Vec<String>> {
    let ids: BTreeMap<&str, u32> = book.regions.iter().map(|(id, name)| (name.as_str(), *id)).collect();
    let partitions = imports.iter().filter_map(|import| match import {
        Import::Partition { layers, .. } => Some(layers),
        _ => None,
    });
    let mut failed = Vec::new();
    for layer in partitions.flatten() {
        let Layer::Mmdb { regions, field, .. } = layer else { continue };
        if let Err(what) = write_ids_of(regions, *field, &ids) {
            failed.push(format!("{}.ids: {what}", shown(regions)));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

fn write_ids_of(codes: &Path, field: Field, ids: &BTreeMap<&str, u32>) -> Result<(), String> {
    let text = file::read_text(codes, DATA_MAX, "").map_err(|fault| fault.to_string())?;
    let named = RefCell::new(BTreeSet::new());
    let note = |region: &str| {
        named.borrow_mut().insert(region.to_string());
        RegionId::new(1)
    };
    Codes::read(&shown(codes), &text, field, &note).map_err(|faults| faults.to_string())?;
    let mut lines = String::from("# The numbers of the regions, written by pointsman.\nregion,id\n");
    for region in named.into_inner() {
        if let Some(id) = ids.get(region.as_str()) {
            lines.push_str(&format!("{region},{id}\n"));
        }
    }
    let mut beside = codes.as_os_str().to_owned();
    beside.push(".ids");
    if fs::read_to_string(&beside).is_ok_and(|before| before == lines) {
        return Ok(());
    }
    // Whoever reads it finds it whole.
    net::whole::replace(beside.as_ref(), 0o644, |mut file| file.write_all(lines.as_bytes()))
        .map_err(|cause| cause.to_string())
}
