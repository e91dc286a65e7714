//! `[signal]`: checked, and turned into the announcements of a run.

use skyhop_path::PathTrace;
use skyhop_signal::schedule::Grid;
use skyhop_signal::{Announcement, Handover, Timing, TimingError, TimingErrorText, path};
use skyhop_units::{Duration, Instant};

use crate::ScenarioError;
use crate::parse::NamedScenario;
use crate::seed::seed_for;
use crate::types::{SignalSection, SignalSource};

/// Checks what the types alone cannot say.
pub(crate) fn check_signal(signal: &SignalSection, origin: &str) -> Result<(), ScenarioError> {
    let wrong =
        |key: &str, what: String| Err(ScenarioError::key(origin, format!("signal.{key}"), what));
    if matches!(signal.source, SignalSource::Blind | SignalSource::Forecast) {
        let what = "blind and forecast are not part of this version; expected \"none\", \"path\" or \"schedule\"";
        return wrong("source", what.to_owned());
    }
    if let Err(error) = timing_error(signal) {
        return wrong("error", error.to_string());
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
            SignalSource::None | SignalSource::Blind | SignalSource::Forecast => Vec::new(),
        };
        let error = timing_error(signal).map_err(|e| self.wrong("signal.error", e.to_string()))?;
        let timing = Timing { lead: signal.lead, error, seed: seed_for(run.seed, "signal") };
        Ok(timing.announce(handovers, until))
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
