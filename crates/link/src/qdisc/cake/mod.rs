//! CAKE (Høiland-Jørgensen, Täht, Morton, "Piece of CAKE: a comprehensive queue management solution for home
//! gateways", 2018), as Linux implements it (`net/sched/sch_cake.c`): a shaper over priority classes (tins),
//! each with deficit round robin over the queues of connections. Sparse connections are served first, hosts
//! share the rate fairly too, and each queue has the AQM COBALT.
//!
//! Each flow of a scenario counts as a separate pair of hosts, and its connections as the connections of that
//! pair.

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
use self::tin::{Tin, Totals};
use super::flow_hash::FlowHash;
use super::fq_codel::memory_of;
use super::{Backlog, Limit, Parameters, Qdisc, Queued};
use crate::Packet;
use crate::rng::LinkRng;
use crate::stats::Verdicts;

/// The parameters of `cake`; the defaults are Linux's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CakeConfig {
    /// Rate of the shaper, Ethernet headers included; if not given, there is no shaper and packets leave at the
    /// link's rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Rate>,
    /// Longest RTT to expect, CoDel's interval; CoDel's target is a twentieth of it.
    pub rtt: Duration,
    /// Units between which the rate is shared fairly.
    pub isolation: Isolation,
    /// Preset of classes into which packets are sorted by their DSCP.
    pub diffserv: Diffserv,
    /// Dropping of TCP acknowledgements that a newer one supersedes.
    pub ack_filter: AckFilter,
    /// Limit of the memory of waiting packets, as the kernel counts it; if not given, four times bandwidth x
    /// rtt, and at least 4 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// Units between which `cake` shares the rate fairly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Hosts, and within each host its connections.
    TripleIsolate,
    /// Connections, regardless of their hosts.
    Flows,
    /// Hosts; the connections of a host share a queue.
    Hosts,
    /// No isolation: all packets share one queue.
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
    /// Largest number of packets that the memory limit allows, however small they are.
    pub fn most_packets(&self) -> u64 {
        self.memory_limit().as_u64() / memory_of(Bytes::ZERO).as_u64()
    }

    /// Limit of the memory of waiting packets: `memory`, or Linux's default for the bandwidth.
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
        (self.bandwidth == Some(Rate::ZERO)).then_some(
            "bandwidth is zero, so that no packet could ever leave; leave it out to shape nothing",
        )
    }
}

/// Largest number of packets by which Linux bounds the default memory limit (`limit` of sch_cake).
const PACKETS: u64 = 10_240;
const LEAST_MEMORY: Bytes = Bytes::new(4 << 20);

#[derive(Debug)]
pub(crate) struct Cake<P> {
    rate: Option<Rate>,
    memory_limit: Bytes,
    limit: Limit,
    isolation: Isolation,
    hash: FlowHash,
    rng: LinkRng,
    /// Tins in Linux's order of priority, the highest last.
    tins: Vec<Tin<P>>,
    /// Index of the tin for each DSCP.
    tin_of: [u8; 64],
    /// Index of the tin that is served in the round robin without bandwidth.
    current: usize,
    shaper: Shaper,
    totals: Totals,
    ack_filter: AckFilter,
    read_tcp: Option<ReadTcp<P>>,
}

/// Virtual clock of the shaper, which says when the next packet may leave.
#[derive(Debug, Clone, Copy, Default)]
struct Shaper {
    next: Instant,
    /// Same clock at two thirds of the rate (Linux's `failsafe_next_packet`). Only packets that are sent
    /// advance it, so that drops never delay the next packet beyond this time.
    failsafe: Instant,
}

impl Shaper {
    #[inline]
    fn ready(self) -> Instant {
        self.next.min(self.failsafe)
    }

    /// Discard the credit that accumulated while no packet waited.
    #[inline]
    fn wake(&mut self, now: Instant) {
        if self.next < now {
            (self.next, self.failsafe) = (now, now);
        }
    }

    /// Advance by the transmission time of a packet at the shaper's rate: `cake_advance_shaper`.
    #[inline]
    fn advance(&mut self, took: Duration) {
        self.next += took;
        self.failsafe += took + took / 2;
    }
}

impl<P> Cake<P> {
    pub(crate) fn new(config: &CakeConfig, limit: Limit, seed: u64) -> Self {
        let mut rng = LinkRng::for_queue(seed);
        let shares = config.diffserv.shares(config.bandwidth).into_iter();
        Self {
            rate: config.bandwidth,
            memory_limit: config.memory_limit(),
            limit,
            isolation: config.isolation,
            hash: FlowHash::random(&mut rng),
            rng,
            tins: shares.map(|share| Tin::new(share, config.isolation, config.rtt)).collect(),
            tin_of: config.diffserv.tins(),
            current: 0,
            shaper: Shaper::default(),
            totals: Totals::default(),
            ack_filter: config.ack_filter,
            read_tcp: None,
        }
    }

    /// Hash that selects the packet's queue; packets with the same hash share a queue.
    #[inline]
    fn tag_of(&self, packet: &Packet<P>) -> u32 {
        match self.isolation {
            Isolation::TripleIsolate | Isolation::Flows => self.hash.value(packet),
            Isolation::Hosts => self.hash.flow_value(packet.flow),
            Isolation::Flowblind => 0,
        }
    }

    /// Drop the acknowledgement that the packet just enqueued supersedes, if the filter says so.
    #[inline]
    fn filter(&mut self, (tin, queue): (usize, usize), now: Instant, verdicts: &mut Verdicts<P>) {
        let Some(read_tcp) = self.read_tcp else { return };
        let waiting = self.tins[tin].waiting(queue);
        let Some(superfluous) = self.ack_filter.superfluous(waiting, read_tcp) else { return };
        if let Some(lost) = self.tins[tin].remove(queue, superfluous, &mut self.totals) {
            verdicts.lose(now, LossReason::Queue, lost.packet);
        }
    }

    /// Drop the first packet of the flow with most bytes: `cake_drop`.
    #[cold]
    fn drop_from_fattest(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        let of_tin = |(tin, it): (usize, &Tin<P>)| Some((it.fattest()?, tin));
        let each = self.tins.iter().enumerate().rev().filter_map(of_tin);
        let Some(((_, queue), tin)) = each.max_by_key(|((bytes, _), _)| *bytes) else { return };
        self.tins[tin].overflow(queue, now, &mut self.totals, verdicts);
    }

    /// Index of the tin to take the next packet from; without a bandwidth tins are served round robin.
    #[inline]
    fn choose(&mut self, now: Instant) -> Option<usize> {
        match (self.tins.len(), self.rate) {
            (1, _) => Some(0),
            (_, None) => Some(self.choose_in_turns()),
            (_, Some(_)) => self.choose_by_rates(now),
        }
    }

    /// Choose by deficit round robin; as packets wait, one of the tins has credit within a few rounds.
    #[inline]
    fn choose_in_turns(&mut self) -> usize {
        while !self.tins[self.current].has_turn() {
            let next = self.current + 1;
            self.current = if next < self.tins.len() { next } else { 0 };
        }
        self.current
    }

    /// Choose the tin of highest priority that is within its share of the rate; if there is none, the tin that
    /// is within its share again earliest.
    fn choose_by_rates(&self, now: Instant) -> Option<usize> {
        let active = self.tins.iter().enumerate().filter(|(_, tin)| tin.is_active());
        let mut chosen = None;
        for (index, tin) in active {
            let is_better = |(_, best): &(usize, Instant)| tin.next() <= now || tin.next() <= *best;
            if chosen.as_ref().is_none_or(is_better) {
                chosen = Some((index, tin.next()));
            }
        }
        chosen.map(|(index, _)| index)
    }
}

impl<P> Qdisc<P> for Cake<P> {
    #[inline]
    fn enqueue(&mut self, arriving: Queued<P>, verdicts: &mut Verdicts<P>) {
        let now = arriving.since;
        if self.totals.backlog.packets == 0 {
            self.shaper.wake(now);
        }
        let key = (self.tag_of(&arriving.packet), arriving.packet.flow);
        let tin = usize::from(self.tin_of[usize::from(arriving.packet.dscp())]);
        let queue = self.tins[tin].enqueue(arriving, key, &mut self.totals);
        if self.ack_filter != AckFilter::Off {
            self.filter((tin, queue), now, verdicts);
        }
        self.tins[tin].join(queue, &mut self.rng);
        while self.totals.memory > self.memory_limit || !self.limit.allows(self.totals.backlog) {
            self.drop_from_fattest(now, verdicts);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant, verdicts: &mut Verdicts<P>) -> Option<Queued<P>> {
        if self.totals.backlog.packets == 0 || self.shaper.ready() > now {
            return None;
        }
        let mut serves_decaying = true;
        while self.totals.backlog.packets > 0 {
            let tin = self.choose(now)?;
            let with = (&mut self.totals, &mut self.rng, &mut *verdicts);
            let Some(first) = self.tins[tin].step(now, &mut serves_decaying, with) else {
                continue;
            };
            if let Some(rate) = self.rate {
                self.shaper.advance(rate.transmit_time(first.packet.wire_size));
            }
            return Some(first);
        }
        None
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.totals.backlog
    }

    fn ready(&self) -> Instant {
        self.shaper.ready()
    }

    fn read_tcp_with(&mut self, read_tcp: ReadTcp<P>) {
        self.read_tcp = Some(read_tcp);
    }
}
