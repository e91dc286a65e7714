//! Lines of untrusted text files, with line numbers and size limits.

use std::io::{BufRead, ErrorKind, Read as _};

use skyhop_units::Quoted;
use thiserror::Error;

use crate::TraceError;

/// Maximum size of a text, in bytes; a million pings take 80 MB.
const LONGEST_TEXT: u64 = 128 * 1024 * 1024;
/// Maximum length of a line, in bytes; the header of skyhop's csv has some hundred bytes, a LeoEM line 700.
const LONGEST_LINE: u64 = 100_000;

/// Maximum number of samples of a measurement: eleven days of one per second.
pub(super) const MOST_SAMPLES: usize = 1_000_000;

/// Reason for which a file cannot be imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be read to its end.
    #[error("line {line}: cannot read further: {what}")]
    Read {
        /// Line number, counted from 1.
        line: usize,
        /// Message of the reader.
        what: String,
    },
    /// A line does not conform to the format.
    #[error("line {line}: {what}")]
    Line {
        /// Line number, counted from 1.
        line: usize,
        /// Description of the error, including the expected input.
        what: String,
    },
    /// The file as a whole does not conform to the format.
    #[error("{what}")]
    Whole {
        /// Description of the error, including the expected input.
        what: String,
    },
    /// The frames read from the file do not form a valid path.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl ImportError {
    pub(super) fn whole(what: impl Into<String>) -> Self {
        Self::Whole { what: what.into() }
    }
}

/// Line of a text with its number, counted from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'t> {
    pub number: usize,
    /// Text of the line without trailing white space.
    pub text: &'t str,
    /// Whether the text ends in the line: it has no line end, so that it may be cut off.
    pub is_open: bool,
}

impl Line<'_> {
    /// Check that one sample more than `samples` does not exceed [`MOST_SAMPLES`].
    pub fn has_room(&self, samples: usize) -> Result<(), ImportError> {
        if samples < MOST_SAMPLES {
            return Ok(());
        }
        Err(self.wrong(format!("more than {MOST_SAMPLES} samples; import a shorter measurement")))
    }

    pub fn wrong(&self, what: impl Into<String>) -> ImportError {
        ImportError::Line { line: self.number, what: what.into() }
    }
}

/// Reader that returns a text line by line.
pub(super) struct Lines<R> {
    reader: R,
    number: usize,
    bytes_left: u64,
    bytes: Vec<u8>,
    /// Buffer for lines with replacement characters; `None` if bytes that are not UTF-8 are an error.
    text: Option<String>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, number: 0, bytes_left: LONGEST_TEXT, bytes: Vec::new(), text: None }
    }

    /// Create a reader that accepts other encodings than UTF-8, such as that of a Windows console, and replaces their
    /// characters.
    pub fn lossy(reader: R) -> Self {
        Self { text: Some(String::new()), ..Self::new(reader) }
    }

    /// Return the next line, `None` at the end.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, ImportError> {
        self.number += 1;
        let number = self.number;
        let wrong = |what: String| ImportError::Line { line: number, what };
        self.bytes.clear();
        let read = self
            .reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut self.bytes)
            .map_err(|error| unreadable(number, &error))? as u64;
        if read == 0 {
            return Ok(None);
        }
        if read == LONGEST_LINE {
            return Err(wrong(format!(
                "it is longer than {LONGEST_LINE} bytes; is this a text file?"
            )));
        }
        let is_open = !self.bytes.ends_with(b"\n");
        self.bytes_left = self.bytes_left.checked_sub(read).ok_or_else(|| too_long(number))?;
        if let Some(text) = &mut self.text {
            *text = String::from_utf8_lossy(&self.bytes).into_owned();
            return Ok(Some(Line { number, text: text.trim_ascii_end(), is_open }));
        }
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Some(Line { number, text: text.trim_ascii_end(), is_open })),
            Err(_) => Err(wrong("it is not UTF-8 text".to_owned())),
        }
    }
}

/// Read a whole text that is not line-oriented.
pub(super) fn read_whole(reader: impl BufRead) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    let read = reader.take(LONGEST_TEXT + 1).read_to_end(&mut bytes);
    let line = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
    read.map_err(|error| unreadable(line, &error))?;
    if bytes.len() as u64 > LONGEST_TEXT { Err(too_long(line)) } else { Ok(bytes) }
}

fn unreadable(line: usize, error: &std::io::Error) -> ImportError {
    let what = match error.kind() {
        ErrorKind::UnexpectedEof => {
            "the compressed file ends too early; is it truncated?".to_owned()
        }
        _ => error.to_string(),
    };
    ImportError::Read { line, what }
}

fn too_long(line: usize) -> ImportError {
    let limit_mb = LONGEST_TEXT / (1024 * 1024);
    let what = format!("more than {limit_mb} MiB of text; import a shorter measurement");
    ImportError::Line { line, what }
}

/// Parse a number; `what` names it in the error.
pub(super) fn parse_number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    let number = text.trim();
    number.parse().map_err(|_| format!("{what} has {} where a number belongs", Quoted(number)))
}

/// Parse a finite number between two bounds, both included.
pub(super) fn parse_between(
    text: &str,
    what: &str,
    (least, greatest): (f64, f64),
) -> Result<f64, String> {
    let value: f64 = parse_number(text, what)?;
    if (least..=greatest).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{what} is {value}; expected {least} to {greatest}"))
    }
}
