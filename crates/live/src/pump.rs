//! One direction: from one namespace's device through the link into the other's.

use skyhop_model::{Counts, Direction, LossReason};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skyhop_link::{Arrival, Drop, Fabric, LinkStats, Packet};
use skyhop_record::EventRow;
use skyhop_units::{Duration, Instant};

use crate::arrivals::{self, Arrivals};
use crate::routes::RouteTable;
use crate::timing::LatenessWindow;
use crate::turns::TurnClock;
use skyhop_host::device::Device;
use skyhop_host::error::HostError;
use skyhop_host::frame::{Frame, Own, recognise};

/// How many packets are read before those that are due get their turn.
const BATCH: usize = 32;

/// The most losses that get a row each, so that memory stays bounded where a program floods the
/// link; all are counted.
pub(crate) const MOST_LOSSES: usize = 200_000;

/// What one direction is made of.
pub(crate) struct Pump {
    pub(crate) direction: Direction,
    pub(crate) fabric: Fabric<Frame>,
    /// Which of its routes packets take.
    pub(crate) routes: RouteTable,
    pub(crate) from: Arc<Device>,
    pub(crate) to: Arc<Device>,
    /// Flow ids by place, for naming what is lost; the engine's own probe has none.
    pub(crate) flow_ids: Arc<[Option<u32>]>,
    /// Where arrivals are handed over, if anybody wants to know of them.
    pub(crate) arrivals: Option<Arc<Arrivals>>,
}

/// What others may look at while the direction works.
#[derive(Debug)]
pub(crate) struct PumpView {
    published: Mutex<Published>,
    pub(crate) lateness: LatenessWindow,
}

impl PumpView {
    pub(crate) fn new() -> Result<Self, HostError> {
        Ok(Self { published: Mutex::default(), lateness: LatenessWindow::new()? })
    }

    /// Publishes what others have counted.
    pub(crate) fn show(&self, state: PumpState) {
        self.published().state = state;
    }

    pub(crate) fn state(&self) -> PumpState {
        self.published().state.clone()
    }

    /// The state, and what the links have done to packets since this was last asked.
    pub(crate) fn take_verdicts(&self) -> (PumpState, Verdicts) {
        let mut published = self.published();
        (published.state.clone(), mem::take(&mut published.verdicts))
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a direction's thread has published; counts and rows are of the same moment.
#[derive(Debug, Default)]
struct Published {
    state: PumpState,
    verdicts: Verdicts,
}

/// What links have done to packets.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// A row for each loss.
    pub(crate) losses: Vec<EventRow>,
    /// Ids of flows whose packets were marked, one entry per packet.
    pub(crate) marked: Vec<u32>,
}

/// A direction at a moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct PumpState {
    /// Of each link.
    pub(crate) stats: Vec<LinkStats>,
    /// Packets that were read from the device.
    pub(crate) entered: u64,
    /// Packets that have come out of their route.
    pub(crate) delivered: u64,
    /// Packets behind the last link of their route.
    pub(crate) leaving: u64,
    /// Packets that the far device had no room for.
    pub(crate) refused: u64,
    /// Datagrams of programs that were read from the device, and those that came out of their route.
    pub(crate) udp_entered: u64,
    pub(crate) udp_delivered: u64,
    /// Whether nothing is inside.
    pub(crate) idle: bool,
}

impl PumpState {
    /// How many packets the links have lost.
    pub(crate) fn lost(&self) -> u64 {
        self.stats.iter().map(|stats| stats.drops.total()).sum()
    }

    /// How many packets are neither delivered nor lost yet.
    pub(crate) fn inside(&self) -> u64 {
        let inside = |stats: &LinkStats| stats.backlog_packets + stats.underway_packets;
        self.stats.iter().map(inside).sum::<u64>() + self.leaving
    }
}

/// The time that the links scheduled for one datagram, one way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sojourn {
    pub(crate) index: usize,
    pub(crate) number: u64,
    pub(crate) sojourn: Duration,
}

impl Pump {
    /// The id of the flow whose traffic is at this place.
    fn flow_id(&self, place: u32) -> Option<u32> {
        self.flow_ids.get(place as usize).copied().flatten()
    }
}

/// A direction at work; who calls it says when.
pub(crate) struct Worker {
    pump: Pump,
    view: Arc<PumpView>,
    sojourns: Vec<Sojourn>,
    /// Buffers that wait for their next packet, so that memory stays flat.
    spare: Vec<Frame>,
    pending_lateness: Vec<u64>,
    pending_arrivals: Vec<arrivals::Arrival>,
    pending: Verdicts,
    /// How many have a row.
    losses: usize,
    entered: u64,
    delivered: u64,
    udp_entered: u64,
    udp_delivered: u64,
    refused: u64,
    changed: bool,
}

impl Worker {
    pub(crate) fn new(pump: Pump) -> Result<Self, HostError> {
        Ok(Self {
            pump,
            view: Arc::new(PumpView::new()?),
            sojourns: Vec::new(),
            spare: Vec::new(),
            pending_lateness: Vec::new(),
            pending_arrivals: Vec::new(),
            pending: Verdicts::default(),
            losses: 0,
            entered: 0,
            delivered: 0,
            udp_entered: 0,
            udp_delivered: 0,
            refused: 0,
            changed: true,
        })
    }

    pub(crate) fn direction(&self) -> Direction {
        self.pump.direction
    }

    pub(crate) fn view(&self) -> &Arc<PumpView> {
        &self.view
    }

    /// Where packets come from.
    pub(crate) fn source(&self) -> &Device {
        &self.pump.from
    }

    /// When it has something to do if no packet comes.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.pump.fabric.next_wakeup()
    }

    /// What the links scheduled for each of skyhop's own datagrams, when there is nothing more to do.
    pub(crate) fn into_sojourns(self) -> Vec<Sojourn> {
        self.sojourns
    }

    /// Reads what waits at the device; whether there may be more.
    pub(crate) fn read_batch(&mut self, clock: &TurnClock) -> Result<bool, HostError> {
        for _ in 0..BATCH {
            let mut frame = self.spare.pop().unwrap_or_default();
            let Some(length) = self.pump.from.read(frame.buffer())? else {
                self.spare.push(frame);
                return Ok(false);
            };
            let packet = frame.into_packet(length);
            self.udp_entered += u64::from(packet.payload.is_programs_udp());
            let now = clock.now();
            let route = self.pump.routes.route_of(now, &packet);
            self.pump.fabric.enqueue(now, packet, route);
            self.entered += 1;
            self.changed = true;
        }
        Ok(true)
    }

    /// Hands over what has come out of the links.
    pub(crate) fn deliver_due(&mut self, clock: &TurnClock) -> Result<(), HostError> {
        let now = clock.now();
        while let Some(arrival) = self.pump.fabric.poll(now) {
            self.deliver(arrival, clock)?;
        }
        if self.pump.arrivals.is_some() {
            let seen = self.pump.fabric.take_seen().into_iter();
            self.pending_arrivals.extend(seen.map(|(at, delay)| arrivals::Arrival { at, delay }));
        }
        Ok(())
    }

    fn deliver(&mut self, arrival: Arrival<Frame>, clock: &TurnClock) -> Result<(), HostError> {
        self.changed = true;
        let ecn = arrival.packet.ecn();
        let Packet { flow, payload: mut frame, .. } = arrival.packet;
        frame.set_ecn(ecn);
        let written_at = clock.now();
        self.pending_lateness.push(written_at.saturating_since(arrival.at).as_nanos());
        self.delivered += 1;
        self.udp_delivered += u64::from(frame.is_programs_udp());
        if let Some(Own::Udp { index, number }) = recognise(frame.ip()) {
            let sojourn = arrival.at.saturating_since(arrival.sent);
            self.sojourns.push(Sojourn { index, number, sojourn });
        }
        if !self.pump.to.write(frame.ip())? {
            self.refused += 1;
            self.note_loss(written_at, LossReason::Device, 0, flow);
        }
        self.spare.push(frame);
        Ok(())
    }

    fn collect_verdicts(&mut self) {
        for (link, Drop { at, reason, packet }) in self.pump.fabric.take_drops() {
            self.changed = true;
            self.note_loss(at, reason, link as u16, packet.flow);
            self.spare.push(packet.payload);
        }
        let marked = self.pump.fabric.take_marks().into_iter();
        self.pending.marked.extend(marked.filter_map(|place| self.pump.flow_id(place)));
    }

    fn note_loss(&mut self, at: Instant, reason: LossReason, link: u16, flow: u32) {
        if self.losses >= MOST_LOSSES {
            return;
        }
        self.losses += 1;
        let place = (link, self.pump.direction);
        self.pending.losses.push(EventRow::lost(at, reason, place, self.pump.flow_id(flow)));
    }

    /// Lets others see what has changed.
    pub(crate) fn show_changes(&mut self) {
        self.collect_verdicts();
        if self.changed {
            self.publish();
        }
    }

    /// Brings up to date what others see of a link with a backlog, whose state moves only when it is polled; false
    /// where there is none.
    pub(crate) fn refreshes(&mut self) -> bool {
        let has_backlog = self.pump.fabric.stats().any(|stats| stats.backlog_packets > 0);
        self.changed |= has_backlog;
        has_backlog
    }

    pub(crate) fn publish(&mut self) {
        self.view.lateness.record(&mut self.pending_lateness);
        if let Some(arrivals) = &self.pump.arrivals {
            arrivals.append(&mut self.pending_arrivals);
        }
        let mut published = self.view.published();
        published.verdicts.losses.append(&mut self.pending.losses);
        published.verdicts.marked.append(&mut self.pending.marked);
        let state = &mut published.state;
        state.stats.clear();
        state.stats.extend(self.pump.fabric.stats());
        (state.entered, state.delivered) = (self.entered, self.delivered);
        state.leaving = self.pump.fabric.leaving_packets();
        state.refused = self.refused;
        (state.udp_entered, state.udp_delivered) = (self.udp_entered, self.udp_delivered);
        state.idle = self.pump.fabric.next_wakeup().is_none();
        drop(published);
        self.changed = false;
    }
}
