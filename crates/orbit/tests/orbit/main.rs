//! One binary for all tests of the crate: linking takes longer than most of them.

mod batch;
mod constellation_files;
mod damaged;
mod element_files;
mod formation;
mod orbits;
mod satellites;
mod sgp4_vectors;
