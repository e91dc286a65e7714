//! What an experiment may ask this engine for.

use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan, Traffic};
use skyhop_units::Duration;

use crate::LiveOptions;
use crate::traffic::tcp::check_options;
use skyhop_host::frame::FIRST_PORT;

/// Ports that are left for flows.
const MOST_FLOWS: usize = (u16::MAX - FIRST_PORT) as usize;
/// The largest payload of a UDP packet over IPv4.
const LARGEST_PROBE: u64 = 65_507;

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
    experiment.flows.iter().try_for_each(check_flow)
}

fn check_flow(flow: &FlowPlan) -> Result<(), Unsupported> {
    let wrong =
        |key: &str, what: String| Err(Unsupported::new(format!("flow {}: {key}", flow.id), what));
    let (interval, size) = match &flow.traffic {
        Traffic::Probe { interval, size } => (*interval, *size),
        Traffic::Tcp { options, .. } => {
            return check_options(options)
                .or_else(|(key, what)| wrong(&format!("tcp.{key}"), what));
        }
    };
    if interval == Duration::ZERO {
        return wrong("interval", "a probe's interval must be longer than 0 s".to_owned());
    }
    // The first bytes of a packet are its sequence number.
    if !(8..=LARGEST_PROBE).contains(&size.as_u64()) {
        let what = format!("a probe's size is {size}, but live runs need 8 B to {LARGEST_PROBE} B");
        return wrong("size", what);
    }
    Ok(())
}
