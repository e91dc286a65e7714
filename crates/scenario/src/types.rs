//! The scenario file as it is written. One definition gives the parser, its errors and the schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_link::QueueDiscipline;
use skyhop_model::{Compat, DuringOutage, End, LiveDevice, PATH_LINK, Relay};
use skyhop_units::{Angle, Bytes, Duration, Length, QueueLimit, Rate, Ratio, UtcInstant};

/// What to run: a path, a link over it, flows, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The time-varying path between two places.
    pub path: PathSection,
    /// The bottleneck.
    #[serde(default)]
    pub link: LinkSection,
    /// More links, by name: with them flows may share some links and not others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, ExtraLink>,
    /// What changes at a moment, on any path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<Change>,
    /// The traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<Flow>,
    /// Announcements of handovers.
    #[serde(default)]
    pub signal: SignalSection,
    /// How long, how often sampled, which seed.
    #[serde(default)]
    pub run: RunSection,
    /// What only live runs ask for.
    #[serde(default, skip_serializing_if = "LiveSection::is_default")]
    pub live: LiveSection,
}

/// `[path]`: where the delay comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathSection {
    /// What kind of path.
    #[serde(default)]
    pub kind: PathKind,
    /// The constellation's name, "geo:LONGITUDE", a TOML file, or a file or address of element sets.
    #[serde(default = "default_constellation")]
    pub constellation: String,
    /// One end: a site, a city, or "lat,lon[,alt_m]".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How the ends are joined.
    #[serde(default)]
    pub relay: Relay,
    /// The handover policy; where nothing is said, leoem, and immediate with compat = "hypatia".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
    /// How long an end handover takes the link down: leoem, starlink, none, or a duration.
    #[serde(default = "default_leoem")]
    pub outage: String,
    /// What becomes of packets that reach an outage.
    #[serde(default)]
    pub during_outage: DuringOutage,
    /// When the path begins; where nothing is said, at the constellation's epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<UtcInstant>,
    /// The time between computed frames.
    #[serde(default = "default_step")]
    pub step: Duration,
    /// The gateways: a list's name, or a file with latitude_deg, longitude_deg and name.
    #[serde(default = "default_gateways")]
    pub gateways: String,
    /// Another tool's habits, to be compared with it.
    #[serde(default)]
    pub compat: Compat,
    /// Which satellites: all, or such as "name=STARLINK-1*; shell=0; plane=0-35".
    #[serde(default = "default_all")]
    pub satellites: String,
    /// The lowest elevation at which sites use satellites; the constellation's own where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_elevation: Option<Angle>,
    /// How far from the geostationary arc sites keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub geo_avoidance: Option<Angle>,
    /// How far from the start the epoch of an element set may be.
    #[serde(default = "default_stale_after")]
    pub stale_after: Duration,
    /// Whether the last plane of a shell links to its first.
    #[serde(default = "default_true")]
    pub isl_seam: bool,
    /// How far above the ground links between satellites must pass.
    #[serde(default = "default_isl_clearance")]
    pub isl_clearance: Length,
    /// For relay = "access": the points of presence: a list's name or a file, as gateways.
    #[serde(default = "default_pops")]
    pub pops: String,
    /// For relay = "access": how much longer fibre is than the great circle.
    #[serde(default = "default_fibre_stretch")]
    pub fibre_stretch: f64,
    /// For policies on a grid: the time between choices, in UTC.
    #[serde(default = "default_period")]
    pub grid_period: Duration,
    /// For policies on a grid: the first choice of each minute.
    #[serde(default = "default_offset")]
    pub grid_offset: Duration,
    /// For kind = "fixed": the round trip without queueing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Duration>,
    /// For kind = "trace": a path file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl PathSection {
    /// The keys that a kind of path understands beside `kind` itself.
    pub(crate) fn keys(kind: PathKind) -> &'static [&'static str] {
        match kind {
            PathKind::Constellation => &[
                "constellation",
                "from",
                "to",
                "relay",
                "handover",
                "outage",
                "during_outage",
                "start",
                "step",
                "gateways",
                "compat",
                "satellites",
                "minimum_elevation",
                "geo_avoidance",
                "stale_after",
                "isl_seam",
                "isl_clearance",
                "pops",
                "fibre_stretch",
                "grid_period",
                "grid_offset",
            ],
            PathKind::Fixed => &["rtt", "during_outage", "from", "to", "start"],
            PathKind::Trace => &["file", "during_outage"],
        }
    }
}

/// What kind of path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PathKind {
    /// Computed from a constellation.
    #[default]
    Constellation,
    /// The same round trip all the time, but for `[[change]]`.
    Fixed,
    /// A path file.
    Trace,
}

impl PathKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Constellation => "constellation",
            Self::Fixed => "fixed",
            Self::Trace => "trace",
        }
    }
}

/// `[link]`: the bottleneck in the direction from -> to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSection {
    /// The wire rate; each IP packet counts 14 bytes more.
    #[serde(default = "default_rate")]
    pub rate: Rate,
    /// How much the queue holds.
    #[serde(default = "default_queue")]
    pub queue: QueueLimit,
    /// The queue discipline.
    #[serde(default)]
    pub qdisc: QueueDiscipline,
    /// Independent loss after the queue.
    #[serde(default)]
    pub loss: Ratio,
    /// What the other direction has of its own; it is the same otherwise, without loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<LinkBack>,
}

impl Default for LinkSection {
    fn default() -> Self {
        Self {
            rate: default_rate(),
            queue: default_queue(),
            qdisc: QueueDiscipline::default(),
            loss: Ratio::ZERO,
            back: None,
        }
    }
}

/// `[link.back]`: what the direction to -> from has of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkBack {
    /// The wire rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How much the queue holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
    /// The queue discipline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdisc: Option<QueueDiscipline>,
    /// Independent loss after the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Ratio>,
}

/// `[links.NAME]`: a link beside that of `[path]` and `[link]`, for flows that go over it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtraLink {
    /// Its round trip without queueing, half of it each way; 0 s where neither this nor `path` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Duration>,
    /// Instead of `rtt`: a path of its own that varies over time, with the keys of `[path]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathSection>,
    /// The wire rate, as in `[link]`.
    #[serde(default = "default_rate")]
    pub rate: Rate,
    /// How much the queue holds; BDP counts the longest base RTT of the flows over this link.
    #[serde(default = "default_queue")]
    pub queue: QueueLimit,
    /// The queue discipline.
    #[serde(default)]
    pub qdisc: QueueDiscipline,
    /// Independent loss after the queue.
    #[serde(default)]
    pub loss: Ratio,
    /// What the other direction has of its own; it is the same otherwise, without loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<LinkBack>,
}

impl ExtraLink {
    /// Its keys that `[link]` has too.
    pub(crate) fn section(&self) -> LinkSection {
        LinkSection {
            rate: self.rate,
            queue: self.queue,
            qdisc: self.qdisc.clone(),
            loss: self.loss,
            back: self.back.clone(),
        }
    }
}

/// `[[change]]`: what changes at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// Which of `[links]` changes; that of `[path]` and `[link]` where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Instead of a link: which `[[flow]]`, counted from 0, takes another way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<u32>,
    /// With `flow`: its new way. What is under way stays on the old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Vec<String>>,
    /// The new round trip without queueing, from then on (from the outage's end, if any).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Duration>,
    /// The new rate, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The new loss, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Ratio>,
    /// How long the path is down from `at` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<Duration>,
}

/// `[[flow]]`: one sender and its receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = allow_cc_parameters)]
pub struct Flow {
    /// TCP bulk transfer or UDP echo.
    #[serde(default)]
    pub kind: FlowKind,
    /// The congestion control.
    #[serde(default = "default_cc")]
    pub cc: String,
    /// Which end sends.
    #[serde(default)]
    pub from: End,
    /// When it begins.
    #[serde(default)]
    pub start: Duration,
    /// When it stops; the run's end where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
    /// Instead of `stop`: how much is sent; the completion time is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// How many flows like this.
    #[serde(default = "default_count")]
    pub count: u32,
    /// The links it crosses, in the order from the end `from` to the end `to`: names of `[links]`,
    /// and "path" for the link of `[path]` and `[link]`.
    #[serde(default = "default_via", skip_serializing_if = "is_default_via")]
    pub via: Vec<String>,
    /// Round trip of its own beside that of the links, half of it each way, without queueing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub extra_rtt: Duration,
    /// How its TCP is set.
    #[serde(default, skip_serializing_if = "TcpKeys::is_default")]
    pub tcp: TcpKeys,
    /// For kind = "probe": the time between packets.
    #[serde(default = "default_interval")]
    pub interval: Duration,
    /// For kind = "probe": the payload of a packet.
    #[serde(default = "default_size")]
    pub size: Bytes,
    /// Parameters of the congestion control, written `NAME.PARAMETER = value` in the flow.
    #[serde(skip_deserializing, flatten)]
    #[schemars(skip)]
    pub parameters: BTreeMap<String, serde_json::Value>,
}

/// `tcp` in `[[flow]]`: how a flow's TCP is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TcpKeys {
    /// Whether it asks for ECN, so that queues may mark its packets rather than drop them.
    pub ecn: bool,
}

impl TcpKeys {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Lets the schema accept `cubic.beta = 0.7` in a flow: a table under the congestion control's name.
fn allow_cc_parameters(schema: &mut schemars::Schema) {
    schema.insert(
        "additionalProperties".to_owned(),
        serde_json::json!({
            "type": "object",
            "description": "parameters of the congestion control with this name",
        }),
    );
}

/// TCP bulk transfer or UDP echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FlowKind {
    /// A bulk transfer.
    #[default]
    Tcp,
    /// UDP packets that the other end echoes.
    Probe,
}

/// `[signal]`: announcements of handovers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalSection {
    /// Who announces.
    #[serde(default)]
    pub source: SignalSource,
    /// How long before the event it is announced.
    #[serde(default)]
    pub lead: Duration,
    /// What is added to the announced time: none, report-timing, or a duration.
    #[serde(default = "default_none")]
    pub error: String,
    /// For source = "forecast": the element sets that the forecaster has, a TLE or OMM file; those of the path where
    /// nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<String>,
    /// For source = "schedule" and "blind": the time between handovers.
    #[serde(default = "default_period")]
    pub period: Duration,
    /// For source = "schedule": the first handover of each minute.
    #[serde(default = "default_offset")]
    pub offset: Duration,
}

impl Default for SignalSection {
    fn default() -> Self {
        Self {
            source: SignalSource::None,
            lead: Duration::ZERO,
            error: default_none(),
            elements: None,
            period: default_period(),
            offset: default_offset(),
        }
    }
}

/// Who announces handovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignalSource {
    /// Nobody.
    #[default]
    None,
    /// The path itself.
    Path,
    /// A UTC schedule.
    Schedule,
    /// The run itself, once it has found the grid in its own arrivals.
    Blind,
    /// Orbits propagated from element sets.
    Forecast,
}

/// `[run]`: how long, how often sampled, which seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSection {
    /// How long the run lasts.
    #[serde(default = "default_duration")]
    pub duration: Duration,
    /// The seed of everything drawn at random.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// The time between samples.
    #[serde(default = "default_sample")]
    pub sample: Duration,
}

impl Default for RunSection {
    fn default() -> Self {
        Self { duration: default_duration(), seed: default_seed(), sample: default_sample() }
    }
}

/// `[live]`: what only live runs ask for; the simulator does not look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LiveSection {
    /// What carries packets between the kernel and the link.
    #[serde(default)]
    pub device: LiveDevice,
}

impl LiveSection {
    /// Scenarios that say nothing of live runs are written as they always were, so that a study
    /// knows its runs again.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn default_constellation() -> String {
    "starlink-shell1".to_owned()
}

fn default_leoem() -> String {
    "leoem".to_owned()
}

fn default_none() -> String {
    "none".to_owned()
}

fn default_step() -> Duration {
    Duration::from_secs(1)
}

fn default_all() -> String {
    "all".to_owned()
}

fn default_true() -> bool {
    true
}

fn default_stale_after() -> Duration {
    // Two weeks: SGP4 is off by kilometres per day, and an operator's manoeuvres add to that.
    Duration::from_secs(14 * 86_400)
}

fn default_isl_clearance() -> Length {
    Length::from_kilometres(80.0)
}

fn default_pops() -> String {
    "starlink-pops".to_owned()
}

fn default_fibre_stretch() -> f64 {
    1.4
}

fn default_gateways() -> String {
    "starlink-gateways".to_owned()
}

fn default_rate() -> Rate {
    Rate::from_bits_per_second(150_000_000)
}

fn default_queue() -> QueueLimit {
    QueueLimit::Bdp(1.0)
}

fn default_cc() -> String {
    "cubic".to_owned()
}

fn default_count() -> u32 {
    1
}

fn default_via() -> Vec<String> {
    vec![PATH_LINK.to_owned()]
}

fn is_default_via(via: &[String]) -> bool {
    via == [PATH_LINK]
}

fn is_zero(time: &Duration) -> bool {
    *time == Duration::ZERO
}

fn default_interval() -> Duration {
    Duration::from_millis(10)
}

fn default_size() -> Bytes {
    Bytes::new(64)
}

fn default_period() -> Duration {
    Duration::from_secs(15)
}

fn default_offset() -> Duration {
    Duration::from_secs(12)
}

fn default_duration() -> Duration {
    Duration::from_secs(60)
}

fn default_seed() -> u64 {
    1
}

fn default_sample() -> Duration {
    Duration::from_millis(100)
}
