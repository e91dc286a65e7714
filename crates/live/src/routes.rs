//! Routes of packets through the links of one direction.

use skyhop_app::Side;
use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_link::{Fabric, LinkRoute, Routes};
use skyhop_model::Direction;
use skyhop_units::Instant;

use skyhop_host::frame::Frame;

/// Build the links of one direction with the routes of the traffic. `flow_ids` are by index of the traffic; traffic of
/// programs and the engine's own probe go over the path's link alone.
pub(crate) fn build(
    experiment: &Experiment,
    direction: Direction,
    flow_ids: &[Option<u32>],
) -> Result<Fabric<Frame>, Unsupported> {
    let path = usize::from(experiment.path_link());
    let of_flow = |flow: &FlowPlan| {
        let towards_server = flow.direction_to(Side::Server) == direction;
        let side = if towards_server { Side::Server } else { Side::Client };
        flow.routes_to(side, usize::from).collect()
    };
    let of_traffic = |id: &Option<u32>| {
        let flow = id.and_then(|id| experiment.flows.iter().find(|flow| flow.id == id));
        let alone = || vec![(Instant::START, LinkRoute { links: vec![path], delay: None })];
        flow.map_or_else(alone, of_flow)
    };
    // The last entry is for packets of no known traffic.
    let routes = Routes::new(flow_ids.iter().chain([&None]).map(of_traffic));
    let configs = experiment.links.iter().map(|link| link.config(direction).clone());
    let watched = (experiment.blind.is_some() && direction == Direction::Back).then_some(path);
    Fabric::new(configs, routes, watched)
        .map_err(|error| Unsupported::new("link", error.to_string()))
}
