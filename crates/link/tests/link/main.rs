//! Single test binary of the crate: linking takes longer than running most of its tests.

mod against_reference;
mod background;
mod background_lines;
mod behaviour;
mod bursts;
mod dama;
mod reference;
