//! The user that a service becomes.

use api::{Fault, Faults};
use net::privileges;
use nix::unistd::geteuid;

use crate::failure::Failure;

/// Adds to `faults` where there is no such user, or root would not be given away by becoming it.
pub(crate) fn look_up(user: Option<&str>, faults: &mut Faults) {
    if let Some(Err(cause)) = user.map(privileges::look_up) {
        faults.push(Fault::whole("user", format!("the service could not {cause}"), ""));
    }
}

/// Becomes the user that a start would become, where this process can: whatever it reads then, and where it writes, is
/// looked at with that user's rights.
///
/// # Errors
/// [`Failure::Failed`].
pub(crate) fn become_user(user: Option<&str>) -> Result<(), Failure> {
    match user {
        Some(user) if geteuid().is_root() => {
            privileges::drop_to(user).map_err(|cause| Failure::Failed(format!("failed to {cause}")))
        }
        _ => Ok(()),
    }
}
