//! Steps of a network: the routes in force, and the satellites that sites can use.

use std::mem;
use std::sync::Arc;

use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::{Duration, Instant};

use super::ground::{Backhaul, Moment, Serving, Usable};
use super::{NetworkRequest, NetworkStep, Sight};
use crate::compat::CompatRules;
use crate::failures::FailedParts;
use crate::handover::Link;
use crate::request::PathError;
use crate::routing::{NetworkView, RoutesTo, Routing};
use crate::topology::{Topology, look_up, sky, topology};

/// Source of the steps of a network, one after the other in constant memory.
///
/// Routes are computed at the begin and then every [`NetworkRequest::every`], with the failures of that moment. A failure
/// that begins or ends in between ends a step as well, from which on the part is or is no longer usable, while the routes
/// stay as they are.
pub struct NetworkSteps {
    request: NetworkRequest,
    ephemeris: Ephemeris,
    topology: Box<dyn Topology>,
    sky: Sky,
    routing: Box<dyn Routing>,
    /// Positions at the begin of the next step.
    positions: Vec<Vec3>,
    /// Satellites in view of each site at the last computation of the routes, those that fail included, with the delays
    /// at the begin of the next step.
    in_view: Vec<Vec<Link>>,
    /// Satellites that each site can use at the begin of the next step.
    usable: Usable,
    backhaul: Backhaul,
    serving: Serving,
    failed: FailedParts,
    routes: Arc<[RoutesTo]>,
    next: Instant,
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
            routing: request.routing.routing(&request, threads),
            positions: Vec::new(),
            in_view: vec![Vec::new(); request.sites.len()],
            usable: Usable::default(),
            backhaul: Backhaul::new(&request),
            serving: Serving::new(&request, request.options.grid),
            failed: FailedParts::default(),
            routes: Arc::default(),
            next: Instant::START,
            ephemeris,
            request,
        };
        steps.propagate(Instant::START);
        steps.look(Instant::START);
        steps.find_usable(Instant::START);
        Ok(steps)
    }

    /// Compute the next step.
    pub fn step(&mut self) -> NetworkStep {
        let from = self.next;
        let routes = self.routes(from);
        let until = self.end_of_step(from);
        if until == Instant::NEVER {
            let sights = self.all_sights(&self.usable);
            return NetworkStep { from, until, routes, sights };
        }
        let before = mem::take(&mut self.usable);
        self.propagate(until);
        if self.computes_routes(until) {
            self.look(until);
        } else {
            self.move_links();
        }
        self.find_usable(until);
        self.next = until;
        let sights = self.all_sights(&before);
        NetworkStep { from, until, routes, sights }
    }

    /// Whether routes are computed at `at`, the begin of a step.
    fn computes_routes(&self, at: Instant) -> bool {
        let every_ns = self.request.every.map(Duration::as_nanos);
        at.as_nanos() == 0
            || every_ns.is_some_and(|every_ns| at.as_nanos().is_multiple_of(every_ns))
    }

    /// End of the step that begins at `from`.
    fn end_of_step(&self, from: Instant) -> Instant {
        let computed = self.request.every.map(|every| {
            let steps = from.as_nanos() / every.as_nanos() + 1;
            Instant::START + every * steps
        });
        let changed = self.request.options.failures.next_change(from);
        changed.min(computed.unwrap_or(Instant::NEVER))
    }

    /// Compute the positions at `at`, or those of the start if satellites stand still.
    fn propagate(&mut self, at: Instant) {
        let after = if self.request.every.is_some() { at - Instant::START } else { Duration::ZERO };
        self.ephemeris.earth_fixed(self.request.start.after(after), &mut self.positions);
    }

    /// Find the satellites in view of each site.
    fn look(&mut self, at: Instant) {
        self.sky.update(at, &self.positions);
        look_up(&self.sky, self.request.compat, &self.positions, &mut self.in_view);
        self.backhaul.clear_points(&mut self.in_view);
        for in_view in &mut self.in_view {
            in_view.sort_by_key(|link| link.satellite);
        }
    }

    /// Update the delays between sites and the satellites in view.
    fn move_links(&mut self) {
        let compat = self.request.compat;
        for (place, links) in self.sky.sites().iter().zip(&mut self.in_view) {
            for link in links {
                link.delay_s =
                    compat.ground_delay_s(self.positions[link.satellite as usize], place);
            }
        }
    }

    /// Find the satellites that sites can use at `at`: those in view that have not failed, with a handover policy the one
    /// that it chooses, and for points of presence those of the gateways.
    fn find_usable(&mut self, at: Instant) {
        self.failed.update(&self.request.options.failures, at);
        self.usable.links.clone_from(&self.in_view);
        if !self.failed.is_empty() {
            for (site, links) in self.usable.links.iter_mut().enumerate() {
                let has_site = self.failed.has_site(site);
                links.retain(|link| !has_site && !self.failed.has_satellite(link.satellite));
            }
        }
        if self.computes_routes(at) {
            let utc = self.request.start.after(at - Instant::START);
            let Self { ephemeris, sky, .. } = self;
            self.serving.choose(&Moment { now: at, utc, ephemeris, sky }, &self.usable);
        }
        self.serving.restrict(&mut self.usable);
        self.backhaul.connect(&mut self.usable, &self.failed);
    }

    /// Satellites that each site could use at the begin of a step, with their delays at its end, which is now.
    fn all_sights(&self, before: &Usable) -> Vec<Vec<Sight>> {
        let sites = 0..before.links.len() as u32;
        sites.map(|site| self.sights(site, before)).collect()
    }

    fn sights(&self, site: u32, before: &Usable) -> Vec<Sight> {
        let sight = |(index, link): (usize, &Link)| {
            let via = before.via(site, index);
            let of_antenna =
                if via.antenna == site { None } else { before.link(via.antenna, link.satellite) };
            let begin_s = of_antenna.unwrap_or(link).delay_s;
            let position = self.positions[link.satellite as usize];
            let antenna = &self.sky.sites()[via.antenna as usize];
            let end_s = self.request.compat.ground_delay_s(position, antenna);
            Sight {
                satellite: link.satellite,
                antenna: via.antenna,
                fibre: Duration::from_secs_f64(via.fibre_s),
                delay: [begin_s, end_s].map(Duration::from_secs_f64),
                lasts: self.usable.has(via.antenna, link.satellite),
            }
        };
        before.links[site as usize].iter().enumerate().map(sight).collect()
    }

    /// Routes of the step that begins at `from`, which is now.
    fn routes(&mut self, from: Instant) -> Arc<[RoutesTo]> {
        if !self.computes_routes(from) {
            return self.without_lost_hops();
        }
        self.failed.blank(&mut self.positions);
        self.topology.update(from, &self.positions);
        let found = self.routing.routes(&NetworkView {
            now: from,
            graph: self.topology.graph(),
            in_view: &self.usable.links,
            destinations: &self.request.destinations,
        });
        let is_new = found.is_some();
        if let Some(routes) = found {
            self.routes = routes.into();
        }
        if is_new && self.routing.uses_existing_hops() {
            return Arc::clone(&self.routes);
        }
        self.without_lost_hops()
    }

    /// Routes without the hops that do not exist now.
    fn without_lost_hops(&self) -> Arc<[RoutesTo]> {
        let usable = |(destination, routes): (&u32, &RoutesTo)| {
            let next = |(satellite, next): (u32, Option<u32>)| {
                let exists = |next: &u32| match *next {
                    last if last == satellite => self.usable.has(*destination, last),
                    next => {
                        let mut edges = self.topology.graph().edges(satellite).iter();
                        edges.any(|edge| edge.to == next && edge.is_open())
                    }
                };
                next.filter(exists)
            };
            let up = |(site, up): (u32, Option<(u32, Duration)>)| {
                up.filter(|(satellite, _)| self.usable.has(site, *satellite))
            };
            let next = (0..).zip(routes.all_next()).map(next).collect();
            RoutesTo::listed(next, (0..).zip(routes.all_up()).map(up).collect())
        };
        let ways = self.request.routing.ways() as usize;
        let each_way = |destination| std::iter::repeat_n(destination, ways);
        let destinations = self.request.destinations.iter().flat_map(each_way);
        destinations.zip(self.routes.iter()).map(usable).collect()
    }
}
