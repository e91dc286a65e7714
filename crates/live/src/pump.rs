//! One direction: from one namespace's device through the link into the other's.

use skyhop_model::{Counts, Direction, LossReason};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use skyhop_link::{Arrival, Drop, Fabric, LinkStats, Packet};
use skyhop_record::EventRow;
use skyhop_units::{Duration, Instant};

use crate::arrivals::{self, Arrivals};
use crate::routes::RouteTable;
use crate::timing::LatenessWindow;
use skyhop_host::clock::{RunClock, Stop, wake_precisely};
use skyhop_host::device::Device;
use skyhop_host::error::{Context, HostError};
use skyhop_host::frame::{Frame, Own, recognise};

/// How many packets are read before those that are due get their turn.
const BATCH: usize = 32;
/// The longest busy wait: a bit more than a sleeping thread wakes late, which takes most of that
/// lateness away at a fifth of a core. Packets of 150 Mbit/s are 80 us apart; a wait that is not
/// short against that never sleeps and takes the time from the endpoints.
pub(crate) const SPIN: Duration = Duration::from_micros(20);

/// The most losses that get a row each, so that memory stays bounded where a program floods the
/// link; all are counted.
pub(crate) const MOST_LOSSES: usize = 200_000;

/// How old the state of a link with a backlog may become while nothing else wakes it.
const REFRESH_MS: u8 = 10;

/// What one direction is made of.
pub(crate) struct Pump {
    pub(crate) direction: Direction,
    pub(crate) fabric: Fabric<Frame>,
    /// Which of its routes packets take.
    pub(crate) routes: RouteTable,
    pub(crate) from: Arc<Device>,
    pub(crate) to: Arc<Device>,
    pub(crate) clock: RunClock,
    pub(crate) spin: bool,
    pub(crate) stop: Arc<Stop>,
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

/// What a direction hands over at the end.
#[derive(Debug, Default)]
pub(crate) struct PumpReport {
    /// What the links scheduled for each of skyhop's own datagrams.
    pub(crate) sojourns: Vec<Sojourn>,
}

/// The time that the links scheduled for one datagram, one way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sojourn {
    pub(crate) index: usize,
    pub(crate) number: u64,
    pub(crate) sojourn: Duration,
}

/// A direction at work on a thread of its own.
pub(crate) struct RunningPump {
    pub(crate) view: Arc<PumpView>,
    thread: JoinHandle<Result<PumpReport, HostError>>,
}

impl RunningPump {
    /// Whether it has ended, which it does by itself only on an error.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> Result<PumpReport, HostError> {
        self.thread.join().unwrap_or_else(|_| {
            let action = "cannot go on".to_owned();
            Err(HostError::System { action, reason: "a link's thread panicked".to_owned() })
        })
    }
}

impl Pump {
    /// The id of the flow whose traffic is at this place.
    fn flow_id(&self, place: u32) -> Option<u32> {
        self.flow_ids.get(place as usize).copied().flatten()
    }

    /// Starts working.
    pub(crate) fn start(self) -> Result<RunningPump, HostError> {
        let view =
            Arc::new(PumpView { published: Mutex::default(), lateness: LatenessWindow::new()? });
        let alarm = Alarm::new(&self.from, &self.stop)?;
        let worker = Worker {
            pump: self,
            view: Arc::clone(&view),
            alarm,
            report: PumpReport::default(),
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
        };
        let thread = thread::Builder::new()
            .name(format!("link-{}", worker.pump.direction.name()))
            .spawn(move || worker.run())
            .context("cannot start a link's thread")?;
        Ok(RunningPump { view, thread })
    }
}

struct Worker {
    pump: Pump,
    view: Arc<PumpView>,
    alarm: Alarm,
    report: PumpReport,
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
    fn run(mut self) -> Result<PumpReport, HostError> {
        wake_precisely()?;
        while !self.pump.stop.is_set() {
            let read = self.read_batch()?;
            self.deliver_due()?;
            self.collect_verdicts();
            if self.changed {
                self.publish();
            }
            if read < BATCH {
                self.wait()?;
            }
        }
        self.publish();
        Ok(self.report)
    }

    fn read_batch(&mut self) -> Result<usize, HostError> {
        for read in 0..BATCH {
            let mut frame = self.spare.pop().unwrap_or_default();
            let Some(length) = self.pump.from.read(frame.buffer())? else {
                self.spare.push(frame);
                return Ok(read);
            };
            let packet = frame.into_packet(length);
            self.udp_entered += u64::from(packet.payload.is_programs_udp());
            let now = self.pump.clock.now();
            let route = self.pump.routes.route_of(now, &packet);
            self.pump.fabric.enqueue(now, packet, route);
            self.entered += 1;
            self.changed = true;
        }
        Ok(BATCH)
    }

    fn deliver_due(&mut self) -> Result<(), HostError> {
        let now = self.pump.clock.now();
        while let Some(arrival) = self.pump.fabric.poll(now) {
            self.deliver(arrival)?;
        }
        if self.pump.arrivals.is_some() {
            let seen = self.pump.fabric.take_seen().into_iter();
            self.pending_arrivals.extend(seen.map(|(at, delay)| arrivals::Arrival { at, delay }));
        }
        Ok(())
    }

    fn deliver(&mut self, arrival: Arrival<Frame>) -> Result<(), HostError> {
        self.changed = true;
        let ecn = arrival.packet.ecn();
        let Packet { flow, payload: mut frame, .. } = arrival.packet;
        frame.set_ecn(ecn);
        let written_at = self.pump.clock.now();
        self.pending_lateness.push(written_at.saturating_since(arrival.at).as_nanos());
        self.delivered += 1;
        self.udp_delivered += u64::from(frame.is_programs_udp());
        if let Some(Own::Udp { index, number }) = recognise(frame.ip()) {
            let sojourn = arrival.at.saturating_since(arrival.sent);
            self.report.sojourns.push(Sojourn { index, number, sojourn });
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

    fn publish(&mut self) {
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

    /// Waits for the next packet to read or to write; returns at once when that is near enough for
    /// a busy wait.
    fn wait(&mut self) -> Result<(), HostError> {
        let next = self.pump.fabric.next_wakeup().unwrap_or(Instant::NEVER);
        let ahead = if self.pump.spin { SPIN } else { Duration::ZERO };
        if next.saturating_since(self.pump.clock.now()) <= ahead {
            return Ok(());
        }
        let wake = (next < Instant::NEVER).then(|| next - ahead);
        // The link's state moves only when it is polled, and the sampler wants it fresh.
        let backlog = self.pump.fabric.stats().any(|stats| stats.backlog_packets > 0);
        let at_most = if backlog { REFRESH_MS.into() } else { EpollTimeout::NONE };
        self.changed |= backlog;
        match self.alarm.wait(self.pump.clock, wake, at_most)? {
            Woken::InOrder => Ok(()),
            Woken::ByAnError => self.pump.from.forget_error(),
        }
    }
}

/// Wakes a direction when there is something to read, at a given time, and when it shall stop.
struct Alarm {
    epoll: Epoll,
    timer: TimerFd,
    set_to: Option<Instant>,
}

/// What a direction was woken by.
enum Woken {
    InOrder,
    /// The device's descriptor reports one.
    ByAnError,
}

impl Alarm {
    fn new(device: &Device, stop: &Stop) -> Result<Self, HostError> {
        let action = "cannot set up a link's alarm";
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).context(action)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(action)?;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        // Edge-triggered: an expired timer wakes once and need not be read.
        let expired = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 1);
        epoll.add(device, readable).context(action)?;
        epoll.add(&timer, expired).context(action)?;
        epoll.add(stop.as_fd(), readable).context(action)?;
        Ok(Self { epoll, timer, set_to: None })
    }

    fn wait(
        &mut self,
        clock: RunClock,
        wake: Option<Instant>,
        at_most: EpollTimeout,
    ) -> Result<Woken, HostError> {
        if wake != self.set_to {
            self.set(clock, wake)?;
        }
        let mut events = [EpollEvent::empty(); 3];
        match self.epoll.wait(&mut events, at_most) {
            Ok(woken) => {
                if events[..woken].iter().any(|event| event.data() == 1) {
                    self.set_to = None;
                }
                let failed = |event: &EpollEvent| event.events().contains(EpollFlags::EPOLLERR);
                let woken = &events[..woken];
                Ok(if woken.iter().any(failed) { Woken::ByAnError } else { Woken::InOrder })
            }
            Err(Errno::EINTR) => Ok(Woken::InOrder),
            Err(error) => Err(error).context("cannot wait for packets"),
        }
    }

    fn set(&mut self, clock: RunClock, wake: Option<Instant>) -> Result<(), HostError> {
        let set = match wake {
            Some(at) => self
                .timer
                .set(Expiration::OneShot(clock.absolute(at)), TimerSetTimeFlags::TFD_TIMER_ABSTIME),
            None => self.timer.unset(),
        };
        set.context("cannot set a link's timer")?;
        self.set_to = wake;
        Ok(())
    }
}
