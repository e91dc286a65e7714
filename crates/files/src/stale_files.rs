//! Files and directories of work in progress, and removal of stale ones that killed processes left.
//!
//! A process holds a lock on the file or directory in which it works. The system releases the lock when the
//! process ends, however it ends, and the lock does not depend on process ids, which may be reused. An entry
//! without a lock is stale; the next process that works in the same directory removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempDir};

/// Prefix of the names of temporary files and directories, which are renamed once they are complete.
pub(crate) const UNFINISHED: &str = ".skyhop-";
/// Name of the file whose lock stands for its directory, because some file systems cannot lock directories.
const LOCK: &str = ".lock";
/// Suffix of the name of a directory that is being removed.
const REMOVED: &str = ".gone";
/// Number of attempts to create an entry: another process may take the new entry for stale and
/// remove it before it is locked.
const ATTEMPTS: u32 = 10;

/// New directory for work in progress. It is removed on drop; if the process is killed, the next process
/// that works in the same parent directory removes it.
#[derive(Debug)]
pub struct Staging {
    place: TempDir,
    _lock: File,
}

impl Staging {
    /// Remove stale entries of `directory`, and create a staging directory in it. Complete files are then
    /// moved from the staging directory to `directory`.
    ///
    /// # Errors
    /// The directory cannot be created, for example because the disk is full.
    pub fn cleaned(directory: &Path) -> io::Result<Self> {
        remove_stale(directory, UNFINISHED, |_| Ok(()));
        Self::with_prefix(directory, UNFINISHED)
    }

    /// Create a staging directory in `directory`, with a name that begins with `prefix`.
    ///
    /// # Errors
    /// The directory cannot be created, for example because the disk is full.
    pub fn with_prefix(directory: &Path, prefix: &str) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let place = tempfile::Builder::new()
                .prefix(prefix)
                // The umask decides who may read the directory, unlike tempfile's default of 0700.
                .permissions(fs::Permissions::from_mode(0o777))
                .tempdir_in(directory)?;
            match open_lock(place.path()) {
                Ok(lock) if try_lock(&lock)? => return Ok(Self { place, _lock: lock }),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(repeatedly_removed())
    }

    /// Path of the staging directory.
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

/// Create a file with `make`, and lock it for as long as it is open.
pub(crate) fn locked_file(
    make: impl Fn() -> io::Result<NamedTempFile>,
) -> io::Result<NamedTempFile> {
    for _ in 0..ATTEMPTS {
        let file = make()?;
        if try_lock(file.as_file())? {
            return Ok(file);
        }
    }
    Err(repeatedly_removed())
}

fn repeatedly_removed() -> io::Error {
    io::Error::other("another process removes what is made there")
}

/// Remove stale entries of `directory` whose names begin with `prefix`; `rescue` is called first for each
/// stale directory, to save what is still useful. Entries that cannot be examined, rescued or removed stay.
pub fn remove_stale(
    directory: &Path,
    prefix: &str,
    mut rescue: impl FnMut(&Path) -> io::Result<()>,
) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            remove_if_dead(&entry.path(), &mut rescue).unwrap_or_default();
        }
    }
}

fn remove_if_dead(path: &Path, rescue: &mut impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    if found.is_dir() {
        let lock = open_lock(path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        rescue(path)?;
        // The directory is renamed first, so that a process that has just created it never finds it half
        // removed.
        let removed = PathBuf::from(format!("{}{REMOVED}", path.display()));
        fs::rename(path, &removed)?;
        fs::remove_dir_all(&removed)
    } else if found.is_file() {
        let file = File::options().read(true).custom_flags(NO_LINK).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::remove_file(path)
    } else {
        Ok(())
    }
}

/// Open flags: do not follow a link put in the file's place, and do not block on a pipe.
const NO_LINK: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

fn open_lock(directory: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true).custom_flags(NO_LINK);
    options.open(directory.join(LOCK))
}

/// Lock an entry that this process has just created; false if another process is removing it.
fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        // On a file system without locks, other processes cannot consider the entry stale either.
        _ => Ok(file.metadata()?.nlink() > 0),
    }
}
