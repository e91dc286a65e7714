//! What can be wrong with another tool's file, each in one line that names it.

use std::io;
use std::path::PathBuf;

use skyhop_files::FileError;
use thiserror::Error;

/// Why a file cannot be imported, exported or looked at.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ConvertError {
    /// It cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// An option is wrong, or the format does not have it.
    #[error("{origin}: {option}: {what}")]
    Option { origin: String, option: String, what: String },
    /// Its content is not what it should be.
    #[error("{origin}: {what}")]
    Content { origin: String, what: String },
    /// The format cannot hold the path.
    #[error("{origin}: path: {what}")]
    Path { origin: String, what: String },
    /// It cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ConvertError {
    pub(crate) fn option(origin: &str, option: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Option { origin: origin.to_owned(), option: option.into(), what: what.into() }
    }
}
