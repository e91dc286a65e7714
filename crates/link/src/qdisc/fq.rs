//! Fair queueing of Linux (`net/sched/sch_fq.c` of 6.8 and later): connections are served by deficit round
//! robin, new ones first with a larger quantum, and each may be limited to a rate. A link only forwards
//! packets; Linux assigns forwarded packets to flows by 1024 values of a hash. The pacing rate of the sending
//! socket is unknown to a link. All packets are in one band.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate};

use super::flow_hash::FlowHash;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::rng::LinkRng;
use crate::stats::Verdicts;

/// The parameters of `fq`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FqConfig {
    /// Number of values of the hash of connections, a power of two: Linux's `orphan_mask` plus one.
    pub flows: NonZeroU32,
    /// Limit of packets in the queue of one flow.
    pub flow_limit: NonZeroU32,
    /// Bytes that a flow sends per round.
    pub quantum: Bytes,
    /// Bytes that a new flow sends in its first round.
    pub initial_quantum: Bytes,
    /// Largest rate of each flow; unlimited if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxrate: Option<Rate>,
    /// Rate limit up to which a flow sends one packet per round.
    pub low_rate_threshold: Rate,
    /// Time after which an idle flow's credit is refilled to a full quantum.
    pub refill_delay: Duration,
    /// Delay, since the packet might have been sent, beyond which ECN-capable packets are marked; never if not
    /// given.
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
            return Some(
                "maxrate is zero, so that no packet could ever leave; leave it out for no limit",
            );
        }
        (self.quantum == Bytes::ZERO).then_some(super::fq_codel::NO_QUANTUM)
    }
}

/// Largest number of packets in the internal queue, which bypasses the flows while none of them has packets.
const MAX_INTERNAL: usize = 8;
/// Longest time for which one packet may throttle its flow.
const MAX_THROTTLE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Fq<P> {
    config: FqConfig,
    limit: Limit,
    hash: FlowHash,
    flows: Box<[Flow<P>]>,
    /// Queue of packets that bypass the flows (Linux's `internal` flow).
    internal: VecDeque<Queued<P>>,
    /// Indices of flows, in the order in which they are served.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    /// Indices of throttled flows, which wait for their next send time.
    throttled: Vec<u32>,
    /// Earliest send time of the throttled flows.
    next_release: Instant,
    /// Number of flows that have packets and are not throttled.
    active: usize,
    backlog: Backlog,
}

#[derive(Debug)]
struct Flow<P> {
    waiting: VecDeque<Queued<P>>,
    credit: i64,
    /// Earliest time of its next packet, set by its rate limit.
    next_packet: Instant,
    list_state: ListState,
}

/// List that a flow is on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ListState {
    /// Flow on no list: empty, since that time if it ever had packets.
    Detached { since: Option<Instant> },
    /// Flow on the new or the old list.
    Listed,
    /// Throttled until its next send time.
    Throttled,
}

impl<P> Fq<P> {
    pub(crate) fn new(config: &FqConfig, limit: Limit, seed: u64) -> Self {
        let flow = || Flow {
            waiting: VecDeque::new(),
            credit: config.initial_quantum.as_u64() as i64,
            next_packet: Instant::START,
            list_state: ListState::Detached { since: None },
        };
        let flows = config.flows.get() as usize;
        Self {
            hash: FlowHash::random(&mut LinkRng::for_queue(seed)),
            flows: std::iter::repeat_with(flow).take(flows).collect(),
            config: config.clone(),
            limit,
            internal: VecDeque::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            throttled: Vec::new(),
            next_release: Instant::NEVER,
            active: 0,
            backlog: Backlog::default(),
        }
    }

    /// Whether a packet may bypass the flows: `fq_fastpath_check`.
    #[inline]
    fn may_bypass(&self, now: Instant) -> bool {
        let is_quiet =
            self.active == 0 && self.internal.len() < MAX_INTERNAL && self.next_release > now;
        (self.backlog.packets == 0 || is_quiet) && self.config.maxrate.is_none()
    }

    /// Return throttled flows that are due to the old list: `fq_check_throttled`.
    #[inline]
    fn release(&mut self, now: Instant) {
        if self.next_release > now {
            return;
        }
        let Self { flows, throttled, .. } = self;
        throttled.sort_by_key(|flow| flows[*flow as usize].next_packet);
        let due = throttled.partition_point(|flow| flows[*flow as usize].next_packet <= now);
        for flow in throttled.drain(..due) {
            flows[flow as usize].list_state = ListState::Listed;
            self.old.push_back(flow);
            self.active += 1;
        }
        self.next_release =
            throttled.first().map_or(Instant::NEVER, |flow| flows[*flow as usize].next_packet);
    }

    /// Remove the first flow from its list; return whether it was on the new list.
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

    /// Return a packet of the first flow; `None` if another flow is first now.
    #[inline]
    fn serve(&mut self, index: u32, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        let flow = &mut self.flows[index as usize];
        if flow.credit <= 0 {
            flow.credit += self.config.quantum.as_u64() as i64;
            self.unlist_first();
            self.old.push_back(index);
            return None;
        }
        let Some(head) = flow.waiting.front() else {
            // An emptied new flow moves to the old list, so that it cannot regain priority.
            if self.unlist_first() {
                self.old.push_back(index);
            } else {
                self.flows[index as usize].list_state = ListState::Detached { since: Some(now) };
            }
            return None;
        };
        let due = head.since.max(flow.next_packet);
        if now < due {
            flow.list_state = ListState::Throttled;
            flow.next_packet = due;
            self.next_release = self.next_release.min(due);
            self.unlist_first();
            self.throttled.push(index);
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
    /// Charge the flow for a packet that it sends, and set its next send time if its rate is limited.
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
        let mut gap = rate.transmit_time(paid).min(MAX_THROTTLE);
        if self.next_packet > Instant::START {
            // A flow that sends late makes up for at most half of the gap between packets.
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
        if self.may_bypass(now) {
            self.backlog = with_it;
            self.internal.push_back(arriving);
            return;
        }
        let index = self.hash.masked(&arriving.packet, self.flows.len());
        let flow = &mut self.flows[index];
        if flow.waiting.len() >= self.config.flow_limit.get() as usize {
            verdicts.lose(now, LossReason::Queue, arriving.packet);
            return;
        }
        if let ListState::Detached { since } = flow.list_state {
            let is_rested = since.is_none_or(|since| now > since + self.config.refill_delay);
            if is_rested {
                flow.credit = flow.credit.max(self.config.quantum.as_u64() as i64);
            }
            flow.list_state = ListState::Listed;
            self.new.push_back(index as u32);
        }
        if flow.waiting.is_empty() && flow.list_state == ListState::Listed {
            self.active += 1;
        }
        self.backlog = with_it;
        flow.waiting.push_back(arriving);
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        let first = match self.internal.pop_front() {
            Some(first) => first,
            None => {
                self.release(now);
                loop {
                    let index = *self.new.front().or(self.old.front())?;
                    if let Some(first) = self.serve(index, now, verdicts) {
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

    use super::super::trial::{Ledger, Offered, ReferenceQdisc, fates, train};
    use super::*;
    use crate::Packet;

    /// `fq_enqueue` and `fq_dequeue` on plain lists of packet numbers.
    struct Reference {
        ledger: Ledger,
        config: FqConfig,
        most: usize,
        flow_of: Vec<usize>,
        internal: Vec<usize>,
        flows: Vec<Thread>,
        new: Vec<usize>,
        old: Vec<usize>,
        throttled: Vec<usize>,
    }

    #[derive(Clone)]
    struct Thread {
        waiting: Vec<usize>,
        credit: i64,
        next_ns: u64,
        emptied_ns: Option<u64>,
    }

    impl Reference {
        fn may_bypass(&self, now: u64) -> bool {
            let is_active = |f: &usize| !self.flows[*f].waiting.is_empty();
            let is_due = |f: &usize| self.flows[*f].next_ns <= now;
            let is_quiet = !self.new.iter().chain(&self.old).any(is_active)
                && self.internal.len() < 8
                && !self.throttled.iter().any(is_due);
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

    impl ReferenceQdisc for Reference {
        fn ledger(&mut self) -> &mut Ledger {
            &mut self.ledger
        }

        fn enqueue(&mut self, now: u64, number: usize) {
            let in_flows: usize = self.flows.iter().map(|flow| flow.waiting.len()).sum();
            if in_flows + self.internal.len() >= self.most {
                self.ledger.drop(number, now);
                return;
            }
            if self.may_bypass(now) {
                self.internal.push(number);
                return;
            }
            let f = self.flow_of[number];
            let flow = &mut self.flows[f];
            if flow.waiting.len() == self.config.flow_limit.get() as usize {
                self.ledger.drop(number, now);
                return;
            }
            if ![&self.new, &self.old, &self.throttled].iter().any(|list| list.contains(&f)) {
                self.new.push(f);
                let rest = self.config.refill_delay.as_nanos();
                if flow.emptied_ns.is_none_or(|emptied| now > emptied + rest) {
                    flow.credit = flow.credit.max(self.config.quantum.as_u64() as i64);
                }
            }
            flow.waiting.push(number);
        }

        fn dequeue(&mut self, now: u64) {
            if !self.internal.is_empty() {
                let first = self.internal.remove(0);
                self.ledger.leave(first, now);
                return;
            }
            self.throttled.sort_by_key(|f| self.flows[*f].next_ns);
            while self.throttled.first().is_some_and(|f| self.flows[*f].next_ns <= now) {
                self.old.push(self.throttled.remove(0));
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
                    self.throttled.push(f);
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
                internal: Vec::new(),
                flows: vec![thread; config.flows.get() as usize],
                new: Vec::new(),
                old: Vec::new(),
                throttled: Vec::new(),
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
            let packet = Packet::new(LARGEST_PACKET, number).with_flow(1, Ecn::NotEct);
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
        // From then on a turn has two packets of a millisecond each.
        assert_eq!(now, Instant::START + Duration::from_millis(90));
    }
}
