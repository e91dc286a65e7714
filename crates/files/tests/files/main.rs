//! One binary for all tests of the crate: linking takes longer than most of them.

mod damaged;
mod files;
mod stale_files;
mod untrusted_table;
