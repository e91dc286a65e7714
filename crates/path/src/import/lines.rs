//! The lines of a text that somebody else wrote, with their numbers and with limits.

use std::io::{BufRead, ErrorKind, Read as _};

use skyhop_units::Quoted;
use thiserror::Error;

use crate::TraceError;

/// The longest text that is read; a million pings have 80 MB.
const LONGEST_TEXT: u64 = 128 * 1024 * 1024;
/// The longest line: the header of our own csv has some hundred bytes, a LeoEM line 700.
const LONGEST_LINE: u64 = 100_000;

/// The most samples of a measurement: eleven days of one per second.
pub(super) const MOST_SAMPLES: usize = 1_000_000;

/// Why a file cannot be imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be read on.
    #[error("line {line}: cannot read further: {what}")]
    Read {
        /// Counted from 1.
        line: usize,
        /// What the reader says.
        what: String,
    },
    /// A line is not what the format has there.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// The file as a whole is not what it should be.
    #[error("{what}")]
    Whole {
        /// What is wrong, and what was expected.
        what: String,
    },
    /// What the file holds is not a path.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl ImportError {
    pub(super) fn whole(what: impl Into<String>) -> Self {
        Self::Whole { what: what.into() }
    }
}

/// A line and its number, counted from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'t> {
    pub number: usize,
    /// Without the white space at its end.
    pub text: &'t str,
}

impl Line<'_> {
    /// Checks that one more sample may follow `samples` others.
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

/// Reads a text line by line.
pub(super) struct Lines<R> {
    reader: R,
    number: usize,
    bytes_left: u64,
    bytes: Vec<u8>,
    /// What stands for bytes that are not UTF-8, where they are no error.
    text: Option<String>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, number: 0, bytes_left: LONGEST_TEXT, bytes: Vec::new(), text: None }
    }

    /// The same of a text whose letters may be of another encoding, as a Windows console's are.
    pub fn of_any_bytes(reader: R) -> Self {
        Self { text: Some(String::new()), ..Self::new(reader) }
    }

    /// The next line, `None` at the end.
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
        self.bytes_left = self.bytes_left.checked_sub(read).ok_or_else(|| too_long(number))?;
        if let Some(text) = &mut self.text {
            *text = String::from_utf8_lossy(&self.bytes).into_owned();
            return Ok(Some(Line { number, text: text.trim_ascii_end() }));
        }
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Some(Line { number, text: text.trim_ascii_end() })),
            Err(_) => Err(wrong("it is not UTF-8 text".to_owned())),
        }
    }
}

/// All of a text that is not made of lines.
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

/// A number of a line; the error says what belongs there.
pub(super) fn parse_number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    let number = text.trim();
    number.parse().map_err(|_| format!("{what} has {} where a number belongs", Quoted(number)))
}

/// A finite number between two bounds, both allowed.
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
