//! NetAirt's evaluation (Szymaniak, Vrije Universiteit, 2002), chapter 5.
//!
//! - [`transport`]: the round trip of a query by transport, policy and number of addresses (figure 5.1);
//! - [`distance`]: how many AS hops are between networks, and what finding the nearest replica costs by distance.

mod distance;
mod transport;

use anyhow::Result;

use crate::data;
use crate::options::{Run, Size};
use crate::report::Report;
use crate::steering::ROUTES;

/// Does the experiment.
pub(crate) fn perform(run: &Run, report: &mut Report) -> Result<()> {
    // Without optimisation a table takes longer to read than all the rest.
    let table = if run.size == Size::Smoke { None } else { data::file(ROUTES, report) };
    run.within(|folder| transport::perform(run, report, folder, table.as_deref()))?;
    match table {
        Some(table) => distance::perform(run, report, &table),
        None => Ok(()),
    }
}
