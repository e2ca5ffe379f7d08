//! The store, whichever database it is in.

use std::collections::BTreeMap;

use crate::change::Change;
use crate::contents::Contents;
use crate::embedded::Embedded;
use crate::error::{CommitError, OpenError, StoreError};
use crate::file;
use crate::health::Verdict;
use crate::schema::Migrated;
use crate::shared::Shared;

/// Everything that must survive, in one database: a file that this process alone has open, or a database that several
/// name servers share.
///
/// Calls from several tasks wait for each other. A call whose future is dropped leaves the store as it
/// was before or, for a commit, as it is after, never between.
#[derive(Debug)]
pub struct Store(Kind);

#[derive(Debug)]
enum Kind {
    Embedded(Box<Embedded>),
    Shared(Box<Shared>),
}

impl Store {
    /// Opens the store at `url` and brings its tables up to date: `sqlite:PATH`, and where the program was built with
    /// them `postgres://USER@HOST/DATABASE` and `mysql://USER@HOST/DATABASE`.
    ///
    /// Tables of an older program in a file are copied to `PATH.version-N` first, N being their version.
    ///
    /// A file that does not exist is created, readable for its owner only. `PATH.lock` tells a second
    /// process that it is too late; it stays behind, and being there means nothing. A shared database must exist, and
    /// any number of processes may have it open.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says which database, why, and what to do.
    pub async fn open(url: &str) -> Result<Store, OpenError> {
        Ok(Store(match Shared::at(url)? {
            Some(shared) => Kind::Shared(Box::new(shared.open().await?)),
            None => Kind::Embedded(Box::new(Embedded::open(url)?)),
        }))
    }

    /// Reads what the store at `url` holds, also while another process has it open, and changes nothing; `None` where there
    /// is none yet.
    ///
    /// # Errors
    ///
    /// As [`Store::open`], but for the lock, which it does not take; [`OpenError::Older`] of a shared database.
    pub async fn peek(url: &str) -> Result<Option<Contents>, OpenError> {
        match Shared::at(url)? {
            Some(shared) => shared.peek().await,
            None => Embedded::peek(url),
        }
    }

    /// Sees whether a URL is one that [`Store::open`] reads, without a look at what is there.
    ///
    /// # Errors
    ///
    /// [`OpenError::Unsupported`] or [`OpenError::Url`].
    pub fn check_url(url: &str) -> Result<(), OpenError> {
        match Shared::at(url)? {
            Some(_) => Ok(()),
            None => file::named(url).map(drop),
        }
    }

    /// Sees whether this process has the rights that [`Store::open`] needs for the file at `url`, and makes nothing. Of a
    /// shared database only its server knows.
    ///
    /// # Errors
    ///
    /// [`OpenError`] of its path.
    pub fn check_rights(url: &str) -> Result<(), OpenError> {
        match Shared::at(url)? {
            Some(_) => Ok(()),
            None => Embedded::check_rights(url),
        }
    }

    /// What was done to the tables of a file when they were opened, where they were an older program's.
    pub fn migrated(&self) -> Option<&Migrated> {
        match &self.0 {
            Kind::Embedded(store) => store.migrated(),
            // No copy is made of a database that others have open.
            Kind::Shared(_) => None,
        }
    }

    /// What only a database has that others may change, too.
    pub fn shared(&self) -> Option<&Shared> {
        match &self.0 {
            Kind::Embedded(_) => None,
            Kind::Shared(store) => Some(store),
        }
    }

    /// Loads everything that is stored, as of one generation.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] where something cannot be what was stored, or another [`StoreError`].
    pub async fn load(&self) -> Result<Contents, StoreError> {
        match &self.0 {
            Kind::Embedded(store) => store.load().await,
            Kind::Shared(store) => store.load().await,
        }
    }

    /// Stores all of `changes` or none, as the generation after `based_on`, and returns its number once
    /// the disk has it.
    ///
    /// One sync covers all of `changes`, so that a writer that gathers what has queued up behind it gets
    /// by with one for many.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] unless `based_on` is the current generation, [`CommitError::Unpublished`] where the
    /// tables of a shared database hold more than it, [`CommitError::Refused`] for
    /// the first change that contradicts what is stored, or a [`StoreError`]. After one of those the caller must ask
    /// [`Store::has_published`] to know whether the commit had happened.
    pub async fn commit(&self, based_on: u64, changes: &[Change]) -> Result<u64, CommitError> {
        match &self.0 {
            Kind::Embedded(store) => store.commit(based_on, changes).await,
            Kind::Shared(store) => store.commit(based_on, changes).await,
        }
    }

    /// Whether this process has published the generation of this number, which others may have followed with theirs.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn has_published(&self, number: u64) -> Result<bool, StoreError> {
        match &self.0 {
            // Nobody else could have.
            Kind::Embedded(store) => Ok(store.generation().await? == number),
            Kind::Shared(store) => store.has_published(number).await,
        }
    }

    /// Does what a commit leaves for a time when nobody waits for one; to be called then, as often as one likes. A file's
    /// log is brought into the database now and then, on the thread that asks.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing is lost by that.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        match &self.0 {
            Kind::Embedded(store) => store.tidy().await,
            Kind::Shared(_) => Ok(()),
        }
    }

    /// Stores what probes hold of servers, all of it or nothing; it is no generation's.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn remember(&self, verdicts: &[Verdict]) -> Result<(), StoreError> {
        match &self.0 {
            Kind::Embedded(store) => store.remember(verdicts).await,
            Kind::Shared(store) => store.remember(verdicts).await,
        }
    }

    /// Stores when primaries last confirmed the zones of these origins, in Unix time in seconds, all of it or nothing; it is
    /// no generation's.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn confirm(&self, times: &BTreeMap<String, u64>) -> Result<(), StoreError> {
        match &self.0 {
            Kind::Embedded(store) => store.confirm(times).await,
            Kind::Shared(store) => store.confirm(times).await,
        }
    }

    /// Finds out whether the database can still be reached and locked for writing, without writing.
    ///
    /// A full disk shows only at the next commit.
    ///
    /// # Errors
    ///
    /// What the next commit would fail with, or [`StoreError::Slow`] while one does not end.
    pub async fn check(&self) -> Result<(), StoreError> {
        match &self.0 {
            Kind::Embedded(store) => store.check().await,
            Kind::Shared(store) => store.check().await,
        }
    }

    /// Says that this process stops: calls to a shared database end within [`LEAVE_WAIT`](crate::shared::LEAVE_WAIT),
    /// also those to come, with [`StoreError::Left`] where there is no answer.
    pub fn leave(&self) {
        match &self.0 {
            // Its calls are made on the thread that asks, and cannot be left.
            Kind::Embedded(_) => {}
            Kind::Shared(store) => store.leave(),
        }
    }

    /// Closes the database and then releases the lock. A store that is dropped instead does so soon after.
    ///
    /// # Errors
    ///
    /// [`StoreError`] where the log could not be merged into the database; nothing is lost by that.
    pub async fn close(self) -> Result<(), StoreError> {
        match self.0 {
            Kind::Embedded(store) => store.close().await,
            Kind::Shared(store) => store.close().await,
        }
    }
}
