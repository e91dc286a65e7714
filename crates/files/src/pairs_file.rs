//! File of the routes between all pairs of sites: one Parquet file with a row per step, written step by step.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::builder::{ArrayBuilder, Int32Builder, Int64Builder, ListBuilder, StructBuilder};
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use skyhop_path::all_pairs::{DelayEncoder, PairsStep};

use crate::FileError;
use crate::atomic_write::{TemporaryFile, put_in_place, temporary_file_for, write_error};
use crate::path_file::METADATA_KEY;

/// Value of the key `source` in the header of a file of all pairs.
pub const PAIRS_SOURCE: &str = "skyhop all pairs";

/// Number of steps that are kept in memory and written together.
const STEPS_AT_ONCE: usize = 256;

/// Writer of a file of all pairs. If it is dropped before [`PairsWriter::finish`] has succeeded, it
/// removes the unfinished file.
///
/// Columns: `t_ns` int64; `delay_dd_ns` list<int64>, per pair the second difference of the one-way delay over
/// the steps (a delay of 0 means no path); `changes` list<struct<pair int32, nodes list<int32>>>, the routes
/// that differ from the step before.
pub struct PairsWriter {
    path: PathBuf,
    file: TemporaryFile,
    writer: ArrowWriter<File>,
    encoder: DelayEncoder,
    rows: Rows,
}

struct Rows {
    t_ns: Int64Builder,
    delays: ListBuilder<Int64Builder>,
    changes: ListBuilder<StructBuilder>,
}

impl PairsWriter {
    /// Create a file whose metadata entry `skyhop` is `header`, a JSON text.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, header: String) -> Result<Self, FileError> {
        let file = temporary_file_for(path)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_key_value_metadata(Some(vec![KeyValue::new(METADATA_KEY.to_owned(), header)]))
            .set_column_dictionary_enabled(delay_column(), false)
            .set_column_encoding(delay_column(), Encoding::DELTA_BINARY_PACKED)
            .build();
        let handle = file.as_file().try_clone().map_err(|e| write_error(path, e))?;
        let writer = ArrowWriter::try_new(handle, pairs_schema(), Some(properties))
            .map_err(|e| write_error(path, e))?;
        let (path, encoder) = (path.to_owned(), DelayEncoder::default());
        Ok(Self { path, file, writer, encoder, rows: Rows::new() })
    }

    /// Append the routes of a step.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, step: &PairsStep) -> Result<(), FileError> {
        self.rows.push(step, &self.encoder.encode(&step.delays));
        if self.rows.t_ns.len() == STEPS_AT_ONCE { self.flush() } else { Ok(()) }
    }

    /// Write the remaining rows and rename the file to its place.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.flush()?;
        self.writer.close().map_err(|e| write_error(&self.path, e))?;
        put_in_place(self.file, &self.path)
    }

    fn flush(&mut self) -> Result<(), FileError> {
        let batch = self.rows.batch().map_err(|e| write_error(&self.path, e))?;
        let written = self.writer.write(&batch).and_then(|()| self.writer.flush());
        written.map_err(|e| write_error(&self.path, e))
    }
}

impl Rows {
    fn new() -> Self {
        let change = StructBuilder::new(
            change_fields(),
            vec![
                Box::new(Int32Builder::new()),
                Box::new(ListBuilder::new(Int32Builder::new()).with_field(item(DataType::Int32))),
            ],
        );
        Self {
            t_ns: Int64Builder::new(),
            delays: ListBuilder::new(Int64Builder::new()).with_field(item(DataType::Int64)),
            changes: ListBuilder::new(change).with_field(item(DataType::Struct(change_fields()))),
        }
    }

    fn push(&mut self, step: &PairsStep, differences_ns: &[i64]) {
        const BUILT_ABOVE: &str = "the builder has this field";
        self.t_ns.append_value(step.at.as_nanos() as i64);
        self.delays.values().append_slice(differences_ns);
        self.delays.append(true);
        for change in &step.changes {
            let row = self.changes.values();
            let pair = row.field_builder::<Int32Builder>(0).expect(BUILT_ABOVE);
            pair.append_value(change.pair as i32);
            let nodes = row.field_builder::<ListBuilder<Int32Builder>>(1).expect(BUILT_ABOVE);
            change.nodes.iter().for_each(|node| nodes.values().append_value(*node as i32));
            nodes.append(true);
            row.append(true);
        }
        self.changes.append(true);
    }

    /// Remove the rows from memory and return them as a batch.
    fn batch(&mut self) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let columns: Vec<arrow_array::ArrayRef> = vec![
            Arc::new(self.t_ns.finish()),
            Arc::new(self.delays.finish()),
            Arc::new(self.changes.finish()),
        ];
        RecordBatch::try_new(pairs_schema(), columns)
    }
}

fn item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", data_type, false))
}

fn change_fields() -> Fields {
    Fields::from(vec![
        Field::new("pair", DataType::Int32, false),
        Field::new("nodes", DataType::List(item(DataType::Int32)), false),
    ])
}

/// Columns of a file of all pairs (see [`PairsWriter`]).
pub fn pairs_schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![
        Field::new("t_ns", DataType::Int64, false),
        Field::new("delay_dd_ns", DataType::List(item(DataType::Int64)), false),
        Field::new("changes", DataType::List(item(DataType::Struct(change_fields()))), false),
    ]))
}

/// Path of the column of delays in the Parquet schema.
fn delay_column() -> ColumnPath {
    ColumnPath::new(["delay_dd_ns", "list", "item"].map(str::to_owned).to_vec())
}
