//! Call: audio and video in both directions over datagrams, and the receivers' measurements.
//!
//! A packet's number determines its stream and frame, and thereby its due time, so that the ends
//! need no signalling.

mod playout;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_model::AppTable;
use skyhop_units::{Bytes, Duration, Instant, Rate};

use crate::emodel::Codec;
use crate::{
    Action, AppKind, Application, Datagram, Event, FlowFacts, Side, Transaction, Transport,
};
use playout::Receiver;

/// RTP header of each packet (RFC 3550 5.1).
const RTP_HEADER: Bytes = Bytes::new(12);
/// Speech per audio packet, the default of RTP (RFC 3551 4.5).
const AUDIO_INTERVAL: Duration = Duration::from_millis(20);
/// Largest payload of a video packet, so that it fits into every path with its headers.
const MOST_PAYLOAD: Bytes = Bytes::new(1188);
const MOST_VIDEO: Rate = Rate::from_bits_per_second(100_000_000);
const FRAME_RATES: std::ops::RangeInclusive<u32> = 1..=120;
const LONGEST_PLAYOUT: Duration = Duration::from_secs(1);
const WINDOWS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// Keys of `[[flow]]` with kind = "call": audio and video in both directions over UDP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Call {
    /// Speech codec, with one packet every 20 ms: "g711", "g711-bare" (without loss concealment) or "g729a".
    pub codec: Codec,
    /// Bitrate of the video in each direction, at most 100 Mbit/s; 0 bit/s for a call with audio only.
    pub video: Rate,
    /// Video frames per second, 1 to 120. All frames have the same size.
    pub frame_rate: u32,
    /// Delay of the jitter buffer, at most 1 s. Each frame is played at its due time plus this delay plus
    /// the one-way delay of the first packet.
    pub playout: Duration,
    /// Length of the window over which a row of the table `calls` reports delay, losses and opinion score,
    /// 100 ms to 60 s.
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

impl AppKind for Call {
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

/// Kind of media stream; each direction of a call has one stream of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Audio,
    Video,
}

/// Frame schedule and packet sizes of a stream, known to both ends.
#[derive(Debug, Clone, Copy)]
struct Stream {
    medium: Medium,
    start: Instant,
    stop: Instant,
    /// Number of frames per second.
    frames_per_second: u32,
    /// Number of packets per frame.
    packets_per_frame: u64,
    /// Size of each packet of a frame except the last, RTP header included.
    size: Bytes,
    last_packet_size: Bytes,
}

impl Stream {
    fn audio(call: &Call, flow: &FlowFacts) -> Self {
        let size = call.codec.rate().bytes_in(AUDIO_INTERVAL) + RTP_HEADER;
        let frames_per_second = (1_000_000_000 / AUDIO_INTERVAL.as_nanos()) as u32;
        let (start, stop) = (flow.start, flow.stop);
        Self {
            medium: Medium::Audio,
            start,
            stop,
            frames_per_second,
            packets_per_frame: 1,
            size,
            last_packet_size: size,
        }
    }

    fn video(call: &Call, flow: &FlowFacts) -> Self {
        let (start, stop, frames_per_second) = (flow.start, flow.stop, call.frame_rate);
        let whole = call.video.bits_per_second() / 8 / u64::from(frames_per_second);
        let packets_per_frame = whole.div_ceil(MOST_PAYLOAD.as_u64());
        let size = MOST_PAYLOAD + RTP_HEADER;
        // The last packet must have room at least for its number.
        let last = whole
            .saturating_sub(packets_per_frame.saturating_sub(1) * MOST_PAYLOAD.as_u64())
            .max(4);
        let last_packet_size = Bytes::new(last) + RTP_HEADER;
        Self {
            medium: Medium::Video,
            start,
            stop,
            frames_per_second,
            packets_per_frame,
            size,
            last_packet_size,
        }
    }

    /// Time at which a frame is due, computed from its number so that rounding does not accumulate.
    fn due(&self, frame: u64) -> Instant {
        let ns = u128::from(frame) * 1_000_000_000 / u128::from(self.frames_per_second);
        self.start + Duration::from_nanos(ns as u64)
    }

    /// Number of the first frame that is due at `at` or later.
    fn first_from(&self, at: Instant) -> u64 {
        let ns = u128::from(at.saturating_since(self.start).as_nanos());
        let near = (ns * u128::from(self.frames_per_second) / 1_000_000_000) as u64;
        (near..).find(|frame| self.due(*frame) >= at).unwrap_or(near)
    }

    /// Whether the frame is within the stream's duration.
    fn has(&self, frame: u64) -> bool {
        self.packets_per_frame > 0 && self.due(frame) < self.stop
    }

    /// Size of a frame with the RTP headers of its packets.
    fn frame_size(&self) -> Bytes {
        let whole = self.packets_per_frame.saturating_sub(1) * self.size.as_u64();
        if self.packets_per_frame == 0 {
            Bytes::ZERO
        } else {
            Bytes::new(whole) + self.last_packet_size
        }
    }

    /// Datagram of the packet with this number in its stream; the datagram's number encodes the medium too.
    fn datagram(&self, packet: u64) -> Datagram {
        let is_last = packet % self.packets_per_frame == self.packets_per_frame - 1;
        let size = if is_last { self.last_packet_size } else { self.size };
        Datagram { number: packet << 1 | u64::from(self.medium == Medium::Video), size }
    }
}

/// One end of the call: sends both streams, and receives those of the other end.
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

    /// Time until which this end has sent. If the run was ended prematurely, it is earlier than the flow's
    /// stop, and the same for both ends.
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

/// Stream that is being sent.
#[derive(Debug, Clone, Copy)]
struct Sending {
    stream: Stream,
    /// Number of the next packet.
    next: u64,
}

impl Sending {
    fn poll(&mut self, now: Instant) -> Action {
        if self.stream.packets_per_frame == 0 {
            return Action::Wait(Instant::NEVER);
        }
        let frame = self.next / self.stream.packets_per_frame;
        // After a stall of the host, the frames that were missed are not sent late, in a burst; the receiver
        // counts them as lost.
        if self.next.is_multiple_of(self.stream.packets_per_frame)
            && self.stream.due(frame + 1) <= now
        {
            self.next =
                (self.stream.first_from(now).max(frame + 1) - 1) * self.stream.packets_per_frame;
        }
        let frame = self.next / self.stream.packets_per_frame;
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
