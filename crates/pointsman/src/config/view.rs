//! Which zones are answered from at which addresses: no address twice, and no zone twice in one view.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use api::Faults;
use nameserver::zone::{ADDRESSES_MAX, NAMED_MAX, VIEWS_MAX, View};

use super::keys::VIEW;
use super::lower::at_most;
use super::spec::{Placed, ViewSpec};

/// Lowers the views, and adds what is wrong with them to `faults`.
pub(super) fn lower(specs: &[ViewSpec], faults: &mut Faults) -> Vec<View> {
    let (mut holders, mut views) = (HashMap::new(), Vec::new());
    for (index, spec) in specs.iter().enumerate() {
        VIEW.required(&spec.given, &spec.place, faults);
        let addresses = addresses(spec, index, &mut holders, faults);
        views.push(View { addresses, zones: zones(spec, faults) });
    }
    let addresses = specs.iter().flat_map(|spec| &spec.addresses).map(|address| &address.place);
    let zones = specs.iter().flat_map(|spec| &spec.zones).map(|zone| &zone.place);
    at_most(VIEWS_MAX, "views", specs.iter().map(|spec| &spec.place), faults);
    at_most(ADDRESSES_MAX, "addresses in views", addresses, faults);
    at_most(NAMED_MAX, "names of zones in views", zones, faults);
    views
}

/// The addresses of a view; `holders` says which view has an address that came before.
fn addresses(
    spec: &ViewSpec,
    index: usize,
    holders: &mut HashMap<IpAddr, usize>,
    faults: &mut Faults,
) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for Placed { value, place } in &spec.addresses {
        let address = value.to_canonical();
        if address.is_unspecified() {
            let what = format!("addresses has {address}, which nobody can ask");
            let expected = "addresses of ours: those in no view answer from the zones that no view names";
            faults.push(place.fault(what, expected));
            continue;
        }
        match holders.insert(address, index) {
            None => addresses.push(address),
            Some(holder) if holder == index => {
                faults.push(place.fault(format!("addresses has {address} twice"), "each address once"));
            }
            Some(_) => {
                faults.push(
                    place.fault(format!("{address} is in another view, too"), "each address in one view"),
                );
            }
        }
    }
    addresses
}

/// The names of a view's zones.
fn zones(spec: &ViewSpec, faults: &mut Faults) -> Vec<Vec<u8>> {
    let mut named = HashSet::new();
    let mut zones = Vec::new();
    for Placed { value, place } in &spec.zones {
        if named.insert(value.wire()) {
            zones.push(value.wire().to_vec());
        } else {
            faults.push(place.fault(format!("zones has {value:?} twice"), "each zone once"));
        }
    }
    zones
}
