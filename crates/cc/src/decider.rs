//! Who decides for connections whose congestion control only reports and obeys (`cc/policy.c`).

use std::collections::VecDeque;
use std::fmt;

use skyhop_units::Duration;

use crate::bindings::{Decision, Report};

/// How often something was decided, and how often not as it was said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outputs {
    /// Decisions.
    pub decisions: u64,
    /// What was no number, and led to none.
    pub not_a_number: u64,
    /// What lay outside the bounds, and was moved to them.
    pub clamped: u64,
}

impl Outputs {
    /// Counts one, and moves it to the bounds; `None` where it is no number.
    pub fn heed(&mut self, said: f64, [least, most]: [f64; 2]) -> Option<f64> {
        if !said.is_finite() {
            self.not_a_number += 1;
            return None;
        }
        let output = said.clamp(least, most);
        self.clamped += u64::from(output != said);
        self.decisions += 1;
        Some(output)
    }

    /// Both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            decisions: self.decisions + other.decisions,
            not_a_number: self.not_a_number + other.not_a_number,
            clamped: self.clamped + other.clamped,
        }
    }

    /// What to know of them, where there is anything.
    pub fn warning(&self, whose: &str) -> Option<String> {
        let Self { decisions, not_a_number, clamped } = self;
        (not_a_number + clamped > 0).then(|| {
            format!(
                "{whose}: of {} outputs {not_a_number} were no number, which led to no decision, and {clamped} lay \
                 outside the card's bounds, to which they were moved",
                decisions + not_a_number
            )
        })
    }
}

/// Decides for one connection. Reports come in their order, each once.
pub trait Decider: fmt::Debug + Send {
    /// What is to be done about a report; `None`: nothing is decided.
    fn decide(&mut self, report: &Report) -> Option<Decision>;

    /// What has been decided since about an earlier report, where [`Self::decide`] had no answer yet: once, with that
    /// report's time.
    fn late(&mut self) -> Option<Decision> {
        None
    }

    /// What it has said so far.
    fn outputs(&self) -> Outputs {
        Outputs::default()
    }
}

/// A decider with its decisions on their way to the connection.
pub(crate) struct Deciding {
    decider: Box<dyn Decider>,
    delay_ns: u64,
    /// When each is there, in order.
    on_the_way: VecDeque<(u64, Decision)>,
    newest: Decision,
}

impl Deciding {
    pub(crate) fn new(decider: Box<dyn Decider>, delay: Duration) -> Self {
        Self {
            decider,
            delay_ns: delay.as_nanos(),
            on_the_way: VecDeque::new(),
            newest: Decision::default(),
        }
    }

    /// A report is made: what is decided about it comes later, however little.
    pub(crate) fn report(&mut self, report: &Report) {
        if let Some(decision) = self.decider.decide(report) {
            self.send(Decision { report_ns: report.at_ns, ..decision });
        }
    }

    fn send(&mut self, decision: Decision) {
        let there_ns = decision.report_ns.saturating_add(self.delay_ns);
        self.on_the_way.push_back((there_ns, decision));
    }

    pub(crate) fn outputs(&self) -> Outputs {
        self.decider.outputs()
    }

    /// The newest that is there.
    pub(crate) fn newest(&mut self, now_ns: u64) -> Decision {
        if let Some(decision) = self.decider.late() {
            self.send(decision);
        }
        while let Some((_, decision)) = self.on_the_way.front().filter(|(at, _)| *at <= now_ns) {
            self.newest = *decision;
            self.on_the_way.pop_front();
        }
        self.newest
    }
}

impl fmt::Debug for Deciding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding").field("decider", &self.decider).finish_non_exhaustive()
    }
}
