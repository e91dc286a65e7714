//! Links between satellites over time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skyhop_orbit::Ephemeris;
use skyhop_units::{Duration, Instant};

use super::NetworkRequest;
use crate::compat::CompatRules;
use crate::failures::{FailureTime, Failures, Part};
use crate::request::PathError;
use crate::route::Graph;
use crate::topology::topology;

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
    /// Times during which the link or one of its satellites has failed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailureTime>,
}

/// Longest time between two points of a laser's delay.
const LASER_STEP: Duration = Duration::from_secs(1);
/// Largest error of a laser's delay between its points, in ns: a thousandth of the shortest packet's time at 1 Gbit/s is
/// far less, but orbits are not known that well.
const LASER_ERROR_NS: f64 = 100.0;

impl NetworkRequest {
    /// Compute the links between satellites for the whole run, in ascending order of (`from`, `to`).
    ///
    /// # Errors
    /// The errors of [`Self::validate`].
    pub fn lasers(&self) -> Result<Vec<LaserPath>, PathError> {
        self.validate()?;
        let mut request = self.path_request()?;
        let failures = std::mem::take(&mut request.options.failures);
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
        Ok(lasers.finish(&failures))
    }
}

/// Links between satellites, collected step by step.
#[derive(Default)]
struct Lasers {
    links: BTreeMap<(u32, u32), Laser>,
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

    fn finish(self, failures: &Failures) -> Vec<LaserPath> {
        let path = |((from, to), laser): ((u32, u32), Laser)| LaserPath {
            from,
            to,
            delays: simplified(&laser.points),
            breaks: laser.breaks,
            failed: failures.times_of(Part::Laser(from, to)),
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
