//! Geometry of a whole network: routes from every satellite and site to every destination, step by step, and the
//! lengths of all links.

mod ground;
mod handovers;
mod lasers;
mod loads;
mod recorded;
mod sharing;
mod steps;

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use skyhop_model::{Compat, Relay};
use skyhop_orbit::Constellation;
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::request::{PathError, PathOptions, PathRequest, Place};
use crate::routing::{RoutesTo, RoutingKind};
pub use ground::Role;
pub use handovers::RoutePair;
pub use lasers::LaserPath;
pub use loads::{Demand, Leg, Links, Loads};
pub use recorded::LegBits;
pub use steps::NetworkSteps;

/// Request for the geometry of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRequest {
    /// Satellites of the network.
    #[serde(with = "skyhop_orbit::constellation::whole")]
    pub constellation: Constellation,
    /// Places on the ground.
    pub sites: Vec<Place>,
    /// Role of each site; sites after the last role are terminals with the policy `immediate`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
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
    /// Whether there are lasers between satellites; without them every route goes over one satellite.
    #[serde(default = "yes")]
    pub has_lasers: bool,
    /// Options of the links; points of presence are ignored.
    pub options: PathOptions,
}

/// A satellite that a site can use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sight {
    /// Number of the satellite.
    pub satellite: u32,
    /// Site with the antenna: the site itself, or the gateway between a point of presence and the satellite.
    pub antenna: u32,
    /// One-way delay of the fibre between the site and the antenna.
    pub fibre: Duration,
    /// One-way delay between the antenna and the satellite at the step's begin and at its end.
    pub delay: [Duration; 2],
    /// Whether the antenna can use the satellite at the step's end too.
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
    /// Satellites that each site can use, in ascending order: those in view that have not failed, of a terminal with a
    /// handover policy the one that serves it, and of a point of presence those of all gateways.
    pub sights: Vec<Vec<Sight>>,
}

const fn yes() -> bool {
    true
}

impl NetworkRequest {
    /// Role of a site.
    pub fn role(&self, site: u32) -> &Role {
        static TERMINAL: LazyLock<Role> = LazyLock::new(Role::default);
        self.roles.get(site as usize).unwrap_or_else(|| &TERMINAL)
    }

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
            relay: self.has_lasers.then_some(Relay::Isl),
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
        self.roles.iter().try_for_each(Role::check)?;
        if self.roles.contains(&Role::PointOfPresence) && !self.roles.contains(&Role::Gateway) {
            return Err(PathError::NoGateways);
        }
        self.sites.iter().try_for_each(Place::validate)
    }
}
