//! The names of a zone as a tree: with a name come all that are above it, and with the last one below them they go.

use dns::Folded;

use super::{Node, WILDCARD, Zone};
use crate::names::NameHash;

impl Zone {
    /// Makes sure that a name and all above it, up to the apex, are in the table.
    pub(super) fn ensure(&mut self, name: &Folded, hash: &NameHash) {
        let mut at = self.origin_hash;
        for depth in self.origin.labels() + 1..=name.labels() {
            let parent = at;
            at = hash.child(parent, name.label(depth));
            if self.names.find(at, name.suffix(depth)).is_none() {
                self.names.insert(at, name.suffix(depth), Node::empty());
                let is_wildcard = name.label(depth) == WILDCARD;
                self.names.change(parent, name.suffix(depth - 1), |node, _| {
                    node.children += 1;
                    node.has_wildcard |= is_wildcard;
                });
            }
        }
    }

    /// Removes a name that has become empty, and the empty non-terminals above that it held.
    pub(super) fn prune(&mut self, name: &Folded, hash: &NameHash) {
        for depth in (self.origin.labels() + 1..=name.labels()).rev() {
            let at = hash.of_suffix(name, depth);
            let is_empty = self.names.find(at, name.suffix(depth)).is_some_and(|node| node.value.is_empty());
            if !is_empty {
                return;
            }
            self.names.remove(at, name.suffix(depth));
            let was_wildcard = name.label(depth) == WILDCARD;
            self.names.change(hash.of_suffix(name, depth - 1), name.suffix(depth - 1), |node, _| {
                node.children -= 1;
                node.has_wildcard &= !was_wildcard;
            });
        }
    }
}
