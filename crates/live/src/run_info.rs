//! run.json of a live run.

use serde::Serialize;
use skyhop_scenario::Experiment;

use crate::{DeviceKind, LiveOptions, LiveOutcome, PacketCount, Program, Timing};

/// What run.json says: everything that is needed to run it again, and how well time was kept.
#[derive(Debug, Serialize)]
pub struct RunInfo<'r> {
    engine: &'static str,
    version: &'static str,
    kernel: &'r str,
    device: DeviceKind,
    seed: u64,
    wall_s: f64,
    interrupted: bool,
    program: Option<&'r Program>,
    default_cc: Option<&'r str>,
    program_status: Option<i32>,
    timing: &'r Timing,
    packets: Directions<'r>,
    scenario: &'r serde_json::Value,
}

#[derive(Debug, Serialize)]
struct Directions<'r> {
    forward: &'r PacketCount,
    back: &'r PacketCount,
}

/// What run.json says of a run of `experiment` with `options`.
pub fn run_info<'r>(
    experiment: &'r Experiment,
    options: &'r LiveOptions,
    outcome: &'r LiveOutcome,
) -> RunInfo<'r> {
    let [forward, back] = &outcome.packets;
    RunInfo {
        engine: "live",
        version: env!("CARGO_PKG_VERSION"),
        kernel: &outcome.kernel,
        device: outcome.device,
        seed: experiment.seed,
        wall_s: outcome.data.summary.wall_s,
        interrupted: outcome.interrupted,
        program: options.program.as_ref(),
        default_cc: options.program.is_some().then_some(options.default_cc.as_str()),
        program_status: outcome.program_status,
        timing: &outcome.timing,
        packets: Directions { forward, back },
        scenario: &experiment.scenario,
    }
}
