//! Whoever decides for connections in the running kernel whose congestion control is a policy.
//!
//! [`hold_policy`] registers `cc/policy.c` with a card's parameters, and decides for its connections from a thread of its
//! own: beside a live run for the run's, and in [`serve`] for all connections of this machine that choose its name.

mod pilots;
mod server;
mod service;

pub use pilots::{Latencies, Served};
pub use server::{DecisionServer, hold_policy};
pub use service::{default_name, serve};
