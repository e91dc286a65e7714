//! Tables of unknown origin: what is read, what is refused, and how much memory it may take.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, new_empty_array,
};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::Encoding;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use skyhop_files::{
    Column, ColumnEncoding, TableError, UntrustedTable, encoded_table_bytes, pairs_schema,
    record_batch, table_bytes,
};
use skyhop_needs::fuzz::Trial;

const MEGABYTE: u64 = 1_000_000;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn opened(content: Vec<u8>) -> UntrustedTable<Bytes> {
    UntrustedTable::open(Bytes::from(content)).expect("it has a footer")
}

fn columns() -> Vec<Column> {
    vec![
        Column::required("t_ns", Int64Array::from(vec![1, 2, 3])),
        Column::optional("state", StringArray::from(vec![Some("open"), None, Some("open")])),
        Column::optional("up", BooleanArray::from(vec![Some(true), Some(false), None])),
        Column::optional("loss", Float64Array::from(vec![None, Some(0.25), Some(1.0)])),
    ]
}

fn content() -> Vec<u8> {
    table_bytes(columns(), Some(("skyhop", "{}".to_owned()))).expect("the columns are equally long")
}

/// A table whose one column `name` repeats a text, in a file of some kilobytes.
fn repeated(name: &str, text: &str, rows: usize) -> Vec<u8> {
    let texts = Arc::new(StringArray::from(vec![text]));
    let column = DictionaryArray::new(Int32Array::from(vec![0; rows]), texts);
    table_bytes(vec![Column::optional(name, column)], None).expect("it is one column")
}

#[test]
fn a_table_is_read_back() {
    let table = opened(content());
    assert_eq!(table.columns(), ["t_ns", "state", "up", "loss"]);
    assert_eq!((table.rows(), table.header()), (3, Some("{}")));
    let batches = table.read(&names(&["loss", "absent", "state", "t_ns", "up"]), MEGABYTE);
    let expected = record_batch(columns(), None).expect("the columns are equally long");
    assert_eq!(batches.expect("it is valid"), [expected]);
}

#[test]
fn a_table_without_rows_has_its_columns() {
    let column =
        Column { name: "a".into(), nullable: true, values: new_empty_array(&DataType::Utf8) };
    let table = opened(table_bytes(vec![column], None).expect("it is one column"));
    let batches = table.read(&names(&["a"]), MEGABYTE).expect("it is valid");
    assert_eq!(batches.iter().map(RecordBatch::num_columns).collect::<Vec<_>>(), [1]);
}

#[test]
fn large_texts_are_refused_before_they_are_expanded() {
    let file = repeated("state", &"x".repeat(100_000), 1_000);
    assert!(file.len() < 100_000);
    let error = opened(file).read(&names(&["state"]), 50 * MEGABYTE).unwrap_err();
    assert_eq!(error.to_string(), "1,000 rows take 0.1 GB of memory; at most 0.05 GB");
}

#[test]
fn numbers_count_before_they_are_decoded() {
    let column = Column::required("n", Int64Array::from(vec![7; 1_000_000]));
    let file = table_bytes(vec![column], None).expect("it is one column");
    let error = opened(file).read(&names(&["n"]), 7 * MEGABYTE).unwrap_err();
    assert!(matches!(error, TableError::TooLarge { rows: 1_000_000, bytes: 8_000_000, .. }));
}

#[test]
fn columns_that_are_not_read_do_not_count() {
    let file = repeated("junk", &"x".repeat(100_000), 1_000);
    let batches = opened(file).read(&names(&["state"]), MEGABYTE).expect("nothing is read");
    assert_eq!(batches.iter().map(RecordBatch::num_columns).sum::<usize>(), 0);
}

#[test]
fn lists_are_refused() {
    let pairs = RecordBatch::new_empty(pairs_schema());
    let lists = encoded_table_bytes(pairs_schema(), &[pairs], &[]).expect("it fits its schema");
    let error = opened(lists).read(&names(&["delay_dd_ns"]), MEGABYTE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "delay_dd_ns: expected one value a row, plain or of a dictionary"
    );
}

#[test]
fn texts_that_extend_each_other_are_refused() {
    let batch = record_batch(columns(), None).expect("the columns are equally long");
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_column_encoding("state".into(), Encoding::DELTA_BYTE_ARRAY);
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build()))
        .expect("the encoding fits");
    writer.write(&batch).expect("it fits its schema");
    let content = writer.into_inner().expect("it is complete");
    let error = opened(content.clone()).read(&names(&["state"]), MEGABYTE).unwrap_err();
    assert!(error.to_string().starts_with("state: expected one value a row"), "{error}");
    assert!(opened(content).read(&names(&["t_ns"]), MEGABYTE).is_ok());
}

#[test]
fn other_columns_are_no_table_of_all_pairs() {
    let error = opened(content()).read_as(&pairs_schema(), MEGABYTE).unwrap_err();
    assert_eq!(error, TableError::Damaged("it has other columns".to_owned()));
}

#[test]
fn each_column_has_its_encoding() {
    let batch = record_batch(columns(), None).expect("the columns are equally long");
    let encodings = [
        ("t_ns", ColumnEncoding::Differences, Encoding::DELTA_BINARY_PACKED),
        ("state", ColumnEncoding::Dictionary, Encoding::RLE_DICTIONARY),
        ("up", ColumnEncoding::Plain, Encoding::PLAIN),
        ("loss", ColumnEncoding::SplitBytes, Encoding::BYTE_STREAM_SPLIT),
    ];
    let chosen = encodings.map(|(name, encoding, _)| (name.to_owned(), encoding));
    let content = encoded_table_bytes(batch.schema(), std::slice::from_ref(&batch), &chosen)
        .expect("the encodings fit");
    let reader = SerializedFileReader::new(Bytes::from(content.clone())).expect("it is Parquet");
    for (column, (name, _, expected)) in
        reader.metadata().row_group(0).columns().iter().zip(encodings)
    {
        assert!(column.encodings().any(|encoding| encoding == expected), "{name}");
    }
    let read = opened(content).read(&names(&["t_ns"]), MEGABYTE).expect("it is valid");
    assert_eq!(read[0].column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3]);
    assert_eq!(read[0].column(0).null_count(), 0);
}

#[test]
fn damaged_tables_are_errors() {
    let whole = [content(), repeated("state", "open", 100)];
    Trial::of_bytes("table", whole).run(|bytes| {
        let table = UntrustedTable::open(Bytes::copy_from_slice(bytes))?;
        let batches = table.read(&names(&["t_ns", "state", "up", "loss"]), 100 * MEGABYTE)?;
        assert!(!batches.is_empty());
        Ok::<(), TableError>(())
    });
}
