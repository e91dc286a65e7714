//! Helpers that parse scenarios from text and run them.

use std::ops::ControlFlow;

use skyhop_experiment::Experiment;
use skyhop_record::RunData;
use skyhop_scenario::parse_scenario;
use skyhop_sim::Simulator;

pub fn experiment(text: &str) -> Experiment {
    let no_places = |name: &str| Err(format!("no place {name}"));
    parse_scenario(text, "x.toml", &[])
        .unwrap()
        .experiment(&no_places, &mut |_, _| ControlFlow::Continue(()))
        .unwrap()
}

pub fn simulate(text: &str) -> RunData {
    skyhop_engine::run_in_memory(&Simulator, &experiment(text)).unwrap()
}

/// Scenario with a constant path, except for the changes in `rest`.
pub fn fixed(rate_mbit: u32, rtt_ms: u32, queue_bytes: u32, duration_s: u32, rest: &str) -> String {
    format!(
        "[path]\nkind = \"fixed\"\nrtt = \"{rtt_ms} ms\"\n\
         [link]\nrate = \"{rate_mbit} Mbit/s\"\nqueue = \"{queue_bytes} B\"\n\
         [run]\nduration = \"{duration_s} s\"\n{rest}"
    )
}
