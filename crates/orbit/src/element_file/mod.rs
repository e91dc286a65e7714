//! Files of element sets: TLE with two or three lines, OMM as JSON, CSV, XML or KVN; plain or gzip.
//!
//! The format is determined by the content, not by the file's name. A record that cannot be used is skipped
//! and reported ([`Skipped`]); a file of another kind is an error.

mod omm;
mod record_report;
mod selection;
mod tle;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use skyhop_model::{one_line, other_kind};
use skyhop_units::{Quoted, is_shown};
use thiserror::Error;

use crate::ElementSet;

pub use record_report::{RecordReport, SkipReason, Skipped};
pub use selection::{FilterError, SatelliteFilter, Selection, SelectionError};

/// Maximum size of the text, in bytes: the whole public catalogue as OMM in XML has about 60 MB.
const MOST_BYTES: u64 = 128_000_000;
/// Maximum number of records: the whole public catalogue has about 35,000.
const MOST_RECORDS: usize = 200_000;
/// Maximum length of a satellite's name, in characters; catalogues use 24.
const LONGEST_NAME: usize = 80;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Contents of a file of element sets.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementFile {
    /// Name of the file.
    pub file: String,
    /// Element sets in the file's order.
    pub sets: Vec<ElementSet>,
    /// Records that are not valid element sets, in the file's order.
    pub skipped: Vec<Skipped>,
}

/// Reason for which a file of element sets cannot be used at all.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ElementFileError {
    /// The file cannot be opened or read, or its compression is damaged.
    #[error("cannot read the element sets {file}: {source}")]
    Read { file: String, source: io::Error },
    /// The file is far larger than any catalogue.
    #[error("{file} has more than {} MB of text; expected a TLE or OMM file", MOST_BYTES / 1_000_000)]
    TooLarge { file: String },
    /// The file has far more records than any catalogue.
    #[error("{file} has more than {MOST_RECORDS} records; expected a TLE or OMM file")]
    TooMany { file: String },
    /// The file is a web page, most often a server's error message.
    #[error("{file} is a web page (HTML), not a TLE or OMM file; is the address right?")]
    Html { file: String },
    /// The file is of a kind that is not read, such as a compressed one.
    #[error("{file} {what}")]
    OtherKind { file: String, what: &'static str },
    /// The text begins like an OMM but is damaged.
    #[error("{file} is not a whole OMM {format}: {what}")]
    Syntax { file: String, format: &'static str, what: String },
    /// The file has no records.
    #[error("{file} holds no element sets; it begins with {}", Quoted(beginning))]
    Nothing { file: String, beginning: String },
}

/// Result of parsing a record.
type Record = Result<ElementSet, Skipped>;

impl ElementFile {
    /// Read a file of element sets, plain or compressed with gzip.
    ///
    /// # Errors
    /// The file cannot be read, is far too large, or is of another kind.
    pub fn load(path: &Path) -> Result<Self, ElementFileError> {
        let file = path.display().to_string();
        let wrong = |source| ElementFileError::Read { file: file.clone(), source };
        let mut reader = BufReader::new(File::open(path).map_err(wrong)?);
        let gzipped = reader.fill_buf().map_err(wrong)?.starts_with(&GZIP_MAGIC);
        let mut bytes = Vec::new();
        let read = if gzipped {
            MultiGzDecoder::new(reader).take(MOST_BYTES + 1).read_to_end(&mut bytes)
        } else {
            reader.take(MOST_BYTES + 1).read_to_end(&mut bytes)
        };
        read.map_err(wrong)?;
        Self::parse(&bytes, &file)
    }

    /// Parse the uncompressed bytes of a file; `file` is its name for messages.
    ///
    /// # Errors
    /// The errors of [`ElementFile::load`], except those of reading.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, ElementFileError> {
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ElementFileError::TooLarge { file: file.to_owned() });
        }
        if let Some(what) = other_kind(bytes) {
            return Err(ElementFileError::OtherKind { file: file.to_owned(), what });
        }
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_start_matches('\u{feff}');
        let format = Format::detect(text);
        let mut records = Records::new(file);
        let read = match format {
            Format::Html => return Err(ElementFileError::Html { file: file.to_owned() }),
            Format::Tle => tle::read(text, &mut records),
            Format::Json => omm::read_json(text, &mut records),
            Format::Csv => omm::read_csv(text, &mut records),
            Format::Xml => omm::read_xml(text, &mut records),
            Format::Kvn => omm::read_kvn(text, &mut records),
        };
        read?;
        if records.sets.is_empty() && records.skipped.is_empty() {
            let beginning = text.trim_start().lines().next().unwrap_or_default();
            let beginning = beginning.chars().take(100).collect();
            return Err(ElementFileError::Nothing { file: file.to_owned(), beginning });
        }
        Ok(Self { file: file.to_owned(), sets: records.sets, skipped: records.skipped })
    }

    /// Whether the first kilobytes of a file look like element sets, rather than a constellation's TOML.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_likely(path: &Path) -> io::Result<bool> {
        let mut reader = BufReader::new(File::open(path)?);
        if reader.fill_buf()?.starts_with(&GZIP_MAGIC) {
            return Ok(true);
        }
        let mut bytes = Vec::new();
        reader.take(4_096).read_to_end(&mut bytes)?;
        if other_kind(&bytes).is_some() {
            return Ok(true);
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(match Format::detect(&text) {
            // TOML has lines "key = value", which a TLE does not have, and "[[shell]]", with which JSON does not begin.
            Format::Tle => !text.lines().any(|line| line.contains(" = ")),
            Format::Json => !text.trim_start().starts_with("[["),
            _ => true,
        })
    }
}

/// Sanitise the name of a satellite for display: remove control and formatting characters, and
/// limit the length.
fn printable_name(name: &str) -> String {
    name.chars().filter(|letter| is_shown(*letter)).take(LONGEST_NAME).collect()
}

/// Collector of the records that a parser finds.
struct Records<'f> {
    file: &'f str,
    sets: Vec<ElementSet>,
    skipped: Vec<Skipped>,
}

impl<'f> Records<'f> {
    fn new(file: &'f str) -> Self {
        Self { file, sets: Vec::new(), skipped: Vec::new() }
    }

    fn add(&mut self, record: Record) -> Result<(), ElementFileError> {
        match record {
            Ok(set) => self.sets.push(set),
            Err(skipped) => self.skipped.push(skipped),
        }
        if self.sets.len() + self.skipped.len() > MOST_RECORDS {
            return Err(ElementFileError::TooMany { file: self.file.to_owned() });
        }
        Ok(())
    }

    fn damaged(&self, format: &'static str, what: &dyn std::fmt::Display) -> ElementFileError {
        let what = one_line(&what.to_string());
        ElementFileError::Syntax { file: self.file.to_owned(), format, what }
    }
}

/// Format of a text, detected from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Tle,
    Json,
    Csv,
    Xml,
    Kvn,
    Html,
}

impl Format {
    fn detect(text: &str) -> Self {
        let start: String = text.trim_start().chars().take(2_000).collect();
        let start = start.to_ascii_lowercase();
        let header = start.lines().next().unwrap_or_default();
        match start.chars().next() {
            Some('<') if start.contains("<ndm") || start.contains("<omm") => Self::Xml,
            Some('<') if start.starts_with("<?xml") && !start.contains("<html") => Self::Xml,
            Some('<') => Self::Html,
            Some('[' | '{') => Self::Json,
            _ if header.starts_with("ccsds_omm_vers") => Self::Kvn,
            _ if header.contains("mean_motion") && header.contains(',') => Self::Csv,
            _ => Self::Tle,
        }
    }
}
