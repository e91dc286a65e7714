//! Single test binary of the crate: linking takes longer than running most of its tests.

mod announced;
mod announced_routes;
mod applications;
mod background;
mod blind;
mod cake;
mod capture;
mod codel;
mod constellation;
mod every_module;
mod fixed_paths;
#[path = "../../../cc/tests/cc/fixed_window.rs"]
mod fixed_window;
mod mock;
mod oracle;
mod order_of_flows;
mod policies;
mod random_scenarios;
mod rust_controller;
mod satcp_table;
mod scenario;
mod simulation;
mod size;
mod topologies;
