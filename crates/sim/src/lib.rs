//! Virtual-time engine: the links of `skyhop_link` with skyhop's own TCP, as fast as the machine computes.
//!
//! It is deterministic: the same experiment gives the same results to the last bit, on any machine.

mod access;
mod ack_timer;

mod controllers;
mod datagrams;
mod departure;
mod flow;
mod network;
mod order;
mod sampler;
mod session;
mod signal;
mod size;
mod tcp_flow;

use std::sync::Arc;

use serde::Serialize;
use skyhop_engine::{Control, Ended, Engine, EngineError, Unsupported};
use skyhop_experiment::Experiment;
use skyhop_record::{Recorder, RunConclusion, Sink};
use skyhop_units::Instant;

pub use crate::session::{ExternalPolicy, Session};

use crate::network::Network;
use crate::sampler::Sampler;

/// Engine that runs experiments in virtual time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Simulator;

/// Part of run.json that is specific to simulated runs.
#[derive(Serialize)]
struct SimulatedRun {
    timing: Timing,
}

/// Computing time of the run, and the number of packet hops computed in that time.
#[derive(Serialize)]
struct Timing {
    /// Wall-clock seconds spent in the event loop, without planning and writing.
    engine_s: f64,
    /// Number of times that a packet left a link.
    packet_hops: u64,
}

impl Engine for Simulator {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn check(&self, experiment: &Experiment) -> Result<(), Unsupported> {
        size::check(experiment)?;
        network(experiment, None).map(drop)
    }

    fn run(
        &self,
        experiment: &Experiment,
        sink: &mut dyn Sink,
        control: &mut dyn Control,
    ) -> Result<Ended, EngineError> {
        size::check(experiment)?;
        let mut network = network(experiment, None)?;
        let mut recorder = Recorder::begin(experiment, self.name(), sink)?;
        skyhop_engine::warnings(experiment).into_iter().for_each(|warning| recorder.warn(warning));
        let mut sampler = Sampler::new(experiment, &network);
        let (mut interrupted, mut engine_s) = (false, 0.0);
        while !sampler.is_over() && !interrupted {
            let due = sampler.next();
            let before_s = control.wall_s();
            let progress = network.run_until(due);
            engine_s += control.wall_s() - before_s;
            if progress.is_break() {
                sampler.sample(&mut network, &mut recorder)?;
                control.progress(due.saturating_since(Instant::START), experiment.duration);
            } else {
                recorder.events(network.events.drain(..))?;
            }
            interrupted = !sampler.is_over() && control.interrupted();
        }
        let at = sampler.conclude(&mut network, &mut recorder);
        let packet_hops = network.links.iter().map(|link| link.stats().delivered_packets).sum();
        let grid = network.signal.estimate();
        let ending = RunConclusion {
            wall_s: control.wall_s(),
            grid: grid.as_ref(),
            ..RunConclusion::new(
                at,
                interrupted,
                SimulatedRun { timing: Timing { engine_s, packet_hops } },
            )
        };
        recorder.finish(ending)?;
        Ok(Ended { at, interrupted, program_status: None })
    }
}

fn network(
    experiment: &Experiment,
    external: Option<Arc<dyn ExternalPolicy>>,
) -> Result<Network, Unsupported> {
    if experiment.flows.is_empty() {
        let what = "there is nothing to run: give the scenario a [[flow]]";
        return Err(Unsupported::new("flow", what));
    }
    Network::new(experiment, external)
}
