//! A policy at work for one connection.

use std::fmt;
use std::sync::Arc;

use skyhop_cc::bindings::SKYHOP_LAST_REPORT;
use skyhop_cc::{Decider, Decision, Outputs, Report};

use crate::action::Actor;
use crate::card::Card;
use crate::error::PolicyError;
use crate::network::{Memory, Network};
use crate::observer::Observer;

/// What decides: an ONNX network, or anything else that turns observations into an output.
pub trait Model: fmt::Debug + Send + Sync {
    /// The output for what is seen; `memory` is the connection's, zeros at its beginning. `None`: it failed.
    fn run(&self, seen: &[f32], memory: &mut Memory) -> Option<f64>;

    /// Whether it may be asked beside a live run, too, and not in the simulator alone.
    fn runs_anywhere(&self) -> bool {
        true
    }
}

/// A card with what decides.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What it says.
    pub card: Arc<Card>,
    model: Arc<dyn Model>,
}

impl Policy {
    /// A card with its network, the bytes of an ONNX file.
    ///
    /// # Errors
    /// [`PolicyError::Network`].
    pub fn with_network(card: Card, onnx: &[u8]) -> Result<Self, PolicyError> {
        let model = Arc::new(Network::read(&card, onnx)?);
        Ok(Self { card: Arc::new(card), model })
    }

    /// A card with something else that decides.
    pub fn with_model(card: Card, model: Arc<dyn Model>) -> Self {
        Self { card: Arc::new(card), model }
    }

    /// Whether it decides beside live runs, too.
    pub fn runs_anywhere(&self) -> bool {
        self.model.runs_anywhere()
    }

    /// What it says to an observation, within its bounds; `None` where that is no number.
    pub fn answer(&self, seen: &[f32], memory: &mut Memory) -> Option<f64> {
        let [least, most] = self.card.network.output;
        let said = self.model.run(seen, memory).filter(|said| said.is_finite());
        said.map(|said| said.clamp(least, most))
    }

    /// What it says to observations, one behind another.
    pub fn say(&self, seen: &[Vec<f32>]) -> Vec<Option<f64>> {
        let mut memory = Memory::new(&self.card);
        seen.iter().map(|seen| self.answer(seen, &mut memory)).collect()
    }
}

/// A policy at work for one connection.
#[derive(Debug)]
pub struct Pilot {
    policy: Policy,
    observer: Observer,
    actor: Actor,
    memory: Memory,
    output: f64,
    outputs: Outputs,
}

impl Pilot {
    /// For a connection that has not reported yet.
    pub fn new(policy: &Policy) -> Self {
        Self {
            observer: Observer::new(&policy.card),
            actor: Actor::new(&policy.card.action),
            memory: Memory::new(&policy.card),
            policy: policy.clone(),
            output: 0.0,
            outputs: Outputs::default(),
        }
    }

    /// What was seen last.
    pub fn seen(&self) -> &[f32] {
        self.observer.seen()
    }

    /// What the network said last, within its bounds.
    pub fn output(&self) -> f64 {
        self.output
    }
}

impl Decider for Pilot {
    fn decide(&mut self, report: &Report) -> Option<Decision> {
        let seen = self.observer.see(report, self.output);
        if report.flags & SKYHOP_LAST_REPORT != 0 {
            return None;
        }
        let said = self.policy.model.run(seen, &mut self.memory).unwrap_or(f64::NAN);
        self.output = self.outputs.heed(said, self.policy.card.network.output)?;
        Some(self.actor.act(self.output, report))
    }
    fn outputs(&self) -> Outputs {
        self.outputs
    }
}
