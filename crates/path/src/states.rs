//! State of a path at any time, and delays that are added to it.

use skyhop_model::End;
use skyhop_units::{Duration, Instant};

use crate::trace::{BetweenFrames, Frame, PathTrace};

/// Reader of a path's state at times that do not decrease from call to call.
#[derive(Debug)]
pub struct States<'p> {
    path: &'p PathTrace,
    index: usize,
}

impl<'p> States<'p> {
    /// Create a reader that begins at the path's start.
    pub fn new(path: &'p PathTrace) -> Self {
        Self { path, index: 0 }
    }

    /// State at `at` as a frame without events. Its delays are those of this time, also within a frame whose delays
    /// change linearly.
    pub fn at(&mut self, at: Instant) -> Frame {
        let frames = &self.path.frames;
        while frames.get(self.index + 1).is_some_and(|next| next.at <= at) {
            self.index += 1;
        }
        let mut state = Frame { at, events: Vec::new(), ..frames[self.index].clone() };
        let is_linear = self.path.header.between_frames == BetweenFrames::Linear;
        if let Some(next) = frames.get(self.index + 1).filter(|_| is_linear) {
            approach(&mut state, &frames[self.index], next);
        }
        state
    }
}

/// Set the delays of `state`, which lies between `frame` and `next`, if both frames have the same nodes.
fn approach(state: &mut Frame, frame: &Frame, next: &Frame) {
    let (Some(delay), Some(delay_back)) = (frame.delay, frame.delay_back) else { return };
    let (Some(later), Some(later_back)) = (next.delay, next.delay_back) else { return };
    let is_same = frame.nodes == next.nodes && frame.hop_delays.len() == next.hop_delays.len();
    if !is_same || state.at <= frame.at {
        return;
    }
    let share = (state.at - frame.at).as_secs_f64() / (next.at - frame.at).as_secs_f64();
    let between = |from: Duration, to: Duration| {
        let (from_ns, to_ns) = (from.as_nanos() as f64, to.as_nanos() as f64);
        Duration::from_nanos((from_ns + (to_ns - from_ns) * share).round() as u64)
    };
    for (hop, later) in state.hop_delays.iter_mut().zip(&next.hop_delays) {
        *hop = between(*hop, *later);
    }
    let there = match state.hop_delays.is_empty() {
        true => between(delay, later),
        false => state.hop_delays.iter().copied().sum(),
    };
    // A path without differences between its directions has none between frames either.
    let is_symmetric = delay == delay_back && later == later_back;
    let back = if is_symmetric { there } else { between(delay_back, later_back) };
    (state.delay, state.delay_back) = (Some(there), Some(back));
}

impl Frame {
    /// Add times in ns, which may be negative, to the delays there and back; a delay does not fall below zero. Of the
    /// hops, which have the delay there, the one at `end` takes the time, and the next ones what it cannot take.
    pub fn add_delays(&mut self, [there_ns, back_ns]: [i64; 2], end: End) {
        let (Some(there), Some(back)) = (self.delay, self.delay_back) else { return };
        let new = moved(there, there_ns);
        (self.delay, self.delay_back) = (Some(new), Some(moved(back, back_ns)));
        let mut left_ns = new.as_nanos() as i64 - there.as_nanos() as i64;
        let hops = self.hop_delays.len();
        for place in 0..hops {
            let hop = &mut self.hop_delays[match end {
                End::From => place,
                End::To => hops - 1 - place,
            }];
            let before = *hop;
            *hop = moved(before, left_ns);
            left_ns -= hop.as_nanos() as i64 - before.as_nanos() as i64;
        }
    }
}

fn moved(delay: Duration, by_ns: i64) -> Duration {
    Duration::from_nanos(delay.as_nanos().saturating_add_signed(by_ns))
}
