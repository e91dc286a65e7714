//! Geometry of a whole network: routes from every satellite and site to every destination, step by step, and the
//! lengths of all links.

mod lasers;
mod loads;
mod sharing;
mod steps;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skyhop_model::{Compat, Relay};
use skyhop_orbit::Constellation;
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::request::{PathError, PathOptions, PathRequest, Place};
use crate::routing::{RoutesTo, RoutingKind};
pub use lasers::LaserPath;
pub use loads::{Demand, Leg, Loads};
pub use steps::NetworkSteps;

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
    /// Choice of the routes.
    #[serde(default)]
    pub routing: RoutingKind,
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
    /// Whether the satellite is in view at the step's end too, and neither it nor the site fails then.
    pub lasts: bool,
}

/// Routes and sights during one step, which ends where routes are computed again or a failure begins or ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkStep {
    /// Time since the start at which the step begins.
    pub from: Instant,
    /// End of the step; [`Instant::NEVER`] if the geometry stands still.
    pub until: Instant,
    /// Routes to each of the request's destinations; with several ways, all ways to the first destination come first.
    pub routes: Arc<[RoutesTo]>,
    /// Satellites that each site can use, in ascending order: those in view that have not failed.
    pub sights: Vec<Vec<Sight>>,
}

impl NetworkRequest {
    /// The request for a path with the same satellites and rules.
    pub(crate) fn path_request(&self) -> Result<PathRequest, PathError> {
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
    /// There are fewer than two sites, or an option or the routing is invalid.
    pub fn validate(&self) -> Result<(), PathError> {
        self.path_request()?.validate()?;
        self.routing.check([self.constellation.satellites() as usize, self.sites.len()])?;
        self.sites.iter().try_for_each(Place::validate)
    }
}
