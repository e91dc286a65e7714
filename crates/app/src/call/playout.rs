//! The receiving end of a call: which frames are there when they are to be played.

use std::collections::BTreeMap;

use skyhop_units::{Bytes, Duration, Instant};

use super::{AUDIO_INTERVAL, Call, Codec, Stream};
use crate::{CallWindow, Detail, Frames, Side, Transaction};

/// What has not come so long after it was due is lost.
const LATEST: Duration = Duration::from_secs(3);
/// After so many audio frames of which none was there in time the buffer is filled anew.
const DEAF: u32 = 50;

/// What one end receives of the other.
#[derive(Debug)]
pub(super) struct Receiver {
    codec: Codec,
    playout: Duration,
    window: Duration,
    streams: [Stream; 2],
    sender: Side,
    /// Of the windows that are not told yet: when each packet arrived, by its place in its stream.
    arrivals: [BTreeMap<u64, Instant>; 2],
    /// The next window to be told.
    next: u64,
    buffer: Buffer,
    jitter: Jitter,
}

/// When frames are played.
#[derive(Debug, Clone, Copy, Default)]
struct Buffer {
    /// How long the packet took with which it was filled.
    base: Option<Duration>,
    /// Audio frames since one was there in time.
    deaf: u32,
}

/// The interarrival jitter of RFC 3550 6.4.1.
#[derive(Debug, Clone, Copy, Default)]
struct Jitter {
    ns: f64,
    transit: Option<Duration>,
}

impl Jitter {
    fn add(&mut self, transit: Duration) {
        if let Some(before) = self.transit.replace(transit) {
            let difference = transit.as_nanos().abs_diff(before.as_nanos()) as f64;
            self.ns += (difference - self.ns) / 16.0;
        }
    }
}

/// A frame as it came.
#[derive(Debug, Clone, Copy)]
struct Frame {
    due: Instant,
    /// When its last packet arrived; `None`: not all did.
    whole: Option<Instant>,
}

impl Receiver {
    pub(super) fn new(call: &Call, streams: [Stream; 2], sender: Side) -> Self {
        Self {
            codec: call.codec,
            playout: call.playout,
            window: call.window,
            streams,
            sender,
            arrivals: [BTreeMap::new(), BTreeMap::new()],
            next: 0,
            buffer: Buffer::default(),
            jitter: Jitter::default(),
        }
    }

    /// A packet has arrived. What comes twice counts once, and what comes after its window was told not at all.
    pub(super) fn receive(&mut self, now: Instant, number: u64) {
        let (medium, packet) = ((number & 1) as usize, number >> 1);
        let stream = &self.streams[medium];
        let is_ours = stream.packets > 0 && stream.has(packet / stream.packets);
        if is_ours && stream.due(packet / stream.packets) >= self.begins(self.next) {
            self.arrivals[medium].entry(packet).or_insert(now);
        }
    }

    /// The windows of which nothing can come any more, of what was sent until `stop`.
    pub(super) fn settle(&mut self, now: Instant, stop: Instant) -> Vec<Transaction> {
        let mut told = Vec::new();
        while self.begins(self.next) < stop {
            let until = self.begins(self.next + 1).min(self.streams[0].stop);
            if until + LATEST > now {
                break;
            }
            told.extend(self.tell(stop, Instant::NEVER));
        }
        told
    }

    /// The rest of what was sent until `stop`, with the frames that were to be played by the `end`.
    pub(super) fn conclude(&mut self, end: Instant, stop: Instant) -> Vec<Transaction> {
        let mut told = Vec::new();
        while self.begins(self.next) < stop.min(end) {
            told.extend(self.tell(stop, end));
        }
        told
    }

    fn begins(&self, window: u64) -> Instant {
        self.streams[0].start + self.window * window
    }

    /// What became of the next window's frames that were to be played by the `end`; nothing where none were.
    fn tell(&mut self, stop: Instant, end: Instant) -> Option<Transaction> {
        let (number, begin) = (self.next, self.begins(self.next));
        let until = self.begins(number + 1).min(stop);
        self.next += 1;
        let [audio, video] = [0, 1].map(|medium| self.frames(medium, begin, until));
        self.count_jitter(&audio);
        let delay = mean_transit(&audio);
        let (audio, video) = self.play(&audio, &video, end);
        let none = Frames::default();
        if audio == none && video == none {
            return None;
        }
        // From the mouth to the ear: a frame is whole when its time has been spoken.
        let coding = AUDIO_INTERVAL + self.codec.look_ahead() + self.playout;
        let is_heard = audio.late + audio.lost < audio.due;
        let heard_after = self.buffer.base.filter(|_| is_heard).map(|base| base + coding);
        let lost = (audio.late + audio.lost) as f64 / audio.due.max(1) as f64;
        let mos = heard_after.map_or(1.0, |after| self.codec.mos(after, lost));
        let counts = [audio.due, video.due].into_iter();
        let bytes =
            counts.zip(self.streams).map(|(due, stream)| due * stream.frame_size().as_u64());
        let bytes = Bytes::new(bytes.sum());
        let of = |side| if self.sender == side { bytes } else { Bytes::ZERO };
        let jitter = Duration::from_nanos(self.jitter.ns.round() as u64);
        Some(Transaction {
            connection: 0,
            // Those of the two directions are told apart.
            number: 2 * number + u64::from(self.sender == Side::Server),
            due: begin,
            sent: of(Side::Client),
            answered: of(Side::Server),
            connect: None,
            first_byte: None,
            took: heard_after,
            detail: Detail::Call(CallWindow {
                sender: self.sender,
                audio,
                video,
                delay,
                jitter,
                mos,
            }),
        })
    }

    /// A window's frames of a stream, which are forgotten with this.
    fn frames(&mut self, medium: usize, begin: Instant, until: Instant) -> Vec<Frame> {
        let (stream, arrivals) = (self.streams[medium], &mut self.arrivals[medium]);
        if stream.packets == 0 {
            return Vec::new();
        }
        let (first, behind) = (stream.first_from(begin), stream.first_from(until));
        let later = arrivals.split_off(&(behind * stream.packets));
        let own = std::mem::replace(arrivals, later);
        let frame = |number: u64| {
            let packets = own.range(number * stream.packets..(number + 1) * stream.packets);
            let is_whole = packets.clone().count() as u64 == stream.packets;
            let last = packets.map(|(_, at)| *at).max();
            Frame { due: stream.due(number), whole: last.filter(|_| is_whole) }
        };
        (first..behind).map(frame).collect()
    }

    fn count_jitter(&mut self, audio: &[Frame]) {
        let mut arrived: Vec<(Instant, Instant)> =
            audio.iter().filter_map(|frame| Some((frame.whole?, frame.due))).collect();
        arrived.sort();
        arrived.into_iter().for_each(|(at, due)| self.jitter.add(at.saturating_since(due)));
    }

    /// Plays audio and video together: the buffer is filled with audio, and video keeps to it.
    fn play(&mut self, audio: &[Frame], video: &[Frame], end: Instant) -> (Frames, Frames) {
        let (mut heard, mut seen) = (Frames::default(), Frames::default());
        let mut video = video.iter().peekable();
        for frame in audio {
            self.buffer.fill(frame);
            while let Some(shown) = video.next_if(|shown| shown.due < frame.due + AUDIO_INTERVAL) {
                self.buffer.play(shown, self.playout, end, &mut seen);
            }
            let in_time = self.buffer.play(frame, self.playout, end, &mut heard);
            self.buffer.deaf = if in_time { 0 } else { self.buffer.deaf + 1 };
        }
        video.for_each(|shown| _ = self.buffer.play(shown, self.playout, end, &mut seen));
        (heard, seen)
    }
}

impl Buffer {
    /// Fills it with this frame, if it is empty or has been of no use for long.
    fn fill(&mut self, frame: &Frame) {
        if let Some(at) = frame.whole
            && (self.base.is_none() || self.deaf >= DEAF)
        {
            (self.base, self.deaf) = (Some(at.saturating_since(frame.due)), 0);
        }
    }

    /// Counts a frame that is to be played by the `end`; whether it is there in time.
    fn play(&self, frame: &Frame, playout: Duration, end: Instant, counts: &mut Frames) -> bool {
        let after = self.base.map_or(LATEST, |base| base + playout);
        if frame.due + after > end {
            return false;
        }
        counts.due += 1;
        match frame.whole {
            Some(at) if self.base.is_some() && at <= frame.due + after => return true,
            Some(_) => counts.late += 1,
            None => counts.lost += 1,
        }
        false
    }
}

/// How long the packets took that arrived, in the mean.
fn mean_transit(audio: &[Frame]) -> Option<Duration> {
    let transits =
        audio.iter().filter_map(|frame| Some(frame.whole?.saturating_since(frame.due).as_nanos()));
    let (sum, count) = transits.fold((0, 0), |(sum, count), ns| (sum + ns, count + 1));
    (count > 0).then(|| Duration::from_nanos(sum / count))
}
