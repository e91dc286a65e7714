//! What an experiment may ask this engine for.

use skyhop_app::Kind as _;
use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan, Traffic};

use crate::traffic::tcp::check_options;
use crate::{LiveOptions, hosts};
use skyhop_host::frame::FIRST_PORT;

/// Ports that are left for flows.
const MOST_FLOWS: usize = (u16::MAX - FIRST_PORT) as usize;

/// Names the key that cannot be done.
pub(crate) fn check(experiment: &Experiment, options: &LiveOptions) -> Result<(), Unsupported> {
    if experiment.flows.is_empty() && options.program.is_none() {
        let what = "there is nothing to run: give the scenario a [[flow]], or a program after --";
        return Err(Unsupported::new("flow", what));
    }
    if experiment.flows.len() > MOST_FLOWS {
        let flows = experiment.flows.len();
        let what = format!("the scenario has {flows} flows; live runs at most {MOST_FLOWS}");
        return Err(Unsupported::new("flow", what));
    }
    hosts::options(experiment, options.program.is_some())?;
    experiment.flows.iter().try_for_each(check_flow)
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
