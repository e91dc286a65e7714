//! Directories of work in progress, and removal of stale ones that killed processes left.
//!
//! A process holds a lock on the directory in which it works. The system releases the lock when the process
//! ends, however it ends, and the lock does not depend on process ids, which may be reused. A directory without
//! a lock is stale; the next process that works in the same parent directory removes it. The content of the lock
//! file marks the directory as skyhop's: a directory of the user is never removed, whatever its name.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Prefix of the names of directories whose files are renamed once they are complete.
pub(crate) const UNFINISHED: &str = ".skyhop-";
/// Name of the file whose lock stands for its directory, because some file systems cannot lock directories.
const LOCK: &str = ".lock";
/// Content of the lock file, by which skyhop recognises a directory that it may remove.
const MARK: &[u8] =
    b"skyhop: unfinished work; skyhop removes this directory when its process has ended\n";
/// Suffix of the name of a directory that is being removed.
const REMOVED: &str = ".gone";
/// Number of attempts to create a directory: another process may take the new directory for stale and
/// remove it before it is locked.
const ATTEMPTS: u32 = 10;

/// New directory for work in progress. It is removed on drop; if the process is killed, the next process
/// that works in the same parent directory removes it.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
    _lock: File,
}

impl Staging {
    /// Remove stale directories in `directory`, and create a staging directory in it. Complete files are then
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
            let made = tempfile::Builder::new()
                .prefix(prefix)
                // The umask decides who may read the directory, unlike that of tempfile's directories.
                .make_in(directory, |path| fs::create_dir(path))?;
            let path = made.into_temp_path().keep().map_err(|kept| kept.error)?;
            match marked_lock(&path) {
                Ok(Some(lock)) => return Ok(Self { path, _lock: lock }),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    // The caller gets the first error, such as that of a full disk.
                    fs::remove_file(path.join(LOCK)).unwrap_or_default();
                    fs::remove_dir(&path).unwrap_or_default();
                    return Err(error);
                }
            }
        }
        Err(io::Error::other("another process removes what is made there"))
    }

    /// Path of the staging directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The next process that works in the same parent directory removes what is left.
        remove_marked(&self.path).unwrap_or_default();
    }
}

/// Remove stale directories in `directory` whose names begin with `prefix` and which carry skyhop's mark; `rescue`
/// is called first for each, to save what is still useful. Directories that cannot be examined, rescued or removed
/// stay.
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
    if found.uid() != rustix::process::geteuid().as_raw() || !found.is_dir() {
        return Ok(());
    }
    let lock = match lock_options().read(true).open(path.join(LOCK)) {
        Ok(lock) => lock,
        // A process was killed before it created the lock file: only an empty directory is removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return fs::remove_dir(path),
        Err(error) => return Err(error),
    };
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let mut content = Vec::new();
    io::Read::take(&lock, MARK.len() as u64 + 1).read_to_end(&mut content)?;
    if content == MARK {
        rescue(path)?;
        // The directory is renamed first, so that a process that has just created it never finds it half
        // removed.
        let removed = PathBuf::from(format!("{}{REMOVED}", path.display()));
        fs::rename(path, &removed)?;
        return remove_marked(&removed);
    }
    // A process was killed before it wrote the mark.
    if content.is_empty() && fs::read_dir(path)?.count() == 1 {
        return remove_marked(path);
    }
    Ok(())
}

/// Remove a staging directory, its mark last, so that the next process recognises it if this one is killed meanwhile.
fn remove_marked(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if entry.file_name() != LOCK {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(path.join(LOCK))?;
    fs::remove_dir(path)
}

/// Open flags: do not follow a link put in the file's place, and do not block on a pipe.
const NO_LINK: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

fn lock_options() -> fs::OpenOptions {
    let mut options = File::options();
    options.write(true).custom_flags(NO_LINK);
    options
}

/// Create, lock and mark the lock file of a new directory; `None` if another process is removing the directory.
fn marked_lock(directory: &Path) -> io::Result<Option<File>> {
    let mut options = lock_options();
    let mut lock = options.create(true).truncate(false).open(directory.join(LOCK))?;
    if !try_lock(&lock)? {
        return Ok(None);
    }
    lock.write_all(MARK)?;
    Ok(Some(lock))
}

/// Lock a file that this process has just created; false if another process is removing it.
fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        // On a file system without locks, other processes cannot consider it stale either.
        _ => Ok(file.metadata()?.nlink() > 0),
    }
}
