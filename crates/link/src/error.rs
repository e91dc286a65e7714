//! Errors of links that cannot be built.

use skyhop_units::{Instant, did_you_mean};
use thiserror::Error;

/// Reason why a [`LinkConfig`](crate::LinkConfig) is invalid.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum LinkError {
    /// The schedule breaks one of its rules.
    #[error("the link's schedule: {0}")]
    Schedule(#[from] ScheduleError),
    /// No queue discipline has this name.
    #[error("there is no qdisc \"{name}\"{}; choose one of: {known}", did_you_mean(name, known.split(", ")))]
    UnknownQdisc {
        /// The name asked for, which no discipline has.
        name: String,
        /// All names in [`QDISCS`](crate::QDISCS), separated by commas.
        known: String,
    },
    /// A parameter of a queue discipline has an invalid value.
    #[error("qdisc \"{qdisc}\": {fault}")]
    QdiscParameter {
        /// Name of the discipline.
        qdisc: &'static str,
        /// The parameter, what is wrong with its value, and what is allowed.
        fault: String,
    },
    /// A parameter of demand assignment has an invalid value.
    #[error("dama: {0}")]
    Dama(String),
    /// No packet would fit into the queue, so that all would be lost.
    #[error("the queue limit is zero, which no packet fits; give at least one packet")]
    NoQueue,
}

/// Rule that a [`LinkSchedule`](crate::LinkSchedule) breaks.
///
/// `list` is the schedule's field, `index` the entry in it, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// A list that needs at least one piece has none.
    #[error("{list} has no pieces; it needs one at 0 s")]
    Empty {
        /// The schedule's field that is empty.
        list: &'static str,
    },
    /// The first piece of a list begins later than [`Instant::START`].
    #[error("{list} begins at {at}; its first piece must begin at 0 s")]
    LateStart {
        /// The schedule's field with the late piece.
        list: &'static str,
        /// Time at which its first piece begins.
        at: Instant,
    },
    /// An entry is not later than the one before it.
    #[error("{list}[{index}] at {at} does not come after the entry before it; sort them by time")]
    Order {
        /// The schedule's field that is out of order.
        list: &'static str,
        /// Index of the later one of the two entries.
        index: usize,
        /// Time of that entry.
        at: Instant,
    },
    /// The last delay piece has no end at which `delay_at_end` could be reached.
    #[error("the last piece of delay never ends, so its delay_at_end must equal its delay")]
    EndlessSlope,
    /// A background load is on a link whose rate changes, or that holds packets back.
    #[error("a background goes with one rate for all time, without burst, dama and held outages")]
    SharedRateChanges,
    /// A background load leaves nothing of the rate.
    #[error("background[{index}] is not below the rate; lower it")]
    Overload {
        /// Index of the piece of the load, counted from 0.
        index: usize,
    },
    /// An entry of the list ends before it begins.
    #[error("{list}[{index}] ends before it begins; swap its bounds")]
    Reversed {
        /// The schedule's field with that entry.
        list: &'static str,
        /// Index of that entry, counted from 0.
        index: usize,
    },
}
