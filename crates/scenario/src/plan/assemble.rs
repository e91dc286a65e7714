//! Assembly of an experiment, the input of an engine, from a checked scenario.

use std::sync::Arc;

use skyhop_experiment::{Experiment, LinkPlan};
use skyhop_model::PATH_LINK;
use skyhop_path::PathTrace;
use skyhop_units::Duration;

use crate::named::NamedScenario;
use crate::plan::change::with_rtts;
use crate::plan::path::Progress;
use crate::plan::places::FindPlace;
use crate::types::{LinkKeys, PathKind};
use crate::{ScenarioError, catalogue};

impl NamedScenario {
    /// Build the experiment that an engine runs.
    ///
    /// # Errors
    /// The errors of [`NamedScenario::path`], and links that cannot be built.
    pub fn experiment(
        &self,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Experiment, ScenarioError> {
        if let Some(network) = &self.scenario.network {
            return self.network_experiment(network, find_place);
        }
        // Cheap checks come first, so that the user sees their errors before the path is computed.
        self.check_rows()?;
        self.load_cc_files()?;
        let path = self.path(find_place, progress)?;
        self.experiment_over(Arc::new(path), find_place, progress)
    }

    /// Build the experiment of a run with a program, which may take longer than the scenario's duration: the
    /// path and the scheduled events extend to at least [`PROGRAM_HORIZON`].
    ///
    /// # Errors
    /// The errors of [`NamedScenario::experiment`].
    pub fn experiment_for_program(
        &self,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Experiment, ScenarioError> {
        self.path_section()?;
        let (mut lasting, run) = (self.clone(), &self.scenario.run);
        lasting.scenario.run.duration = run.duration.max(PROGRAM_HORIZON);
        let mut experiment = lasting.experiment(find_place, progress)?;
        experiment.duration = run.duration;
        experiment.scenario["run"] = self.scenario.to_json()["run"].clone();
        Ok(experiment)
    }

    /// Build the experiment over a path that [`NamedScenario::path`] returned before, for this scenario or
    /// another one with the same `[path]`.
    ///
    /// # Errors
    /// The errors of [`NamedScenario::experiment`].
    pub fn experiment_over(
        &self,
        path: Arc<PathTrace>,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Experiment, ScenarioError> {
        self.path_section()?;
        self.check_rows()?;
        let cc_files = self.load_cc_files()?.digests;
        let scenario = &self.scenario;
        let run = &scenario.run;
        let trace = with_rtts(path, &self.changes_of(PATH_LINK));
        let hops = self.hops(&trace)?;
        let mut flows = self.flow_plans(&self.path_links(&hops))?;
        let links = self.links(Arc::clone(&trace), &hops, &flows, find_place, progress)?;
        self.set_rate_oracles(&mut flows, &links)?;
        Ok(Experiment {
            scenario: self.resolved(&trace, &links)?,
            notes: self.notes_over(&links)?,
            changes: self.planned_changes(),
            announcements: self.announcements(&trace, find_place, progress)?,
            blind: self.blind_plan(&trace)?,
            links,
            network: None,
            flows,
            tcp: scenario.tcp.values(),
            duration: run.duration,
            sample: run.sample,
            seed: run.seed,
            force_size: run.force_size,
            device: scenario.live.device,
            linux_link: scenario.linux.link,
            cc_files,
        })
    }

    /// Return the scenario with all defaults filled in and all file names absolute, for run.json. It is
    /// itself a valid scenario and reproduces the run from any directory. Rates and losses that a path has of its own
    /// are left out: as keys they would replace the path's.
    fn resolved(
        &self,
        trace: &PathTrace,
        plans: &[LinkPlan],
    ) -> Result<serde_json::Value, ScenarioError> {
        let (mut value, section) = (self.scenario.to_json(), self.path_section()?);
        let kind = &section.kind;
        let path = &mut value["path"];
        path["during_outage"] = serde_json::json!(section.during_outage_of(trace));
        if !matches!(kind, PathKind::Trace(_)) {
            path["start"] = serde_json::json!(trace.header.start);
        }
        if matches!(kind, PathKind::Constellation(_)) {
            path["handover"] = serde_json::json!(trace.header.handover);
        }
        self.make_files_of_path_absolute(&mut value["path"]);
        self.make_paths_absolute(&mut value["signal"], &["elements"]);
        self.resolve_signal(&mut value["signal"]);
        let flows = value.get_mut("flow").and_then(serde_json::Value::as_array_mut);
        flows.into_iter().flatten().for_each(|flow| self.make_files_of_flow_absolute(flow));
        leave_out_defaults(&mut value["link"], &self.scenario.link.keys, trace);
        let links = value.get_mut("links").and_then(serde_json::Value::as_object_mut);
        for (name, link) in links.into_iter().flatten() {
            let section = &self.scenario.links[name];
            if let Some(plan) = plans.iter().find(|plan| plan.name == *name) {
                leave_out_defaults(link, &section.link.keys, &plan.trace);
                if let Some(path) = &section.path {
                    let during_outage = path.during_outage_of(&plan.trace);
                    link["path"]["during_outage"] = serde_json::json!(during_outage);
                }
            }
            if let Some(path) = link.get_mut("path") {
                self.make_files_of_path_absolute(path);
            }
        }
        Ok(value)
    }

    /// Replace the names of files in a flow's table by absolute paths.
    pub(crate) fn make_files_of_flow_absolute(&self, flow: &mut serde_json::Value) {
        if let Some(app) = flow.get_mut("app") {
            self.make_paths_absolute(app, &["file"]);
            self.make_film_path_absolute(app);
            self.make_model_path_absolute(app);
        }
        if let Some(cc) = flow.get_mut("cc") {
            *cc = serde_json::json!(self.absolute_cc(cc.as_str().unwrap_or_default()));
        }
    }

    /// Replace the names of files in a table `path` by absolute paths.
    pub(crate) fn make_files_of_path_absolute(&self, path: &mut serde_json::Value) {
        self.make_paths_absolute(path, &PATH_FILES);
        if let Some(access) = path.get_mut("access") {
            self.make_paths_absolute(access, &["profile"]);
        }
    }

    /// Replace the values of these keys by absolute paths where they name files.
    pub(crate) fn make_paths_absolute(&self, table: &mut serde_json::Value, keys: &[&str]) {
        let Some(table) = table.as_object_mut() else { return };
        for key in keys {
            let Some(value) = table.get_mut(*key) else { continue };
            let name = value.as_str().unwrap_or_default();
            let found = catalogue::given_file(self.base(), name);
            if let Some(whole) = found.and_then(|file| std::path::absolute(file).ok()) {
                *value = serde_json::json!(whole.to_string_lossy());
            }
        }
    }
}

/// Remove the rate and the loss of a link that were not given, where its path has them.
fn leave_out_defaults(link: &mut serde_json::Value, keys: &LinkKeys, trace: &PathTrace) {
    let Some(link) = link.as_object_mut() else { return };
    if keys.rate.is_none() && trace.frames.iter().any(|frame| frame.rate.is_some()) {
        link.remove("rate");
    }
    if keys.loss.is_none() && trace.frames.iter().any(|frame| frame.loss.is_some()) {
        link.remove("loss");
    }
}

/// Minimum duration of the path of a run with a program. To compute an hour of path takes a quarter
/// of a second.
const PROGRAM_HORIZON: Duration = Duration::from_secs(3_600);

/// Keys of `[path]` whose values may be file names.
const PATH_FILES: [&str; 5] = ["file", "constellation", "gateways", "pops", "profile"];
