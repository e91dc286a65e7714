//! One binary for all tests of the crate: linking takes longer than most of them.

mod announced;
mod damaged;
mod files;
mod remains;
