//! Estimate of a run's size before it begins, to refuse runs that take too long or too much memory.

use skyhop_app::{AppKind as _, Side};
use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan, LinkPlan, Route};
use skyhop_link::{Limit, LinkConfig};
use skyhop_model::{Direction, LARGEST_PACKET, OR_FORCE_SIZE, thousands};
use skyhop_units::{Duration, Instant};

/// Largest number of packet hops of a run (each packet counts once for each link that it crosses): about two
/// hours of computing.
const MAX_PACKETS: f64 = 10e9;
/// Largest memory of the packets in flight, in bytes.
const MAX_BYTES: f64 = 4e9;
/// Memory of a packet in flight, in bytes, in links and in the state of its sender and receiver.
const BYTES_PER_PACKET: f64 = 300.0;

/// Check that a run ends within hours and fits into memory, unless `force_size` is set.
pub(crate) fn check(experiment: &Experiment) -> Result<(), Unsupported> {
    if experiment.force_size {
        return Ok(());
    }
    let size = Size::of(experiment);
    if size.packets > MAX_PACKETS {
        let [packets, most] = [size.packets, MAX_PACKETS].map(|packets| thousands(packets as u64));
        let what = format!(
            "makes up to {packets} packets to simulate; at most {most}: shorten it, lower link.rate, {OR_FORCE_SIZE}"
        );
        return Err(Unsupported::new("run.duration", what));
    }
    if size.bytes_in_flight > MAX_BYTES {
        let [gigabytes, most] = [size.bytes_in_flight, MAX_BYTES].map(|bytes| bytes / 1e9);
        let what = format!(
            "makes up to {gigabytes:.0} GB of packets in flight; at most {most:.0} GB: lower it, the round trip, \
             tcp.rmem.max or link.queue, {OR_FORCE_SIZE}"
        );
        return Err(Unsupported::new("link.rate", what));
    }
    Ok(())
}

/// Upper bound of a run's size, from the capacity of the links and from the applications and windows of the
/// flows.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Size {
    /// Number of packet hops: each packet counts once for each link that it crosses.
    packets: f64,
    /// Memory of the packets in flight, in bytes.
    bytes_in_flight: f64,
}

impl Size {
    fn of(experiment: &Experiment) -> Self {
        let rtts: Vec<Duration> = experiment.links.iter().map(least_rtt).collect();
        let narrowest: Vec<f64> =
            experiment.flows.iter().map(|flow| route_capacity(flow, &experiment.links)).collect();
        let (mut packets, mut in_flight) = (0.0, 0.0);
        for (number, link) in (0..).zip(&experiment.links) {
            for &direction in Direction::ALL {
                let config = link.config(direction);
                let flows = experiment.flows.iter().zip(&narrowest);
                let crossing = flows.filter(|(flow, _)| flow.crosses(number));
                let sent =
                    crossing.filter(|(flow, _)| flow.direction_to(Side::Server) == direction);
                let mut demand = Demand::default();
                let (mut start, mut stop) = (Instant::NEVER, Instant::START);
                for (flow, narrowest) in sent {
                    let own = Demand::of(flow, &rtts);
                    demand = demand.and(Demand { packets: own.packets.min(*narrowest), ..own });
                    (start, stop) = (start.min(flow.start), stop.max(flow.stop));
                }
                packets += demand.packets.min(capacity(config, start, stop)) + demand.messages;
                in_flight += demand.window.min(capacity_in_packets(config));
            }
        }
        Self { packets, bytes_in_flight: in_flight * BYTES_PER_PACKET }
    }
}

/// Number of full packets that a direction of a link can carry between two times.
fn capacity(config: &LinkConfig, from: Instant, until: Instant) -> f64 {
    let [before, by_then] = [from, until].map(|at| config.schedule.bytes_until(at));
    (by_then - before).max(0.0) / LARGEST_PACKET.as_u64() as f64
}

/// Number of packets of a flow that its routes can carry, limited by the narrowest link of each route.
fn route_capacity(flow: &FlowPlan, links: &[LinkPlan]) -> f64 {
    let routes = flow.routes.iter().enumerate().map(|(index, route)| {
        let next = flow.routes.get(index + 1).map_or(flow.stop, |next| next.from);
        let (from, until) = (route.from.max(flow.start), next.min(flow.stop));
        let direction = flow.direction_to(Side::Server);
        let configs = route.links.iter().map(|link| links[usize::from(*link)].config(direction));
        configs.map(|config| capacity(config, from, until)).fold(f64::INFINITY, f64::min)
    });
    routes.sum()
}

/// Load of flows over links of unlimited rate, in packets.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    /// Packets that applications and windows allow.
    packets: f64,
    /// Messages that applications send at regular times; each counts as one packet, however small.
    messages: f64,
    /// Largest number of packets in flight.
    window: f64,
}

impl Demand {
    fn of(flow: &FlowPlan, rtts: &[Duration]) -> Self {
        let size = LARGEST_PACKET.as_u64() as f64;
        let app = flow.traffic.app();
        let lasts_s = flow.stop.saturating_since(flow.start).as_secs_f64();
        let messages = app.messages_per_s().map_or(0.0, |per_s| per_s * lasts_s);
        let Some(options) = flow.tcp_options() else {
            return Self { messages: 2.0 * messages, ..Self::default() };
        };
        let window = options.receive_buffer.unwrap_or(options.rmem.max).as_u64() as f64 / size;
        let over = |route: &Route| route.links.iter().map(|link| rtts[usize::from(*link)]).sum();
        let rtt: Duration = flow.routes.iter().map(over).min().unwrap_or_default();
        let by_window = window * lasts_s / (rtt + flow.extra_rtt).as_secs_f64();
        let bytes = app.bytes().map_or(f64::INFINITY, |bytes| bytes.as_u64() as f64 / size);
        let packets = if messages > 0.0 { 0.0 } else { by_window.min(bytes) };
        Self { packets, messages, window }
    }

    fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            messages: self.messages + other.messages,
            window: self.window + other.window,
        }
    }
}

/// Shortest round-trip time that a link ever has, without queueing.
fn least_rtt(link: &LinkPlan) -> Duration {
    let least = |direction: &Direction| {
        let pieces = &link.config(*direction).schedule.delay;
        pieces.iter().map(|piece| piece.delay.min(piece.delay_at_end)).min().unwrap_or_default()
    };
    Direction::ALL.iter().map(least).sum()
}

/// Number of packets that a direction of a link can hold, in its queue and in flight.
fn capacity_in_packets(config: &LinkConfig) -> f64 {
    let size = LARGEST_PACKET.as_u64() as f64;
    let queued = match config.queue {
        Limit::Packets(packets) => packets as f64,
        Limit::Bytes(bytes) => bytes.as_u64() as f64 / size,
    };
    let schedule = &config.schedule;
    let fastest = schedule.rate.iter().map(|piece| piece.value.bits_per_second()).max();
    let longest = schedule.delay.iter().map(|piece| piece.delay.max(piece.delay_at_end)).max();
    let bits = fastest.unwrap_or(0) as f64 * longest.unwrap_or_default().as_secs_f64();
    queued + bits / 8.0 / size
}
