//! Construction of the path of `[path]`: computed, fixed, or read from a file.

use std::ops::ControlFlow;

use skyhop_experiment::seed_for;
use skyhop_model::{End, OR_FORCE_SIZE, Relay, thousands};
use skyhop_path::{Endpoint, Frame, Jitter, PathError, PathRequest, PathTrace, Spikes, TraceError};
use skyhop_units::{Duration, UtcInstant};

use crate::named::NamedScenario;
use crate::plan::path_request::DEFAULT_START;
use crate::plan::places::FindPlace;
use crate::types::{AccessPath, FixedPath, JitterKeys, PathKind, TracePath};
use crate::{ScenarioError, catalogue};

/// Progress callback with the arguments (steps done, total steps); it may stop the computation.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64) -> ControlFlow<()>;

impl NamedScenario {
    /// Compute or read the path of `[path]`, without applying the scenario's `[[change]]` entries.
    ///
    /// # Errors
    /// Unknown names, files that cannot be read, or a path that is never connected.
    pub fn path(
        &self,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<PathTrace, ScenarioError> {
        match &self.path_section()?.kind {
            PathKind::Constellation(_) => {
                let request = self.path_request(find_place)?;
                self.computed(&request, progress)
            }
            PathKind::Fixed(path) => self.fixed_path(path),
            PathKind::Trace(path) => self.path_file(path),
            PathKind::Access(path) => self.access_path(path),
        }
    }

    /// Compute the path of a request from [`NamedScenario::path_request`].
    ///
    /// # Errors
    /// The path is never connected, or `progress` stopped the computation.
    pub fn computed(
        &self,
        request: &PathRequest,
        progress: Progress<'_>,
    ) -> Result<PathTrace, ScenarioError> {
        let mut trace =
            skyhop_path::compute(request, progress).map_err(|error| self.path_error(&error))?;
        trace.header.origin = Some(self.origin_of_satellites()?);
        if let Some(profile) = self.path_section()?.kind.profile() {
            trace = self.with_access(profile, &trace)?;
        }
        self.with_dish(self.with_jitter(trace)?)
    }

    /// Return a path whose terminal is at `from` with the terminal at the end that `path.dish` names.
    fn with_dish(&self, trace: PathTrace) -> Result<PathTrace, ScenarioError> {
        Ok(match self.path_section()?.dish.unwrap_or_default() {
            End::From => trace,
            End::To => trace.mirrored(),
        })
    }

    /// Add the random variation of `path.jitter`, if the path has one.
    fn with_jitter(&self, trace: PathTrace) -> Result<PathTrace, ScenarioError> {
        let path = self.path_section()?;
        let Some(jitter) = path.kind.jitter().map(jitter) else { return Ok(trace) };
        let delays = trace.frames.iter().flat_map(|frame| [frame.delay, frame.delay_back]);
        let lowest = delays.flatten().min().unwrap_or_default();
        if lowest.as_nanos() < jitter.below.as_nanos() / 2 {
            let what = format!(
                "is {}, of which half is more than the lowest delay in one direction, {lowest}",
                jitter.below
            );
            return Err(self.key_error("path.jitter.below", what));
        }
        Ok(jitter.over(&trace, seed_for(self.scenario.run.seed, "jitter")))
    }

    /// Draw the waits, holes, losses and rates of an access profile over a computed path.
    fn with_access(&self, profile: &str, computed: &PathTrace) -> Result<PathTrace, ScenarioError> {
        let ends = [&computed.header.from, &computed.header.to].map(Clone::clone);
        let start = computed.header.start.unwrap_or(DEFAULT_START);
        self.drawn("path.access.profile", profile, ends, start, Some(computed))
    }

    /// Draw a path from an access profile alone.
    fn access_path(&self, path: &AccessPath) -> Result<PathTrace, ScenarioError> {
        let mut ends = named_ends(&path.from, &path.to);
        if self.path_section()?.dish == Some(End::To) {
            ends.reverse();
        }
        let profile = path.profile.as_deref().unwrap_or_default();
        let start = path.start.unwrap_or(DEFAULT_START);
        let trace = self.drawn("path.profile", profile, ends, start, None)?;
        self.with_dish(self.with_jitter(trace)?)
    }

    fn drawn(
        &self,
        key: &str,
        profile: &str,
        ends: [Endpoint; 2],
        start: UtcInstant,
        computed: Option<&PathTrace>,
    ) -> Result<PathTrace, ScenarioError> {
        let run = &self.scenario.run;
        let (duration, seed) = (run.duration, seed_for(run.seed, "access"));
        let request = skyhop_access::Request { ends, start, duration, seed, computed };
        self.drawn_access(key, profile, &request)
    }

    /// Draw a path from the access profile that a key names.
    pub(crate) fn drawn_access(
        &self,
        key: &str,
        profile: &str,
        request: &skyhop_access::Request<'_>,
    ) -> Result<PathTrace, ScenarioError> {
        let profile = catalogue::access_profile(profile, self.base(), &self.origin, key)?;
        skyhop_access::draw(&profile, request)
            .map_err(|error| self.key_error(key, error.to_string()))
    }

    /// Read the part of a path file that the run uses.
    pub(crate) fn path_file(&self, path: &TracePath) -> Result<PathTrace, ScenarioError> {
        let name = path.file.as_deref().unwrap_or_default();
        let file = catalogue::find_file(self.base(), name)
            .ok_or_else(|| self.key_error("path.file", format!("no such file: \"{name}\"")))?;
        let trace = skyhop_files::read_path(&file, self.scenario.run.force_size)?;
        let trace = self.with_dish_of_file(trace)?;
        let lasts = Duration::from_nanos(trace.header.duration_ns);
        if path.offset > Duration::ZERO && path.offset >= lasts {
            let what = format!(
                "{} is not before the end of the path file, which lasts {lasts:.3}",
                path.offset
            );
            return Err(self.key_error("path.offset", what));
        }
        let until = self.scenario.run.duration + path.offset;
        let trace = if path.repeats { self.repeated(trace, until)? } else { trace };
        Ok(if path.offset > Duration::ZERO { trace.starting_at(path.offset) } else { trace })
    }

    /// Mirror the path of a file if its terminal is not at the end that `path.dish` names.
    fn with_dish_of_file(&self, trace: PathTrace) -> Result<PathTrace, ScenarioError> {
        let Some(wanted) = self.path_section()?.dish else { return Ok(trace) };
        let header = &trace.header;
        match (header.dish, header.relay.as_deref()) {
            (Some(dish), _) if dish == wanted => Ok(trace),
            (Some(_), _) => Ok(trace.mirrored()),
            // Older files do not say it, but the computation had one place for it.
            (None, Some("access")) if wanted == End::From => Ok(trace),
            (None, Some("access")) => Ok(trace.mirrored()),
            (None, Some(relay)) => {
                let what = format!(
                    "has no effect: the path file, of relay = \"{relay}\", has a terminal at both ends; remove it"
                );
                Err(self.key_error("path.dish", what))
            }
            (None, None) => Err(self.key_error(
                "path.dish",
                "the path file does not say at which end its terminal is: import it again (with --direction, where the \
                 format has it), or remove the key and take the ends as they are in the file",
            )),
        }
    }

    /// Repeat a path until the time `until`.
    fn repeated(&self, trace: PathTrace, until: Duration) -> Result<PathTrace, ScenarioError> {
        let run = &self.scenario.run;
        let once: u64 = trace.frames.iter().map(Frame::size_in_memory).sum();
        let times = until.as_nanos() / trace.header.duration_ns.max(1);
        let megabytes = once.saturating_mul(times) / 1_000_000;
        let most = skyhop_files::MOST_BYTES / 1_000_000;
        if megabytes > most && !run.force_size {
            let (times, megabytes, most) =
                (thousands(times), thousands(megabytes), thousands(most));
            let what = format!(
                "repeats the path {times} times, which takes {megabytes} MB of memory; at most {most} MB: shorten \
                 run.duration, {OR_FORCE_SIZE}"
            );
            return Err(self.key_error("path.loop", what));
        }
        Ok(trace.repeated(until))
    }

    pub(crate) fn path_error(&self, error: &PathError) -> ScenarioError {
        match error {
            PathError::Stopped { .. } => ScenarioError::Interrupted,
            PathError::Trace(TraceError::NeverConnected { .. }) => {
                let remedy = match self.orbits().map(|path| path.relay).unwrap_or_default() {
                    Relay::BentPipe => "gateways may not reach that far: try relay = \"isl\"",
                    Relay::Access | Relay::Starlink => {
                        "no gateway may be near enough: try other gateways"
                    }
                    Relay::Geo => "one satellite must stand above both: try another longitude",
                    Relay::Isl => {
                        "no satellite may come that far, or only satellites of shells without links between them: \
                         try another relay or constellation"
                    }
                };
                let what = format!("{error}; {remedy}");
                ScenarioError::Path { origin: self.origin.clone(), what }
            }
            PathError::NeverInView { .. } => {
                let what = format!(
                    "{error}: try another constellation, or a smaller path.minimum_elevation"
                );
                ScenarioError::Path { origin: self.origin.clone(), what }
            }
            other => ScenarioError::Path { origin: self.origin.clone(), what: other.to_string() },
        }
    }

    fn fixed_path(&self, path: &FixedPath) -> Result<PathTrace, ScenarioError> {
        let run = &self.scenario.run;
        let ends = named_ends(&path.from, &path.to);
        let rtt = path.rtt.unwrap_or(Duration::ZERO);
        let mut trace = PathTrace::fixed(ends, rtt, run.duration);
        trace.header.start = Some(path.start.unwrap_or(DEFAULT_START));
        trace.header.seed = run.seed;
        self.with_jitter(trace)
    }
}

/// Ends of a path at unknown places, "from" and "to" by default.
fn named_ends(from: &Option<String>, to: &Option<String>) -> [Endpoint; 2] {
    [(from, "from"), (to, "to")]
        .map(|(name, default)| Endpoint::named(name.as_deref().unwrap_or(default)))
}

fn jitter(keys: &JitterKeys) -> Jitter {
    let &JitterKeys { every, below, above, correlation, .. } = keys;
    let spikes = Spikes {
        per_second: keys.spikes_per_second.fraction(),
        from: keys.spike_from,
        to: keys.spike_to,
        lasts: keys.spike_lasts,
    };
    let spikes = (spikes.per_second > 0.0).then_some(spikes);
    Jitter { every, below, above, correlation, spikes }
}
