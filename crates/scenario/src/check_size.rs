//! Limits on the size of a scenario's results, computed from its keys alone before anything else is computed.

use skyhop_app::AppKind as _;
use skyhop_experiment::FlowPlan;
use skyhop_model::{OR_FORCE_SIZE, thousands};
use skyhop_path::MOST_STEPS;
use skyhop_units::Duration;

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::types::{Flow, FlowKind, PathKind, PathSection, SignalSource};

/// Largest number of rows in all tables of a run, which take some 10 GB then.
const MOST_ROWS: u64 = 300_000_000;
/// Largest number of flows (TCP, probes and calls) in all; each takes some 20 kB of memory.
const MOST_FLOWS: u64 = 50_000;
/// Largest number of announcements of a schedule.
const MOST_ANNOUNCEMENTS: u64 = 1_000_000;

impl NamedScenario {
    /// Check all sizes except the number of rows in a run's tables, unless the scenario sets `run.force_size`.
    pub(crate) fn check_size(&self) -> Result<(), ScenarioError> {
        let scenario = &self.scenario;
        let run = &scenario.run;
        let flows = scenario.flow.iter().map(|flow| flow.common.count as usize).sum();
        self.check_number_of_flows(flows)?;
        if let Some(path) = &scenario.path {
            self.check_steps(path, "path")?;
        }
        for (name, link) in &scenario.links {
            if let Some(path) = &link.path {
                self.check_steps(path, &format!("links.{name}.path"))?;
            }
        }
        match scenario.signal.source {
            SignalSource::Schedule => self.within(
                ("signal.period", "announcements", "lengthen it, shorten run.duration"),
                times(run.duration, scenario.signal.period),
                MOST_ANNOUNCEMENTS,
            ),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_number_of_flows(&self, count: usize) -> Result<(), ScenarioError> {
        self.within(("flow", "flows", "have fewer"), count as u64, MOST_FLOWS)
    }

    /// Check the size of the tables of a run with the flows of a network. Those of its links have rows only for links
    /// that carry something, which only the run can tell.
    pub(crate) fn check_flow_rows(&self, flows: &[FlowPlan]) -> Result<(), ScenarioError> {
        let rows = |flow: &FlowPlan| {
            let lasts = flow.stop.saturating_since(flow.start);
            let messages = flow.traffic.app().messages_per_s().unwrap_or(0.0) * lasts.as_secs_f64();
            times(lasts, self.scenario.run.sample).saturating_add(messages as u64)
        };
        self.within_rows(flows.iter().map(rows).fold(0, u64::saturating_add))
    }

    /// Check the size of a run's tables. Commands that only compute the path do not need this check.
    pub(crate) fn check_rows(&self) -> Result<(), ScenarioError> {
        self.within_rows(self.rows())
    }

    fn within_rows(&self, rows: u64) -> Result<(), ScenarioError> {
        self.within(("run.sample", "rows", "lengthen it, shorten run.duration"), rows, MOST_ROWS)
    }

    fn check_steps(&self, path: &PathSection, key: &str) -> Result<(), ScenarioError> {
        let computed = match &path.kind {
            PathKind::Constellation(path) => Some((format!("{key}.step"), path.step)),
            _ => None,
        };
        let jitter = path.kind.jitter().map(|jitter| (format!("{key}.jitter.every"), jitter.every));
        computed.into_iter().chain(jitter).try_for_each(|(key, step)| {
            let steps = times(self.scenario.run.duration, step);
            self.within((&key, "steps", "lengthen it, shorten run.duration"), steps, MOST_STEPS)
        })
    }

    pub(crate) fn within(
        &self,
        (key, what, remedy): (&str, &str, &str),
        count: u64,
        most: u64,
    ) -> Result<(), ScenarioError> {
        if count <= most || self.scenario.run.force_size {
            return Ok(());
        }
        let (count, most) = (thousands(count), thousands(most));
        Err(self.key_error(
            key,
            format!("makes {count} {what}; at most {most}: {remedy}, {OR_FORCE_SIZE}"),
        ))
    }

    /// Number of rows of flows, links, probes and messages; without lost packets, which only the run can
    /// count.
    fn rows(&self) -> u64 {
        let scenario = &self.scenario;
        let run = &scenario.run;
        let of_links =
            times(run.duration, run.sample).saturating_mul(2 + 2 * scenario.links.len() as u64);
        scenario.flow.iter().map(|flow| self.rows_of(flow)).fold(of_links, u64::saturating_add)
    }

    fn rows_of(&self, flow: &Flow) -> u64 {
        let run = &self.scenario.run;
        let stop = flow.common.stop.unwrap_or(run.duration).min(run.duration);
        let lasts = stop.saturating_sub(flow.common.start);
        let (samples, per_s) = match &flow.kind {
            FlowKind::Tcp(tcp) => (times(lasts, run.sample), tcp.app().messages_per_s()),
            FlowKind::Probe(probe) => (0, probe.messages_per_s()),
            FlowKind::Call(call) => (0, call.messages_per_s()),
        };
        let messages = per_s.map_or(0.0, |per_s| per_s * lasts.as_secs_f64());
        samples.saturating_add(messages as u64).saturating_mul(flow.common.count.into())
    }
}

/// Number of times that `part` fits into `whole`, rounded up.
fn times(whole: Duration, part: Duration) -> u64 {
    whole.as_nanos().div_ceil(part.as_nanos().max(1))
}
