//! Flows, the links that they cross, and their routes.

use skyhop_model::{Direction, DuringOutage, PATH_LINK};
use std::iter::repeat_n;

use skyhop_app::{App, Bulk};
use skyhop_path::PathTrace;
use skyhop_units::{Duration, Instant};

use crate::ScenarioError;
use crate::assemble::{FindPlace, LinkSpec, Progress};
use crate::change::apply_rtt;
use crate::experiment::{FlowPlan, LinkPlan, PlannedChange, Route, Traffic};
use crate::parse::NamedScenario;
use crate::types::{Change, ExtraLink, Flow, FlowKind, LinkSection, Scenario};

impl NamedScenario {
    /// The changes of a link of `[links]`, or of the one of `[path]`.
    pub(crate) fn changes_of(&self, link: Option<&str>) -> Vec<Change> {
        let name = |change: &Change| match change.link.as_deref() {
            Some(PATH_LINK) => None,
            other => other.map(str::to_owned),
        };
        let changes = self.scenario.change.iter().filter(|change| change.via.is_none());
        changes.filter(|change| name(change).as_deref() == link).cloned().collect()
    }

    /// All changes, by time.
    pub(crate) fn planned_changes(&self) -> Vec<PlannedChange> {
        let mut changes: Vec<PlannedChange> = Vec::new();
        for change in &self.scenario.change {
            let planned = PlannedChange {
                at: Instant::START + change.at,
                link: change.link.as_deref().map_or(0, |name| self.link_number(name)),
                outage: change.outage.unwrap_or(Duration::ZERO),
                flow: None,
            };
            match change.flow {
                None => changes.push(planned),
                Some(entry) => changes.extend(
                    self.ids_of(entry).map(|id| PlannedChange { flow: Some(id), ..planned }),
                ),
            }
        }
        changes.sort();
        changes
    }

    /// The flows; a `[[flow]]` with `count = n` gives n of them.
    pub(crate) fn flow_plans(&self) -> Vec<FlowPlan> {
        let end = Instant::START + self.scenario.run.duration;
        let entries = self.scenario.flow.iter().enumerate();
        let planned =
            entries.flat_map(|(entry, flow)| repeat_n((entry, flow), flow.common.count as usize));
        (0..)
            .zip(planned)
            .map(|(id, (entry, flow))| FlowPlan {
                id,
                from: flow.common.from,
                start: Instant::START + flow.common.start,
                stop: flow.common.stop.map_or(end, |stop| (Instant::START + stop).min(end)),
                routes: self.routes_of(entry, flow),
                extra_rtt: flow.common.extra_rtt,
                traffic: traffic_of(flow),
            })
            .collect()
    }

    /// Builds all links; `path` is the path of `[path]`.
    pub(crate) fn links(
        &self,
        path: PathTrace,
        flows: &[FlowPlan],
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Vec<LinkPlan>, ScenarioError> {
        let mut traces = vec![path];
        for (name, link) in &self.scenario.links {
            let mut trace = self
                .with_path_of(link)
                .path(find_place, progress)
                .map_err(|error| error.under(&format!("links.{name}")))?;
            apply_rtt(&mut trace, &self.changes_of(Some(name)));
            traces.push(trace);
        }
        // What BDP counts depends on all links of the flows' routes; on `[path]` it is the link's own.
        let end = Instant::START + self.scenario.run.duration;
        let mut base_rtts = vec![traces[0].mean_base_rtt(Instant::START, end)];
        base_rtts.extend((1..traces.len()).map(|n| self.longest_base_rtt(&traces, flows, n)));
        let built = traces.into_iter().zip(base_rtts).zip(self.sections());
        built
            .map(|((trace, base_rtt), (name, key, section, during_outage))| {
                let changes = &self.changes_of(Some(name).filter(|name| *name != PATH_LINK));
                let (key, trace_ref) = (&key[..], &trace);
                let spec =
                    LinkSpec { key, section, during_outage, trace: trace_ref, changes, base_rtt };
                let forward = self.link(&spec, Direction::Forward)?;
                let back = self.link(&spec, Direction::Back)?;
                Ok(LinkPlan { name: name.to_owned(), trace, forward, back })
            })
            .collect()
    }

    /// `[link]` and `[links]`, in the order in which links are numbered: the link's name, its section's
    /// key, the section, and what an outage of its path does.
    fn sections(&self) -> impl Iterator<Item = (&str, String, &LinkSection, DuringOutage)> {
        let Scenario { path, link, links, .. } = &self.scenario;
        let first = (PATH_LINK, "link".to_owned(), link, path.during_outage);
        let more = links.iter().map(|(name, link)| {
            let own_path = link.path.as_ref().unwrap_or(path);
            (&name[..], format!("links.{name}"), &link.link, own_path.during_outage)
        });
        [first].into_iter().chain(more)
    }

    /// The longest round trip without queueing among the flows that ever cross a link, over the
    /// run; the link's own where no flow does.
    fn longest_base_rtt(&self, traces: &[PathTrace], flows: &[FlowPlan], link: usize) -> Duration {
        let end = Instant::START + self.scenario.run.duration;
        let crosses = |flow: &&FlowPlan| flow.crosses(link as u16);
        let trace_of = |link: u16| &traces[usize::from(link)];
        let rtts = flows
            .iter()
            .filter(crosses)
            .map(|flow| flow.mean_base_rtt(trace_of, Instant::START, end));
        rtts.max().unwrap_or_else(|| traces[link].mean_base_rtt(Instant::START, end))
    }

    /// The same scenario with the path of one of its links in the place of `[path]`.
    fn with_path_of(&self, link: &ExtraLink) -> Self {
        let path = match &link.path {
            Some(path) => path.clone(),
            None => self.scenario.path.fixed(link.rtt.unwrap_or(Duration::ZERO)),
        };
        Self { scenario: Scenario { path, ..self.scenario.clone() }, ..self.clone() }
    }

    /// The number of a link; its name has been checked.
    fn link_number(&self, name: &str) -> u16 {
        let place = self.scenario.links.keys().position(|key| key == name);
        place.map_or(0, |index| index as u16 + 1)
    }

    /// The ids of the flows that a `[[flow]]` stands for.
    fn ids_of(&self, entry: u32) -> std::ops::Range<u32> {
        let before = self.scenario.flow.iter().take(entry as usize).map(|flow| flow.common.count);
        let first: u32 = before.sum();
        let count = self.scenario.flow.get(entry as usize).map_or(0, |flow| flow.common.count);
        first..first + count
    }

    fn routes_of(&self, entry: usize, flow: &Flow) -> Vec<Route> {
        let numbers = |via: &[String]| via.iter().map(|name| self.link_number(name)).collect();
        let mut routes = vec![Route { from: Instant::START, links: numbers(&flow.common.via) }];
        let mut changes: Vec<&Change> =
            self.scenario.change.iter().filter(|c| c.flow == Some(entry as u32)).collect();
        changes.sort_by_key(|change| change.at);
        routes.extend(changes.into_iter().filter_map(|change| {
            let links = numbers(change.via.as_deref()?);
            Some(Route { from: Instant::START + change.at, links })
        }));
        routes
    }
}

fn traffic_of(flow: &Flow) -> Traffic {
    match &flow.kind {
        FlowKind::Tcp(tcp) => Traffic::Tcp {
            cc: tcp.cc.clone(),
            app: App::Bulk(Bulk { bytes: tcp.bytes, read_rate: None }),
            options: tcp.tcp,
            parameters: flow.parameters.clone(),
        },
        FlowKind::Probe(probe) => Traffic::Probe { interval: probe.interval, size: probe.size },
    }
}
