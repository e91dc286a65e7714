//! `[signal]`: checked, and turned into the announcements of a run.

use skyhop_path::PathTrace;
use skyhop_signal::blind::BlindPlan;
use skyhop_signal::schedule::Grid;
use skyhop_signal::{Announcement, Handover, Timing, TimingError, TimingErrorText, path};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::ScenarioError;
use crate::assemble::{FindPlace, Progress};
use crate::parse::NamedScenario;
use crate::seed::seed_for;
use crate::types::{SignalSection, SignalSource};

/// Handovers are not told apart below that: an outage and its recovery take as long.
const SHORTEST_BLIND_PERIOD: Duration = Duration::from_secs(1);

/// Checks what the types alone cannot say.
pub(crate) fn check_signal(signal: &SignalSection, origin: &str) -> Result<(), ScenarioError> {
    let wrong =
        |key: &str, what: String| Err(ScenarioError::key(origin, format!("signal.{key}"), what));
    if let Err(error) = timing_error(signal) {
        return wrong("error", error.to_string());
    }
    if signal.source == SignalSource::Blind && signal.period < SHORTEST_BLIND_PERIOD {
        let what = format!(
            "is {}; expected at least {SHORTEST_BLIND_PERIOD} for a grid that is to be found",
            signal.period
        );
        return wrong("period", what);
    }
    if signal.period == Duration::ZERO {
        return wrong("period", "is 0 s; expected a time such as \"15 s\"".to_owned());
    }
    Ok(())
}

fn timing_error(signal: &SignalSection) -> Result<TimingError, TimingErrorText> {
    signal.error.parse()
}

impl NamedScenario {
    /// What is announced in a run over `trace`, which has the scenario's changes of the RTT already.
    pub(crate) fn announcements(
        &self,
        trace: &PathTrace,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Vec<Announcement>, ScenarioError> {
        let (signal, run) = (&self.scenario.signal, &self.scenario.run);
        let until = Instant::START + run.duration;
        let handovers: Vec<Handover> = match signal.source {
            SignalSource::Path => path::handovers(trace, &self.announced_changes()),
            SignalSource::Schedule => {
                let start = trace.header.start.ok_or_else(|| {
                    self.wrong(
                        "signal.source",
                        "a schedule is in UTC, and the path does not say when it begins",
                    )
                })?;
                Grid { period: signal.period, offset: signal.offset }
                    .handovers(start, until)
                    .collect()
            }
            SignalSource::Forecast => self.forecast(find_place, progress)?,
            // What the run finds out by itself is announced as it goes.
            SignalSource::None | SignalSource::Blind => Vec::new(),
        };
        Ok(self.timing()?.announce(handovers, until))
    }

    /// What a run over `trace` finds out by itself, where that is what is announced.
    pub(crate) fn blind_plan(&self, trace: &PathTrace) -> Result<Option<BlindPlan>, ScenarioError> {
        let signal = &self.scenario.signal;
        if signal.source != SignalSource::Blind {
            return Ok(None);
        }
        let start = trace.header.start.unwrap_or(UtcInstant::from_unix_nanos(0));
        Ok(Some(BlindPlan { period: signal.period, timing: self.timing()?, start }))
    }

    fn timing(&self) -> Result<Timing, ScenarioError> {
        let (signal, run) = (&self.scenario.signal, &self.scenario.run);
        let error = timing_error(signal).map_err(|e| self.wrong("signal.error", e.to_string()))?;
        Ok(Timing { lead: signal.lead, error, seed: seed_for(run.seed, "signal") })
    }

    /// The changes that are as good as a handover: the path is down, or its RTT becomes another.
    fn announced_changes(&self) -> Vec<(Instant, Duration)> {
        let changes = self.changes_of(None).into_iter();
        changes
            .filter(|change| change.outage.is_some() || change.rtt.is_some())
            .map(|change| (Instant::START + change.at, change.outage.unwrap_or(Duration::ZERO)))
            .collect()
    }
}
