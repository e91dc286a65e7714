//! Fair queueing of Linux (`net/sched/sch_fq.c`, that of 6.8 and later): connections have turns by bytes, new ones first
//! with more of them, and each may be held to a rate. What it forwards rather than sends itself it tells apart by 1024
//! values of a hash, and a link forwards all; the rate of a sending socket is unknown here too. All packets are of one band.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate};

use super::flow_hash::FlowHash;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::chance::Chance;
use crate::stats::Verdicts;

/// The parameters of `fq`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FqConfig {
    /// How many values the hash of connections has, a power of two: Linux's `orphan_mask` and one.
    pub flows: NonZeroU32,
    /// Packets of one flow.
    pub flow_limit: NonZeroU32,
    /// Bytes that a flow sends in a turn.
    pub quantum: Bytes,
    /// Bytes that a flow sends in its first turn.
    pub initial_quantum: Bytes,
    /// No flow is faster than this; none is held where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxrate: Option<Rate>,
    /// A flow that is held to no more than this has a turn for each packet.
    pub low_rate_threshold: Rate,
    /// A flow that was empty for longer has a whole turn again.
    pub refill_delay: Duration,
    /// Packets that speak ECN are marked if they have waited longer than this since they might have been sent; never where
    /// not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<Duration>,
}

impl Default for FqConfig {
    fn default() -> Self {
        let number = |n| NonZeroU32::new(n).expect("not zero");
        Self {
            flows: number(1024),
            flow_limit: number(100),
            quantum: Bytes::new(2 * LARGEST_PACKET.as_u64()),
            initial_quantum: Bytes::new(10 * LARGEST_PACKET.as_u64()),
            maxrate: None,
            low_rate_threshold: Rate::from_bits_per_second(550_000),
            refill_delay: Duration::from_millis(40),
            ce_threshold: None,
        }
    }
}

impl Parameters for FqConfig {
    fn fault(&self) -> Option<&'static str> {
        if !self.flows.is_power_of_two() {
            return Some("flows is not a power of two; give one, such as 1024");
        }
        if self.maxrate == Some(Rate::ZERO) {
            return Some("maxrate is zero, so that nothing ever left; leave it out");
        }
        (self.quantum == Bytes::ZERO).then_some(super::fq_codel::NO_QUANTUM)
    }
}

/// As many packets pass by the flows while none of these has anything.
const MOST_ASIDE: usize = 8;
/// A flow is never held for longer at a time.
const MOST_HELD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Fq<P> {
    config: FqConfig,
    limit: Limit,
    hash: FlowHash,
    flows: Box<[Flow<P>]>,
    /// Packets that pass by the flows.
    aside: VecDeque<Queued<P>>,
    /// Flows in the order of their turns.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    /// Flows that are held.
    held: Vec<u32>,
    /// When the first of these may send.
    next_release: Instant,
    /// How many flows have packets, and are not held.
    active: usize,
    backlog: Backlog,
}

#[derive(Debug)]
struct Flow<P> {
    waiting: VecDeque<Queued<P>>,
    credit: i64,
    /// When its next packet may be sent, where it was held to a rate.
    next_packet: Instant,
    place: Place,
}

/// Where a flow is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    /// Nowhere, empty, since.
    Detached { since: Option<Instant> },
    /// Among those with turns.
    Listed,
    /// Among those held.
    Held,
}

impl<P> Fq<P> {
    pub(crate) fn new(config: &FqConfig, limit: Limit, seed: u64) -> Self {
        let flow = || Flow {
            waiting: VecDeque::new(),
            credit: config.initial_quantum.as_u64() as i64,
            next_packet: Instant::START,
            place: Place::Detached { since: None },
        };
        let flows = config.flows.get() as usize;
        Self {
            hash: FlowHash::drawn(&mut Chance::of_queue(seed)),
            flows: std::iter::repeat_with(flow).take(flows).collect(),
            config: config.clone(),
            limit,
            aside: VecDeque::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            held: Vec::new(),
            next_release: Instant::NEVER,
            active: 0,
            backlog: Backlog::default(),
        }
    }

    /// `fq_fastpath_check`
    #[inline]
    fn may_pass_by(&self, now: Instant) -> bool {
        let is_quiet = self.active == 0 && self.aside.len() < MOST_ASIDE && self.next_release > now;
        (self.backlog.packets == 0 || is_quiet) && self.config.maxrate.is_none()
    }

    /// Lets those have turns again that were held until now: `fq_check_throttled`.
    #[inline]
    fn release(&mut self, now: Instant) {
        if self.next_release > now {
            return;
        }
        let Self { flows, held, .. } = self;
        held.sort_by_key(|flow| flows[*flow as usize].next_packet);
        let due = held.partition_point(|flow| flows[*flow as usize].next_packet <= now);
        for flow in held.drain(..due) {
            flows[flow as usize].place = Place::Listed;
            self.old.push_back(flow);
            self.active += 1;
        }
        self.next_release =
            held.first().map_or(Instant::NEVER, |flow| flows[*flow as usize].next_packet);
    }

    /// Takes the flow whose turn it is off its list.
    #[inline]
    fn unlist_first(&mut self) -> bool {
        let is_new = !self.new.is_empty();
        if is_new {
            self.new.pop_front()
        } else {
            self.old.pop_front()
        };
        is_new
    }

    /// The packet of the flow whose turn it is; `None` where another has its turn now.
    #[inline]
    fn serve(&mut self, place: u32, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        let flow = &mut self.flows[place as usize];
        if flow.credit <= 0 {
            flow.credit += self.config.quantum.as_u64() as i64;
            self.unlist_first();
            self.old.push_back(place);
            return None;
        }
        let Some(head) = flow.waiting.front() else {
            // One that is new still waits for the old ones' turns.
            if self.unlist_first() {
                self.old.push_back(place);
            } else {
                self.flows[place as usize].place = Place::Detached { since: Some(now) };
            }
            return None;
        };
        let due = head.since.max(flow.next_packet);
        if now < due {
            flow.place = Place::Held;
            flow.next_packet = due;
            self.next_release = self.next_release.min(due);
            self.unlist_first();
            self.held.push(place);
            self.active -= 1;
            return None;
        }
        let mut first = flow.waiting.pop_front()?;
        let is_late = |most: Duration| now.saturating_since(due) > most;
        if self.config.ce_threshold.is_some_and(is_late) {
            verdicts.mark(&mut first.packet);
        }
        flow.spend(&self.config, now, first.packet.wire_size);
        if flow.waiting.is_empty() {
            self.active -= 1;
        }
        Some(first)
    }
}

impl<P> Flow<P> {
    /// A packet of it is sent, and the next must wait where there is a rate.
    #[inline]
    fn spend(&mut self, config: &FqConfig, now: Instant, wire_size: Bytes) {
        self.credit -= wire_size.as_u64() as i64;
        let Some(rate) = config.maxrate else { return };
        let mut paid = wire_size;
        if rate <= config.low_rate_threshold {
            self.credit = 0;
        } else {
            paid = paid.max(config.quantum);
            if self.credit > 0 {
                return;
            }
        }
        let mut gap = rate.transmit_time(paid).min(MOST_HELD);
        if self.next_packet > Instant::START {
            // What it was late, but no more than half of it.
            let late = now.saturating_since(self.next_packet);
            gap = gap.saturating_sub(late.min(gap / 2));
        }
        self.next_packet = now + gap;
    }
}

impl<P> Qdisc<P> for Fq<P> {
    #[inline]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let now = arriving.since;
        let mut with_it = self.backlog;
        with_it.add(arriving.packet.wire_size);
        if !self.limit.allows(with_it) {
            verdicts.lose(now, LossReason::Queue, arriving.packet);
            return;
        }
        if self.may_pass_by(now) {
            self.backlog = with_it;
            self.aside.push_back(arriving);
            return;
        }
        let place = self.hash.masked(&arriving.packet, self.flows.len());
        let flow = &mut self.flows[place];
        if flow.waiting.len() >= self.config.flow_limit.get() as usize {
            verdicts.lose(now, LossReason::Queue, arriving.packet);
            return;
        }
        if let Place::Detached { since } = flow.place {
            let is_rested = since.is_none_or(|since| now > since + self.config.refill_delay);
            if is_rested {
                flow.credit = flow.credit.max(self.config.quantum.as_u64() as i64);
            }
            flow.place = Place::Listed;
            self.new.push_back(place as u32);
        }
        if flow.waiting.is_empty() && flow.place == Place::Listed {
            self.active += 1;
        }
        self.backlog = with_it;
        flow.waiting.push_back(arriving);
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        let first = match self.aside.pop_front() {
            Some(first) => first,
            None => {
                self.release(now);
                loop {
                    let place = *self.new.front().or(self.old.front())?;
                    if let Some(first) = self.serve(place, now, verdicts) {
                        break first;
                    }
                }
            }
        };
        self.backlog.remove(first.packet.wire_size);
        Some(first)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn ready(&self) -> Instant {
        self.next_release
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use skyhop_model::Ecn;

    use super::super::trial::{Ledger, Offered, Restated, fates, train};
    use super::*;
    use crate::Packet;

    /// `fq_enqueue` and `fq_dequeue` in plain lists.
    struct Reference {
        ledger: Ledger,
        config: FqConfig,
        most: usize,
        flow_of: Vec<usize>,
        aside: Vec<usize>,
        flows: Vec<Thread>,
        new: Vec<usize>,
        old: Vec<usize>,
        held: Vec<usize>,
    }

    #[derive(Clone)]
    struct Thread {
        waiting: Vec<usize>,
        credit: i64,
        next_ns: u64,
        emptied_ns: Option<u64>,
    }

    impl Reference {
        fn may_pass_by(&self, now: u64) -> bool {
            let is_active = |f: &usize| !self.flows[*f].waiting.is_empty();
            let is_due = |f: &usize| self.flows[*f].next_ns <= now;
            let is_quiet = !self.new.iter().chain(&self.old).any(is_active)
                && self.aside.len() < 8
                && !self.held.iter().any(is_due);
            self.config.maxrate.is_none() && is_quiet
        }

        fn pay(&mut self, f: usize, bytes: u64, now: u64) {
            let quantum = self.config.quantum.as_u64();
            let flow = &mut self.flows[f];
            flow.credit -= bytes as i64;
            let Some(rate) = self.config.maxrate else { return };
            let is_slow = rate <= self.config.low_rate_threshold;
            if is_slow {
                flow.credit = 0;
            } else if flow.credit > 0 {
                return;
            }
            let paid = if is_slow { bytes } else { bytes.max(quantum) };
            let gap = (8_000_000_000 * paid).div_ceil(rate.bits_per_second()).min(1_000_000_000);
            let late = if flow.next_ns == 0 { 0 } else { now - flow.next_ns };
            flow.next_ns = now + gap - late.min(gap / 2);
        }
    }

    impl Restated for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            let in_flows: usize = self.flows.iter().map(|flow| flow.waiting.len()).sum();
            if in_flows + self.aside.len() >= self.most {
                self.ledger.drop(number, now);
                return;
            }
            if self.may_pass_by(now) {
                self.aside.push(number);
                return;
            }
            let f = self.flow_of[number];
            let flow = &mut self.flows[f];
            if flow.waiting.len() == self.config.flow_limit.get() as usize {
                self.ledger.drop(number, now);
                return;
            }
            if ![&self.new, &self.old, &self.held].iter().any(|list| list.contains(&f)) {
                self.new.push(f);
                let rest = self.config.refill_delay.as_nanos();
                if flow.emptied_ns.is_none_or(|emptied| now > emptied + rest) {
                    flow.credit = flow.credit.max(self.config.quantum.as_u64() as i64);
                }
            }
            flow.waiting.push(number);
        }

        fn dequeue(&mut self, now: u64) {
            if !self.aside.is_empty() {
                let first = self.aside.remove(0);
                self.ledger.leave(first, now);
                return;
            }
            self.held.sort_by_key(|f| self.flows[*f].next_ns);
            while self.held.first().is_some_and(|f| self.flows[*f].next_ns <= now) {
                self.old.push(self.held.remove(0));
            }
            loop {
                let is_new = !self.new.is_empty();
                let list = if is_new { &mut self.new } else { &mut self.old };
                let Some(f) = list.first().copied() else { return };
                let flow = &mut self.flows[f];
                if flow.credit <= 0 {
                    flow.credit += self.config.quantum.as_u64() as i64;
                    list.remove(0);
                    self.old.push(f);
                } else if flow.waiting.is_empty() {
                    list.remove(0);
                    if is_new {
                        self.old.push(f);
                    } else {
                        flow.emptied_ns = Some(now);
                    }
                } else if flow.next_ns > now {
                    list.remove(0);
                    self.held.push(f);
                } else {
                    let first = flow.waiting.remove(0);
                    let might_ns = flow.next_ns.max(now - self.ledger.wait_ns(first, now));
                    let most = self.config.ce_threshold.map(Duration::as_nanos);
                    if most.is_some_and(|most| now - might_ns > most) {
                        self.ledger.mark(first);
                    }
                    self.ledger.leave(first, now);
                    self.pay(f, self.ledger.bytes(first), now);
                    return;
                }
            }
        }
    }

    fn config() -> impl Strategy<Value = FqConfig> {
        let number = |n| NonZeroU32::new(n).unwrap();
        let maxrate = prop::option::of(100_000_u64..20_000_000);
        let threshold = prop::option::of((0_u64..40).prop_map(Duration::from_millis));
        let bytes = (100_u64..4_000, 0_u64..20_000);
        (0_u32..4, 1_u32..40, bytes, maxrate, 0_u64..50, threshold).prop_map(
            move |(flows, flow_limit, (quantum, initial), maxrate, rest, ce_threshold)| FqConfig {
                flows: number(1 << flows),
                flow_limit: number(flow_limit),
                quantum: Bytes::new(quantum),
                initial_quantum: Bytes::new(initial),
                maxrate: maxrate.map(Rate::from_bits_per_second),
                low_rate_threshold: Rate::from_bits_per_second(550_000),
                refill_delay: Duration::from_millis(rest),
                ce_threshold,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(256)))]

        #[test]
        fn it_does_what_linux_does(train in train(), config in config(), most in 1_usize..80) {
            let qdisc = Fq::new(&config, Limit::Packets(most as u64), 3);
            let flow = |offered: &Offered| qdisc.hash.masked(&offered.packet(), qdisc.flows.len());
            let thread = Thread {
                waiting: Vec::new(),
                credit: config.initial_quantum.as_u64() as i64,
                next_ns: 0,
                emptied_ns: None,
            };
            let reference = Reference {
                ledger: Ledger::default(),
                config: config.clone(),
                most,
                flow_of: train.0.iter().map(flow).collect(),
                aside: Vec::new(),
                flows: vec![thread; config.flows.get() as usize],
                new: Vec::new(),
                old: Vec::new(),
                held: Vec::new(),
            };
            let [qdisc, reference] = fates(qdisc, reference, &train);
            prop_assert_eq!(qdisc, reference);
        }
    }

    #[test]
    fn a_flow_leaves_at_its_rate_and_says_when_it_is_next() {
        let maxrate = Some(Rate::from_bits_per_second(12_112_000));
        let mut qdisc =
            Fq::new(&FqConfig { maxrate, ..FqConfig::default() }, Limit::Packets(200), 3);
        let mut verdicts = Verdicts::new();
        for number in 0..100 {
            let packet = Packet::new(LARGEST_PACKET, number).of(1, Ecn::NotEct);
            qdisc.enqueue(Queued { since: Instant::START, packet }, &mut verdicts);
        }
        let (mut now, mut sent) = (Instant::START, 0_u32);
        let mut first_turn = 0;
        while qdisc.backlog().packets > 0 {
            match qdisc.dequeue(now, &mut verdicts) {
                Some(_) => sent += 1,
                None => {
                    assert!(qdisc.ready() > now, "{} at {now}", qdisc.ready());
                    first_turn = if first_turn == 0 { sent } else { first_turn };
                    now = qdisc.ready();
                }
            }
        }
        assert_eq!(
            (sent, first_turn),
            (100, 10),
            "ten packets at once, as Linux lets a new flow send"
        );
        // Two packets of a millisecond each per turn from then on.
        assert_eq!(now, Instant::START + Duration::from_millis(90));
    }
}
