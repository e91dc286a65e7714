//! Announcements of handovers to congestion controls, and the reactions that these report.

use skyhop_cc::{Handover, Phase};
use skyhop_experiment::Experiment;
use skyhop_record::EventRow;
use skyhop_signal::blind::{Estimate, Learner};
use skyhop_signal::{Agenda, Announcement, Statement};
use skyhop_units::{Duration, Instant};

/// Announcements that are still to be made.
#[derive(Debug)]
pub(crate) struct Signal {
    agenda: Agenda,
    /// Blind estimator of handovers, if they are not planned in advance.
    learner: Option<Learner>,
    /// Whether the experiment's plan has the announcements, so that the record has them without the run.
    is_planned: bool,
    end: Instant,
}

impl Signal {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        let (agenda, learner) = experiment.agenda();
        let is_planned = learner.is_none();
        Self { agenda, learner, is_planned, end: Instant::START + experiment.duration }
    }

    /// Create the source of announcements that the experiment's plan does not have.
    pub(crate) fn unplanned(announcements: &[Announcement], end: Instant) -> Self {
        let agenda = Agenda::from_announcements(announcements);
        Self { agenda, learner: None, is_planned: false, end }
    }

    /// Note that a packet has arrived at the path's end `from`, after a one-way delay of `delay`.
    pub(crate) fn arrived(&mut self, at: Instant, delay: Duration) {
        if let Some(learner) = &mut self.learner {
            learner.arrived(at, delay);
        }
    }

    /// Time of the next announcement or estimate.
    pub(crate) fn next(&self) -> Option<Instant> {
        let learned = self.learner.as_ref().map(Learner::next_estimate);
        let next = self.agenda.next().into_iter().chain(learned).min();
        next.filter(|next| *next < self.end)
    }

    /// Return the next announcement that is due, in the form that congestion controls read, and its event row if the
    /// experiment did not plan it.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Handover, Option<EventRow>)> {
        if let Some(learner) = self.learner.as_mut().filter(|one| now >= one.next_estimate()) {
            let estimate = learner.estimate();
            learner.learn(now, &estimate, &mut self.agenda);
        }
        Some(match self.agenda.pop(now)? {
            Statement::Announced(due) => {
                (handover(&due), (!self.is_planned).then(|| EventRow::announced(&due)))
            }
            Statement::Withdrawn => (Handover::default(), None),
        })
    }

    /// Estimate of the handover grid at the end of the run, if estimation is blind.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
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

/// Event rows of the reactions of a flow's congestion control.
pub(crate) fn phase_rows(phases: Vec<Phase>, id: u32) -> impl Iterator<Item = EventRow> {
    phases.into_iter().map(move |Phase { kind, begin_ns, end_ns }| {
        let span = (Instant::from_nanos(begin_ns), Instant::from_nanos(end_ns));
        EventRow::phase(kind, span, Some(id))
    })
}
