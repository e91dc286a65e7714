//! Tests of `cake` against a slow reference implementation, and of its fairness, classes and drops.

use proptest::prelude::*;
use skyhop_model::{Dscp, Ecn};

use super::*;
use crate::Packet;
use crate::qdisc::trial::{Ledger, Offered, ReferenceQdisc, fates, train};

/// Linux's `cake_enqueue` and `cake_dequeue` on plain lists; the list that holds a flow stands for its set.
struct Reference {
    ledger: Ledger,
    config: CakeConfig,
    most: usize,
    rng: LinkRng,
    /// Hash and host of each packet's connection, and its tin.
    whose: Vec<(u32, u32, usize)>,
    tins: Vec<Class>,
    current: usize,
    next_ns: u64,
    failsafe_ns: u64,
}

struct Class {
    rate: Option<u64>,
    quantum: i64,
    deficit: i64,
    next_ns: u64,
    flows: Vec<Thread>,
    lists: [Vec<usize>; 3],
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

impl Class {
    fn new(rate: Option<u64>, quantum: i64) -> Self {
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
            rate,
            quantum,
            deficit: 0,
            next_ns: 0,
            flows: vec![thread; 1024],
            lists: [Vec::new(), Vec::new(), Vec::new()],
        }
    }

    fn packet_ns(&self) -> u64 {
        self.rate.map_or(0, |rate| (1514 * 8_000_000_000_u64).div_ceil(rate))
    }

    fn target_ns(&self, rtt: u64) -> u64 {
        (rtt / 20).max(self.packet_ns() * 3 / 2)
    }

    fn interval_ns(&self, rtt: u64) -> u64 {
        (rtt + self.target_ns(rtt) - rtt / 20).max(2 * self.target_ns(rtt))
    }

    fn control(&self, f: usize, from: u64, rtt: u64) -> u64 {
        let drops = self.flows[f].count.max(1) as f64;
        from + (self.interval_ns(rtt) as f64 / drops.sqrt()) as u64
    }

    fn waiting(&self) -> usize {
        self.flows.iter().map(|flow| flow.waiting.len()).sum()
    }

    fn is_active(&self) -> bool {
        self.flows.iter().any(|flow| ["sparse", "wait", "bulk"].contains(&flow.set))
    }

    fn unlist(&mut self, f: usize) {
        self.lists.iter_mut().for_each(|list| list.retain(|other| *other != f));
    }

    fn move_to(&mut self, f: usize, list: usize) {
        self.unlist(f);
        self.lists[list].push(f);
    }

    fn find_empty(&mut self, f: usize, now: u64, rtt: u64) {
        let target_ns = self.target_ns(rtt);
        let flow = &mut self.flows[f];
        if flow.p_drop > 0.0 && now - flow.blue_timer > target_ns {
            flow.p_drop = (flow.p_drop - 1.0 / 4096.0).max(0.0);
            flow.blue_timer = now;
        }
        flow.dropping = false;
        if flow.count > 0 && now >= flow.drop_next {
            flow.count -= 1;
            self.flows[f].drop_next = self.control(f, self.flows[f].drop_next, rtt);
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

impl Reference {
    fn new(config: &CakeConfig, most: usize, rng: LinkRng, whose: Vec<(u32, u32, usize)>) -> Self {
        // The shares are those of classes.rs, which has tests of its own.
        let shares = config.diffserv.shares(config.bandwidth).into_iter();
        let tins =
            shares.map(|share| Class::new(share.rate.map(Rate::bits_per_second), share.weight));
        Self {
            ledger: Ledger::default(),
            config: config.clone(),
            most,
            rng,
            whose,
            tins: tins.collect(),
            current: 0,
            next_ns: 0,
            failsafe_ns: 0,
        }
    }

    fn rtt(&self) -> u64 {
        self.config.rtt.as_nanos()
    }

    fn waiting(&self) -> usize {
        self.tins.iter().map(Class::waiting).sum()
    }

    fn quantum(&mut self, t: usize, f: usize) -> i64 {
        let all = self.tins[t].rate.map_or(1514, |rate| (rate / 8 / 4096).clamp(300, 1514));
        let host = self.tins[t].flows[f].host;
        let is_of_host = |flow: &&Thread| flow.set == "bulk" && flow.host == host;
        let load = match self.config.isolation {
            Isolation::Flows | Isolation::Hosts | Isolation::Flowblind => 1,
            Isolation::TripleIsolate => self.tins[t].flows.iter().filter(is_of_host).count().max(1),
        };
        let random = self.rng.bits() >> 48;
        ((all * (65_535 / load as u64) + random) / 65_536) as i64
    }

    fn cobalt_should_drop(&mut self, t: usize, f: usize, p: usize, now: u64) -> bool {
        let (rtt, tin) = (self.rtt(), &mut self.tins[t]);
        let waited = self.ledger.wait_ns(p, now);
        let mut is_due = tin.flows[f].count > 0 && now >= tin.flows[f].drop_next;
        let is_over = waited > tin.target_ns(rtt) && waited > 4 * tin.packet_ns();
        if is_over && !tin.flows[f].dropping {
            tin.flows[f].drop_next = tin.control(f, now, rtt);
        }
        tin.flows[f].dropping = is_over;
        if is_over && tin.flows[f].count == 0 {
            tin.flows[f].count = 1;
        }
        let mut drop = false;
        if is_due && is_over {
            drop = !self.ledger.mark(p);
            tin.flows[f].count += 1;
            tin.flows[f].drop_next = tin.control(f, tin.flows[f].drop_next, rtt);
        } else {
            while is_due {
                tin.flows[f].count -= 1;
                tin.flows[f].drop_next = tin.control(f, tin.flows[f].drop_next, rtt);
                is_due = tin.flows[f].count > 0 && now >= tin.flows[f].drop_next;
            }
        }
        if tin.flows[f].p_drop > 0.0 && self.rng.draw() < tin.flows[f].p_drop {
            drop = true;
        }
        let interval_ns = tin.interval_ns(rtt);
        let flow = &mut tin.flows[f];
        if flow.count == 0 {
            flow.drop_next = now + interval_ns;
        } else if now > flow.drop_next && !drop {
            flow.drop_next = now;
        }
        drop
    }

    /// Index of the tin that is served next.
    fn choose(&mut self, now: u64) -> usize {
        if self.config.bandwidth.is_some() {
            let active: Vec<usize> =
                (0..self.tins.len()).filter(|t| self.tins[*t].is_active()).collect();
            let within = active.iter().rev().find(|t| self.tins[**t].next_ns <= now);
            let first = || active.iter().rev().min_by_key(|t| self.tins[**t].next_ns);
            return *within.or_else(first).expect("something waits");
        }
        loop {
            let tin = &mut self.tins[self.current];
            if tin.deficit >= 0 && tin.is_active() {
                return self.current;
            }
            if tin.deficit <= 0 {
                tin.deficit += tin.quantum;
            }
            self.current = (self.current + 1) % self.tins.len();
        }
    }

    fn leave(&mut self, (t, f): (usize, usize), p: usize, now: u64) {
        let bytes = self.ledger.bytes(p);
        self.ledger.leave(p, now);
        let tin = &mut self.tins[t];
        tin.flows[f].deficit -= bytes as i64;
        tin.deficit -= bytes as i64;
        let took = |rate: u64| (bytes * 8_000_000_000).div_ceil(rate);
        if let Some(took) = tin.rate.map(took) {
            if tin.next_ns < now {
                tin.next_ns += took;
            } else if tin.next_ns < now + took {
                tin.next_ns = now + took;
            }
        }
        if let Some(took) = self.config.bandwidth.map(Rate::bits_per_second).map(took) {
            self.next_ns += took;
            self.failsafe_ns += took + took / 2;
        }
    }

    fn lose_from_fattest(&mut self, now: u64) {
        let all = (0..self.tins.len()).flat_map(|t| (0..1024).map(move |f| (t, f)));
        let bytes = |(t, f): &(usize, usize)| self.ledger.sum(&self.tins[*t].flows[*f].waiting);
        let (t, f) = all.rev().max_by_key(bytes).unwrap();
        let lost = self.tins[t].flows[f].waiting.remove(0);
        self.ledger.drop(lost, now);
        let target_ns = self.tins[t].target_ns(self.rtt());
        let flow = &mut self.tins[t].flows[f];
        if now - flow.blue_timer > target_ns {
            flow.p_drop = (flow.p_drop + 1.0 / 256.0).min(1.0);
            flow.blue_timer = now;
        }
        (flow.dropping, flow.drop_next) = (true, now);
        flow.count = flow.count.max(1);
    }
}

impl ReferenceQdisc for Reference {
    fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    fn enqueue(&mut self, now: u64, number: usize) {
        let (tag, host, t) = self.whose[number];
        let is_first = self.waiting() == 0;
        let tin = &mut self.tins[t];
        if tin.waiting() == 0 {
            tin.next_ns = tin.next_ns.max(now);
        }
        if is_first && self.next_ns < now {
            (self.next_ns, self.failsafe_ns) = (now, now);
        }
        let first = tag as usize % 1024;
        let ways: Vec<usize> = (0..8).map(|k| first / 8 * 8 + (first + k) % 8).collect();
        let own = ways.iter().find(|way| tin.flows[**way].tag == tag);
        let free = ways.iter().find(|way| tin.flows[**way].set == "none");
        let f = *own.or(free).unwrap_or(&first);
        (tin.flows[f].tag, tin.flows[f].host) = (tag, host);
        tin.flows[f].waiting.push(number);
        match tin.flows[f].set {
            "none" | "decaying" => {
                tin.move_to(f, NEW);
                self.tins[t].flows[f].deficit = self.quantum(t, f);
                self.tins[t].flows[f].set = "sparse";
            }
            "wait" => tin.flows[f].set = "bulk",
            _ => {}
        }
        while self.waiting() > self.most {
            self.lose_from_fattest(now);
        }
    }

    fn dequeue(&mut self, now: u64) {
        if self.next_ns > now && self.failsafe_ns > now {
            return;
        }
        let mut is_first = true;
        'choose: while self.waiting() > 0 {
            let t = self.choose(now);
            loop {
                let order = if is_first { [DECAYING, NEW, OLD] } else { [NEW, OLD, DECAYING] };
                is_first = false;
                let lists = &self.tins[t].lists;
                let list = order.into_iter().find(|list| !lists[*list].is_empty()).unwrap();
                let f = lists[list][0];
                let flow = &mut self.tins[t].flows[f];
                if flow.deficit <= 0 {
                    if flow.set == "sparse" {
                        flow.set = if flow.waiting.is_empty() { "wait" } else { "bulk" };
                    }
                    let turn = self.quantum(t, f);
                    self.tins[t].flows[f].deficit += turn;
                    self.tins[t].move_to(f, OLD);
                    continue;
                }
                while !self.tins[t].flows[f].waiting.is_empty() {
                    let p = self.tins[t].flows[f].waiting.remove(0);
                    let drop = self.cobalt_should_drop(t, f, p, now);
                    if !drop || self.tins[t].flows[f].waiting.is_empty() {
                        return self.leave((t, f), p, now);
                    }
                    self.ledger.drop(p, now);
                }
                let rtt = self.rtt();
                self.tins[t].find_empty(f, now, rtt);
                continue 'choose;
            }
        }
    }
}

const ISOLATIONS: [Isolation; 4] =
    [Isolation::TripleIsolate, Isolation::Flows, Isolation::Hosts, Isolation::Flowblind];
const CLASSES: [Diffserv; 5] = [
    Diffserv::BestEffort,
    Diffserv::Precedence,
    Diffserv::Diffserv3,
    Diffserv::Diffserv4,
    Diffserv::Diffserv8,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(64)))]

    #[test]
    fn it_does_what_linux_does(
        train in train(),
        bandwidth in prop::option::of(500_000_u64..40_000_000),
        (rtt_ms, isolation) in (1_u64..100, prop::sample::select(&ISOLATIONS[..])),
        diffserv in prop::sample::select(&CLASSES[..]),
        most in 1_usize..100,
    ) {
        let config = CakeConfig {
            bandwidth: bandwidth.map(Rate::from_bits_per_second),
            rtt: Duration::from_millis(rtt_ms),
            isolation,
            diffserv,
            ..CakeConfig::default()
        };
        let qdisc = Cake::new(&config, Limit::Packets(most as u64), 3);
        let mut rng = LinkRng::for_queue(3);
        FlowHash::random(&mut rng);
        let whose = |offered: &Offered| {
            let tin = diffserv.tins()[usize::from(offered.dscp.bits())];
            let tag = match isolation {
                Isolation::Hosts => qdisc.hash.flow_value(offered.flow),
                Isolation::Flowblind => 0,
                _ => qdisc.hash.value(&offered.packet()),
            };
            (tag, offered.flow, usize::from(tin))
        };
        let whose = train.0.iter().map(whose).collect();
        let reference = Reference::new(&config, most, rng, whose);
        let [qdisc, reference] = fates(qdisc, reference, &train);
        prop_assert_eq!(qdisc, reference);
    }
}

fn of(host: u32, connection: u16) -> Packet<(u32, u16)> {
    let packet = Packet::new(LARGEST_PACKET, (host, connection));
    packet.with_flow(host, Ecn::Ect0).with_connection(connection)
}

/// Packets of each of two hosts that leave in 4 s at 24.224 Mbit/s, if one host has four connections that fill the
/// queue and the other has one; the wait of the last packet; and the number of marked packets.
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
    let ([one, other], ..) = shares(Isolation::Hosts);
    assert!((0.95..1.05).contains(&(one as f64 / other as f64)), "{one} and {other}");
    // The single connection offers a fifth of the packets, but first each time, and so finds room more often.
    let ([one, other], ..) = shares(Isolation::Flowblind);
    assert!((0.2..0.5).contains(&(one as f64 / other as f64)), "{one} and {other}");
}

#[test]
fn connections_find_queues_of_their_own_where_a_plain_hash_has_them_meet() {
    let mut cake = Cake::new(&CakeConfig::default(), Limit::Packets(10_000), 3);
    let mut verdicts = Verdicts::new();
    for connection in 0..400 {
        let packet = of(1, connection);
        cake.enqueue(Queued { since: Instant::START, packet }, &mut verdicts);
    }
    assert!(
        cake.tins[0].new_flows() >= 395,
        "{} queues for 400 connections",
        cake.tins[0].new_flows()
    );
}

#[test]
fn an_unresponsive_load_is_dropped_at_random_in_the_end() {
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
    // The load is twice the rate, so BLUE drops about half of the packets.
    let place = cake.tins[0].flows().iter().find(|flow| flow.tag != 0).expect("one flow");
    assert!((0.3..0.7).contains(&place.cobalt.probability), "{}", place.cobalt.probability);
    assert!(waits.len() > 29_000, "{} left", waits.len());
}

/// Mbit/s of best effort, background and voice that a link of 8 Mbit/s carries in 4 s (7.57 in all, as the test polls
/// every 0.1 ms), for the given offered loads; with a shaper of that rate, or without.
fn carried(diffserv: Diffserv, is_shaped: bool, offered_mbps: [u64; 3]) -> [f64; 3] {
    let rate = Rate::from_bits_per_second(8_000_000);
    let bandwidth = is_shaped.then_some(rate);
    let config = CakeConfig { bandwidth, diffserv, ..CakeConfig::default() };
    let mut cake = Cake::new(&config, Limit::Packets(10_000), 3);
    let (mut verdicts, mut left, mut sent) = (Verdicts::new(), [0_u64; 3], [0_u64; 3]);
    let (packet_bits, mut free) = (LARGEST_PACKET.as_u64() * 8, Instant::START);
    for now in (0..40_000_u64).map(|tick| Instant::from_nanos(tick * 100_000)) {
        for (class, dscp) in [Dscp::Cs0, Dscp::Cs1, Dscp::Ef].into_iter().enumerate() {
            while sent[class] * packet_bits <= offered_mbps[class] * now.as_nanos() / 1000 {
                let packet = Packet::new(LARGEST_PACKET, class).with_flow(class as u32, Ecn::Ect0);
                let packet = packet.with_tos(dscp.tos());
                cake.enqueue(Queued { since: now, packet }, &mut verdicts);
                sent[class] += 1;
            }
        }
        if let Some(first) = (now >= free).then(|| cake.dequeue(now, &mut verdicts)).flatten() {
            left[first.packet.payload] += 1;
            free = now + rate.transmit_time(LARGEST_PACKET);
        }
    }
    left.map(|packets| (packets * packet_bits) as f64 / 4e6)
}

fn near(carried: [f64; 3], expected: [f64; 3]) -> bool {
    carried.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.1)
}

#[test]
fn classes_have_their_shares_before_each_other_and_what_is_left_after() {
    for is_shaped in [true, false] {
        let all_want_all = carried(Diffserv::BestEffort, is_shaped, [20, 20, 20]);
        assert!(near(all_want_all, [2.52, 2.52, 2.52]), "{all_want_all:?}, {is_shaped}");
        let little_voice = carried(Diffserv::Diffserv3, is_shaped, [20, 20, 1]);
        assert!(little_voice[2] > 0.9, "voice within its share: {little_voice:?}, {is_shaped}");
        let alone = carried(Diffserv::Diffserv3, is_shaped, [0, 20, 0]);
        assert!(near(alone, [0.0, 7.57, 0.0]), "background may use all: {alone:?}, {is_shaped}");
    }
    // Voice has a quarter of the rate and background a sixteenth with priority; best effort has the rest.
    let shaped = carried(Diffserv::Diffserv3, true, [20, 20, 20]);
    assert!(near(shaped, [5.07, 0.5, 2.0]), "{shaped:?}");
    // Weights of the tins: 1024 : 64 : 256.
    let in_turns = carried(Diffserv::Diffserv3, false, [20, 20, 20]);
    assert!(near(in_turns, [5.77, 0.36, 1.44]), "{in_turns:?}");
}
