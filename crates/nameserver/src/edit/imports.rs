//! Imports of the configuration's files, and what the status tells of them.

use std::collections::BTreeMap;

use api::{Fault, Faults};

use super::{Applied, Editor, lock};
use crate::book::Refused;
use crate::import::{self, Import, Loading, Outcome};

/// How many faults of an import the status tells.
const FAULTS_TOLD: usize = 10;

impl Editor {
    /// Imports those files of the configuration whose content changed since they were last imported, all or none of
    /// them. What is wrong with them is in the status until the next time.
    ///
    /// # Errors
    /// [`Refused::Faults`] with the faults of all files.
    pub async fn import(&self, imports: &[Import]) -> Result<Applied, Refused> {
        let applied = self.import_some(imports).await;
        let faults = match &applied {
            Ok(_) => Faults::default(),
            Err(Refused::Faults(faults)) => faults.clone(),
            Err(other) => Fault::whole("import", other.to_string(), "").into(),
        };
        let count = faults.faults.len() as u64 + faults.omitted;
        let first = faults.in_order().faults.into_iter().take(FAULTS_TOLD).collect();
        *lock(&self.shared.imported) = api::ImportState { faults: count, first };
        applied
    }

    /// As [`Editor::import`], of some of the files, of which the status says nothing.
    ///
    /// # Errors
    /// As that.
    pub async fn import_some(&self, imports: &[Import]) -> Result<Applied, Refused> {
        let (files, book) = (imports.to_vec(), self.book());
        let read = tokio::task::spawn_blocking(move || {
            let mut loading = Vec::new();
            let edits = import::edits(&files, &book, &mut loading);
            (edits, loading)
        });
        let (edits, loading) = read.await?;
        let applied = match edits {
            Err(faults) => Err(Refused::Faults(faults)),
            Ok(edits) if edits.is_empty() => {
                let generation = self.book().generation.number;
                Ok(self.acknowledge(generation).await)
            }
            Ok(edits) => self.apply(edits).await,
        };
        self.note(loading, applied.is_ok());
        if applied.is_ok() {
            let (files, book) = (imports.to_vec(), self.book());
            let written = tokio::task::spawn_blocking(move || import::write_ids(&files, &book));
            for what in written.await.ok().and_then(Result::err).into_iter().flatten() {
                tracing::info!(%what, "the regions' numbers were not written back; nothing depends on it");
            }
        }
        applied
    }

    /// What was wrong with the files of the configuration when they were last imported.
    pub fn import_state(&self) -> api::ImportState {
        lock(&self.shared.imported).clone()
    }

    /// How the partitions' files were read, by partition.
    pub fn partition_states(&self) -> Vec<api::PartitionState> {
        lock(&self.shared.loading).values().cloned().collect()
    }

    /// Notes how partitions were read; what was read well counts only once it is installed.
    pub(super) fn note(&self, loading: Vec<Loading>, is_installed: bool) {
        let mut states = lock(&self.shared.loading);
        for Loading { name, sources, outcome } in loading {
            let state = states.entry(name.clone()).or_insert_with(|| api::PartitionState {
                name: name.clone(),
                sources: Vec::new(),
                ok: true,
                message: None,
                counts: BTreeMap::new(),
            });
            state.sources = sources.into_iter().map(String::from).collect();
            match outcome {
                Outcome::Failed(what) => {
                    (state.ok, state.message) = (false, Some(what));
                }
                Outcome::Read(counts) if is_installed => {
                    if !counts.is_empty() {
                        let each = counts.iter().map(|(what, count)| format!("{what}={count}"));
                        let each = each.collect::<Vec<_>>().join(" ");
                        tracing::info!(partition = name, "the partition was read: {each}");
                    }
                    (state.ok, state.message) = (true, None);
                    state.counts =
                        counts.into_iter().map(|(what, count)| (what.to_string(), count)).collect();
                }
                Outcome::Same if is_installed => (state.ok, state.message) = (true, None),
                Outcome::Same | Outcome::Read(_) => {}
            }
        }
    }
}
