//! An order of flows, and a seed for each, that do not depend on their order in the scenario.

use skyhop_scenario::FlowPlan;

/// The flows by what they are. Equal ones are interchangeable.
pub(crate) fn in_order(flows: &[FlowPlan]) -> Vec<&FlowPlan> {
    let mut plans: Vec<&FlowPlan> = flows.iter().collect();
    plans.sort_by_cached_key(|plan| identity(plan));
    plans
}

/// The seed of the flow at `place` of `plans`, which are in order: its own among equal ones.
pub(crate) fn component_seed(run_seed: u64, plans: &[&FlowPlan], place: usize) -> u64 {
    let own = identity(plans[place]);
    let equals = plans[..place].iter().rev().take_while(|plan| identity(plan) == own);
    skyhop_scenario::seed_for(run_seed, &format!("flow {own} {}", equals.count()))
}

/// Everything that tells a flow from others, but its number.
fn identity(plan: &FlowPlan) -> String {
    let FlowPlan { id: _, from, start, stop, ways, extra_rtt, traffic } = plan;
    format!("{:?}", (start, stop, from, ways, extra_rtt, traffic))
}
