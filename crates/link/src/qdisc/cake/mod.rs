//! Common applications kept enhanced (Høiland-Jørgensen, Täht, Morton, "Piece of CAKE: a comprehensive queue management
//! solution for home gateways", 2018), as Linux has it (`net/sched/sch_cake.c`): a shaper, over classes, over queues of
//! connections in turns, sparse ones first, which share by hosts too, each with COBALT.
//!
//! A scenario's flow is a pair of hosts of its own, its connections are theirs.

mod ack_filter;
mod classes;
mod cobalt;
mod tin;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::{LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate};

pub(crate) use self::ack_filter::ReadTcp;
pub use self::ack_filter::{AckFilter, CarriesTcp, TcpFacts};
pub use self::classes::Diffserv;
use self::tin::{Stock, Tin};
use super::flow_hash::FlowHash;
use super::fq_codel::memory_of;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::Packet;
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
    /// Into which classes packets are sorted by their DSCP.
    pub diffserv: Diffserv,
    /// Which acknowledgements go when one comes that says more.
    pub ack_filter: AckFilter,
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
    /// Among hosts, whose connections share a queue.
    Hosts,
    /// Among nobody: there is one queue.
    Flowblind,
}

impl Default for CakeConfig {
    fn default() -> Self {
        Self {
            bandwidth: None,
            rtt: Duration::from_millis(100),
            isolation: Isolation::TripleIsolate,
            diffserv: Diffserv::default(),
            ack_filter: AckFilter::default(),
            memory: None,
        }
    }
}

impl CakeConfig {
    /// The most packets that its memory has room for, however small they are.
    pub fn most_packets(&self) -> u64 {
        self.memory_limit().as_u64() / memory_of(Bytes::ZERO).as_u64()
    }

    /// What packets may take of memory.
    pub fn memory_limit(&self) -> Bytes {
        self.memory.unwrap_or_else(|| {
            let most = Bytes::new(PACKETS * LARGEST_PACKET.as_u64());
            let usual = self.bandwidth.map_or(most, |rate| rate.bytes_in(self.rtt * 4));
            usual.max(LEAST_MEMORY).min(most)
        })
    }
}

impl Parameters for CakeConfig {
    fn fault(&self) -> Option<&'static str> {
        (self.bandwidth == Some(Rate::ZERO))
            .then_some("bandwidth is zero, so that nothing ever left; leave it out")
    }
}

/// Packets that Linux counts on, for the memory that they may take.
const PACKETS: u64 = 10_240;
const LEAST_MEMORY: Bytes = Bytes::new(4 << 20);

#[derive(Debug)]
pub(crate) struct Cake<P> {
    rate: Option<Rate>,
    memory_limit: Bytes,
    limit: Limit,
    isolation: Isolation,
    hash: FlowHash,
    chance: Chance,
    /// In the order of their priority, the highest last.
    tins: Vec<Tin<P>>,
    /// Which of them a DSCP goes to.
    tin_of: [u8; 64],
    /// The tin that has its turn.
    current: usize,
    shaper: Shaper,
    stock: Stock,
    ack_filter: AckFilter,
    read_tcp: Option<ReadTcp<P>>,
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
        let shares = config.diffserv.shares(config.bandwidth).into_iter();
        Self {
            rate: config.bandwidth,
            memory_limit: config.memory_limit(),
            limit,
            isolation: config.isolation,
            hash: FlowHash::drawn(&mut chance),
            chance,
            tins: shares.map(|share| Tin::new(share, config.isolation, config.rtt)).collect(),
            tin_of: config.diffserv.tins(),
            current: 0,
            shaper: Shaper::default(),
            stock: Stock::default(),
            ack_filter: config.ack_filter,
            read_tcp: None,
        }
    }

    /// What packets that belong into one queue have in common.
    #[inline]
    fn tag_of(&self, packet: &Packet<P>) -> u32 {
        match self.isolation {
            Isolation::TripleIsolate | Isolation::Flows => self.hash.of(packet),
            Isolation::Hosts => self.hash.of_flow(packet.flow),
            Isolation::Flowblind => 0,
        }
    }

    /// What the packet that has come last to this queue makes superfluous is lost.
    #[inline]
    fn filter(&mut self, (tin, place): (usize, usize), now: Instant, verdicts: &mut Verdicts<P>) {
        let Some(read_tcp) = self.read_tcp else { return };
        let waiting = self.tins[tin].waiting(place);
        let Some(superfluous) = self.ack_filter.superfluous(waiting, read_tcp) else { return };
        if let Some(lost) = self.tins[tin].remove(place, superfluous, &mut self.stock) {
            verdicts.lose(now, LossReason::Queue, lost.packet);
        }
    }

    /// `cake_drop`: the first packet of the flow with most bytes is lost.
    #[cold]
    fn drop_from_fattest(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        let of_tin = |(tin, it): (usize, &Tin<P>)| Some((it.fattest()?, tin));
        let each = self.tins.iter().enumerate().rev().filter_map(of_tin);
        let Some(((_, place), tin)) = each.max_by_key(|((bytes, _), _)| *bytes) else { return };
        self.tins[tin].overflow(place, now, &mut self.stock, verdicts);
    }

    /// The tin to take the next packet from.
    #[inline]
    fn choose(&mut self, now: Instant) -> Option<usize> {
        match (self.tins.len(), self.rate) {
            (1, _) => Some(0),
            (_, None) => Some(self.choose_in_turns()),
            (_, Some(_)) => self.choose_by_rates(now),
        }
    }

    /// By what they have sent; packets wait, so that one of them has its turn soon.
    #[inline]
    fn choose_in_turns(&mut self) -> usize {
        while !self.tins[self.current].has_turn() {
            let next = self.current + 1;
            self.current = if next < self.tins.len() { next } else { 0 };
        }
        self.current
    }

    /// The highest within its share of the rate, or else the one that will be first.
    fn choose_by_rates(&self, now: Instant) -> Option<usize> {
        let active = self.tins.iter().enumerate().filter(|(_, tin)| tin.is_active());
        let mut chosen = None;
        for (place, tin) in active {
            let is_better = |(_, best): &(usize, Instant)| tin.next() <= now || tin.next() <= *best;
            if chosen.as_ref().is_none_or(is_better) {
                chosen = Some((place, tin.next()));
            }
        }
        chosen.map(|(place, _)| place)
    }
}

impl<P> Qdisc<P> for Cake<P> {
    #[inline]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let now = arriving.since;
        if self.stock.backlog.packets == 0 {
            self.shaper.wake(now);
        }
        let whose = (self.tag_of(&arriving.packet), arriving.packet.flow);
        let tin = usize::from(self.tin_of[usize::from(arriving.packet.dscp())]);
        let place = self.tins[tin].take(arriving, whose, &mut self.stock);
        if self.ack_filter != AckFilter::Off {
            self.filter((tin, place), now, verdicts);
        }
        self.tins[tin].join(place, &mut self.chance);
        while self.stock.memory > self.memory_limit || !self.limit.allows(self.stock.backlog) {
            self.drop_from_fattest(now, verdicts);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        if self.stock.backlog.packets == 0 || self.shaper.ready() > now {
            return None;
        }
        let mut looks_after = true;
        while self.stock.backlog.packets > 0 {
            let tin = self.choose(now)?;
            let with = (&mut self.stock, &mut self.chance, &mut *verdicts);
            let Some(first) = self.tins[tin].step(now, &mut looks_after, with) else { continue };
            if let Some(rate) = self.rate {
                self.shaper.advance(rate.transmit_time(first.packet.wire_size));
            }
            return Some(first);
        }
        None
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.stock.backlog
    }

    fn ready(&self) -> Instant {
        self.shaper.ready()
    }

    fn read_tcp_with(&mut self, read_tcp: ReadTcp<P>) {
        self.read_tcp = Some(read_tcp);
    }
}
