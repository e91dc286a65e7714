//! Types of the scenario file; one definition gives the parser, its error messages and the JSON Schema.
//!
//! Keys that are omitted get their default here, in the `Default` of their section. Where later code needs to
//! know whether a key was given, the field stays an `Option`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use skyhop_app::{App, Bulk, Call, Probe, TcpKeys, TcpOptions};
use skyhop_link::{DamaConfig, Loss, QueueDiscipline};
use skyhop_model::{
    CcLanguage, Compat, Dscp, DuringOutage, End, LinuxLink, LiveDevice, PATH_LINK, POLICY_CC,
    Relay, cc_language, layered, one_line, shipped_card,
};
use skyhop_path::{PathTrace, default_intermediate_outage};
use skyhop_units::{
    Angle, Bytes, Duration, Length, QueueLimit, Rate, Ratio, UtcInstant, did_you_mean,
};

use crate::by_kind;
use crate::keys::{KeyError, Keys, Kinds, read_parts};

/// Scenario of one run: its path, links and flows, and its duration, sampling interval and random seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct Scenario {
    /// Time-varying path between two places.
    pub path: PathSection,
    /// Bottleneck link of the path.
    #[serde(default)]
    pub link: LinkSection,
    /// Additional links by name (at most 1000); a flow crosses those that its `via` lists, so that flows may
    /// share some links and not others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, ExtraLink>,
    /// Changes at given times of the run: of a link's RTT, rate or loss, an outage of a link, or
    /// another route of a flow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<Change>,
    /// TCP settings of the hosts and sockets of all flows.
    #[serde(
        default,
        skip_serializing_if = "is_default_tcp",
        serialize_with = "serialize_tcp_values"
    )]
    #[schemars(with = "TcpOptions")]
    pub tcp: TcpKeys,
    /// Flows, that is the traffic; any number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<Flow>,
    /// Announcements of handovers to the flows' congestion controls.
    #[serde(default)]
    pub signal: SignalSection,
    /// Duration, sampling interval and random seed of the run.
    #[serde(default)]
    pub run: RunSection,
    /// Settings that apply only to live runs; the simulator ignores them.
    #[serde(default, skip_serializing_if = "LiveSection::is_default")]
    pub live: LiveSection,
    /// Settings that apply only to runs on a Linux kernel in virtual time; the other engines ignore them.
    #[serde(default, skip_serializing_if = "LinuxSection::is_default")]
    pub linux: LinuxSection,
}

impl Scenario {
    /// Return the scenario as JSON, with the defaults of omitted keys filled in.
    pub fn to_json(&self) -> Value {
        let mut resolved = self.clone();
        for flow in &mut resolved.flow {
            if let FlowKind::Tcp(tcp) = &mut flow.kind {
                tcp.tcp = explicit_tcp_keys(&tcp.own_tcp(&self.tcp), &self.tcp);
            }
        }
        let json = serde_json::to_value(resolved);
        without_nulls(json.expect("a scenario has text keys and finite numbers only"))
    }
}

/// Remove keys whose value is null, recursively: these are omitted optional keys.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(keys) => {
            let given = keys.into_iter().filter(|(_, value)| !value.is_null());
            given.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(entries) => entries.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// `[path]`: source of the delay, and of the outages and handovers that go with it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PathSection {
    /// Treatment of packets during an outage: "drop" (packets are lost) or "hold" (the queue stops
    /// sending until the outage is over). Default: "drop"; "hold" on paths with an access profile, and on path files
    /// drawn from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during_outage: Option<DuringOutage>,
    /// End at which the user's terminal is, "from" or "to", on paths with a terminal at one end only (access, starlink,
    /// path files). A path file with its terminal at the other end is mirrored. Default: that of the path file; "from"
    /// on other paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dish: Option<End>,
    /// Kind of path, with the keys of that kind.
    #[serde(flatten, serialize_with = "by_kind::serialize")]
    pub kind: PathKind,
}

impl<'de> Deserialize<'de> for PathSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (during_outage, dish) = (keys.key("during_outage")?, keys.key("dish")?);
            let mut kind: PathKind = keys.kind()?;
            if let PathKind::Constellation(path) = &mut kind {
                path.outage = Some(path.outage().to_owned());
                let resolved = path.intermediate_outage();
                if resolved > Duration::ZERO {
                    path.intermediate_outage = Some(resolved);
                }
            }
            let during_outage = during_outage.or(kind.profile().map(|_| DuringOutage::Hold));
            Ok(Self { during_outage, dish, kind })
        })
    }
}

impl PathSection {
    /// Treatment of packets during the outages of `trace`, a path that this section describes.
    pub(crate) fn during_outage_of(&self, trace: &PathTrace) -> DuringOutage {
        let drawn = trace.header.access.is_some();
        self.during_outage.unwrap_or(if drawn { DuringOutage::Hold } else { DuringOutage::Drop })
    }

    /// Return a path of constant round trip `rtt` that keeps this path's ends, start and outage behaviour.
    pub(crate) fn fixed(&self, rtt: Duration) -> Self {
        let (from, to, start) = match &self.kind {
            PathKind::Constellation(path) => (path.from.clone(), path.to.clone(), path.start),
            PathKind::Fixed(path) => (path.from.clone(), path.to.clone(), path.start),
            PathKind::Access(path) => (path.from.clone(), path.to.clone(), path.start),
            PathKind::Trace(_) => (None, None, None),
        };
        let kind = PathKind::Fixed(FixedPath { rtt: Some(rtt), jitter: None, from, to, start });
        Self { kind, dish: None, during_outage: self.during_outage }
    }
}

/// Kind of path: where its delay comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind", transform = by_kind::optional_kind::<Self>)]
pub enum PathKind {
    /// Path computed from a constellation's orbits.
    Constellation(Box<ConstellationPath>),
    /// Path with a constant round trip, apart from `[[change]]` and `jitter`.
    Fixed(FixedPath),
    /// Path read from a path file.
    Trace(TracePath),
    /// Path drawn from an access profile alone, without satellites.
    Access(AccessPath),
}

impl PathKind {
    /// Name of the access profile from which the path is drawn.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::Constellation(path) => path.profile(),
            Self::Access(path) => path.profile.as_deref(),
            Self::Fixed(_) | Self::Trace(_) => None,
        }
    }

    /// Random variation of the round trip.
    pub(crate) fn jitter(&self) -> Option<&JitterKeys> {
        match self {
            Self::Constellation(path) => path.jitter.as_ref(),
            Self::Fixed(path) => path.jitter.as_ref(),
            Self::Access(path) => path.jitter.as_ref(),
            Self::Trace(_) => None,
        }
    }
}

impl Kinds for PathKind {
    const NOUN: &'static str = "a path";
    const DEFAULT: Option<&'static str> = Some("constellation");
}

/// Keys of `[path]` with kind = "constellation".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConstellationPath {
    /// Constellation: a name from `skyhop list constellations`, "geo:LONGITUDE" (degrees east, -180 to 360),
    /// a TOML file, or a file or URL of element sets (TLE, OMM).
    pub constellation: String,
    /// Place of one end: a site's name, a city ("New York"), or "lat,lon[,alt_m]" in degrees and metres.
    /// Required.
    pub from: Option<String>,
    /// Place of the other end, in the forms of `from`. Required.
    pub to: Option<String>,
    /// How satellites join the two ends: "isl" (inter-satellite links), "bent-pipe" (up and down at
    /// gateways), "access" (to a point of presence), "starlink" (the same with an access profile) or "geo" (one
    /// geostationary satellite).
    pub relay: Relay,
    /// Access profile that adds waits, holes, losses and rates as measured, for the relays "access" and "starlink".
    /// Default: none for "access", that named "starlink" for "starlink".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessKeys>,
    /// Random variation of the round trip about the computed one. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKeys>,
    /// Handover policy from `skyhop list handovers`. Default: "shortest-grid"; "leoem" with compat = "leoem",
    /// "immediate" with compat = "hypatia".
    pub handover: Option<String>,
    /// Duration of the outage when an end of the path changes its satellite: "leoem" or "starlink" (models),
    /// "none", or a duration ("80 ms"). Default: "leoem"; "starlink" for relay = "access"; "none" with an access
    /// profile, which has holes of its own and allows no other value.
    pub outage: Option<String>,
    /// Duration of the outage when a link in the middle of the path goes down at an intermediate handover. Default:
    /// 25 ms with compat = "leoem", as long as its emulator takes the link's interfaces down; 0 s otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermediate_outage: Option<Duration>,
    /// UTC time at which the path begins, as in 2026-01-01T12:00:00Z. Default: the constellation's epoch; for
    /// element sets the median of their epochs.
    pub start: Option<UtcInstant>,
    /// Time between computed frames of the path; above 0 s.
    pub step: Duration,
    /// Gateways: a list from `skyhop list sites`, or a CSV file with the columns name, latitude_deg and
    /// longitude_deg. Used by the relays that have gateways.
    pub gateways: String,
    /// Compatibility mode that reproduces the conventions of another simulator, for comparison with
    /// that simulator: "none", "leoem" or "hypatia".
    pub compat: Compat,
    /// Satellites to use: "all", or conditions such as "name=STARLINK-1*; shell=0,2; plane=0-35".
    /// Conditions on names and planes require element sets.
    pub satellites: String,
    /// Lowest elevation above the horizon at which sites use satellites, 0 to less than 90 deg. Default: the
    /// minimum elevation of the constellation.
    pub minimum_elevation: Option<Angle>,
    /// Smallest angle between a used satellite and the geostationary arc, as sites see them ("18 deg").
    /// Default: no avoidance.
    pub geo_avoidance: Option<Angle>,
    /// Largest difference between the path's start and the epoch of an element set; sets whose
    /// epochs are further from the start are not used.
    pub stale_after: Duration,
    /// Whether the last plane of a shell has inter-satellite links to the first.
    pub isl_seam: bool,
    /// Minimum height above the ground of inter-satellite links; lower ones are not used.
    pub isl_clearance: Length,
    /// Points of presence, for relay = "access": a list's name or a CSV file, in the form of `gateways`.
    pub pops: String,
    /// Length of terrestrial fibre divided by the great-circle distance, for relay = "access".
    pub fibre_stretch: f64,
    /// Time between choices of satellites, for handover policies on a grid in UTC.
    pub grid_period: Duration,
    /// Second of each UTC minute at which the first choice falls, for handover policies on a grid.
    pub grid_offset: Duration,
}

impl Default for ConstellationPath {
    fn default() -> Self {
        Self {
            constellation: "starlink-shell1".to_owned(),
            from: None,
            to: None,
            relay: Relay::default(),
            access: None,
            jitter: None,
            handover: None,
            outage: None,
            intermediate_outage: None,
            start: None,
            step: Duration::from_secs(1),
            gateways: "starlink-gateways".to_owned(),
            compat: Compat::default(),
            satellites: "all".to_owned(),
            minimum_elevation: None,
            geo_avoidance: None,
            // Two weeks: SGP4 is off by kilometres per day, and an operator's manoeuvres add to that.
            stale_after: Duration::from_secs(14 * 86_400),
            isl_seam: true,
            isl_clearance: Length::from_kilometres(80.0),
            pops: "starlink-pops".to_owned(),
            fibre_stretch: 1.4,
            grid_period: STARLINK_PERIOD,
            grid_offset: STARLINK_OFFSET,
        }
    }
}

impl ConstellationPath {
    /// Name or duration of the outage model.
    pub(crate) fn outage(&self) -> &str {
        match (&self.outage, self.relay) {
            (Some(outage), _) => outage,
            (None, _) if self.profile().is_some() => "none",
            (None, Relay::Access) => "starlink",
            (None, _) => "leoem",
        }
    }

    /// Duration of the outage at an intermediate handover.
    pub(crate) fn intermediate_outage(&self) -> Duration {
        self.intermediate_outage.unwrap_or_else(|| default_intermediate_outage(self.compat))
    }

    /// Name of the access profile.
    pub(crate) fn profile(&self) -> Option<&str> {
        match (&self.access, self.relay) {
            (Some(keys), _) => Some(&keys.profile),
            (None, Relay::Starlink) => Some(Relay::Starlink.name()),
            (None, _) => None,
        }
    }
}

/// `access` of a path over satellites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct AccessKeys {
    /// Profile: a name from `skyhop list access`, or a TOML file made by `skyhop access fit`.
    pub profile: String,
}

/// Keys of `[path]` with kind = "access".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccessPath {
    /// Profile: a name from `skyhop list access`, or a TOML file made by `skyhop access fit`. Required.
    pub profile: Option<String>,
    /// Random variation of the round trip about the drawn one. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKeys>,
    /// Display name of one end. Default: "from".
    pub from: Option<String>,
    /// Display name of the other end. Default: "to".
    pub to: Option<String>,
    /// UTC time at which the path begins. Default: 2019-12-01T00:00:00Z.
    pub start: Option<UtcInstant>,
}

/// Starlink's reallocation grid: satellites are chosen at seconds 12, 27, 42 and 57 of every UTC minute.
const STARLINK_PERIOD: Duration = Duration::from_secs(15);
pub(crate) const STARLINK_OFFSET: Duration = Duration::from_secs(12);

/// Keys of `[path]` with kind = "fixed".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixedPath {
    /// Round-trip time without queueing. Required.
    pub rtt: Option<Duration>,
    /// Random variation of the round trip about `rtt`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKeys>,
    /// Display name of one end. Default: "from".
    pub from: Option<String>,
    /// Display name of the other end. Default: "to".
    pub to: Option<String>,
    /// UTC time at which the path begins. Default: 2019-12-01T00:00:00Z.
    pub start: Option<UtcInstant>,
}

/// `jitter` of a path: random variation of its round trip, half of it in each direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct JitterKeys {
    /// Time between two values of the round trip; at least 1 ms.
    pub every: Duration,
    /// Largest deviation below the path's round trip; at most the round trip.
    pub below: Duration,
    /// Largest deviation above the path's round trip; small deviations are more likely than large ones.
    pub above: Duration,
    /// Time constant of the autocorrelation (time in which it falls to 1/e); 0 s makes the values
    /// independent.
    pub correlation: Duration,
    /// Probability that a spike begins in a given second.
    pub spikes_per_second: Ratio,
    /// Smallest addition of a spike to the round trip.
    pub spike_from: Duration,
    /// Largest addition of a spike to the round trip; at least `spike_from`.
    pub spike_to: Duration,
    /// Duration of a spike; at most 60 s.
    pub spike_lasts: Duration,
}

impl Default for JitterKeys {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(50),
            below: Duration::ZERO,
            above: Duration::ZERO,
            correlation: Duration::ZERO,
            spikes_per_second: Ratio::ZERO,
            spike_from: Duration::ZERO,
            spike_to: Duration::ZERO,
            spike_lasts: Duration::ZERO,
        }
    }
}

/// Keys of `[path]` with kind = "trace".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TracePath {
    /// Path file (Parquet), looked up relative to the scenario file first. Required.
    pub file: Option<String>,
    /// Whether the path starts again at its end until the run ends (as mahimahi does); otherwise its last
    /// state persists.
    #[serde(rename = "loop", default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// Time of the path file at which the run begins, such as another time of the day; below the file's duration.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: Duration,
}

layered! {
    /// Keys of one direction of a link.
    LinkKeys => LinkValues {
        /// Rate on the wire; each IP packet counts 14 bytes more (Ethernet header). Above 0.
        rate: Rate = Rate::from_bits_per_second(150_000_000),
        /// Queue capacity: "1000 packets", "1.5 MB", a time at the link's mean rate ("260 ms"), or a multiple of
        /// the bandwidth-delay product ("1 BDP"): the mean rate times the mean base RTT of the whole path or, for a
        /// link of `[links]`, of the longest route that crosses it.
        queue: QueueLimit = QueueLimit::Bdp(1.0),
        /// Queue discipline: a name from `skyhop list qdiscs`, or a table with its parameters, such as
        /// { kind = "codel", target = "5 ms" }.
        qdisc: QueueDiscipline = QueueDiscipline::default(),
        /// Probability that a packet is lost after the queue, independently of other packets; or losses in bursts,
        /// such as { kind = "gilbert-elliott", good = "10 s", bad = "200 ms" }. Applies to the direction from -> to
        /// only, unless `back` has its own `loss`.
        loss: Loss = Loss::NONE,
        /// Whether packets sent after a fall of the delay may overtake those sent before it, as with netem.
        /// Default: false, only packets on a new route overtake.
        #[serde(skip_serializing_if = "Option::is_none")]
        reorder: Option<bool> = None,
        /// Token-bucket burst, as of tbf: bytes that may leave at once after a pause, but no more than
        /// `rate` would have carried during the pause. Default: no burst.
        #[serde(skip_serializing_if = "Option::is_none")]
        burst: Option<Bytes> = None,
        /// Demand assignment (DAMA) of this direction's capacity, as over a geostationary satellite's return channel:
        /// packets leave in frames, and the terminal asks for capacity. Default: none. Applies to the direction
        /// from -> to only, unless `back` has its own `dama`.
        #[serde(skip_serializing_if = "Option::is_none")]
        dama: Option<DamaConfig> = None,
    }
}

/// `[link]`: bottleneck link; its own keys describe the direction from -> to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LinkSection {
    /// Keys of the direction from -> to.
    #[serde(flatten, serialize_with = "serialize_link_values")]
    #[schemars(with = "LinkValues")]
    pub keys: LinkKeys,
    /// Keys in which the direction to -> from differs. Default: the same as from -> to, but without loss and `dama`.
    pub back: Option<LinkKeys>,
    /// Place of the queues: "path" (one queue for all hops together) or "per-hop" (one queue for
    /// each hop). Only `[link]` has this key.
    #[serde(skip_serializing_if = "Queues::is_default")]
    #[schemars(default)]
    pub queues: Queues,
    /// Rate of the path's first and last hop, in both directions, with queues = "per-hop". Default: `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_rate: Option<Rate>,
}

/// Place of the queues on a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Queues {
    /// One queue for all hops together.
    #[default]
    Path,
    /// One queue for each hop. When a hop ceases to exist, the packets in its queue are lost.
    PerHop,
}

impl Queues {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn serialize_link_values<S: Serializer>(keys: &LinkKeys, serializer: S) -> Result<S::Ok, S::Error> {
    keys.values().serialize(serializer)
}

impl LinkSection {
    fn from_keys(keys: &mut Keys) -> Result<Self, KeyError> {
        let (part, back) = (keys.part()?, keys.key("back")?);
        let queues: Option<Queues> = keys.key("queues")?;
        let (queues, end_rate) = (queues.unwrap_or_default(), keys.key("end_rate")?);
        Ok(Self { keys: part, back, queues, end_rate })
    }
}

impl<'de> Deserialize<'de> for LinkSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, Self::from_keys)
    }
}

/// `[links.NAME]`: link in addition to the one of `[path]` and `[link]`, for the flows whose `via`
/// contains its name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ExtraLink {
    /// Round trip of the link without queueing, half of it each way. Default: 0 s. Not together with `path`.
    pub rtt: Option<Duration>,
    /// Time-varying path of the link, with the keys of `[path]`, in place of `rtt`.
    pub path: Option<PathSection>,
    /// Keys of `[link]`, except `queues` and `end_rate`.
    #[serde(flatten)]
    pub link: LinkSection,
}

impl<'de> Deserialize<'de> for ExtraLink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (rtt, path) = (keys.key("rtt")?, keys.key("path")?);
            Ok(Self { rtt, path, link: LinkSection::from_keys(keys)? })
        })
    }
}

/// `[[change]]`: change of a link or of a flow's route at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct Change {
    /// Time of the change, counted from the run's start; less than the run's duration.
    pub at: Duration,
    /// Name of the link that changes: one of `[links]`, or "path". Default: "path", the link of `[path]` and
    /// `[link]`.
    pub link: Option<String>,
    /// Index, counted from 0, of the `[[flow]]` that takes another route. In place of `link`, and together
    /// with `via`.
    pub flow: Option<u32>,
    /// New route of the flow, as names of links; packets in flight stay on the old one. Together with `flow`.
    pub via: Option<Vec<String>>,
    /// New round trip without queueing. It applies from `at` on or, with `outage`, from the end of
    /// the outage on.
    pub rtt: Option<Duration>,
    /// New rate. It applies from `at` on or, with `outage`, from the end of the outage on.
    pub rate: Option<Rate>,
    /// New loss, in the forms of `link.loss`: a probability also ends bursts. It applies from `at` on or, with
    /// `outage`, from the end of the outage on.
    pub loss: Option<Loss>,
    /// Duration of an outage of the link that begins at `at`.
    pub outage: Option<Duration>,
}

/// `[[flow]]`: one sender and its receiver.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = allow_cc_parameters)]
pub struct Flow {
    /// Keys that all kinds of flows have.
    #[serde(flatten)]
    pub common: FlowKeys,
    /// Kind of flow, with the keys of that kind.
    #[serde(flatten, serialize_with = "by_kind::serialize")]
    pub kind: FlowKind,
    /// Parameters of a TCP flow's congestion control, written `NAME.PARAMETER = value` in the flow.
    #[serde(flatten)]
    #[schemars(skip)]
    pub parameters: BTreeMap<String, Value>,
}

impl<'de> Deserialize<'de> for Flow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (common, mut kind) = (keys.part()?, keys.kind()?);
            let tables = match &mut kind {
                FlowKind::Tcp(tcp) => {
                    let policy = keys.key::<Policy>(POLICY_CC)?;
                    let mut tables = keys.other_tables();
                    tables.extend(policy.map(|policy| policy.apply_to(tcp)).transpose()?.flatten());
                    tables
                }
                FlowKind::Probe(_) | FlowKind::Call(_) => toml::Table::new(),
            };
            let json = |(name, table)| Some((name, serde_json::to_value(table).ok()?));
            Ok(Self { common, kind, parameters: tables.into_iter().filter_map(json).collect() })
        })
    }
}

/// Value of a flow's key `policy`: a card's name or file, or a table with the parameters of
/// `cc/policy.c` and optionally a card.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a card's file, or a table with it")]
enum Policy {
    Card(String),
    Table(toml::Table),
}

impl Policy {
    /// Set the flow's congestion control to the card, if one is given, and return the parameters that remain.
    fn apply_to(self, tcp: &mut TcpFlowKeys) -> Result<Option<(String, toml::Value)>, KeyError> {
        let (card, parameters) = match self {
            Self::Card(card) => (Some(card), toml::Table::new()),
            Self::Table(mut table) => match table.remove("card") {
                Some(toml::Value::String(card)) => (Some(card), table),
                Some(_) => return Err(wrong_policy(".card", "expected a card's file".to_owned())),
                None => (None, table),
            },
        };
        if let Some(card) = card {
            if tcp.cc != POLICY_CC {
                let what = format!("is for cc = \"{POLICY_CC}\", and the flow's is {}", tcp.cc);
                return Err(wrong_policy("", what));
            }
            let ours: Vec<&str> =
                skyhop_ccfile::policy_cards().iter().map(|(name, _)| *name).collect();
            if ours.contains(&card.as_str()) {
                tcp.cc = shipped_card(&card);
            } else if cc_language(&card) == Some(CcLanguage::Card) {
                tcp.cc = card;
            } else {
                let hint = did_you_mean(&card, ours.iter().copied());
                let (card, ours) = (one_line(&card), ours.join(", "));
                let what = format!(
                    "is `{card}`{hint}; expected a card, a file in .toml, or one of {ours}"
                );
                return Err(wrong_policy("", what));
            }
        }
        let table = (POLICY_CC.to_owned(), toml::Value::Table(parameters));
        Ok(Some(table).filter(|(_, table)| table.as_table().is_some_and(|table| !table.is_empty())))
    }
}

fn wrong_policy(below: &str, what: String) -> KeyError {
    KeyError { key: format!("{POLICY_CC}{below}"), what }
}

/// Extend the schema so that a flow accepts `cubic.beta = 0.7`, a table under its congestion control's name.
fn allow_cc_parameters(schema: &mut schemars::Schema) {
    // Only the key `policy` may also have a string as its value: the card.
    let properties = schema.ensure_object().entry("properties");
    properties.or_insert_with(|| serde_json::json!({}))[POLICY_CC] = serde_json::json!({
        "type": ["string", "object"],
        "description": "Card of a flow with cc = \"policy\", or a table with the card and parameters.",
    });
    schema.insert(
        "unevaluatedProperties".to_owned(),
        serde_json::json!({
            "type": "object",
            "description": "Parameters of the congestion control with this name.",
        }),
    );
}

/// Keys that all kinds of flows have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FlowKeys {
    /// End that opens the connection, and sends or requests: "from" or "to".
    pub from: End,
    /// Start of the flow, counted from the run's start; less than the run's duration.
    pub start: Duration,
    /// Largest random delay of the flow's start after `start`, drawn uniformly with the run's seed, for
    /// each of the `count` flows separately.
    #[serde(skip_serializing_if = "is_zero")]
    pub start_spread: Duration,
    /// Stop of the flow, counted from the run's start; more than `start`. Default: the run's end. Not
    /// together with `bytes`.
    pub stop: Option<Duration>,
    /// Number of flows with these keys, 0 to 10000.
    pub count: u32,
    /// Links that the flow crosses, from the end `from` to the end `to`: names of `[links]`, and "path" for
    /// the link of `[path]` and `[link]`. At least one link, and no link twice.
    #[serde(skip_serializing_if = "is_path_alone")]
    pub via: Vec<String>,
    /// Additional round trip of this flow alone, without queueing; half of it each way.
    #[serde(skip_serializing_if = "is_zero")]
    pub extra_rtt: Duration,
    /// DSCP of the flow's packets in both directions ("cs0", "ef", "af11" …); queues with classes, such as
    /// cake's tins, distinguish flows by it.
    #[serde(skip_serializing_if = "is_best_effort")]
    pub dscp: Dscp,
}

impl Default for FlowKeys {
    fn default() -> Self {
        Self {
            from: End::default(),
            start: Duration::ZERO,
            start_spread: Duration::ZERO,
            stop: None,
            count: 1,
            via: vec![PATH_LINK.to_owned()],
            extra_rtt: Duration::ZERO,
            dscp: Dscp::default(),
        }
    }
}

fn is_path_alone(via: &[String]) -> bool {
    via == [PATH_LINK]
}

fn is_best_effort(dscp: &Dscp) -> bool {
    *dscp == Dscp::default()
}

fn is_zero(time: &Duration) -> bool {
    *time == Duration::ZERO
}

/// Kind of flow: an application over TCP, or one over UDP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind", transform = by_kind::optional_kind::<Self>)]
#[expect(clippy::large_enum_variant, reason = "there are few, one for each entry")]
pub enum FlowKind {
    /// Application that runs over TCP.
    Tcp(TcpFlowKeys),
    /// Probe over UDP: packets that the other end echoes.
    Probe(Probe),
    /// Call with audio and video in both directions over UDP.
    Call(Call),
}

impl Kinds for FlowKind {
    const NOUN: &'static str = "a flow";
    const DEFAULT: Option<&'static str> = Some("tcp");
}

/// Keys of a `[[flow]]` of kind "tcp": an application over TCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpFlowKeys {
    /// Congestion control: a name from `skyhop list cc`, or your own file in C ("./mine.c"), Python
    /// ("./mine.py", simulator only) or TOML (a policy's card).
    pub cc: String,
    /// Size of a bulk transfer, whose completion time is reported; above 0. In place of `stop`. Default:
    /// no limit; the transfer lasts until the flow's stop.
    pub bytes: Option<Bytes>,
    /// Application at the two ends: a table with `kind` from `skyhop list apps` and the keys of that kind.
    /// Default: a bulk transfer.
    #[serde(with = "by_kind", skip_serializing_if = "is_bulk")]
    #[schemars(with = "App")]
    pub app: App,
    /// TCP settings of this flow; they override those of `[tcp]` key by key.
    #[serde(skip_serializing_if = "is_empty_tcp")]
    pub tcp: TcpKeys,
}

impl TcpFlowKeys {
    /// Return the application, with the flow's `bytes` as the size of a bulk transfer.
    pub fn app(&self) -> App {
        match &self.app {
            App::Bulk(bulk) => App::Bulk(Bulk { bytes: bulk.bytes.or(self.bytes), ..bulk.clone() }),
            other => other.clone(),
        }
    }

    /// Return the flow's own TCP keys. For web pages `nodelay` is true by default, because browsers and
    /// web servers set TCP_NODELAY.
    pub(crate) fn own_tcp(&self, all_flows: &TcpKeys) -> TcpKeys {
        let mut own = self.tcp.clone();
        if matches!(self.app, App::Page(_)) && all_flows.nodelay.is_none() {
            own.nodelay = own.nodelay.or(Some(true));
        }
        own
    }
}

fn is_bulk(app: &App) -> bool {
    *app == App::default()
}

/// Whether the keys equal the defaults: they are then omitted, so that run ids (hash of the resolved
/// scenario) stay stable across versions.
fn is_default_tcp(keys: &TcpKeys) -> bool {
    keys.values() == TcpOptions::default()
}

fn is_empty_tcp(keys: &TcpKeys) -> bool {
    *keys == TcpKeys::default()
}

fn serialize_tcp_values<S: Serializer>(keys: &TcpKeys, serializer: S) -> Result<S::Ok, S::Error> {
    keys.values().serialize(serializer)
}

/// Return the TCP keys to write for a flow in addition to `[tcp]`; no keys if all values of the
/// flow equal those of `[tcp]`.
fn explicit_tcp_keys(own: &TcpKeys, all_flows: &TcpKeys) -> TcpKeys {
    let values = own.clone().or(all_flows.clone()).values();
    let all_flows = all_flows.values();
    if values == all_flows {
        return TcpKeys::default();
    }
    // Written out, because a default that follows from the flow's profile would otherwise be
    // replaced by the value of `[tcp]` when the result is read back.
    let rmem = if values.rmem == all_flows.rmem { own.rmem } else { Some(values.rmem.into()) };
    // `ecn`, `nodelay` and `cork` are written even if unchanged, as earlier versions did, so that run ids
    // (hash of the resolved scenario) stay stable.
    let TcpOptions { ecn, nodelay, cork, .. } = values;
    TcpKeys { rmem, ecn: Some(ecn), nodelay: Some(nodelay), cork: Some(cork), ..own.clone() }
}

impl Kinds for App {
    const NOUN: &'static str = "an application";
}

impl Default for TcpFlowKeys {
    fn default() -> Self {
        Self { cc: "cubic".to_owned(), bytes: None, app: App::default(), tcp: TcpKeys::default() }
    }
}

/// `[signal]`: announcements of handovers to all TCP flows that cross the link of `[path]` at any time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct SignalSection {
    /// Source of the announcements.
    pub source: SignalSource,
    /// Time from an announcement to the announced handover. Default: the longest `lead` that the flows' congestion
    /// controls declare as a parameter, 1 s for satpipe; 0 s without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead: Option<Duration>,
    /// Error added to the announced time of a handover: "none", "report-timing" (random, SaTCP Figure 4),
    /// or a duration ("0.2 s" is too late, "-0.2 s" too early).
    pub error: String,
    /// Time from the announcement of a handover to its arrival at the senders.
    #[serde(skip_serializing_if = "is_zero")]
    pub latency: Duration,
    /// Lead and error of handovers of an end, in place of `lead` and `error`, for source = "path" and "forecast". In
    /// SaTCP the terminal announces these handovers, and knows their times exactly. A handover of an end at the time of
    /// an intermediate one counts as one of an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<KindSignalKeys>,
    /// Lead and error of intermediate handovers, in place of `lead` and `error`, for source = "path" and "forecast". In
    /// SaTCP a gateway announces these handovers, and predicts their times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermediate: Option<KindSignalKeys>,
    /// File of element sets (TLE or OMM) from which handovers are forecast, for source = "forecast".
    /// Default: the element sets of the path.
    pub elements: Option<String>,
    /// Time between handovers, for source = "schedule" and "blind"; above 0 s, for "blind" at least 1 s.
    pub period: Duration,
    /// Second of each UTC minute at which the first handover falls, for source = "schedule"; default: 12 s. Over a path
    /// that does not say when it begins: time of a handover by the path's own clock, whose zero is the beginning of its
    /// file; there it has no default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<Duration>,
}

impl Default for SignalSection {
    fn default() -> Self {
        Self {
            source: SignalSource::None,
            lead: None,
            error: "none".to_owned(),
            latency: Duration::ZERO,
            end: None,
            intermediate: None,
            elements: None,
            period: STARLINK_PERIOD,
            offset: None,
        }
    }
}

/// `[signal.end]` and `[signal.intermediate]`: announcements of one kind of handover.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct KindSignalKeys {
    /// Time from an announcement to the announced handover. Default: that of `[signal]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead: Option<Duration>,
    /// Error added to the announced time of a handover, in the forms of `[signal] error`. Default: that of `[signal]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Source of the announcements of handovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignalSource {
    /// No announcements at all.
    #[default]
    None,
    /// True times of the path's handovers and of `[[change]]` entries.
    Path,
    /// Regular grid in UTC, with the `period` and the `offset`.
    Schedule,
    /// Regular grid that the run estimates from the arrivals of its own packets; no announcements
    /// until it is found.
    Blind,
    /// Handovers predicted from orbits, which are propagated from element sets.
    Forecast,
}

/// `[run]`: duration, sampling interval and random seed of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct RunSection {
    /// Duration of the run; at least 1 ms.
    pub duration: Duration,
    /// Seed of all random draws; the same seed gives the same run.
    pub seed: u64,
    /// Time between samples in the tables; at least 1 ms.
    pub sample: Duration,
    /// Whether the run may exceed the usual limits of memory, rows and time.
    // Omitted when false, so that run ids (hash of the resolved scenario) stay stable across versions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force_size: bool,
}

impl Default for RunSection {
    fn default() -> Self {
        let (duration, sample) = (Duration::from_secs(60), Duration::from_millis(100));
        Self { duration, seed: 1, sample, force_size: false }
    }
}

/// `[live]`: settings that apply only to live runs; the simulator ignores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct LiveSection {
    /// Device that carries packets between the kernel and the link: "auto", "tun" or "packet".
    pub device: LiveDevice,
}

impl LiveSection {
    /// Whether the section is the default: it is then omitted, so that run ids (hash of the resolved
    /// scenario) stay stable across versions.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[linux]`: settings that apply only to runs on a Linux kernel in virtual time; the other engines
/// ignore them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct LinuxSection {
    /// Name of the kernel, from `skyhop linux kernel list`. Default: the kernel that was built last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Emulator of the links between the two ends: "auto", "skyhop" (skyhop's own links) or "tc"
    /// (Linux's queue disciplines).
    pub link: LinuxLink,
}

impl LinuxSection {
    /// Whether the section is the default: it is then omitted, as `[live]` is.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
