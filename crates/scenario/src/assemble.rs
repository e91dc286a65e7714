//! From a checked scenario to what an engine runs: the path computed, the links built.

use skyhop_model::{Direction, DuringOutage, LARGEST_PACKET, Relay};
use std::ops::ControlFlow;

use skyhop_link::{Link, LinkConfig, LinkSchedule};
use skyhop_path::trace::SCHEMA_VERSION;
use skyhop_path::{
    BetweenFrames, Endpoint, PathError, PathHeader, PathRequest, PathTrace, Place, TraceError,
};
use skyhop_units::{Duration, QueueLimit, Rate};

use crate::change::{apply_rtt, fixed_frames};
use crate::experiment::Experiment;
use crate::parse::NamedScenario;
use crate::path_request::DEFAULT_START;
use crate::schedule::{DirectionSettings, link_schedule};
use crate::seed::seed_for;
use crate::types::{Change, FixedPath, LinkKeys, LinkSection, PathKind};
use crate::{ScenarioError, catalogue};

/// Turns what the user calls a place into a position; the error is one line.
pub type FindPlace<'f> = &'f dyn Fn(&str) -> Result<Place, String>;

/// What the two directions of a link are built from.
pub(crate) struct LinkSpec<'a> {
    /// The section's key, for errors and as the component's name.
    pub key: &'a str,
    pub section: &'a LinkSection,
    pub during_outage: DuringOutage,
    /// Has the changes' round trips already.
    pub trace: &'a PathTrace,
    pub changes: &'a [Change],
    /// What BDP counts.
    pub base_rtt: Duration,
}

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
                Ok(skyhop_files::read_path(&file)?)
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
        skyhop_path::compute(request, progress).map_err(|error| self.path_error(&error))
    }

    /// Builds everything that an engine runs.
    ///
    /// # Errors
    /// As [`NamedScenario::path`], and links that cannot be.
    pub fn experiment(
        &self,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Experiment, ScenarioError> {
        let scenario = &self.scenario;
        let run = &scenario.run;
        let mut trace = self.path(find_place, progress)?;
        apply_rtt(&mut trace, &self.changes_of(None));
        let flows = self.flow_plans();
        Ok(Experiment {
            scenario: self.resolved(&trace),
            changes: self.planned_changes(),
            announcements: self.announcements(&trace, find_place, progress)?,
            blind: self.blind_plan(&trace)?,
            links: self.links(trace, &flows, find_place, progress)?,
            flows,
            duration: run.duration,
            sample: run.sample,
            seed: run.seed,
            device: scenario.live.device,
        })
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
        let end = |name: &Option<String>, default: &str| Endpoint {
            name: name.clone().unwrap_or_else(|| default.to_owned()),
            latitude_deg: None,
            longitude_deg: None,
        };
        let header = PathHeader {
            schema: SCHEMA_VERSION,
            source: "fixed".to_owned(),
            from: end(&path.from, "from"),
            to: end(&path.to, "to"),
            constellation: None,
            satellites: 0,
            relay: None,
            handover: None,
            outage: None,
            compat: None,
            start: Some(path.start.unwrap_or(DEFAULT_START)),
            duration_ns: run.duration.as_nanos(),
            step_ns: run.duration.as_nanos(),
            between_frames: BetweenFrames::Step,
            seed: run.seed,
        };
        PathTrace { header, frames: fixed_frames(path.rtt.unwrap_or(Duration::ZERO)) }
    }

    /// One direction of a link.
    pub(crate) fn link(
        &self,
        plan: &LinkSpec<'_>,
        direction: Direction,
    ) -> Result<LinkConfig, ScenarioError> {
        let (key, own) = (plan.key, plan.section.back.clone().unwrap_or_default());
        let (section, component, rate_changes, given) = match direction {
            Direction::Forward => {
                (key.to_owned(), format!("{key} forward"), true, plan.section.keys.clone())
            }
            Direction::Back => {
                let there = LinkKeys { loss: None, ..plan.section.keys.clone() };
                let rate_changes = own.rate.is_none();
                (format!("{key}.back"), format!("{key} back"), rate_changes, own.or(there))
            }
        };
        let (rate_given, loss_given) = (given.rate.is_some(), given.loss.is_some());
        let link = given.values();
        let settings = DirectionSettings {
            direction,
            rate: link.rate,
            rate_given,
            loss: link.loss,
            loss_given,
            rate_changes,
            loss_changes: direction == Direction::Forward,
            during_outage: plan.during_outage,
        };
        let schedule = link_schedule(plan.trace, plan.changes, &settings);
        let config = LinkConfig {
            queue: queue_limit(link.queue, &schedule, plan.base_rtt)
                .map_err(|what| self.wrong(format!("{section}.queue"), what))?,
            qdisc: link.qdisc,
            seed: seed_for(self.scenario.run.seed, &component),
            schedule,
        };
        // Built once here, so that a wrong queue is found before anything runs.
        Link::<()>::new(config.clone()).map_err(|error| self.wrong(&section, error.to_string()))?;
        Ok(config)
    }

    /// The scenario with its defaults filled in, for run.json; a place as its position too.
    fn resolved(&self, trace: &PathTrace) -> serde_json::Value {
        let (mut value, kind) = (self.scenario.to_json(), &self.scenario.path.kind);
        let path = &mut value["path"];
        if !matches!(kind, PathKind::Trace(_)) {
            path["start"] = serde_json::json!(trace.header.start);
        }
        if matches!(kind, PathKind::Constellation(_)) {
            path["handover"] = serde_json::json!(trace.header.handover);
            for (key, end) in [("from", &trace.header.from), ("to", &trace.header.to)] {
                let (latitude_deg, longitude_deg) = (end.latitude_deg, end.longitude_deg);
                path[format!("{key}_position")] = serde_json::json!({
                    "name": end.name,
                    "latitude_deg": latitude_deg,
                    "longitude_deg": longitude_deg,
                });
            }
        }
        value
    }
}

/// A queue's limit in packets or bytes. BDP and time count the first rate that is not zero.
fn queue_limit(
    given: QueueLimit,
    schedule: &LinkSchedule,
    base_rtt: Duration,
) -> Result<QueueLimit, String> {
    let rate = schedule.rate.iter().map(|piece| piece.value).find(|rate| *rate > Rate::ZERO);
    match (given, given.resolve(rate.unwrap_or(Rate::ZERO), base_rtt)) {
        (QueueLimit::Bytes(_), QueueLimit::Bytes(bytes)) if bytes < LARGEST_PACKET => Err(format!(
            "\"{given}\" holds no packet; expected at least {LARGEST_PACKET}, a packet of 1500 B on \
             the wire"
        )),
        // A slow or short link has less than a packet in flight, but needs room for one.
        (_, QueueLimit::Bytes(bytes)) => Ok(QueueLimit::Bytes(bytes.max(LARGEST_PACKET))),
        (_, resolved) => Ok(resolved),
    }
}
