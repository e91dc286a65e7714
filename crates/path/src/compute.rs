//! Computation of a path, step by step.

use crate::compat::CompatRules;
use skyhop_model::{Compat, End};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use skyhop_orbit::{Ephemeris, Geodetic, Sky, Vec3};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::events::{EventRules, LinkTeardown};
use crate::failures::FailedParts;
use crate::handover::{self, HandoverPolicy, Link, OrbitForecast, Selection, View};
use crate::request::{PathError, PathRequest, Place};
use crate::route::Router;
use crate::topology::{Hops, Topology, sky, topology};
use crate::trace::{
    Frame, NODE_FROM, NODE_TO, NodeSite, PathHeader, PathTrace, SCHEMA_VERSION, TraceError,
};

/// Compute a whole path. `progress` is called after each step with the number of steps done and the total, and may
/// stop the computation.
///
/// # Errors
/// The request is invalid, `progress` has stopped the computation, or no step has a path.
pub fn compute(
    request: &PathRequest,
    mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<PathTrace, PathError> {
    let mut frames = PathFrames::new(request)?;
    let (header, steps) = (frames.header(), request.steps());
    let mut trace = PathTrace { header, frames: Vec::new() };
    for (done, frame) in (1..).zip(&mut frames) {
        trace.frames.push(frame);
        if progress(done, steps).is_break() {
            return Err(PathError::Stopped { done, steps });
        }
    }
    trace.validate().map_err(|error| match (error, frames.out_of_view()) {
        (TraceError::NeverConnected { .. }, Some(place)) => PathError::NeverInView {
            constellation: request.constellation.name.clone(),
            satellites: request.constellation.satellites(),
            place: place.name.clone(),
        },
        (error, _) => error.into(),
    })?;
    trace.header.sites = sites_of(request, &trace.frames);
    Ok(trace)
}

/// Gateways and points of presence that the frames use.
fn sites_of(request: &PathRequest, frames: &[Frame]) -> Vec<NodeSite> {
    let first = request.constellation.satellites() as i32;
    let nodes = frames.iter().flat_map(|frame| &frame.nodes).copied();
    let used: BTreeSet<i32> = nodes.filter(|node| *node >= first).collect();
    let places: Vec<&Place> = request.gateways.iter().chain(&request.options.pops).collect();
    let site = |node: i32| {
        let place = places.get((node - first) as usize)?;
        let Geodetic { latitude_deg, longitude_deg, altitude_m } = place.position;
        let name = place.name.clone();
        Some(NodeSite { node, name, latitude_deg, longitude_deg, altitude_m })
    };
    used.into_iter().filter_map(site).collect()
}

/// Iterator over the frames of a path, computed one after the other in constant memory.
///
/// The iterator does not check that at least one frame has a path; [`compute`] does.
pub struct PathFrames<'r> {
    request: &'r PathRequest,
    next_step: u64,
    ephemeris: Ephemeris,
    positions: Vec<Vec3>,
    /// Satellites above each end of the path; the `from` end comes first.
    sky: Sky,
    in_view: [Vec<Link>; 2],
    /// Whether a satellite has been in view of each end, in any frame so far.
    has_seen: [bool; 2],
    policy: Box<dyn HandoverPolicy>,
    topology: Box<dyn Topology>,
    router: Router,
    route: Vec<u32>,
    rules: EventRules,
    failed: FailedParts,
    /// Previous frame, without its events.
    previous: Option<Frame>,
}

impl<'r> PathFrames<'r> {
    /// Prepare the computation of a request.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn new(request: &'r PathRequest) -> Result<Self, PathError> {
        request.validate()?;
        let ephemeris = Ephemeris::new(&request.constellation, request.compat.earth());
        Ok(Self {
            request,
            next_step: 0,
            positions: Vec::new(),
            sky: sky(request, [&request.from, &request.to], &ephemeris),
            in_view: Default::default(),
            has_seen: [false; 2],
            policy: (handover::policy(&request.handover)?.make)(request.options.grid),
            topology: topology(request, &ephemeris),
            router: Router::default(),
            route: Vec::new(),
            rules: request.event_rules(),
            failed: FailedParts::default(),
            previous: None,
            ephemeris,
        })
    }

    /// Header of the path that consists of these frames.
    pub fn header(&self) -> PathHeader {
        let request = self.request;
        PathHeader {
            schema: SCHEMA_VERSION,
            source: "skyhop path".to_owned(),
            from: request.from.endpoint(),
            to: request.to.endpoint(),
            constellation: Some(request.constellation.name.clone()),
            satellites: request.constellation.satellites(),
            relay: request.relay.map(|relay| relay.to_string()),
            handover: Some(request.handover.clone()),
            outage: Some(request.outage.to_string()),
            compat: Some(request.compat.to_string()),
            start: Some(request.start),
            duration_ns: (request.step * request.steps()).as_nanos(),
            period_ns: None,
            step_ns: request.step.as_nanos(),
            between_frames: request.compat.between_frames(),
            seed: request.seed,
            access: None,
            dish: request.relay.filter(|relay| relay.is_access()).map(|_| End::From),
            in_order: false,
            directed: false,
            origin: None,
            sites: Vec::new(),
        }
    }

    fn frame(&mut self, at: Instant) -> Frame {
        let time = self.request.start.after(at - Instant::START);
        self.propagate(at, time);
        self.topology.update(at, &self.positions);
        self.look_up(at);
        let selection = self.policy.choose(&View {
            now: at,
            utc: time,
            in_view: [&self.in_view[0], &self.in_view[1]],
            keeps_lost_satellite: self.request.compat.keeps_lost_satellite(),
            components: self.topology.components(),
            graph: self.topology.graph(),
            visibility: &OrbitForecast { ephemeris: &self.ephemeris, sky: &self.sky, now: time },
        });
        self.routed(at, selection).unwrap_or(Frame { at, ..Frame::default() })
    }

    /// Update the positions of all satellites, or only of those near the ends if the topology needs no others.
    fn propagate(&mut self, at: Instant, time: UtcInstant) {
        if self.topology.needs_every_satellite() || !self.sky.knows_near(at) {
            self.ephemeris.earth_fixed(time, &mut self.positions);
        } else {
            for satellite in self.sky.near() {
                self.positions[satellite as usize] = self.ephemeris.earth_fixed_of(satellite, time);
            }
        }
        self.failed.update(&self.request.options.failures, at);
        self.failed.blank(&mut self.positions);
    }

    /// Find the satellites in view of each end. An end without a satellite gets a single link, of
    /// zero delay, to its own node.
    fn look_up(&mut self, at: Instant) {
        self.sky.update(at, &self.positions);
        let ground = self.topology.end_without_satellite();
        for (end, in_view) in self.in_view.iter_mut().enumerate() {
            in_view.clear();
            if let (1, Some(satellite)) = (end, ground) {
                in_view.push(Link { satellite, delay_s: 0.0, sin_elevation: 1.0 });
                continue;
            }
            in_view.extend(self.sky.visible(end, &self.positions).map(|satellite| {
                let position = self.positions[satellite as usize];
                let site = &self.sky.sites()[end];
                let delay_s = self.request.compat.ground_delay_s(position, site);
                Link { satellite, delay_s, sin_elevation: site.sin_elevation(position) }
            }));
        }
        for (has_seen, in_view) in self.has_seen.iter_mut().zip(&self.in_view) {
            *has_seen |= !in_view.is_empty();
        }
    }

    /// First end that has had no satellite in view in any frame so far.
    fn out_of_view(&self) -> Option<&'r Place> {
        let mut ends = [&self.request.from, &self.request.to].into_iter().zip(self.has_seen);
        ends.find(|(_, has_seen)| !has_seen).map(|(place, _)| place)
    }

    /// Frame with the shortest route between the selected satellites; `None` if they have no route.
    fn routed(&mut self, at: Instant, selection: Selection) -> Option<Frame> {
        let [Some(from), Some(to)] = selection else { return None };
        self.router.shortest(
            self.topology.graph(),
            from.satellite,
            to.satellite,
            &mut self.route,
        )?;
        let mut hops = Hops { nodes: vec![NODE_FROM], delays: vec![self.end_delay(0, from)] };
        self.topology.hops(&self.route, &self.positions, &mut hops);
        hops.nodes.push(NODE_TO);
        if self.topology.end_without_satellite().is_none() {
            hops.delays.push(self.end_delay(1, to));
        }
        let delay = Some(hops.delays.iter().copied().sum());
        Some(Frame {
            at,
            nodes: hops.nodes,
            hop_delays: hops.delays,
            delay,
            delay_back: delay,
            ..Frame::default()
        })
    }

    fn end_delay(&self, end: usize, link: Link) -> Duration {
        let compat = self.request.compat;
        if compat.freezes_end_hops() {
            return Duration::from_secs_f64(link.delay_s);
        }
        let position = self.positions[link.satellite as usize];
        Duration::from_secs_f64(compat.ground_delay_s(position, &self.sky.sites()[end]))
    }
}

impl Iterator for PathFrames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        if self.next_step == self.request.steps() {
            return None;
        }
        let at = Instant::START + self.request.step * self.next_step;
        self.next_step += 1;
        let mut frame = self.frame(at);
        let events = self.rules.between(self.previous.as_ref(), &frame);
        self.previous = Some(frame.clone());
        frame.events = events;
        Some(frame)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.request.steps() - self.next_step) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for PathFrames<'_> {}

impl PathRequest {
    fn event_rules(&self) -> EventRules {
        let teardown = match self.compat {
            Compat::None | Compat::Hypatia => {
                LinkTeardown::GatewayLinks { satellites: self.constellation.satellites() }
            }
            Compat::Leoem => LinkTeardown::AllAsLeoem,
        };
        EventRules {
            outage: self.outage,
            intermediate_outage: self.intermediate_outage,
            teardown,
            seed: self.seed,
        }
    }
}
