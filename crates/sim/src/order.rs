//! An order of flows, and a seed for each, that do not depend on their order in the scenario.

use skyhop_scenario::{FlowPlan, Traffic};

/// The flows by what they are. Equal ones are interchangeable.
pub(crate) fn in_order(flows: &[FlowPlan]) -> Vec<&FlowPlan> {
    let mut plans: Vec<&FlowPlan> = flows.iter().collect();
    plans.sort_by_cached_key(|plan| identity(plan));
    plans
}

/// The seed of the flow at `place` of `plans`, which are in order: its own among those that differ in
/// nothing but their congestion control. That one leaves the seed alone, so that two of them that make
/// the same choices have the same to choose from.
pub(crate) fn component_seed(run_seed: u64, plans: &[&FlowPlan], place: usize) -> u64 {
    let own = identity_but_cc(plans[place]);
    let alike = plans[..place].iter().rev().take_while(|plan| identity_but_cc(plan) == own);
    skyhop_scenario::seed_for(run_seed, &format!("flow {own} {}", alike.count()))
}

/// Everything that tells a flow from others, but its number; what its congestion control is comes last.
fn identity(plan: &FlowPlan) -> String {
    format!("{} {:?}", identity_but_cc(plan), plan.traffic)
}

fn identity_but_cc(plan: &FlowPlan) -> String {
    let FlowPlan { id: _, from, start, stop, ways, extra_rtt, traffic } = plan;
    let sends = match traffic {
        Traffic::Tcp { cc: _, parameters: _, bytes } => format!("tcp {bytes:?}"),
        Traffic::Probe { interval, size } => format!("probe {interval:?} {size:?}"),
    };
    format!("{:?} {sends}", (start, stop, from, ways, extra_rtt))
}
