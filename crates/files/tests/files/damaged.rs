//! Damaged path files: their bytes, and what their columns hold.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{
    Int16Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder, StructBuilder,
};
use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field};
use serde_json::{Value, json};
use skyhop_files::{Column, path_to_parquet, read_path, table_bytes};
use skyhop_needs::fuzz::Trial;

use crate::files::trace;

fn read(bytes: &[u8], directory: &Path) -> Result<(), String> {
    let file = directory.join("x.parquet");
    fs::write(&file, bytes).expect("there is room for temporary files");
    let read = read_path(&file, false);
    let trace =
        read.map_err(|error| error.to_string().replace(&directory.display().to_string(), ""))?;
    assert_eq!(trace.validate(), Ok(()));
    for loss in trace.frames.iter().filter_map(|frame| frame.loss) {
        assert!((0.0..=1.0).contains(&loss), "{loss}");
    }
    path_to_parquet(&trace).expect("what is valid can be written");
    Ok(())
}

#[test]
fn path_files() {
    let directory = tempfile::tempdir().expect("there is room for temporary files");
    let whole = path_to_parquet(&trace()).expect("it is valid");
    Trial::of_bytes("path file", [whole]).run(|bytes| read(bytes, directory.path()));
}

/// Path files with damaged content, as JSON of the columns' values: valid Parquet with wrong content.
#[test]
fn columns_of_path_files() {
    let directory = tempfile::tempdir().expect("there is room for temporary files");
    let whole = json!({
        "header": serde_json::to_value(&trace().header).expect("it is JSON"),
        "t_ns": [0, 1_000_000_000],
        "nodes": [[-1, 7, -2], []],
        "hop_delay_ns": [[3, 4], []],
        "delay_ns": [7, null],
        "delay_back_ns": [7, null],
        "rate_bps": [1000, null],
        "loss": [0.25, 1.0],
        "events": [[[0, "end", 0, 12_000_000]], [[1_000_000_000, "reroute", null, 0], [1_500_000_000, "lost", null, 0]]],
    });
    Trial::of_text("path file columns", [whole.to_string()]).run(|bytes| {
        let content: Value = serde_json::from_slice(bytes).map_err(|_| "it is not JSON")?;
        let table = table(&content).ok_or("it is no table")?;
        read(&table, directory.path())
    });
}

/// Create the table; `None` if Parquet cannot hold the values.
fn table(content: &Value) -> Option<Vec<u8>> {
    let mut columns = Vec::new();
    for (name, values) in content.as_object()?.iter().filter(|(name, _)| *name != "header") {
        let values = values.as_array()?;
        let array: ArrayRef = if values.iter().any(Value::is_array) {
            list(name, values)?
        } else if values.iter().any(Value::is_string) {
            Arc::new(values.iter().map(Value::as_str).collect::<StringArray>())
        } else if values.iter().any(Value::is_f64) {
            Arc::new(values.iter().map(Value::as_f64).collect::<Float64Array>())
        } else {
            Arc::new(values.iter().map(Value::as_i64).collect::<Int64Array>())
        };
        columns.push(Column { name: name.clone(), nullable: true, values: array });
    }
    table_bytes(columns, Some(("skyhop", content.get("header")?.to_string()))).ok()
}

fn list(name: &str, rows: &[Value]) -> Option<ArrayRef> {
    let items = |row: &Value| row.as_array().cloned().unwrap_or_default();
    if name == "events" {
        return events(rows);
    }
    if name == "nodes" {
        let mut list = ListBuilder::new(Int32Builder::new());
        for row in rows {
            for item in items(row) {
                list.values()
                    .append_option(item.as_i64().and_then(|item| i32::try_from(item).ok()));
            }
            list.append(!row.is_null());
        }
        return Some(Arc::new(list.finish()));
    }
    let mut list = ListBuilder::new(Int64Builder::new());
    for row in rows {
        items(row).iter().for_each(|item| list.values().append_option(item.as_i64()));
        list.append(!row.is_null());
    }
    Some(Arc::new(list.finish()))
}

/// Create events from lists of time, kind, hop and outage.
fn events(rows: &[Value]) -> Option<ArrayRef> {
    let fields = vec![
        Field::new("t_ns", DataType::Int64, true),
        Field::new("kind", DataType::Utf8, true),
        Field::new("hop", DataType::Int16, true),
        Field::new("outage_ns", DataType::Int64, true),
    ];
    let mut list = ListBuilder::new(StructBuilder::from_fields(fields, 0));
    for row in rows {
        for event in row.as_array()? {
            let Value::Array(values) = event else { return None };
            let [at, kind, hop, outage] = &values[..] else { return None };
            let built = list.values();
            built.field_builder::<Int64Builder>(0)?.append_option(at.as_i64());
            built.field_builder::<StringBuilder>(1)?.append_option(kind.as_str());
            let hop = hop.as_i64().and_then(|hop| i16::try_from(hop).ok());
            built.field_builder::<Int16Builder>(2)?.append_option(hop);
            built.field_builder::<Int64Builder>(3)?.append_option(outage.as_i64());
            built.append(true);
        }
        list.append(true);
    }
    Some(Arc::new(list.finish()))
}
