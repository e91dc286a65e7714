//! Access topology: a satellite, or several that lasers join, a gateway, the user's point of presence, and fibre to the
//! other end.

use crate::compat::CompatRules;
use skyhop_model::Compat;
use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::{Duration, Instant};

use super::{Hops, PlusGrid, Topology, sky};
use crate::fibre::{fibre_delay_s, great_circle_m};
use crate::route::Graph;
use crate::{PathRequest, Place};

/// Topology with a link from each satellite in view of a gateway to the end `to`, which has no satellite.
///
/// Nodes are numbered in the order satellites, gateways, points of presence, and last the end `to`.
pub struct Access {
    sky: Sky,
    satellites: u32,
    compat: Compat,
    /// Node of the user's point of presence.
    pop: u32,
    /// One-way delay of the fibre from each gateway to the point of presence.
    to_pop_s: Vec<f64>,
    /// One-way delay of the fibre from the point of presence to the end `to`.
    to_end_s: f64,
    /// Best gateway of each satellite: its index, and the one-way delay from the satellite over the
    /// gateway to `to` in s; `None` without a gateway in view.
    best: Vec<Option<(u32, f64)>>,
    /// Lasers over which packets get to a satellite with a gateway in view, if the request has them.
    lasers: Option<PlusGrid>,
    links: Vec<(u32, u32, f64)>,
    graph: Graph,
    components: Vec<u32>,
    /// Node of the end `to`.
    to: u32,
}

impl Access {
    /// Create the topology of a request with gateways and points of presence.
    pub fn new(request: &PathRequest, ephemeris: &Ephemeris) -> Self {
        let satellites = request.constellation.satellites();
        let pops = &request.options.pops;
        let first_pop = satellites + request.gateways.len() as u32;
        let stretch = request.options.fibre_stretch;
        // Users are assigned to the nearest point of presence (Wang and others, A Cross-US View of Starlink's
        // PoP and Satellite Assignment Strategy, LEO-NET 2026), independent of the gateway that serves them.
        let (index, pop) = nearest(&request.from, pops);
        let fibre_s = |place: &Place| fibre_delay_s(place.position, pop.position, stretch);
        Self {
            pop: first_pop + index,
            to_pop_s: request.gateways.iter().map(fibre_s).collect(),
            to_end_s: fibre_s(&request.to),
            sky: sky(request, &request.gateways, ephemeris),
            satellites,
            compat: request.compat,
            best: Vec::new(),
            lasers: request.options.isl_backhaul.then(|| PlusGrid::new(request, ephemeris)),
            links: Vec::new(),
            graph: Graph::default(),
            components: Vec::new(),
            to: first_pop + pops.len() as u32,
        }
    }

    /// One-way delay from a satellite over a gateway to `to`.
    fn delay_s(&self, gateway: usize, satellite: Vec3) -> f64 {
        let down_s = self.compat.ground_delay_s(satellite, &self.sky.sites()[gateway]);
        down_s + self.to_pop_s[gateway] + self.to_end_s
    }
}

/// Return the point of presence nearest to the user, and its index. A checked request has at least one.
fn nearest<'p>(user: &Place, pops: &'p [Place]) -> (u32, &'p Place) {
    let distance_m = |pop: &Place| great_circle_m(user.position, pop.position);
    let nearest = (0..).zip(pops).min_by(|(_, a), (_, b)| distance_m(a).total_cmp(&distance_m(b)));
    nearest.expect("the request was checked")
}

impl Topology for Access {
    fn update(&mut self, now: Instant, positions: &[Vec3]) {
        self.sky.update(now, positions);
        self.best.clear();
        self.best.resize(self.satellites as usize, None);
        for gateway in 0..self.to_pop_s.len() {
            for satellite in self.sky.visible(gateway, positions) {
                let delay_s = self.delay_s(gateway, positions[satellite as usize]);
                let best = &mut self.best[satellite as usize];
                if best.is_none_or(|(_, shortest_s)| delay_s < shortest_s) {
                    *best = Some((gateway as u32, delay_s));
                }
            }
        }
        self.links.clear();
        self.links.extend(
            (0..)
                .zip(&self.best)
                .filter_map(|(satellite, best)| best.map(|(_, s)| (satellite, self.to, s))),
        );
        if let Some(lasers) = &mut self.lasers {
            lasers.update(now, positions);
            let graph = lasers.graph();
            for from in 0..self.satellites {
                let open = graph.edges(from).iter().filter(|edge| edge.to > from && edge.is_open());
                self.links.extend(open.map(|edge| (from, edge.to, edge.weight)));
            }
        }
        self.graph.rebuild(self.to as usize + 1, &self.links);
        self.graph.components(&mut self.components);
    }

    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn components(&self) -> &[u32] {
        &self.components
    }

    fn end_without_satellite(&self) -> Option<u32> {
        Some(self.to)
    }

    fn hops(&self, route: &[u32], positions: &[Vec3], hops: &mut Hops) {
        let [satellites @ .., _] = route else { return };
        let Some(last) = satellites.last() else { return };
        let Some((gateway, _)) = self.best[*last as usize] else { return };
        if let Some(lasers) = &self.lasers {
            lasers.hops(satellites, positions, hops);
        } else {
            hops.nodes.push(*last as i32);
        }
        let site = &self.sky.sites()[gateway as usize];
        let down_s = self.compat.ground_delay_s(positions[*last as usize], site);
        hops.nodes.extend([self.satellites + gateway, self.pop].map(|n| n as i32));
        let delays =
            [down_s, self.to_pop_s[gateway as usize], self.to_end_s].map(Duration::from_secs_f64);
        hops.delays.extend(delays);
    }
}
