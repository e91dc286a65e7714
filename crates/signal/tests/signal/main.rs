//! One binary for all tests of the crate: linking takes longer than most of them.

mod announcements;
mod blind;
mod capture;
mod damaged;
