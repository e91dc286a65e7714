//! Files that are either complete or absent: path files, files of the routes between all pairs, tables, texts.

mod atomic_write;
mod error;
mod link_loads;
mod pairs_file;
mod path_columns;
mod path_file;
mod stale_files;
mod table;
mod untrusted_table;

pub use atomic_write::{
    TemporaryFile, replace_file, temporary_file_for, write_error, write_staged,
};
pub use error::FileError;
pub use link_loads::{LinkBytes, read_link_bytes};
pub use pairs_file::{PAIRS_SOURCE, PairsWriter, pairs_schema};
pub use path_file::{MOST_BYTES, path_frames, path_to_parquet, read_path, write_path};
pub use stale_files::{Staging, remove_stale};
pub use table::{
    Column, ColumnEncoding, concatenate, encoded_table_bytes, is_own_table, record_batch,
    table_bytes,
};
pub use untrusted_table::{TableError, UntrustedTable};
