//! Reading of Parquet tables from untrusted files, within a limit of memory.
//!
//! Repeated values take almost no room in a file, so that a file of some kilobytes may expand to gigabytes: the sizes in
//! the footer are checked before columns are decoded, and the size of texts before their dictionaries are expanded.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader, StringArray,
};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader;
use skyhop_model::thousands;

use crate::path_file::{METADATA_KEY, catch_panic_silently};

/// Rows of a batch.
const ROWS_AT_ONCE: usize = 1 << 16;

/// Reason why a table cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TableError {
    /// The columns take more memory than allowed.
    #[error("{} rows take {:.1} GB of memory; at most {} GB", thousands(*rows), gigabytes(*bytes), gigabytes(*most_bytes))]
    TooLarge {
        /// Number of rows of the table.
        rows: u64,
        /// Size of the columns in memory, in bytes.
        bytes: u64,
        /// Allowed size, in bytes.
        most_bytes: u64,
    },
    /// The content is not a table, or not one of the expected columns.
    #[error("{0}")]
    Damaged(String),
}

/// Parquet file that is not yet known to be valid; opening it reads only the footer.
#[derive(Debug)]
pub struct UntrustedTable<R> {
    source: R,
    metadata: ArrowReaderMetadata,
}

impl<R: ChunkReader + 'static> UntrustedTable<R> {
    /// Read the footer of a file.
    ///
    /// # Errors
    /// [`TableError::Damaged`] for a file that is not Parquet.
    pub fn open(source: R) -> Result<Self, TableError> {
        decoding(|| {
            // Types derive from the Parquet schema alone: writers may add an Arrow schema that contradicts it.
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let metadata = ArrowReaderMetadata::load(&source, options)?;
            Ok(Self { source, metadata })
        })
    }

    /// Names of the columns, in the order of the file.
    pub fn columns(&self) -> Vec<String> {
        self.metadata.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Number of rows according to the footer; 0 for a negative one.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// JSON text that skyhop's files carry as metadata.
    pub fn header(&self) -> Option<&str> {
        let entries = self.metadata.metadata().file_metadata().key_value_metadata()?;
        entries.iter().find(|entry| entry.key == METADATA_KEY)?.value.as_deref()
    }

    /// Read those columns of `names` that the file has, in its order; each has one value per row. The result has at least
    /// one batch.
    ///
    /// # Errors
    /// The columns take more than `most_bytes` of memory, are damaged, or hold lists.
    pub fn read(self, names: &[String], most_bytes: u64) -> Result<Vec<RecordBatch>, TableError> {
        let schema = self.metadata.schema();
        let chosen: Vec<usize> = (0..schema.fields().len())
            .filter(|place| names.contains(schema.field(*place).name()))
            .collect();
        for (index, place) in chosen.iter().enumerate() {
            let field = schema.field(*place);
            if chosen[..index].iter().any(|other| schema.field(*other).name() == field.name()) {
                return Err(TableError::Damaged(format!("two columns \"{}\"", field.name())));
            }
            self.check_column(field)?;
        }
        let is_chosen = |column: &ColumnChunkMetaData| {
            column.column_path().parts().first().is_some_and(|name| names.contains(name))
        };
        check_size(self.rows(), self.declared_bytes(is_chosen), most_bytes)?;
        let rows = self.rows();
        let options = ArrowReaderOptions::new().with_schema(with_dictionaries(schema));
        let batches = self.batches(options, Some(chosen))?;
        let texts: u64 = batches.iter().flat_map(RecordBatch::columns).map(text_bytes).sum();
        let values: u64 = batches.iter().map(|b| 8 * (b.num_rows() * b.num_columns()) as u64).sum();
        check_size(rows, values + texts, most_bytes)?;
        decoding(|| batches.iter().map(expanded).collect::<Result<_, _>>())
    }

    /// Read all columns, which have the types of `expected` (whether values may be missing is ignored). The
    /// result has at least one batch.
    ///
    /// # Errors
    /// The columns take more than `most_bytes` of memory, are damaged, or have other types.
    pub fn read_as(
        self,
        expected: &Schema,
        most_bytes: u64,
    ) -> Result<Vec<RecordBatch>, TableError> {
        let fields = self.metadata.schema().fields();
        if fields.len() != expected.fields().len()
            || !fields.iter().zip(expected.fields()).all(|(found, wanted)| {
                found.name() == wanted.name() && same_type(found.data_type(), wanted.data_type())
            })
        {
            return Err(TableError::Damaged("it has other columns".to_owned()));
        }
        check_size(self.rows(), self.declared_bytes(|_| true), most_bytes)?;
        self.batches(ArrowReaderOptions::new().with_skip_arrow_metadata(true), None)
    }

    fn batches(
        self,
        options: ArrowReaderOptions,
        columns: Option<Vec<usize>>,
    ) -> Result<Vec<RecordBatch>, TableError> {
        decoding(|| {
            let metadata = ArrowReaderMetadata::try_new(self.metadata.metadata().clone(), options)?;
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.source, metadata);
            let mask = match columns {
                Some(places) => ProjectionMask::roots(builder.parquet_schema(), places),
                None => ProjectionMask::all(),
            };
            let reader = builder.with_projection(mask).with_batch_size(ROWS_AT_ONCE).build()?;
            let schema = reader.schema();
            let mut batches = reader.collect::<Result<Vec<_>, _>>()?;
            if batches.is_empty() {
                batches.push(RecordBatch::new_empty(schema));
            }
            Ok(batches)
        })
    }

    fn check_column(&self, field: &Field) -> Result<(), TableError> {
        let (name, kind) = (field.name(), field.data_type());
        let is_prefix_encoded = |column: &ColumnChunkMetaData| {
            // A few bytes may be many long texts, each of which extends the one before.
            column.column_path().parts() == [name.clone()]
                && column.encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY)
        };
        if kind.is_nested() || self.chunks().any(is_prefix_encoded) {
            let why = format!("{name}: expected one value a row, plain or of a dictionary");
            return Err(TableError::Damaged(why));
        }
        if kind.is_primitive()
            || matches!(kind, DataType::Utf8 | DataType::Boolean | DataType::Null)
        {
            return Ok(());
        }
        Err(TableError::Damaged(format!("{name}: expected numbers, texts or booleans, not {kind}")))
    }

    fn chunks(&self) -> impl Iterator<Item = &ColumnChunkMetaData> {
        self.metadata.metadata().row_groups().iter().flat_map(|group| group.columns())
    }

    /// Size in bytes of the columns' values according to the footer; an entry of a dictionary counts once.
    fn declared_bytes(&self, is_chosen: impl Fn(&ColumnChunkMetaData) -> bool) -> u64 {
        let bytes = |column: &ColumnChunkMetaData| {
            let [values, bytes] = [column.num_values(), column.uncompressed_size()]
                .map(|count| u64::try_from(count).unwrap_or(0));
            values.saturating_mul(8).max(bytes)
        };
        self.chunks().filter(|c| is_chosen(c)).map(bytes).fold(0, u64::saturating_add)
    }
}

fn check_size(rows: u64, bytes: u64, most_bytes: u64) -> Result<(), TableError> {
    if bytes <= most_bytes { Ok(()) } else { Err(TableError::TooLarge { rows, bytes, most_bytes }) }
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Call a decoder. Decoders trust the lengths in a file: damaged ones may make them panic rather than fail.
fn decoding<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, TableError> {
    let damaged = |reason: String| TableError::Damaged(reason);
    catch_panic_silently(AssertUnwindSafe(decode))
        .map_err(|_| damaged("its content contradicts itself".to_owned()))?
        .map_err(|error| damaged(error.to_string()))
}

/// Return the schema with texts as dictionaries, which take no more memory than in the file.
fn with_dictionaries(schema: &Schema) -> SchemaRef {
    let texts = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8 => Arc::new(field.as_ref().clone().with_data_type(texts.clone())),
        _ => Arc::clone(field),
    });
    Arc::new(Schema::new(fields.collect::<Fields>()))
}

/// Size of a dictionary column's texts in bytes, with one text per row; 0 for another column.
fn text_bytes(column: &ArrayRef) -> u64 {
    let Some(column) = column.as_dictionary_opt::<Int32Type>() else { return 0 };
    let texts = column.values().as_string::<i32>();
    column.keys_iter().flatten().map(|key| u64::from(texts.value_length(key).unsigned_abs())).sum()
}

/// Return a batch with its dictionary columns expanded to one text per row.
fn expanded(batch: &RecordBatch) -> Result<RecordBatch, ParquetError> {
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let texts = column.as_dictionary_opt::<Int32Type>();
        let texts = texts.and_then(|column| column.downcast_dict::<StringArray>());
        let column: ArrayRef = match texts {
            Some(texts) => Arc::new(texts.into_iter().collect::<StringArray>()),
            None => Arc::clone(column),
        };
        fields.push(field.as_ref().clone().with_data_type(column.data_type().clone()));
        columns.push(column);
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &rows)?)
}

/// Whether two types are equal; names of lists' items and whether values may be missing are ignored.
fn same_type(found: &DataType, wanted: &DataType) -> bool {
    match (found, wanted) {
        (DataType::List(found), DataType::List(wanted)) => {
            same_type(found.data_type(), wanted.data_type())
        }
        (DataType::Struct(found), DataType::Struct(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| {
                    found.name() == wanted.name()
                        && same_type(found.data_type(), wanted.data_type())
                })
        }
        _ => found == wanted,
    }
}
