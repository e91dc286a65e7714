//! Checks that the live engine supports an experiment.

use skyhop_app::AppKind as _;
use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan, Traffic};
use skyhop_model::{CcLanguage, cc_label, cc_language};

use crate::traffic::tcp::check_options;
use crate::{LiveOptions, hosts, tc};
use skyhop_host::frame::FIRST_PORT;

/// Number of ports available to flows.
const MOST_FLOWS: usize = (u16::MAX - FIRST_PORT) as usize;

/// Check the experiment; the error names the unsupported key of the scenario.
pub(crate) fn check(experiment: &Experiment, options: &LiveOptions) -> Result<(), Unsupported> {
    if experiment.network.is_some() {
        let what = "a network of satellites runs in the simulator alone (skyhop sim): for other engines give a [path]";
        return Err(Unsupported::new("network", what));
    }
    if experiment.flows.is_empty() && options.program.is_none() {
        let what = "there is nothing to run: give the scenario a [[flow]], or a program after --";
        return Err(Unsupported::new("flow", what));
    }
    if experiment.flows.len() > MOST_FLOWS {
        let flows = experiment.flows.len();
        let what = format!("the scenario has {flows} flows; live runs at most {MOST_FLOWS}");
        return Err(Unsupported::new("flow", what));
    }
    congestion_controls(experiment, options).into_iter().try_for_each(check_language)?;
    hosts::options(experiment, options.program.is_some())?;
    tc::choose(experiment, options)?;
    experiment.flows.iter().try_for_each(check_flow)
}

/// Congestion controls that a run uses: those of its flows, or the default of a program's sockets.
pub(crate) fn congestion_controls<'e>(
    experiment: &'e Experiment,
    options: &'e LiveOptions,
) -> Vec<&'e str> {
    match options.program {
        Some(_) => vec![&options.default_cc],
        None => experiment.flows.iter().filter_map(FlowPlan::cc).collect(),
    }
}

fn check_language(cc: &str) -> Result<(), Unsupported> {
    let what = match cc_language(cc) {
        Some(CcLanguage::Python) => {
            "a congestion control in Python runs in the simulator alone (skyhop sim): for live runs write it in C"
        }
        Some(CcLanguage::C | CcLanguage::Card) | None => return Ok(()),
    };
    Err(Unsupported::new(cc_label(cc), what))
}

fn check_flow(flow: &FlowPlan) -> Result<(), Unsupported> {
    let (key, what) = match &flow.traffic {
        Traffic::Tcp { options, .. } => {
            let Err((key, what)) = check_options(options) else { return Ok(()) };
            (format!("tcp.{key}"), what)
        }
        Traffic::Udp { app } => {
            let Err((key, what)) = app.check() else { return Ok(()) };
            (key.to_owned(), what)
        }
    };
    Err(Unsupported::new(format!("flow {}: {key}", flow.id), what))
}
