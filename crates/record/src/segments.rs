//! Segments of a run's growing table. During the run, rows are written to segments, each of which is a
//! valid Parquet file; at the end the segments are joined.

use std::fs;
use std::path::{Path, PathBuf};

use skyhop_files::{Column, FileError, concatenate, table_bytes, write_error, write_staged};

use crate::SCHEMA_VERSION;

/// Largest number of rows kept in memory …
const MOST_ROWS: usize = 16_384;
/// … and the smaller number from which on rows are written if they span at least `LONGEST_NS` of
/// the run's time.
const FEW_ROWS: usize = 1_024;
const LONGEST_NS: i64 = 60_000_000_000;

/// Segments of a table in a directory: `NAME.PART.NUMBER.parquet`.
#[derive(Debug)]
pub(crate) struct Segments<R> {
    directory: PathBuf,
    name: &'static str,
    /// Number that orders this part among other parts of the same table.
    part: u32,
    rows: Vec<R>,
    written: Vec<PathBuf>,
}

impl<R> Segments<R> {
    pub(crate) fn new(directory: &Path, name: &'static str, part: u32) -> Self {
        Self { directory: directory.to_owned(), name, part, rows: Vec::new(), written: Vec::new() }
    }

    /// Add rows, and write a segment if there are enough rows. `t_ns` returns the time of a row.
    pub(crate) fn add(
        &mut self,
        rows: Vec<R>,
        t_ns: impl Fn(&R) -> i64,
        columns: impl Fn(&[R]) -> Vec<Column>,
    ) -> Result<(), FileError> {
        self.rows.extend(rows);
        let span_ns = match (self.rows.first(), self.rows.last()) {
            (Some(first), Some(last)) => t_ns(last) - t_ns(first),
            _ => 0,
        };
        let is_old = self.rows.len() >= FEW_ROWS && span_ns >= LONGEST_NS;
        if self.rows.len() >= MOST_ROWS || is_old { self.write(columns) } else { Ok(()) }
    }

    /// Write the remaining rows; return the files that contain the table's rows, in order.
    pub(crate) fn finish(
        mut self,
        columns: impl Fn(&[R]) -> Vec<Column>,
    ) -> Result<Vec<PathBuf>, FileError> {
        if !self.rows.is_empty() || self.written.is_empty() {
            self.write(columns)?;
        }
        Ok(self.written)
    }

    fn write(&mut self, columns: impl Fn(&[R]) -> Vec<Column>) -> Result<(), FileError> {
        let (name, part, number) = (self.name, self.part, self.written.len());
        let file = self.directory.join(format!("{name}.{part:06}.{number:06}.parquet"));
        let schema = Some(("skyhop", format!("{{\"schema\":{SCHEMA_VERSION}}}")));
        let bytes = table_bytes(columns(&self.rows), schema).map_err(|e| write_error(&file, e))?;
        write_staged(&file, &bytes)?;
        self.rows.clear();
        self.written.push(file);
        Ok(())
    }
}

/// Join the segments of one table into the file `joined`, and remove the segments.
pub(crate) fn join(segments: &[PathBuf], joined: &Path) -> Result<(), FileError> {
    if let [only] = segments {
        return fs::rename(only, joined).map_err(|e| write_error(joined, e));
    }
    concatenate(segments, joined)?;
    segments.iter().try_for_each(|file| fs::remove_file(file).map_err(|e| write_error(file, e)))
}
