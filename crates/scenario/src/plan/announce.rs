//! `[signal]`: the announcements of a run.

use std::collections::BTreeMap;

use skyhop_cc::Registry;
use skyhop_experiment::{RouteSignal, cc_parameters, seed_for};
use skyhop_model::PATH_LINK;
use skyhop_path::{PathEvent, PathTrace};
use skyhop_signal::blind::BlindPlan;
use skyhop_signal::schedule::HandoverGrid;
use skyhop_signal::{
    Announcement, Handover, KindTiming, Timing, TimingError, TimingErrorText, path,
};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::plan::path::Progress;
use crate::plan::places::FindPlace;
use crate::types::{
    FlowKind, KindSignalKeys, PathKind, STARLINK_OFFSET, SignalSource, TrafficSection,
};

impl NamedScenario {
    /// Announcements in a run over `trace`, which already includes the RTT changes of the
    /// scenario's `[[change]]` entries.
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
            SignalSource::Schedule => self.scheduled(trace, until)?,
            SignalSource::Forecast => self.forecast(find_place, progress)?,
            // A run with blind estimation makes its announcements during the run.
            SignalSource::None | SignalSource::Blind => Vec::new(),
        };
        Ok(self.timing()?.announce(handovers, until))
    }

    /// Announcements of a schedule in a run over a network, whose `trace` tells when it begins; none of other sources.
    pub(crate) fn schedule_over(
        &self,
        trace: &PathTrace,
    ) -> Result<Vec<Announcement>, ScenarioError> {
        if self.scenario.signal.source != SignalSource::Schedule {
            return Ok(Vec::new());
        }
        let until = Instant::START + self.scenario.run.duration;
        Ok(self.timing()?.announce(self.scheduled(trace, until)?, until))
    }

    /// Announcements of the handovers of a network's routes and of the given events of access links; `None` for sources
    /// other than "path".
    pub(crate) fn route_signal(
        &self,
        of_access: BTreeMap<u32, Vec<PathEvent>>,
    ) -> Result<Option<RouteSignal>, ScenarioError> {
        if self.scenario.signal.source != SignalSource::Path {
            return Ok(None);
        }
        Ok(Some(RouteSignal { timing: self.timing()?, of_access }))
    }

    /// Write the defaults of `[signal]` out, so that run ids (hash of the resolved scenario) do not depend on whether they
    /// are given.
    pub(crate) fn resolve_signal(&self, signal: &mut serde_json::Value) {
        signal["lead"] = serde_json::json!(self.lead());
        let offset = self.scenario.signal.offset.unwrap_or(STARLINK_OFFSET);
        signal["offset"] = serde_json::json!(offset);
    }

    /// Handovers of the grid of `[signal]` in a run over `trace`: in UTC, or by the path's own clock if it does not say
    /// when it begins.
    fn scheduled(&self, trace: &PathTrace, until: Instant) -> Result<Vec<Handover>, ScenarioError> {
        let signal = &self.scenario.signal;
        let own_clock = || {
            let begin = match self.scenario.path.as_ref().map(|path| &path.kind) {
                Some(PathKind::Trace(path)) => path.offset,
                _ => Duration::ZERO,
            };
            UtcInstant::from_unix_nanos(0).after(begin)
        };
        let (start, offset) = match (trace.header.start, signal.offset) {
            (Some(start), offset) => (start, offset.unwrap_or(STARLINK_OFFSET)),
            (None, Some(offset)) => (own_clock(), offset),
            (None, None) => {
                let what = "a schedule is in UTC, and the path does not say when it begins; give the time of a \
                            handover by the path's own clock, such as signal.offset = \"11.8 s\"";
                return Err(self.key_error("signal.source", what));
            }
        };
        Ok(HandoverGrid { period: signal.period, offset }.handovers(start, until).collect())
    }

    /// Plan of blind handover estimation in a run over `trace`; `None` for other sources of announcements.
    pub(crate) fn blind_plan(&self, trace: &PathTrace) -> Result<Option<BlindPlan>, ScenarioError> {
        let signal = &self.scenario.signal;
        if signal.source != SignalSource::Blind {
            return Ok(None);
        }
        let start = trace.header.start.unwrap_or(UtcInstant::from_unix_nanos(0));
        Ok(Some(BlindPlan { period: signal.period, timing: self.timing()?, start }))
    }

    /// Timing of the announcements.
    ///
    /// # Errors
    /// The text of an error is none of its possible values.
    pub(crate) fn timing(&self) -> Result<Timing, ScenarioError> {
        let (signal, run) = (&self.scenario.signal, &self.scenario.run);
        let all = KindTiming {
            lead: self.lead(),
            error: self.timing_error("signal.error", &signal.error)?,
        };
        Ok(Timing {
            end: self.kind_timing("signal.end", signal.end.as_ref(), all)?,
            intermediate: self.kind_timing(
                "signal.intermediate",
                signal.intermediate.as_ref(),
                all,
            )?,
            unknown: all,
            latency: signal.latency,
            seed: seed_for(run.seed, "signal"),
        })
    }

    /// Timing of a kind of handover with the keys of the table `table`; `all` is that of other handovers.
    fn kind_timing(
        &self,
        table: &str,
        keys: Option<&KindSignalKeys>,
        all: KindTiming,
    ) -> Result<KindTiming, ScenarioError> {
        let Some(KindSignalKeys { lead, error }) = keys else { return Ok(all) };
        let error = match error {
            Some(text) => self.timing_error(&format!("{table}.error"), text)?,
            None => all.error,
        };
        Ok(KindTiming { lead: lead.unwrap_or(all.lead), error })
    }

    fn timing_error(&self, key: &str, text: &str) -> Result<TimingError, ScenarioError> {
        text.parse().map_err(|error: TimingErrorText| self.key_error(key, error.to_string()))
    }

    /// Time from an announcement to its handover: the user's, or the longest that a sender needs.
    pub(crate) fn lead(&self) -> Duration {
        let network = self.scenario.network.as_ref();
        let traffic = network.and_then(|network| network.traffic.as_ref());
        let traffic = traffic.map(TrafficSection::flow);
        let of_senders = self.scenario.flow.iter().chain(&traffic).filter_map(|flow| {
            let FlowKind::Tcp(tcp) = &flow.kind else { return None };
            let cc = self.absolute_cc(&tcp.cc);
            let given = cc_parameters(&cc, &flow.parameters);
            let given: Vec<(&str, &str)> =
                given.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            Registry::global().announcements(&cc, &given).lead
        });
        self.scenario.signal.lead.unwrap_or_else(|| of_senders.max().unwrap_or(Duration::ZERO))
    }

    /// Times and outages of the `[[change]]` entries that are announced as handovers: those with an
    /// outage or a new RTT.
    fn announced_changes(&self) -> Vec<(Instant, Duration)> {
        let changes = self.changes_of(PATH_LINK).into_iter();
        changes
            .filter(|change| change.outage.is_some() || change.rtt.is_some())
            .map(|change| (Instant::START + change.at, change.outage.unwrap_or(Duration::ZERO)))
            .collect()
    }
}
