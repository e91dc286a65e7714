//! The wall-clock engine: runs the kernel's own TCP, or any program, over a link that skyhop emulates.
//!
//! Each end of the path is a network namespace with one device: TUN or, where /dev/net/tun cannot be opened, a veth
//! pair with packet sockets. Packets are read from the sender's device, pass a sans-IO [`skyhop_link::Link`] driven
//! by `CLOCK_MONOTONIC`, and are written to the receiver's device when they are due. In a guest, Linux's queue
//! disciplines can emulate the link instead (tc/).
//!
//! The engine runs in a process of its own that dies with the caller and is the only holder of its namespaces, so
//! that a run leaves nothing behind however it ends.

mod announcer;
mod arrivals;
mod check;
mod connections;
mod datapath;
mod engine;
mod hosts;
mod info;
mod kernel_cc;
mod message;
mod phases;
mod pump;
mod pump_threads;
mod routes;
mod sampler;
mod summary;
mod supervisor;
mod tc;
mod timing;
mod traffic;

use serde::{Deserialize, Serialize};
use skyhop_engine::{Control, Ended, Engine, EngineError, Unsupported};
use skyhop_experiment::Experiment;
use skyhop_host::Program;
use skyhop_record::Sink;

pub use info::{Directions, LiveInfo, PacketCount, Timing};

/// Settings of a live run that are not part of the scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOptions {
    /// Program that generates the traffic in place of the scenario's TCP flows.
    pub program: Option<Program>,
    /// Default congestion control of the namespaces, for sockets that do not choose one.
    pub default_cc: String,
    /// Whether the end `to` is connected to this machine's network, so that a program reaches it through the path.
    pub internet: bool,
    /// Whether to busy-wait for at most 20 us before a packet is due.
    pub spin: Spin,
    /// Guest kernel that the engine runs in; `None` on the host.
    pub guest: Option<Guest>,
}

/// Guest kernel in virtual time (its clock stands still during computation), as recorded in run.json.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Name that the user gave the kernel.
    pub name: String,
    /// Source of the kernel: a package with its version, or a directory.
    pub source: String,
    /// Digest of the kernel's source and configuration.
    pub digest: String,
    /// Timer ticks per second (`CONFIG_HZ`).
    pub hz: u32,
    /// Kernel options that the user set, as KEY=VALUE.
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
/// A sleeping thread wakes 10 to 50 us late. A busy wait of at most 20 us lowers the median lateness to under
/// 1 us at moderate rates; where packets are less than 20 us apart it occupies one core per direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spin {
    /// Busy-wait on machines with at least two cores.
    #[default]
    Auto,
    /// Busy-wait on every machine.
    On,
    /// Sleep until packets are due.
    Off,
}

/// Engine that runs experiments on this machine's kernel.
///
/// [`Engine::run`] blocks until the run has ended. It forks the calling process and never calls exec; the caller's
/// own namespaces, signals and settings do not change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveEngine {
    /// Settings of all runs of this engine.
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
    /// Engine name in run.json: "linux" in a guest, else "live".
    fn engine_name(&self) -> &'static str {
        if self.guest.is_some() { "linux" } else { "live" }
    }
}
