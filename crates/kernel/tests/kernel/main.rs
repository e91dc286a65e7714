//! One binary for all tests of the crate: linking takes longer than most of them.

mod every_module;
mod lab;
mod signals;
