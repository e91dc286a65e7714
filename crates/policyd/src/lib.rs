//! Decision server for connections in the running kernel whose congestion control is a policy.
//!
//! [`register_policy`] registers `cc/policy.c` with a card's parameters and starts a thread that decides for its
//! connections: during a live run those of the run, and in [`serve`] all connections of this machine that choose
//! its name.

mod connections;
mod server;
mod service;

pub use connections::{DecisionSummary, Latencies};
pub use server::{DecisionServer, register_policy};
pub use service::{default_name, serve};
