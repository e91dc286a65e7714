//! Atomic writes: a file is replaced completely or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::FileError;
use crate::stale_files::Staging;

/// Name of a temporary file in its staging directory.
const CONTENT: &str = "content";

/// File in a staging directory, which is renamed to its place once it is complete. If it is dropped before, it is
/// removed.
#[derive(Debug)]
pub struct TemporaryFile {
    file: File,
    staging: Staging,
}

impl TemporaryFile {
    /// Handle of the file, opened for writing.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Path of the file.
    pub fn path(&self) -> PathBuf {
        self.staging.path().join(CONTENT)
    }
}

/// Write `path` atomically: even if the machine crashes, the file is either complete or as it was before.
///
/// # Errors
/// [`FileError::Write`] with the system's reason, or `path` is not a regular file.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let file = temporary_file_for(path)?;
    file.as_file()
        .write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .map_err(|e| write_error(path, e))?;
    put_in_place(file, path)
}

/// Create an empty temporary file on the file system of `path`, which [`put_in_place`] renames; remove those that
/// killed processes left in the directory.
///
/// # Errors
/// [`FileError::Write`] with the system's reason, or `path` is not a regular file.
pub fn temporary_file_for(path: &Path) -> Result<TemporaryFile, FileError> {
    let target = target_of(path);
    // Renaming a file onto a device would replace the device.
    if target.exists() && !target.is_file() {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    let made = Staging::cleaned(directory_of(&target)).and_then(|staging| {
        let file = File::create_new(staging.path().join(CONTENT))?;
        Ok(TemporaryFile { file, staging })
    });
    made.map_err(|e| write_error(path, e))
}

/// Write a file of a staging directory, which is removed as a whole if its process is killed. Readers see the file
/// complete or not at all.
///
/// # Errors
/// [`FileError::Write`] with the system's reason.
pub fn write_staged(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut unfinished = OsString::from(".");
    unfinished.push(path.file_name().unwrap_or_default());
    let unfinished = path.with_file_name(unfinished);
    fs::write(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, path))
        .map_err(|e| write_error(path, e))
}

fn directory_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Rename a file from [`temporary_file_for`] to `path`.
///
/// # Errors
/// [`FileError::Write`] with the system's reason.
pub(crate) fn put_in_place(file: TemporaryFile, path: &Path) -> Result<(), FileError> {
    fs::rename(file.path(), target_of(path)).map_err(|e| write_error(path, e))
}

/// Path of the file that is replaced, after symbolic links are followed.
fn target_of(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Create the error that `path` could not be written, with the reason.
pub fn write_error(path: &Path, reason: impl std::fmt::Display) -> FileError {
    FileError::Write { path: path.to_owned(), reason: reason.to_string() }
}
