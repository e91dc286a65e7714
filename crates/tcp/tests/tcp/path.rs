//! Two delay lines and an optional bottleneck, where a test decides the fate of every packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use skyhop_cc::{Instance, Module};
use skyhop_model::Ecn;
use skyhop_tcp::{
    Ack, CongestionControl, EndpointConfig, HostConfig, Receiver, ReceiverConfig, Segment,
    SegmentKind, Sender, SenderConfig, TcpInfo,
};
use skyhop_units::{Bytes, Duration, Instant, Rate};

/// Fate of a packet on the path.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    Arrives,
    Late(Duration),
    Twice,
    /// Arrives, although a queue on the path would drop it, as CE if it is ECT.
    Marked,
    Lost,
}

/// Bytes that an IP packet takes in addition on the wire.
const ETHERNET_HEADER: Bytes = Bytes::new(14);
/// Bytes of a full-size segment on the wire.
const FULL_PACKET: u64 = 1514;

/// Return settings of ends whose timers fire exactly on time, without the granularity of the kernel's timer
/// wheel.
pub fn exact_timers() -> EndpointConfig {
    let host = HostConfig { timer_wheel: false, ..HostConfig::default() };
    let sender = SenderConfig { host, ..SenderConfig::default() };
    let receiver = ReceiverConfig { host, ..ReceiverConfig::default() };
    EndpointConfig { sender, receiver, keepalive: None }
}

type Judge<P> = Box<dyn FnMut(Instant, &P) -> Fate>;

#[derive(Debug, Clone, Copy)]
enum Event {
    Segment(Segment),
    Ack(Ack),
}

/// One connection over one path.
pub struct Path<C: CongestionControl> {
    pub sender: Sender<C>,
    pub receiver: Receiver,
    pub now: Instant,
    /// Propagation delay of a packet by the time at which it enters the line.
    pub one_way: Box<dyn Fn(Instant) -> Duration>,
    /// Rate of the bottleneck and its queue in bytes on the wire; `None` for no bottleneck.
    pub bottleneck: Option<(Rate, u64)>,
    /// Decides the fate of a segment when it leaves the bottleneck.
    pub judge_segment: Judge<Segment>,
    pub judge_ack: Judge<Ack>,
    /// Every data segment with its time of transmission.
    pub sent: Vec<(Instant, Segment)>,
    /// Every ACK with its time of transmission.
    pub acks: Vec<(Instant, Ack)>,
    /// State of the sender after every ACK and timer.
    pub trace: Vec<(Instant, TcpInfo)>,
    in_order: u64,
    events: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    slots: Vec<Event>,
    free: Vec<usize>,
    order: u64,
    bottleneck_free: Instant,
    in_service: Duration,
}

/// Return an instance of a module of cc/ with these parameters.
pub fn module(name: &str, params: &[(&str, &str)]) -> Instance {
    let module = Module::find(name).expect("a module of this name");
    Instance::new(module, params).expect("a whole module")
}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl<C: CongestionControl> Path<C> {
    pub fn new(cc: C, one_way: Duration) -> Self {
        Self::with_config(exact_timers().sender, cc, one_way)
    }

    pub fn with_config(config: SenderConfig, cc: C, one_way: Duration) -> Self {
        Self {
            sender: Sender::new(config, cc),
            receiver: Receiver::new(exact_timers().receiver),
            now: Instant::START,
            one_way: Box::new(move |_| one_way),
            bottleneck: None,
            judge_segment: Box::new(|_, _| Fate::Arrives),
            judge_ack: Box::new(|_, _| Fate::Arrives),
            sent: Vec::new(),
            acks: Vec::new(),
            trace: Vec::new(),
            in_order: 0,
            events: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            order: 0,
            bottleneck_free: Instant::START,
            in_service: Duration::ZERO,
        }
    }

    pub fn with_bottleneck(mut self, rate: &str, queue_packets: u64) -> Self {
        let rate = rate.parse().expect("a rate");
        self.bottleneck = Some((rate, queue_packets * FULL_PACKET));
        self
    }

    pub fn judging_segments(
        mut self,
        judge: impl FnMut(Instant, &Segment) -> Fate + 'static,
    ) -> Self {
        self.judge_segment = Box::new(judge);
        self
    }

    /// Send `segments` full-size segments and close the stream.
    pub fn transfer(&mut self, segments: u64) {
        self.sender.write(self.now, Bytes::new(segments * 1448));
        self.sender.finish();
    }

    /// Run until everything has been acknowledged; panic if that takes longer than `limit`.
    pub fn run_to_completion(&mut self, limit: Duration) {
        while !self.sender.is_complete() {
            assert!(self.step(Instant::START + limit), "stalled: {:?}", self.sender.info());
        }
    }

    /// Run the connection for `duration`.
    pub fn run_for(&mut self, duration: Duration) {
        let until = self.now + duration;
        while self.step(until) {}
        self.now = until;
    }

    /// Process one event not later than `until`; return `false` if there is none.
    pub fn step(&mut self, until: Instant) -> bool {
        self.transmit();
        let arrival = self.events.peek().map(|Reverse((at, _, _))| *at);
        let next =
            [arrival, self.sender.next_timer(), self.receiver.next_timer()].into_iter().flatten();
        let Some(at) = next.min().filter(|at| *at <= until) else {
            return false;
        };
        assert!(at >= self.now, "an event in the past");
        self.now = at;
        if arrival == Some(at) {
            let Reverse((_, _, slot)) = self.events.pop().expect("an event");
            self.free.push(slot);
            match self.slots[slot] {
                Event::Segment(segment) => self.receive(&segment),
                Event::Ack(ack) => self.sender.on_ack(at, &ack),
            }
        } else if self.sender.next_timer() == Some(at) {
            self.sender.on_timer(at);
        } else if let Some(ack) = self.receiver.on_timer(at) {
            self.send_ack(ack);
        }
        self.transmit();
        self.trace.push((at, self.sender.info()));
        true
    }

    fn receive(&mut self, segment: &Segment) {
        let ack = self.receiver.on_segment(self.now, segment);
        let in_order = self.receiver.next_expected();
        assert!(in_order >= self.in_order, "the stream does not shrink");
        self.in_order = in_order;
        if let Some(ack) = ack {
            self.send_ack(ack);
        }
    }

    fn transmit(&mut self) {
        while let Some(mut segment) = self.sender.poll_transmit(self.now) {
            if segment.kind == SegmentKind::Data {
                self.sent.push((self.now, segment));
            }
            let Some(through) = self.through_bottleneck(&segment) else {
                continue;
            };
            let fate = match (self.judge_segment)(through, &segment) {
                Fate::Marked if !segment.ecn.is_capable() => Fate::Lost,
                fate => fate,
            };
            if matches!(fate, Fate::Marked) {
                segment.ecn = Ecn::Ce;
            }
            self.deliver(through, fate, Event::Segment(segment));
        }
    }

    fn through_bottleneck(&mut self, segment: &Segment) -> Option<Instant> {
        let Some((rate, queue)) = self.bottleneck else {
            return Some(self.now);
        };
        let size = segment.ip_size() + ETHERNET_HEADER;
        let time = rate.transmit_time(size);
        let start = self.bottleneck_free.max(self.now);
        // The queue does not include the packet in transmission.
        let waiting = rate.bytes_in((start - self.now).saturating_sub(self.in_service));
        if waiting + size > Bytes::new(queue) {
            return None;
        }
        self.in_service = time;
        self.bottleneck_free = start + time;
        Some(self.bottleneck_free)
    }

    fn send_ack(&mut self, ack: Ack) {
        self.acks.push((self.now, ack));
        let fate = (self.judge_ack)(self.now, &ack);
        self.deliver(self.now, fate, Event::Ack(ack));
    }

    fn deliver(&mut self, from: Instant, fate: Fate, event: Event) {
        let at = from + (self.one_way)(from);
        match fate {
            Fate::Arrives | Fate::Marked => self.schedule(at, event),
            Fate::Late(extra) => self.schedule(at + extra, event),
            Fate::Twice => {
                self.schedule(at, event);
                self.schedule(at, event);
            }
            Fate::Lost => {}
        }
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(event);
            self.slots.len() - 1
        });
        self.slots[slot] = event;
        self.events.push(Reverse((at, self.order, slot)));
        self.order += 1;
    }

    /// Clear the records of packets and states.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.acks.clear();
        self.trace.clear();
    }

    pub fn retransmissions(&self) -> Vec<u64> {
        self.sent.iter().filter(|(_, s)| s.retransmission).map(|(_, s)| s.seq).collect()
    }
}

/// Lose the first transmission of these segments.
pub fn lose_once(lost: impl IntoIterator<Item = u64>) -> impl FnMut(Instant, &Segment) -> Fate {
    let lost: Vec<u64> = lost.into_iter().collect();
    move |_, segment| {
        let first = segment.kind == SegmentKind::Data && !segment.retransmission;
        if first && lost.contains(&segment.seq) { Fate::Lost } else { Fate::Arrives }
    }
}
