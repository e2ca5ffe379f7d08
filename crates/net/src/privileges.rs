//! Giving root away once the ports are bound.

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, geteuid, getresgid, getresuid, initgroups, setresgid, setresuid, setuid};
use std::error::Error;
use std::ffi::CString;
use std::fmt;

/// Says why the process could not become another user.
///
/// After any of these the process may be halfway between two users: end it.
#[derive(Debug, PartialEq, Eq)]
pub enum PrivilegesError {
    /// There is no user of this name.
    UnknownUser(String),
    /// The user database could not be read.
    Lookup(String, Errno),
    /// The named user has root's rights, so nothing would be given away.
    IsRoot(String),
    /// The process was not started as root and is not this user already.
    NotRoot(String),
    /// The system refused a step, which is named.
    Refused(&'static str, Errno),
    /// Every step succeeded and root could still be had back.
    RootStays,
}

/// Makes the whole process run as `user`, with that user's groups, for good.
///
/// Real, effective and saved ids are all set, supplementary groups too, and then root is asked for again to
/// see that it is refused. All threads are concerned. A process that already runs as `user` is left as it is.
///
/// # Errors
/// [`PrivilegesError`]; the process must not serve then.
pub fn drop_to(user: &str) -> Result<(), PrivilegesError> {
    let account = account(user)?;
    if geteuid() == account.uid {
        return verify(account.uid, None);
    }
    if !geteuid().is_root() {
        return Err(PrivilegesError::NotRoot(user.to_owned()));
    }
    let name = CString::new(user).map_err(|_| PrivilegesError::UnknownUser(user.to_owned()))?;
    let refused = |step| move |errno| PrivilegesError::Refused(step, errno);
    // Groups first: without root they can no longer be changed.
    initgroups(&name, account.gid).map_err(refused("set the user's groups"))?;
    setresgid(account.gid, account.gid, account.gid).map_err(refused("set the group"))?;
    setresuid(account.uid, account.uid, account.uid).map_err(refused("set the user"))?;
    verify(account.uid, Some(account.gid))
}

/// Looks whether there is a user to whom root could be given away.
///
/// # Errors
/// [`PrivilegesError`]; whether this process may is not asked.
pub fn look_up(user: &str) -> Result<(), PrivilegesError> {
    account(user).map(|_| ())
}

fn account(user: &str) -> Result<User, PrivilegesError> {
    match User::from_name(user) {
        Ok(Some(account)) if account.uid.is_root() => Err(PrivilegesError::IsRoot(user.to_owned())),
        Ok(Some(account)) => Ok(account),
        Ok(None) => Err(PrivilegesError::UnknownUser(user.to_owned())),
        Err(errno) => Err(PrivilegesError::Lookup(user.to_owned(), errno)),
    }
}

fn verify(uid: Uid, gid: Option<Gid>) -> Result<(), PrivilegesError> {
    let refused = |step| move |errno| PrivilegesError::Refused(step, errno);
    let users = getresuid().map_err(refused("read the user back"))?;
    let groups = getresgid().map_err(refused("read the group back"))?;
    let user_holds = [users.real, users.effective, users.saved].iter().all(|held| *held == uid);
    let group_holds =
        gid.is_none_or(|gid| [groups.real, groups.effective, groups.saved].iter().all(|held| *held == gid));
    // CAP_SETUID alone would be enough to come back; only trying tells.
    if user_holds && group_holds && setuid(Uid::from_raw(0)).is_err() {
        Ok(())
    } else {
        Err(PrivilegesError::RootStays)
    }
}

impl fmt::Display for PrivilegesError {
    /// Writes a fragment that fits behind "failed to".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownUser(user) => {
                write!(f, "become user {user:?}: there is no such user on this system")
            }
            Self::Lookup(user, errno) => {
                write!(f, "become user {user:?}: the user database cannot be read: {}", errno.desc())
            }
            Self::IsRoot(user) => write!(f, "become user {user:?}: it has root's rights; name another user"),
            Self::NotRoot(user) => {
                write!(
                    f,
                    "become user {user:?}: only root can change the user; start as root or leave `user` unset"
                )
            }
            Self::Refused(step, errno) => write!(f, "{step}: {}", errno.desc()),
            Self::RootStays => write!(f, "give root away: the process could still become root again"),
        }
    }
}

impl Error for PrivilegesError {}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::getgroups;
    use std::io::Write;
    use std::process::Command;

    /// Set for the child process in which privileges are really given away.
    const CHILD: &str = "NET_TEST_PRIVILEGES_CHILD";

    #[test]
    fn users_that_cannot_be_dropped_to_are_named() {
        let unknown = drop_to("no-such-user-here").expect_err("there is no such user");
        assert_eq!(unknown, PrivilegesError::UnknownUser("no-such-user-here".to_owned()));
        assert!(unknown.to_string().contains("no-such-user-here"));
        assert_eq!(drop_to("root"), Err(PrivilegesError::IsRoot("root".to_owned())));
        assert!(drop_to("no\0body").is_err());
    }

    #[test]
    fn root_is_given_away_for_good() {
        if std::env::var_os(CHILD).is_some() {
            return drop_in_child();
        }
        if !geteuid().is_root() {
            // Not eprintln: the test harness would keep it to itself.
            let _ = writeln!(std::io::stderr(), "skipped: privileges can only be given away by root");
            return;
        }
        let child = Command::new(std::env::current_exe().expect("the test program has a path"))
            .args([
                "--exact",
                "privileges::tests::root_is_given_away_for_good",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CHILD, "1")
            .output()
            .expect("the test program can start itself");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
        assert!(said.contains("1 passed"), "the child ran no test: {said}");
    }

    fn drop_in_child() {
        let nobody = User::from_name("nobody").expect("users can be read").expect("nobody is always there");
        // A thread that is there before: the change must reach it.
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            asked.recv().expect("the test asks");
            (geteuid(), std::fs::read("/etc/shadow").is_err())
        });
        assert_eq!(drop_to("nobody"), Ok(()));
        ask.send(()).expect("the thread waits");
        assert_eq!(other.join().expect("the thread ends"), (nobody.uid, true));
        assert_eq!(getresgid().expect("groups can be read").effective, nobody.gid);
        assert!(getgroups().expect("groups can be read").iter().all(|gid| gid.as_raw() != 0));
        assert!(setuid(Uid::from_raw(0)).is_err());
        assert_eq!(drop_to("nobody"), Ok(()), "being there already is no error");
        let other = if User::from_name("daemon").is_ok_and(|user| user.is_some()) { "daemon" } else { "bin" };
        assert!(matches!(drop_to(other), Err(PrivilegesError::NotRoot(_) | PrivilegesError::UnknownUser(_))));
    }
}
