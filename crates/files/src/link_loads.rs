//! Loads of links in a run's table link.parquet: the bytes that each carried, sample by sample.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray};

use crate::FileError;
use crate::untrusted_table::{TableError, UntrustedTable};

/// Columns of the table that are read.
const COLUMNS: [&str; 5] = ["t_ns", "link", "direction", "delivered_bytes", "background_bytes"];
/// Largest size of these columns in memory.
const MOST_BYTES: u64 = 2_000_000_000;

/// Bytes that one direction of a link carried during a sample of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkBytes {
    /// End of the sample in ns after the run's start.
    pub until_ns: u64,
    /// Name of the link.
    pub link: String,
    /// Whether the direction is back.
    pub is_back: bool,
    /// Wire bytes, with those of a background.
    pub bytes: u64,
}

/// Read the bytes of all links from a table link.parquet.
///
/// # Errors
/// The file cannot be read, is damaged, or is another table.
pub fn read_link_bytes(path: &Path) -> Result<Vec<LinkBytes>, FileError> {
    let file =
        File::open(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    let damaged =
        |error: TableError| FileError::Damaged { path: path.to_owned(), reason: error.to_string() };
    let table = UntrustedTable::open(file).map_err(damaged)?;
    let batches = table.read(&COLUMNS.map(str::to_owned), MOST_BYTES).map_err(damaged)?;
    let rows = batches.iter().map(rows).collect::<Result<Vec<_>, _>>().map_err(damaged)?;
    Ok(rows.into_iter().flatten().collect())
}

/// Rows of a batch.
fn rows(batch: &RecordBatch) -> Result<Vec<LinkBytes>, TableError> {
    let [until, delivered, background] =
        [COLUMNS[0], COLUMNS[3], COLUMNS[4]].map(|name| numbers(batch, name));
    let (until, delivered, background) = (until?, delivered?, background?);
    let (link, direction) = (texts(batch, COLUMNS[1])?, texts(batch, COLUMNS[2])?);
    let number = |name: &str, column: &Int64Array, row: usize| {
        let wrong = || TableError::Damaged(format!("{name}: expected numbers, 0 or more"));
        u64::try_from(column.value(row)).map_err(|_| wrong())
    };
    let row = |row: usize| {
        let is_back = match direction.value(row) {
            "forward" => false,
            "back" => true,
            _ => {
                let what = "direction: expected forward or back".to_owned();
                return Err(TableError::Damaged(what));
            }
        };
        let [own, other] =
            [number(COLUMNS[3], delivered, row)?, number(COLUMNS[4], background, row)?];
        Ok(LinkBytes {
            until_ns: number(COLUMNS[0], until, row)?,
            link: link.value(row).to_owned(),
            is_back,
            bytes: own.saturating_add(other),
        })
    };
    (0..batch.num_rows()).map(row).collect()
}

fn numbers<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b Int64Array, TableError> {
    let column = batch.column_by_name(name);
    let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.ok_or_else(|| TableError::Damaged(format!("{name}: expected a column of whole numbers")))
}

fn texts<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b StringArray, TableError> {
    let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| TableError::Damaged(format!("{name}: expected a column of texts")))
}
