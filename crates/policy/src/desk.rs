//! Policies whose outputs come from outside, while the run waits for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skyhop_cc::bindings::SKYHOP_LAST_REPORT;
use skyhop_cc::{Decider, Decision, Outputs, Report};

use crate::action::Actor;
use crate::card::Card;
use crate::observer::Observer;

/// A connection that wants to know what its policy says.
#[derive(Debug, Clone)]
pub struct Question {
    /// The flow that it belongs to.
    pub flow: u32,
    /// Which of all connections.
    pub asker: u64,
    /// What the network would see.
    pub seen: Vec<f32>,
    /// What it was made of.
    pub report: Report,
    /// The report before.
    pub before: Option<Report>,
}

/// Where connections put their questions, and find what was answered.
#[derive(Debug, Default)]
pub struct Desk {
    is_asked: AtomicBool,
    papers: Mutex<Papers>,
}

#[derive(Debug, Default)]
struct Papers {
    askers: u64,
    questions: VecDeque<Question>,
    /// By asker: outputs, and that there is none.
    answers: Vec<(u64, f64)>,
}

impl Desk {
    /// Whether there is a question that nobody has taken.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Takes the oldest question.
    pub fn take(&self) -> Option<Question> {
        let mut papers = self.papers();
        let question = papers.questions.pop_front();
        self.is_asked.store(!papers.questions.is_empty(), Ordering::Release);
        question
    }

    /// Answers the question of this connection: with what a network would have said.
    pub fn answer(&self, asker: u64, output: f64) {
        self.papers().answers.push((asker, output));
    }

    fn ask(&self, question: Question) {
        self.papers().questions.push_back(question);
        self.is_asked.store(true, Ordering::Release);
    }

    fn answer_to(&self, asker: u64) -> Option<f64> {
        let answers = &mut self.papers().answers;
        let place = answers.iter().position(|(whose, _)| *whose == asker)?;
        Some(answers.swap_remove(place).1)
    }

    fn papers(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A policy at work for one connection, as [`Pilot`](crate::Pilot) is, whose outputs come over a [`Desk`]. Whoever answers
/// while the run waits gets the run that a network with the same outputs gets.
#[derive(Debug)]
pub struct Waiting {
    card: Arc<Card>,
    desk: Arc<Desk>,
    flow: u32,
    asker: u64,
    observer: Observer,
    actor: Actor,
    before: Option<Report>,
    asked: Option<Report>,
    output: f64,
    outputs: Outputs,
}

impl Waiting {
    /// For a connection of this flow that has not reported yet.
    pub fn new(card: &Arc<Card>, desk: &Arc<Desk>, flow: u32) -> Self {
        let asker = {
            let mut papers = desk.papers();
            papers.askers += 1;
            papers.askers
        };
        Self {
            observer: Observer::new(card),
            actor: Actor::new(&card.action),
            card: Arc::clone(card),
            desk: Arc::clone(desk),
            flow,
            asker,
            before: None,
            asked: None,
            output: 0.0,
            outputs: Outputs::default(),
        }
    }
}

impl Decider for Waiting {
    fn decide(&mut self, report: &Report) -> Option<Decision> {
        let seen = self.observer.see(report, self.output).to_vec();
        let before = self.before.replace(*report);
        if report.flags & SKYHOP_LAST_REPORT == 0 {
            self.asked = Some(*report);
            let (flow, asker, report) = (self.flow, self.asker, *report);
            self.desk.ask(Question { flow, asker, seen, report, before });
        }
        None
    }

    fn late(&mut self) -> Option<Decision> {
        let report = self.asked?;
        let said = self.desk.answer_to(self.asker)?;
        self.asked = None;
        let output = self.outputs.heed(said, self.card.network.output)?;
        self.output = output;
        Some(Decision { report_ns: report.at_ns, ..self.actor.act(output, &report) })
    }

    fn outputs(&self) -> Outputs {
        self.outputs
    }
}
