//! Errors of reading and writing result files.

use std::io;
use std::path::PathBuf;

use skyhop_path::TraceError;
use thiserror::Error;

/// Reasons for which a result could not be read or written.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum FileError {
    /// The file could not be opened or read.
    #[error("{}: cannot read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file could not be written: no space, no permission, …
    #[error("{}: cannot write: {reason}", path.display())]
    Write { path: PathBuf, reason: String },
    /// The measurements could not be sent to the receiving process.
    #[error("cannot pass on the measurements: {reason}")]
    Stream { reason: String },
    /// The file is not a complete Parquet file.
    #[error("{}: not a whole Parquet file ({reason}); make or copy it again", path.display())]
    Damaged { path: PathBuf, reason: String },
    /// The file is text, perhaps gzipped.
    #[error("{}: not a path file but text: skyhop path import makes a path file of another tool's log",
        path.display())]
    Log { path: PathBuf },
    /// The file is Parquet, but not a path file.
    #[error("{}: not a skyhop path file: {what}", path.display())]
    NotAPath { path: PathBuf, what: String },
    /// A newer skyhop wrote the file.
    #[error("{}: path file version {found}, but this skyhop reads up to {known}; update skyhop",
        path.display())]
    Newer { path: PathBuf, found: u32, known: u32 },
    /// The file's content is not a valid path.
    #[error("{}: {source}", path.display())]
    Trace { path: PathBuf, source: TraceError },
    /// The file would take more memory than a path usually does.
    #[error("{}: would take {megabytes} MB of memory; at most {most} MB: cut it, or say --force-size (in a scenario \
             run.force_size = true)",
        path.display())]
    TooLarge { path: PathBuf, megabytes: u64, most: u64 },
    /// The output directory is not empty.
    #[error("{}: the output directory is not empty; choose another or add --force", path.display())]
    NotEmpty { path: PathBuf },
    /// The output path exists and is not a regular file.
    #[error("{}: is not a regular file; choose another name for the output", path.display())]
    NotAFile { path: PathBuf },
    /// The file has the name of one of a run's files, but skyhop has not written it.
    #[error("{}: is not a file of a skyhop run, and a run here would replace it: choose another output directory, or \
             move the file away",
        path.display())]
    NotARuns { path: PathBuf },
    /// The path of the output directory is that of a file.
    #[error("{}: is a file, but the output must be a directory", path.display())]
    NotADirectory { path: PathBuf },
}

impl FileError {
    /// Whether the user's input is wrong, as opposed to a failure of the system.
    pub fn is_input(&self) -> bool {
        !matches!(self, Self::Write { .. } | Self::Stream { .. })
    }
}
