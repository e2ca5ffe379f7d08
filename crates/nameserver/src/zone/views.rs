//! Views: which zones are answered from at which of our addresses.
//!
//! ```text
//! Served ── all ───────────────────────> Zones    what edits, the API and notifications go by
//!        `─ views ── an address of one ─> Zones    those that the view names
//!                 `─ any other ─────────> Zones    those that no view names
//! ```

use std::net::IpAddr;
use std::slice;
use std::sync::Arc;

use dns::Folded;
use foldhash::HashMap;

use super::{Zone, Zones};
use crate::names::NameHash;

/// The most views of a configuration: each has a table of its own, and a change touches the list of them.
pub const VIEWS_MAX: usize = 4_096;

/// The most addresses of all views together: what a capture of a whole DNS has fits several times.
pub const ADDRESSES_MAX: usize = 65_536;

/// The most names of zones of all views together, as for [`ADDRESSES_MAX`].
pub const NAMED_MAX: usize = 65_536;

/// What is answered from at some of our addresses, as the operator chose it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The addresses, none of which another view has; one of IPv4 is not written as one of IPv6.
    pub addresses: Vec<IpAddr>,
    /// The names of the zones, folded, in wire form, whether they are there yet or not; other views may have them, too.
    pub zones: Vec<Vec<u8>>,
}

/// The zones of a generation: all of them, and what is answered from at which address.
#[derive(Clone, Default)]
pub struct Served {
    all: Zones,
    chosen: Arc<Chosen>,
    /// What each view has, in their order, and last what no view names; empty where there are no views.
    views: Vec<Arc<Zones>>,
}

/// What the operator chose, and which views have an address or a zone's name.
#[derive(Default)]
struct Chosen {
    views: Arc<[View]>,
    by_address: HashMap<IpAddr, usize>,
    by_origin: HashMap<Vec<u8>, Vec<usize>>,
}

impl Served {
    /// All zones, whatever is asked where.
    #[inline]
    pub fn all(&self) -> &Zones {
        &self.all
    }

    /// The zones from which a query to this address is answered.
    #[inline]
    pub fn at(&self, local: IpAddr) -> &Zones {
        match self.views.split_last() {
            None => &self.all,
            Some((unnamed, views)) => self.chosen.view(local).map_or(unnamed, |view| &views[view]),
        }
    }

    /// Whether queries to this address are answered from a zone of this name, in wire form, once it is there.
    pub fn is_for(&self, origin: &[u8], local: IpAddr) -> bool {
        match (self.chosen.by_origin.get(origin), self.chosen.view(local)) {
            (None, None) => true,
            (Some(views), Some(view)) => views.contains(&view),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// The views, as they were chosen.
    pub fn views(&self) -> &Arc<[View]> {
        &self.chosen.views
    }

    /// The zones that views name and that are not there, in the order of their names as text.
    pub fn missing(&self, hash: &NameHash) -> Vec<String> {
        let is_missing = |origin: &Vec<u8>| {
            let origin = Folded::read(origin);
            origin.is_none_or(|origin| self.all.get(&origin, hash).is_none())
        };
        let named = self.chosen.by_origin.keys().filter(|origin| is_missing(origin));
        let mut missing: Vec<String> = named.map(|origin| dns::name::to_text(origin)).collect();
        missing.sort_unstable();
        missing
    }

    /// Goes by these views from now on.
    pub fn choose(&mut self, views: Arc<[View]>, hash: &NameHash) {
        let tables = if views.is_empty() { 0 } else { views.len() + 1 };
        self.views = vec![Arc::default(); tables];
        self.chosen = Arc::new(Chosen::new(views));
        let all = std::mem::take(&mut self.all);
        for zone in all.iter() {
            self.put_in_views(zone, hash);
        }
        self.all = all;
    }

    /// The same views, and no zones.
    pub fn emptied(&self) -> Served {
        let views = vec![Arc::default(); self.views.len()];
        Served { all: Zones::new(), chosen: self.chosen.clone(), views }
    }

    /// Adds a zone, or replaces the one of its origin.
    pub fn put(&mut self, zone: Arc<Zone>, hash: &NameHash) {
        self.put_in_views(&zone, hash);
        self.all.put(zone, hash);
    }

    /// Removes a zone; returns whether there was one.
    pub fn remove(&mut self, origin: &Folded, hash: &NameHash) -> bool {
        self.change_views(origin, |zones| _ = zones.remove(origin, hash));
        self.all.remove(origin, hash)
    }

    fn put_in_views(&mut self, zone: &Arc<Zone>, hash: &NameHash) {
        self.change_views(zone.origin(), |zones| zones.put(zone.clone(), hash));
    }

    /// Changes each table that a zone of this origin belongs to.
    fn change_views(&mut self, origin: &Folded, change: impl Fn(&mut Zones)) {
        let Some(unnamed) = self.views.len().checked_sub(1) else { return };
        let named = self.chosen.by_origin.get(origin.wire()).map(Vec::as_slice);
        for view in named.unwrap_or(slice::from_ref(&unnamed)) {
            change(Arc::make_mut(&mut self.views[*view]));
        }
    }
}

impl Chosen {
    fn new(views: Arc<[View]>) -> Chosen {
        let mut chosen = Chosen { views: views.clone(), ..Chosen::default() };
        for (index, view) in views.iter().enumerate() {
            chosen.by_address.extend(view.addresses.iter().map(|address| (*address, index)));
            for zone in &view.zones {
                chosen.by_origin.entry(zone.clone()).or_default().push(index);
            }
        }
        chosen
    }

    /// The number of the view that has an address.
    fn view(&self, local: IpAddr) -> Option<usize> {
        self.by_address.get(&local.to_canonical()).copied()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::zone::read;

    /// Some of the names that zones have here, one below the other and side by side.
    const ORIGINS: [&str; 6] = [".", "com", "a.com", "b.a.com", "net", "a.net"];

    /// Checks that each address is answered from exactly the zones that its view names and that are there, as they are
    /// among all, and any other address from those that no view names.
    pub(crate) fn check_in_step(served: &Served) {
        let expected = |is_answered: &dyn Fn(&[u8]) -> bool| -> HashSet<*const Zone> {
            let zones = served.all().iter().filter(|zone| is_answered(zone.origin().wire()));
            zones.map(Arc::as_ptr).collect()
        };
        let found = |zones: &Zones| -> HashSet<*const Zone> { zones.iter().map(Arc::as_ptr).collect() };
        let views = served.views();
        for view in views.iter() {
            let expected = expected(&|origin| view.zones.iter().any(|zone| zone == origin));
            for address in &view.addresses {
                assert_eq!(found(served.at(*address)), expected, "{view:?}");
                let is_for = |zone: &&Arc<Zone>| served.is_for(zone.origin().wire(), *address);
                let there: HashSet<*const Zone> =
                    served.all().iter().filter(is_for).map(Arc::as_ptr).collect();
                assert_eq!(there, expected, "{view:?}");
            }
        }
        let others =
            expected(&|origin| !views.iter().flat_map(|view| &view.zones).any(|zone| zone == origin));
        assert_eq!(found(served.at([192, 0, 2, 255].into())), others);
    }

    fn name(text: &str) -> Folded {
        Folded::read(&dns::name::from_text(text).unwrap()).unwrap()
    }

    fn zone(origin: &str, hash: &NameHash) -> Arc<Zone> {
        let (origin, text) = (name(origin), b"@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n");
        let include = |_: &str| Err(String::new());
        let source = read::Source { name: "t", text, origin: Some(origin.wire()), include: &include };
        Arc::new(Zone::build(&read::read(&source).unwrap(), "t", hash).unwrap())
    }

    /// A step: a zone is put or removed, or other views are chosen, each with some zones.
    #[derive(Clone, Debug)]
    enum Step {
        Put(usize),
        Remove(usize),
        Choose(Vec<HashSet<usize>>),
        Empty,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let views = prop::collection::vec(prop::collection::hash_set(0..ORIGINS.len(), 0..4), 0..4);
        let step = prop_oneof![
            4 => (0..ORIGINS.len()).prop_map(Step::Put),
            2 => (0..ORIGINS.len()).prop_map(Step::Remove),
            2 => views.prop_map(Step::Choose),
            1 => Just(Step::Empty),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #[test]
        fn views_stay_in_step(steps in steps()) {
            let hash = NameHash::new(1);
            let wire = |origin: &usize| name(ORIGINS[*origin]).wire().to_vec();
            let (mut served, mut there) = (Served::default(), HashSet::new());
            for step in steps {
                let before = served.clone();
                let had = before.at([192, 0, 2, 0].into()).len();
                match step {
                    Step::Put(origin) => {
                        served.put(zone(ORIGINS[origin], &hash), &hash);
                        there.insert(origin);
                    }
                    Step::Remove(origin) => {
                        prop_assert_eq!(served.remove(&name(ORIGINS[origin]), &hash), there.remove(&origin));
                    }
                    Step::Choose(views) => {
                        let view = |(number, zones): (u8, &HashSet<usize>)| View {
                            addresses: vec![[192, 0, 2, number].into()],
                            zones: zones.iter().map(wire).collect(),
                        };
                        served.choose((0..).zip(&views).map(view).collect(), &hash);
                    }
                    Step::Empty => {
                        served = served.emptied();
                        there.clear();
                    }
                }
                prop_assert_eq!(served.all().len(), there.len());
                check_in_step(&served);
                prop_assert_eq!(before.at([192, 0, 2, 0].into()).len(), had, "a copy sees no later change");
            }
        }
    }

    #[test]
    fn zones_that_are_named_and_not_there_are_missing() {
        let hash = NameHash::new(1);
        let mut served = Served::default();
        served.put(zone("a.com", &hash), &hash);
        let wire = |origin| name(origin).wire().to_vec();
        let view = |address: [u8; 4], zones| View { addresses: vec![address.into()], zones };
        let views = [
            view([192, 0, 2, 1], vec![wire("net"), wire("a.com"), wire(".")]),
            view([192, 0, 2, 2], vec![wire("net")]),
        ];
        served.choose(views.into(), &hash);
        assert_eq!(served.missing(&hash), [".", "net."]);
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let hash = NameHash::new(1);
        let mut served = Served::default();
        served.put(zone("com", &hash), &hash);
        let addresses = vec![[192, 0, 2, 1].into(), "2001:db8::1".parse().unwrap()];
        let view = View { addresses, zones: vec![name("com").wire().to_vec()] };
        served.choose([view].into(), &hash);
        let found = ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2"]
            .map(|address| served.at(address.parse().unwrap()).len());
        assert_eq!(found, [1, 1, 1, 0, 0]);
    }
}
