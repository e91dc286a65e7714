//! Errors of importing and exporting other tools' files; each message is one line and names the file.

use std::io;
use std::path::PathBuf;

use skyhop_files::FileError;
use thiserror::Error;

/// Reasons for which a file cannot be imported, exported or examined.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ConvertError {
    /// The file cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is of a kind that is not read, such as a compressed one.
    #[error("{}: {what}", path.display())]
    OtherKind { path: PathBuf, what: &'static str },
    /// The value of an option is wrong, or the format does not have this option.
    #[error("{origin}: {option}: {what}")]
    Option { origin: String, option: String, what: String },
    /// The content is not valid.
    #[error("{origin}: {what}")]
    Content { origin: String, what: String },
    /// The format cannot represent the path.
    #[error("{origin}: path: {what}")]
    Path { origin: String, what: String },
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ConvertError {
    pub(crate) fn option(origin: &str, option: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Option { origin: origin.to_owned(), option: option.into(), what: what.into() }
    }
}
