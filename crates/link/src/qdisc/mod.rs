//! Queue disciplines: one file each, all named in the one table below.

#[macro_use]
mod table;

mod choice;
mod codel;
mod fifo;

#[cfg(test)]
mod conformance;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Instant, QueueLimit};

use crate::stats::Verdicts;
use crate::{LinkError, Packet};

table! {
    Fifo = "fifo", fifo::Fifo(FifoConfig), "first in, first out; what does not fit is lost (drop-tail)";
    Codel = "codel", codel::Codel(CodelConfig), "keeps the time in the queue near a target, by drops or marks (RFC 8289)";
}

/// What a queue discipline does with packets. `conformance.rs` tests every entry of the table against this.
///
/// Times never decrease from call to call. A packet given to `enqueue` is returned by `dequeue` or
/// recorded in `verdicts` with [`LossReason::Queue`](skyhop_model::LossReason::Queue), exactly once.
pub(crate) trait Qdisc<P> {
    /// Takes in a packet at its `since`; whatever must go for it goes to `verdicts`. Afterwards the
    /// backlog is within the limit.
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>);

    /// The packet to transmit from `now` on; `None` only when nothing is left.
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>>;

    /// What waits.
    fn backlog(&self) -> Backlog;
}

/// A packet in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queued<P> {
    /// When it was handed to the link.
    pub(crate) since: Instant,
    pub(crate) packet: Packet<P>,
}

/// What waits in a queue; the packet being transmitted has left it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    pub(crate) packets: u64,
    pub(crate) bytes: Bytes,
}

impl Backlog {
    #[inline]
    pub(crate) fn add(&mut self, wire_size: Bytes) {
        self.packets += 1;
        self.bytes += wire_size;
    }

    #[inline]
    pub(crate) fn remove(&mut self, wire_size: Bytes) {
        self.packets -= 1;
        self.bytes -= wire_size;
    }
}

/// How much may wait, as Linux counts it: pfifo counts packets, bfifo wire bytes, and both only
/// what waits (`net/sched/sch_fifo.c`). An idle link offers no extra room: a packet larger than
/// the limit never passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Packets(u64),
    Bytes(Bytes),
}

impl Limit {
    /// The limit behind a scenario's.
    ///
    /// # Errors
    /// A limit in time or BDP, or one that is zero.
    pub(crate) fn resolved(limit: QueueLimit) -> Result<Self, LinkError> {
        match limit {
            QueueLimit::Packets(0) | QueueLimit::Bytes(Bytes::ZERO) => {
                Err(LinkError::NoQueue { limit })
            }
            QueueLimit::Packets(packets) => Ok(Self::Packets(packets)),
            QueueLimit::Bytes(bytes) => Ok(Self::Bytes(bytes)),
            QueueLimit::Time(_) | QueueLimit::Bdp(_) => Err(LinkError::UnresolvedQueue { limit }),
        }
    }

    /// Whether `backlog` is within the limit.
    #[inline]
    pub(crate) fn allows(self, backlog: Backlog) -> bool {
        match self {
            Self::Packets(packets) => backlog.packets <= packets,
            Self::Bytes(bytes) => backlog.bytes <= bytes,
        }
    }
}

/// A queue discipline as `skyhop list qdiscs` shows it.
#[derive(Debug, Clone, Copy)]
pub struct QdiscEntry {
    /// The name in scenarios.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// It with Linux's parameters.
    pub default: fn() -> QueueDiscipline,
}
