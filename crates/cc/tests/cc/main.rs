//! Binary of all tests of the crate: linking takes longer than most of them.

mod ack_clock;
mod bbr;
mod callers;
mod choices;
mod copa;
mod cores;
mod cubic;
mod damaged;
mod every_module;
mod fixed_window;
mod host;
mod leocc;
mod map;
mod params;
mod path;
mod reno;
mod satcp;
mod vivace;
mod vivudt;
