//! The wall-clock engine: the kernel's own TCP, or any program, over a link that skyhop emulates.
//!
//! Two network namespaces stand for the two ends of the path. Each has one device; what one
//! namespace sends is read from its device, passes a sans-IO [`skyhop_link::Link`] under
//! `CLOCK_MONOTONIC` and is written into the other's device when it is due. It is a TUN device, or
//! where /dev/net/tun may not be opened a veth pair with packet sockets. In a guest the kernel's own
//! queue disciplines may stand for the link (tc/). Everything lives in a process of its own that dies
//! with the caller, in namespaces that nothing but that process holds, so that a run leaves nothing
//! behind however it ends.

mod announcer;
mod arrivals;
mod carrier;
mod check;
mod connections;
mod engine;
mod hosts;
mod info;
mod kernel_cc;
mod message;
mod phases;
mod pump;
mod routes;
mod sampler;
mod summary;
mod supervisor;
mod tc;
mod timing;
mod traffic;
mod turns;

use serde::{Deserialize, Serialize};
use skyhop_engine::{Control, Ended, Engine, EngineError, Unsupported};
use skyhop_experiment::Experiment;
use skyhop_host::Program;
use skyhop_record::Sink;

pub use info::{Directions, LiveInfo, PacketCount, Timing};

/// How a live run is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOptions {
    /// A program that makes the traffic instead of the scenario's TCP flows.
    pub program: Option<Program>,
    /// The congestion control of sockets that choose none.
    pub default_cc: String,
    /// Whether the end `to` reaches the net that this machine is in, so that a program reaches it through the path.
    pub internet: bool,
    /// Whether to busy-wait for at most 20 us before a packet is due.
    pub spin: Spin,
    /// The kernel in virtual time that this runs in, if it does.
    pub guest: Option<Guest>,
}

/// A kernel whose clock stands still while anything computes, as the run.json of its runs has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// What its user calls it.
    pub name: String,
    /// The package with its version, or the directory that it was built from.
    pub source: String,
    /// Of what it was built from.
    pub digest: String,
    /// Ticks per second.
    pub hz: u32,
    /// What its user set, KEY=VALUE.
    pub options: Vec<String>,
}

impl Default for LiveOptions {
    fn default() -> Self {
        let default_cc = "cubic".to_owned();
        Self { program: None, default_cc, internet: false, spin: Spin::Auto, guest: None }
    }
}

/// Whether the engine busy-waits before a packet is due.
///
/// A sleeping thread wakes 10 to 50 us late. A busy wait of at most 20 us brings the median under
/// 1 us at moderate rates; where packets are less than that apart it takes a core per direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spin {
    /// On machines with two cores or more.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Runs experiments on this machine's kernel.
///
/// A run blocks until it has ended. The calling process is forked, never exec'd, and its own
/// namespaces, signals and settings stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveEngine {
    /// How runs are done.
    pub options: LiveOptions,
}

impl Engine for LiveEngine {
    fn name(&self) -> &'static str {
        self.options.engine_name()
    }

    fn check(&self, experiment: &Experiment) -> Result<(), Unsupported> {
        check::check(experiment, &self.options)
    }

    fn run(
        &self,
        experiment: &Experiment,
        sink: &mut dyn Sink,
        control: &mut dyn Control,
    ) -> Result<Ended, EngineError> {
        self.check(experiment)?;
        kernel_cc::compile_files(&check::congestion_controls(experiment, &self.options)).map_err(
            |error| EngineError::Failed { is_input: error.is_input(), reason: Box::new(error) },
        )?;
        supervisor::run(experiment, &self.options, sink, control)
    }
}

impl LiveOptions {
    /// This engine's name in files.
    fn engine_name(&self) -> &'static str {
        if self.guest.is_some() { "linux" } else { "live" }
    }
}
