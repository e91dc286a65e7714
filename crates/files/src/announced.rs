//! What a Parquet file announces of its columns, before anything of them is read.

use parquet::basic::Encoding;
use parquet::file::metadata::ParquetMetaDataReader;

use crate::path_file::without_a_word;

/// A column of one of a file's groups of rows, by the file's own account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedColumn {
    /// Its name, and what is inside it where it is nested.
    pub path: Vec<String>,
    /// How many values there are.
    pub values: i64,
    /// What they take once they are not compressed any more.
    pub bytes: i64,
    /// Whether texts may be made of the ones before them, so that a few bytes are many texts.
    pub is_of_prefixes: bool,
}

/// Reads what a file announces in its footer, whose content this is: without the length and the magic number behind it.
///
/// # Errors
/// Why it is no footer.
pub fn announced_columns(footer: &[u8]) -> Result<Vec<AnnouncedColumn>, String> {
    // The decoder trusts the lengths in a file; damaged ones may make it panic rather than fail.
    let decoded = without_a_word(|| ParquetMetaDataReader::decode_metadata(footer));
    let contradicts = |_| "its content contradicts itself".to_owned();
    let metadata = decoded.map_err(contradicts)?.map_err(|error| error.to_string())?;
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let announced = columns.map(|column| AnnouncedColumn {
        path: column.column_path().parts().to_vec(),
        values: column.num_values(),
        bytes: column.uncompressed_size(),
        is_of_prefixes: column.encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY),
    });
    Ok(announced.collect())
}
