//! Moving a whole run into its place, where an earlier one may be.
//!
//! The summary goes first and comes last, so that files of two runs never pass for one. A process that is killed
//! half-way leaves what it had done in the staging directory, and whoever reserves the place next goes on: the new run
//! was whole when it began to move. Where a third run has come to its place meanwhile, that one stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use skyhop_files::{FileError, write_error};
use skyhop_model::AppTable;

/// Where in the staging directory the earlier run's files are moved, …
const EARLIER: &str = "earlier";
/// … and what it is called once all of them are there.
const REPLACED: &str = "replaced";

/// What makes a directory a run's.
const SUMMARY: &str = "summary.json";

/// What every run has, and what makes it one first; [`AppTable`]s come to it.
const RUN_FILES: [&str; 7] = [
    SUMMARY,
    "run.json",
    "path.parquet",
    "flows.parquet",
    "link.parquet",
    "events.parquet",
    "probes.parquet",
];

/// The names of all files that a run may have.
pub(crate) fn run_files() -> impl DoubleEndedIterator<Item = String> {
    let tables = AppTable::ALL.iter().map(|table| format!("{table}.parquet"));
    RUN_FILES.into_iter().map(str::to_owned).chain(tables)
}

/// Makes sure that what has the name of one of a run's files is one, or a link.
pub(crate) fn refuse_other_than_files(directory: &Path) -> Result<(), FileError> {
    for path in run_files().map(|name| directory.join(name)) {
        let found = fs::symlink_metadata(&path).map(|found| found.file_type());
        if found.is_ok_and(|kind| !kind.is_file() && !kind.is_symlink()) {
            return Err(FileError::NotAFile { path });
        }
    }
    Ok(())
}

/// Moves the run in `staging` into its place, and an earlier run's files out of it: all of them or none. Tables that
/// only the earlier run had go too, as they would pass for this one's.
pub(crate) fn replace_earlier(staging: &Path, destination: &Path) -> Result<(), FileError> {
    refuse_other_than_files(destination)?;
    fs::create_dir_all(staging.join(EARLIER)).map_err(|e| write_error(destination, e))?;
    finish(staging, destination)
}

/// Goes on with what a process has begun that was killed, if it had, unless a whole run has come there since.
pub(crate) fn go_on(staging: &Path, destination: &Path) -> Result<(), FileError> {
    // It was the first to go.
    let had_gone = staging.join(REPLACED).is_dir() || staging.join(EARLIER).join(SUMMARY).exists();
    if had_gone && destination.join(SUMMARY).exists() {
        return Ok(());
    }
    finish(staging, destination)
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

/// Files that were moved, to be moved back where one of them cannot be.
#[derive(Default)]
struct Moves(Vec<(PathBuf, PathBuf)>);

impl Moves {
    /// Moves a file, where it is there.
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
            // Why it is undone is what the user reads.
            fs::rename(to, from).unwrap_or_default();
        }
    }
}
