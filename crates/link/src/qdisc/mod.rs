//! Queue disciplines: one file each, all named in the one table below.

#[macro_use]
mod table;

mod cake;
mod choice;
mod codel;
mod fifo;
mod flow_hash;
mod fq;
mod fq_codel;
mod fq_pie;
mod pie;
mod red;
mod rotation;
mod sfq;
mod threshold_drop;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod trial;

pub(crate) use cake::ReadTcp;
pub use cake::{AckFilter, CarriesTcp, Diffserv, Isolation, TcpFacts};
pub use red::RedThresholds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Instant, QueueLimit, Ratio};

use crate::stats::Verdicts;
use crate::{LinkError, Packet};

table! {
    Fifo = "fifo", fifo::Fifo(FifoConfig), "first in, first out; what does not fit is lost (drop-tail)";
    Codel = "codel", codel::Codel(CodelConfig), "keeps the time in the queue near a target, by drops or marks (RFC 8289)";
    FqCodel = "fq_codel", fq_codel::FqCodel(FqCodelConfig), "a queue per flow, in turns, each with codel (RFC 8290)";
    Pie = "pie", pie::Pie(PieConfig), "drops at random as often as keeps the delay near a target (RFC 8033)";
    FqPie = "fq_pie", fq_pie::FqPie(FqPieConfig), "a queue per flow, in turns, each with pie";
    Sfq = "sfq", sfq::Sfq(SfqConfig), "a queue per flow, in turns; the longest loses what does not fit in 127 packets";
    Fq = "fq", fq::Fq(FqConfig), "a queue per flow, in turns; new flows first, and each no faster than a rate";
    Red = "red", red::Red(RedConfig), "drops at random, the more often the longer the queue is on average";
    Cake = "cake", cake::Cake(CakeConfig), "a shaper over a queue per connection, in turns by hosts too, each with COBALT";
    ThresholdDrop = "threshold-drop", threshold_drop::ThresholdDrop(ThresholdDropConfig),
        "drops a part of what comes at random while more than a share of the queue is full";
}

/// What a queue discipline does with packets. `conformance.rs` tests every entry of the table against this.
///
/// Times never decrease from call to call. A packet given to `enqueue` is returned by `dequeue` or
/// recorded in `verdicts` with [`LossReason::Queue`](skyhop_model::LossReason::Queue), exactly once.
pub(crate) trait Qdisc<P> {
    /// Takes in a packet at its `since`; whatever must go for it goes to `verdicts`. Afterwards the
    /// backlog is within the limit.
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>);

    /// The packet to transmit from `now` on; `None` when nothing is left, or nothing is ready yet.
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>>;

    /// What waits.
    fn backlog(&self) -> Backlog;

    /// When `dequeue` has something to give again, after it gave nothing though packets wait.
    fn ready(&self) -> Instant {
        Instant::NEVER
    }

    /// How it learns what packets' TCP headers say.
    fn read_tcp_with(&mut self, _read_tcp: ReadTcp<P>) {}

    /// The transmitter is free from `now` on, and nothing waits.
    fn rest(&mut self, _now: Instant) {}
}

/// The parameters of a discipline.
pub(crate) trait Parameters {
    /// What is wrong with them.
    fn fault(&self) -> Option<&'static str> {
        None
    }
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

    /// Half of what may wait, and so on.
    pub(crate) fn share(self, share: Ratio) -> Self {
        let of = |all: u64| (all as f64 * share.fraction()) as u64;
        match self {
            Self::Packets(packets) => Self::Packets(of(packets)),
            Self::Bytes(bytes) => Self::Bytes(Bytes::new(of(bytes.as_u64()))),
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
