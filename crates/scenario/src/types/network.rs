//! `[network]`: a constellation with many sites, whose links and traffic have files of their own.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skyhop_model::{Compat, ShellLinks};
use skyhop_units::{Angle, Duration, Length, UtcInstant};

use crate::types::{
    BackgroundSection, ConstellationPath, GatewayLinks, LaserKeys, Routing, Sites, TrafficSection,
    UserLinks, routing,
};

/// `[network]`: a constellation with many sites as one network. Packets go hop by hop over its satellites, and flows
/// that meet on a satellite share its queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct NetworkSection {
    /// Constellation, in the forms of `path.constellation`.
    #[serde(default = "default_constellation")]
    pub constellation: String,
    /// Places on the ground, 2 to 10000: a list of names, positions "lat,lon[,alt_m]" and tables; the most populous
    /// cities ("top-100"); a grid of cells ({ grid = "5 deg" }); a list from `skyhop list sites`, or a CSV file with the
    /// columns name, latitude_deg and longitude_deg, and optionally altitude_m and population. Required.
    pub sites: Sites,
    /// How packets get from a site's satellite to another: "isl" (over lasers) or "bent-pipe" (not at all: every route
    /// goes over one satellite).
    #[serde(default)]
    pub relay: NetworkRelay,
    /// Gateways, in the forms of `sites`: ground stations with an antenna for each satellite in view. Each is the site of
    /// flows by its name, and joined by fibre to every point of presence. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateways: Option<Sites>,
    /// Points of presence, in the forms of `sites`: places without antennas, which packets enter and leave over the gateway
    /// of the least delay. Each is the site of flows by its name. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pops: Option<Sites>,
    /// Length of the fibre between gateways and points of presence divided by the great-circle distance, 1 to 10.
    #[serde(default = "default_fibre_stretch")]
    pub fibre_stretch: f64,
    /// Handover policy of the sites' terminals: "immediate" (each packet goes over the satellite of its shortest route) or
    /// one of `skyhop list handovers`, with which a terminal uses one satellite at a time: the policy chooses it as for a
    /// path from the terminal to itself. At a handover packets in the air are lost. A site's own `handover` comes first.
    #[serde(default = "default_handover")]
    pub handover: String,
    /// UTC time at which the run begins. Default: the constellation's epoch; for element sets the median of their
    /// epochs.
    pub start: Option<UtcInstant>,
    /// Choice of routes: "shortest" (the least delay from the satellite or site where a packet is to its destination), or
    /// a table: { kind = "snapshot", every = "15 s" } holds the routes of a moment, { kind = "table", file = "routes.csv" }
    /// has those of a file.
    #[serde(default, with = "routing")]
    #[schemars(with = "Routing")]
    pub routing: Routing,
    /// Time between two computations of the routes, above 0 s; or "never" for the satellites and routes of the start
    /// throughout.
    #[serde(default)]
    pub interval: Interval,
    /// Compatibility mode that reproduces the conventions of another simulator: "none" or "hypatia".
    #[serde(default)]
    pub compat: Compat,
    /// Satellites to use, in the forms of `path.satellites`.
    #[serde(default = "all_satellites")]
    pub satellites: String,
    /// Lowest elevation above the horizon at which sites use satellites, 0 to less than 90 deg. Default: the
    /// minimum elevation of the constellation.
    pub minimum_elevation: Option<Angle>,
    /// Smallest angle between a used satellite and the geostationary arc, as sites see them ("18 deg").
    /// Default: no avoidance.
    pub geo_avoidance: Option<Angle>,
    /// Largest difference between the run's start and the epoch of an element set; sets whose epochs are further from
    /// the start are not used.
    #[serde(default = "default_stale_after")]
    pub stale_after: Duration,
    /// Whether the last plane of a shell has lasers to the first.
    #[serde(default = "yes")]
    pub isl_seam: bool,
    /// Minimum height above the ground of lasers; lower ones are not used.
    #[serde(default = "default_clearance")]
    pub isl_clearance: Length,
    /// Lasers between shells, in the forms of `path.isl_shells`.
    #[serde(default, skip_serializing_if = "ShellLinks::is_apart")]
    pub isl_shells: ShellLinks,
    /// Lasers between satellites: each has a queue for each direction.
    #[serde(default)]
    pub lasers: LaserKeys,
    /// Links between satellites and sites.
    #[serde(default)]
    pub user_links: UserLinks,
    /// Links between satellites and gateways.
    #[serde(default)]
    pub gateway_links: GatewayLinks,
    /// Flows between the sites, in addition to those of `[[flow]]`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TrafficSection")]
    pub traffic: Option<TrafficSection>,
    /// Traffic between the sites without packets, which takes a part of the links' rates. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BackgroundSection")]
    pub background: Option<BackgroundSection>,
}

fn default_constellation() -> String {
    ConstellationPath::default().constellation
}

fn all_satellites() -> String {
    ConstellationPath::default().satellites
}

fn default_stale_after() -> Duration {
    ConstellationPath::default().stale_after
}

fn default_fibre_stretch() -> f64 {
    ConstellationPath::default().fibre_stretch
}

fn default_handover() -> String {
    skyhop_path::handover::IMMEDIATE.to_owned()
}

fn default_clearance() -> Length {
    ConstellationPath::default().isl_clearance
}

fn yes() -> bool {
    true
}

/// How packets get from one satellite of a network to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkRelay {
    /// Laser links between satellites.
    #[default]
    Isl,
    /// None: every route goes over one satellite.
    BentPipe,
}

/// Time between two computations of the routes; `None` if they are computed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval(pub Option<Duration>);

const NEVER: &str = "never";

impl Default for Interval {
    fn default() -> Self {
        Self(Some(Duration::from_millis(100)))
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(every) => every.serialize(serializer),
            None => serializer.serialize_str(NEVER),
        }
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Interval;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as \"100 ms\", or \"never\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Interval, E> {
                if text == NEVER {
                    return Ok(Interval(None));
                }
                text.parse()
                    .map(|every| Interval(Some(every)))
                    .map_err(|error| E::custom(format!("{error}, or \"{NEVER}\"")))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl JsonSchema for Interval {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "a length of time, or \"never\"",
            "examples": ["100 ms", NEVER],
        })
    }
}
