//! Writing a file whole or not at all.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::FileError;
use crate::remains::{UNFINISHED, clear_remains, locked_file};

/// Writes `path`, so that it is whole or as it was before, even if the machine goes down meanwhile.
///
/// # Errors
/// [`FileError::Write`] with the system's reason, or `path` is something else than a file.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    clear_beside(path);
    let file = file_beside(path, bytes)?;
    file.as_file().sync_all().map_err(|e| write_error(path, e))?;
    put_in_place(file, path)
}

/// A new file that holds `bytes` so far, in the same directory as `path`; [`put_in_place`] moves it
/// there. Dropped before that, it leaves nothing behind.
///
/// # Errors
/// [`FileError::Write`] with the system's reason, or `path` is something else than a file.
pub fn file_beside(path: &Path, bytes: &[u8]) -> Result<NamedTempFile, FileError> {
    let target = target_of(path);
    // Nobody means to replace a device.
    if target.exists() && !target.is_file() {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    let attempt = locked_file(|| {
        tempfile::Builder::new()
            .prefix(UNFINISHED)
            // Unlike tempfile's own files it may be read by whom the umask allows it.
            .make_in(directory_of(&target), |place| File::create_new(place))
    });
    attempt
        .and_then(|file| file.as_file().write_all(bytes).map(|()| file))
        .map_err(|e| write_error(path, e))
}

/// Removes what killed processes have left of files like `path`.
pub(crate) fn clear_beside(path: &Path) {
    clear_remains(directory_of(&target_of(path)), UNFINISHED, |_| Ok(()));
}

fn directory_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Moves what [`file_beside`] made to `path`.
///
/// # Errors
/// [`FileError::Write`] with the system's reason.
pub fn put_in_place(file: NamedTempFile, path: &Path) -> Result<(), FileError> {
    file.persist(target_of(path)).map(drop).map_err(|e| write_error(path, e.error))
}

/// What is replaced: not a link, but what it leads to.
fn target_of(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// That `path` could not be written, and why.
pub fn write_error(path: &Path, reason: impl std::fmt::Display) -> FileError {
    FileError::Write { path: path.to_owned(), reason: reason.to_string() }
}
