//! Files that are whole or not there at all: path files, files of all pairs, tables, texts.

mod announced;
mod error;
mod pairs_file;
mod path_columns;
mod path_file;
mod remains;
mod table;
mod whole;

pub use announced::{AnnouncedColumn, announced_columns};
pub use error::FileError;
pub use pairs_file::PairsWriter;
pub use path_file::{MOST_BYTES, path_to_parquet, read_path, write_path};
pub use remains::{Staging, clear_remains};
pub use table::{Column, concatenate, record_batch, table_bytes};
pub use whole::{file_beside, put_in_place, replace_file, write_error};
