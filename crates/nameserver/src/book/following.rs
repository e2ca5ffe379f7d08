//! A book as a store has it by now that others change, too.

use std::collections::HashMap;
use std::sync::Arc;

use api::{Fault, Faults};
use dns::Folded;
use store::{Contents, Parts};

use super::{Book, Condition, Refused, folded};
use crate::generation::Generation;
use crate::policies::{Policies, Steered};
use crate::zone::{PolicyId, Zone};

impl Book {
    /// Makes the book of all that is stored, as [`Book::load`] does, which goes on with what no store has: probes keep
    /// what they found.
    ///
    /// # Errors
    /// Everything stored that cannot be served.
    pub fn following(&self, contents: Contents) -> Result<Book, Faults> {
        let before = self.generation.clone();
        let zones = before.zones.emptied();
        let generation = Generation { zones, policies: Policies::default(), ..before };
        let book = Book { generation, partitions: Arc::default(), zones_were_deleted: true, ..self.clone() };
        let mut book = self.as_at_start(book, |book| book.fill(contents))?;
        let zones: Vec<Arc<Zone>> = book.generation.zones.all().iter().cloned().collect();
        for zone in zones {
            book.remember_zone(zone.origin(), self.served(zone.origin()), None);
        }
        Ok(book)
    }

    /// Makes the book of parts that are stored, where all else is as it was.
    ///
    /// # Errors
    /// Faults of the parts. One may also be refused here for another that is yet to change; then [`Book::following`]
    /// decides.
    pub fn following_parts(&self, number: u64, parts: Parts) -> Result<Book, Faults> {
        let Parts { zones, partitions, policies, servers, imports } = parts;
        let (servers, imports) = (Arc::new(servers), Arc::new(imports));
        let mut book = Book { servers, imports, ..self.clone() };
        book.generation.number = number;
        let mut book = self.as_at_start(book, |book| {
            let changed = match policies {
                Some(policies) => book.forget_changed(policies)?,
                None => Vec::new(),
            };
            for (origin, text) in &zones {
                match text {
                    Some(text) => book.place_zone(book.stored_zone(origin, text)?, None, None)?,
                    None => book.forget_zone(origin)?,
                }
            }
            for (name, text) in &partitions {
                match text {
                    Some(text) => book.load_partition(name, text)?,
                    None => _ = Arc::make_mut(&mut book.partitions).remove(name),
                }
            }
            for policy in changed {
                book.load_policy(policy)?;
            }
            book.compile_policies_again(|spec| partitions.contains_key(&spec.partition))?;
            book.mark_down();
            Ok(())
        })?;
        for origin in zones.keys() {
            let origin = folded(origin, "stored zone")?;
            book.remember_zone(&origin, self.served(&origin), None);
        }
        Ok(book)
    }

    /// A zone as it is served.
    fn served(&self, origin: &Folded) -> Option<&Zone> {
        self.generation.zones.all().get(origin, &self.generation.hash).map(Arc::as_ref)
    }

    /// Takes a zone out that is no more; it may never have been served.
    fn forget_zone(&mut self, origin: &str) -> Result<(), Faults> {
        match self.delete_zone(origin, &Condition::Always) {
            Ok(_) | Err(Refused::NotFound(_)) => Ok(()),
            Err(Refused::Faults(faults)) => Err(faults),
            Err(other) => Err(Fault::whole(format!("stored zone {origin}"), other.to_string(), "").into()),
        }
    }

    /// Takes out the policies that are no more or have other names; returns those that are to be put.
    fn forget_changed(&mut self, policies: Vec<api::Policy>) -> Result<Vec<api::Policy>, Faults> {
        let each = self.generation.policies.iter();
        let mut before: HashMap<Box<[u8]>, (PolicyId, Arc<Steered>)> =
            each.map(|(id, steered)| (steered.key().into(), (id, steered.clone()))).collect();
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for policy in policies {
            let key = folded(policy.names.first().map_or("", String::as_str), "stored policy")?;
            match before.remove(key.wire()) {
                Some((_, steered)) if *steered.spec == policy => {}
                Some(old) => {
                    if old.1.spec.names != policy.names {
                        gone.push(old);
                    }
                    changed.push(policy);
                }
                None => changed.push(policy),
            }
        }
        gone.extend(before.into_values());
        for (id, steered) in gone {
            self.point(steered.names.iter(), None);
            self.generation.policies.remove(id);
        }
        Ok(changed)
    }

    /// Fills a book by the rules of a start, which has no secondaries and keys yet: what is stored has been served with them.
    fn as_at_start(
        &self,
        mut book: Book,
        fill: impl FnOnce(&mut Book) -> Result<(), Faults>,
    ) -> Result<Book, Faults> {
        (book.secondaries, book.signing) = (Arc::default(), None);
        fill(&mut book)?;
        if book.imports != self.imports {
            book.list_given();
        }
        book.choose_secondaries(self.secondaries.clone());
        if let Some(signing) = &self.signing {
            book.go_on_signing(signing.clone(), false, &self.generation)?;
        }
        Ok(book)
    }
}
