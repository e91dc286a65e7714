//! Routes of packets through the links of one direction.

use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_link::{Fabric, FabricRoute, LinkConfig, Packet};
use skyhop_model::Direction;
use skyhop_units::{Duration, Instant};

use skyhop_host::frame::Frame;

/// Routes of one direction, by index of the traffic. Traffic of programs goes over the path's link alone.
#[derive(Debug, Clone)]
pub(crate) struct RouteTable {
    /// Start times and fabric route numbers, by index of the traffic.
    by_index: Vec<Vec<(Instant, usize)>>,
    /// Whether all packets take the same route, so that no look-up is needed.
    is_one: bool,
}

/// Number of the route over the path's link alone, which programs and the engine's own probe use.
const PATH_ALONE: usize = 0;

impl RouteTable {
    /// Route number of a packet sent now.
    pub(crate) fn route_of(&self, now: Instant, packet: &Packet<Frame>) -> usize {
        if self.is_one {
            return PATH_ALONE;
        }
        let routes = self.by_index.get(packet.flow as usize).map_or(&[][..], Vec::as_slice);
        let current = routes.iter().rev().find(|(from, _)| *from <= now);
        current.map_or(PATH_ALONE, |(_, route)| *route)
    }
}

/// Build the links of one direction and the route table of the traffic. `flow_ids` are by index of the traffic.
pub(crate) fn build(
    experiment: &Experiment,
    direction: Direction,
    flow_ids: &[Option<u32>],
) -> Result<(Fabric<Frame>, RouteTable), Unsupported> {
    let path = usize::from(experiment.path_link());
    let mut crossings = vec![FabricRoute { links: vec![path], delay: Duration::ZERO }];
    let mut by_index = Vec::with_capacity(flow_ids.len());
    for id in flow_ids {
        let flow = id.and_then(|id| experiment.flows.iter().find(|flow| flow.id == id));
        let routes = flow.into_iter().flat_map(|flow| {
            flow.routes.iter().map(|route| (route.from, crossing(flow, &route.links, direction)))
        });
        by_index.push(routes.map(|(from, one)| (from, number_of(&mut crossings, one))).collect());
    }
    let is_one = crossings.len() == 1;
    let configs = experiment.links.iter().map(|link| link.config(direction).clone());
    let configs: Vec<LinkConfig> = configs.collect();
    let watched = (experiment.blind.is_some() && direction == Direction::Back).then_some(path);
    let fabric = Fabric::new(configs, crossings, watched)
        .map_err(|error| Unsupported::new("link", error.to_string()))?;
    Ok((fabric, RouteTable { by_index, is_one }))
}

/// Route of a flow in one direction, followed by half of the flow's extra RTT: the half that is rounded down in the
/// data direction, as in the simulator.
fn crossing(flow: &FlowPlan, links: &[u16], direction: Direction) -> FabricRoute {
    let mut links: Vec<usize> = links.iter().map(|link| usize::from(*link)).collect();
    if direction == Direction::Back {
        links.reverse();
    }
    let there = flow.extra_rtt / 2;
    let carries_data = (flow.from == skyhop_model::End::From) == (direction == Direction::Forward);
    FabricRoute { links, delay: if carries_data { there } else { flow.extra_rtt - there } }
}

fn number_of(crossings: &mut Vec<FabricRoute>, one: FabricRoute) -> usize {
    let known = crossings.iter().position(|known| *known == one);
    known.unwrap_or_else(|| {
        crossings.push(one);
        crossings.len() - 1
    })
}
