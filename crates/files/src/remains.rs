//! Files and directories of work in progress, and what is left of them by processes that were killed.
//!
//! Who works in one holds a lock on it, which the system lets go with the process, however that ended and whoever has
//! its number since. What nobody holds is nobody's any more: the next who works beside it removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempDir};

/// What the names begin with of files and directories that are moved into their place once they are whole.
pub(crate) const UNFINISHED: &str = ".skyhop-";
/// The file in a directory that is locked for all of it: not every file system locks directories.
const LOCK: &str = ".lock";
/// What the name of a directory ends with that is being removed.
const REMOVED: &str = ".gone";
/// How often something is made again where another process, which removes remains, was faster.
const ATTEMPTS: u32 = 10;

/// A new directory to work in, which goes when this does, or is removed by the next who works beside it where its
/// process was killed.
#[derive(Debug)]
pub struct Staging {
    place: TempDir,
    _lock: File,
}

impl Staging {
    /// Makes one in `directory`, where remains are cleared, for files that will be moved into their place there.
    ///
    /// # Errors
    /// It cannot be made, for example because the disk is full.
    pub fn beside(directory: &Path) -> io::Result<Self> {
        clear_remains(directory, UNFINISHED, |_| Ok(()));
        Self::begin(directory, UNFINISHED)
    }

    /// Makes one in `directory` with a name that begins with `prefix`.
    ///
    /// # Errors
    /// It cannot be made, for example because the disk is full.
    pub fn begin(directory: &Path, prefix: &str) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let place = tempfile::Builder::new()
                .prefix(prefix)
                // As many may look in as the umask allows.
                .permissions(fs::Permissions::from_mode(0o777))
                .tempdir_in(directory)?;
            match open_lock(place.path()) {
                Ok(lock) if is_ours(&lock)? => return Ok(Self { place, _lock: lock }),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(removed_at_once())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

/// A file made by `make`, locked for as long as it is open.
pub(crate) fn locked_file(
    make: impl Fn() -> io::Result<NamedTempFile>,
) -> io::Result<NamedTempFile> {
    for _ in 0..ATTEMPTS {
        let file = make()?;
        if is_ours(file.as_file())? {
            return Ok(file);
        }
    }
    Err(removed_at_once())
}

fn removed_at_once() -> io::Error {
    io::Error::other("another process removes what is made there")
}

/// Removes what killed processes have left in `directory` under names that begin with `prefix`, directories after
/// `rescue` has taken out of them what is still good. What cannot be judged, rescued or removed stays.
pub fn clear_remains(
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
        // Whoever has just made it finds it gone, rather than half gone.
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

/// Neither follows a link that was put in a file's place, nor waits for a pipe's other end.
const NO_LINK: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

fn open_lock(directory: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true).custom_flags(NO_LINK);
    options.open(directory.join(LOCK))
}

/// Locks what this process has just made; false where another one is removing it.
fn is_ours(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        // Where a file system has no locks, nobody can take this for left alone either.
        _ => Ok(file.metadata()?.nlink() > 0),
    }
}
