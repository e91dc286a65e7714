//! `[network]`: a constellation with many sites, and the traffic between them.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use skyhop_link::{Loss, QueueDiscipline};
use skyhop_model::{Compat, ShellLinks};
use skyhop_units::{Angle, Duration, Length, QueueLimit, Rate, UtcInstant};

use super::flow::{allow_cc_parameters, cc_parameters};
use crate::by_kind;
use crate::keys::{Kinds, read_parts};
use crate::types::{
    BackgroundSection, ConstellationPath, Flow, FlowKeys, FlowKind, LinkKeys, Routing, TcpFlowKeys,
    routing,
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

/// Sites of a network: a list, the name of one, or a grid of cells.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Sites {
    /// The most populous cities ("top-100"), the name of a list, or a CSV file.
    Named(String),
    /// Sites one by one.
    Listed(Vec<SiteKeys>),
    /// Centres of the cells of a grid.
    Grid(GridKeys),
}

/// `network.sites` as a grid: cells of equal height in rows from south to north, and in each row as many cells of equal
/// width as come closest to squares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct GridKeys {
    /// Height of the cells, above 0. Required.
    pub grid: Angle,
    /// Southern and northern limit of the cells in degrees.
    #[serde(default = "inhabited_latitudes")]
    pub latitudes: [f64; 2],
    /// Whether only cells with one of the 10000 most populous cities are sites.
    #[serde(default)]
    pub populated: bool,
}

/// Latitudes between which nearly all people live, in degrees.
const fn inhabited_latitudes() -> [f64; 2] {
    [-60.0, 60.0]
}

/// Site of a network.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SiteKeys {
    /// Site's name, city ("New York"), or "lat,lon[,alt_m]" in degrees and metres.
    Place(String),
    /// Position with a name.
    Position(PositionKeys),
}

/// Table of a site in `network.sites`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct PositionKeys {
    /// Name of the site.
    pub name: String,
    /// Geodetic latitude in degrees.
    pub lat: f64,
    /// Longitude in degrees, positive to the east.
    pub lon: f64,
    /// Height above the ellipsoid in metres.
    #[serde(default)]
    pub alt: f64,
    /// Inhabitants, for traffic of kind "gravity".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub population: Option<u64>,
    /// Handover policy of the site's terminal. Default: `network.handover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
    /// Access profile of the site's link, in the forms of `network.user_links.access`. Default: that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}

/// Implement `Deserialize` for an enum of a text and other forms; in contrast to serde's untagged enums, errors name the
/// key.
macro_rules! text_or {
    ($type:ident, $text:ident, $expecting:literal $(, $method:ident: $access:ident => $with:ident, $other:ident)+) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Forms;

                impl<'de> Visitor<'de> for Forms {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                        Ok($type::$text(text.to_owned()))
                    }

                    $(fn $method<A: $access<'de>>(self, access: A) -> Result<$type, A::Error> {
                        Deserialize::deserialize($with::new(access)).map($type::$other)
                    })+
                }

                deserializer.deserialize_any(Forms)
            }
        }
    };
}

text_or!(
    Sites, Named, "a list of sites, \"top-100\", a CSV file, or { grid = \"5 deg\" }",
    visit_seq: SeqAccess => SeqAccessDeserializer, Listed,
    visit_map: MapAccess => MapAccessDeserializer, Grid
);
text_or!(
    SiteKeys, Place, "a place such as \"London\", or { name = \"X\", lat = 1.0, lon = 2.0 }",
    visit_map: MapAccess => MapAccessDeserializer, Position
);

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

/// `[network.user_links]`: links between satellites and sites.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct UserLinks {
    /// Uplink of each site: one queue for its packets to all satellites.
    pub up: UserLinkKeys,
    /// Downlink: one queue for the packets of a satellite to all sites or to each, by `per`.
    pub down: UserLinkKeys,
    /// Whether the downlink of a satellite is shared by all sites ("satellite"), or each site has one of its own from
    /// each satellite ("site").
    pub per: DownlinkOf,
    /// Access profile from `skyhop list access`, or a file: the waits, holes, losses and rates that it adds to each site's
    /// links as measured, drawn for each site on its own. Needs per = "site". Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}

/// Sharing of a satellite's downlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DownlinkOf {
    /// One downlink for all sites.
    #[default]
    Satellite,
    /// One downlink for each site.
    Site,
}

/// `[network.gateway_links]`: links between satellites and gateways.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct GatewayLinks {
    /// Uplink of each gateway: one queue for its packets to all satellites.
    pub up: GatewayLinkKeys,
    /// Downlink of each satellite: one queue for its packets to all gateways.
    pub down: GatewayLinkKeys,
}

/// Rate, queue and loss of the links of one kind in a network.
pub trait HopKeys {
    /// Return the keys as those of a link.
    fn link_keys(&self) -> LinkKeys;
}

/// Define the keys of a kind of links, which differ in the default rate alone.
macro_rules! hop_keys {
    ($(#[$meta:meta])* $name:ident, $mbps:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields, expecting = "a table")]
        pub struct $name {
            /// Rate on the wire; each IP packet counts 14 bytes more (Ethernet header). Above 0.
            pub rate: Rate,
            /// Queue capacity: "1000 packets", "1.5 MB", or a time at the rate ("20 ms"). Not in BDP, because a network
            /// has no single round trip.
            pub queue: QueueLimit,
            /// Queue discipline, in the forms of `link.qdisc`.
            pub qdisc: QueueDiscipline,
            /// Loss after the queue, in the forms of `link.loss`.
            pub loss: Loss,
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    rate: Rate::from_bits_per_second($mbps * 1_000_000),
                    queue: QueueLimit::Packets(1000),
                    qdisc: QueueDiscipline::default(),
                    loss: Loss::NONE,
                }
            }
        }

        impl HopKeys for $name {
            fn link_keys(&self) -> LinkKeys {
                let Self { rate, queue, qdisc, loss } = self.clone();
                LinkKeys {
                    rate: Some(rate),
                    queue: Some(queue),
                    qdisc: Some(qdisc),
                    loss: Some(loss),
                    ..LinkKeys::default()
                }
            }
        }
    };
}

hop_keys!(
    /// `[network.lasers]`: links between satellites, in each direction.
    LaserKeys,
    10_000
);
hop_keys!(
    /// `[network.user_links.up]` and `[network.user_links.down]`: links between satellites and sites.
    UserLinkKeys,
    1_000
);

hop_keys!(
    /// `[network.gateway_links.up]` and `[network.gateway_links.down]`: links between satellites and gateways.
    GatewayLinkKeys,
    10_000
);

/// `[network.traffic]`: flows between the sites, with the keys of a `[[flow]]` over TCP.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = allow_cc_parameters, transform = leave_out_ends)]
pub struct TrafficSection {
    /// Keys that all flows have. `from`, `via` and `between` are those of single flows; `count` flows run between each
    /// client and server.
    #[serde(flatten)]
    pub common: FlowKeys,
    /// Congestion control and application of all flows.
    #[serde(flatten)]
    pub tcp: TcpFlowKeys,
    /// Choice of clients and servers.
    #[serde(flatten, serialize_with = "by_kind::serialize")]
    pub kind: TrafficKind,
    /// Parameters of the congestion control.
    #[serde(flatten)]
    #[schemars(skip)]
    pub parameters: BTreeMap<String, Value>,
}

/// Leave the keys out of the schema that say where a single flow goes.
fn leave_out_ends(schema: &mut schemars::Schema) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    if let Some(keys) = properties {
        for key in ["between", "via"] {
            keys.remove(key);
        }
    }
}

impl TrafficSection {
    /// Return the flow between each client and server.
    pub(crate) fn flow(&self) -> Flow {
        Flow {
            common: self.common.clone(),
            kind: FlowKind::Tcp(self.tcp.clone()),
            parameters: self.parameters.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for TrafficSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (common, mut tcp) = (keys.part()?, keys.part()?);
            let kind = keys.kind()?;
            let parameters = cc_parameters(keys, &mut tcp)?;
            Ok(Self { common, tcp, kind, parameters })
        })
    }
}

/// Choice of the clients and servers of a network's traffic. All draws use the run's seed, and do not depend on the order
/// of the sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind")]
pub enum TrafficKind {
    /// Random permutation: each site is the client of one other site, and the server of one other site. All permutations
    /// without a fixed point are equally likely.
    Permutation,
    /// Random pairing, as in Hypatia's experiments: pairs of sites, each the other's client and server; needs an even
    /// number of sites. All pairings are equally likely.
    Pairing,
    /// Flows between random clients and servers: the probability of two sites is proportional to the product of their
    /// populations.
    Gravity(GravityKeys),
    /// Numbers of flows from a file.
    Matrix(MatrixKeys),
    /// Flows between each site and the point of presence nearest to it, or without points of presence the nearest gateway.
    /// The site is the client; of transfers without an application it is the end that receives.
    Internet(InternetKeys),
}

impl Kinds for TrafficKind {
    const NOUN: &'static str = "a traffic";
}

/// Keys of `[network.traffic]` with kind = "gravity".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GravityKeys {
    /// Number of draws of a client and a server, each for `count` flows. Required.
    pub flows: u32,
}

/// Keys of `[network.traffic]` with kind = "internet".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InternetKeys {
    /// Whether sites send what they transfer without an application, rather than receive it.
    pub upload: bool,
}

/// Keys of `[network.traffic]` with kind = "matrix".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixKeys {
    /// CSV file with the columns from, to and flows: the sites of the clients and of the servers, and the number of flows
    /// between them; looked up relative to the scenario file first. Required.
    pub file: String,
}
