//! One binary for all tests of the crate: linking takes longer than most of them.

mod by_kind;
mod damaged;
mod dish;
mod forecast;
mod links;
mod network;
mod network_background;
mod network_failures;
mod network_ground;
mod network_routing;
mod network_traffic;
mod parsing;
mod predicted;
mod schedule;
mod sites;
mod sizes;
