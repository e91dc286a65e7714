//! Single test binary for all tests of the crate.

mod astraea;
mod aurora;
mod cards;
mod draws;
mod networks;
mod observations;
mod operators;
mod orca;
mod sage;
