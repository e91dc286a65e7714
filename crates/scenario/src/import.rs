//! Other tools' logs as paths: opens the file, chooses the parser.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use skyhop_path::PathTrace;
use skyhop_path::import::{LeoemLogOptions, parse_leoem_log};

use crate::ScenarioError;

/// The formats that [`import_log`] reads.
pub const FORMATS: [&str; 1] = ["leoem"];

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads a log, plain or gzipped, in one of [`FORMATS`].
///
/// # Errors
/// An unknown format, a file that cannot be read, and whatever is wrong with the log, with its line.
pub fn import_log(path: &Path, format: &str) -> Result<PathTrace, ScenarioError> {
    let origin = path.display().to_string();
    match format {
        "leoem" => parse_leoem_log(open(path)?, &LeoemLogOptions::default())
            .map_err(|error| ScenarioError::Log { origin, what: error.to_string() }),
        _ => {
            let known = FORMATS.join(", ");
            let what = format!("\"{format}\" is not a format of this version; expected {known}");
            Err(ScenarioError::key(&origin, "--format", what))
        }
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, ScenarioError> {
    let wrong = |source| ScenarioError::Read { path: path.to_owned(), source };
    let mut reader = BufReader::new(File::open(path).map_err(wrong)?);
    let gzipped = reader.fill_buf().map_err(wrong)?.starts_with(&GZIP_MAGIC);
    let plain: Box<dyn Read> =
        if gzipped { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) };
    Ok(Box::new(BufReader::new(plain)))
}
