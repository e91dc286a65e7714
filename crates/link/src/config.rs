//! What one direction of a link is made of.

use serde::{Deserialize, Serialize};
use skyhop_units::QueueLimit;

use crate::{LinkSchedule, QueueDiscipline};

/// One direction of a link, ready to be built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkConfig {
    /// What happens over time.
    pub schedule: LinkSchedule,
    /// The queue discipline.
    pub qdisc: QueueDiscipline,
    /// How much the queue may hold, in packets or bytes (time and BDP are resolved before).
    pub queue: QueueLimit,
    /// The seed of this direction's random loss, and of its queue's chance.
    pub seed: u64,
}
