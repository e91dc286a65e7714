//! The virtual-time engine: the same links, with TCP of our own, as fast as the machine computes.
//!
//! Deterministic: the same experiment gives the same results to the last bit, on any machine.

mod access;
mod calendar;
mod flow;
mod network;
mod order;
mod sampler;
mod signal;

use std::ops::ControlFlow;

use skyhop_link::LinkError;
use skyhop_record::RunData;
use skyhop_scenario::Experiment;
use thiserror::Error;

use crate::network::Network;
use crate::sampler::Sampler;

/// Why an experiment cannot be simulated.
#[derive(Debug, Error)]
pub enum SimError {
    /// A congestion control does not exist, or its parameters are wrong.
    #[error("flow.{flow}.cc: {reason}")]
    CongestionControl {
        /// The flow.
        flow: u32,
        /// What is wrong.
        reason: String,
    },
    /// A link cannot be built.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// There is no flow.
    #[error("there is nothing to run: give the scenario a [[flow]]")]
    NothingToRun,
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What run.json says of a simulated run that took `wall_s`.
pub fn run_info(experiment: &Experiment, wall_s: f64) -> serde_json::Value {
    serde_json::json!({
        "engine": "sim",
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": null,
        "seed": experiment.seed,
        "timing": { "wall_s": wall_s },
        "scenario": experiment.scenario,
    })
}

/// Runs `experiment` in virtual time. `progress` hears of (elapsed, total) nanoseconds and may
/// stop it.
///
/// # Errors
/// What the experiment asks for and the simulator has not; being stopped.
pub fn run(
    experiment: &Experiment,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<RunData, SimError> {
    if experiment.flows.is_empty() {
        return Err(SimError::NothingToRun);
    }
    let mut network = Network::new(experiment)?;
    let total_ns = experiment.duration.as_nanos();
    let mut sampler = Sampler::new(experiment, &network);
    while !sampler.is_over() {
        let due = sampler.next();
        network.run_until(due);
        sampler.sample(&network);
        if progress(due.as_nanos(), total_ns).is_break() {
            return Err(SimError::Interrupted);
        }
    }
    Ok(sampler.conclude(experiment, network))
}
