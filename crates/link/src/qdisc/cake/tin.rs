//! One class (tin) of `cake`: its queues, and the deficit round robin between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate};

use super::super::fq_codel::memory_of;
use super::classes::Share;
use super::cobalt::{Cobalt, CobaltParams, Verdict};
use super::{Backlog, Isolation, Queued};
use crate::rng::LinkRng;
use crate::stats::Verdicts;

const QUEUES: usize = 1024;
/// Associativity of the hash: a connection may use any queue of a set of eight (`CAKE_SET_WAYS`).
const WAYS: usize = 8;
/// Smallest quantum in bytes; the largest is a full packet (`cake_set_rate`).
const LEAST_QUANTUM: u64 = 300;

#[derive(Debug)]
pub(super) struct Tin<P> {
    rate: Option<Rate>,
    isolation: Isolation,
    params: CobaltParams,
    quantum: u64,
    /// Weight in the round robin of tins, which applies if `cake` has no bandwidth, and credit left in the
    /// current round, in bytes.
    weight: i64,
    deficit: i64,
    /// Time from which the tin is within its share of the rate again.
    next: Instant,
    /// Queues; empty before the tin's first packet, as most tins of most links never get one.
    flows: Vec<Flow<P>>,
    /// Three lists of flows: their indices in the order in which they are served. A flow's [`Set`] says which
    /// list the flow is on.
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    decaying: VecDeque<u16>,
    /// Number of flows that have packets or have not been found empty yet.
    active: u32,
    hosts: Hosts,
    bytes: Bytes,
}

/// Number of bulk flows of each host, by which a host's flows share its quantum.
#[derive(Debug, Default)]
struct Hosts {
    /// Index into `bulk` for each host. A flow stores the index of its host, because every packet needs it.
    indices: BTreeMap<u32, u32>,
    bulk: Vec<u32>,
}

impl Hosts {
    fn index_of(&mut self, host: u32) -> u32 {
        *self.indices.entry(host).or_insert_with(|| {
            self.bulk.push(0);
            self.bulk.len() as u32 - 1
        })
    }
}

#[derive(Debug)]
pub(super) struct Flow<P> {
    pub(super) waiting: VecDeque<Queued<P>>,
    bytes: Bytes,
    deficit: i64,
    set: Set,
    /// Hash of the connection that uses the queue.
    pub(super) tag: u32,
    /// Host of that connection; `None` before its first packet.
    host: Option<u32>,
    /// Index of the host into [`Hosts::bulk`].
    host_index: u32,
    pub(super) cobalt: Cobalt,
}

impl<P> Default for Flow<P> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: Bytes::ZERO,
            deficit: 0,
            set: Set::None,
            tag: 0,
            host: None,
            host_index: 0,
            cobalt: Cobalt::default(),
        }
    }
}

/// Class of a flow, Linux's `CAKE_SET_*`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Set {
    /// No packets, and no state of COBALT to keep.
    None,
    Sparse,
    /// Was sparse and had no packet in its turn; it waits on the old list, but does not count as bulk yet.
    SparseWait,
    Bulk,
    /// No packets, but COBALT still remembers drops.
    Decaying,
}

/// Backlog and memory of the packets in all tins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) backlog: Backlog,
    pub(super) memory: Bytes,
}

impl Totals {
    #[inline]
    fn add(&mut self, wire_size: Bytes) {
        self.backlog.add(wire_size);
        self.memory += memory_of(wire_size);
    }

    #[inline]
    fn remove(&mut self, wire_size: Bytes) {
        self.backlog.remove(wire_size);
        self.memory -= memory_of(wire_size);
    }
}

impl<P> Tin<P> {
    pub(super) fn new(share: Share, isolation: Isolation, rtt: Duration) -> Self {
        let bytes_per_s = share.rate.map(|rate| rate.bits_per_second() / 8);
        let most_bytes = LARGEST_PACKET.as_u64();
        Self {
            rate: share.rate,
            isolation,
            params: CobaltParams::new(share.rate, rtt),
            quantum: bytes_per_s
                .map_or(most_bytes, |rate| (rate / 4096).clamp(LEAST_QUANTUM, most_bytes)),
            weight: share.weight,
            deficit: 0,
            next: Instant::START,
            flows: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            decaying: VecDeque::new(),
            active: 0,
            hosts: Hosts::default(),
            bytes: Bytes::ZERO,
        }
    }

    /// Enqueue a packet of the connection with this hash and host; return the index of its queue.
    #[inline]
    pub(super) fn enqueue(
        &mut self,
        arriving: Queued<P>,
        (tag, host): (u32, u32),
        totals: &mut Totals,
    ) -> usize {
        if self.flows.is_empty() {
            self.flows.resize_with(QUEUES, Flow::default);
        }
        if self.bytes == Bytes::ZERO {
            // Discard the credit that accumulated while no packet waited.
            self.next = self.next.max(arriving.since);
        }
        let queue = self.queue_of(tag, host);
        let wire_size = arriving.packet.wire_size;
        self.flows[queue].bytes += wire_size;
        self.flows[queue].waiting.push_back(arriving);
        self.bytes += wire_size;
        totals.add(wire_size);
        queue
    }

    /// Whether the tin has flows that have not been found empty.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }

    /// Time from which the tin is within its share of the rate again.
    #[inline]
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Whether the tin may send in the round robin of tins; if not, add its weight to its credit for the next
    /// round.
    #[inline]
    pub(super) fn has_turn(&mut self) -> bool {
        let has_turn = self.deficit >= 0 && self.is_active();
        if !has_turn && self.deficit <= 0 {
            self.deficit += self.weight;
        }
        has_turn
    }

    /// Index of a connection's queue (`cake_hash`): the queue that the connection has already, or a free queue
    /// of its set of eight, or else the queue that its hash selects.
    #[inline]
    fn queue_of(&mut self, tag: u32, host: u32) -> usize {
        let first = tag as usize % QUEUES;
        // Fast path: the connection has used this queue last.
        if self.flows[first].tag == tag && self.flows[first].host == Some(host) {
            return first;
        }
        let set = first - first % WAYS;
        let ways = (0..WAYS).map(|way| set + (first + way) % WAYS);
        let has_it = |queue: &usize| self.flows[*queue].tag == tag;
        let is_free = |queue: &usize| self.flows[*queue].set == Set::None;
        let queue = ways.clone().find(has_it).or_else(|| ways.clone().find(is_free));
        let queue = queue.unwrap_or(first);
        let flow = &mut self.flows[queue];
        let host_index = self.hosts.index_of(host);
        if flow.set == Set::Bulk {
            // Two connections share a queue: it counts as a flow of the newer packet's host.
            self.hosts.bulk[flow.host_index as usize] -= 1;
            self.hosts.bulk[host_index as usize] += 1;
        }
        (flow.tag, flow.host, flow.host_index) = (tag, Some(host), host_index);
        queue
    }

    /// Quantum of a flow (`cake_get_flow_quantum`): divided by the number of bulk flows of its host, with
    /// random rounding.
    #[inline]
    fn flow_quantum(&self, host_index: u32, rng: &mut LinkRng) -> i64 {
        let load = match self.isolation {
            Isolation::TripleIsolate => self.hosts.bulk[host_index as usize],
            Isolation::Flows | Isolation::Hosts | Isolation::Flowblind => 1,
        };
        let share = if load > 1 { 65_535 / load } else { 65_535 };
        let dither = rng.bits() >> 48;
        ((self.quantum * u64::from(share) + dither) >> 16) as i64
    }

    /// List a flow that a packet has joined, or reclassify it.
    #[inline]
    pub(super) fn join(&mut self, queue: usize, rng: &mut LinkRng) {
        let (set, host_index) = (self.flows[queue].set, self.flows[queue].host_index);
        match set {
            Set::None | Set::Decaying => {
                if set == Set::Decaying {
                    // The flow may be on the decaying list, or on the old list if it was served since.
                    for list in [&mut self.decaying, &mut self.old] {
                        list.retain(|other| usize::from(*other) != queue);
                    }
                }
                self.new.push_back(queue as u16);
                self.active += 1;
                let deficit = self.flow_quantum(host_index, rng);
                let flow = &mut self.flows[queue];
                (flow.set, flow.deficit) = (Set::Sparse, deficit);
            }
            Set::SparseWait => {
                self.flows[queue].set = Set::Bulk;
                self.hosts.bulk[host_index as usize] += 1;
            }
            Set::Sparse | Set::Bulk => {}
        }
    }

    /// Packets that wait in the queue with this index.
    #[inline]
    pub(super) fn waiting(&self, queue: usize) -> &VecDeque<Queued<P>> {
        &self.flows[queue].waiting
    }

    /// Remove the packet at an index of a flow's queue.
    pub(super) fn remove(
        &mut self,
        queue: usize,
        number: usize,
        totals: &mut Totals,
    ) -> Option<Queued<P>> {
        let flow = &mut self.flows[queue];
        let packet = flow.waiting.remove(number)?;
        let wire_size = packet.packet.wire_size;
        flow.bytes -= wire_size;
        self.bytes -= wire_size;
        totals.remove(wire_size);
        Some(packet)
    }

    /// Remove a flow's first packet.
    #[inline]
    fn pull(&mut self, queue: usize, totals: &mut Totals) -> Option<Queued<P>> {
        let flow = &mut self.flows[queue];
        let first = flow.waiting.pop_front()?;
        let wire_size = first.packet.wire_size;
        flow.bytes -= wire_size;
        self.bytes -= wire_size;
        totals.remove(wire_size);
        Some(first)
    }

    /// Bytes and index of the flow with most bytes; of equal flows the one with the lowest index.
    pub(super) fn fattest(&self) -> Option<(Bytes, usize)> {
        let listed = self.new.iter().chain(&self.old).chain(&self.decaying);
        let queues = listed.map(|queue| usize::from(*queue));
        let fattest = queues.max_by_key(|queue| (self.flows[*queue].bytes, Reverse(*queue)))?;
        Some((self.flows[fattest].bytes, fattest))
    }

    /// Drop a flow's first packet, as the queue is full.
    pub(super) fn overflow(
        &mut self,
        queue: usize,
        now: Instant,
        totals: &mut Totals,
        verdicts: &mut Verdicts<P>,
    ) {
        if let Some(lost) = self.pull(queue, totals) {
            self.flows[queue].cobalt.on_overflow(now, &self.params);
            verdicts.lose(now, LossReason::Queue, lost.packet);
        }
    }

    /// Serve one flow: return a packet, or `None` if the flow was found empty. Once for each packet a decaying
    /// flow is served before the others, so that it becomes unused in the end.
    #[inline]
    pub(super) fn step(
        &mut self,
        now: Instant,
        serves_decaying: &mut bool,
        (totals, rng, verdicts): (&mut Totals, &mut LinkRng, &mut Verdicts<P>),
    ) -> Option<Queued<P>> {
        loop {
            let decaying_first = std::mem::take(serves_decaying);
            let queue = usize::from(*self.list(decaying_first).front()?);
            if self.flows[queue].deficit <= 0 {
                self.list(decaying_first).pop_front();
                self.end_turn(queue, rng);
                continue;
            }
            let Some(first) = self.serve(queue, now, (totals, rng, verdicts)) else {
                self.list(decaying_first).pop_front();
                self.on_found_empty(queue, now);
                return None;
            };
            // The flow keeps its place until its credit is used up.
            self.charge(queue, first.packet.wire_size, now);
            return Some(first);
        }
    }

    /// Charge the flow and the tin for a packet that leaves: the tin's part of `cake_advance_shaper`.
    #[inline]
    fn charge(&mut self, queue: usize, wire_size: Bytes, now: Instant) {
        let bytes = wire_size.as_u64() as i64;
        self.flows[queue].deficit -= bytes;
        self.deficit -= bytes;
        if let Some(rate) = self.rate {
            let took = rate.transmit_time(wire_size);
            self.next = match self.next < now {
                true => self.next + took,
                false => self.next.max(now + took),
            };
        }
    }

    /// List whose first flow is served next.
    #[inline]
    fn list(&mut self, serves_decaying: bool) -> &mut VecDeque<u16> {
        if serves_decaying && !self.decaying.is_empty() {
            &mut self.decaying
        } else if !self.new.is_empty() {
            &mut self.new
        } else if !self.old.is_empty() {
            &mut self.old
        } else {
            &mut self.decaying
        }
    }

    /// End a flow's turn: add its quantum to its credit and move it to the end of the old list.
    fn end_turn(&mut self, queue: usize, rng: &mut LinkRng) {
        let host_index = self.flows[queue].host_index;
        if self.flows[queue].set == Set::Sparse {
            let has_packets = !self.flows[queue].waiting.is_empty();
            self.flows[queue].set = if has_packets { Set::Bulk } else { Set::SparseWait };
            if has_packets {
                self.hosts.bulk[host_index as usize] += 1;
            }
        }
        let quantum = self.flow_quantum(host_index, rng);
        self.flows[queue].deficit += quantum;
        self.old.push_back(queue as u16);
    }

    /// Reclassify a flow that was found empty, as unused or decaying.
    fn on_found_empty(&mut self, queue: usize, now: Instant) {
        let flow = &mut self.flows[queue];
        flow.cobalt.on_empty(now, &self.params);
        if flow.set == Set::Bulk {
            self.hosts.bulk[flow.host_index as usize] -= 1;
        }
        if flow.set != Set::Decaying {
            self.active -= 1;
        }
        if flow.cobalt.is_at_rest(now) {
            flow.set = Set::None;
        } else {
            flow.set = Set::Decaying;
            self.decaying.push_back(queue as u16);
        }
    }

    /// Return the flow's next packet after COBALT's drops and marks; its last packet is never dropped.
    #[inline]
    fn serve(
        &mut self,
        queue: usize,
        now: Instant,
        (totals, rng, verdicts): (&mut Totals, &mut LinkRng, &mut Verdicts<P>),
    ) -> Option<Queued<P>> {
        loop {
            let mut first = self.pull(queue, totals)?;
            let waited = now.saturating_since(first.since);
            let flow = &mut self.flows[queue];
            let verdict = flow.cobalt.judge(now, waited, &self.params);
            let mut is_dropped =
                verdict == Verdict::MarkOrDrop && !verdicts.mark(&mut first.packet);
            let probability = flow.cobalt.probability;
            is_dropped |= probability > 0.0 && rng.draw() < probability;
            flow.cobalt.update_drop_next(now, is_dropped, &self.params);
            if !is_dropped || flow.waiting.is_empty() {
                return Some(first);
            }
            verdicts.lose(now, LossReason::Queue, first.packet);
        }
    }

    #[cfg(test)]
    pub(super) fn flows(&self) -> &[Flow<P>] {
        &self.flows
    }

    #[cfg(test)]
    pub(super) fn new_flows(&self) -> usize {
        self.new.len()
    }
}
