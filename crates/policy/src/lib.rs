//! Learned congestion control, sans-IO.
//!
//! A [`Card`] describes what a policy observes ([`Observer`]), which [`Network`] decides, and how its output changes
//! the window or rate ([`ActionCard`]). A [`PolicyDecider`] runs a policy for one connection: it receives the reports
//! of `cc/policy.c` and answers with decisions. The crate opens no files and reads no clock.

mod action;
mod card;
mod decider;
mod decision_queue;
mod error;
mod feature;
mod network;
mod observer;
mod quantity;

pub use action::Actor;
pub use card::{ActionCard, Card, Feature, NetworkCard, ObservationCard, Product, Round, Shape};
pub use decider::{Model, Policy, PolicyDecider};
pub use decision_queue::{DecisionQueue, Question, QueuedDecider};
pub use error::PolicyError;
pub use network::{Memory, Network};
pub use observer::Observer;
pub use quantity::{Quantities, Quantity};
