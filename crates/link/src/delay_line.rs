//! Propagation delay: packets in flight, whose time of arrival is fixed when they enter.

use skyhop_model::LossReason;
use std::collections::VecDeque;

use skyhop_units::Instant;

use crate::qdisc::Queued;
use crate::schedule::delay_at;
use crate::stats::Verdicts;
use crate::timeline::{Begins, Timeline};
use crate::{Arrival, DelayPiece, Dismantled, Packet};

/// Packets in flight, in one lane per route.
///
/// Inside a lane both entries and arrivals are in order, so that a lane is a plain queue. Older lanes exist
/// only while packets of an old route are still in flight.
#[derive(Debug)]
pub(crate) struct DelayLine<P> {
    delay: Timeline<DelayPiece>,
    routes: Timeline<RoutePeriod>,
    /// Lower bound, for each delay piece, on the arrival times of packets that enter when the piece begins or
    /// later.
    earliest_arrivals: Box<[Instant]>,
    /// Latest arrival so far on the current route; later packets on that route do not arrive earlier.
    last_arrival: Instant,
    /// Lane of the last packet that entered; the only lane that may be empty.
    newest: Lane<P>,
    /// Lanes of earlier routes, ordered by entry.
    older: Vec<Lane<P>>,
    packets: u64,
    /// Time of the next arrival; [`Instant::NEVER`] while no packet is in flight.
    next_arrival: Instant,
}

impl<P> DelayLine<P> {
    pub(crate) fn new(delay: Vec<DelayPiece>) -> Self {
        let earliest_arrivals = earliest_arrivals(&delay);
        let routes = routes(&delay, &earliest_arrivals);
        Self {
            delay: Timeline::new(delay),
            routes: Timeline::new(routes),
            earliest_arrivals,
            last_arrival: Instant::START,
            newest: Lane { route: 0, packets: VecDeque::new() },
            older: Vec::new(),
            packets: 0,
            next_arrival: Instant::NEVER,
        }
    }

    /// Add a packet that enters at `entered`, which must not decrease from call to call and may lie in the
    /// future.
    #[inline(always)]
    pub(crate) fn enter(&mut self, entered: Instant, queued: Queued<P>) {
        if entered >= self.routes.until() {
            self.routes.seek(entered);
            self.last_arrival = Instant::START;
        }
        self.delay.seek(entered);
        let delay = self.delay.current().delay_at(entered, self.delay.until());
        self.last_arrival = self.last_arrival.max(entered + delay);
        let Queued { since, packet } = queued;
        let in_flight = InFlight { arrives: self.last_arrival, entered, sent: since, packet };
        self.packets += 1;
        self.next_arrival = self.next_arrival.min(self.last_arrival);
        if self.newest.route != self.routes.index() {
            self.begin_lane();
        }
        self.newest.packets.push_back(in_flight);
    }

    /// Start a lane for the new route that packets take from now on.
    #[cold]
    fn begin_lane(&mut self) {
        let route = self.routes.index();
        if self.newest.packets.is_empty() {
            self.newest.route = route;
        } else {
            let lane = Lane { route, packets: VecDeque::new() };
            self.older.push(std::mem::replace(&mut self.newest, lane));
        }
    }

    /// Return the next packet that has arrived by `now`: the earliest, and of packets with the same arrival
    /// time the first that entered.
    #[inline]
    pub(crate) fn pop_arrived(&mut self, now: Instant) -> Option<Arrival<P>> {
        if self.next_arrival > now {
            return None;
        }
        let arrived = match self.first_older_lane() {
            None => self.newest.packets.pop_front()?,
            Some(lane) => self.pop_older(lane)?,
        };
        self.packets -= 1;
        self.find_next_arrival();
        Some(Arrival { at: arrived.arrives, sent: arrived.sent, packet: arrived.packet })
    }

    #[cold]
    fn pop_older(&mut self, lane: usize) -> Option<InFlight<P>> {
        let arrived = self.older[lane].packets.pop_front();
        self.older.retain(|lane| !lane.packets.is_empty());
        arrived
    }

    /// Drop the packets on `hop` as it ceases to exist. The lanes must contain all packets that enter up to
    /// that time; they may contain packets that enter later.
    pub(crate) fn dismantle(&mut self, hop: &Dismantled, verdicts: &mut Verdicts<P>) {
        for lane in self.older.iter_mut().chain([&mut self.newest]) {
            let (first, end) = lane.on_hop(hop);
            self.packets -= (end - first) as u64;
            for lost in lane.packets.drain(first..end) {
                verdicts.lose(hop.at, LossReason::Dismantled, lost.packet);
            }
        }
        self.older.retain(|lane| !lane.packets.is_empty());
        self.find_next_arrival();
    }

    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Time of the next arrival; [`Instant::NEVER`] while no packet is in flight.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Instant {
        self.next_arrival
    }

    /// Lower bound on the arrival times over routes that begin after the last entry and before `by`; `None` if
    /// no route begins then.
    #[inline]
    pub(crate) fn earliest_on_later_routes(&self, by: Instant) -> Option<Instant> {
        if self.routes.until() >= by {
            return None;
        }
        self.routes.next().map(|route| route.earliest_arrival)
    }

    /// Lower bound on the arrival of packets that enter at `enters` or later.
    pub(crate) fn earliest_arrival_from(&self, enters: Instant) -> Instant {
        let pieces = self.delay.pieces();
        let this = enters + delay_at(pieces, enters);
        let next = pieces.partition_point(|piece| piece.from <= enters);
        match pieces.get(next) {
            None => this,
            Some(piece) => {
                let at_end = piece.from + pieces[next - 1].delay_at_end;
                this.min(at_end).min(self.earliest_arrivals[next])
            }
        }
    }

    #[inline]
    fn find_next_arrival(&mut self) {
        let older = self.older.iter().map(Lane::next_arrival).min();
        let newest = self.newest.next_arrival();
        self.next_arrival = older.map_or(newest, |older| older.min(newest));
    }

    /// Index of the older lane whose first packet arrives next; `None` if the first packet of the newest lane
    /// does.
    #[inline]
    fn first_older_lane(&self) -> Option<usize> {
        // The common case: no route change is in flight.
        if self.older.is_empty() {
            return None;
        }
        let heads = self.older.iter().map(Lane::next_arrival).enumerate();
        // `min_by_key` keeps the first of equal minima, the lane that was entered first.
        let (lane, arrives) = heads.min_by_key(|&(_, arrives)| arrives)?;
        (arrives <= self.newest.next_arrival()).then_some(lane)
    }
}

#[derive(Debug)]
struct Lane<P> {
    route: usize,
    packets: VecDeque<InFlight<P>>,
}

impl<P> Lane<P> {
    /// Arrival time of the lane's first packet; [`Instant::NEVER`] while the lane is empty.
    #[inline]
    fn next_arrival(&self) -> Instant {
        self.packets.front().map_or(Instant::NEVER, |first| first.arrives)
    }

    /// Range of indices of the packets that are on `hop` when it is dismantled.
    fn on_hop(&self, hop: &Dismantled) -> (usize, usize) {
        // `None` for a packet that enters later.
        let time_in_line = |packet: &InFlight<P>| {
            (packet.entered <= hop.at).then(|| hop.at.saturating_since(packet.entered))
        };
        let has_left = |packet: &InFlight<P>| {
            packet.arrives <= hop.at || time_in_line(packet) >= Some(hop.far)
        };
        let first = self.packets.partition_point(has_left);
        let end = self.packets.partition_point(|packet| time_in_line(packet) >= Some(hop.near));
        (first, end.max(first))
    }
}

#[derive(Debug)]
struct InFlight<P> {
    arrives: Instant,
    entered: Instant,
    sent: Instant,
    packet: Packet<P>,
}

/// Period in which packets take the same route and stay in order.
#[derive(Debug, Clone, Copy)]
struct RoutePeriod {
    from: Instant,
    earliest_arrival: Instant,
}

impl Begins for RoutePeriod {
    fn begins(&self) -> Instant {
        self.from
    }
}

fn routes(delay: &[DelayPiece], earliest_arrivals: &[Instant]) -> Vec<RoutePeriod> {
    let pieces = delay.iter().zip(earliest_arrivals);
    pieces
        .filter(|(piece, _)| piece.new_route || piece.from == Instant::START)
        .map(|(piece, &earliest_arrival)| RoutePeriod { from: piece.from, earliest_arrival })
        .collect()
}

/// Suffix minima of `t + delay(t)`, which inside a piece is least at one of its ends.
fn earliest_arrivals(delay: &[DelayPiece]) -> Box<[Instant]> {
    let mut earliest = vec![Instant::NEVER; delay.len()].into_boxed_slice();
    let mut later = Instant::NEVER;
    for (index, piece) in delay.iter().enumerate().rev() {
        let at_end: Option<Instant> = delay.get(index + 1).map(|n| n.from + piece.delay_at_end);
        later = later.min(piece.from + piece.delay).min(at_end.unwrap_or(Instant::NEVER));
        earliest[index] = later;
    }
    earliest
}

#[cfg(test)]
mod tests {
    use skyhop_units::{Bytes, Duration};

    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    fn piece(from_ms: u64, delay_ms: u64, at_end_ms: u64, new_route: bool) -> DelayPiece {
        DelayPiece {
            from: ms(from_ms),
            delay: Duration::from_millis(delay_ms),
            delay_at_end: Duration::from_millis(at_end_ms),
            new_route,
        }
    }

    /// Enter packets at the given milliseconds; return each packet's entry and its arrival, in the order of
    /// arrival.
    fn arrivals(delay: Vec<DelayPiece>, entries_ms: &[u64]) -> Vec<(u64, Instant)> {
        let mut line = DelayLine::new(delay);
        for &entry in entries_ms {
            let packet = Packet::new(Bytes::new(64), entry);
            line.enter(ms(entry), Queued { since: ms(entry), packet });
        }
        let out = std::iter::from_fn(|| line.pop_arrived(ms(1_000_000)));
        out.map(|arrival| (arrival.packet.payload, arrival.at)).collect()
    }

    #[test]
    fn the_delay_goes_linearly_through_a_piece() {
        let delay = vec![piece(0, 10, 30, false), piece(100, 30, 30, false)];
        let out = arrivals(delay, &[0, 50, 99, 100]);
        let ninety_nine = ms(99) + Duration::from_micros(29_800);
        assert_eq!(out, [(0, ms(10)), (50, ms(70)), (99, ninety_nine), (100, ms(130))]);
    }

    #[test]
    fn packets_bunch_up_where_the_delay_falls_on_one_route() {
        let delay = vec![piece(0, 50, 50, false), piece(10, 20, 20, false)];
        let out = arrivals(delay, &[5, 10, 20, 40]);
        assert_eq!(out, [(5, ms(55)), (10, ms(55)), (20, ms(55)), (40, ms(60))]);
    }

    #[test]
    fn packets_overtake_on_a_new_route_and_ties_keep_their_order() {
        let delay = vec![piece(0, 50, 50, false), piece(10, 20, 20, true)];
        let out = arrivals(delay, &[5, 6, 10, 35, 40]);
        assert_eq!(out, [(10, ms(30)), (5, ms(55)), (35, ms(55)), (6, ms(56)), (40, ms(60))]);
    }

    #[test]
    fn three_routes_can_be_in_flight_at_once() {
        let delay = vec![piece(0, 90, 90, false), piece(10, 60, 60, true), piece(20, 10, 10, true)];
        let out = arrivals(delay, &[0, 10, 20, 70, 80, 90]);
        let order: Vec<u64> = out.iter().map(|&(entry, _)| entry).collect();
        assert_eq!(order, [20, 10, 70, 0, 80, 90]);
    }

    #[test]
    fn the_bound_on_later_arrivals_holds_at_every_entry() {
        let sloping = vec![
            piece(0, 40, 10, false),
            piece(20, 60, 15, true),
            piece(50, 5, 80, false),
            piece(90, 3, 3, true),
        ];
        let falling =
            vec![piece(0, 100, 100, false), piece(20, 90, 90, true), piece(30, 5, 5, false)];
        for delay in [sloping, falling] {
            let line = DelayLine::<()>::new(delay.clone());
            let arrival = |entry: u64| ms(entry) + delay_at(&delay, ms(entry));
            for from in 0..120 {
                let least = (from..200).map(arrival).min();
                let bound = line.earliest_arrival_from(ms(from));
                assert!(Some(bound) <= least && bound >= ms(from), "from {from} ms: {bound}");
            }
            assert_eq!(line.earliest_arrival_from(ms(95)), arrival(95));
        }
    }
}
