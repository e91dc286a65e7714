//! From a checked scenario to what an engine runs.

use std::sync::Arc;

use skyhop_experiment::Experiment;
use skyhop_model::PATH_LINK;
use skyhop_path::PathTrace;
use skyhop_units::Duration;

use crate::named::NamedScenario;
use crate::plan::change::with_rtts;
use crate::plan::path::Progress;
use crate::plan::path_request::FindPlace;
use crate::types::PathKind;
use crate::{ScenarioError, catalogue};

impl NamedScenario {
    /// Builds everything that an engine runs.
    ///
    /// # Errors
    /// As [`NamedScenario::path`], and links that cannot be.
    pub fn experiment(
        &self,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Experiment, ScenarioError> {
        // What is wrong shows at once, and not when the path is there.
        self.check_rows()?;
        self.load_cc_files()?;
        let path = self.path(find_place, progress)?;
        self.experiment_over(Arc::new(path), find_place, progress)
    }

    /// Builds what an engine runs a program over, which may outlast the scenario: the path, and what is known of it
    /// beforehand, goes on for [`PROGRAM_HORIZON`] at the least.
    ///
    /// # Errors
    /// As [`NamedScenario::experiment`].
    pub fn experiment_for_program(
        &self,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Experiment, ScenarioError> {
        let (mut lasting, run) = (self.clone(), &self.scenario.run);
        lasting.scenario.run.duration = run.duration.max(PROGRAM_HORIZON);
        let mut experiment = lasting.experiment(find_place, progress)?;
        experiment.duration = run.duration;
        experiment.scenario["run"] = self.scenario.to_json()["run"].clone();
        Ok(experiment)
    }

    /// Builds the same over a path that [`NamedScenario::path`] gave before, to this scenario or to another
    /// with the same `[path]`.
    ///
    /// # Errors
    /// As [`NamedScenario::experiment`].
    pub fn experiment_over(
        &self,
        path: Arc<PathTrace>,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Experiment, ScenarioError> {
        self.check_rows()?;
        let cc_files = self.load_cc_files()?.digests;
        let scenario = &self.scenario;
        let run = &scenario.run;
        let trace = with_rtts(path, &self.changes_of(PATH_LINK));
        let hops = self.hops(&trace)?;
        let mut flows = self.flow_plans(&self.path_links(&hops))?;
        let links = self.links(Arc::clone(&trace), &hops, &flows, find_place, progress)?;
        self.foretell(&mut flows, &links)?;
        Ok(Experiment {
            scenario: self.resolved(&trace),
            notes: self.path_notes()?,
            changes: self.planned_changes(),
            announcements: self.announcements(&trace, find_place, progress)?,
            blind: self.blind_plan(&trace)?,
            links,
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

    /// The scenario with its defaults filled in, for run.json: it is a scenario itself, which gives the same from
    /// any directory.
    fn resolved(&self, trace: &PathTrace) -> serde_json::Value {
        let (mut value, kind) = (self.scenario.to_json(), &self.scenario.path.kind);
        let path = &mut value["path"];
        if !matches!(kind, PathKind::Trace(_)) {
            path["start"] = serde_json::json!(trace.header.start);
        }
        if matches!(kind, PathKind::Constellation(_)) {
            path["handover"] = serde_json::json!(trace.header.handover);
        }
        self.name_files_wholly(&mut value["path"], &PATH_FILES);
        self.name_files_wholly(&mut value["signal"], &["elements"]);
        let flows = value.get_mut("flow").and_then(serde_json::Value::as_array_mut);
        for flow in flows.into_iter().flatten() {
            if let Some(app) = flow.get_mut("app") {
                self.name_files_wholly(app, &["file"]);
                self.name_film_wholly(app);
                self.name_model_wholly(app);
            }
            if let Some(cc) = flow.get_mut("cc") {
                *cc = serde_json::json!(self.whole_cc(cc.as_str().unwrap_or_default()));
            }
        }
        let links = value.get_mut("links").and_then(serde_json::Value::as_object_mut);
        for link in links.into_iter().flat_map(serde_json::Map::values_mut) {
            if let Some(path) = link.get_mut("path") {
                self.name_files_wholly(path, &PATH_FILES);
            }
        }
        value
    }

    /// Gives those values of a table that name files beside the scenario their whole names.
    pub(crate) fn name_files_wholly(&self, table: &mut serde_json::Value, keys: &[&str]) {
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

/// Until when the path of a program is computed. An hour takes a quarter of a second.
const PROGRAM_HORIZON: Duration = Duration::from_secs(3_600);

/// Keys of a path that may name files.
pub(crate) const PATH_FILES: [&str; 4] = ["file", "constellation", "gateways", "pops"];
