//! A background load in a queue that is first in, first out: the work of the transmitter that is ahead of a packet.
//!
//! The work ahead of a packet is that of all packets and of the fluid that came before it. It is computed when a packet
//! arrives, from the work at the last arrival, by a few random draws at most, however much fluid came in between:
//!
//! - While the transmitter is busy with what has been there at the last arrival, all new fluid adds to the work. Its
//!   bursts are a Poisson process.
//! - When the transmitter may become idle in between, only the last bursts decide how much work there is. They are drawn
//!   one by one. What came before them is a Brownian motion that zero reflects, with the mean and variance of the load:
//!   its stationary mean is that of the M/D/1 queue (Pollaczek and Khinchine).

use skyhop_units::{Bytes, Instant, Rate};

use crate::background::bits_between;
use crate::qdisc::{Backlog, Limit};
use crate::rng::LinkRng;
use crate::timeline::Timeline;
use crate::{Background, Piece};

/// Number of the last bursts, on average, that are drawn one by one.
const LAST_BURSTS: f64 = 16.0;

/// Background load of a queue and its transmitter. Work is counted in bits.
#[derive(Debug)]
pub(crate) struct Fluid {
    load: Timeline<Piece<Rate>>,
    /// Rate of the link in bit/s.
    rate_bps: f64,
    packet_bits: f64,
    burst_bits: f64,
    rng: LinkRng,
    /// Last arrival of a packet.
    since: Instant,
    lost_bits: f64,
}

impl Fluid {
    /// Create the fluid of a link that has one rate for all time.
    pub(crate) fn new(background: &Background, rate: Rate, seed: u64) -> Self {
        let packet_bits = 8.0 * background.packet.as_u64() as f64;
        Self {
            load: Timeline::new(background.load.clone()),
            rate_bps: rate.bits_per_second() as f64,
            packet_bits,
            burst_bits: packet_bits * f64::from(background.burst),
            rng: LinkRng::for_background(seed),
            since: Instant::START,
            lost_bits: 0.0,
        }
    }

    /// Time at which all work that came before `now` is done, given the end of the transmission under way, and the time
    /// at which all work until the last call is done. Fluid for which the queue, in which packets wait as well, has no
    /// room is lost.
    pub(crate) fn free_after(
        &mut self,
        now: Instant,
        [sent_until, free]: [Instant; 2],
        (limit, packets): (Limit, Backlog),
    ) -> Instant {
        let busy_until = free.min(now).max(self.since);
        let came_bits = bits_between(&mut self.load, self.since, busy_until);
        let came_bits = self.bursts(came_bits);
        self.since = now;
        if free >= now {
            let waiting_bits = self.work_bits(sent_until.max(now), free);
            let room_bits = (self.room_bits(limit, packets) - waiting_bits).max(0.0);
            self.lost_bits += (came_bits - room_bits).max(0.0);
            return self.after(free, came_bits.min(room_bits));
        }
        let (work_bits, room_bits) =
            (self.work_when_idle(came_bits, busy_until, now), self.room_bits(limit, packets));
        self.lost_bits += (work_bits - room_bits).max(0.0);
        self.after(now, work_bits.min(room_bits))
    }

    /// Wire bytes that found the queue full.
    pub(crate) fn lost(&self) -> Bytes {
        Bytes::new((self.lost_bits / 8.0) as u64)
    }

    /// Backlog of a queue with these packets and the fluid, of which the transmitter becomes free at `free`. `sent_until`
    /// is the end of the transmission under way.
    pub(crate) fn with_packets(
        &self,
        packets: Backlog,
        now: Instant,
        [sent_until, free]: [Instant; 2],
    ) -> Backlog {
        let waiting_bits = self.work_bits(sent_until.max(now), free);
        let fluid_bits = (waiting_bits - 8.0 * packets.bytes.as_u64() as f64).max(0.0);
        Backlog {
            packets: packets.packets + (fluid_bits / self.packet_bits) as u64,
            bytes: packets.bytes + Bytes::new((fluid_bits / 8.0) as u64),
        }
    }

    /// Most work of fluid for which the queue has room, next to packets that wait.
    fn room_bits(&self, limit: Limit, packets: Backlog) -> f64 {
        let waiting_bits = 8.0 * packets.bytes.as_u64() as f64;
        match limit {
            Limit::Packets(most) => {
                waiting_bits + most.saturating_sub(packets.packets) as f64 * self.packet_bits
            }
            Limit::Bytes(most) => 8.0 * most.as_u64() as f64,
        }
    }

    /// Work that the transmitter does from one time to another.
    fn work_bits(&self, from: Instant, until: Instant) -> f64 {
        self.rate_bps * until.saturating_since(from).as_secs_f64()
    }

    /// Time at which work that begins at `at` is done.
    fn after(&self, at: Instant, bits: f64) -> Instant {
        Instant::from_nanos(at.as_nanos() + (bits / self.rate_bps * 1e9).round() as u64)
    }

    /// Bits that come while a number of bits are expected.
    fn bursts(&mut self, expected_bits: f64) -> f64 {
        if self.burst_bits == 0.0 || expected_bits <= 0.0 {
            return expected_bits.max(0.0);
        }
        self.burst_bits * self.rng.draw_poisson(expected_bits / self.burst_bits)
    }

    /// Work at `now`, given the work at `from`, from which on only fluid comes.
    fn work_when_idle(&mut self, mut bits: f64, from: Instant, now: Instant) -> f64 {
        let mut at = from;
        while at < now {
            let load_bps = self.load.seek(at).value.bits_per_second() as f64;
            let end = self.load.until().min(now);
            let span_s = end.saturating_since(at).as_secs_f64();
            bits = self.work_after(bits, load_bps, span_s);
            at = end;
        }
        bits
    }

    /// Work after a time with a constant load.
    fn work_after(&mut self, bits: f64, load_bps: f64, span_s: f64) -> f64 {
        if self.burst_bits == 0.0 || load_bps == 0.0 {
            return (bits + (load_bps - self.rate_bps) * span_s).max(0.0);
        }
        let last_s = LAST_BURSTS * self.burst_bits / load_bps;
        if span_s <= last_s {
            return self.burst_by_burst(bits, load_bps, span_s);
        }
        let before = self.reflected(bits, load_bps, span_s - last_s);
        self.burst_by_burst(before, load_bps, last_s)
    }

    /// Work after a time in which bursts come one by one.
    fn burst_by_burst(&mut self, mut bits: f64, load_bps: f64, span_s: f64) -> f64 {
        let mean_s = self.burst_bits / load_bps;
        let mut left_s = span_s;
        loop {
            let gap_s = mean_s * self.rng.draw_exponential();
            if gap_s > left_s {
                return (bits - self.rate_bps * left_s).max(0.0);
            }
            bits = (bits - self.rate_bps * gap_s).max(0.0) + self.burst_bits;
            left_s -= gap_s;
        }
    }

    /// Work after a time as a Brownian motion that zero reflects; its lowest point given its end has a known
    /// distribution (the reflection principle).
    fn reflected(&mut self, bits: f64, load_bps: f64, span_s: f64) -> f64 {
        let variance = load_bps * span_s * self.burst_bits;
        let moved = (load_bps - self.rate_bps) * span_s + variance.sqrt() * self.rng.draw_normal();
        let depth = (moved * moved + 2.0 * variance * self.rng.draw_exponential()).sqrt();
        let lowest = (moved - depth) / 2.0;
        bits + moved - (bits + lowest).min(0.0)
    }
}
