//! Writing a file whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::FileError;

/// Writes `path` through a temporary file beside it, so that it is whole or as it was before.
///
/// # Errors
/// [`FileError::Write`] with the system's reason, or `path` is something else than a file.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    // A link's target is replaced, not the link; and only files are: nobody means to replace a device.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if target.exists() && !target.is_file() {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    let temporary = temporary_beside(&target);
    let attempt = File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, &target));
    if attempt.is_err() {
        remove_leftover(&temporary);
    }
    attempt.map_err(|e| write_error(path, e))
}

/// A name in the same directory that no finished result has.
pub fn temporary_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.partial-{}", std::process::id()))
}

/// Removes what an attempt left; that it never came to exist is fine, and the attempt's own error
/// says more than this one's would.
pub fn remove_leftover(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        debug_assert!(error.kind() == io::ErrorKind::NotFound, "{}: {error}", path.display());
    }
}

/// That `path` could not be written, and why.
pub fn write_error(path: &Path, reason: impl std::fmt::Display) -> FileError {
    FileError::Write { path: path.to_owned(), reason: reason.to_string() }
}
