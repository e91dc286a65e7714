//! Announcements on their way to the congestion controls, and what those say they do about them.

use skyhop_cc::{Handover, Phase};
use skyhop_experiment::Experiment;
use skyhop_record::EventRow;
use skyhop_signal::blind::{Estimate, Learner};
use skyhop_signal::{Agenda, Announcement, Statement};
use skyhop_units::{Duration, Instant};

/// The announcements that are still to be made.
#[derive(Debug)]
pub(crate) struct Signal {
    agenda: Agenda,
    /// Who finds out about those that nobody knows beforehand.
    learner: Option<Learner>,
    end: Instant,
}

impl Signal {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        let (agenda, learner) = experiment.agenda();
        Self { agenda, learner, end: Instant::START + experiment.duration }
    }

    /// Something has come out of the path at its end `from`, after `delay` one way.
    pub(crate) fn arrived(&mut self, at: Instant, delay: Duration) {
        if let Some(learner) = &mut self.learner {
            learner.arrived(at, delay);
        }
    }

    /// When there is something to announce or to find out next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let learned = self.learner.as_ref().map(Learner::next_estimate);
        let next = self.agenda.next().into_iter().chain(learned).min();
        next.filter(|next| *next < self.end)
    }

    /// The next announcement that is due, as a congestion control reads it, and its row where the
    /// experiment did not plan it.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Handover, Option<EventRow>)> {
        if let Some(learner) = self.learner.as_mut().filter(|one| now >= one.next_estimate()) {
            let estimate = learner.estimate();
            learner.learn(now, &estimate, &mut self.agenda);
        }
        Some(match self.agenda.pop(now)? {
            Statement::Announced(due) => {
                let is_new = self.learner.is_some();
                (handover(&due), is_new.then(|| EventRow::announced(&due)))
            }
            Statement::Withdrawn => (Handover::default(), None),
        })
    }

    /// What has been found out by the end of the run.
    pub(crate) fn found(&self) -> Option<Estimate> {
        self.learner.as_ref().map(Learner::estimate)
    }
}

fn handover(due: &Announcement) -> Handover {
    Handover {
        at_ns: due.at.as_nanos(),
        outage_ns: due.outage.as_nanos(),
        error_ns: due.error.as_nanos(),
        kind: due.kind as u32,
        valid: 1,
    }
}

/// The rows of what the congestion control of the flow with this id has done.
pub(crate) fn phase_rows(phases: Vec<Phase>, id: u32) -> impl Iterator<Item = EventRow> {
    phases.into_iter().map(move |Phase { kind, begin_ns, end_ns }| {
        let span = (Instant::from_nanos(begin_ns), Instant::from_nanos(end_ns));
        EventRow::phase(kind, span, Some(id))
    })
}
