//! Tables as Parquet files, exchanged with Python through the Arrow PyCapsule interface.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use skyhop_files::{ColumnEncoding, TableError, UntrustedTable, encoded_table_bytes, pairs_schema};
use skyhop_model::without_numbers;

const STREAM: &std::ffi::CStr = c"arrow_array_stream";

pyo3::create_exception!(
    skyhop._core,
    TooLargeError,
    pyo3::exceptions::PyException,
    "Error: a table takes more memory than allowed; the message does not name the file."
);

/// Table in memory, as at least one batch. Libraries that know the Arrow PyCapsule interface take it without a copy.
#[pyclass(name = "ArrowTable", frozen)]
pub(crate) struct PyTable(pub(crate) Vec<RecordBatch>);

#[pymethods]
impl PyTable {
    /// Return a capsule with the table as an Arrow C stream.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore a requested schema.
        drop(requested_schema);
        let schema = self.0[0].schema();
        let batches = RecordBatchIterator::new(self.0.clone().into_iter().map(Ok), schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, STREAM)
    }
}

/// Parquet file from an unknown source; opening it reads only the footer.
#[pyclass(name = "ParquetFile")]
pub(crate) struct PyParquetFile(Option<Opened>);

enum Opened {
    File(UntrustedTable<File>),
    Content(UntrustedTable<Bytes>),
}

/// Evaluate an expression for either kind of source.
macro_rules! of_either {
    ($opened:expr, $table:ident => $value:expr) => {
        match $opened {
            Opened::File($table) => $value,
            Opened::Content($table) => $value,
        }
    };
}

/// Name of a file, or its content.
#[derive(FromPyObject)]
pub(crate) enum Source {
    Content(Vec<u8>),
    File(PathBuf),
}

#[pymethods]
impl PyParquetFile {
    #[new]
    fn new(source: Source) -> PyResult<Self> {
        let opened = match source {
            Source::File(name) => {
                let file = File::open(name).map_err(|error| os_error(&error))?;
                UntrustedTable::open(file).map(Opened::File)
            }
            Source::Content(bytes) => UntrustedTable::open(Bytes::from(bytes)).map(Opened::Content),
        };
        Ok(Self(Some(opened.map_err(|error| exception(&error))?)))
    }

    /// Names of the columns, in the order of the file.
    #[getter]
    fn columns(&self) -> PyResult<Vec<String>> {
        Ok(of_either!(self.opened()?, table => table.columns()))
    }

    /// Number of rows according to the footer.
    #[getter]
    fn rows(&self) -> PyResult<u64> {
        Ok(of_either!(self.opened()?, table => table.rows()))
    }

    /// JSON text of the metadata of skyhop's files.
    #[getter]
    fn header(&self) -> PyResult<Option<String>> {
        Ok(of_either!(self.opened()?, table => table.header().map(str::to_owned)))
    }

    /// Read those of the named columns that the file has, in its order; each has one value per row. Closes the file.
    fn read(
        &mut self,
        py: Python<'_>,
        names: Vec<String>,
        most_bytes: Option<u64>,
    ) -> PyResult<PyTable> {
        let (opened, most) = (self.take()?, most_bytes.unwrap_or(u64::MAX));
        let read = py.detach(|| of_either!(opened, table => table.read(&names, most)));
        read.map(PyTable).map_err(|error| exception(&error))
    }

    /// Read the columns of a file of all pairs. Closes the file.
    fn read_all_pairs(&mut self, py: Python<'_>, most_bytes: Option<u64>) -> PyResult<PyTable> {
        let (opened, most) = (self.take()?, most_bytes.unwrap_or(u64::MAX));
        let read = py.detach(|| of_either!(opened, table => table.read_as(&pairs_schema(), most)));
        read.map(PyTable).map_err(|error| exception(&error))
    }
}

impl PyParquetFile {
    fn opened(&self) -> PyResult<&Opened> {
        self.0.as_ref().ok_or_else(|| PyValueError::new_err("the file has been read"))
    }

    fn take(&mut self) -> PyResult<Opened> {
        self.0.take().ok_or_else(|| PyValueError::new_err("the file has been read"))
    }
}

/// Return the content of a compressed Parquet file with a table's rows.
///
/// `table` has the Arrow PyCapsule interface. `encodings` names how each column is encoded: "dictionary", "differences",
/// "split bytes" or "plain".
#[pyfunction]
pub(crate) fn parquet_bytes<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyAny>,
    encodings: BTreeMap<String, String>,
) -> PyResult<Bound<'py, PyBytes>> {
    let encodings = encodings.into_iter().map(|(name, word)| Ok((name, encoding(&word)?)));
    let encodings = encodings.collect::<PyResult<Vec<_>>>()?;
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let stream = stream_of(table)?;
    let schema = stream.schema();
    let batches = stream.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(&error))?;
    let content = encoded_table_bytes(schema, &batches, &encodings);
    Ok(PyBytes::new(py, &content.map_err(|error| wrong(&error))?))
}

fn encoding(word: &str) -> PyResult<ColumnEncoding> {
    Ok(match word {
        "dictionary" => ColumnEncoding::Dictionary,
        "differences" => ColumnEncoding::Differences,
        "split bytes" => ColumnEncoding::SplitBytes,
        "plain" => ColumnEncoding::Plain,
        other => return Err(PyValueError::new_err(format!("no encoding \"{other}\""))),
    })
}

fn stream_of(table: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let capsule = table.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds a valid stream (Arrow PyCapsule interface), which `from_raw` moves out
    // of it, leaving a released one.
    let reader = unsafe { ArrowArrayStreamReader::from_raw(stream.as_ptr()) };
    reader.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn exception(error: &TableError) -> PyErr {
    match error {
        TableError::TooLarge { .. } => TooLargeError::new_err(error.to_string()),
        TableError::Damaged(reason) => PyValueError::new_err(without_numbers(reason)),
    }
}

/// Create an OSError with its number, from which Python chooses the class, and the system's reason.
fn os_error(error: &io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), without_numbers(&error.to_string())))
}
