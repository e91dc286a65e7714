//! Run directories: everything about one run, written at once or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use skyhop_path::PathTrace;

use crate::parquet_file::{replace_file, temporary_beside, write_error};
use crate::{RecordError, RunData, path_file, tables};

/// A place for a run's results, reserved before the run begins so that a wrong place is found early.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    created: Vec<PathBuf>,
}

impl RunDirectory {
    /// Makes sure that `path` is a directory which may be written to, and makes it where it is
    /// missing.
    ///
    /// # Errors
    /// [`RecordError::NotEmpty`] unless `force`, [`RecordError::NotADirectory`], or that it cannot be
    /// made.
    pub fn reserve(path: &Path, force: bool) -> Result<Self, RecordError> {
        if path.exists() && !path.is_dir() {
            return Err(RecordError::NotADirectory { path: path.to_owned() });
        }
        let created = missing_directories(path);
        if let Err(error) = fs::create_dir_all(path) {
            let made = created.into_iter().filter(|directory| directory.exists()).collect();
            Self { path: path.to_owned(), created: made }.abandon()?;
            return Err(write_error(path, error));
        }
        let mut entries = fs::read_dir(path)
            .map_err(|source| RecordError::Read { path: path.to_owned(), source })?;
        if !force && entries.next().is_some() {
            return Err(RecordError::NotEmpty { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), created })
    }

    /// Writes all files of the run. Nothing of a failed attempt stays behind; an earlier run's
    /// files are replaced only when all of the new ones have been written.
    ///
    /// # Errors
    /// [`RecordError::Write`] with the system's reason, a full disk for example.
    pub fn write(
        &self,
        data: &RunData,
        trace: &PathTrace,
        run: &impl Serialize,
    ) -> Result<(), RecordError> {
        let staging = temporary_beside(&self.path.join("run"));
        fs::create_dir_all(&staging).map_err(|e| write_error(&self.path, e))?;
        let attempt = write_all(&staging, data, trace, run)
            .and_then(|()| move_into(&staging, &self.path))
            .map_err(|error| error.about(&staging, &self.path));
        // The staging directory is empty or useless now; failing to remove it must not hide why.
        let removal = fs::remove_dir_all(&staging).map_err(|e| write_error(&staging, e));
        attempt.and(removal)
    }

    /// Removes the directories that reserving made, for a run that has no results.
    ///
    /// # Errors
    /// [`RecordError::Write`] where one cannot be removed.
    pub fn abandon(self) -> Result<(), RecordError> {
        for made in self.created.iter().rev() {
            match fs::remove_dir(made) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                    return Ok(());
                }
                Err(error) => return Err(write_error(made, error)),
            }
        }
        Ok(())
    }
}

impl RecordError {
    /// The same error about the place that the user knows.
    fn about(self, staging: &Path, destination: &Path) -> Self {
        let known = |path: PathBuf| {
            destination.join(path.strip_prefix(staging).map(Path::to_owned).unwrap_or_default())
        };
        match self {
            Self::Write { path, reason } => Self::Write { path: known(path), reason },
            Self::NotAFile { path } => Self::NotAFile { path: known(path) },
            other => other,
        }
    }
}

/// The directories on the way to `path` that do not exist yet, outermost first.
fn missing_directories(path: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = path
        .ancestors()
        .filter(|ancestor| !ancestor.as_os_str().is_empty())
        .take_while(|ancestor| !ancestor.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

fn write_all(
    directory: &Path,
    data: &RunData,
    trace: &PathTrace,
    run: &impl Serialize,
) -> Result<(), RecordError> {
    path_file::write_path(trace, &directory.join("path.parquet"))?;
    tables::write_flows(&data.flows, &directory.join("flows.parquet"))?;
    tables::write_link(data, &directory.join("link.parquet"))?;
    tables::write_events(data, &directory.join("events.parquet"))?;
    tables::write_probes(&data.probes, &directory.join("probes.parquet"))?;
    write_json(run, &directory.join("run.json"))?;
    write_json(&data.summary, &directory.join("summary.json"))
}

fn write_json(value: &impl Serialize, path: &Path) -> Result<(), RecordError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| write_error(path, e))?;
    text.push('\n');
    replace_file(path, text.as_bytes())
}

fn move_into(staging: &Path, destination: &Path) -> Result<(), RecordError> {
    let entries = fs::read_dir(staging).map_err(|e| write_error(destination, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| write_error(destination, e))?;
        let target = destination.join(entry.file_name());
        fs::rename(entry.path(), &target).map_err(|e| write_error(&target, e))?;
    }
    Ok(())
}
