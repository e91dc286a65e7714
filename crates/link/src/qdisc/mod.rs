//! Queue disciplines: one file each, and the table of all.

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
pub use fifo::FifoDrop;
pub use red::RedThresholds;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Bytes, Instant, Ratio};

use crate::stats::Verdicts;
use crate::{LinkError, Packet};

table! {
    Fifo = "fifo", fifo::Fifo(FifoConfig), "first in, first out; a full queue loses the arriving packet (drop-tail) or those at its head (drop-front)";
    Codel = "codel", codel::Codel(CodelConfig), "drops or marks at the head so that the queueing delay stays near a target (RFC 8289)";
    FqCodel = "fq_codel", fq_codel::FqCodel(FqCodelConfig), "deficit round robin over a queue per flow, each with codel (RFC 8290)";
    Pie = "pie", pie::Pie(PieConfig), "drops at random so that the queueing delay stays near a target (RFC 8033)";
    FqPie = "fq_pie", fq_pie::FqPie(FqPieConfig), "deficit round robin over a queue per flow, each with pie";
    Sfq = "sfq", sfq::Sfq(SfqConfig), "deficit round robin over a queue per flow; beyond 127 packets the longest queue drops";
    Fq = "fq", fq::Fq(FqConfig), "deficit round robin over a queue per flow, new flows first, with a rate limit per flow";
    Red = "red", red::Red(RedConfig), "drops at random, with a probability that grows with the average queue length";
    Cake = "cake", cake::Cake(CakeConfig), "a shaper over a queue per connection, fair between hosts too, each with COBALT";
    ThresholdDrop = "threshold-drop", threshold_drop::ThresholdDrop(ThresholdDropConfig),
        "drops a share of the arriving packets at random while the queue is fuller than a threshold";
}

/// Behaviour of a queue discipline. `conformance.rs` tests every entry of the table against this contract.
///
/// Times do not decrease from call to call. A packet given to `enqueue` is returned by `dequeue` or
/// recorded in `verdicts` with [`LossReason::Queue`](skyhop_model::LossReason::Queue), exactly once.
pub(crate) trait Qdisc<P> {
    /// Enqueue a packet at the time `arriving.since`; record in `verdicts` the packets that are dropped to make
    /// room, this one included. Afterwards the backlog is within the limit.
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>);

    /// Return the packet to transmit from `now` on; `None` if the queue is empty or holds its packets back.
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>>;

    /// Packets and bytes that wait in the queue.
    fn backlog(&self) -> Backlog;

    /// Earliest time at which `dequeue` returns a packet again, after it returned `None` although packets wait.
    fn ready(&self) -> Instant {
        Instant::NEVER
    }

    /// Set the reader of TCP headers; only disciplines that inspect them keep it.
    fn read_tcp_with(&mut self, _read_tcp: ReadTcp<P>) {}

    /// Note that the transmitter is idle from `now` on, with an empty queue.
    fn on_idle(&mut self, _now: Instant) {}
}

/// Parameters of a discipline as scenarios give them.
pub(crate) trait Parameters {
    /// Message about the first invalid parameter: what is wrong and what to give instead.
    fn fault(&self) -> Option<&'static str> {
        None
    }
}

/// A packet in the queue, with its time of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queued<P> {
    /// Time at which the packet was handed to the link.
    pub(crate) since: Instant,
    pub(crate) packet: Packet<P>,
}

/// Packets and wire bytes that wait in a queue; the packet being transmitted is not among them.
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

/// Limit of a queue, as Linux counts it: pfifo counts packets, bfifo wire bytes, and both only
/// waiting packets (`net/sched/sch_fifo.c`). An idle link offers no extra room: a packet larger than
/// the limit never passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Number of packets, whatever their size.
    Packets(u64),
    /// Number of bytes on the wire.
    Bytes(Bytes),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets} packets"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

impl Limit {
    /// The given fraction of the limit, rounded down.
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

/// Row of the table of queue disciplines, as `skyhop list qdiscs` shows it.
#[derive(Debug, Clone, Copy)]
pub struct QdiscEntry {
    /// Name of the discipline in scenarios.
    pub name: &'static str,
    /// One-line description of the discipline.
    pub summary: &'static str,
    /// Constructor of the discipline with Linux's default parameters.
    pub default: fn() -> QueueDiscipline,
}
