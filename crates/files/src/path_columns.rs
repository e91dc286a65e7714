//! Checks of a path file's columns before they are read: presence, types, and the memory that they will take.
//!
//! Repeated values take almost no room in a file, so that a file of some kilobytes may expand to gigabytes.

use std::fs::File;

use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::ProjectionMask;
use parquet::basic::Encoding;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::{ColumnPath, SchemaDescriptor};
use skyhop_path::{Frame, PathEvent};
use skyhop_units::Duration;

/// Longest name of an event's kind, in bytes: twice as long as the longest existing one, and no more than
/// the rest of the event takes in memory.
const LONGEST_KIND_BYTES: usize = 40;
/// Number of rows whose events' kinds are examined at a time.
const ROWS_AT_ONCE: usize = 1024;

/// Name of a column, and a check of its type.
type ColumnOfType = (&'static str, fn(&DataType) -> bool);

/// Columns of the values in the direction back, which only paths that differ in it have.
const OPTIONAL_COLUMNS: [&str; 2] = ["rate_back_bps", "loss_back"];

/// Columns of a path file with their types; other columns are not read.
pub(crate) const COLUMNS: [ColumnOfType; 10] = [
    ("t_ns", is_int64),
    ("nodes", |t| list_of(t, |item| *item == DataType::Int32)),
    ("hop_delay_ns", |t| list_of(t, is_int64)),
    ("delay_ns", is_int64),
    ("delay_back_ns", is_int64),
    ("rate_bps", is_int64),
    ("rate_back_bps", is_int64),
    ("loss", is_float64),
    ("loss_back", is_float64),
    ("events", |t| list_of(t, is_event)),
];

/// Fields of an event, with their types.
pub(crate) fn event_fields() -> Fields {
    Fields::from(vec![
        Field::new("t_ns", DataType::Int64, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("hop", DataType::Int16, true),
        Field::new("outage_ns", DataType::Int64, false),
    ])
}

/// Check that every column exists once, or at most once if it is optional, and has its type; the error names the
/// column.
pub(crate) fn check_types(schema: &Schema) -> Result<(), String> {
    for (name, fits) in COLUMNS {
        let mut found = schema.fields().iter().filter(|field| field.name() == name);
        let Some(field) = found.next() else {
            if OPTIONAL_COLUMNS.contains(&name) {
                continue;
            }
            return Err(format!("no column \"{name}\""));
        };
        if found.next().is_some() {
            return Err(format!("two columns \"{name}\""));
        }
        if !fits(field.data_type()) {
            return Err(format!("column \"{name}\" has the type {}", field.data_type()));
        }
    }
    Ok(())
}

/// Select the columns to read; [`check_types`] must have succeeded for the file.
pub(crate) fn known(schema: &SchemaDescriptor) -> ProjectionMask {
    let leaves = schema.columns().iter().enumerate();
    ProjectionMask::leaves(schema, leaves.filter(|(_, leaf)| is_known(leaf.path())).map(|(i, _)| i))
}

fn is_known(column: &ColumnPath) -> bool {
    match column.parts() {
        [list, .., field] if list == "events" => event_fields().find(field).is_some(),
        [name, ..] => COLUMNS.iter().any(|(known, _)| known == name),
        [] => false,
    }
}

/// Memory in bytes that a file's frames will take, according to the file's metadata.
pub(crate) fn declared_bytes(metadata: &ParquetMetaData) -> u64 {
    let groups = metadata.row_groups();
    let rows: i64 = groups.iter().map(RowGroupMetaData::num_rows).sum();
    let known = || {
        let columns = groups.iter().flat_map(RowGroupMetaData::columns);
        columns.filter(|column| is_known(column.column_path()))
    };
    let frames = (rows.max(0) as u64).saturating_mul(size_of::<Frame>() as u64);
    let frames = known().map(values_bytes).fold(frames, u64::saturating_add);
    // Uncompressed sizes also include values that no row refers to.
    let unpacked = known().map(|column| column.uncompressed_size().max(0) as u64);
    frames.max(unpacked.fold(0, u64::saturating_add))
}

/// Memory in bytes of a column's values that a frame stores on the heap.
fn values_bytes(column: &ColumnChunkMetaData) -> u64 {
    let size = match column.column_path().parts() {
        [list, ..] if list == "nodes" => size_of::<i32>(),
        [list, ..] if list == "hop_delay_ns" => size_of::<Duration>(),
        [list, .., field] if list == "events" && field == "t_ns" => size_of::<PathEvent>(),
        _ => 0,
    };
    (column.num_values().max(0) as u64).saturating_mul(size as u64)
}

/// Reason for which the kinds of events cannot be read.
pub(crate) enum KindsError {
    Unreadable(ParquetError),
    Long(String),
}

impl From<ParquetError> for KindsError {
    fn from(error: ParquetError) -> Self {
        Self::Unreadable(error)
    }
}

/// Check that no kind is too long: each repetition of a long text would take memory of its own.
pub(crate) fn check_kinds(file: File) -> Result<(), KindsError> {
    let file = SerializedFileReader::new(file)?;
    let columns = file.metadata().file_metadata().schema_descr().columns();
    let is_kind = |column: &ColumnPath| matches!(column.parts(), [list, .., field] if list == "events" && field == "kind");
    let Some(leaf) = columns.iter().position(|column| is_kind(column.path())) else {
        return Ok(());
    };
    (0..file.num_row_groups())
        .try_for_each(|group| check_kinds_of(&*file.get_row_group(group)?, leaf))
}

fn check_kinds_of(group: &dyn RowGroupReader, leaf: usize) -> Result<(), KindsError> {
    let mut pages = group.get_column_page_reader(leaf)?;
    while let Some(page) = pages.get_next_page()? {
        // This encoding extends each value from the one before it, to any length.
        if page.encoding() == Encoding::DELTA_BYTE_ARRAY {
            return Err(KindsError::Long(
                "events.kind is encoded as DELTA_BYTE_ARRAY; expected a dictionary".into(),
            ));
        }
    }
    let ColumnReader::ByteArrayColumnReader(mut reader) = group.get_column_reader(leaf)? else {
        return Ok(());
    };
    let (mut defined, mut repeated, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let (rows, ..) = reader.read_records(
            ROWS_AT_ONCE,
            Some(&mut defined),
            Some(&mut repeated),
            &mut kinds,
        )?;
        let longest = kinds.iter().map(ByteArray::len).max().unwrap_or(0);
        if longest > LONGEST_KIND_BYTES {
            return Err(KindsError::Long(format!(
                "the kind of an event has {longest} bytes; at most {LONGEST_KIND_BYTES}"
            )));
        }
        if rows == 0 {
            return Ok(());
        }
        defined.clear();
        repeated.clear();
        kinds.clear();
    }
}

fn is_int64(data_type: &DataType) -> bool {
    *data_type == DataType::Int64
}

fn is_float64(data_type: &DataType) -> bool {
    *data_type == DataType::Float64
}

fn list_of(data_type: &DataType, fits: impl Fn(&DataType) -> bool) -> bool {
    matches!(data_type, DataType::List(item) if fits(item.data_type()))
}

/// Whether a type has each field of an event exactly once, and no nested fields, which could have
/// the same names.
fn is_event(data_type: &DataType) -> bool {
    let DataType::Struct(found) = data_type else { return false };
    let is_once = |wanted: &Field| {
        let mut named = found.iter().filter(|field| field.name() == wanted.name());
        named.next().is_some_and(|field| field.data_type() == wanted.data_type())
            && named.next().is_none()
    };
    event_fields().iter().all(|wanted| is_once(wanted))
        && !found.iter().any(|field| field.data_type().is_nested())
}
