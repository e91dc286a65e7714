//! Common part of the controllers by model-predictive control: the throughput of past chunks, the
//! errors of throughput estimates, and the planner.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ArrivedChunk, Choice, View};
use crate::forecast::RateForecast;
use crate::history::{EstimateErrors, Window};
use crate::planner::{ExpectedRate, Plan, PlanStart, Planner, TieBreak};

/// Choice among equally good plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// Plan with higher tracks first (Pensieve's simulator).
    #[default]
    Last,
    /// Plan with lower tracks first (Pensieve's server for browsers).
    First,
}

/// State of a controller by model-predictive control.
#[derive(Debug)]
pub(super) struct Mpc {
    past: Window,
    estimate_errors: EstimateErrors,
    planner: Planner,
}

impl Mpc {
    pub(super) fn new(horizon: u32, window: u32, ties: Ties) -> Self {
        let winner = match ties {
            Ties::Last => TieBreak::Last,
            Ties::First => TieBreak::First,
        };
        Self {
            past: Window::new(window as usize),
            estimate_errors: EstimateErrors::new(window as usize),
            planner: Planner::new(horizon as usize, winner),
        }
    }

    pub(super) fn on_chunk(&mut self, arrived: &ArrivedChunk) {
        self.past.push(arrived.bps());
        self.estimate_errors.add_error(arrived.bps());
    }

    /// Plan with the harmonic mean of the throughput of past chunks, divided by `divisor`, which is
    /// a function of the past errors.
    pub(super) fn plan_by_past(
        &mut self,
        view: &View<'_>,
        divisor: fn(&EstimateErrors) -> f64,
    ) -> Choice {
        let Some(mean) = self.past.harmonic_mean() else { return Choice::at_once(0, None) };
        self.estimate_errors.set_estimate(mean);
        self.plan_at_rate(view, mean / divisor(&self.estimate_errors))
    }

    /// Plan with the harmonic mean of the forecast rates of the next `seconds`, divided by `divisor`,
    /// which is a function of the past errors.
    pub(super) fn plan_by_mean(
        &mut self,
        view: &View<'_>,
        forecast: &dyn RateForecast,
        seconds: usize,
        divisor: fn(&EstimateErrors) -> f64,
    ) -> Choice {
        let inverse: f64 = forecast.bps(view.now_s, seconds).iter().map(|bps| 1.0 / bps).sum();
        let mean = seconds as f64 / inverse;
        self.estimate_errors.set_estimate(mean);
        self.plan_at_rate(view, mean / divisor(&self.estimate_errors))
    }

    /// Plan with the transfer time of each chunk according to the forecast; the estimate is the
    /// throughput of the plan's first chunk.
    pub(super) fn plan_along(
        &mut self,
        view: &View<'_>,
        forecast: &dyn RateForecast,
        divisor: fn(&EstimateErrors) -> f64,
    ) -> Choice {
        let divisor = divisor(&self.estimate_errors);
        let plan = self.plan(view, ExpectedRate::Forecast { forecast, divisor, cap_s: view.cap_s });
        let bytes = view.film.size_bytes(view.chunk, plan.track) as f64;
        let at = |factor: f64| {
            8.0 * bytes / (forecast.arrives_s(view.now_s, bytes * factor) - view.now_s)
        };
        self.estimate_errors.set_estimate(at(1.0));
        Choice::at_once(plan.track, Some(at(divisor)))
    }

    fn plan_at_rate(&mut self, view: &View<'_>, bps: f64) -> Choice {
        let plan = self.plan(view, ExpectedRate::Constant { bps });
        Choice::at_once(plan.track, Some(bps))
    }

    fn plan(&mut self, view: &View<'_>, pace: ExpectedRate<'_>) -> Plan {
        let View { film, qoe, chunk, last_track, buffer_s, now_s, .. } = *view;
        self.planner.plan(PlanStart { film, qoe, chunk, last_track, buffer_s, now_s }, pace)
    }
}

/// Return the first invalid parameter, of those that all controllers by model-predictive control have.
pub(super) fn fault_of(horizon: u32, window: u32) -> Option<(&'static str, String, &'static str)> {
    super::within("horizon", horizon.into(), 1.0..=10.0, "1 to 10")
        .or_else(|| super::within("window", window.into(), 1.0..=1000.0, "1 to 1000"))
}
