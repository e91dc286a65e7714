//! One binary for all tests of the crate: linking takes longer than most of them.

mod ack_clock;
mod bbr;
mod cubic;
mod every_module;
mod params;
mod path;
mod reno;
mod satcp;
