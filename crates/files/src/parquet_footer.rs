//! Properties of columns that a Parquet file's footer states, and that are known before any column is read.

use parquet::basic::Encoding;
use parquet::file::metadata::ParquetMetaDataReader;

use crate::path_file::catch_panic_silently;

/// Column of one of a file's row groups, as the footer states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FooterColumn {
    /// Name of the column, followed by the names of nested fields.
    pub path: Vec<String>,
    /// Number of values in the column.
    pub values: i64,
    /// Size of the values in bytes, uncompressed.
    pub bytes: i64,
    /// Whether texts may be encoded as extensions of previous texts, so that a few bytes expand to long texts.
    pub is_prefix_encoded: bool,
}

/// Parse the content of a file's footer, without the length and the magic number that follow it.
///
/// # Errors
/// The bytes are not a footer; the error is the reason.
pub fn footer_columns(footer: &[u8]) -> Result<Vec<FooterColumn>, String> {
    // The decoder trusts the lengths in a file; damaged ones may make it panic rather than fail.
    let decoded = catch_panic_silently(|| ParquetMetaDataReader::decode_metadata(footer));
    let contradicts = |_| "its content contradicts itself".to_owned();
    let metadata = decoded.map_err(contradicts)?.map_err(|error| error.to_string())?;
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let found = columns.map(|column| FooterColumn {
        path: column.column_path().parts().to_vec(),
        values: column.num_values(),
        bytes: column.uncompressed_size(),
        is_prefix_encoded: column
            .encodings()
            .any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY),
    });
    Ok(found.collect())
}
