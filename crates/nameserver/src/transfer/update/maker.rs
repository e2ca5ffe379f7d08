//! The task that makes updates, one after the other.

use std::sync::Arc;

use dns::Rcode;
use net::client::Outgoing;
use net::clock::Clock;
use net::shutdown::Shutdown;

use super::super::Transfers;
use super::super::counters::count;
use super::{Back, Waiting, Wanted};
use crate::edit::{Editor, Refused, Unmade};

/// Makes the updates that clients send until `shutdown` begins; those that wait then are not made, and not answered.
///
/// # Panics
/// Where it is called twice.
pub async fn run(transfers: Arc<Transfers>, editor: Editor, clock: Clock, shutdown: Shutdown) {
    let mut waiting = transfers.take_waiting().expect("one task makes updates");
    let mut outgoing = Outgoing::new();
    loop {
        let Waiting { wanted, back } = tokio::select! {
            biased;
            () = shutdown.wait() => return,
            Some(next) = waiting.recv() => next,
        };
        let rcode = make(&transfers, &editor, &wanted).await;
        let Some(answer) = signed(wanted, rcode, clock.now().unix.as_secs()) else { continue };
        match back {
            Back::Datagram { listener, client, local } => {
                outgoing.push(&answer, Some(client), Some(local));
                // Who hears nothing asks again.
                outgoing.send(&*listener, |_| {});
            }
            // A client that is gone wants no answer.
            Back::Connection(connection) => drop(connection.send(answer)),
        }
    }
}

/// Makes an update; returns what is answered.
async fn make(transfers: &Transfers, editor: &Editor, wanted: &Wanted) -> Rcode {
    let Wanted { zone, update, client, signer, .. } = wanted;
    let (counters, key) = (transfers.counters(), signer.key());
    let changes = update.operations.len();
    match editor.update_zone(zone, update).await {
        Ok(Some(applied)) => {
            count(&counters.updates_made);
            let generation = applied.generation;
            tracing::info!(?zone, %client, ?key, changes, generation, "the zone is updated");
            Rcode::NOERROR
        }
        Ok(None) => {
            count(&counters.updates_idle);
            Rcode::NOERROR
        }
        Err(Unmade::Unmet(rcode)) => {
            count(&counters.updates_unmet);
            rcode
        }
        Err(Unmade::Refused(why @ (Refused::Faults(_) | Refused::InUse(_)))) => {
            count(&counters.updates_refused);
            tracing::info!(?zone, %client, ?key, changes, %why, "an update is refused: the zone would not be right");
            Rcode::REFUSED
        }
        Err(Unmade::Refused(Refused::NotFound(_))) => {
            count(&counters.updates_refused);
            Rcode::NOTAUTH
        }
        Err(Unmade::Refused(why)) => {
            count(&counters.updates_failed);
            tracing::error!(?zone, %client, ?key, changes, %why, "an update is not made");
            Rcode::SERVFAIL
        }
    }
}

/// The answer with its code and signature.
fn signed(wanted: Wanted, rcode: Rcode, unix: u64) -> Option<Vec<u8>> {
    let Wanted { mut signer, mut answer, .. } = wanted;
    answer[3] = answer[3] & 0xf0 | rcode.to_int() & 0x0f;
    let length = answer.len();
    answer.resize(length + signer.room(), 0);
    let length = signer.sign(&mut answer, length, unix)?;
    answer.truncate(length);
    Some(answer)
}
