//! One table of a run that grows: rows are written in segments as they come, each a whole Parquet
//! file, and put together at the end.

use std::fs;
use std::path::{Path, PathBuf};

use skyhop_files::{
    Column, FileError, concatenate, file_beside, put_in_place, table_bytes, write_error,
};

use crate::SCHEMA_VERSION;

/// At most this many rows are kept in memory …
const MOST_ROWS: usize = 16_384;
/// … and this many if the first of them is `LONGEST_NS` of the run's time older than the last.
const FEW_ROWS: usize = 1_024;
const LONGEST_NS: i64 = 60_000_000_000;

/// A table's segments in a directory: `NAME.PART.NUMBER.parquet`.
#[derive(Debug)]
pub(crate) struct Segments<R> {
    directory: PathBuf,
    name: &'static str,
    /// What sorts before and after other parts of the same table.
    part: u32,
    rows: Vec<R>,
    written: Vec<PathBuf>,
}

impl<R> Segments<R> {
    pub(crate) fn new(directory: &Path, name: &'static str, part: u32) -> Self {
        Self { directory: directory.to_owned(), name, part, rows: Vec::new(), written: Vec::new() }
    }

    /// Adds rows; writes a segment where there are enough. `t_ns` is a row's time.
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

    /// Writes what is left; the files that hold the table's rows, in order.
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
        put_in_place(file_beside(&file, &bytes)?, &file)?;
        self.rows.clear();
        self.written.push(file);
        Ok(())
    }
}

/// Puts the segments of one table together in `whole`, and removes them.
pub(crate) fn join(segments: &[PathBuf], whole: &Path) -> Result<(), FileError> {
    if let [only] = segments {
        return fs::rename(only, whole).map_err(|e| write_error(whole, e));
    }
    concatenate(segments, whole)?;
    segments.iter().try_for_each(|file| fs::remove_file(file).map_err(|e| write_error(file, e)))
}
