//! One binary for all tests of the crate.

mod astraea;
mod cards;
mod networks;
mod observations;
