//! A scenario with everything resolved and built: what an engine runs, here or wherever it is sent.

use serde::{Deserialize, Serialize};
use skyhop_app::{App, Kind as _, Side, TcpOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

use skyhop_link::LinkConfig;
use skyhop_model::{Direction, Dscp, End, LinuxLink, LiveDevice, PATH_LINK};
use skyhop_path::PathTrace;
use skyhop_signal::blind::{BlindPlan, Learner};
use skyhop_signal::{Agenda, Announcement};
use skyhop_units::{Duration, Instant};

mod seed;

pub use seed::seed_for;

/// What an engine runs. It needs no name any more, and no file but those of the user's congestion controls: as JSON
/// it can be sent elsewhere and is the same there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The scenario as resolved, for run.json.
    pub scenario: serde_json::Value,
    /// What a reader has to know of its path before believing the results.
    pub notes: Vec<String>,
    /// All links; routes and results name them by their place here.
    pub links: Vec<LinkPlan>,
    /// The flows, ids ascending; a `[[flow]]` with `count = n` stands here n times.
    pub flows: Vec<FlowPlan>,
    /// What the hosts' TCP is set to where flows say nothing else.
    pub tcp: TcpOptions,
    /// The scenario's `[[change]]` entries, by time.
    pub changes: Vec<PlannedChange>,
    /// The announcements of `[signal]`, about the path of `[path]`, by when they are made.
    pub announcements: Vec<Announcement>,
    /// What the run is to find out by itself, and to announce then.
    pub blind: Option<BlindPlan>,
    /// How long the run lasts.
    pub duration: Duration,
    /// The time between samples.
    pub sample: Duration,
    /// The run's seed.
    pub seed: u64,
    /// Whether it may take more memory and time than is usual.
    pub force_size: bool,
    /// What carries packets in a live run.
    pub device: LiveDevice,
    /// What carries packets in a guest's run.
    pub linux_link: LinuxLink,
    /// The files of the user's that congestion controls are made of, by their whole names: the SHA-256 of each.
    pub cc_files: BTreeMap<String, String>,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkPlan {
    /// Its name: [`PATH_LINK`] for that of `[path]` and `[link]`, with a number for its further hops where each has a
    /// queue, else that of `[links]`.
    pub name: String,
    /// Its path, from which the schedules were made; experiments over the same one may share it. Where each hop has a
    /// queue, the first has all of the path, and the others one without delay.
    pub trace: Arc<PathTrace>,
    /// The direction from -> to.
    pub forward: LinkConfig,
    /// The direction to -> from.
    pub back: LinkConfig,
}

/// A moment at which the scenario changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlannedChange {
    /// When.
    pub at: Instant,
    /// The link concerned.
    pub link: u16,
    /// The outage that begins.
    pub outage: Duration,
    /// The flow that takes another route, where that is what changes.
    pub flow: Option<u32>,
}

/// The links that a flow crosses from a moment on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// From when.
    pub from: Instant,
    /// Numbers of links, in the order from the end `from` to the end `to`.
    pub links: Vec<u16>,
}

/// One flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowPlan {
    /// Its place in the scenario, counted from 0.
    pub id: u32,
    /// Which end sends.
    pub from: End,
    /// When it begins.
    pub start: Instant,
    /// When it stops sending.
    pub stop: Instant,
    /// Its routes, by time; the first holds from the run's start.
    pub routes: Vec<Route>,
    /// Round trip of its own beside that of the links.
    pub extra_rtt: Duration,
    /// What its packets ask of queues, both ways.
    pub dscp: Dscp,
    /// What it sends.
    pub traffic: Traffic,
}

impl Experiment {
    /// The number of the link that `[path]` and `[link]` describe: announcements are about it.
    pub fn path_link(&self) -> u16 {
        self.links.iter().position(|link| link.name == PATH_LINK).unwrap_or(0) as u16
    }

    /// The path of `[path]`.
    pub fn path(&self) -> &PathTrace {
        &self.links[usize::from(self.path_link())].trace
    }

    /// The announcements to come, and who learns of others as the run goes on.
    pub fn agenda(&self) -> (Agenda, Option<Learner>) {
        match self.blind {
            Some(plan) => (plan.agenda(), Some(Learner::new(plan))),
            None => (Agenda::of(&self.announcements), None),
        }
    }

    /// The mean round trip of a flow without queueing, from `start` to `stop`.
    pub fn mean_base_rtt(&self, flow: &FlowPlan, start: Instant, stop: Instant) -> Duration {
        flow.mean_base_rtt(|link| &self.links[usize::from(link)].trace, start, stop)
    }
}

impl LinkPlan {
    /// What one direction is made of.
    pub fn config(&self, direction: Direction) -> &LinkConfig {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Back => &self.back,
        }
    }
}

impl FlowPlan {
    /// Whether it ever crosses a link.
    pub fn crosses(&self, link: u16) -> bool {
        self.routes.iter().any(|route| route.links.contains(&link))
    }

    /// Which way most of what it sends goes. Its client stands at the end `from`.
    pub fn sends(&self) -> Direction {
        let sender = match self.traffic.app().sends() {
            Side::Client => self.from,
            Side::Server => self.from.other(),
        };
        match sender {
            End::From => Direction::Forward,
            End::To => Direction::Back,
        }
    }

    /// The links that it crosses at `at`.
    pub fn route_at(&self, at: Instant) -> &Route {
        let next = self.routes.partition_point(|route| route.from <= at);
        &self.routes[next.saturating_sub(1)]
    }

    /// The congestion control of a TCP flow.
    pub fn cc(&self) -> Option<&str> {
        match &self.traffic {
            Traffic::Tcp { cc, .. } => Some(cc),
            Traffic::Udp { .. } => None,
        }
    }

    /// What the hosts of a TCP flow are set to.
    pub fn tcp_options(&self) -> Option<&TcpOptions> {
        match &self.traffic {
            Traffic::Tcp { options, .. } => Some(options),
            Traffic::Udp { .. } => None,
        }
    }

    /// Its mean round trip without queueing, from `start` to `stop`; `trace_of` gives a link's path.
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

/// What a flow sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Traffic {
    /// An application over TCP.
    Tcp {
        /// The congestion control's name, or the whole name of its file.
        cc: String,
        /// What its two ends do.
        app: App,
        /// What the TCP of its hosts and its sockets are set to.
        options: TcpOptions,
        /// Parameters of the congestion control, by its name.
        parameters: BTreeMap<String, serde_json::Value>,
    },
    /// An application over datagrams.
    Udp {
        /// What its two ends do.
        app: App,
    },
}

impl Traffic {
    /// What the flow's two ends do.
    pub fn app(&self) -> &App {
        match self {
            Self::Tcp { app, .. } | Self::Udp { app } => app,
        }
    }
}

/// The parameters in the table named after the congestion control, as text.
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
