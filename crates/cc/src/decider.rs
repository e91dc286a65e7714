//! Who decides for connections whose congestion control only reports and obeys (`cc/policy.c`).

use std::collections::VecDeque;
use std::fmt;

use skyhop_units::Duration;

use crate::bindings::{Decision, Report};

/// Decides for one connection. Reports come in their order, each once.
pub trait Decider: fmt::Debug + Send {
    /// What is to be done about a report; `None`: nothing is decided.
    fn decide(&mut self, report: &Report) -> Option<Decision>;
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
            let decision = Decision { report_ns: report.at_ns, ..decision };
            self.on_the_way.push_back((report.at_ns.saturating_add(self.delay_ns), decision));
        }
    }

    /// The newest that is there.
    pub(crate) fn newest(&mut self, now_ns: u64) -> Decision {
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
