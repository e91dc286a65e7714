//! Path files: one Parquet file per path, a row per frame, the header as JSON metadata.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::panic::{self, UnwindSafe};
use std::path::Path;
use std::sync::{Arc, Once};
use std::thread;

use arrow_array::builder::{
    Int16Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder, StructBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StructArray};
use arrow_schema::{DataType, Field};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use skyhop_model::one_line;
use skyhop_path::trace::SCHEMA_VERSION;
use skyhop_path::{Frame, PathEvent, PathHeader, PathTrace};
use skyhop_units::{Duration, Instant, Quoted, Rate};

use crate::FileError;
use crate::atomic_write::{replace_file, write_error};
use crate::pairs_file::PAIRS_SOURCE;
use crate::path_columns::{
    KindsError, check_kinds, check_types, declared_bytes, event_fields, known,
};
use crate::table::{Column, record_batch, table_bytes};

/// Key of the JSON text that skyhop's files carry as metadata.
pub(crate) const METADATA_KEY: &str = "skyhop";
const PARQUET_MAGIC: [u8; 4] = *b"PAR1";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Byte order mark of texts that PowerShell wrote.
const UTF16_MARK: [u8; 2] = [0xff, 0xfe];

/// Write a path file atomically.
///
/// # Errors
/// [`FileError::Write`] with the system's reason.
pub fn write_path(trace: &PathTrace, path: &Path) -> Result<(), FileError> {
    replace_file(path, &path_to_parquet(trace)?)
}

/// Return the bytes that [`write_path`] writes.
///
/// # Errors
/// [`FileError::Write`], which a valid trace does not cause.
pub fn path_to_parquet(trace: &PathTrace) -> Result<Vec<u8>, FileError> {
    let in_memory = Path::new("path in memory");
    let header = serde_json::to_string(&trace.header).map_err(|e| write_error(in_memory, e))?;
    table_bytes(columns(&trace.frames), Some((METADATA_KEY, header)))
        .map_err(|e| write_error(in_memory, e))
}

/// Return the frames of a path as a table with the columns of a path file.
///
/// # Errors
/// [`FileError::Write`], which a valid trace does not cause.
pub fn path_frames(trace: &PathTrace) -> Result<RecordBatch, FileError> {
    record_batch(columns(&trace.frames), None)
        .map_err(|error| write_error(Path::new("path in memory"), error))
}

/// Read and check a path file. One that takes more memory than [`MOST_BYTES`] is an error unless `force_size`.
///
/// # Errors
/// The file is missing, truncated, of another kind or too large, or its content is not a valid path.
pub fn read_path(path: &Path, force_size: bool) -> Result<PathTrace, FileError> {
    let most = if force_size { u64::MAX } else { MOST_BYTES };
    // The decoder trusts the lengths in a file; damaged ones make it panic rather than fail.
    let read = catch_panic_silently(|| decode_path(path, most));
    read.unwrap_or_else(|_| Err(damaged(path, "its content contradicts itself")))
}

/// Largest memory of a path, in bytes. A year of a path computed in steps of 1 s takes eight times as much.
pub const MOST_BYTES: u64 = 1 << 30;

fn within(path: &Path, bytes: u64, most: u64) -> Result<(), FileError> {
    if bytes <= most {
        return Ok(());
    }
    let [megabytes, most] = [bytes, most].map(|bytes| bytes / 1_000_000);
    Err(FileError::TooLarge { path: path.to_owned(), megabytes, most })
}

thread_local! {
    /// Whether panics of this thread are expected, so that they print no message.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Call `decode` and return its panic as an error, without the usual message; panics of other threads print
/// theirs.
pub(crate) fn catch_panic_silently<T>(
    decode: impl FnOnce() -> T + UnwindSafe,
) -> thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let speak = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                speak(info)
            }
        }));
    });
    IS_QUIET.set(true);
    let result = panic::catch_unwind(decode);
    IS_QUIET.set(false);
    result
}

fn decode_path(path: &Path, most: u64) -> Result<PathTrace, FileError> {
    let unreadable = |source| FileError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    if is_log(&mut file).map_err(unreadable)? {
        return Err(FileError::Log { path: path.to_owned() });
    }
    let again = file.try_clone().map_err(unreadable)?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
        .map_err(|e| damaged(path, e))?;
    let header = read_header(path, &reader)?;
    check_types(reader.schema()).map_err(|what| not_a_path(path, what))?;
    within(path, declared_bytes(reader.metadata()), most)?;
    check_kinds(again).map_err(|error| match error {
        KindsError::Unreadable(reason) => damaged(path, reason),
        KindsError::Long(what) => not_a_path(path, what),
    })?;
    let columns = known(reader.parquet_schema());
    let (mut frames, mut bytes) = (Vec::new(), 0);
    for batch in reader.with_projection(columns).build().map_err(|e| damaged(path, e))? {
        let batch = batch.map_err(|e| damaged(path, e))?;
        let rows = FrameColumns::of(&batch).map_err(|what| not_a_path(path, what))?;
        for row in 0..batch.num_rows() {
            let frame = rows.frame(row).map_err(|what| not_a_path(path, what))?;
            bytes += frame.size_in_memory();
            frames.push(frame);
        }
        // A damaged file may take more memory than its metadata states.
        within(path, bytes, most)?;
    }
    let trace = PathTrace { header, frames };
    trace.validate().map_err(|source| FileError::Trace { path: path.to_owned(), source })?;
    Ok(trace)
}

/// Whether a file is text or gzipped, like other tools' logs. The file is rewound afterwards.
fn is_log(file: &mut File) -> io::Result<bool> {
    let mut begin = Vec::new();
    file.by_ref().take(512).read_to_end(&mut begin)?;
    file.rewind()?;
    let is_text = begin.iter().all(|byte| !byte.is_ascii_control() || byte.is_ascii_whitespace());
    let is_text =
        is_text && begin.len() > PARQUET_MAGIC.len() && !begin.starts_with(&PARQUET_MAGIC);
    Ok(is_text || [GZIP_MAGIC, UTF16_MARK].iter().any(|mark| begin.starts_with(mark)))
}

fn damaged(path: &Path, reason: impl std::fmt::Display) -> FileError {
    FileError::Damaged { path: path.to_owned(), reason: reason.to_string() }
}

fn wrong_header(path: &Path, error: &serde_json::Error) -> FileError {
    not_a_path(path, format!("header: {}", one_line(&error.to_string())))
}

fn not_a_path(path: &Path, what: String) -> FileError {
    FileError::NotAPath { path: path.to_owned(), what }
}

fn read_header(
    path: &Path,
    reader: &ParquetRecordBatchReaderBuilder<File>,
) -> Result<PathHeader, FileError> {
    let json = reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .and_then(|entries| entries.iter().find(|entry| entry.key == METADATA_KEY))
        .and_then(|entry| entry.value.as_deref())
        .ok_or_else(|| not_a_path(path, format!("no \"{METADATA_KEY}\" metadata")))?;
    let value: serde_json::Value =
        serde_json::from_str(json).map_err(|e| wrong_header(path, &e))?;
    let found = value.get("schema").and_then(serde_json::Value::as_u64).unwrap_or(0) as u32;
    if found > SCHEMA_VERSION {
        return Err(FileError::Newer { path: path.to_owned(), found, known: SCHEMA_VERSION });
    }
    if value.get("source").and_then(serde_json::Value::as_str) == Some(PAIRS_SOURCE) {
        let what = "it has the paths of all pairs of sites: read it with skyhop.read_all_pairs";
        return Err(not_a_path(path, what.to_owned()));
    }
    serde_json::from_value(value).map_err(|e| wrong_header(path, &e))
}

fn columns(frames: &[Frame]) -> Vec<Column> {
    let ns = |d: Duration| d.as_nanos() as i64;
    let optional = |value: fn(&Frame) -> Option<Duration>| -> Int64Array {
        frames.iter().map(|frame| value(frame).map(ns)).collect()
    };
    let rates = |rate: fn(&Frame) -> Option<Rate>| -> Int64Array {
        frames.iter().map(|frame| rate(frame).map(|r| r.bits_per_second() as i64)).collect()
    };
    let losses =
        |loss: fn(&Frame) -> Option<f64>| -> Float64Array { frames.iter().map(loss).collect() };
    let mut columns = vec![
        Column::required(
            "t_ns",
            Int64Array::from_iter_values(frames.iter().map(|f| f.at.as_nanos() as i64)),
        ),
        Column::required("nodes", nodes(frames)),
        Column::required("hop_delay_ns", hop_delays(frames)),
        Column::optional("delay_ns", optional(|f| f.delay)),
        Column::optional("delay_back_ns", optional(|f| f.delay_back)),
        Column::optional("rate_bps", rates(|f| f.rate)),
        Column::optional("loss", losses(|f| f.loss)),
        Column::required("events", events(frames)),
    ];
    // Files of paths without values of their own in the direction back stay as they were.
    if frames.iter().any(Frame::differs_back) {
        columns.push(Column::optional("rate_back_bps", rates(|f| f.rate_back)));
        columns.push(Column::optional("loss_back", losses(|f| f.loss_back)));
    }
    columns
}

fn list_item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", data_type, false))
}

fn nodes(frames: &[Frame]) -> impl Array + 'static {
    let mut list = ListBuilder::new(Int32Builder::new()).with_field(list_item(DataType::Int32));
    for frame in frames {
        list.values().append_slice(&frame.nodes);
        list.append(true);
    }
    list.finish()
}

fn hop_delays(frames: &[Frame]) -> impl Array + 'static {
    let mut list = ListBuilder::new(Int64Builder::new()).with_field(list_item(DataType::Int64));
    for frame in frames {
        for delay in &frame.hop_delays {
            list.values().append_value(delay.as_nanos() as i64);
        }
        list.append(true);
    }
    list.finish()
}

fn events(frames: &[Frame]) -> impl Array + 'static {
    let event = StructBuilder::new(
        event_fields(),
        vec![
            Box::new(Int64Builder::new()),
            Box::new(StringBuilder::new()),
            Box::new(Int16Builder::new()),
            Box::new(Int64Builder::new()),
        ],
    );
    let mut list = ListBuilder::new(event).with_field(list_item(DataType::Struct(event_fields())));
    for frame in frames {
        for event in &frame.events {
            append_event(list.values(), event);
        }
        list.append(true);
    }
    list.finish()
}

fn append_event(row: &mut StructBuilder, event: &PathEvent) {
    const BUILT_ABOVE: &str = "the builder has this field";
    row.field_builder::<Int64Builder>(0)
        .expect(BUILT_ABOVE)
        .append_value(event.at.as_nanos() as i64);
    row.field_builder::<StringBuilder>(1).expect(BUILT_ABOVE).append_value(event.kind.name());
    row.field_builder::<Int16Builder>(2)
        .expect(BUILT_ABOVE)
        .append_option(event.hop.map(|hop| hop as i16));
    row.field_builder::<Int64Builder>(3)
        .expect(BUILT_ABOVE)
        .append_value(event.outage.as_nanos() as i64);
    row.append(true);
}

/// Columns of one batch of rows; their types have been checked.
struct FrameColumns<'b> {
    t_ns: &'b ArrayRef,
    nodes: &'b ArrayRef,
    hop_delay_ns: &'b ArrayRef,
    delay_ns: &'b ArrayRef,
    delay_back_ns: &'b ArrayRef,
    rate_bps: &'b ArrayRef,
    loss: &'b ArrayRef,
    events: &'b ArrayRef,
    rate_back_bps: Option<&'b ArrayRef>,
    loss_back: Option<&'b ArrayRef>,
}

impl<'b> FrameColumns<'b> {
    fn of(batch: &'b RecordBatch) -> Result<Self, String> {
        let column = |name: &str| batch.column_by_name(name).ok_or(format!("no column \"{name}\""));
        Ok(Self {
            t_ns: column("t_ns")?,
            nodes: column("nodes")?,
            hop_delay_ns: column("hop_delay_ns")?,
            delay_ns: column("delay_ns")?,
            delay_back_ns: column("delay_back_ns")?,
            rate_bps: column("rate_bps")?,
            loss: column("loss")?,
            events: column("events")?,
            rate_back_bps: batch.column_by_name("rate_back_bps"),
            loss_back: batch.column_by_name("loss_back"),
        })
    }

    fn frame(&self, row: usize) -> Result<Frame, String> {
        let hops = self.hop_delay_ns.as_list::<i32>().value(row);
        let rate = |name: &str, column| {
            Ok::<_, String>(not_negative(name, column, row)?.map(Rate::from_bits_per_second))
        };
        let rate_back =
            self.rate_back_bps.map(|column| rate("rate_back_bps", column)).transpose()?;
        let loss_back = self.loss_back.map(|column| ratio("loss_back", column, row)).transpose()?;
        Ok(Frame {
            at: Instant::from_nanos(
                not_negative("t_ns", self.t_ns, row)?.ok_or("a row has no t_ns")?,
            ),
            nodes: self
                .nodes
                .as_list::<i32>()
                .value(row)
                .as_primitive::<Int32Type>()
                .values()
                .to_vec(),
            hop_delays: (0..hops.len())
                .map(|hop| not_negative("hop_delay_ns", &hops, hop))
                .map(|ns| Ok(Duration::from_nanos(ns?.ok_or("a hop has no delay")?)))
                .collect::<Result<_, String>>()?,
            delay: not_negative("delay_ns", self.delay_ns, row)?.map(Duration::from_nanos),
            delay_back: not_negative("delay_back_ns", self.delay_back_ns, row)?
                .map(Duration::from_nanos),
            rate: rate("rate_bps", self.rate_bps)?,
            rate_back: rate_back.flatten(),
            loss: ratio("loss", self.loss, row)?,
            loss_back: loss_back.flatten(),
            events: read_events(&self.events.as_list::<i32>().value(row))?,
        })
    }
}

fn not_negative(name: &str, column: &ArrayRef, row: usize) -> Result<Option<u64>, String> {
    if column.is_null(row) {
        return Ok(None);
    }
    let value = column.as_primitive::<Int64Type>().value(row);
    u64::try_from(value).map(Some).map_err(|_| format!("{name} is negative ({value})"))
}

fn ratio(name: &str, column: &ArrayRef, row: usize) -> Result<Option<f64>, String> {
    if column.is_null(row) {
        return Ok(None);
    }
    let value = column.as_primitive::<Float64Type>().value(row);
    if (0.0..=1.0).contains(&value) { Ok(Some(value)) } else { Err(format!("{name} is {value}")) }
}

fn read_events(events: &ArrayRef) -> Result<Vec<PathEvent>, String> {
    let events: &StructArray = events.as_struct();
    let field =
        |name: &str| events.column_by_name(name).ok_or(format!("events have no \"{name}\""));
    let (at, kind, hop, outage) =
        (field("t_ns")?, field("kind")?, field("hop")?, field("outage_ns")?);
    (0..events.len())
        .map(|row| {
            let name = kind.as_string::<i32>().value(row);
            let hop = hop.as_primitive::<Int16Type>();
            Ok(PathEvent {
                at: Instant::from_nanos(
                    not_negative("t_ns", at, row)?.ok_or("an event has no t_ns")?,
                ),
                kind: name.parse().map_err(|_| format!("unknown event {}", Quoted(name)))?,
                hop: if hop.is_null(row) { None } else { u16::try_from(hop.value(row)).ok() },
                outage: Duration::from_nanos(
                    not_negative("outage_ns", outage, row)?.ok_or("an event has no outage_ns")?,
                ),
            })
        })
        .collect()
}
