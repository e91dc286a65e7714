//! Errors of scenarios, each one line that names file, key and remedy.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use skyhop_ccfile::CcFileError;
use skyhop_files::FileError;
use skyhop_model::{KIND_BYTES, one_line, other_kind};
use thiserror::Error;

/// Errors in a scenario, or in the files it names.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ScenarioError {
    /// The scenario, or a file that it names, cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file that should contain text contains something else.
    #[error("{}: is not a text file; expected TOML for a scenario or constellation, CSV for sites",
        path.display())]
    NotText { path: PathBuf },
    /// The file is of a kind that is not read, such as a compressed one.
    #[error("{}: {what}", path.display())]
    OtherKind { path: PathBuf, what: &'static str },
    /// The text is not TOML.
    #[error("{origin}: line {line}: not TOML: {reason}")]
    Syntax { origin: String, line: usize, reason: String },
    /// A key's value is wrong, or the key does not exist.
    #[error("{origin}: {key}: {what}")]
    Key { origin: String, key: String, what: String },
    /// An override is not KEY=VALUE or names something that does not exist.
    #[error("--set {}: {}", one_line(text), one_line(what))]
    Set { text: String, what: String },
    /// The file of a congestion control is wrong, or cannot be compiled here.
    #[error(transparent)]
    CcFile(#[from] CcFileError),
    /// The path cannot be computed, or is never connected.
    #[error("{origin}: path: {what}")]
    Path { origin: String, what: String },
    /// A path file or its content is wrong.
    #[error(transparent)]
    Record(#[from] FileError),
    /// The user interrupted the work.
    #[error("interrupted")]
    Interrupted,
}

/// Create the error of a text file that cannot be read.
pub(crate) fn unreadable(path: &Path, source: io::Error) -> ScenarioError {
    let path = path.to_owned();
    if let Some(what) = kind_of(&path) {
        return ScenarioError::OtherKind { path, what };
    }
    match source.kind() {
        io::ErrorKind::InvalidData => ScenarioError::NotText { path },
        _ => ScenarioError::Read { path, source },
    }
}

/// Description of a file of a kind that is not read, for messages.
fn kind_of(path: &Path) -> Option<&'static str> {
    let mut beginning = Vec::new();
    let file = File::open(path).ok()?;
    file.take(KIND_BYTES as u64).read_to_end(&mut beginning).ok()?;
    other_kind(&beginning)
}

impl ScenarioError {
    pub(crate) fn key(origin: &str, key: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Key {
            origin: origin.to_owned(),
            key: one_line(&key.into()),
            what: one_line(&what.into()),
        }
    }

    /// Return the error about a key of the section `from` as one about the same key of the section `to`.
    pub(crate) fn moved(self, from: &str, to: &str) -> Self {
        match self {
            Self::Key { origin, key, what } => {
                let rest = key.strip_prefix(from).filter(|rest| rest.starts_with('.'));
                let key = rest.map(|rest| format!("{to}{rest}")).unwrap_or(key);
                Self::Key { origin, key, what }
            }
            other => other,
        }
    }

    /// Return the error with `section` prefixed to its key, for the file or table that contains `section`.
    pub(crate) fn under(self, section: &str) -> Self {
        match self {
            Self::Key { origin, key, what } => {
                Self::Key { origin, key: format!("{section}.{key}"), what }
            }
            Self::Path { origin, what } => {
                Self::Key { origin, key: format!("{section}.path"), what }
            }
            other => other,
        }
    }
}
