//! Time-varying path between two places, computed from a constellation.
//!
//! A [`PathRequest`] describes the path; [`PathFrames`] computes it step by step and [`compute`] as a whole
//! [`PathTrace`]. [`import`] makes a trace from files of other tools and [`export`] writes it for them.

pub mod all_pairs;
mod compat;
mod compute;
pub mod events;
pub mod export;
pub mod failures;
pub mod fibre;
pub mod handover;
pub mod import;
mod jitter;
mod mirror;
pub mod network;
mod outage;
mod repeated_search;
mod request;
pub mod route;
pub mod routing;
mod states;
pub mod topology;
pub mod trace;

pub use compute::{PathFrames, compute};
pub use jitter::{Jitter, Spikes};
pub use outage::{Draw, OutageModel, default_intermediate_outage};
pub use request::{MOST_STEPS, PathError, PathOptions, PathRequest, Place, UtcGrid};
pub use states::States;
pub use trace::{
    BetweenFrames, Endpoint, Frame, NodeSite, Origin, PathEvent, PathHeader, PathTrace, TraceError,
};
