//! Geometry of a whole network: routes from every satellite and site to every destination, step by step, and the
//! lengths of all links.

use std::thread;

use serde::{Deserialize, Serialize};
use skyhop_model::{Compat, Relay};
use skyhop_orbit::{Constellation, Ephemeris, Sky, Vec3};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::compat::CompatRules;
use crate::handover::Link;
use crate::repeated_search::{RepeatedSearch, VisitingOrder};
use crate::request::{PathError, PathOptions, PathRequest, Place};
use crate::route::Graph;
use crate::topology::{Topology, look_up, sky, topology};

/// Request for the geometry of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRequest {
    /// Satellites of the network.
    #[serde(with = "skyhop_orbit::constellation::whole")]
    pub constellation: Constellation,
    /// Places on the ground.
    pub sites: Vec<Place>,
    /// Indices of the sites to which packets go, in ascending order.
    pub destinations: Vec<u32>,
    /// Start of the run in UTC.
    pub start: UtcInstant,
    /// Time between two computations of the routes; `None` for the routes and the geometry at the start throughout.
    pub every: Option<Duration>,
    /// Duration of the run.
    pub duration: Duration,
    /// Other simulator whose Earth model, speed of light and rules the network uses, if any.
    pub compat: Compat,
    /// Options of the links; points of presence, fibre and grid are ignored.
    pub options: PathOptions,
}

/// A satellite in view of a site.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sight {
    /// Number of the satellite.
    pub satellite: u32,
    /// One-way delay at the step's begin and at its end.
    pub delay: [Duration; 2],
    /// Whether the satellite is in view at the step's end too.
    pub lasts: bool,
}

/// Routes to one destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutesTo {
    /// Next node of each satellite: a neighbour; the satellite itself if it sends to the destination directly; `None`
    /// without a route.
    pub next: Vec<Option<u32>>,
    /// Satellite to which each site sends, and the delay of the whole route; `None` without a route.
    pub up: Vec<Option<(u32, Duration)>>,
}

/// Routes and sights during one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkStep {
    /// Time since the start at which the step begins.
    pub from: Instant,
    /// End of the step; [`Instant::NEVER`] if the geometry stands still.
    pub until: Instant,
    /// Routes to each of the request's destinations.
    pub routes: Vec<RoutesTo>,
    /// Satellites in view of each site, in ascending order.
    pub sights: Vec<Vec<Sight>>,
}

/// A link between two satellites, in one direction, over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaserPath {
    /// Satellite that sends packets.
    pub from: u32,
    /// Satellite that receives packets.
    pub to: u32,
    /// One-way delay at given times, between which it changes linearly; constant after the last one.
    pub delays: Vec<(Instant, Duration)>,
    /// Times at which the link ceases to exist because the Earth is in its way, or it is too long.
    pub breaks: Vec<Instant>,
}

/// Source of the steps of a network, one after the other in constant memory.
pub struct NetworkSteps {
    request: NetworkRequest,
    ephemeris: Ephemeris,
    topology: Box<dyn Topology>,
    sky: Sky,
    positions: Vec<Vec3>,
    /// Satellites in view of each site at the begin of the next step.
    in_view: Vec<Vec<Link>>,
    /// Buffers of each thread's searches.
    searches: Vec<RepeatedSearch>,
    /// Order of the search from each destination.
    orders: Vec<VisitingOrder>,
    next: Instant,
}

/// Longest time between two points of a laser's delay.
const LASER_STEP: Duration = Duration::from_secs(1);
/// Largest error of a laser's delay between its points, in ns: a thousandth of the shortest packet's time at 1 Gbit/s is
/// far less, but orbits are not known that well.
const LASER_ERROR_NS: f64 = 100.0;

impl NetworkRequest {
    /// The request for a path with the same satellites and rules.
    fn path_request(&self) -> Result<PathRequest, PathError> {
        let [first, .., last] = self.sites.as_slice() else {
            let what = format!("a network of {} sites", self.sites.len());
            return Err(PathError::Option { what, expected: "at least two sites" });
        };
        Ok(PathRequest {
            constellation: self.constellation.clone(),
            from: first.clone(),
            to: last.clone(),
            gateways: Vec::new(),
            relay: Some(Relay::Isl),
            handover: crate::handover::default_policy(self.compat).to_owned(),
            outage: crate::OutageModel::None,
            intermediate_outage: Duration::ZERO,
            compat: self.compat,
            start: self.start,
            step: self.every.unwrap_or(self.duration),
            duration: self.duration,
            seed: 0,
            options: self.options.clone(),
        })
    }

    /// Check the request.
    ///
    /// # Errors
    /// There are fewer than two sites, or an option is invalid.
    pub fn validate(&self) -> Result<(), PathError> {
        self.path_request()?.validate()?;
        self.sites.iter().try_for_each(Place::validate)
    }

    /// Compute the links between satellites for the whole run, in ascending order of (`from`, `to`).
    ///
    /// # Errors
    /// The errors of [`Self::validate`].
    pub fn lasers(&self) -> Result<Vec<LaserPath>, PathError> {
        self.validate()?;
        let request = self.path_request()?;
        let ephemeris = Ephemeris::new(&self.constellation, self.compat.earth());
        let mut topology = topology(&request, &ephemeris);
        let mut lasers = Lasers::default();
        let mut positions = Vec::new();
        let step = self.every.map_or(self.duration, |every| every.max(LASER_STEP));
        let steps = if self.every.is_some() {
            self.duration.as_nanos().div_ceil(step.as_nanos())
        } else {
            0
        };
        for number in 0..=steps {
            let at = Instant::START + step * number;
            ephemeris.earth_fixed(self.start.after(at - Instant::START), &mut positions);
            topology.update(at, &positions);
            lasers.add(at, topology.graph());
        }
        Ok(lasers.finish())
    }
}

/// Links between satellites, collected step by step.
#[derive(Default)]
struct Lasers {
    links: std::collections::BTreeMap<(u32, u32), Laser>,
}

#[derive(Default)]
struct Laser {
    /// Time and delay in ns of each step in which the link exists.
    points: Vec<(Instant, f64)>,
    is_open: bool,
    breaks: Vec<Instant>,
}

impl Lasers {
    fn add(&mut self, at: Instant, graph: &Graph) {
        let nodes = 0..graph.nodes() as u32;
        let edges = nodes.flat_map(|from| graph.edges(from).iter().map(move |edge| (from, edge)));
        for (from, edge) in edges.filter(|(_, edge)| edge.is_open()) {
            let laser = self.links.entry((from, edge.to)).or_default();
            laser.points.push((at, edge.weight * 1e9));
        }
        for laser in self.links.values_mut() {
            let is_open = laser.points.last().is_some_and(|(last, _)| *last == at);
            if laser.is_open && !is_open {
                laser.breaks.push(at);
            }
            laser.is_open = is_open;
        }
    }

    fn finish(self) -> Vec<LaserPath> {
        let path = |((from, to), laser): ((u32, u32), Laser)| LaserPath {
            from,
            to,
            delays: simplified(&laser.points),
            breaks: laser.breaks,
        };
        self.links.into_iter().map(path).collect()
    }
}

/// Leave out the points that lie on the line between those before and after them.
fn simplified(points: &[(Instant, f64)]) -> Vec<(Instant, Duration)> {
    let mut kept = vec![0];
    let mut first = 0;
    for end in 2..points.len() {
        let (begin, last) = (points[first], points[end]);
        let slope = (last.1 - begin.1) / (last.0 - begin.0).as_secs_f64();
        let is_near = |(at, delay_ns): &(Instant, f64)| {
            let line_ns = begin.1 + slope * (*at - begin.0).as_secs_f64();
            (line_ns - delay_ns).abs() <= LASER_ERROR_NS
        };
        if !points[first + 1..end].iter().all(is_near) {
            first = end - 1;
            kept.push(first);
        }
    }
    if points.len() > 1 {
        kept.push(points.len() - 1);
    }
    let rounded = |index: usize| {
        let (at, delay_ns) = points[index];
        (at, Duration::from_nanos(delay_ns.round() as u64))
    };
    kept.into_iter().map(rounded).collect()
}

impl NetworkSteps {
    /// Prepare the computation; steps use so many threads.
    ///
    /// # Errors
    /// The errors of [`NetworkRequest::validate`].
    pub fn new(request: NetworkRequest, threads: usize) -> Result<Self, PathError> {
        request.validate()?;
        let of_path = request.path_request()?;
        let ephemeris = Ephemeris::new(&request.constellation, request.compat.earth());
        let mut steps = Self {
            topology: topology(&of_path, &ephemeris),
            sky: sky(&of_path, &request.sites, &ephemeris),
            positions: Vec::new(),
            in_view: vec![Vec::new(); request.sites.len()],
            searches: (0..threads.max(1)).map(|_| RepeatedSearch::default()).collect(),
            orders: vec![VisitingOrder::default(); request.destinations.len()],
            next: Instant::START,
            ephemeris,
            request,
        };
        steps.look(Instant::START);
        Ok(steps)
    }

    /// Compute the next step.
    pub fn step(&mut self) -> NetworkStep {
        let from = self.next;
        let mut step = NetworkStep { from, ..NetworkStep::default() };
        self.topology.update(from, &self.positions);
        step.routes = self.routes();
        let before = self.in_view.clone();
        let Some(every) = self.request.every else {
            step.until = Instant::NEVER;
            step.sights = before.iter().map(|links| links.iter().map(still).collect()).collect();
            return step;
        };
        self.next = from + every;
        self.look(self.next);
        step.until = self.next;
        step.sights = (0..).zip(&before).map(|(site, links)| self.sights(site, links)).collect();
        step
    }

    /// Find the satellites in view of each site.
    fn look(&mut self, at: Instant) {
        let time = self.request.start.after(at - Instant::START);
        self.ephemeris.earth_fixed(time, &mut self.positions);
        self.sky.update(at, &self.positions);
        look_up(&self.sky, self.request.compat, &self.positions, &mut self.in_view);
        for in_view in &mut self.in_view {
            in_view.sort_by_key(|link| link.satellite);
        }
    }

    /// Satellites that were in view of a site at the begin of a step, with their delays at its end, which is now.
    fn sights(&self, site: usize, before: &[Link]) -> Vec<Sight> {
        let place = &self.sky.sites()[site];
        let sight = |link: &Link| {
            let position = self.positions[link.satellite as usize];
            let delay_s = self.request.compat.ground_delay_s(position, place);
            let by_number = |now: &Link| now.satellite.cmp(&link.satellite);
            Sight {
                satellite: link.satellite,
                delay: [link.delay_s, delay_s].map(Duration::from_secs_f64),
                lasts: self.in_view[site].binary_search_by(by_number).is_ok(),
            }
        };
        before.iter().map(sight).collect()
    }

    /// Shortest routes to all destinations, found on several threads.
    fn routes(&mut self) -> Vec<RoutesTo> {
        let Self { request, topology, in_view, searches, orders, .. } = self;
        let (graph, in_view): (&Graph, &[Vec<Link>]) = (topology.graph(), in_view);
        let share = request.destinations.len().div_ceil(searches.len()).max(1);
        let shares = request.destinations.chunks(share).zip(orders.chunks_mut(share));
        let find = |(destinations, orders): (&[u32], &mut [VisitingOrder]), search: &mut _| {
            let each = destinations.iter().zip(orders);
            let to = |(destination, order): (&u32, &mut VisitingOrder)| {
                routes_to(*destination, graph, in_view, search, order)
            };
            each.map(to).collect::<Vec<RoutesTo>>()
        };
        thread::scope(|scope| {
            let threads: Vec<_> = shares
                .zip(searches)
                .map(|(share, search)| scope.spawn(|| find(share, search)))
                .collect();
            threads.into_iter().flat_map(|one| one.join().unwrap_or_default()).collect()
        })
    }
}

/// Sight of a satellite that stands still.
fn still(link: &Link) -> Sight {
    let delay = Duration::from_secs_f64(link.delay_s);
    Sight { satellite: link.satellite, delay: [delay; 2], lasts: true }
}

/// Shortest routes to one destination.
fn routes_to(
    destination: u32,
    graph: &Graph,
    in_view: &[Vec<Link>],
    search: &mut RepeatedSearch,
    order: &mut VisitingOrder,
) -> RoutesTo {
    // Links have the same delay in both directions, so that the routes from the destination are those to it.
    search.search(graph, &in_view[destination as usize], order);
    let nearest = |links: &Vec<Link>| {
        let total = |link: &Link| (search.distance(link.satellite) + link.delay_s, link.satellite);
        let first = links.iter().map(total).reduce(|a, b| if b.0 < a.0 { b } else { a });
        let reached = first.filter(|(delay_s, _)| *delay_s < f64::INFINITY);
        reached.map(|(delay_s, satellite)| (satellite, Duration::from_secs_f64(delay_s)))
    };
    RoutesTo { next: search.nodes_before(graph), up: in_view.iter().map(nearest).collect() }
}
