//! Types of the scenario file; one definition gives the parser, its error messages and the JSON Schema.
//!
//! Keys that are omitted get their default here, in the `Default` of their section. Where later code needs to
//! know whether a key was given, the field stays an `Option`.

mod background;
mod failure;
mod flow;
mod link;
mod network;
mod network_links;
mod network_sites;
mod network_traffic;
mod path;
mod routing;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skyhop_app::{TcpKeys, TcpOptions};
use skyhop_model::{LinuxLink, LiveDevice};
use skyhop_units::Duration;

pub use background::{
    BackgroundKeys, BackgroundKind, BackgroundSection, DemandMatrixKeys, EarlierRunKeys,
    TotalRateKeys,
};
pub(crate) use failure::FailingPart;
pub use failure::{FailureKeys, SatelliteKey};
pub use flow::{Flow, FlowKeys, FlowKind, TcpFlowKeys};
use flow::{explicit_tcp_keys, is_default_tcp, serialize_tcp_values};
pub use link::{Change, ExtraLink, LinkKeys, LinkSection, Queues};
pub use network::{Interval, NetworkRelay, NetworkSection};
pub use network_links::{
    DownlinkOf, GatewayLinkKeys, GatewayLinks, HopKeys, LaserKeys, UserLinkKeys, UserLinks,
};
pub use network_sites::{GridKeys, PositionKeys, SiteKeys, Sites};
pub use network_traffic::{InternetKeys, TrafficKind, TrafficSection};
pub(crate) use path::STARLINK_OFFSET;
use path::STARLINK_PERIOD;
pub use path::{
    AccessKeys, AccessPath, ConstellationPath, FixedPath, JitterKeys, PathKind, PathSection,
    TracePath,
};
pub use routing::{EqualCostKeys, Routing, RoutingTableKeys, SnapshotKeys};

/// Scenario of one run: its path, links and flows, and its duration, sampling interval and random seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
#[schemars(transform = need_path_or_network)]
pub struct Scenario {
    /// Time-varying path between two places. Required, unless there is a `[network]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PathSection")]
    pub path: Option<PathSection>,
    /// Constellation with many sites as one network, in place of `[path]`, `[link]` and `[links]`: packets of all flows
    /// go hop by hop over shared satellites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NetworkSection")]
    pub network: Option<NetworkSection>,
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
    /// Failures of satellites, planes, sites and lasers of `[network]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure: Vec<FailureKeys>,
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

/// Extend the schema so that a scenario needs `[path]` or `[network]`.
fn need_path_or_network(schema: &mut schemars::Schema) {
    let either = serde_json::json!([{ "required": ["path"] }, { "required": ["network"] }]);
    schema.insert("anyOf".to_owned(), either);
}

impl Scenario {
    /// Return the scenario as JSON, with the defaults of omitted keys filled in.
    pub fn to_json(&self) -> Value {
        let mut resolved = self.clone();
        let flows = resolved.flow.iter_mut().filter_map(|flow| match &mut flow.kind {
            FlowKind::Tcp(tcp) => Some(tcp),
            FlowKind::Probe(_) | FlowKind::Call(_) => None,
        });
        let traffic = resolved.network.as_mut().and_then(|network| network.traffic.as_mut());
        for tcp in flows.chain(traffic.map(|traffic| &mut traffic.tcp)) {
            tcp.tcp = explicit_tcp_keys(&tcp.own_tcp(&self.tcp), &self.tcp);
        }
        let json = serde_json::to_value(resolved);
        let mut json =
            without_nulls(json.expect("a scenario has text keys and finite numbers only"));
        if let Some(keys) = json.as_object_mut().filter(|_| self.network.is_some()) {
            keys.remove("link");
        }
        json
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

fn is_zero(time: &Duration) -> bool {
    *time == Duration::ZERO
}

/// `[signal]`: announcements of handovers to all TCP flows that cross the link of `[path]` at any time; over `[network]`,
/// to each flow those of its own route.
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
