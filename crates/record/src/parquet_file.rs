//! Writing one table to one Parquet file, whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::RecordError;

/// A named column; nullable exactly when `nullable`.
pub(crate) struct Column {
    pub name: String,
    pub nullable: bool,
    pub values: ArrayRef,
}

impl Column {
    pub fn required(name: impl Into<String>, values: impl arrow_array::Array + 'static) -> Self {
        Self { name: name.into(), nullable: false, values: Arc::new(values) }
    }

    pub fn optional(name: impl Into<String>, values: impl arrow_array::Array + 'static) -> Self {
        Self { name: name.into(), nullable: true, values: Arc::new(values) }
    }
}

/// The bytes of a Parquet file with `columns` and one optional metadata entry.
pub(crate) fn table_bytes(
    columns: Vec<Column>,
    metadata: Option<(&str, String)>,
) -> Result<Vec<u8>, ParquetError> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|c| Field::new(c.name.clone(), c.values.data_type().clone(), c.nullable))
        .collect();
    // Twice: readers look for it in the Arrow schema or in the file's own metadata.
    let in_schema = metadata.iter().map(|(key, json)| ((*key).to_owned(), json.clone())).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, in_schema));
    let arrays = columns.into_iter().map(|column| column.values).collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays)?;
    let entries = metadata.map(|(key, json)| vec![KeyValue::new(key.to_owned(), json)]);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(entries)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties))?;
    writer.write(&batch)?;
    writer.into_inner()
}

/// Writes a Parquet file, whole or not at all.
pub(crate) fn write_table(path: &Path, columns: Vec<Column>) -> Result<(), RecordError> {
    let bytes = table_bytes(columns, None).map_err(|e| write_error(path, e))?;
    replace_file(path, &bytes)
}

/// Writes `path` through a temporary file beside it, so that it is whole or as it was before.
///
/// # Errors
/// [`RecordError::Write`] with the system's reason, or `path` is something else than a file.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    // A link's target is replaced, not the link; and only files are: nobody means to replace a device.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if target.exists() && !target.is_file() {
        return Err(RecordError::NotAFile { path: path.to_owned() });
    }
    let temporary = temporary_beside(&target);
    let attempt = File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, &target));
    if attempt.is_err() {
        remove_leftover(&temporary);
    }
    attempt.map_err(|e| write_error(path, e))
}

/// A name in the same directory that no finished result has.
pub(crate) fn temporary_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.partial-{}", std::process::id()))
}

/// Removes what an attempt left; that it never came to exist is fine, and the attempt's own error
/// says more than this one's would.
pub(crate) fn remove_leftover(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        debug_assert!(error.kind() == io::ErrorKind::NotFound, "{}: {error}", path.display());
    }
}

pub(crate) fn write_error(path: &Path, reason: impl std::fmt::Display) -> RecordError {
    RecordError::Write { path: path.to_owned(), reason: reason.to_string() }
}
