//! Why a link cannot be built.

use skyhop_units::{Instant, QueueLimit};
use thiserror::Error;

/// Why a [`LinkConfig`](crate::LinkConfig) is not a link.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum LinkError {
    /// The schedule breaks one of its rules.
    #[error("the link's schedule: {0}")]
    Schedule(#[from] ScheduleError),
    /// No queue discipline has this name.
    #[error("there is no qdisc \"{name}\"; choose one of: {known}")]
    UnknownQdisc {
        /// What was asked for.
        name: String,
        /// The names that exist, separated by commas.
        known: String,
    },
    /// A parameter of a queue discipline cannot be.
    #[error("qdisc \"{qdisc}\": {fault}")]
    QdiscParameter {
        /// The discipline.
        qdisc: &'static str,
        /// The parameter, and what it can be.
        fault: String,
    },
    /// The queue's limit depends on rate or RTT, which the link does not know.
    #[error("the queue limit \"{limit}\" is relative; resolve it to packets or bytes first")]
    UnresolvedQueue {
        /// The limit as given.
        limit: QueueLimit,
    },
    /// The queue would lose every packet.
    #[error("the queue limit is \"{limit}\", which no packet fits; give at least one packet")]
    NoQueue {
        /// The limit as given.
        limit: QueueLimit,
    },
}

/// The rule that a [`LinkSchedule`](crate::LinkSchedule) breaks.
///
/// `list` is the schedule's field, `index` the place in it, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// A list that needs at least one piece has none.
    #[error("{list} has no pieces; it needs one at 0 s")]
    Empty {
        /// The field.
        list: &'static str,
    },
    /// Nothing is said about the beginning.
    #[error("{list} begins at {at}; its first piece must begin at 0 s")]
    LateStart {
        /// The field.
        list: &'static str,
        /// Where it begins.
        at: Instant,
    },
    /// An entry is not later than the one before it.
    #[error("{list}[{index}] at {at} does not come after the entry before it; sort them by time")]
    Order {
        /// The field.
        list: &'static str,
        /// The later entry.
        index: usize,
        /// Its time.
        at: Instant,
    },
    /// The last delay piece has no end at which `delay_at_end` could be reached.
    #[error("the last piece of delay never ends, so its delay_at_end must equal its delay")]
    EndlessSlope,
    /// Something ends before it begins.
    #[error("{list}[{index}] ends before it begins; swap its bounds")]
    Reversed {
        /// The field.
        list: &'static str,
        /// The entry.
        index: usize,
    },
}
