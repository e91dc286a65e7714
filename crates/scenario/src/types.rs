//! The scenario file as it is written. One definition gives the parser, its errors and the schema.
//!
//! What is not given has its default here, in the `Default` of its section. Where it matters later whether
//! something was given, it is an `Option` until then.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use skyhop_app::{App, Bulk, Call, Probe, TcpKeys, TcpOptions};
use skyhop_link::QueueDiscipline;
use skyhop_model::{
    CcLanguage, Compat, Dscp, DuringOutage, End, LinuxLink, LiveDevice, PATH_LINK, POLICY_CC,
    Relay, cc_language, layered, one_line, our_card,
};
use skyhop_signal::{TimingError, TimingErrorText};
use skyhop_units::{Angle, Bytes, Duration, Length, QueueLimit, Rate, Ratio, UtcInstant};

use crate::by_kind;
use crate::keys::{KeyError, Keys, Kinds, read_parts};

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
    /// What the TCP of all flows is set to.
    #[serde(default, skip_serializing_if = "is_plain", serialize_with = "tcp_values_of")]
    #[schemars(with = "TcpOptions")]
    pub tcp: TcpKeys,
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
    /// What only runs on a kernel in virtual time ask for.
    #[serde(default, skip_serializing_if = "LinuxSection::is_default")]
    pub linux: LinuxSection,
}

impl Scenario {
    /// As JSON, with what is not given filled in.
    pub fn to_json(&self) -> Value {
        let mut whole = self.clone();
        for flow in &mut whole.flow {
            if let FlowKind::Tcp(tcp) = &mut flow.kind {
                tcp.tcp = written(&tcp.own_tcp(&self.tcp), &self.tcp);
            }
        }
        let json = serde_json::to_value(whole);
        without_nulls(json.expect("a scenario has text keys and finite numbers only"))
    }
}

/// Drops what was not given.
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

/// `[path]`: where the delay comes from.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PathSection {
    /// What becomes of packets that reach an outage.
    #[serde(default)]
    pub during_outage: DuringOutage,
    /// What kind of path, and the keys of that kind.
    #[serde(flatten, serialize_with = "by_kind::serialize")]
    pub kind: PathKind,
}

impl<'de> Deserialize<'de> for PathSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let during_outage = keys.key("during_outage")?.unwrap_or_default();
            Ok(Self { during_outage, kind: keys.kind()? })
        })
    }
}

impl PathSection {
    /// The same path with a round trip that never changes by itself.
    pub(crate) fn fixed(&self, rtt: Duration) -> Self {
        let (from, to, start) = match &self.kind {
            PathKind::Constellation(path) => (path.from.clone(), path.to.clone(), path.start),
            PathKind::Fixed(path) => (path.from.clone(), path.to.clone(), path.start),
            PathKind::Trace(_) => (None, None, None),
        };
        let kind = PathKind::Fixed(FixedPath { rtt: Some(rtt), jitter: None, from, to, start });
        Self { kind, ..self.clone() }
    }
}

/// What kind of path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind", transform = by_kind::optional_kind::<Self>)]
pub enum PathKind {
    /// Computed from a constellation.
    Constellation(Box<ConstellationPath>),
    /// The same round trip all the time, but for `[[change]]`.
    Fixed(FixedPath),
    /// A path file.
    Trace(TracePath),
}

impl Kinds for PathKind {
    const NOUN: &'static str = "a path";
    const DEFAULT: Option<&'static str> = Some("constellation");
}

/// `[path]` with kind = "constellation".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConstellationPath {
    /// The constellation's name, "geo:LONGITUDE", a TOML file, or a file or address of element sets.
    pub constellation: String,
    /// One end: a site, a city, or "lat,lon[,alt_m]".
    pub from: Option<String>,
    /// The other end.
    pub to: Option<String>,
    /// How the ends are joined.
    pub relay: Relay,
    /// The handover policy; where nothing is said, shortest-grid; leoem with compat = "leoem", immediate with "hypatia".
    pub handover: Option<String>,
    /// How long an end handover takes the link down: leoem, starlink, none, or a duration.
    pub outage: String,
    /// When the path begins; where nothing is said, at the constellation's epoch.
    pub start: Option<UtcInstant>,
    /// The time between computed frames.
    pub step: Duration,
    /// The gateways: a list's name, or a file with latitude_deg, longitude_deg and name.
    pub gateways: String,
    /// Another tool's habits, to be compared with it.
    pub compat: Compat,
    /// Which satellites: all, or such as "name=STARLINK-1*; shell=0; plane=0-35".
    pub satellites: String,
    /// The lowest elevation at which sites use satellites; the constellation's own where not given.
    pub minimum_elevation: Option<Angle>,
    /// How far from the geostationary arc sites keep.
    pub geo_avoidance: Option<Angle>,
    /// How far from the start the epoch of an element set may be.
    pub stale_after: Duration,
    /// Whether the last plane of a shell links to its first.
    pub isl_seam: bool,
    /// How far above the ground links between satellites must pass.
    pub isl_clearance: Length,
    /// For relay = "access": the points of presence: a list's name or a file, as gateways.
    pub pops: String,
    /// For relay = "access": how much longer fibre is than the great circle.
    pub fibre_stretch: f64,
    /// For policies on a grid: the time between choices, in UTC.
    pub grid_period: Duration,
    /// For policies on a grid: the first choice of each minute.
    pub grid_offset: Duration,
}

impl Default for ConstellationPath {
    fn default() -> Self {
        Self {
            constellation: "starlink-shell1".to_owned(),
            from: None,
            to: None,
            relay: Relay::default(),
            handover: None,
            outage: "leoem".to_owned(),
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

/// When Starlink chooses satellites anew: in seconds 12, 27, 42 and 57 of every minute.
const STARLINK_PERIOD: Duration = Duration::from_secs(15);
const STARLINK_OFFSET: Duration = Duration::from_secs(12);

/// `[path]` with kind = "fixed".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixedPath {
    /// The round trip without queueing.
    pub rtt: Option<Duration>,
    /// How it varies at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKeys>,
    /// What one end is called.
    pub from: Option<String>,
    /// What the other end is called.
    pub to: Option<String>,
    /// When the path begins.
    pub start: Option<UtcInstant>,
}

/// `jitter` of a fixed path: its round trip varies at random about `rtt`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JitterKeys {
    /// The time between two values.
    pub every: Duration,
    /// How far it is below `rtt` at the most.
    pub below: Duration,
    /// How far it is above `rtt` at the most; in between the likelier the nearer.
    pub above: Duration,
    /// In which time the autocorrelation falls to 1/e; 0 s: each value is drawn by itself.
    pub correlation: Duration,
    /// The probability that in a second a spike begins.
    pub spikes_per_second: Ratio,
    /// The least that a spike adds.
    pub spike_from: Duration,
    /// The most that a spike adds.
    pub spike_to: Duration,
    /// How long a spike lasts.
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

/// `[path]` with kind = "trace".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TracePath {
    /// A path file.
    pub file: Option<String>,
    /// Whether it begins again at its end, until the run ends (as mahimahi does); else its last state is kept.
    #[serde(rename = "loop", default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
}

layered! {
    /// What may be said of a direction of a link.
    LinkKeys => LinkValues {
        /// The wire rate; each IP packet counts 14 bytes more.
        rate: Rate = Rate::from_bits_per_second(150_000_000),
        /// How much the queue holds; of `[links]`, BDP counts the longest base RTT of the flows over it.
        queue: QueueLimit = QueueLimit::Bdp(1.0),
        /// The queue discipline.
        qdisc: QueueDiscipline = QueueDiscipline::default(),
        /// Independent loss after the queue.
        loss: Ratio = Ratio::ZERO,
        /// Whether packets that follow a fall of the delay overtake those before it, as netem's do; else, and where not
        /// given, only those on a new route.
        #[serde(skip_serializing_if = "Option::is_none")]
        reorder: Option<bool> = None,
        /// How much may leave at once after a pause (tbf's burst): what the rate would have carried meanwhile, up to this;
        /// nothing where not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        burst: Option<Bytes> = None,
    }
}

/// `[link]`: the bottleneck in the direction from -> to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LinkSection {
    /// What was given of the direction from -> to.
    #[serde(flatten, serialize_with = "values_of")]
    #[schemars(with = "LinkValues")]
    pub keys: LinkKeys,
    /// What the other direction has of its own; it is the same otherwise, without loss.
    pub back: Option<LinkKeys>,
    /// Where packets wait; `[link]` alone has a choice.
    #[serde(skip_serializing_if = "Queues::is_default")]
    pub queues: Queues,
    /// With `queues = "per-hop"`: the rate of the path's first and last hop in both directions; `rate` where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_rate: Option<Rate>,
}

/// Where packets wait on a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Queues {
    /// One queue stands for all hops.
    #[default]
    Path,
    /// Each hop has a queue of its own, which goes with the hop.
    PerHop,
}

impl Queues {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn values_of<S: Serializer>(keys: &LinkKeys, serializer: S) -> Result<S::Ok, S::Error> {
    keys.values().serialize(serializer)
}

impl LinkSection {
    fn among(keys: &mut Keys) -> Result<Self, KeyError> {
        let (part, back) = (keys.part()?, keys.key("back")?);
        let queues: Option<Queues> = keys.key("queues")?;
        let (queues, end_rate) = (queues.unwrap_or_default(), keys.key("end_rate")?);
        Ok(Self { keys: part, back, queues, end_rate })
    }
}

impl<'de> Deserialize<'de> for LinkSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, Self::among)
    }
}

/// `[links.NAME]`: a link beside that of `[path]` and `[link]`, for flows that go over it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ExtraLink {
    /// Its round trip without queueing, half of it each way; 0 s where neither this nor `path` is given.
    pub rtt: Option<Duration>,
    /// Instead of `rtt`: a path of its own that varies over time, with the keys of `[path]`.
    pub path: Option<PathSection>,
    /// What `[link]` has too.
    #[serde(flatten)]
    pub link: LinkSection,
}

impl<'de> Deserialize<'de> for ExtraLink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (rtt, path) = (keys.key("rtt")?, keys.key("path")?);
            Ok(Self { rtt, path, link: LinkSection::among(keys)? })
        })
    }
}

/// `[[change]]`: what changes at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// Which of `[links]` changes; that of `[path]` and `[link]` where not given.
    pub link: Option<String>,
    /// Instead of a link: which `[[flow]]`, counted from 0, takes another route.
    pub flow: Option<u32>,
    /// With `flow`: its new route. What is on its way stays on the old one.
    pub via: Option<Vec<String>>,
    /// The new round trip without queueing, from then on (from the outage's end, if any).
    pub rtt: Option<Duration>,
    /// The new rate, likewise.
    pub rate: Option<Rate>,
    /// The new loss, likewise.
    pub loss: Option<Ratio>,
    /// How long the path is down from `at` on.
    pub outage: Option<Duration>,
}

/// `[[flow]]`: one sender and its receiver.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = allow_cc_parameters)]
pub struct Flow {
    /// What all kinds of flows have.
    #[serde(flatten)]
    pub common: FlowKeys,
    /// What kind of flow, and the keys of that kind.
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
                    tables
                        .extend(policy.map(|policy| policy.take_into(tcp)).transpose()?.flatten());
                    tables
                }
                FlowKind::Probe(_) | FlowKind::Call(_) => toml::Table::new(),
            };
            let json = |(name, table)| Some((name, serde_json::to_value(table).ok()?));
            Ok(Self { common, kind, parameters: tables.into_iter().filter_map(json).collect() })
        })
    }
}

/// What a flow says of the policy that decides for it: a card, or parameters of `cc/policy.c` with or without one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a card's file, or a table with it")]
enum Policy {
    Card(String),
    Table(toml::Table),
}

impl Policy {
    /// A card is a flow's congestion control by its name: what is left are parameters.
    fn take_into(self, tcp: &mut TcpFlow) -> Result<Option<(String, toml::Value)>, KeyError> {
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
                tcp.cc = our_card(&card);
            } else if cc_language(&card) == Some(CcLanguage::Card) {
                tcp.cc = card;
            } else {
                let (card, ours) = (one_line(&card), ours.join(", "));
                let what =
                    format!("is `{card}`; expected a card, a file in .toml, or one of {ours}");
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

/// Lets the schema accept `cubic.beta = 0.7` in a flow: a table under the congestion control's name.
fn allow_cc_parameters(schema: &mut schemars::Schema) {
    // What a policy decides is the only one of which a text may stand there, too: its card.
    let properties = schema.ensure_object().entry("properties");
    properties.or_insert_with(|| serde_json::json!({}))[POLICY_CC] = serde_json::json!({
        "type": ["string", "object"],
        "description": "of cc = \"policy\": the card, or a table with the card and parameters",
    });
    schema.insert(
        "unevaluatedProperties".to_owned(),
        serde_json::json!({
            "type": "object",
            "description": "parameters of the congestion control with this name",
        }),
    );
}

/// What all kinds of flows have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FlowKeys {
    /// Which end sends.
    pub from: End,
    /// When it begins.
    pub start: Duration,
    /// How much later than `start` it may begin: drawn evenly from the run's seed, for each of `count` by itself.
    #[serde(skip_serializing_if = "is_zero")]
    pub start_spread: Duration,
    /// When it stops; the run's end where not given.
    pub stop: Option<Duration>,
    /// How many flows like this; 0: none.
    pub count: u32,
    /// The links it crosses, in the order from the end `from` to the end `to`: names of `[links]`,
    /// and "path" for the link of `[path]` and `[link]`.
    #[serde(skip_serializing_if = "is_path_alone")]
    pub via: Vec<String>,
    /// Round trip of its own beside that of the links, half of it each way, without queueing.
    #[serde(skip_serializing_if = "is_zero")]
    pub extra_rtt: Duration,
    /// The DSCP of its packets, both ways: queues with classes (cake's tins) tell flows apart by it.
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

/// An application over TCP, or one over datagrams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind", transform = by_kind::optional_kind::<Self>)]
#[expect(clippy::large_enum_variant, reason = "there are few, one for each entry")]
pub enum FlowKind {
    /// An application over TCP.
    Tcp(TcpFlow),
    /// UDP packets that the other end echoes.
    Probe(Probe),
    /// Audio and video both ways over UDP.
    Call(Call),
}

impl Kinds for FlowKind {
    const NOUN: &'static str = "a flow";
    const DEFAULT: Option<&'static str> = Some("tcp");
}

/// `[[flow]]` with kind = "tcp".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpFlow {
    /// The congestion control: a name, or a file of the user's in C or Python.
    pub cc: String,
    /// Instead of `stop`, of a bulk transfer: how much is sent; the completion time is reported.
    pub bytes: Option<Bytes>,
    /// What its two ends do: a bulk transfer where nothing is said.
    #[serde(with = "by_kind", skip_serializing_if = "is_bulk")]
    #[schemars(with = "App")]
    pub app: App,
    /// What the TCP of this flow is set to, beside what `[tcp]` says.
    #[serde(skip_serializing_if = "says_nothing")]
    pub tcp: TcpKeys,
}

impl TcpFlow {
    /// What its two ends do, with the flow's `bytes`.
    pub fn app(&self) -> App {
        match &self.app {
            App::Bulk(bulk) => App::Bulk(Bulk { bytes: bulk.bytes.or(self.bytes), ..bulk.clone() }),
            other => other.clone(),
        }
    }

    /// What its TCP is set to where `[tcp]` says nothing, with what its application needs: browsers and web servers have
    /// short segments leave at once.
    pub(crate) fn own_tcp(&self, of_all: &TcpKeys) -> TcpKeys {
        let mut own = self.tcp.clone();
        if matches!(self.app, App::Page(_)) && of_all.nodelay.is_none() {
            own.nodelay = own.nodelay.or(Some(true));
        }
        own
    }
}

fn is_bulk(app: &App) -> bool {
    *app == App::default()
}

/// Scenarios that say nothing of TCP are written as they always were, so that a study knows its runs again.
fn is_plain(keys: &TcpKeys) -> bool {
    keys.values() == TcpOptions::default()
}

fn says_nothing(keys: &TcpKeys) -> bool {
    *keys == TcpKeys::default()
}

fn tcp_values_of<S: Serializer>(keys: &TcpKeys, serializer: S) -> Result<S::Ok, S::Error> {
    keys.values().serialize(serializer)
}

/// What is written of a flow's keys beside those of `[tcp]`: nothing where they change nothing.
fn written(own: &TcpKeys, of_all: &TcpKeys) -> TcpKeys {
    let values = own.clone().or(of_all.clone()).values();
    let of_all = of_all.values();
    if values == of_all {
        return TcpKeys::default();
    }
    // What follows from the flow's profile would else be read as `[tcp]` has it.
    let rmem = if values.rmem == of_all.rmem { own.rmem } else { Some(values.rmem.into()) };
    // These three are always written, as when there were few others, so that a study knows its runs again.
    let TcpOptions { ecn, nodelay, cork, .. } = values;
    TcpKeys { rmem, ecn: Some(ecn), nodelay: Some(nodelay), cork: Some(cork), ..own.clone() }
}

impl Kinds for App {
    const NOUN: &'static str = "an application";
}

impl Default for TcpFlow {
    fn default() -> Self {
        Self { cc: "cubic".to_owned(), bytes: None, app: App::default(), tcp: TcpKeys::default() }
    }
}

/// `[signal]`: announcements of handovers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SignalSection {
    /// Who announces.
    pub source: SignalSource,
    /// How long before the event it is announced.
    pub lead: Duration,
    /// What is added to the announced time: none, report-timing, or a duration.
    pub error: String,
    /// For source = "forecast": the element sets that the forecaster has, a TLE or OMM file; those of the path where
    /// nothing is said.
    pub elements: Option<String>,
    /// For source = "schedule" and "blind": the time between handovers.
    pub period: Duration,
    /// For source = "schedule": the first handover of each minute.
    pub offset: Duration,
}

impl Default for SignalSection {
    fn default() -> Self {
        Self {
            source: SignalSource::None,
            lead: Duration::ZERO,
            error: "none".to_owned(),
            elements: None,
            period: STARLINK_PERIOD,
            offset: STARLINK_OFFSET,
        }
    }
}

impl SignalSection {
    /// What is added to the announced time.
    ///
    /// # Errors
    /// `error` is not one of its possible values.
    pub fn timing_error(&self) -> Result<TimingError, TimingErrorText> {
        self.error.parse()
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
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    /// How long the run lasts.
    pub duration: Duration,
    /// The seed of everything drawn at random.
    pub seed: u64,
    /// The time between samples.
    pub sample: Duration,
    /// Whether it may take more memory, rows and time than is usual.
    // Left out where it may not: a study knows the runs of earlier versions again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force_size: bool,
}

impl Default for RunSection {
    fn default() -> Self {
        let (duration, sample) = (Duration::from_secs(60), Duration::from_millis(100));
        Self { duration, seed: 1, sample, force_size: false }
    }
}

/// `[live]`: what only live runs ask for; the simulator does not look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LiveSection {
    /// What carries packets between the kernel and the link.
    pub device: LiveDevice,
}

impl LiveSection {
    /// Scenarios that say nothing of live runs are written as they always were, so that a study
    /// knows its runs again.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[linux]`: what only runs on a kernel in virtual time ask for; the other engines do not look at it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LinuxSection {
    /// The kernel's name, of `skyhop linux kernel list`; that which was built last where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// What carries packets between the two ends.
    pub link: LinuxLink,
}

impl LinuxSection {
    /// Left out where it says nothing, as `[live]`.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
