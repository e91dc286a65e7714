//! One binary for all tests of the crate: linking takes longer than most of them.

mod damaged;
mod files;
mod parquet_footer;
mod stale_files;
