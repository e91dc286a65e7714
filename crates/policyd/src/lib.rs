//! Decision server for connections in the running kernel whose congestion control is a policy.
//!
//! [`register_policy`] registers `cc/policy.c` with a card's parameters and starts a thread that decides for
//! connections: during a live run for the connections of the run, and in [`serve`] for all connections of this machine
//! that choose the module's name.

mod connections;
mod server;
mod service;

pub use connections::{DecisionSummary, Latencies};
pub use server::{DecisionServer, register_policy};
pub use service::{default_name, serve};
