//! Policies: a card with its model, and the decider that runs it for one connection.

use std::fmt;
use std::sync::Arc;

use skyhop_cc::bindings::SKYHOP_LAST_REPORT;
use skyhop_cc::{Decider, Decision, OutputCounts, Report};

use crate::action::Actor;
use crate::card::Card;
use crate::error::PolicyError;
use crate::network::{Memory, Network};
use crate::observer::Observer;

/// Model that decides: an ONNX network, or another function from observations to an output.
pub trait Model: fmt::Debug + Send + Sync {
    /// Compute the output for an observation; `None` if the model failed. `memory` is the memory of the connection,
    /// zeros before the first call.
    fn run(&self, observation: &[f32], memory: &mut Memory) -> Option<f64>;

    /// Whether the model can decide in live runs too, and not only in the simulator.
    fn runs_anywhere(&self) -> bool {
        true
    }
}

/// A card together with its model.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Card that describes the policy.
    pub card: Arc<Card>,
    model: Arc<dyn Model>,
}

impl Policy {
    /// Create a policy from a card and its network, the bytes of an ONNX file.
    ///
    /// # Errors
    /// [`PolicyError::Network`]: the bytes are no valid network for the card.
    pub fn with_network(card: Card, onnx: &[u8]) -> Result<Self, PolicyError> {
        let model = Arc::new(Network::read(&card, onnx)?);
        Ok(Self { card: Arc::new(card), model })
    }

    /// Create a policy from a card and another model.
    pub fn with_model(card: Card, model: Arc<dyn Model>) -> Self {
        Self { card: Arc::new(card), model }
    }

    /// Whether the policy can decide in live runs too.
    pub fn runs_anywhere(&self) -> bool {
        self.model.runs_anywhere()
    }

    /// Output for an observation, clamped to the card's bounds; `None` if the model fails or the output is not
    /// finite.
    pub fn answer(&self, observation: &[f32], memory: &mut Memory) -> Option<f64> {
        let [least, most] = self.card.network.output;
        let raw = self.model.run(observation, memory).filter(|raw| raw.is_finite());
        raw.map(|raw| raw.clamp(least, most))
    }

    /// Outputs for a sequence of observations of one connection.
    pub fn outputs_of(&self, observation: &[Vec<f32>]) -> Vec<Option<f64>> {
        let mut memory = Memory::new(&self.card);
        observation.iter().map(|observation| self.answer(observation, &mut memory)).collect()
    }
}

/// Decider of one connection, which runs its policy on each report.
#[derive(Debug)]
pub struct PolicyDecider {
    policy: Policy,
    observer: Observer,
    actor: Actor,
    memory: Memory,
    output: f64,
    outputs: OutputCounts,
}

impl PolicyDecider {
    /// Create the decider for a new connection.
    pub fn new(policy: &Policy) -> Self {
        Self {
            observer: Observer::new(&policy.card),
            actor: Actor::new(&policy.card.action),
            memory: Memory::new(&policy.card),
            policy: policy.clone(),
            output: 0.0,
            outputs: OutputCounts::default(),
        }
    }

    /// Observation after the last report.
    pub fn observation(&self) -> &[f32] {
        self.observer.last()
    }

    /// Last output of the network, within its bounds.
    pub fn output(&self) -> f64 {
        self.output
    }
}

impl Decider for PolicyDecider {
    fn decide(&mut self, report: &Report) -> Option<Decision> {
        let observation = self.observer.observe(report, self.output);
        if report.flags & SKYHOP_LAST_REPORT != 0 {
            return None;
        }
        let raw = self.policy.model.run(observation, &mut self.memory).unwrap_or(f64::NAN);
        self.output = self.outputs.accept(raw, self.policy.card.network.output)?;
        Some(self.actor.act(self.output, report))
    }
    fn outputs(&self) -> OutputCounts {
        self.outputs
    }
}
