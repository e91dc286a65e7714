//! Receiving end of a call: determines which frames are complete at their playout time.

use std::collections::BTreeMap;

use skyhop_units::{Bytes, Duration, Instant};

use super::{AUDIO_INTERVAL, Call, Codec, Stream};
use crate::{CallWindow, Detail, Frames, Side, Transaction};

/// Time after a packet's due time at which the packet counts as lost if it has not arrived.
const LATEST: Duration = Duration::from_secs(3);
/// Number of consecutive audio frames that miss their playout time, after which the base delay of the
/// jitter buffer is set again.
const REFILL_AFTER: u32 = 50;

/// Receiver of one direction of the call.
#[derive(Debug)]
pub(super) struct Receiver {
    codec: Codec,
    playout: Duration,
    window: Duration,
    streams: [Stream; 2],
    sender: Side,
    /// Arrival times of packets by their number in the stream, for windows not yet reported.
    arrivals: [BTreeMap<u64, Instant>; 2],
    /// Number of the next window to report.
    next: u64,
    buffer: Buffer,
    jitter: Jitter,
}

/// Jitter buffer: decides when frames are played.
#[derive(Debug, Clone, Copy, Default)]
struct Buffer {
    /// One-way delay of the packet that started playout; the base of playout times.
    base: Option<Duration>,
    /// Number of consecutive audio frames that missed their playout time.
    missed: u32,
}

/// Interarrival jitter estimator of RFC 3550 6.4.1.
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

/// Media frame as received.
#[derive(Debug, Clone, Copy)]
struct Frame {
    due: Instant,
    /// Arrival of the frame's last packet; `None` if a packet is missing.
    complete_at: Option<Instant>,
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

    /// Record the arrival of a packet. Duplicates count once; packets whose window has been reported are
    /// ignored.
    pub(super) fn receive(&mut self, now: Instant, number: u64) {
        let (medium, packet) = ((number & 1) as usize, number >> 1);
        let stream = &self.streams[medium];
        let is_ours = stream.packets_per_frame > 0 && stream.has(packet / stream.packets_per_frame);
        if is_ours && stream.due(packet / stream.packets_per_frame) >= self.window_start(self.next)
        {
            self.arrivals[medium].entry(packet).or_insert(now);
        }
    }

    /// Report the windows for which no more packets can arrive. Only frames sent before `stop` count.
    pub(super) fn settle(&mut self, now: Instant, stop: Instant) -> Vec<Transaction> {
        let mut reported = Vec::new();
        while self.window_start(self.next) < stop {
            let until = self.window_start(self.next + 1).min(self.streams[0].stop);
            if until + LATEST > now {
                break;
            }
            reported.extend(self.report_window(stop, Instant::NEVER));
        }
        reported
    }

    /// Report the remaining windows. Only frames that were sent before `stop`, and whose playout time is at
    /// most `end`, count.
    pub(super) fn conclude(&mut self, end: Instant, stop: Instant) -> Vec<Transaction> {
        let mut reported = Vec::new();
        while self.window_start(self.next) < stop.min(end) {
            reported.extend(self.report_window(stop, end));
        }
        reported
    }

    fn window_start(&self, window: u64) -> Instant {
        self.streams[0].start + self.window * window
    }

    /// Report the next window, with its frames whose playout time is at most `end`; `None` if there
    /// are no such frames.
    fn report_window(&mut self, stop: Instant, end: Instant) -> Option<Transaction> {
        let (number, begin) = (self.next, self.window_start(self.next));
        let until = self.window_start(number + 1).min(stop);
        self.next += 1;
        let [audio, video] = [0, 1].map(|medium| self.frames(medium, begin, until));
        self.count_jitter(&audio);
        let delay = mean_transit(&audio);
        let (audio, video) = self.play(&audio, &video, end);
        let none = Frames::default();
        if audio == none && video == none {
            return None;
        }
        // Mouth-to-ear delay. It includes the length of a frame, because a frame can be sent only after its
        // speech has been recorded.
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
            // The parity of a transaction's number distinguishes the two directions.
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

    /// Remove and return a window's frames of one stream.
    fn frames(&mut self, medium: usize, begin: Instant, until: Instant) -> Vec<Frame> {
        let (stream, arrivals) = (self.streams[medium], &mut self.arrivals[medium]);
        if stream.packets_per_frame == 0 {
            return Vec::new();
        }
        let (first, behind) = (stream.first_from(begin), stream.first_from(until));
        let later = arrivals.split_off(&(behind * stream.packets_per_frame));
        let own = std::mem::replace(arrivals, later);
        let frame = |number: u64| {
            let packets = own
                .range(number * stream.packets_per_frame..(number + 1) * stream.packets_per_frame);
            let is_whole = packets.clone().count() as u64 == stream.packets_per_frame;
            let last = packets.map(|(_, at)| *at).max();
            Frame { due: stream.due(number), complete_at: last.filter(|_| is_whole) }
        };
        (first..behind).map(frame).collect()
    }

    fn count_jitter(&mut self, audio: &[Frame]) {
        let mut arrived: Vec<(Instant, Instant)> =
            audio.iter().filter_map(|frame| Some((frame.complete_at?, frame.due))).collect();
        arrived.sort();
        arrived.into_iter().for_each(|(at, due)| self.jitter.add(at.saturating_since(due)));
    }

    /// Play audio and video in synchrony: audio frames set the buffer's base delay, which applies to video too.
    fn play(&mut self, audio: &[Frame], video: &[Frame], end: Instant) -> (Frames, Frames) {
        let (mut heard, mut seen) = (Frames::default(), Frames::default());
        let mut video = video.iter().peekable();
        for frame in audio {
            self.buffer.fill(frame);
            while let Some(shown) = video.next_if(|shown| shown.due < frame.due + AUDIO_INTERVAL) {
                self.buffer.play(shown, self.playout, end, &mut seen);
            }
            let in_time = self.buffer.play(frame, self.playout, end, &mut heard);
            self.buffer.missed = if in_time { 0 } else { self.buffer.missed + 1 };
        }
        video.for_each(|shown| _ = self.buffer.play(shown, self.playout, end, &mut seen));
        (heard, seen)
    }
}

impl Buffer {
    /// Set the base delay to the delay of this frame, if it is not set yet or too many frames have
    /// missed their playout time.
    fn fill(&mut self, frame: &Frame) {
        if let Some(at) = frame.complete_at
            && (self.base.is_none() || self.missed >= REFILL_AFTER)
        {
            (self.base, self.missed) = (Some(at.saturating_since(frame.due)), 0);
        }
    }

    /// Count a frame whose playout time is at most `end`; return whether the frame is in time.
    fn play(&self, frame: &Frame, playout: Duration, end: Instant, counts: &mut Frames) -> bool {
        let after = self.base.map_or(LATEST, |base| base + playout);
        if frame.due + after > end {
            return false;
        }
        counts.due += 1;
        match frame.complete_at {
            Some(at) if self.base.is_some() && at <= frame.due + after => return true,
            Some(_) => counts.late += 1,
            None => counts.lost += 1,
        }
        false
    }
}

/// Mean one-way delay of the frames that arrived.
fn mean_transit(audio: &[Frame]) -> Option<Duration> {
    let transits = audio
        .iter()
        .filter_map(|frame| Some(frame.complete_at?.saturating_since(frame.due).as_nanos()));
    let (sum, count) = transits.fold((0, 0), |(sum, count), ns| (sum + ns, count + 1));
    (count > 0).then(|| Duration::from_nanos(sum / count))
}
