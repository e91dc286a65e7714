//! Pump of one direction: moves packets from one namespace's device through the links to the other's device.

use skyhop_model::{Counts, Direction, LossReason};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skyhop_link::{Arrival, Drop, Fabric, LinkStats, Packet};
use skyhop_record::EventRow;
use skyhop_units::{Duration, Instant};

use crate::arrivals::{self, Arrivals};
use crate::pump_threads::PumpClock;
use crate::timing::LatenessWindow;
use skyhop_host::device::Device;
use skyhop_host::error::HostError;
use skyhop_host::frame::{Frame, OwnPacket, own_packet};

/// Largest number of packets read before the pump delivers due packets again.
const BATCH: usize = 32;

/// Largest number of losses recorded as events, so that memory stays bounded when a program floods the link; all
/// losses are counted.
pub(crate) const MOST_LOSSES: usize = 200_000;

/// Devices and links of one direction.
pub(crate) struct Pump {
    pub(crate) direction: Direction,
    pub(crate) fabric: Fabric<Frame>,
    pub(crate) from: Arc<Device>,
    pub(crate) to: Arc<Device>,
    /// Flow ids by index of the traffic, for loss events; the engine's own probe has none.
    pub(crate) flow_ids: Arc<[Option<u32>]>,
    /// Queue for packet arrivals; `None` for the direction that blind estimation does not watch.
    pub(crate) arrivals: Option<Arc<Arrivals>>,
}

/// State of a direction, which the direction's thread shares with other threads.
#[derive(Debug)]
pub(crate) struct PumpView {
    published: Mutex<Published>,
    pub(crate) lateness: LatenessWindow,
}

impl PumpView {
    pub(crate) fn new() -> Result<Self, HostError> {
        Ok(Self { published: Mutex::default(), lateness: LatenessWindow::new()? })
    }

    /// Publish a state that Linux's disciplines have counted.
    pub(crate) fn publish(&self, state: PumpState) {
        self.published().state = state;
    }

    pub(crate) fn state(&self) -> PumpState {
        self.published().state.clone()
    }

    /// Return the latest state, and the losses and ECN marks since the last call.
    pub(crate) fn take_verdicts(&self) -> (PumpState, Verdicts) {
        let mut published = self.published();
        (published.state.clone(), mem::take(&mut published.verdicts))
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State published by a direction's thread; its counters and its rows are from the same time.
#[derive(Debug, Default)]
struct Published {
    state: PumpState,
    verdicts: Verdicts,
}

/// Losses and marks of a direction's links.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Event rows, one per loss.
    pub(crate) losses: Vec<EventRow>,
    /// Ids of flows whose packets were marked, one entry per packet.
    pub(crate) marked: Vec<u32>,
}

/// Counters of a direction at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct PumpState {
    /// Counters of each link, in order of the scenario.
    pub(crate) stats: Vec<LinkStats>,
    /// Packets that were read from the device.
    pub(crate) entered: u64,
    /// Packets that have left the last link of their route and its extra RTT.
    pub(crate) delivered: u64,
    /// Packets that have left the last link of their route but are still delayed by the flow's extra RTT.
    pub(crate) leaving: u64,
    /// Packets for which the receiving end's device had no room.
    pub(crate) refused: u64,
    /// UDP datagrams of programs read from the device.
    pub(crate) udp_entered: u64,
    /// UDP datagrams of programs that came out of their route.
    pub(crate) udp_delivered: u64,
    /// Whether no packet is inside the links.
    pub(crate) idle: bool,
}

impl PumpState {
    /// Number of packets that the links have lost.
    pub(crate) fn lost(&self) -> u64 {
        self.stats.iter().map(|stats| stats.drops.total()).sum()
    }

    /// Number of packets in the links: read, but neither delivered nor lost yet.
    pub(crate) fn inside(&self) -> u64 {
        let inside = |stats: &LinkStats| stats.backlog_packets + stats.underway_packets;
        self.stats.iter().map(inside).sum::<u64>() + self.leaving
    }
}

/// One-way time in the links that they scheduled for one of skyhop's own datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sojourn {
    pub(crate) index: usize,
    pub(crate) number: u64,
    pub(crate) sojourn: Duration,
}

impl Pump {
    /// Flow id of the traffic with this index.
    fn flow_id(&self, index: u32) -> Option<u32> {
        self.flow_ids.get(index as usize).copied().flatten()
    }
}

/// Running pump of one direction, driven by a pump thread.
pub(crate) struct PumpWorker {
    pump: Pump,
    view: Arc<PumpView>,
    sojourns: Vec<Sojourn>,
    /// Free packet buffers, reused so that the pump does not allocate.
    spare: Vec<Frame>,
    pending_lateness: Vec<u64>,
    pending_arrivals: Vec<arrivals::Arrival>,
    pending: Verdicts,
    /// Number of losses recorded as events.
    losses: usize,
    entered: u64,
    delivered: u64,
    udp_entered: u64,
    udp_delivered: u64,
    refused: u64,
    changed: bool,
}

impl PumpWorker {
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

    /// Device that packets are read from.
    pub(crate) fn source(&self) -> &Device {
        &self.pump.from
    }

    /// Time at which the next packet is due; `None` if the links are empty.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.pump.fabric.next_wakeup()
    }

    /// Scheduled sojourn times of skyhop's own datagrams, after the pump has stopped.
    pub(crate) fn into_sojourns(self) -> Vec<Sojourn> {
        self.sojourns
    }

    /// Read at most [`BATCH`] packets from the device into the links; return whether the device may
    /// have more packets.
    pub(crate) fn read_batch(&mut self, clock: &PumpClock) -> Result<bool, HostError> {
        for _ in 0..BATCH {
            let mut frame = self.spare.pop().unwrap_or_default();
            let Some(length) = self.pump.from.read(frame.buffer())? else {
                self.spare.push(frame);
                return Ok(false);
            };
            let packet = frame.into_packet(length);
            self.udp_entered += u64::from(packet.payload.is_programs_udp());
            self.pump.fabric.enqueue(clock.now(), packet);
            self.entered += 1;
            self.changed = true;
        }
        Ok(true)
    }

    /// Write packets that have come out of the links to the receiving device.
    pub(crate) fn deliver_due(&mut self, clock: &PumpClock) -> Result<(), HostError> {
        let now = clock.now();
        while let Some(arrival) = self.pump.fabric.poll(now) {
            self.deliver(arrival, clock)?;
        }
        if self.pump.arrivals.is_some() {
            let transits = self.pump.fabric.take_transits().into_iter();
            self.pending_arrivals
                .extend(transits.map(|(at, delay)| arrivals::Arrival { at, delay }));
        }
        Ok(())
    }

    fn deliver(&mut self, arrival: Arrival<Frame>, clock: &PumpClock) -> Result<(), HostError> {
        self.changed = true;
        let ecn = arrival.packet.ecn();
        let Packet { flow, payload: mut frame, .. } = arrival.packet;
        frame.set_ecn(ecn);
        let written_at = clock.now();
        self.pending_lateness.push(written_at.saturating_since(arrival.at).as_nanos());
        self.delivered += 1;
        self.udp_delivered += u64::from(frame.is_programs_udp());
        if let Some(OwnPacket::Udp { index, number }) = own_packet(frame.ip()) {
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
        self.pending.marked.extend(marked.filter_map(|index| self.pump.flow_id(index)));
    }

    fn note_loss(&mut self, at: Instant, reason: LossReason, link: u16, flow: u32) {
        if self.losses >= MOST_LOSSES {
            return;
        }
        self.losses += 1;
        let place = (link, self.pump.direction);
        self.pending.losses.push(EventRow::lost(at, reason, place, self.pump.flow_id(flow)));
    }

    /// Publish the state if it has changed.
    pub(crate) fn publish_changes(&mut self) {
        self.collect_verdicts();
        if self.changed {
            self.publish();
        }
    }

    /// Mark the state as changed if a link has a backlog, because polling changes the state of such a link; return
    /// whether a link has a backlog.
    pub(crate) fn mark_backlog_changed(&mut self) -> bool {
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
        state.leaving = self.pump.fabric.pending_packets();
        state.refused = self.refused;
        (state.udp_entered, state.udp_delivered) = (self.udp_entered, self.udp_delivered);
        state.idle = self.pump.fabric.next_wakeup().is_none();
        drop(published);
        self.changed = false;
    }
}
