//! Virtual-time engine: the links of `skyhop_link` with skyhop's own TCP, as fast as the machine computes.
//!
//! It is deterministic: the same experiment gives the same results to the last bit, on any machine.

mod access;
mod ack_timer;
mod constellation;
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
mod tap;
mod tcp_flow;

use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use skyhop_engine::{Control, Ended, Engine, EngineError, Unsupported};
use skyhop_experiment::{Experiment, NetworkPlan};
use skyhop_link::Link;
use skyhop_record::{EventRow, FileError, Recorder, RunConclusion, Sink};
use skyhop_signal::blind::Estimate;
use skyhop_units::Instant;
use skyhop_wire::CapturedPacket;

pub use crate::session::{ExternalPolicy, Session};

use crate::constellation::{Ahead, Constellation};
use crate::flow::Flow;
use crate::network::Network;
use crate::sampler::Sampler;
use crate::tap::Tap;

/// Engine that runs experiments in virtual time; runs over a network use up to eight processors.
#[derive(Debug, Clone, Copy, Default)]
pub struct Simulator;

/// Engine that runs experiments in virtual time, on so many threads where a run can use several. The number of threads
/// changes nothing in the results.
#[derive(Debug, Clone, Copy)]
pub struct SimulatorOn {
    /// Number of threads, at least 1.
    pub threads: usize,
}

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
        SimulatorOn { threads: constellation::threads() }.check(experiment)
    }

    fn run(
        &self,
        experiment: &Experiment,
        sink: &mut dyn Sink,
        control: &mut dyn Control,
    ) -> Result<Ended, EngineError> {
        SimulatorOn { threads: constellation::threads() }.run(experiment, sink, control)
    }
}

impl Engine for SimulatorOn {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn check(&self, experiment: &Experiment) -> Result<(), Unsupported> {
        size::check(experiment)?;
        match &experiment.network {
            // The values that a run needs ahead take long to compute, and cannot be wrong.
            Some(plan) => over_network(experiment, plan, Ahead::default(), self.threads),
            None => simulation(experiment, self.threads),
        }
        .map(drop)
    }

    fn run(
        &self,
        experiment: &Experiment,
        sink: &mut dyn Sink,
        control: &mut dyn Control,
    ) -> Result<Ended, EngineError> {
        size::check(experiment)?;
        let mut simulation = simulation(experiment, self.threads)?;
        let mut captured = experiment.flows.iter().map(|flow| sink.takes_packets_of(flow.id));
        if captured.any(|is_captured| is_captured) {
            simulation.capture(&|flow| sink.takes_packets_of(flow))?;
        }
        let mut recorder = Recorder::begin(experiment, self.name(), sink)?;
        skyhop_engine::warnings(experiment).into_iter().for_each(|warning| recorder.warn(warning));
        let mut sampler = Sampler::new(experiment, simulation.flows());
        let (mut interrupted, mut engine_s) = (false, 0.0);
        while !sampler.is_over() && !interrupted {
            let due = sampler.next();
            let before_s = control.wall_s();
            let progress = simulation.run_until(due);
            engine_s += control.wall_s() - before_s;
            recorder.packets(simulation.captured())?;
            if progress.is_break() {
                simulation.sample(&mut sampler, &mut recorder)?;
                control.progress(due.saturating_since(Instant::START), experiment.duration);
            } else {
                recorder.events(simulation.events().drain(..))?;
            }
            interrupted = !sampler.is_over() && control.interrupted();
        }
        let at = simulation.conclude(&sampler, &mut recorder);
        let timing = Timing { engine_s, packet_hops: simulation.packet_hops() };
        let grid = simulation.estimate();
        let ending = RunConclusion {
            wall_s: control.wall_s(),
            grid: grid.as_ref(),
            ..RunConclusion::new(at, interrupted, SimulatedRun { timing })
        };
        recorder.finish(ending)?;
        Ok(Ended { at, interrupted, program_status: None })
    }
}

/// A run in virtual time, over a path and further links or over a network of satellites.
trait Simulation {
    /// Process events up to `until`. `Continue` means that the call returned early, after many events.
    fn run_until(&mut self, until: Instant) -> ControlFlow<()>;

    /// Flows of the run.
    fn flows(&self) -> &[Flow];

    /// Events since the last sample.
    fn events(&mut self) -> &mut Vec<EventRow>;

    /// Take the sample that is due.
    fn sample(
        &mut self,
        sampler: &mut Sampler,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), FileError>;

    /// Capture the packets of the flows with these ids.
    fn capture(&mut self, flows: &dyn Fn(u32) -> bool) -> Result<(), Unsupported>;

    /// Packets captured since the last call, in the order of time.
    fn captured(&mut self) -> Vec<CapturedPacket> {
        Vec::new()
    }

    /// Record how the flows ended, and return the time of the last sample.
    fn conclude(&mut self, sampler: &Sampler, recorder: &mut Recorder<'_>) -> Instant;

    /// Number of times that a packet left a link.
    fn packet_hops(&self) -> u64;

    /// Estimate of the handover grid, if the run makes one.
    fn estimate(&self) -> Option<Estimate> {
        None
    }
}

impl Simulation for Network {
    fn run_until(&mut self, until: Instant) -> ControlFlow<()> {
        self.run_until(until)
    }

    fn flows(&self) -> &[Flow] {
        &self.flows
    }

    fn events(&mut self) -> &mut Vec<EventRow> {
        &mut self.events
    }

    fn sample(
        &mut self,
        sampler: &mut Sampler,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), FileError> {
        let marked = std::mem::take(&mut self.marked);
        let stats = self.links.iter().map(Link::stats);
        sampler.sample(&mut self.flows, (&mut self.events, marked), stats, recorder)
    }

    fn capture(&mut self, flows: &dyn Fn(u32) -> bool) -> Result<(), Unsupported> {
        self.tap = Some(Box::new(Tap::new(&self.flows, flows)));
        Ok(())
    }

    fn captured(&mut self) -> Vec<CapturedPacket> {
        self.tap.as_mut().map_or_else(Vec::new, |tap| tap.take())
    }

    fn conclude(&mut self, sampler: &Sampler, recorder: &mut Recorder<'_>) -> Instant {
        sampler.conclude(&mut self.flows, |_| None, recorder)
    }

    fn packet_hops(&self) -> u64 {
        self.links.iter().map(|link| link.stats().delivered_packets).sum()
    }

    fn estimate(&self) -> Option<Estimate> {
        self.signal.estimate()
    }
}

fn simulation(experiment: &Experiment, threads: usize) -> Result<Box<dyn Simulation>, Unsupported> {
    match &experiment.network {
        Some(plan) => {
            let ahead = Ahead::new(experiment, plan, threads);
            let ahead = ahead.map_err(|error| Unsupported::new("network", error.to_string()))?;
            over_network(experiment, plan, ahead, threads)
        }
        None => Ok(Box::new(network(experiment, None)?)),
    }
}

fn over_network(
    experiment: &Experiment,
    plan: &NetworkPlan,
    ahead: Ahead,
    threads: usize,
) -> Result<Box<dyn Simulation>, Unsupported> {
    check_flows(experiment)?;
    Ok(Box::new(Constellation::new(experiment, plan, ahead, threads)?))
}

fn network(
    experiment: &Experiment,
    external: Option<Arc<dyn ExternalPolicy>>,
) -> Result<Network, Unsupported> {
    if experiment.network.is_some() {
        let what = "an environment of decisions runs over a path: give the scenario a [path]";
        return Err(Unsupported::new("network", what));
    }
    check_flows(experiment)?;
    Network::new(experiment, external)
}

fn check_flows(experiment: &Experiment) -> Result<(), Unsupported> {
    if experiment.flows.is_empty() {
        let what = "there is nothing to run: give the scenario a [[flow]]";
        return Err(Unsupported::new("flow", what));
    }
    Ok(())
}
