//! Experiments: scenarios with everything resolved and built, which an engine runs on this machine or another one.

use serde::{Deserialize, Serialize};
use skyhop_app::{App, AppKind as _, Side, TcpOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

use skyhop_link::{Limit, LinkConfig, LinkRoute};
use skyhop_model::{Direction, Dscp, End, LARGEST_PACKET, LinuxLink, LiveDevice, PATH_LINK};
use skyhop_path::PathTrace;
use skyhop_signal::blind::{BlindPlan, Learner};
use skyhop_signal::{Agenda, Announcement};
use skyhop_units::{Duration, Instant, QueueLimit, Rate};

mod background;
mod network;
mod seed;

pub use background::BackgroundPlan;
pub use network::{HopPlan, NetworkHops, NetworkLink, NetworkPlan, RouteSignal};
pub use seed::seed_for;

/// Everything that an engine runs. An experiment needs no files except those of the user's congestion controls. It can
/// be sent to another machine as JSON and gives the same run there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Resolved scenario, for run.json.
    pub scenario: serde_json::Value,
    /// Notes about the path that a reader needs to know before trusting the results.
    pub notes: Vec<String>,
    /// All links; routes and results refer to them by their index.
    pub links: Vec<LinkPlan>,
    /// Whole network, in place of `links`; `None` for a path and further links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPlan>,
    /// Flows with ascending ids; a `[[flow]]` with `count = n` gives n flows.
    pub flows: Vec<FlowPlan>,
    /// TCP settings of the hosts, for flows that do not override them.
    pub tcp: TcpOptions,
    /// Entries of the scenario's `[[change]]`, by time.
    pub changes: Vec<PlannedChange>,
    /// Announcements of `[signal]` about the path of `[path]`, or of a schedule, by the time at which they are made.
    pub announcements: Vec<Announcement>,
    /// Plan of blind estimation: handovers that the run itself detects and then announces.
    pub blind: Option<BlindPlan>,
    /// Duration of the run.
    pub duration: Duration,
    /// Time between samples of flows and links.
    pub sample: Duration,
    /// Seed from which all components derive theirs.
    pub seed: u64,
    /// Whether the run may exceed the usual limits of memory and time.
    pub force_size: bool,
    /// Device between the kernel and the links in a live run.
    pub device: LiveDevice,
    /// Implementation of the links in a run inside a guest (virtual machine).
    pub linux_link: LinuxLink,
    /// SHA-256 of each file of the user's congestion controls, by its full path.
    pub cc_files: BTreeMap<String, String>,
}

/// A link of the experiment, with both directions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkPlan {
    /// Name of the link: its name in `[links]`, or [`PATH_LINK`] for the link of `[path]` and `[link]`. If each hop of
    /// the path has a queue, the further hops have [`PATH_LINK`] with a number appended.
    pub name: String,
    /// Path from which the schedules were made; experiments over the same path may share it. If each hop has a queue,
    /// the link of the first hop has the whole path, and the links of the other hops have a path without delay.
    pub trace: Arc<PathTrace>,
    /// Direction from the end `from` to the end `to`.
    pub forward: LinkConfig,
    /// Direction from the end `to` to the end `from`.
    pub back: LinkConfig,
    /// Sizes of the queues, forward and back, for run.json and summary.json.
    pub queues: [QueueSize; 2],
}

/// Size of a queue as the scenario gives it, and as the engine runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSize {
    /// Size in the scenario, such as "1 BDP".
    pub given: String,
    /// Bytes on the wire that the queue holds; of a queue that counts packets, those of so many packets of the MTU.
    pub bytes: u64,
    /// Packets of the MTU that the queue holds.
    pub packets: u64,
    /// Mean rate from which the size was computed; `None` if the scenario gives bytes or packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Whether the rate changes during the path, so that `rate_bps` is no rate of the link at most times.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rate_varies: bool,
    /// Mean base RTT from which the size was computed; `None` unless the scenario gives a BDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_rtt_us: Option<u64>,
}

impl QueueSize {
    /// Size of a queue whose limit the planner resolved to `limit` from the mean rate and whether it varies.
    pub fn new(
        given: QueueLimit,
        limit: Limit,
        (rate, varies): (Rate, bool),
        base_rtt: Duration,
    ) -> Self {
        let packet = LARGEST_PACKET.as_u64();
        let (bytes, packets) = match limit {
            Limit::Packets(packets) => (packets.saturating_mul(packet), packets),
            Limit::Bytes(bytes) => (bytes.as_u64(), bytes.as_u64() / packet),
        };
        let of_rate = matches!(given, QueueLimit::Time(_) | QueueLimit::Bdp(_));
        let of_rtt = matches!(given, QueueLimit::Bdp(_));
        Self {
            given: given.to_string(),
            bytes,
            packets,
            rate_bps: of_rate.then(|| rate.bits_per_second()),
            rate_varies: of_rate && varies,
            base_rtt_us: of_rtt.then(|| base_rtt.as_micros()),
        }
    }
}

/// A change that the scenario makes at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlannedChange {
    /// Time of the change.
    pub at: Instant,
    /// Index of the link that the change concerns.
    pub link: u16,
    /// Duration of the outage that begins.
    pub outage: Duration,
    /// Id of the flow whose route changes; `None` for a change of another kind.
    pub flow: Option<u32>,
}

/// Links that a flow crosses from a given time on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Time from which the route holds.
    pub from: Instant,
    /// Indices of links, in the order from the end `from` to the end `to`.
    pub links: Vec<u16>,
}

/// A flow of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowPlan {
    /// Id of the flow: its index in the scenario, counted from 0.
    pub id: u32,
    /// End at which the client is.
    pub from: End,
    /// Time at which the flow begins.
    pub start: Instant,
    /// Time at which the flow stops sending.
    pub stop: Instant,
    /// Routes by time; the first holds from the run's start. Empty in a network.
    pub routes: Vec<Route>,
    /// Sites of the client and of the server in a network; `None` elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<[u32; 2]>,
    /// Constant round-trip time in addition to that of the links.
    pub extra_rtt: Duration,
    /// DSCP of its packets, in both directions.
    pub dscp: Dscp,
    /// Application and transport of the flow.
    pub traffic: Traffic,
}

impl Experiment {
    /// Index of the link that `[path]` and `[link]` describe, which announcements are about.
    pub fn path_link(&self) -> u16 {
        self.links.iter().position(|link| link.name == PATH_LINK).unwrap_or(0) as u16
    }

    /// Path of `[path]`, which announcements are about; in a network, a path without delay.
    pub fn path(&self) -> &PathTrace {
        if let Some(network) = &self.network {
            return &network.trace;
        }
        &self.links[usize::from(self.path_link())].trace
    }

    /// Agenda of announcements, and the learner that adds to it during the run if estimation is blind.
    pub fn agenda(&self) -> (Agenda, Option<Learner>) {
        match self.blind {
            Some(plan) => (plan.agenda(), Some(Learner::new(plan))),
            None => (Agenda::from_announcements(&self.announcements), None),
        }
    }

    /// Number of links, which results refer to by their index.
    pub fn link_count(&self) -> usize {
        self.network.as_ref().map_or(self.links.len(), NetworkPlan::link_count)
    }

    /// Names of all links, by their number.
    pub fn link_names(&self) -> Vec<String> {
        match &self.network {
            Some(network) => network.link_names(),
            None => self.links.iter().map(|link| link.name.clone()).collect(),
        }
    }

    /// Mean round-trip time of a flow without queueing, from `start` to `stop`.
    pub fn mean_base_rtt(&self, flow: &FlowPlan, start: Instant, stop: Instant) -> Duration {
        flow.mean_base_rtt(|link| &self.links[usize::from(link)].trace, start, stop)
    }
}

impl LinkPlan {
    /// Configuration of the link in one direction.
    pub fn config(&self, direction: Direction) -> &LinkConfig {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Back => &self.back,
        }
    }
}

impl FlowPlan {
    /// Whether any route of the flow crosses the link.
    pub fn crosses(&self, link: u16) -> bool {
        self.routes.iter().any(|route| route.links.contains(&link))
    }

    /// Direction in which the flow sends most of its data. Its client is at the end `from`.
    pub fn sends(&self) -> Direction {
        self.direction_to(self.traffic.app().sends().other())
    }

    /// Direction of packets to the client or the server.
    pub fn direction_to(&self, side: Side) -> Direction {
        match (self.from, side) {
            (End::From, Side::Server) | (End::To, Side::Client) => Direction::Forward,
            (End::From, Side::Client) | (End::To, Side::Server) => Direction::Back,
        }
    }

    /// Constant delay of packets to the client or the server, behind all links: half of the extra RTT, rounded down to a
    /// nanosecond towards the server; `None` without one.
    pub fn delay_to(&self, side: Side) -> Option<Duration> {
        let there = self.extra_rtt / 2;
        let half = if side == Side::Server { there } else { self.extra_rtt - there };
        (self.extra_rtt > Duration::ZERO).then_some(half)
    }

    /// Routes of packets to the client or the server, with the times from which they hold; `index` returns the router's
    /// index of a link. The delay of [`Self::delay_to`] follows the last link.
    pub fn routes_to(
        &self,
        side: Side,
        index: impl Fn(u16) -> usize,
    ) -> impl Iterator<Item = (Instant, LinkRoute)> {
        let delay = self.delay_to(side);
        let direction = self.direction_to(side);
        self.routes.iter().map(move |route| {
            let mut links: Vec<usize> = route.links.iter().map(|link| index(*link)).collect();
            if direction == Direction::Back {
                links.reverse();
            }
            (route.from, LinkRoute { links, delay })
        })
    }

    /// Route of the flow at time `at`.
    pub fn route_at(&self, at: Instant) -> &Route {
        let next = self.routes.partition_point(|route| route.from <= at);
        &self.routes[next.saturating_sub(1)]
    }

    /// Congestion control of a TCP flow; `None` for datagrams.
    pub fn cc(&self) -> Option<&str> {
        match &self.traffic {
            Traffic::Tcp { cc, .. } => Some(cc),
            Traffic::Udp { .. } => None,
        }
    }

    /// TCP settings of the flow's hosts; `None` for datagrams.
    pub fn tcp_options(&self) -> Option<&TcpOptions> {
        match &self.traffic {
            Traffic::Tcp { options, .. } => Some(options),
            Traffic::Udp { .. } => None,
        }
    }

    /// Mean round-trip time without queueing, from `start` to `stop`; `trace_of` returns a link's path.
    pub fn mean_base_rtt<'t>(
        &self,
        trace_of: impl Fn(u16) -> &'t PathTrace,
        start: Instant,
        stop: Instant,
    ) -> Duration {
        let (mut sum_ns, mut total_ns) = (0_u128, 0_u128);
        for (index, route) in self.routes.iter().enumerate() {
            let until = self.routes.get(index + 1).map_or(stop, |next| next.from.min(stop));
            let from = route.from.max(start);
            let held_ns = u128::from(until.saturating_since(from).as_nanos());
            let links = route.links.iter().map(|link| trace_of(*link));
            let rtt: Duration = links.map(|trace| trace.mean_base_rtt(from, until)).sum();
            sum_ns += held_ns * u128::from((rtt + self.extra_rtt).as_nanos());
            total_ns += held_ns;
        }
        Duration::from_nanos(sum_ns.checked_div(total_ns).unwrap_or(0) as u64)
    }
}

/// Application and transport of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Traffic {
    /// Application over a TCP connection.
    Tcp {
        /// Name of the congestion control, or the full path of its file.
        cc: String,
        /// Application at the two ends.
        app: App,
        /// TCP settings of the hosts and sockets.
        options: TcpOptions,
        /// Parameter tables of congestion controls, by name.
        parameters: BTreeMap<String, serde_json::Value>,
    },
    /// Application over UDP datagrams.
    Udp {
        /// Application at the two ends.
        app: App,
    },
}

impl Traffic {
    /// Application at the flow's two ends.
    pub fn app(&self) -> &App {
        match self {
            Self::Tcp { app, .. } | Self::Udp { app } => app,
        }
    }
}

/// Parameters, as text, in the table named after the congestion control.
pub fn cc_parameters(
    cc: &str,
    tables: &BTreeMap<String, serde_json::Value>,
) -> Vec<(String, String)> {
    let own = tables.get(skyhop_model::cc_table(cc)).and_then(serde_json::Value::as_object);
    own.into_iter()
        .flatten()
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), text)
        })
        .collect()
}
