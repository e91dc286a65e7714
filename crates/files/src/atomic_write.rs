//! Atomic writes: a file is replaced completely or not at all.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::FileError;
use crate::stale_files::{UNFINISHED, locked_file, remove_stale};

/// Write `path` atomically: even if the machine crashes, the file is either complete or as it was before.
///
/// # Errors
/// [`FileError::Write`] with the system's reason, or `path` is not a regular file.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    remove_stale_siblings(path);
    let file = temporary_file_for(path, bytes)?;
    file.as_file().sync_all().map_err(|e| write_error(path, e))?;
    put_in_place(file, path)
}

/// Create a temporary file with the content `bytes`, in the directory of `path`. [`put_in_place`]
/// renames it; if it is dropped before, it is removed.
///
/// # Errors
/// [`FileError::Write`] with the system's reason, or `path` is not a regular file.
pub fn temporary_file_for(path: &Path, bytes: &[u8]) -> Result<NamedTempFile, FileError> {
    let target = target_of(path);
    // Renaming a file onto a device would replace the device.
    if target.exists() && !target.is_file() {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    let attempt = locked_file(|| {
        tempfile::Builder::new()
            .prefix(UNFINISHED)
            // The umask decides who may read the file, whereas tempfile's default allows only the user.
            .make_in(directory_of(&target), |place| File::create_new(place))
    });
    attempt
        .and_then(|file| file.as_file().write_all(bytes).map(|()| file))
        .map_err(|e| write_error(path, e))
}

/// Remove stale temporary files of earlier writes to the directory of `path`.
pub(crate) fn remove_stale_siblings(path: &Path) {
    remove_stale(directory_of(&target_of(path)), UNFINISHED, |_| Ok(()));
}

fn directory_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Rename a file from [`temporary_file_for`] to `path`.
///
/// # Errors
/// [`FileError::Write`] with the system's reason.
pub fn put_in_place(file: NamedTempFile, path: &Path) -> Result<(), FileError> {
    file.persist(target_of(path)).map(drop).map_err(|e| write_error(path, e.error))
}

/// Path of the file that is replaced, after symbolic links are followed.
fn target_of(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Create the error that `path` could not be written, with the reason.
pub fn write_error(path: &Path, reason: impl std::fmt::Display) -> FileError {
    FileError::Write { path: path.to_owned(), reason: reason.to_string() }
}
