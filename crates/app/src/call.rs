//! A call: audio and video in both directions over datagrams, and what the receivers make of it.
//!
//! The number of a packet says which it is, and with that when it was due: the ends need not tell each other.

mod playout;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::AppTable;
use skyhop_units::{Bytes, Duration, Instant, Rate};

use crate::emodel::Codec;
use crate::{Action, Application, Datagram, Event, FlowFacts, Kind, Side, Transaction, Transport};
use playout::Receiver;

/// What a packet carries beside its payload: RTP's header (RFC 3550 5.1).
const RTP_HEADER: Bytes = Bytes::new(12);
/// The time that an audio packet holds, the default of RTP (RFC 3551 4.5).
const AUDIO_INTERVAL: Duration = Duration::from_millis(20);
/// The most of a video frame in a packet, so that it fits into every path with its headers.
const MOST_PAYLOAD: Bytes = Bytes::new(1188);
const MOST_VIDEO: Rate = Rate::from_bits_per_second(100_000_000);
const FRAME_RATES: std::ops::RangeInclusive<u32> = 1..=120;
const LONGEST_PLAYOUT: Duration = Duration::from_secs(1);
const WINDOWS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// `[[flow]]` with kind = "call".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Call {
    /// How speech is coded: a packet every 20 ms.
    pub codec: Codec,
    /// How much video is sent per time; 0 bit/s: none.
    pub video: Rate,
    /// How many video frames there are in a second, all of one size.
    pub frame_rate: u32,
    /// The jitter buffer: how much later than the first packet took, counted from when it was due, each frame is played.
    pub playout: Duration,
    /// Over how long delay, losses and opinion are told.
    pub window: Duration,
}

impl Default for Call {
    fn default() -> Self {
        Self {
            codec: Codec::default(),
            video: Rate::from_bits_per_second(1_000_000),
            frame_rate: 30,
            playout: Duration::from_millis(60),
            window: Duration::from_secs(1),
        }
    }
}

impl Kind for Call {
    fn transport(&self) -> Transport {
        Transport::Datagrams
    }

    fn client(&self, flow: &FlowFacts) -> Box<dyn Application> {
        Box::new(Party::new(self, flow, Side::Client))
    }

    fn server(&self, flow: &FlowFacts, _connection: u32) -> Box<dyn Application> {
        Box::new(Party::new(self, flow, Side::Server))
    }

    fn messages_per_s(&self) -> Option<f64> {
        Some(2.0 / self.window.as_secs_f64())
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.video > MOST_VIDEO {
            return Err(("video", format!("is {}; expected at most {MOST_VIDEO}", self.video)));
        }
        if !FRAME_RATES.contains(&self.frame_rate) {
            let (least, most) = (FRAME_RATES.start(), FRAME_RATES.end());
            return Err((
                "frame_rate",
                format!("is {}; expected {least} to {most} a second", self.frame_rate),
            ));
        }
        if self.playout > LONGEST_PLAYOUT {
            return Err((
                "playout",
                format!("is {}; expected at most {LONGEST_PLAYOUT}", self.playout),
            ));
        }
        if !WINDOWS.contains(&self.window) {
            let (least, most) = (WINDOWS.start(), WINDOWS.end());
            return Err(("window", format!("is {}; expected {least} to {most}", self.window)));
        }
        Ok(())
    }

    fn table(&self) -> Option<AppTable> {
        Some(AppTable::Calls)
    }
}

/// One of the two streams of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Audio,
    Video,
}

/// When the frames of a stream are due, and what they are sent in: both ends know it.
#[derive(Debug, Clone, Copy)]
struct Stream {
    medium: Medium,
    start: Instant,
    stop: Instant,
    /// In a second.
    frames: u32,
    /// Of a frame.
    packets: u64,
    /// Of all packets of a frame but the last.
    size: Bytes,
    last_size: Bytes,
}

impl Stream {
    fn audio(call: &Call, flow: &FlowFacts) -> Self {
        let size = call.codec.rate().bytes_in(AUDIO_INTERVAL) + RTP_HEADER;
        let frames = (1_000_000_000 / AUDIO_INTERVAL.as_nanos()) as u32;
        let (start, stop) = (flow.start, flow.stop);
        Self { medium: Medium::Audio, start, stop, frames, packets: 1, size, last_size: size }
    }

    fn video(call: &Call, flow: &FlowFacts) -> Self {
        let (start, stop, frames) = (flow.start, flow.stop, call.frame_rate);
        let whole = call.video.bits_per_second() / 8 / u64::from(frames);
        let packets = whole.div_ceil(MOST_PAYLOAD.as_u64());
        let size = MOST_PAYLOAD + RTP_HEADER;
        // What is left has room for its number at least.
        let last = whole.saturating_sub(packets.saturating_sub(1) * MOST_PAYLOAD.as_u64()).max(4);
        let last_size = Bytes::new(last) + RTP_HEADER;
        Self { medium: Medium::Video, start, stop, frames, packets, size, last_size }
    }

    /// When a frame is due; without rounding that adds up.
    fn due(&self, frame: u64) -> Instant {
        let ns = u128::from(frame) * 1_000_000_000 / u128::from(self.frames);
        self.start + Duration::from_nanos(ns as u64)
    }

    /// The first frame that is due at `at` or later.
    fn first_from(&self, at: Instant) -> u64 {
        let ns = u128::from(at.saturating_since(self.start).as_nanos());
        let near = (ns * u128::from(self.frames) / 1_000_000_000) as u64;
        (near..).find(|frame| self.due(*frame) >= at).unwrap_or(near)
    }

    /// Whether there is such a frame at all.
    fn has(&self, frame: u64) -> bool {
        self.packets > 0 && self.due(frame) < self.stop
    }

    /// The bytes of a frame with their headers.
    fn frame_size(&self) -> Bytes {
        let whole = self.packets.saturating_sub(1) * self.size.as_u64();
        if self.packets == 0 { Bytes::ZERO } else { Bytes::new(whole) + self.last_size }
    }

    /// A packet by its place among the stream's: its number holds the medium too.
    fn datagram(&self, packet: u64) -> Datagram {
        let is_last = packet % self.packets == self.packets - 1;
        let size = if is_last { self.last_size } else { self.size };
        Datagram { number: packet << 1 | u64::from(self.medium == Medium::Video), size }
    }
}

/// One end: it sends both streams, and receives the other end's.
#[derive(Debug)]
struct Party {
    sending: [Sending; 2],
    receiver: Receiver,
}

impl Party {
    fn new(call: &Call, flow: &FlowFacts, side: Side) -> Self {
        let streams = [Stream::audio(call, flow), Stream::video(call, flow)];
        Self {
            sending: streams.map(|stream| Sending { stream, next: 0 }),
            receiver: Receiver::new(call, streams, side.other()),
        }
    }

    /// Until when this end has sent: a run that is ended before its time is so for both ends.
    fn sent_until(&self) -> Instant {
        let Sending { stream, next } = self.sending[0];
        stream.due(next).min(stream.stop)
    }
}

impl Application for Party {
    fn on_event(&mut self, now: Instant, event: Event) {
        if let Event::Datagram(Datagram { number, .. }) = event {
            self.receiver.receive(now, number);
        }
    }

    fn poll(&mut self, now: Instant) -> Action {
        let mut until = Instant::NEVER;
        for sending in &mut self.sending {
            match sending.poll(now) {
                Action::Wait(at) => until = until.min(at),
                action => return action,
            }
        }
        Action::Wait(until)
    }

    fn take_results(&mut self, now: Instant) -> Vec<Transaction> {
        self.receiver.settle(now, self.sent_until())
    }

    fn conclude(&mut self, end: Instant) -> Vec<Transaction> {
        self.receiver.conclude(end, self.sent_until())
    }
}

/// A stream that is being sent.
#[derive(Debug, Clone, Copy)]
struct Sending {
    stream: Stream,
    /// The packet to come.
    next: u64,
}

impl Sending {
    fn poll(&mut self, now: Instant) -> Action {
        if self.stream.packets == 0 {
            return Action::Wait(Instant::NEVER);
        }
        let frame = self.next / self.stream.packets;
        // After a pause of the machine the missed frames stay missed, which the receiver counts as lost: no bursts.
        if self.next.is_multiple_of(self.stream.packets) && self.stream.due(frame + 1) <= now {
            self.next = (self.stream.first_from(now).max(frame + 1) - 1) * self.stream.packets;
        }
        let frame = self.next / self.stream.packets;
        if !self.stream.has(frame) {
            return Action::Wait(Instant::NEVER);
        }
        if self.stream.due(frame) > now {
            return Action::Wait(self.stream.due(frame));
        }
        self.next += 1;
        Action::Send(self.stream.datagram(self.next - 1))
    }
}
