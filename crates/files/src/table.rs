//! Tables as Parquet files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ArrowWriter};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use crate::FileError;
use crate::atomic_write::write_error;
use crate::path_file::METADATA_KEY;

/// Column of a table, with its name. The values have a validity bitmap if and only if `nullable` is true.
#[derive(Debug)]
pub struct Column {
    /// Name of the column, which contains the unit of its values.
    pub name: String,
    /// Whether values may be missing.
    pub nullable: bool,
    /// Values of all rows.
    pub values: ArrayRef,
}

impl Column {
    /// Create a column without missing values.
    pub fn required(name: impl Into<String>, values: impl arrow_array::Array + 'static) -> Self {
        Self { name: name.into(), nullable: false, values: Arc::new(values) }
    }

    /// Create a column whose values may be missing.
    pub fn optional(name: impl Into<String>, values: impl arrow_array::Array + 'static) -> Self {
        Self { name: name.into(), nullable: true, values: Arc::new(values) }
    }
}

/// Assemble `columns` into one batch; `metadata` becomes an entry of its schema.
///
/// # Errors
/// The columns differ in length.
pub fn record_batch(
    columns: Vec<Column>,
    metadata: Option<&(&str, String)>,
) -> Result<RecordBatch, ArrowError> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|c| Field::new(c.name.clone(), c.values.data_type().clone(), c.nullable))
        .collect();
    let in_schema = metadata.iter().map(|(key, json)| ((*key).to_owned(), json.clone())).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, in_schema));
    RecordBatch::try_new(schema, columns.into_iter().map(|column| column.values).collect())
}

/// Return the bytes of a Parquet file with `columns` and one optional metadata entry.
///
/// # Errors
/// The columns differ in length.
pub fn table_bytes(
    columns: Vec<Column>,
    metadata: Option<(&str, String)>,
) -> Result<Vec<u8>, ParquetError> {
    // The entry is stored twice: some readers look for it in the Arrow schema, others in the file's
    // own metadata.
    let batch = record_batch(columns, metadata.as_ref())?;
    let entries = metadata.map(|(key, json)| vec![KeyValue::new(key.to_owned(), json)]);
    let properties = written_with(entries);
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.into_inner()
}

/// Whether a file is a Parquet file that skyhop has written: it has the metadata entry `skyhop`.
pub fn is_own_table(path: &Path) -> bool {
    let opened = File::open(path).ok().and_then(|file| SerializedFileReader::new(file).ok());
    let is_own = |file: SerializedFileReader<File>| {
        let entries = file.metadata().file_metadata().key_value_metadata()?;
        Some(entries.iter().any(|entry| entry.key == METADATA_KEY))
    };
    opened.and_then(is_own).unwrap_or(false)
}

/// How a column's values are encoded in a Parquet file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnEncoding {
    /// Numbers into a table of the distinct values, for columns with few of these.
    Dictionary,
    /// Differences between successive integers.
    Differences,
    /// The first bytes of all values, then the second ones, and so on: for numbers with many zero bits.
    SplitBytes,
    /// The values one after the other.
    Plain,
}

/// Return the bytes of a compressed Parquet file with `batches`, one row group without a copy of the Arrow schema.
///
/// # Errors
/// An encoding does not fit its column's type.
pub fn encoded_table_bytes(
    schema: SchemaRef,
    batches: &[RecordBatch],
    encodings: &[(String, ColumnEncoding)],
) -> Result<Vec<u8>, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(None);
    for (name, encoding) in encodings {
        let column = ColumnPath::from(name.clone());
        properties = match encoding {
            ColumnEncoding::Dictionary => properties.set_column_dictionary_enabled(column, true),
            other => {
                let encoding = match other {
                    ColumnEncoding::Differences => Encoding::DELTA_BINARY_PACKED,
                    ColumnEncoding::SplitBytes => Encoding::BYTE_STREAM_SPLIT,
                    _ => Encoding::PLAIN,
                };
                properties
                    .set_column_dictionary_enabled(column.clone(), false)
                    .set_column_encoding(column, encoding)
            }
        };
    }
    let options = ArrowWriterOptions::new()
        .with_properties(properties.build())
        .with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), schema, options)?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.into_inner()
}

/// Largest number of row groups in a file that [`concatenate`] writes: Parquet allows 32,767, and readers
/// keep the metadata of all row groups in memory.
const MOST_GROUPS: usize = 4096;

/// Write the rows of `parts`, one part after the other, to the new file `output`. The parts are Parquet files
/// with one row group each and the same columns. Row groups are copied unchanged, unless there would be too
/// many; then several are merged into one.
///
/// # Errors
/// A part cannot be read, or the file cannot be written.
pub fn concatenate(parts: &[impl AsRef<Path>], output: &Path) -> Result<(), FileError> {
    let Some(first) = parts.first() else { return Ok(()) };
    let written = match parts.len().div_ceil(MOST_GROUPS) {
        1 => copied(first.as_ref(), parts, output),
        together => merged(first.as_ref(), parts.chunks(together), output),
    };
    written.map_err(|error| write_error(output, error))
}

fn copied(first: &Path, parts: &[impl AsRef<Path>], output: &Path) -> Result<(), ParquetError> {
    let head = SerializedFileReader::new(File::open(first)?)?;
    let schema = head.metadata().file_metadata().schema_descr().root_schema_ptr();
    let entries = head.metadata().file_metadata().key_value_metadata().cloned();
    let properties = WriterProperties::builder().set_key_value_metadata(entries).build();
    let mut writer =
        SerializedFileWriter::new(File::create(output)?, schema, Arc::new(properties))?;
    for part in parts {
        append(&mut writer, part.as_ref())?;
    }
    writer.close().map(drop)
}

/// Write the rows of each group of parts as one row group.
fn merged<'p, P: AsRef<Path> + 'p>(
    first: &Path,
    groups: impl Iterator<Item = &'p [P]>,
    output: &Path,
) -> Result<(), ParquetError> {
    let reader = |part: &Path| ParquetRecordBatchReaderBuilder::try_new(File::open(part)?);
    let head = reader(first)?;
    let entries = head.metadata().file_metadata().key_value_metadata().cloned();
    let arrow_schema = |entry: &KeyValue| entry.key == ARROW_SCHEMA_META_KEY;
    let entries = entries.map(|all| all.into_iter().filter(|entry| !arrow_schema(entry)).collect());
    let properties = written_with(entries);
    let mut writer =
        ArrowWriter::try_new(File::create(output)?, Arc::clone(head.schema()), Some(properties))?;
    for group in groups {
        for part in group {
            for batch in reader(part.as_ref())?.build()? {
                writer.write(&batch?)?;
            }
        }
        writer.flush()?;
    }
    writer.close().map(drop)
}

fn written_with(entries: Option<Vec<KeyValue>>) -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(entries)
        .build()
}

fn append(writer: &mut SerializedFileWriter<File>, part: &Path) -> Result<(), ParquetError> {
    let file = File::open(part)?;
    let reader = SerializedFileReader::new(file.try_clone()?)?;
    for group in reader.metadata().row_groups() {
        let mut copied = writer.next_row_group()?;
        for column in group.columns() {
            let closed = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            copied.append_column(&file, closed)?;
        }
        copied.close()?;
    }
    Ok(())
}
