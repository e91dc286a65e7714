//! Controlled delay (RFC 8289): drops packets at the head once packets have waited longer than a target for an
//! interval, and drops more often the longer that state lasts. With `ecn` it marks ECN-capable packets instead,
//! as Linux's sch_codel does; its limit is the link's queue.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{Ecn, LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant};

use super::fifo::Fifo;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::stats::Verdicts;

/// Backlog of one full packet (MTU): from at most this backlog no packet is dropped (RFC 8289 5.3).
const FLOOR: Bytes = LARGEST_PACKET;
/// Re-entering the dropping state within this many intervals resumes near the previous drop rate (RFC 8289
/// 5.5).
const REMEMBERED_INTERVALS: u64 = 16;

/// The parameters of `codel`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodelConfig {
    /// CoDel TARGET (RFC 8289 4.3): acceptable time in the queue.
    pub target: Duration,
    /// CoDel INTERVAL (RFC 8289 4.3): how long the sojourn time may exceed `target`; about the maximum RTT.
    pub interval: Duration,
    /// Whether ECN-capable packets are marked rather than dropped.
    pub ecn: bool,
    /// Time in the queue beyond which ECN-capable packets are marked, independent of `ecn` and `interval`;
    /// never if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<Duration>,
}

impl Default for CodelConfig {
    fn default() -> Self {
        let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
        Self { target, interval, ecn: false, ce_threshold: None }
    }
}

impl Parameters for CodelConfig {}

/// Queue from which CoDel takes packets: the queue of one flow, or of all flows.
pub(super) trait Source<P> {
    /// Remove and return the packet that has waited longest.
    fn pull(&mut self) -> Option<Queued<P>>;

    /// Backlog in bytes after that packet, which CoDel compares with the MTU.
    fn backlog_bytes(&self) -> Bytes;
}

impl<P> Source<P> for Fifo<P> {
    #[inline]
    fn pull(&mut self) -> Option<Queued<P>> {
        self.pop()
    }

    #[inline]
    fn backlog_bytes(&self) -> Bytes {
        self.backlog().bytes
    }
}

/// State variables of RFC 8289 5.1, with its names.
#[derive(Debug, Clone, Default)]
pub(super) struct Control {
    /// Time at which the sojourn time will have exceeded `target` for an interval; `None` while it does not
    /// exceed `target`.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    /// Number of drops since the dropping state was entered, and its value on entry.
    count: u32,
    last_count: u32,
}

/// Packet at the head of the queue, and whether it may be dropped.
struct Head<P> {
    queued: Option<Queued<P>>,
    may_drop: bool,
}

impl Control {
    /// Return the next packet (`dequeue` of RFC 8289 5.5), after dropping or marking as the control law
    /// demands.
    #[inline]
    pub(super) fn dequeue<P>(
        &mut self,
        config: &CodelConfig,
        now: Instant,
        source: &mut impl Source<P>,
        verdicts: &mut Verdicts<P>,
    ) -> Option<Queued<P>> {
        let mut args = DequeueArgs { config, now, source, verdicts };
        let mut head = self.pull(&mut args);
        if self.dropping {
            self.continue_dropping(&mut args, &mut head);
        } else if head.may_drop {
            self.begin_dropping(&mut args, &mut head);
        }
        if let Some(threshold) = config.ce_threshold
            && let Some(leaving) = &mut head.queued
            && now.saturating_since(leaving.since) > threshold
            && leaving.packet.ecn() != Ecn::Ce
        {
            verdicts.mark(&mut leaving.packet);
        }
        head.queued
    }

    /// Count drops for lack of room, as Linux's fq_codel does, so that CoDel drops more often.
    pub(super) fn add_drops(&mut self, drops: u32) {
        self.count += drops;
    }

    /// Remove the head and decide whether it may be dropped: `dodequeue` of RFC 8289 5.3.
    #[inline]
    fn pull<P>(&mut self, args: &mut DequeueArgs<'_, P, impl Source<P>>) -> Head<P> {
        let queued = args.source.pull();
        let waited = queued.as_ref().map(|queued| args.now.saturating_since(queued.since));
        let is_above = waited.is_some_and(|waited| waited >= args.config.target)
            && args.source.backlog_bytes() > FLOOR;
        let may_drop = match self.first_above {
            _ if !is_above => {
                self.first_above = None;
                false
            }
            Some(at) => args.now >= at,
            None => {
                self.first_above = Some(args.now + args.config.interval);
                false
            }
        };
        Head { queued, may_drop }
    }

    /// Mark the head if possible and return true; otherwise drop it and pull the next packet.
    fn mark_or_drop<P>(
        &mut self,
        args: &mut DequeueArgs<'_, P, impl Source<P>>,
        head: &mut Head<P>,
    ) -> bool {
        let mut first = head.queued.as_mut().filter(|_| args.config.ecn);
        if first.as_mut().is_some_and(|queued| args.verdicts.mark(&mut queued.packet)) {
            return true;
        }
        if let Some(lost) = head.queued.take() {
            args.verdicts.lose(args.now, LossReason::Queue, lost.packet);
        }
        *head = self.pull(args);
        false
    }

    /// Enter the dropping state with a first drop (RFC 8289 5.5); more follow unless the sojourn time falls.
    fn begin_dropping<P>(
        &mut self,
        args: &mut DequeueArgs<'_, P, impl Source<P>>,
        head: &mut Head<P>,
    ) {
        let (now, interval) = (args.now, args.config.interval);
        self.mark_or_drop(args, head);
        self.dropping = true;
        // The previous drop rate is a good starting point if the dropping state was left recently.
        let before = self.count - self.last_count;
        let is_recent = now.saturating_since(self.drop_next) < interval * REMEMBERED_INTERVALS;
        self.count = if before > 1 && is_recent { before } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.control_law(now, interval);
    }

    /// Drop as long as drops are due, several at once if the backlog is long (RFC 8289 5.5).
    fn continue_dropping<P>(
        &mut self,
        args: &mut DequeueArgs<'_, P, impl Source<P>>,
        head: &mut Head<P>,
    ) {
        self.dropping = head.may_drop;
        while self.dropping && args.now >= self.drop_next {
            self.count += 1;
            let is_marked = self.mark_or_drop(args, head);
            self.dropping = head.may_drop;
            if self.dropping {
                self.drop_next = self.control_law(self.drop_next, args.config.interval);
            }
            if is_marked {
                return;
            }
        }
    }

    /// Time of the next drop: TCP's rate falls with the square root of its loss rate (RFC 8289 5.4).
    fn control_law(&self, from: Instant, interval: Duration) -> Instant {
        let interval_ns = interval.as_nanos() as f64;
        from + Duration::from_nanos((interval_ns / f64::from(self.count).sqrt()) as u64)
    }
}

/// Arguments of one `dequeue`, passed on together.
struct DequeueArgs<'w, P, S> {
    config: &'w CodelConfig,
    now: Instant,
    source: &'w mut S,
    verdicts: &'w mut Verdicts<P>,
}

#[derive(Debug)]
pub(crate) struct Codel<P> {
    config: CodelConfig,
    queue: Fifo<P>,
    control: Control,
}

impl<P> Codel<P> {
    pub(crate) fn new(config: &CodelConfig, limit: Limit, _seed: u64) -> Self {
        Self { config: config.clone(), queue: Fifo::within(limit), control: Control::default() }
    }
}

impl<P> Qdisc<P> for Codel<P> {
    #[inline]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        self.queue.enqueue(arriving, verdicts);
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        self.control.dequeue(&self.config, now, &mut self.queue, verdicts)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{NO_FLOW, Packet};

    /// Fate of a packet: when it leaves or is dropped, and whether it was marked.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fate {
        Left { at_ns: i64, is_marked: bool },
        Dropped { at_ns: i64 },
    }

    /// A packet that is enqueued: its time, its size, and whether it is ECN-capable.
    #[derive(Debug, Clone, Copy)]
    struct Offered {
        at_ns: i64,
        bytes: u64,
        is_capable: bool,
    }

    /// Pseudocode of RFC 8289 5, line by line, with marks in place of `drop` as in Linux.
    struct Reference<'o> {
        offered: &'o [Offered],
        target_ns: i64,
        interval_ns: i64,
        ecn: bool,
        ce_threshold_ns: Option<i64>,
        /// Numbers of the packets that wait.
        waiting: Vec<usize>,
        fates: Vec<Option<Fate>>,
        first_above_time: i64,
        drop_next: i64,
        count: i64,
        lastcount: i64,
        dropping: bool,
    }

    impl<'o> Reference<'o> {
        fn new(offered: &'o [Offered], config: &CodelConfig) -> Self {
            Self {
                offered,
                target_ns: config.target.as_nanos() as i64,
                interval_ns: config.interval.as_nanos() as i64,
                ecn: config.ecn,
                ce_threshold_ns: config.ce_threshold.map(|most| most.as_nanos() as i64),
                waiting: Vec::new(),
                fates: vec![None; offered.len()],
                first_above_time: 0,
                drop_next: 0,
                count: 0,
                lastcount: 0,
                dropping: false,
            }
        }

        fn dodequeue(&mut self, now: i64) -> (Option<usize>, bool) {
            if self.waiting.is_empty() {
                self.first_above_time = 0;
                return (None, false);
            }
            let p = self.waiting.remove(0);
            let mut ok_to_drop = false;
            let sojourn_time = now - self.offered[p].at_ns;
            let bytes: u64 = self.waiting.iter().map(|p| self.offered[*p].bytes).sum();
            if sojourn_time < self.target_ns || bytes <= 1514 {
                self.first_above_time = 0;
            } else if self.first_above_time == 0 {
                self.first_above_time = now + self.interval_ns;
            } else if now >= self.first_above_time {
                ok_to_drop = true;
            }
            (Some(p), ok_to_drop)
        }

        fn control_law(&self, t: i64) -> i64 {
            t + (self.interval_ns as f64 / (self.count as f64).sqrt()) as i64
        }

        fn drop(&mut self, p: Option<usize>, now: i64) {
            self.fates[p.expect("a packet")] = Some(Fate::Dropped { at_ns: now });
        }

        fn leave(&mut self, p: Option<usize>, now: i64, is_marked: bool) -> Option<usize> {
            let Offered { at_ns, is_capable, .. } = self.offered[p?];
            let is_over = self.ce_threshold_ns.is_some_and(|most| now - at_ns > most);
            let is_marked = is_marked || is_over && is_capable;
            self.fates[p?] = Some(Fate::Left { at_ns: now, is_marked });
            p
        }

        fn may_mark(&self, p: Option<usize>) -> bool {
            self.ecn && self.offered[p.expect("a packet")].is_capable
        }

        fn dequeue(&mut self, now: i64) -> Option<usize> {
            let (mut p, mut ok_to_drop) = self.dodequeue(now);
            let mut is_marked = false;
            if self.dropping {
                if !ok_to_drop {
                    self.dropping = false;
                }
                while now >= self.drop_next && self.dropping {
                    self.count += 1;
                    if self.may_mark(p) {
                        self.drop_next = self.control_law(self.drop_next);
                        return self.leave(p, now, true);
                    }
                    self.drop(p, now);
                    (p, ok_to_drop) = self.dodequeue(now);
                    if ok_to_drop {
                        self.drop_next = self.control_law(self.drop_next);
                    } else {
                        self.dropping = false;
                    }
                }
            } else if ok_to_drop {
                if self.may_mark(p) {
                    is_marked = true;
                } else {
                    self.drop(p, now);
                    (p, _) = self.dodequeue(now);
                }
                self.dropping = true;
                let delta = self.count - self.lastcount;
                self.count = 1;
                if delta > 1 && now - self.drop_next < 16 * self.interval_ns {
                    self.count = delta;
                }
                self.drop_next = self.control_law(now);
                self.lastcount = self.count;
            }
            self.leave(p, now, is_marked)
        }
    }

    /// Random packets, and the gaps between dequeues.
    fn train() -> impl Strategy<Value = (Vec<Offered>, Vec<i64>)> {
        let packet = (0_i64..4_000_000, 64_u64..1_515, any::<bool>());
        let packets = prop::collection::vec(packet, 1..400).prop_map(|packets| {
            let mut at_ns = 1;
            let follow = |(gap_ns, bytes, is_capable)| {
                at_ns += gap_ns;
                Offered { at_ns, bytes, is_capable }
            };
            packets.into_iter().map(follow).collect()
        });
        // Packets leave more slowly than they come for a while, then faster.
        let gaps = prop::collection::vec(0_i64..9_000_000, 1..600);
        (packets, gaps)
    }

    fn config() -> impl Strategy<Value = CodelConfig> {
        let ce_threshold = prop::option::of((0_u64..40).prop_map(Duration::from_millis));
        (1_u64..20, 5_u64..200, any::<bool>(), ce_threshold).prop_map(
            |(target, interval, ecn, ce_threshold)| CodelConfig {
                target: Duration::from_millis(target),
                interval: Duration::from_millis(interval),
                ecn,
                ce_threshold,
            },
        )
    }

    fn fates(offered: &[Offered], gaps_ns: &[i64], config: &CodelConfig) -> [Vec<Option<Fate>>; 2] {
        let at = |ns: i64| Instant::from_nanos(ns as u64);
        let mut codel = Codel::new(config, Limit::Packets(u64::MAX), 0);
        let mut reference = Reference::new(offered, config);
        let (mut verdicts, mut fates) = (Verdicts::new(), vec![None; offered.len()]);
        let (mut come, mut now) = (0, 0);
        for gap_ns in gaps_ns {
            now += gap_ns;
            while let Some(next) = offered.get(come).filter(|next| next.at_ns <= now) {
                let ecn = if next.is_capable { Ecn::Ect0 } else { Ecn::NotEct };
                let packet = Packet::new(Bytes::new(next.bytes), come).with_flow(NO_FLOW, ecn);
                codel.enqueue(Queued { since: at(next.at_ns), packet }, &mut verdicts);
                reference.waiting.push(come);
                come += 1;
            }
            reference.dequeue(now);
            if let Some(Queued { packet, .. }) = codel.dequeue(at(now), &mut verdicts) {
                let is_marked = packet.ecn() == Ecn::Ce;
                fates[packet.payload] = Some(Fate::Left { at_ns: now, is_marked });
            }
            for lost in verdicts.take_lost() {
                let at_ns = lost.at.as_nanos() as i64;
                fates[lost.packet.payload] = Some(Fate::Dropped { at_ns });
            }
        }
        [fates, reference.fates]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(256)))]

        #[test]
        fn it_does_what_the_pseudocode_of_the_rfc_does(
            (offered, gaps_ns) in train(),
            config in config(),
        ) {
            let [codel, reference] = fates(&offered, &gaps_ns, &config);
            prop_assert_eq!(codel, reference);
        }
    }

    /// Result for 1000 packets that come every 2 ms and leave every 3 ms, so that the backlog grows.
    fn overload(config: &CodelConfig, is_capable: bool) -> (Vec<i64>, usize, usize) {
        let offered: Vec<Offered> = (0..1000)
            .map(|n| Offered { at_ns: 1 + 2_000_000 * n, bytes: 1514, is_capable })
            .collect();
        let [codel, _] = fates(&offered, &[3_000_000; 1000], config);
        let dropped = |fate: &Option<Fate>| match fate {
            Some(Fate::Dropped { at_ns }) => Some(at_ns / 1_000_000),
            _ => None,
        };
        let marked =
            |fate: &&Option<Fate>| matches!(fate, Some(Fate::Left { is_marked: true, .. }));
        let left = |fate: &&Option<Fate>| matches!(fate, Some(Fate::Left { .. }));
        let drops = codel.iter().filter_map(dropped).collect();
        (drops, codel.iter().filter(marked).count(), codel.iter().filter(left).count())
    }

    #[test]
    fn drops_come_sooner_and_sooner_once_packets_wait_for_an_interval() {
        let (drops_ms, marked, _) = overload(&CodelConfig::default(), true);
        // Above target from 12 ms on, so from 112 ms on, whenever a packet leaves.
        let mut due_ms = 112.0;
        for (drops, at_ms) in (1..).zip(&drops_ms) {
            let late_ms = *at_ms as f64 - due_ms;
            assert!((0.0..3.0).contains(&late_ms), "drop {drops} at {at_ms}, due at {due_ms}");
            due_ms =
                if drops == 1 { *at_ms as f64 } else { due_ms } + 100.0 / f64::from(drops).sqrt();
        }
        assert!(drops_ms.len() > 50, "{drops_ms:?}");
        assert_eq!(marked, 0);
    }

    #[test]
    fn with_ecn_capable_packets_are_marked_and_others_dropped() {
        let config = CodelConfig { ecn: true, ..CodelConfig::default() };
        let (drops, marked, left) = overload(&config, true);
        assert!(drops.is_empty() && marked > 20 && left > 900, "{drops:?} {marked} {left}");
        let (drops, marked, _) = overload(&config, false);
        assert!(drops.len() > 20 && marked == 0, "{drops:?} {marked}");
    }

    #[test]
    fn the_last_packets_are_never_dropped() {
        let offered: Vec<Offered> =
            (0..2).map(|n| Offered { at_ns: 1 + n, bytes: 1514, is_capable: false }).collect();
        let config = CodelConfig::default();
        let [codel, _] = fates(&offered, &[500_000_000; 4], &config);
        assert!(codel.iter().all(|fate| matches!(fate, Some(Fate::Left { .. }))), "{codel:?}");
    }
}
