//! What the controllers by model-predictive control share: the throughput of past chunks, how wrong estimates of it were, and the plan.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Choice, Come, View};
use crate::ahead::Ahead;
use crate::history::{Doubt, Window};
use crate::planner::{Pace, Plan, Planner, Start, Winner};

/// Which of equally good plans wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// The one with higher tracks at first (Pensieve's simulator).
    #[default]
    Last,
    /// The one with lower tracks at first (Pensieve's server for browsers).
    First,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Mpc {
    past: Window,
    doubt: Doubt,
    planner: Planner,
}

impl Mpc {
    pub(super) fn new(horizon: u32, window: u32, ties: Ties) -> Self {
        let winner = match ties {
            Ties::Last => Winner::Last,
            Ties::First => Winner::First,
        };
        Self {
            past: Window::of(window as usize),
            doubt: Doubt::over(window as usize),
            planner: Planner::new(horizon as usize, winner),
        }
    }

    pub(super) fn on_chunk(&mut self, come: &Come) {
        self.past.push(come.bps());
        self.doubt.learn(come.bps());
    }

    /// Plans at the harmonic mean of past chunks, divided by `divisor` of the doubts there are.
    pub(super) fn by_past(&mut self, view: &View<'_>, divisor: fn(&Doubt) -> f64) -> Choice {
        let Some(mean) = self.past.harmonic_mean() else { return Choice::at_once(0, None) };
        self.doubt.believe(mean);
        self.steadily(view, mean / divisor(&self.doubt))
    }

    /// Plans at the harmonic mean of the next `seconds`, likewise.
    pub(super) fn by_mean_ahead(
        &mut self,
        view: &View<'_>,
        ahead: &dyn Ahead,
        seconds: usize,
        divisor: fn(&Doubt) -> f64,
    ) -> Choice {
        let inverse: f64 = ahead.bps(view.now_s, seconds).iter().map(|bps| 1.0 / bps).sum();
        let mean = seconds as f64 / inverse;
        self.doubt.believe(mean);
        self.steadily(view, mean / divisor(&self.doubt))
    }

    /// Plans with each chunk's own time; what is believed is the throughput of the chunk that the plan begins with.
    pub(super) fn along(
        &mut self,
        view: &View<'_>,
        ahead: &dyn Ahead,
        divisor: fn(&Doubt) -> f64,
    ) -> Choice {
        let divisor = divisor(&self.doubt);
        let plan = self.plan(view, Pace::Claimed { ahead, divisor, cap_s: view.cap_s });
        let bytes = view.film.size_bytes(view.chunk, plan.track) as f64;
        let at =
            |factor: f64| 8.0 * bytes / (ahead.arrives_s(view.now_s, bytes * factor) - view.now_s);
        self.doubt.believe(at(1.0));
        Choice::at_once(plan.track, Some(at(divisor)))
    }

    fn steadily(&mut self, view: &View<'_>, bps: f64) -> Choice {
        let plan = self.plan(view, Pace::Steady { bps });
        Choice::at_once(plan.track, Some(bps))
    }

    fn plan(&mut self, view: &View<'_>, pace: Pace<'_>) -> Plan {
        let View { film, qoe, chunk, last_track, buffer_s, now_s, .. } = *view;
        self.planner.plan(Start { film, qoe, chunk, last_track, buffer_s, now_s }, pace)
    }
}

/// The faults of the parameters that all of them have.
pub(super) fn fault_of(horizon: u32, window: u32) -> Option<(&'static str, String, &'static str)> {
    super::within("horizon", horizon.into(), 1.0..=10.0, "1 to 10")
        .or_else(|| super::within("window", window.into(), 1.0..=1000.0, "1 to 1000"))
}
