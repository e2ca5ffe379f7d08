//! Which ASes are linked, and how far each is from one of them.

use super::relations::{Kind, Relations};

/// How many links lead from an AS to each other one; `None` where no way does. Beyond 254 they are 254.
pub type Hops = Vec<Option<Distance>>;

/// A number of hops. The range is small so that the distances from all servers to all ASes are, too.
pub type Distance = u8;

/// The links of every AS: those of AS `n` are from `first[n]` to `first[n + 1]`, ascending.
#[derive(Clone, Debug)]
pub struct Graph {
    first: Vec<u32>,
    links: Vec<u32>,
}

/// The kind of each link of a graph, in the same order.
#[derive(Clone, Debug)]
pub struct Kinds(Vec<Option<Kind>>);

impl Graph {
    /// The graph of `ases` ASes with these links, each given once, in either direction.
    ///
    /// # Panics
    /// Where a link leads to an AS that is not among them.
    pub fn new(ases: usize, links: &[(u32, u32)]) -> Graph {
        let both = || links.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
        let mut first = vec![0u32; ases + 1];
        both().for_each(|(from, _)| first[from as usize + 1] += 1);
        for at in 0..ases {
            first[at + 1] += first[at];
        }
        let mut next = first.clone();
        let mut placed = vec![0; 2 * links.len()];
        for (from, to) in both() {
            placed[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
        (0..ases).for_each(|at| placed[first[at] as usize..first[at + 1] as usize].sort_unstable());
        Graph { first, links: placed }
    }

    /// How many ASes it has.
    pub fn len(&self) -> usize {
        self.first.len() - 1
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shortest way from `from` to every AS.
    pub fn hops(&self, from: u32) -> Hops {
        let mut hops: Hops = vec![None; self.len()];
        hops[from as usize] = Some(0);
        let (mut near, mut distance) = (vec![from], 0);
        while !near.is_empty() {
            distance = further(distance);
            let mut far = Vec::new();
            for at in near {
                for to in self.links_of(at).map(|(_, to)| to) {
                    if hops[to as usize].is_none() {
                        hops[to as usize] = Some(distance);
                        far.push(to);
                    }
                }
            }
            near = far;
        }
        hops
    }

    /// The shortest way without a valley (Gao, "On inferring autonomous system relationships in the Internet", 2001):
    /// first from customers to providers, then over one peering at most, then from providers to customers. A way and its
    /// reverse are both without, so the direction does not matter. A link of no known kind may be taken anywhere.
    pub fn valley_free(&self, from: u32, kinds: &Kinds) -> Hops {
        // An AS is reached climbing or descending, and who climbs can go on in more ways.
        const CLIMBING: usize = 0;
        const DESCENDING: usize = 1;
        let mut reached = [vec![None; self.len()], vec![None; self.len()]];
        reached[CLIMBING][from as usize] = Some(0);
        let (mut near, mut distance) = (vec![(from, CLIMBING)], 0);
        while !near.is_empty() {
            distance = further(distance);
            let mut far = Vec::new();
            for (at, phase) in near {
                for (link, to) in self.links_of(at) {
                    let next = match (phase, kinds.0[link]) {
                        (phase, None) => phase,
                        (CLIMBING, Some(Kind::ToProvider)) => CLIMBING,
                        (CLIMBING, Some(Kind::Peering)) => DESCENDING,
                        (_, Some(Kind::ToCustomer)) => DESCENDING,
                        (_, Some(_)) => continue,
                    };
                    if reached[next][to as usize].is_none() {
                        reached[next][to as usize] = Some(distance);
                        far.push((to, next));
                    }
                }
            }
            near = far;
        }
        let [climbing, descending] = reached;
        climbing.into_iter().zip(descending).map(|(a, b)| a.into_iter().chain(b).min()).collect()
    }

    /// The kinds of the links, as `relations` has them.
    pub fn kinds(&self, relations: &Relations) -> Kinds {
        let each = (0..self.len() as u32).flat_map(|at| self.links_of(at).map(move |(_, to)| (at, to)));
        Kinds(each.map(|(from, to)| relations.kind(from, to)).collect())
    }

    /// The links of an AS: the place of each, and where it leads.
    fn links_of(&self, at: u32) -> impl Iterator<Item = (usize, u32)> + '_ {
        let links = self.first[at as usize] as usize..self.first[at as usize + 1] as usize;
        links.map(|link| (link, self.links[link]))
    }
}

impl Kinds {
    /// How many directions of links have none.
    pub fn unknown(&self) -> u64 {
        self.0.iter().filter(|kind| kind.is_none()).count() as u64
    }
}

fn further(distance: Distance) -> Distance {
    distance.saturating_add(1).min(Distance::MAX - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By relaxing every link until nothing changes.
    fn plain(ases: usize, links: &[(u32, u32)], from: u32) -> Hops {
        let mut hops: Hops = vec![None; ases];
        hops[from as usize] = Some(0);
        for _ in 0..ases {
            for (a, b) in links.iter().flat_map(|&(a, b)| [(a, b), (b, a)]) {
                if let Some(near) = hops[a as usize]
                    && hops[b as usize].is_none_or(|far| far > near + 1)
                {
                    hops[b as usize] = Some(near + 1);
                }
            }
        }
        hops
    }

    /// All simple and other ways of up to `left` links without a valley, one by one.
    fn walk(
        links: &[(u32, u32, Option<Kind>)],
        at: u32,
        descending: bool,
        taken: u8,
        left: u8,
        best: &mut Hops,
    ) {
        if best[at as usize].is_none_or(|known| known > taken) {
            best[at as usize] = Some(taken);
        }
        if left == 0 {
            return;
        }
        for &(_, to, kind) in links.iter().filter(|link| link.0 == at) {
            let next = match kind {
                None => descending,
                Some(Kind::ToCustomer) => true,
                Some(Kind::ToProvider) if !descending => false,
                Some(Kind::Peering) if !descending => true,
                Some(_) => continue,
            };
            walk(links, to, next, taken + 1, left - 1, best);
        }
    }

    fn reverse(kind: Kind) -> Kind {
        match kind {
            Kind::ToProvider => Kind::ToCustomer,
            Kind::ToCustomer => Kind::ToProvider,
            Kind::Peering => Kind::Peering,
        }
    }

    proptest! {
        #[test]
        fn the_shortest_ways(links in proptest::collection::btree_set((0u32..12, 0u32..12), 0..30), from in 0u32..12) {
            let links: Vec<_> = links.into_iter().filter(|(a, b)| a < b).collect();
            prop_assert_eq!(Graph::new(12, &links).hops(from), plain(12, &links, from));
        }

        #[test]
        fn the_shortest_ways_without_valleys(
            links in proptest::collection::btree_map((0u32..6, 0u32..6), 0u8..4, 0..10), from in 0u32..6,
        ) {
            let given: Vec<((u32, u32), Option<Kind>)> = links
                .into_iter()
                .filter(|((a, b), _)| a < b)
                .map(|(link, kind)| {
                    let kind = [Some(Kind::ToProvider), Some(Kind::ToCustomer), Some(Kind::Peering), None][usize::from(kind)];
                    (link, kind)
                })
                .collect();
            let pairs: Vec<(u32, u32)> = given.iter().map(|(link, _)| *link).collect();
            let graph = Graph::new(6, &pairs);
            let relations = Relations::of(given.iter().filter_map(|(link, kind)| Some((*link, (*kind)?))));
            let free = graph.valley_free(from, &graph.kinds(&relations));
            let both: Vec<_> = given
                .iter()
                .flat_map(|&((a, b), kind)| [(a, b, kind), (b, a, kind.map(reverse))])
                .collect();
            let mut best: Hops = vec![None; 6];
            walk(&both, from, false, 0, 7, &mut best);
            prop_assert_eq!(&free, &best);
            let reversed = (0..6).map(|to| graph.valley_free(to, &graph.kinds(&relations))[from as usize]);
            prop_assert_eq!(free, reversed.collect::<Vec<_>>(), "the direction does not matter");
        }
    }

    #[test]
    fn a_long_chain_ends_at_the_largest_distance() {
        let links: Vec<(u32, u32)> = (0..400).map(|at| (at, at + 1)).collect();
        let hops = Graph::new(401, &links).hops(0);
        assert_eq!([hops[7], hops[254], hops[400]], [Some(7), Some(254), Some(254)]);
    }
}
