//! Learned congestion control, sans-IO.
//!
//! A [`Card`] says what a policy observes ([`Observer`]), which [`Network`] decides, and what its output means
//! ([`ActionCard`]). A [`Pilot`] is a policy at work for one connection: it gets the reports of `cc/policy.c` and answers
//! with decisions. Nothing here opens a file or reads a clock.

mod action;
mod card;
mod desk;
mod error;
mod feature;
mod network;
mod observer;
mod pilot;
mod quantity;

pub use action::Actor;
pub use card::{ActionCard, Card, Feature, NetworkCard, ObservationCard, Of, Round, Shape};
pub use desk::{Desk, Question, Waiting};
pub use error::PolicyError;
pub use network::{Memory, Network};
pub use observer::Observer;
pub use pilot::{Model, Pilot, Policy};
pub use quantity::{Quantities, Quantity};
