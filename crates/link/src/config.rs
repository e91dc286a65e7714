//! Configuration of one direction of a link.

use serde::{Deserialize, Serialize};

use crate::{Limit, LinkSchedule, QueueDiscipline};

/// Configuration of one direction of a link, with all values resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkConfig {
    /// Delay, rate, loss and outages over time.
    pub schedule: LinkSchedule,
    /// Queue discipline with its parameters.
    pub qdisc: QueueDiscipline,
    /// Limit of the queue.
    pub queue: Limit,
    /// Seed of the random streams: of this direction's random loss and of its queue discipline.
    pub seed: u64,
}
