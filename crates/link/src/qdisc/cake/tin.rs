//! One class of `cake`: its queues, and whose turn it is among them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate};

use super::super::fq_codel::memory_of;
use super::classes::Share;
use super::cobalt::{Cobalt, Times, Verdict};
use super::{Backlog, Isolation, Queued};
use crate::chance::Chance;
use crate::stats::Verdicts;

const QUEUES: usize = 1024;
/// A connection has its choice of as many of them.
const WAYS: usize = 8;
/// Bounds of a turn's bytes.
const LEAST_QUANTUM: u64 = 300;

#[derive(Debug)]
pub(super) struct Tin<P> {
    rate: Option<Rate>,
    isolation: Isolation,
    times: Times,
    quantum: u64,
    /// Its part in the turns that tins take where there is no rate, and what is left of its turn.
    weight: i64,
    deficit: i64,
    /// When its own share of the rate lets it send again.
    next: Instant,
    /// None before its first packet: most tins of most links never have one.
    flows: Vec<Flow<P>>,
    /// In the order of their turns; a flow is on the one that its [`Set`] says.
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    decaying: VecDeque<u16>,
    /// How many flows have packets, or have not been found empty yet.
    active: u32,
    hosts: Hosts,
    bytes: Bytes,
}

/// How many connections of each host have more than their share to send.
#[derive(Debug, Default)]
struct Hosts {
    /// Where a host's number is: flows keep that, as it is needed for every packet.
    places: BTreeMap<u32, u32>,
    bulk: Vec<u32>,
}

impl Hosts {
    fn place(&mut self, host: u32) -> u32 {
        *self.places.entry(host).or_insert_with(|| {
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
    /// The hash of the connection that has it.
    pub(super) tag: u32,
    /// Whose it is; None before its first packet.
    host: Option<u32>,
    /// Where its host's number of bulk flows is.
    host_place: u32,
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
            host_place: 0,
            cobalt: Cobalt::default(),
        }
    }
}

/// What a flow is taken for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Set {
    /// Nothing: it has no packets, and nothing to remember.
    None,
    Sparse,
    /// It had its turn and waits among the bulk flows, but is not counted as one.
    SparseWait,
    Bulk,
    /// It has no packets, but remembers drops.
    Decaying,
}

/// What waits in all tins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stock {
    pub(super) backlog: Backlog,
    pub(super) memory: Bytes,
}

impl Stock {
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
            times: Times::new(share.rate, rtt),
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

    /// Takes in a packet of the connection with this hash, of the host; returns where.
    #[inline]
    pub(super) fn take(
        &mut self,
        arriving: Queued<P>,
        (tag, host): (u32, u32),
        stock: &mut Stock,
    ) -> usize {
        if self.flows.is_empty() {
            self.flows.resize_with(QUEUES, Flow::default);
        }
        if self.bytes == Bytes::ZERO {
            // What was saved while nothing waited is lost.
            self.next = self.next.max(arriving.since);
        }
        let place = self.place(tag, host);
        let wire_size = arriving.packet.wire_size;
        self.flows[place].bytes += wire_size;
        self.flows[place].waiting.push_back(arriving);
        self.bytes += wire_size;
        stock.add(wire_size);
        place
    }

    /// Whether it has flows that have not been found empty.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }

    /// When its share of the rate lets it send again.
    #[inline]
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Whether it is its turn among the tins; if not, it gets its part for the next one.
    #[inline]
    pub(super) fn has_turn(&mut self) -> bool {
        let has_turn = self.deficit >= 0 && self.is_active();
        if !has_turn && self.deficit <= 0 {
            self.deficit += self.weight;
        }
        has_turn
    }

    /// `cake_hash`: the queue that a connection has, or a free one of its eight, or else its first.
    #[inline]
    fn place(&mut self, tag: u32, host: u32) -> usize {
        let first = tag as usize % QUEUES;
        // As nearly always: nothing about it is new.
        if self.flows[first].tag == tag && self.flows[first].host == Some(host) {
            return first;
        }
        let set = first - first % WAYS;
        let ways = (0..WAYS).map(|way| set + (first + way) % WAYS);
        let has_it = |place: &usize| self.flows[*place].tag == tag;
        let is_free = |place: &usize| self.flows[*place].set == Set::None;
        let place = ways.clone().find(has_it).or_else(|| ways.clone().find(is_free));
        let place = place.unwrap_or(first);
        let flow = &mut self.flows[place];
        let host_place = self.hosts.place(host);
        if flow.set == Set::Bulk {
            // They meet in one queue, and it is counted for the host that came last.
            self.hosts.bulk[flow.host_place as usize] -= 1;
            self.hosts.bulk[host_place as usize] += 1;
        }
        (flow.tag, flow.host, flow.host_place) = (tag, Some(host), host_place);
        place
    }

    /// `cake_get_flow_quantum`: what a flow sends in a turn, the less the more of its host's do.
    #[inline]
    fn turn(&self, host_place: u32, chance: &mut Chance) -> i64 {
        let load = match self.isolation {
            Isolation::TripleIsolate => self.hosts.bulk[host_place as usize],
            Isolation::Flows | Isolation::Hosts | Isolation::Flowblind => 1,
        };
        let share = if load > 1 { 65_535 / load } else { 65_535 };
        let dither = chance.bits() >> 48;
        ((self.quantum * u64::from(share) + dither) >> 16) as i64
    }

    /// A packet has come to the flow at this place.
    #[inline]
    pub(super) fn join(&mut self, place: usize, chance: &mut Chance) {
        let (set, host_place) = (self.flows[place].set, self.flows[place].host_place);
        match set {
            Set::None | Set::Decaying => {
                if set == Set::Decaying {
                    // It may have been moved on with the others.
                    for list in [&mut self.decaying, &mut self.old] {
                        list.retain(|other| usize::from(*other) != place);
                    }
                }
                self.new.push_back(place as u16);
                self.active += 1;
                let deficit = self.turn(host_place, chance);
                let flow = &mut self.flows[place];
                (flow.set, flow.deficit) = (Set::Sparse, deficit);
            }
            Set::SparseWait => {
                self.flows[place].set = Set::Bulk;
                self.hosts.bulk[host_place as usize] += 1;
            }
            Set::Sparse | Set::Bulk => {}
        }
    }

    /// What waits at this place.
    #[inline]
    pub(super) fn waiting(&self, place: usize) -> &VecDeque<Queued<P>> {
        &self.flows[place].waiting
    }

    /// Takes one of a flow's packets out of their line.
    pub(super) fn remove(
        &mut self,
        place: usize,
        number: usize,
        stock: &mut Stock,
    ) -> Option<Queued<P>> {
        let flow = &mut self.flows[place];
        let packet = flow.waiting.remove(number)?;
        let wire_size = packet.packet.wire_size;
        flow.bytes -= wire_size;
        self.bytes -= wire_size;
        stock.remove(wire_size);
        Some(packet)
    }

    /// Takes a flow's first packet.
    #[inline]
    fn pull(&mut self, place: usize, stock: &mut Stock) -> Option<Queued<P>> {
        let flow = &mut self.flows[place];
        let first = flow.waiting.pop_front()?;
        let wire_size = first.packet.wire_size;
        flow.bytes -= wire_size;
        self.bytes -= wire_size;
        stock.remove(wire_size);
        Some(first)
    }

    /// The flow with most bytes, the first of those with as many: its bytes and its place.
    pub(super) fn fattest(&self) -> Option<(Bytes, usize)> {
        let listed = self.new.iter().chain(&self.old).chain(&self.decaying);
        let places = listed.map(|place| usize::from(*place));
        let fattest = places.max_by_key(|place| (self.flows[*place].bytes, Reverse(*place)))?;
        Some((self.flows[fattest].bytes, fattest))
    }

    /// A flow's first packet is lost, as there is no more room.
    pub(super) fn overflow(
        &mut self,
        place: usize,
        now: Instant,
        stock: &mut Stock,
        verdicts: &mut Verdicts<P>,
    ) {
        if let Some(lost) = self.pull(place, stock) {
            self.flows[place].cobalt.on_overflow(now, &self.times);
            verdicts.lose(now, LossReason::Queue, lost.packet);
        }
    }

    /// The next step towards a packet: one, or `None` where a flow was found empty. Once per packet one that decays is
    /// looked after.
    #[inline]
    pub(super) fn step(
        &mut self,
        now: Instant,
        looks_after: &mut bool,
        (stock, chance, verdicts): (&mut Stock, &mut Chance, &mut Verdicts<P>),
    ) -> Option<Queued<P>> {
        loop {
            let looks = std::mem::take(looks_after);
            let place = usize::from(*self.list(looks).front()?);
            if self.flows[place].deficit <= 0 {
                self.list(looks).pop_front();
                self.pay_in(place, chance);
                continue;
            }
            let Some(first) = self.serve(place, now, (stock, chance, verdicts)) else {
                self.list(looks).pop_front();
                self.retire(place, now);
                return None;
            };
            // It stays where it is until its turn is over.
            self.charge(place, first.packet.wire_size, now);
            return Some(first);
        }
    }

    /// A packet has left: `cake_advance_shaper`'s part for tins.
    #[inline]
    fn charge(&mut self, place: usize, wire_size: Bytes, now: Instant) {
        let bytes = wire_size.as_u64() as i64;
        self.flows[place].deficit -= bytes;
        self.deficit -= bytes;
        if let Some(rate) = self.rate {
            let took = rate.transmit_time(wire_size);
            self.next = match self.next < now {
                true => self.next + took,
                false => self.next.max(now + took),
            };
        }
    }

    /// The list whose first flow has its turn.
    #[inline]
    fn list(&mut self, looks_after: bool) -> &mut VecDeque<u16> {
        if looks_after && !self.decaying.is_empty() {
            &mut self.decaying
        } else if !self.new.is_empty() {
            &mut self.new
        } else if !self.old.is_empty() {
            &mut self.old
        } else {
            &mut self.decaying
        }
    }

    /// The flow has had its turn and goes to the end.
    fn pay_in(&mut self, place: usize, chance: &mut Chance) {
        let host_place = self.flows[place].host_place;
        if self.flows[place].set == Set::Sparse {
            let has_packets = !self.flows[place].waiting.is_empty();
            self.flows[place].set = if has_packets { Set::Bulk } else { Set::SparseWait };
            if has_packets {
                self.hosts.bulk[host_place as usize] += 1;
            }
        }
        let turn = self.turn(host_place, chance);
        self.flows[place].deficit += turn;
        self.old.push_back(place as u16);
    }

    /// The flow has no packets.
    fn retire(&mut self, place: usize, now: Instant) {
        let flow = &mut self.flows[place];
        flow.cobalt.on_empty(now, &self.times);
        if flow.set == Set::Bulk {
            self.hosts.bulk[flow.host_place as usize] -= 1;
        }
        if flow.set != Set::Decaying {
            self.active -= 1;
        }
        if flow.cobalt.is_at_rest(now) {
            flow.set = Set::None;
        } else {
            flow.set = Set::Decaying;
            self.decaying.push_back(place as u16);
        }
    }

    /// The flow's next packet by COBALT; the last is never dropped.
    #[inline]
    fn serve(
        &mut self,
        place: usize,
        now: Instant,
        (stock, chance, verdicts): (&mut Stock, &mut Chance, &mut Verdicts<P>),
    ) -> Option<Queued<P>> {
        loop {
            let mut first = self.pull(place, stock)?;
            let waited = now.saturating_since(first.since);
            let flow = &mut self.flows[place];
            let verdict = flow.cobalt.judge(now, waited, &self.times);
            let mut is_dropped = verdict == Verdict::Strike && !verdicts.mark(&mut first.packet);
            let probability = flow.cobalt.probability;
            is_dropped |= probability > 0.0 && chance.draw() < probability;
            flow.cobalt.note(now, is_dropped, &self.times);
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
