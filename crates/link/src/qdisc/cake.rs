//! Common applications kept enhanced (Høiland-Jørgensen, Täht, Morton, "Piece of CAKE: a comprehensive queue management
//! solution for home gateways", 2018), as Linux has it (`net/sched/sch_cake.c`): a shaper, over queues of connections in turns,
//! sparse ones first, which share by hosts too, each with COBALT: CoDel beside BLUE for what does not answer.
//!
//! Packets say nothing of a class or of what they acknowledge here: all are best effort, and acknowledgements are not
//! filtered. A scenario's flow is a pair of hosts of its own, its connections are theirs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate};

use super::flow_hash::FlowHash;
use super::fq_codel::memory_of;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::chance::Chance;
use crate::stats::Verdicts;

/// The parameters of `cake`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CakeConfig {
    /// The shaper's rate, Ethernet headers included; as fast as the link where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Rate>,
    /// About the longest RTT: CoDel's interval; packets may wait for a twentieth of it.
    pub rtt: Duration,
    /// Among whom the rate is shared.
    pub isolation: Isolation,
    /// The most memory that waiting packets may take, as the kernel counts it; four times bandwidth x rtt, and at least
    /// 4 MiB, where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// Among whom `cake` shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Among hosts, and among the connections of each.
    TripleIsolate,
    /// Among connections, whosever they are.
    Flows,
}

impl Default for CakeConfig {
    fn default() -> Self {
        Self {
            bandwidth: None,
            rtt: Duration::from_millis(100),
            isolation: Isolation::TripleIsolate,
            memory: None,
        }
    }
}

impl Parameters for CakeConfig {
    fn fault(&self) -> Option<&'static str> {
        (self.bandwidth == Some(Rate::ZERO))
            .then_some("bandwidth is zero, so that nothing ever left; leave it out")
    }
}

const QUEUES: usize = 1024;
/// A connection has its choice of as many of them.
const WAYS: usize = 8;
/// Packets that Linux counts on, for the memory that they may take.
const PACKETS: u64 = 10_240;
const LEAST_MEMORY: Bytes = Bytes::new(4 << 20);
/// Bounds of a turn's bytes.
const LEAST_QUANTUM: u64 = 300;
/// By how much BLUE's probability grows with an overflow, and falls as a queue is found empty.
const BLUE_UP: f64 = 1.0 / 256.0;
const BLUE_DOWN: f64 = 1.0 / 4096.0;

#[derive(Debug)]
pub(crate) struct Cake<P> {
    rate: Option<Rate>,
    isolation: Isolation,
    memory_limit: Bytes,
    limit: Limit,
    times: Times,
    quantum: u64,
    hash: FlowHash,
    chance: Chance,
    flows: Box<[Flow<P>]>,
    /// In the order of their turns; a flow is on the one that its [`Set`] says.
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    decaying: VecDeque<u16>,
    /// By host, how many of its connections have more than their share to send.
    bulk_of: BTreeMap<u32, u32>,
    shaper: Shaper,
    backlog: Backlog,
    memory: Bytes,
}

#[derive(Debug)]
struct Flow<P> {
    waiting: VecDeque<Queued<P>>,
    bytes: Bytes,
    deficit: i64,
    set: Set,
    /// The hash of the connection that has it.
    tag: u32,
    host: u32,
    cobalt: Cobalt,
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

/// COBALT's times.
#[derive(Debug, Clone, Copy)]
struct Times {
    target: Duration,
    interval: Duration,
    /// What a full packet takes.
    packet: Duration,
}

/// `cobalt_vars`
#[derive(Debug, Clone, Default)]
struct Cobalt {
    count: u32,
    dropping: bool,
    drop_next: Instant,
    /// BLUE's probability, and when it last changed.
    probability: f64,
    changed: Instant,
}

/// What COBALT decides about a packet that would leave.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Pass,
    /// It is marked if it speaks ECN, and else dropped.
    Strike,
}

impl Times {
    /// `cake_set_rate`
    fn new(config: &CakeConfig) -> Self {
        let rtt_target = config.rtt / 20;
        let packet =
            config.bandwidth.map_or(Duration::ZERO, |rate| rate.transmit_time(LARGEST_PACKET));
        let target = rtt_target.max(packet * 3 / 2);
        let interval = (config.rtt + target.saturating_sub(rtt_target)).max(target * 2);
        Self { target, interval, packet }
    }
}

impl Cobalt {
    /// `cobalt_control`: an interval later, or less the more were dropped.
    fn control(&self, from: Instant, times: &Times) -> Instant {
        let interval_ns = times.interval.as_nanos() as f64;
        from + Duration::from_nanos((interval_ns / f64::from(self.count.max(1)).sqrt()) as u64)
    }

    /// A packet of it was lost because the queue is full: `cobalt_queue_full`.
    fn on_overflow(&mut self, now: Instant, times: &Times) {
        if now.saturating_since(self.changed) > times.target {
            self.probability = (self.probability + BLUE_UP).min(1.0);
            self.changed = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// It had its turn and has no packet: `cobalt_queue_empty`.
    fn on_empty(&mut self, now: Instant, times: &Times) {
        if self.probability > 0.0 && now.saturating_since(self.changed) > times.target {
            self.probability = (self.probability - BLUE_DOWN).max(0.0);
            self.changed = now;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.step_back(times);
        }
    }

    fn step_back(&mut self, times: &Times) {
        self.count -= 1;
        self.drop_next = self.control(self.drop_next, times);
    }

    /// CoDel's part of `cobalt_should_drop`.
    #[inline]
    fn judge(&mut self, now: Instant, waited: Duration, times: &Times) -> Verdict {
        let is_due = self.count > 0 && now >= self.drop_next;
        if waited > times.target && waited > times.packet * 4 {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = self.control(now, times);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        if is_due && self.dropping {
            self.count = self.count.saturating_add(1);
            self.drop_next = self.control(self.drop_next, times);
            return Verdict::Strike;
        }
        if is_due {
            while self.count > 0 && now >= self.drop_next {
                self.step_back(times);
            }
        }
        Verdict::Pass
    }

    /// The end of `cobalt_should_drop`: `drop_next` is when it is at rest, too.
    #[inline]
    fn note(&mut self, now: Instant, is_dropped: bool, times: &Times) {
        if self.count == 0 {
            self.drop_next = now + times.interval;
        } else if now > self.drop_next && !is_dropped {
            self.drop_next = now;
        }
    }

    fn is_at_rest(&self, now: Instant) -> bool {
        self.probability == 0.0 && self.count == 0 && now >= self.drop_next
    }
}

/// When the next packet may leave.
#[derive(Debug, Clone, Copy, Default)]
struct Shaper {
    next: Instant,
    /// The same at two thirds of the rate, of what was sent: drops never hold the link up for longer.
    failsafe: Instant,
}

impl Shaper {
    #[inline]
    fn ready(self) -> Instant {
        self.next.min(self.failsafe)
    }

    /// What was saved while nothing waited is lost.
    #[inline]
    fn wake(&mut self, now: Instant) {
        if self.next < now {
            (self.next, self.failsafe) = (now, now);
        }
    }

    /// `cake_advance_shaper`
    #[inline]
    fn advance(&mut self, took: Duration) {
        self.next += took;
        self.failsafe += took + took / 2;
    }
}

impl<P> Cake<P> {
    pub(crate) fn new(config: &CakeConfig, limit: Limit, seed: u64) -> Self {
        let mut chance = Chance::of_queue(seed);
        let flow = || Flow {
            waiting: VecDeque::new(),
            bytes: Bytes::ZERO,
            deficit: 0,
            set: Set::None,
            tag: 0,
            host: 0,
            cobalt: Cobalt::default(),
        };
        let bytes_per_s = config.bandwidth.map(|rate| rate.bits_per_second() / 8);
        let most_bytes = LARGEST_PACKET.as_u64();
        Self {
            rate: config.bandwidth,
            isolation: config.isolation,
            memory_limit: config.memory.unwrap_or_else(|| memory_limit(config)),
            limit,
            times: Times::new(config),
            quantum: bytes_per_s
                .map_or(most_bytes, |rate| (rate / 4096).clamp(LEAST_QUANTUM, most_bytes)),
            hash: FlowHash::drawn(&mut chance),
            chance,
            flows: std::iter::repeat_with(flow).take(QUEUES).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            decaying: VecDeque::new(),
            bulk_of: BTreeMap::new(),
            shaper: Shaper::default(),
            backlog: Backlog::default(),
            memory: Bytes::ZERO,
        }
    }

    /// `cake_hash`: the queue that a connection has, or a free one of its eight, or else its first.
    #[inline]
    fn place(&mut self, tag: u32, host: u32) -> usize {
        let first = tag as usize % QUEUES;
        let set = first - first % WAYS;
        let ways = (0..WAYS).map(|way| set + (first + way) % WAYS);
        let has_it = |place: &usize| self.flows[*place].tag == tag;
        let is_free = |place: &usize| self.flows[*place].set == Set::None;
        let place = ways.clone().find(has_it).or_else(|| ways.clone().find(is_free));
        let place = place.unwrap_or(first);
        let flow = &mut self.flows[place];
        if flow.host != host && flow.set == Set::Bulk {
            // They meet in one queue, and it is counted for the host that came last.
            leave_bulk(&mut self.bulk_of, flow.host);
            *self.bulk_of.entry(host).or_insert(0) += 1;
        }
        (flow.tag, flow.host) = (tag, host);
        place
    }

    /// `cake_get_flow_quantum`: what a flow sends in a turn, the less the more of its host's do.
    #[inline]
    fn turn(&mut self, host: u32) -> i64 {
        let load = match self.isolation {
            Isolation::TripleIsolate => self.bulk_of.get(&host).copied().unwrap_or(0).max(1),
            Isolation::Flows => 1,
        };
        let share = 65_535 / u64::from(load);
        let dither = self.chance.bits() >> 48;
        ((self.quantum * share + dither) >> 16) as i64
    }

    /// A packet has come to the flow at this place.
    #[inline]
    fn join(&mut self, place: usize) {
        let (set, host) = (self.flows[place].set, self.flows[place].host);
        match set {
            Set::None | Set::Decaying => {
                if set == Set::Decaying {
                    // It may have been moved on with the others.
                    for list in [&mut self.decaying, &mut self.old] {
                        list.retain(|other| usize::from(*other) != place);
                    }
                }
                self.new.push_back(place as u16);
                let deficit = self.turn(host);
                let flow = &mut self.flows[place];
                (flow.set, flow.deficit) = (Set::Sparse, deficit);
            }
            Set::SparseWait => {
                self.flows[place].set = Set::Bulk;
                *self.bulk_of.entry(host).or_insert(0) += 1;
            }
            Set::Sparse | Set::Bulk => {}
        }
    }

    /// Takes a flow's first packet.
    #[inline]
    fn pull(&mut self, place: usize) -> Option<Queued<P>> {
        let flow = &mut self.flows[place];
        let first = flow.waiting.pop_front()?;
        let wire_size = first.packet.wire_size;
        flow.bytes -= wire_size;
        self.backlog.remove(wire_size);
        self.memory -= memory_of(wire_size);
        Some(first)
    }

    /// `cake_drop`: the first packet of the flow with most bytes is lost.
    #[cold]
    fn drop_from_fattest(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        let listed = self.new.iter().chain(&self.old).chain(&self.decaying);
        let fattest = |place: &usize| (self.flows[*place].bytes, Reverse(*place));
        let Some(fat) = listed.map(|place| usize::from(*place)).max_by_key(fattest) else { return };
        if let Some(lost) = self.pull(fat) {
            self.flows[fat].cobalt.on_overflow(now, &self.times);
            verdicts.lose(now, LossReason::Queue, lost.packet);
        }
    }

    /// The list whose first flow has its turn; once per packet one that decays is looked after.
    fn list(&mut self, looks_after: bool) -> Option<&mut VecDeque<u16>> {
        let lists = match looks_after {
            true => [&mut self.decaying, &mut self.new, &mut self.old],
            false => [&mut self.new, &mut self.old, &mut self.decaying],
        };
        lists.into_iter().find(|list| !list.is_empty())
    }

    /// The flow has had its turn and goes to the end.
    fn pay_in(&mut self, place: usize) {
        let host = self.flows[place].host;
        if self.flows[place].set == Set::Sparse {
            let has_packets = !self.flows[place].waiting.is_empty();
            self.flows[place].set = if has_packets { Set::Bulk } else { Set::SparseWait };
            if has_packets {
                *self.bulk_of.entry(host).or_insert(0) += 1;
            }
        }
        let turn = self.turn(host);
        self.flows[place].deficit += turn;
        self.old.push_back(place as u16);
    }

    /// The flow has no packets.
    fn retire(&mut self, place: usize, now: Instant) {
        let flow = &mut self.flows[place];
        flow.cobalt.on_empty(now, &self.times);
        if flow.set == Set::Bulk {
            leave_bulk(&mut self.bulk_of, flow.host);
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
        verdicts: &mut Verdicts<P>,
    ) -> Option<Queued<P>> {
        loop {
            let mut first = self.pull(place)?;
            let waited = now.saturating_since(first.since);
            let flow = &mut self.flows[place];
            let verdict = flow.cobalt.judge(now, waited, &self.times);
            let mut is_dropped = verdict == Verdict::Strike && !verdicts.mark(&mut first.packet);
            let probability = flow.cobalt.probability;
            is_dropped |= probability > 0.0 && self.chance.draw() < probability;
            flow.cobalt.note(now, is_dropped, &self.times);
            if !is_dropped || flow.waiting.is_empty() {
                return Some(first);
            }
            verdicts.lose(now, LossReason::Queue, first.packet);
        }
    }
}

/// What the packets may take of memory where nothing else is said.
fn memory_limit(config: &CakeConfig) -> Bytes {
    let most = Bytes::new(PACKETS * LARGEST_PACKET.as_u64());
    let usual = config.bandwidth.map_or(most, |rate| rate.bytes_in(config.rtt * 4));
    usual.max(LEAST_MEMORY).min(most)
}

/// One flow less of a host has more than its share to send.
fn leave_bulk(bulk_of: &mut BTreeMap<u32, u32>, host: u32) {
    if let Some(flows) = bulk_of.get_mut(&host) {
        *flows -= 1;
        if *flows == 0 {
            bulk_of.remove(&host);
        }
    }
}

impl<P> Qdisc<P> for Cake<P> {
    #[inline]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let (now, wire_size) = (arriving.since, arriving.packet.wire_size);
        if self.backlog.packets == 0 {
            self.shaper.wake(now);
        }
        let place = self.place(self.hash.of(&arriving.packet), arriving.packet.flow);
        let flow = &mut self.flows[place];
        flow.bytes += wire_size;
        flow.waiting.push_back(arriving);
        self.backlog.add(wire_size);
        self.memory += memory_of(wire_size);
        self.join(place);
        while self.memory > self.memory_limit || !self.limit.allows(self.backlog) {
            self.drop_from_fattest(now, verdicts);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        if self.backlog.packets == 0 || self.shaper.ready() > now {
            return None;
        }
        let mut looks_after = true;
        while self.backlog.packets > 0 {
            let place = usize::from(self.list(looks_after)?.pop_front()?);
            looks_after = false;
            if self.flows[place].deficit <= 0 {
                self.pay_in(place);
                continue;
            }
            let is_decaying = self.flows[place].set == Set::Decaying;
            let is_new = self.flows[place].set == Set::Sparse;
            let Some(first) = self.serve(place, now, verdicts) else {
                self.retire(place, now);
                continue;
            };
            debug_assert!(!is_decaying, "a flow that decays has no packets");
            // It stays where it is until its turn is over.
            let list = if is_new { &mut self.new } else { &mut self.old };
            list.push_front(place as u16);
            let wire_size = first.packet.wire_size;
            self.flows[place].deficit -= wire_size.as_u64() as i64;
            if let Some(rate) = self.rate {
                self.shaper.advance(rate.transmit_time(wire_size));
            }
            return Some(first);
        }
        None
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn ready(&self) -> Instant {
        self.shaper.ready()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use skyhop_model::Ecn;

    use super::super::trial::{Ledger, Offered, Restated, fates, train};
    use super::*;
    use crate::Packet;

    /// `cake_enqueue` and `cake_dequeue` for one tin, in plain lists; which list a flow is on is where it is found.
    struct Reference {
        ledger: Ledger,
        config: CakeConfig,
        most: usize,
        chance: Chance,
        /// Hash and host of each packet's connection.
        whose: Vec<(u32, u32)>,
        flows: Vec<Thread>,
        lists: [Vec<usize>; 3],
        next_ns: u64,
        failsafe_ns: u64,
    }

    #[derive(Clone)]
    struct Thread {
        tag: u32,
        host: u32,
        waiting: Vec<usize>,
        deficit: i64,
        set: &'static str,
        count: u64,
        dropping: bool,
        drop_next: u64,
        p_drop: f64,
        blue_timer: u64,
    }

    const NEW: usize = 0;
    const OLD: usize = 1;
    const DECAYING: usize = 2;

    impl Reference {
        fn new(config: &CakeConfig, most: usize, chance: Chance, whose: Vec<(u32, u32)>) -> Self {
            let thread = Thread {
                tag: 0,
                host: 0,
                waiting: Vec::new(),
                deficit: 0,
                set: "none",
                count: 0,
                dropping: false,
                drop_next: 0,
                p_drop: 0.0,
                blue_timer: 0,
            };
            Self {
                ledger: Ledger::default(),
                config: config.clone(),
                most,
                chance,
                whose,
                flows: vec![thread; 1024],
                lists: [Vec::new(), Vec::new(), Vec::new()],
                next_ns: 0,
                failsafe_ns: 0,
            }
        }

        fn rate(&self) -> Option<u64> {
            self.config.bandwidth.map(Rate::bits_per_second)
        }

        fn packet_ns(&self) -> u64 {
            self.rate().map_or(0, |rate| (1514 * 8_000_000_000_u64).div_ceil(rate))
        }

        fn target_ns(&self) -> u64 {
            (self.config.rtt.as_nanos() / 20).max(self.packet_ns() * 3 / 2)
        }

        fn interval_ns(&self) -> u64 {
            let rtt = self.config.rtt.as_nanos();
            (rtt + self.target_ns() - rtt / 20).max(2 * self.target_ns())
        }

        fn control(&self, f: usize, from: u64) -> u64 {
            let drops = self.flows[f].count.max(1) as f64;
            from + (self.interval_ns() as f64 / drops.sqrt()) as u64
        }

        fn quantum(&mut self, f: usize) -> i64 {
            let all = self.rate().map_or(1514, |rate| (rate / 8 / 4096).clamp(300, 1514));
            let host = self.flows[f].host;
            let is_of_host = |flow: &&Thread| flow.set == "bulk" && flow.host == host;
            let load = match self.config.isolation {
                Isolation::Flows => 1,
                Isolation::TripleIsolate => self.flows.iter().filter(is_of_host).count().max(1),
            };
            let random = self.chance.bits() >> 48;
            ((all * (65_535 / load as u64) + random) / 65_536) as i64
        }

        fn waiting(&self) -> usize {
            self.flows.iter().map(|flow| flow.waiting.len()).sum()
        }

        fn unlist(&mut self, f: usize) {
            self.lists.iter_mut().for_each(|list| list.retain(|other| *other != f));
        }

        fn move_to(&mut self, f: usize, list: usize) {
            self.unlist(f);
            self.lists[list].push(f);
        }

        fn cobalt_should_drop(&mut self, f: usize, p: usize, now: u64) -> bool {
            let waited = self.ledger.wait_ns(p, now);
            let mut is_due = self.flows[f].count > 0 && now >= self.flows[f].drop_next;
            let is_over = waited > self.target_ns() && waited > 4 * self.packet_ns();
            if is_over && !self.flows[f].dropping {
                self.flows[f].drop_next = self.control(f, now);
            }
            self.flows[f].dropping = is_over;
            if is_over && self.flows[f].count == 0 {
                self.flows[f].count = 1;
            }
            let mut drop = false;
            if is_due && is_over {
                drop = !self.ledger.mark(p);
                self.flows[f].count += 1;
                self.flows[f].drop_next = self.control(f, self.flows[f].drop_next);
            } else {
                while is_due {
                    self.flows[f].count -= 1;
                    self.flows[f].drop_next = self.control(f, self.flows[f].drop_next);
                    is_due = self.flows[f].count > 0 && now >= self.flows[f].drop_next;
                }
            }
            if self.flows[f].p_drop > 0.0 && self.chance.draw() < self.flows[f].p_drop {
                drop = true;
            }
            let interval_ns = self.interval_ns();
            let flow = &mut self.flows[f];
            if flow.count == 0 {
                flow.drop_next = now + interval_ns;
            } else if now > flow.drop_next && !drop {
                flow.drop_next = now;
            }
            drop
        }

        fn find_empty(&mut self, f: usize, now: u64) {
            let target_ns = self.target_ns();
            let flow = &mut self.flows[f];
            if flow.p_drop > 0.0 && now - flow.blue_timer > target_ns {
                flow.p_drop = (flow.p_drop - 1.0 / 4096.0).max(0.0);
                flow.blue_timer = now;
            }
            flow.dropping = false;
            if flow.count > 0 && now >= flow.drop_next {
                flow.count -= 1;
                self.flows[f].drop_next = self.control(f, self.flows[f].drop_next);
            }
            let flow = &mut self.flows[f];
            if flow.p_drop > 0.0 || flow.count > 0 || now < flow.drop_next {
                flow.set = "decaying";
                self.move_to(f, DECAYING);
            } else {
                flow.set = "none";
                self.unlist(f);
            }
        }
    }

    impl Restated for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            if self.waiting() == 0 && self.next_ns < now {
                (self.next_ns, self.failsafe_ns) = (now, now);
            }
            let (tag, host) = self.whose[number];
            let first = tag as usize % 1024;
            let ways: Vec<usize> = (0..8).map(|k| first / 8 * 8 + (first + k) % 8).collect();
            let own = ways.iter().find(|way| self.flows[**way].tag == tag);
            let free = ways.iter().find(|way| self.flows[**way].set == "none");
            let f = *own.or(free).unwrap_or(&first);
            (self.flows[f].tag, self.flows[f].host) = (tag, host);
            self.flows[f].waiting.push(number);
            match self.flows[f].set {
                "none" | "decaying" => {
                    self.move_to(f, NEW);
                    self.flows[f].deficit = self.quantum(f);
                    self.flows[f].set = "sparse";
                }
                "wait" => self.flows[f].set = "bulk",
                _ => {}
            }
            while self.waiting() > self.most {
                let bytes = |f: &usize| self.ledger.sum(&self.flows[*f].waiting);
                let fat = (0..1024).rev().max_by_key(bytes).unwrap();
                let lost = self.flows[fat].waiting.remove(0);
                self.ledger.drop(lost, now);
                let target_ns = self.target_ns();
                let flow = &mut self.flows[fat];
                if now - flow.blue_timer > target_ns {
                    flow.p_drop = (flow.p_drop + 1.0 / 256.0).min(1.0);
                    flow.blue_timer = now;
                }
                (flow.dropping, flow.drop_next) = (true, now);
                flow.count = flow.count.max(1);
            }
        }

        fn dequeue(&mut self, now: u64) {
            if self.next_ns > now && self.failsafe_ns > now {
                return;
            }
            let mut is_first = true;
            while self.waiting() > 0 {
                let order = if is_first { [DECAYING, NEW, OLD] } else { [NEW, OLD, DECAYING] };
                is_first = false;
                let list = order.into_iter().find(|list| !self.lists[*list].is_empty()).unwrap();
                let f = self.lists[list][0];
                if self.flows[f].deficit <= 0 {
                    let is_empty = self.flows[f].waiting.is_empty();
                    if self.flows[f].set == "sparse" {
                        self.flows[f].set = if is_empty { "wait" } else { "bulk" };
                    }
                    self.flows[f].deficit += self.quantum(f);
                    self.move_to(f, OLD);
                    continue;
                }
                if self.flows[f].waiting.is_empty() {
                    self.find_empty(f, now);
                    continue;
                }
                loop {
                    let p = self.flows[f].waiting.remove(0);
                    let drop = self.cobalt_should_drop(f, p, now);
                    if !drop || self.flows[f].waiting.is_empty() {
                        let bytes = self.ledger.bytes(p);
                        self.ledger.leave(p, now);
                        self.flows[f].deficit -= bytes as i64;
                        if let Some(rate) = self.rate() {
                            let took = (bytes * 8_000_000_000).div_ceil(rate);
                            self.next_ns += took;
                            self.failsafe_ns += took + took / 2;
                        }
                        return;
                    }
                    self.ledger.drop(p, now);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(64)))]

        #[test]
        fn it_does_what_linux_does(
            train in train(),
            bandwidth in prop::option::of(500_000_u64..40_000_000),
            (rtt_ms, is_shared) in (1_u64..100, any::<bool>()),
            most in 1_usize..100,
        ) {
            let config = CakeConfig {
                bandwidth: bandwidth.map(Rate::from_bits_per_second),
                rtt: Duration::from_millis(rtt_ms),
                isolation: if is_shared { Isolation::Flows } else { Isolation::TripleIsolate },
                memory: None,
            };
            let qdisc = Cake::new(&config, Limit::Packets(most as u64), 3);
            let mut chance = Chance::of_queue(3);
            FlowHash::drawn(&mut chance);
            let whose = |offered: &Offered| (qdisc.hash.of(&offered.packet()), offered.flow);
            let whose = train.0.iter().map(whose).collect();
            let reference = Reference::new(&config, most, chance, whose);
            let [qdisc, reference] = fates(qdisc, reference, &train);
            prop_assert_eq!(qdisc, reference);
        }
    }

    fn of(host: u32, connection: u16) -> Packet<(u32, u16)> {
        let packet = Packet::new(LARGEST_PACKET, (host, connection));
        packet.of(host, Ecn::Ect0).over(connection)
    }

    /// How many packets of each of two hosts leave in 4 s at 24.224 Mbit/s, of which one has four connections that fill the
    /// queue and the other one; the wait of the last; and how many were marked.
    fn shares(isolation: Isolation) -> ([u64; 2], Duration, u64) {
        let bandwidth = Some(Rate::from_bits_per_second(24_224_000));
        let config = CakeConfig { bandwidth, isolation, ..CakeConfig::default() };
        let mut cake = Cake::new(&config, Limit::Packets(1_000), 3);
        let (mut verdicts, mut left, mut wait) = (Verdicts::new(), [0; 2], Duration::ZERO);
        for round in 0..8_000_u64 {
            let now = Instant::from_nanos(round * 500_000);
            for (host, connection) in [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)] {
                let packet = of(host, connection);
                cake.enqueue(Queued { since: now, packet }, &mut verdicts);
            }
            while let Some(first) = cake.dequeue(now, &mut verdicts) {
                left[first.packet.payload.0 as usize] += 1;
                wait = now.saturating_since(first.since);
            }
        }
        (left, wait, verdicts.marks())
    }

    #[test]
    fn hosts_share_alike_and_connections_only_where_asked() {
        let ([one, other], _, marks) = shares(Isolation::TripleIsolate);
        assert!((7_990..=8_001).contains(&(one + other)), "the shaper's rate: {}", one + other);
        assert!((0.95..1.05).contains(&(one as f64 / other as f64)), "{one} and {other}");
        assert!(marks > 100, "{marks} marks");
        let ([one, other], ..) = shares(Isolation::Flows);
        assert!((0.24..0.26).contains(&(one as f64 / other as f64)), "{one} and {other}");
    }

    #[test]
    fn connections_find_queues_of_their_own_where_a_plain_hash_has_them_meet() {
        let mut cake = Cake::new(&CakeConfig::default(), Limit::Packets(10_000), 3);
        let mut verdicts = Verdicts::new();
        for connection in 0..400 {
            let packet = of(1, connection);
            cake.enqueue(Queued { since: Instant::START, packet }, &mut verdicts);
        }
        assert!(cake.new.len() >= 395, "{} queues for 400 connections", cake.new.len());
    }

    #[test]
    fn what_does_not_answer_is_dropped_at_random_in_the_end() {
        let bandwidth = Some(Rate::from_bits_per_second(12_112_000));
        let config = CakeConfig { bandwidth, ..CakeConfig::default() };
        let mut cake = Cake::new(&config, Limit::Packets(50), 3);
        let mut verdicts = Verdicts::new();
        let mut waits = Vec::new();
        for round in 0..60_000_u64 {
            let now = Instant::from_nanos(round * 500_000);
            cake.enqueue(Queued { since: now, packet: of(1, 1) }, &mut verdicts);
            while let Some(first) = cake.dequeue(now, &mut verdicts) {
                waits.push(now.saturating_since(first.since));
            }
        }
        // Twice the rate: BLUE comes to about a half.
        let place = cake.flows.iter().find(|flow| flow.tag != 0).expect("one flow");
        assert!((0.3..0.7).contains(&place.cobalt.probability), "{}", place.cobalt.probability);
        assert!(waits.len() > 29_000, "{} left", waits.len());
    }
}
