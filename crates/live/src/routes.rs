//! Which way packets take through the links.

use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_link::{Crossing, Fabric, LinkConfig, Packet};
use skyhop_model::Direction;
use skyhop_units::{Duration, Instant};

use skyhop_host::frame::Frame;

/// The routes of one direction, by the traffic's place. What is not skyhop's own goes over the path.
#[derive(Debug, Clone)]
pub(crate) struct RouteTable {
    /// By place: routes of the fabric, each from its moment on.
    by_place: Vec<Vec<(Instant, usize)>>,
    /// Whether there is anything to tell apart.
    is_one: bool,
}

/// The route of programs and of the engine's own probe.
const PATH_ALONE: usize = 0;

impl RouteTable {
    /// The route of a packet that sets out now.
    pub(crate) fn route_of(&self, now: Instant, packet: &Packet<Frame>) -> usize {
        if self.is_one {
            return PATH_ALONE;
        }
        let routes = self.by_place.get(packet.flow as usize).map_or(&[][..], Vec::as_slice);
        let current = routes.iter().rev().find(|(from, _)| *from <= now);
        current.map_or(PATH_ALONE, |(_, route)| *route)
    }
}

/// The links of one direction, and which route what takes. `flow_ids` are by place.
pub(crate) fn build(
    experiment: &Experiment,
    direction: Direction,
    flow_ids: &[Option<u32>],
) -> Result<(Fabric<Frame>, RouteTable), Unsupported> {
    let path = usize::from(experiment.path_link());
    let mut crossings = vec![Crossing { links: vec![path], delay: Duration::ZERO }];
    let mut by_place = Vec::with_capacity(flow_ids.len());
    for id in flow_ids {
        let flow = id.and_then(|id| experiment.flows.iter().find(|flow| flow.id == id));
        let routes = flow.into_iter().flat_map(|flow| {
            flow.routes.iter().map(|route| (route.from, crossing(flow, &route.links, direction)))
        });
        by_place.push(routes.map(|(from, one)| (from, number_of(&mut crossings, one))).collect());
    }
    let is_one = crossings.len() == 1;
    let configs = experiment.links.iter().map(|link| link.config(direction).clone());
    let configs: Vec<LinkConfig> = configs.collect();
    let watched = (experiment.blind.is_some() && direction == Direction::Back).then_some(path);
    let fabric = Fabric::new(configs, crossings, watched)
        .map_err(|error| Unsupported::new("link", error.to_string()))?;
    Ok((fabric, RouteTable { by_place, is_one }))
}

/// A route as packets of one direction cross it. Half of a flow's own round trip lies behind it: the smaller
/// one towards the receiver, as in the simulator.
fn crossing(flow: &FlowPlan, links: &[u16], direction: Direction) -> Crossing {
    let mut links: Vec<usize> = links.iter().map(|link| usize::from(*link)).collect();
    if direction == Direction::Back {
        links.reverse();
    }
    let there = flow.extra_rtt / 2;
    let carries_data = (flow.from == skyhop_model::End::From) == (direction == Direction::Forward);
    Crossing { links, delay: if carries_data { there } else { flow.extra_rtt - there } }
}

fn number_of(crossings: &mut Vec<Crossing>, one: Crossing) -> usize {
    let known = crossings.iter().position(|known| *known == one);
    known.unwrap_or_else(|| {
        crossings.push(one);
        crossings.len() - 1
    })
}
