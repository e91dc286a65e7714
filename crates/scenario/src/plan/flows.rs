//! Plans of flows with their routes, and the order of changes.

use std::iter::repeat_n;

use skyhop_app::App;
use skyhop_experiment::{FlowPlan, PlannedChange, Route, Traffic, seed_for};
use skyhop_model::PATH_LINK;
use skyhop_units::{Duration, Instant};

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::types::{Change, Flow, FlowKind};

impl NamedScenario {
    /// `[[change]]` entries for the link called `link`.
    pub(crate) fn changes_of(&self, link: &str) -> Vec<Change> {
        let changes = self.scenario.change.iter().filter(|change| change.via.is_none());
        let own = |change: &&Change| change.link.as_deref().unwrap_or(PATH_LINK) == link;
        changes.filter(own).cloned().collect()
    }

    /// All `[[change]]` entries in order of time.
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

    /// Plan the flows; a `[[flow]]` with `count = n` becomes n flows. `path_links` are the numbers of the
    /// links that replace "path" in the flows' routes.
    ///
    /// # Errors
    /// A file of an application cannot be read.
    pub(crate) fn flow_plans(&self, path_links: &[u16]) -> Result<Vec<FlowPlan>, ScenarioError> {
        let entries = self.scenario.flow.iter().enumerate();
        let planned =
            entries.flat_map(|(entry, flow)| repeat_n((entry, flow), flow.common.count as usize));
        let plan = |(id, (entry, flow)): (u32, (usize, &Flow))| {
            let routes = self.routes_of(entry, flow, path_links);
            self.flow_plan(id, &format!("flow.{entry}"), flow, routes)
        };
        (0..).zip(planned).map(plan).collect()
    }

    /// Plan one flow; `key` is that of its section, for errors.
    pub(crate) fn flow_plan(
        &self,
        id: u32,
        key: &str,
        flow: &Flow,
        routes: Vec<Route>,
    ) -> Result<FlowPlan, ScenarioError> {
        let end = Instant::START + self.scenario.run.duration;
        Ok(FlowPlan {
            id,
            from: flow.common.from,
            start: self.start_of(id, flow),
            stop: flow.common.stop.map_or(end, |stop| (Instant::START + stop).min(end)),
            routes,
            sites: None,
            extra_rtt: flow.common.extra_rtt,
            dscp: flow.common.dscp,
            traffic: self.traffic_of(key, flow)?,
        })
    }

    /// Number of the link called `name`; the caller has checked that it exists.
    fn link_number(&self, name: &str) -> u16 {
        let place = self.scenario.links.keys().position(|key| key == name);
        place.map_or(0, |index| index as u16 + 1)
    }

    /// Ids of the `count` flows of the `[[flow]]` with the index `entry`.
    pub(crate) fn ids_of(&self, entry: u32) -> std::ops::Range<u32> {
        let before = self.scenario.flow.iter().take(entry as usize).map(|flow| flow.common.count);
        let first: u32 = before.sum();
        let count = self.scenario.flow.get(entry as usize).map_or(0, |flow| flow.common.count);
        first..first + count
    }

    /// Start of a flow, with its random delay.
    fn start_of(&self, id: u32, flow: &Flow) -> Instant {
        let drawn = seed_for(self.scenario.run.seed, &format!("flow {id} start")) >> 11;
        let share = drawn as f64 / (1_u64 << 53) as f64;
        Instant::START + flow.common.start + flow.common.start_spread.mul_f64(share)
    }

    fn routes_of(&self, entry: usize, flow: &Flow, path_links: &[u16]) -> Vec<Route> {
        let number = |name: &String| match name.as_str() {
            PATH_LINK => path_links.to_vec(),
            other => vec![self.link_number(other)],
        };
        let numbers = |via: &[String]| via.iter().flat_map(number).collect();
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

    fn traffic_of(&self, key: &str, flow: &Flow) -> Result<Traffic, ScenarioError> {
        Ok(match &flow.kind {
            FlowKind::Tcp(tcp) => Traffic::Tcp {
                cc: self.absolute_cc(&tcp.cc),
                app: self.with_files(tcp.app(), &format!("{key}.app"))?,
                options: tcp.own_tcp(&self.scenario.tcp).or(self.scenario.tcp.clone()).values(),
                parameters: flow.parameters.clone(),
            },
            FlowKind::Probe(probe) => Traffic::Udp { app: App::Probe(probe.clone()) },
            FlowKind::Call(call) => Traffic::Udp { app: App::Call(call.clone()) },
        })
    }
}
