//! The path of `[path]`: computed, fixed, or out of a file.

use std::ops::ControlFlow;

use skyhop_model::Relay;
use skyhop_path::{Endpoint, PathError, PathRequest, PathTrace, TraceError};
use skyhop_units::Duration;

use crate::named::NamedScenario;
use crate::plan::path_request::{DEFAULT_START, FindPlace};
use crate::types::{FixedPath, PathKind};
use crate::{ScenarioError, catalogue};

/// Hears how many of how many steps of a path are done, and may stop it.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64) -> ControlFlow<()>;

impl NamedScenario {
    /// Computes or reads the path of `[path]`, without the scenario's changes.
    ///
    /// # Errors
    /// Unknown names, files that cannot be read, a path that never exists.
    pub fn path(
        &self,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<PathTrace, ScenarioError> {
        match &self.scenario.path.kind {
            PathKind::Constellation(_) => {
                let request = self.path_request(find_place)?;
                self.computed(&request, progress)
            }
            PathKind::Fixed(path) => Ok(self.fixed_path(path)),
            PathKind::Trace(path) => {
                let name = path.file.as_deref().unwrap_or_default();
                let file = catalogue::find_file(self.base(), name)
                    .ok_or_else(|| self.wrong("path.file", format!("no such file: \"{name}\"")))?;
                let trace = skyhop_files::read_path(&file)?;
                let until = self.scenario.run.duration;
                Ok(if path.repeats { trace.repeated(until) } else { trace })
            }
        }
    }

    /// Computes the path of a request that [`NamedScenario::path_request`] gave.
    ///
    /// # Errors
    /// The path never exists, or `progress` stopped it.
    pub fn computed(
        &self,
        request: &PathRequest,
        progress: Progress<'_>,
    ) -> Result<PathTrace, ScenarioError> {
        let mut trace =
            skyhop_path::compute(request, progress).map_err(|error| self.path_error(&error))?;
        trace.header.origin = Some(self.origin_of_satellites()?);
        Ok(trace)
    }

    pub(crate) fn path_error(&self, error: &PathError) -> ScenarioError {
        match error {
            PathError::Stopped { .. } => ScenarioError::Interrupted,
            PathError::Trace(TraceError::NeverConnected { .. }) => {
                let remedy = match self.orbits().map(|path| path.relay).unwrap_or_default() {
                    Relay::BentPipe => "gateways may not reach that far: try relay = \"isl\"",
                    Relay::Access => "no gateway may be near enough: try other gateways",
                    Relay::Geo => "one satellite must stand above both: try another longitude",
                    _ => "no satellite may come that far: try another constellation",
                };
                let what = format!("{error}; {remedy}");
                ScenarioError::Path { origin: self.origin.clone(), what }
            }
            other => ScenarioError::Path { origin: self.origin.clone(), what: other.to_string() },
        }
    }

    fn fixed_path(&self, path: &FixedPath) -> PathTrace {
        let run = &self.scenario.run;
        let ends = [(&path.from, "from"), (&path.to, "to")]
            .map(|(name, default)| Endpoint::named(name.as_deref().unwrap_or(default)));
        let mut trace = PathTrace::fixed(ends, path.rtt.unwrap_or(Duration::ZERO), run.duration);
        trace.header.start = Some(path.start.unwrap_or(DEFAULT_START));
        trace.header.seed = run.seed;
        trace
    }
}
