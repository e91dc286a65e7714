//! Test harness that compares a discipline with a slow reference implementation of its specification.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use skyhop_model::{Dscp, Ecn};
use skyhop_units::{Bytes, Duration, Instant};

use super::{Qdisc, Queued};
use crate::Packet;
use crate::stats::Verdicts;

/// Fate of a packet in a discipline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fate {
    Left { at_ns: u64, is_marked: bool },
    Dropped { at_ns: u64 },
}

/// A packet that is enqueued.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offered {
    pub(super) at_ns: u64,
    pub(super) flow: u32,
    pub(super) bytes: u64,
    pub(super) is_capable: bool,
    /// DSCP of the packet, for disciplines with classes.
    pub(super) dscp: Dscp,
}

impl Offered {
    pub(super) fn packet(self) -> Packet<()> {
        let ecn = if self.is_capable { Ecn::Ect0 } else { Ecn::NotEct };
        Packet::new(Bytes::new(self.bytes), ()).with_flow(self.flow, ecn).with_tos(self.dscp.tos())
    }
}

/// Packets that a reference implementation has received, by number, and their fates: when each left or was
/// dropped.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    offered: Vec<Offered>,
    marked: BTreeSet<usize>,
    fates: BTreeMap<usize, Fate>,
}

impl Ledger {
    pub(super) fn bytes(&self, number: usize) -> u64 {
        self.offered[number].bytes
    }

    pub(super) fn sum<'n>(&self, numbers: impl IntoIterator<Item = &'n usize>) -> u64 {
        numbers.into_iter().map(|number| self.bytes(*number)).sum()
    }

    /// Time for which the packet has waited.
    pub(super) fn wait_ns(&self, number: usize, now_ns: u64) -> u64 {
        now_ns - self.offered[number].at_ns
    }

    /// Mark the packet if it is ECN-capable; return whether it is marked now for the first time.
    pub(super) fn mark(&mut self, number: usize) -> bool {
        self.offered[number].is_capable && self.marked.insert(number)
    }

    pub(super) fn drop(&mut self, number: usize, at_ns: u64) {
        self.fates.insert(number, Fate::Dropped { at_ns });
    }

    pub(super) fn leave(&mut self, number: usize, at_ns: u64) {
        let is_marked = self.marked.contains(&number);
        self.fates.insert(number, Fate::Left { at_ns, is_marked });
    }
}

/// Reference implementation of a discipline, on plain lists of packet numbers.
pub(super) trait ReferenceQdisc {
    fn ledger(&mut self) -> &mut Ledger;
    fn enqueue(&mut self, now_ns: u64, number: usize);
    fn dequeue(&mut self, now_ns: u64);
}

/// Random packets, and the gaps between dequeues: about half as many packets leave as arrive.
pub(super) fn train() -> impl Strategy<Value = (Vec<Offered>, Vec<u64>)> {
    let bytes = prop_oneof![1 => 64_u64..1_515, 2 => Just(1_514_u64)];
    let dscp = prop::sample::select(Dscp::ALL);
    let packet = (0_u64..8_000_000, 0_u32..6, bytes, any::<bool>(), dscp);
    let packets = prop::collection::vec(packet, 1..400).prop_map(|packets| {
        let mut at_ns = 1;
        let follow = |(gap_ns, flow, bytes, is_capable, dscp)| {
            at_ns += gap_ns;
            Offered { at_ns, flow, bytes, is_capable, dscp }
        };
        packets.into_iter().map(follow).collect()
    });
    (packets, prop::collection::vec(0_u64..16_000_000, 1..500))
}

/// Fates by the discipline and by the reference, for the same packets and the same times of dequeue.
pub(super) fn fates(
    mut qdisc: impl Qdisc<usize>,
    mut reference: impl ReferenceQdisc,
    (offered, gaps_ns): &(Vec<Offered>, Vec<u64>),
) -> [BTreeMap<usize, Fate>; 2] {
    let (mut verdicts, mut fates) = (Verdicts::new(), BTreeMap::new());
    let (mut come, mut now_ns) = (0, 0);
    for gap_ns in gaps_ns {
        now_ns += gap_ns;
        while let Some(next) = offered.get(come).filter(|next| next.at_ns <= now_ns) {
            let packet = next.packet().map(|_| come);
            reference.ledger().offered.push(*next);
            reference.enqueue(next.at_ns, come);
            let since = Instant::START + Duration::from_nanos(next.at_ns);
            qdisc.enqueue(Queued { since, packet }, &mut verdicts);
            come += 1;
        }
        reference.dequeue(now_ns);
        let left = qdisc.dequeue(Instant::from_nanos(now_ns), &mut verdicts);
        for lost in verdicts.take_lost() {
            fates.insert(lost.packet.payload, Fate::Dropped { at_ns: lost.at.as_nanos() });
        }
        if let Some(Queued { packet, .. }) = left {
            let is_marked = packet.ecn() == Ecn::Ce;
            fates.insert(packet.payload, Fate::Left { at_ns: now_ns, is_marked });
        }
    }
    [fates, std::mem::take(&mut reference.ledger().fates)]
}
