//! Replacement of an earlier run in a directory by a new one.
//!
//! The earlier run's summary is moved out first and the new one is moved in last, so that a mixture of two
//! runs never has a summary and does not pass for a run. If the process is killed half-way, the staging
//! directory holds the progress, and the next process that reserves the directory resumes: the new run was
//! complete when the replacement began. If yet another run has been completed in the directory by then,
//! that run stays. A lock on the directory lets one process replace at a time.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use skyhop_files::{FileError, is_own_table, write_error};
use skyhop_model::AppTable;

/// Directory in the staging directory into which the earlier run's files are moved, …
const EARLIER: &str = "earlier";
/// … and its name once all of them are there.
const REPLACED: &str = "replaced";

/// File whose presence marks a directory as that of a complete run.
const SUMMARY: &str = "summary.json";

/// Files that every run has, the summary first, and that of routes, which runs over networks have. Each [`AppTable`] adds one
/// more.
const RUN_FILES: [&str; 8] = [
    SUMMARY,
    "run.json",
    "path.parquet",
    "flows.parquet",
    "link.parquet",
    "events.parquet",
    "probes.parquet",
    "routes.parquet",
];

/// List the names of all files that a run may have.
pub(crate) fn run_files() -> impl DoubleEndedIterator<Item = String> {
    let tables = AppTable::ALL.iter().map(|table| format!("{table}.parquet"));
    RUN_FILES.into_iter().map(str::to_owned).chain(tables)
}

/// Check that each existing entry with the name of a run's file is a file of a run, which may be replaced.
pub(crate) fn refuse_other_than_run_files(directory: &Path) -> Result<(), FileError> {
    for path in run_files().map(|name| directory.join(name)) {
        match fs::metadata(&path) {
            // An empty file, such as a machine's crash leaves, has no content to lose.
            Ok(found) if found.is_file() && (found.len() == 0 || is_run_file(&path)) => {}
            Err(_) if fs::symlink_metadata(&path).is_err() => {}
            Ok(found) if !found.is_file() => return Err(FileError::NotAFile { path }),
            _ => return Err(FileError::NotARuns { path }),
        }
    }
    Ok(())
}

/// Whether skyhop has written this file: a table by its metadata, a text by the keys that all of them have.
fn is_run_file(path: &Path) -> bool {
    if path.extension().is_some_and(|extension| extension == "parquet") {
        return is_own_table(path);
    }
    let text = fs::read(path).unwrap_or_default();
    let content: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    content["schema"].is_u64() && content["engine"].is_string() && content["seed"].is_u64()
}

/// Move an earlier run's files out of `destination` and those of the run in `staging` into it: all of
/// them or none. Tables that only the earlier run has are moved out too, because they would pass for
/// the new run's.
pub(crate) fn replace_earlier(staging: &Path, destination: &Path) -> Result<(), FileError> {
    let _alone = lock(destination);
    refuse_other_than_run_files(destination)?;
    fs::create_dir_all(staging.join(EARLIER)).map_err(|e| write_error(destination, e))?;
    finish(staging, destination)
}

/// Resume the replacement that a killed process began, unless another complete run is in `destination` by now.
pub(crate) fn resume(staging: &Path, destination: &Path) -> Result<(), FileError> {
    let _alone = lock(destination);
    // The summary is the first file to be moved out.
    let had_gone = staging.join(REPLACED).is_dir() || staging.join(EARLIER).join(SUMMARY).exists();
    if had_gone && destination.join(SUMMARY).exists() {
        return Ok(());
    }
    refuse_other_than_run_files(destination)?;
    finish(staging, destination)
}

/// Wait until no other process replaces a run in this directory, and lock it until the result is dropped. A file
/// system that cannot lock directories has no lock.
fn lock(directory: &Path) -> Option<File> {
    let opened = File::open(directory).ok()?;
    loop {
        match flock(&opened, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            locked => return locked.ok().map(|()| opened),
        }
    }
}

fn finish(staging: &Path, destination: &Path) -> Result<(), FileError> {
    let [earlier, replaced] = [EARLIER, REPLACED].map(|name| staging.join(name));
    let mut moves = Moves::default();
    let mut moved = Ok(());
    if earlier.is_dir() {
        moved = run_files()
            .try_for_each(|name| moves.rename(destination.join(&name), earlier.join(name)))
            .and_then(|()| moves.rename(earlier, replaced.clone()));
    }
    if moved.is_ok() && replaced.is_dir() {
        moved = run_files()
            .rev()
            .try_for_each(|name| moves.rename(staging.join(&name), destination.join(name)));
    }
    if moved.is_err() {
        moves.undo();
    }
    moved
}

/// Log of moved files, by which they are moved back if a later move fails.
#[derive(Default)]
struct Moves(Vec<(PathBuf, PathBuf)>);

impl Moves {
    /// Move a file, if it exists.
    fn rename(&mut self, from: PathBuf, to: PathBuf) -> Result<(), FileError> {
        match fs::rename(&from, &to) {
            Ok(()) => self.0.push((from, to)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(write_error(&to, error)),
        }
        Ok(())
    }

    fn undo(self) {
        for (from, to) in self.0.into_iter().rev() {
            // The user gets the error that caused the undo; an error of the undo itself is ignored.
            fs::rename(to, from).unwrap_or_default();
        }
    }
}
