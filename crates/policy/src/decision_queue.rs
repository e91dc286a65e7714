//! Queue of questions that an external policy answers while the run waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skyhop_cc::bindings::SKYHOP_LAST_REPORT;
use skyhop_cc::{Decider, Decision, OutputCounts, Report};

use crate::action::Actor;
use crate::card::Card;
use crate::observer::Observer;

/// Question of a connection: which output its policy gives for an observation.
#[derive(Debug, Clone)]
pub struct Question {
    /// Id of the flow that the connection belongs to.
    pub flow: u32,
    /// Number of the connection, among all connections of the queue.
    pub connection: u64,
    /// Observation, as a network would see it.
    pub observation: Vec<f32>,
    /// Report from which the observation was computed.
    pub report: Report,
    /// Report before that one, if there was one.
    pub previous: Option<Report>,
}

/// Queue in which connections put their questions, and from which they read the outputs.
#[derive(Debug, Default)]
pub struct DecisionQueue {
    has_question: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    questions: VecDeque<Question>,
    /// Connection numbers with their outputs, NaN included.
    answers: Vec<(u64, f64)>,
}

impl DecisionQueue {
    /// Whether the queue has a question that [`Self::next_question`] has not returned yet.
    pub fn has_question(&self) -> bool {
        self.has_question.load(Ordering::Acquire)
    }

    /// Remove and return the oldest question.
    pub fn next_question(&self) -> Option<Question> {
        let mut state = self.state();
        let question = state.questions.pop_front();
        self.has_question.store(!state.questions.is_empty(), Ordering::Release);
        question
    }

    /// Answer the question of this connection with an output, as a network would give it.
    pub fn answer(&self, connection: u64, output: f64) {
        self.state().answers.push((connection, output));
    }

    fn push(&self, question: Question) {
        self.state().questions.push_back(question);
        self.has_question.store(true, Ordering::Release);
    }

    fn take_answer(&self, connection: u64) -> Option<f64> {
        let answers = &mut self.state().answers;
        let place = answers.iter().position(|(number, _)| *number == connection)?;
        Some(answers.swap_remove(place).1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decider of one connection, as [`PolicyDecider`](crate::PolicyDecider) is, whose outputs come from a
/// [`DecisionQueue`]. If questions are answered while the run waits, the run equals that of a network with the same
/// outputs.
#[derive(Debug)]
pub struct QueuedDecider {
    card: Arc<Card>,
    queue: Arc<DecisionQueue>,
    flow: u32,
    connection: u64,
    observer: Observer,
    actor: Actor,
    previous: Option<Report>,
    pending: Option<Report>,
    output: f64,
    outputs: OutputCounts,
}

impl QueuedDecider {
    /// Create the decider for a new connection of this flow.
    pub fn new(card: &Arc<Card>, queue: &Arc<DecisionQueue>, flow: u32) -> Self {
        let connection = {
            let mut state = queue.state();
            state.connections += 1;
            state.connections
        };
        Self {
            observer: Observer::new(card),
            actor: Actor::new(&card.action),
            card: Arc::clone(card),
            queue: Arc::clone(queue),
            flow,
            connection,
            previous: None,
            pending: None,
            output: 0.0,
            outputs: OutputCounts::default(),
        }
    }
}

impl Decider for QueuedDecider {
    fn decide(&mut self, report: &Report) -> Option<Decision> {
        let observation = self.observer.observe(report, self.output).to_vec();
        let previous = self.previous.replace(*report);
        if report.flags & SKYHOP_LAST_REPORT == 0 {
            self.pending = Some(*report);
            let (flow, connection, report) = (self.flow, self.connection, *report);
            self.queue.push(Question { flow, connection, observation, report, previous });
        }
        None
    }

    fn late_decision(&mut self) -> Option<Decision> {
        let report = self.pending?;
        let raw = self.queue.take_answer(self.connection)?;
        self.pending = None;
        let output = self.outputs.accept(raw, self.card.network.output)?;
        self.output = output;
        Some(Decision { report_ns: report.at_ns, ..self.actor.act(output, &report) })
    }

    fn outputs(&self) -> OutputCounts {
        self.outputs
    }
}
