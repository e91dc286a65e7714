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
//!
//! Fluid that comes over a line waits at the line's near end when it comes faster than the line carries it
//! ([`Lines`]). The transmitter is never idle while there is work at it or at the near end of a line, because no line is
//! slower than the transmitter: the work of both together is that of a single queue, and what is at the near ends
//! is not ahead of a packet.

use skyhop_units::{Bytes, Duration, Instant, Rate};

use crate::background::{Via, bits_between};
use crate::lines::{Lines, reflected};
use crate::qdisc::{Backlog, Limit};
use crate::rng::LinkRng;
use crate::timeline::Timeline;
use crate::{Background, Headway, Piece};

/// Number of the last bursts, on average, that are drawn one by one.
const LAST_BURSTS: f64 = 16.0;

/// Background load of a queue and its transmitter. Work is counted in bits.
#[derive(Debug)]
pub(crate) struct Fluid {
    /// Load of all lines, and the load that no line limits.
    load: Timeline<Piece<Rate>>,
    lines: Lines,
    /// Load of the moment that no line limits, in bit/s.
    unlimited_bps: f64,
    /// Rate of the link in bit/s.
    rate_bps: f64,
    packet_bits: f64,
    burst_bits: f64,
    rng: LinkRng,
    /// Last arrival of a packet.
    since: Instant,
    /// End of the transmission of the last fluid.
    last_end: Instant,
    lost_bits: f64,
}

/// A packet that arrives, on its line.
#[derive(Debug, Clone, Copy)]
struct OnLine {
    /// Number of the line.
    line: usize,
    /// Time from which on the packet held the line.
    from: Instant,
    /// Whether a packet of the fluid arrived at that time.
    follows: bool,
}

impl Fluid {
    /// Create the fluid of a link that has one rate for all time.
    pub(crate) fn new(background: &Background, rate: Rate, seed: u64) -> Self {
        let packet_bits = 8.0 * background.packet.as_u64() as f64;
        let rate_bps = rate.bits_per_second() as f64;
        Self {
            load: Timeline::new(background.load.clone()),
            lines: Lines::new(background, rate_bps),
            unlimited_bps: 0.0,
            rate_bps,
            packet_bits,
            burst_bits: packet_bits * f64::from(background.burst),
            rng: LinkRng::for_background(seed),
            since: Instant::START,
            last_end: Instant::START,
            lost_bits: 0.0,
        }
    }

    /// Time at which all work that came before a packet is done, given the end of the transmission under way, and the
    /// time at which all work until the last call is done. The packet arrives `now`. Fluid for which the queue, in which
    /// packets wait as well, has no room is lost.
    pub(crate) fn free_after(
        &mut self,
        (now, wire_size, via): (Instant, Bytes, Via),
        [sent_until, free]: [Instant; 2],
        (limit, packets): (Limit, Backlog),
    ) -> Instant {
        let packet = self.on_line(now, wire_size, via);
        let room_bits = self.room_bits(limit, packets);
        let (begin, came_bits, room_left_bits) = if free >= now {
            let waiting_bits = self.work_bits(sent_until.max(now), free);
            (free, self.while_busy(now, packet), (room_bits - waiting_bits).max(0.0))
        } else {
            (now, self.while_idle(free, now, packet), room_bits)
        };
        self.lost_bits += (came_bits - room_left_bits).max(0.0);
        let free = self.after(begin, came_bits.min(room_left_bits));
        self.begin_interval(packet, self.room_bits(limit, Backlog::default()));
        self.last_end = if came_bits > 0.0 { free } else { self.last_end.min(free) };
        self.since = now;
        free
    }

    /// Headway of a packet whose transmission ends at a time, after [`Self::free_after`] for it.
    pub(crate) fn headway(&self, ends: Instant) -> Headway {
        if self.burst_bits == 0.0 {
            Headway::UNKNOWN
        } else {
            Headway::new(ends.saturating_since(self.last_end))
        }
    }

    /// Wire bytes that found the queue full.
    pub(crate) fn lost(&self) -> Bytes {
        Bytes::new((self.lost_bits / 8.0) as u64)
    }

    /// Wire bytes at the near ends of the lines, at a time after the last arrival.
    pub(crate) fn at_near_ends(&self, now: Instant) -> Bytes {
        let span_s = now.saturating_since(self.since).as_secs_f64();
        Bytes::new((self.lines.waiting_after(span_s) / 8.0) as u64)
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

    /// Line of a packet that arrives now; `None` if its line brings no fluid.
    fn on_line(&mut self, now: Instant, wire_size: Bytes, via: Via) -> Option<OnLine> {
        let line = self.lines.number_of(via.from)?;
        let state = &mut self.lines.all[line];
        let load = state.load.seek(now).value;
        let own_s = 8.0 * wire_size.as_u64() as f64 / state.rate_bps;
        let [here_bps, all_bps] = [load.here, load.all].map(|rate| rate.bits_per_second() as f64);
        let headway = via.headway.known().filter(|_| here_bps > 0.0);
        // The fluid ahead of the packet may have gone elsewhere.
        let headway =
            headway.filter(|_| here_bps >= all_bps || self.rng.draw() * all_bps < here_bps);
        let held_ns = headway.map_or((own_s * 1e9) as u64, |headway| headway.as_nanos());
        let from = Instant::from_nanos(now.as_nanos().saturating_sub(held_ns));
        let follows = headway.is_some() && from > self.since;
        Some(OnLine { line, from: from.max(self.since), follows })
    }

    /// Begin the time after an arrival; a line has room for so many bits at its near end.
    fn begin_interval(&mut self, packet: Option<OnLine>, room_bits: f64) {
        let unit_bits = self.lines.unit_bits;
        if let Some(packet) = packet {
            self.lines.all[packet.line].end_of_packet(unit_bits);
        }
        for line in &mut self.lines.all {
            self.lost_bits += line.begin_interval(unit_bits, room_bits);
        }
    }

    /// Bits that come until now, while the transmitter has been busy since the last arrival.
    fn while_busy(&mut self, now: Instant, packet: Option<OnLine>) -> f64 {
        let mut unlimited_bits = bits_between(&mut self.load, |load| load, [self.since, now]);
        let mut came_bits = 0.0;
        for number in 0..self.lines.all.len() {
            let own = packet.filter(|packet| packet.line == number);
            let until = own.map_or(now, |packet| packet.from);
            unlimited_bits -= self.carry(number, [self.since, until]);
            let unit_bits = self.lines.unit_bits;
            if own.is_some_and(|own| own.follows) {
                self.lines.all[number].hand_over(unit_bits);
            }
            came_bits += self.lines.all[number].passed_bits(unit_bits);
            self.lines.all[number].is_held = own.is_some();
            unlimited_bits -= self.carry(number, [until, now]);
        }
        came_bits + self.bursts(unlimited_bits)
    }

    /// Carry a line's fluid from one time to another; returns the bits that are expected on average.
    fn carry(&mut self, number: usize, [from, until]: [Instant; 2]) -> f64 {
        let expected_bits =
            bits_between(&mut self.lines.all[number].load, |load| load.here, [from, until]);
        let came_bits = self.bursts(expected_bits);
        self.lines.all[number].carry(came_bits, until.saturating_since(from).as_secs_f64());
        expected_bits
    }

    /// Bits that come while a number of bits are expected.
    fn bursts(&mut self, expected_bits: f64) -> f64 {
        if self.burst_bits == 0.0 || expected_bits <= 0.0 {
            return expected_bits.max(0.0);
        }
        self.burst_bits * self.rng.draw_poisson(expected_bits / self.burst_bits)
    }

    /// Work at `now`, given the time at which that of the last arrival was done.
    fn while_idle(&mut self, free: Instant, now: Instant, packet: Option<OnLine>) -> f64 {
        let near_bits = self.lines.waiting_bits();
        let mut bits = self.work_bits(self.since, free) + near_bits;
        if near_bits > 0.0 {
            self.last_end = self.after(self.since, bits);
        }
        let mut from = self.since;
        if let Some(packet) = packet {
            bits = self.work_until(bits, [from, packet.from]);
            bits = self.hold(bits, packet);
            from = packet.from;
        }
        bits = self.work_until(bits, [from, now]);
        (bits - self.lines.waiting_bits()).max(self.lines.least_work_bits(self.rate_bps))
    }

    /// Work when a packet begins to hold its line, without the fluid at that line's near end.
    fn hold(&mut self, mut bits: f64, packet: OnLine) -> f64 {
        let unit_bits = self.lines.unit_bits;
        if packet.follows {
            bits += self.lines.all[packet.line].hand_over(unit_bits);
        }
        let ahead_bits =
            (bits - self.lines.waiting_bits()).max(self.lines.least_work_bits(self.rate_bps));
        if packet.follows {
            self.last_end = self.after(packet.from, ahead_bits);
        }
        self.lines.all[packet.line].is_held = true;
        ahead_bits + self.lines.waiting_bits()
    }

    /// Work at `until`, given the work at `from`, from which on only fluid comes. It includes the fluid at the near ends of
    /// the lines that are not held.
    fn work_until(&mut self, mut bits: f64, [from, until]: [Instant; 2]) -> f64 {
        let mut at = from;
        while at < until {
            let end = self.seek(at).min(until);
            bits = self.work_after(bits, at, end.saturating_since(at).as_secs_f64());
            at = end;
        }
        bits
    }

    /// Set the loads of the moment, and return the time of their next change.
    fn seek(&mut self, at: Instant) -> Instant {
        self.unlimited_bps = self.load.seek(at).value.bits_per_second() as f64;
        let mut until = self.load.until();
        for line in &mut self.lines.all {
            line.load_bps = line.load.seek(at).value.here.bits_per_second() as f64;
            self.unlimited_bps -= line.load_bps;
            until = until.min(line.load.until());
        }
        self.unlimited_bps = self.unlimited_bps.max(0.0);
        until
    }

    /// Work after a time with constant loads.
    fn work_after(&mut self, bits: f64, at: Instant, span_s: f64) -> f64 {
        let of_lines: f64 = self.lines.all.iter().map(|line| line.load_bps).sum();
        let load_bps = self.unlimited_bps + of_lines;
        if self.burst_bits == 0.0 || load_bps == 0.0 {
            return self.all_at_once(bits, at, span_s);
        }
        let last_s = LAST_BURSTS * self.burst_bits / load_bps;
        let Some(before_s) = Some(span_s - last_s).filter(|before_s| *before_s > 0.0) else {
            return self.burst_by_burst(bits, at, (span_s, load_bps));
        };
        let busy_s = (bits / self.rate_bps).min(before_s);
        let bits = self.all_at_once(bits, at, busy_s);
        let begin = at + Duration::from_secs_f64(before_s);
        let bits = self.long_after(bits, before_s - busy_s);
        self.last_end = self.after(begin, bits);
        self.burst_by_burst(bits, begin, (last_s, load_bps))
    }

    /// Work after a time in which the transmitter is always busy, or the load is even.
    fn all_at_once(&mut self, bits: f64, at: Instant, span_s: f64) -> f64 {
        let mut came_bits = self.bursts(self.unlimited_bps * span_s);
        for number in 0..self.lines.all.len() {
            let drawn_bits = self.bursts(self.lines.all[number].load_bps * span_s);
            came_bits += self.lines.all[number].carry(drawn_bits, span_s);
        }
        let bits = (bits + came_bits - self.rate_bps * span_s).max(0.0);
        if came_bits > 0.0 {
            self.last_end = self.after(at + Duration::from_secs_f64(span_s), bits);
        }
        bits
    }

    /// Work after a time in which bursts come one by one.
    fn burst_by_burst(
        &mut self,
        mut bits: f64,
        at: Instant,
        (span_s, load_bps): (f64, f64),
    ) -> f64 {
        let mean_s = self.burst_bits / load_bps;
        let mut left_s = span_s;
        loop {
            let gap_s = mean_s * self.rng.draw_exponential();
            if gap_s > left_s {
                self.lines.all.iter_mut().for_each(|line| _ = line.carry(0.0, left_s));
                return (bits - self.rate_bps * left_s).max(0.0);
            }
            left_s -= gap_s;
            self.lines.all.iter_mut().for_each(|line| _ = line.carry(0.0, gap_s));
            bits = (bits - self.rate_bps * gap_s).max(0.0);
            let came_bits = self.burst(load_bps);
            bits += came_bits;
            if came_bits > 0.0 {
                self.last_end = self.after(at + Duration::from_secs_f64(span_s - left_s), bits);
            }
        }
    }

    /// Let a burst come over one of the lines, or over none; returns its bits, without those that wait at a line that is
    /// held.
    fn burst(&mut self, load_bps: f64) -> f64 {
        if self.lines.all.is_empty() {
            return self.burst_bits;
        }
        let mut place_bps = self.rng.draw() * load_bps;
        for line in &mut self.lines.all {
            if place_bps < line.load_bps {
                return line.carry(self.burst_bits, 0.0);
            }
            place_bps -= line.load_bps;
        }
        self.burst_bits
    }

    /// Work after a long time, as a Brownian motion that zero reflects; its lowest point given its end has a known
    /// distribution (the reflection principle). The lines and the transmitter share the motion.
    fn long_after(&mut self, bits: f64, span_s: f64) -> f64 {
        if span_s <= 0.0 {
            return bits;
        }
        let depth = self.rng.draw_exponential();
        let lowest = |moved: f64, variance: f64| {
            (moved - (moved * moved + 2.0 * variance * depth).sqrt()) / 2.0
        };
        let (mut came, mut variance) = self.long_motion(self.unlimited_bps, span_s);
        for number in 0..self.lines.all.len() {
            let (own, own_variance) = self.long_motion(self.lines.all[number].load_bps, span_s);
            let line = &mut self.lines.all[number];
            if line.is_held {
                line.carry(own.max(0.0), span_s);
                continue;
            }
            let moved = own - line.rate_bps * span_s;
            line.reflect(own, moved, lowest(moved, own_variance));
            came += own;
            variance += own_variance;
        }
        let moved = came - self.rate_bps * span_s;
        reflected(bits, moved, lowest(moved, variance))
    }

    /// Bits that come with a load in a long time, normally distributed, and their variance.
    fn long_motion(&mut self, load_bps: f64, span_s: f64) -> (f64, f64) {
        if load_bps == 0.0 {
            return (0.0, 0.0);
        }
        let variance = load_bps * span_s * self.burst_bits;
        (load_bps * span_s + variance.sqrt() * self.rng.draw_normal(), variance)
    }
}
