//! State of a path at a given time, from its frames, their interpolation and its outages.

use skyhop_units::{Duration, Instant, Rate};

use crate::trace::{BetweenFrames, Frame, PathTrace};

/// State of a path at a given time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PathState {
    /// One-way delays (`from -> to`, `to -> from`); `None` while the path is down.
    pub delays: Option<(Duration, Duration)>,
    /// Last known rate up to this time.
    pub rate: Option<Rate>,
    /// Last known loss ratio up to this time.
    pub loss: Option<f64>,
}

/// Cursor over a trace, for times that never decrease.
pub(super) struct TraceCursor<'t> {
    trace: &'t PathTrace,
    next: usize,
    rate: Option<Rate>,
    loss: Option<f64>,
    /// Outages (beginning, end), in order of time.
    outages: Vec<(Instant, Instant)>,
    next_outage: usize,
    down_until: Instant,
}

impl<'t> TraceCursor<'t> {
    pub fn new(trace: &'t PathTrace) -> Self {
        let mut outages: Vec<(Instant, Instant)> =
            trace.events().map(|event| (event.at, event.at + event.outage)).collect();
        outages.sort();
        let (next, next_outage, down_until) = (0, 0, Instant::START);
        Self { trace, next, rate: None, loss: None, outages, next_outage, down_until }
    }

    pub fn at(&mut self, at: Instant) -> PathState {
        while let Some(frame) = self.trace.frames.get(self.next).filter(|frame| frame.at <= at) {
            self.rate = frame.rate.or(self.rate);
            self.loss = frame.loss.or(self.loss);
            self.next += 1;
        }
        while let Some((_, until)) = self.outages.get(self.next_outage).filter(|o| o.0 <= at) {
            self.down_until = self.down_until.max(*until);
            self.next_outage += 1;
        }
        let begun = self.trace.frames[..self.next].last();
        let delays = begun.and_then(|frame| self.delays(frame, at));
        let delays = delays.filter(|_| at >= self.down_until);
        PathState { delays, rate: self.rate, loss: self.loss }
    }

    fn delays(&self, frame: &Frame, at: Instant) -> Option<(Duration, Duration)> {
        let (there, back) = (frame.delay?, frame.delay_back?);
        let linear = self.trace.header.between_frames == BetweenFrames::Linear;
        let next =
            self.trace.frames.get(self.next).filter(|next| linear && next.nodes == frame.nodes);
        let Some((next_there, next_back)) = next.and_then(|next| next.delay.zip(next.delay_back))
        else {
            return Some((there, back));
        };
        let length = self.trace.frames[self.next].at - frame.at;
        let share = (at - frame.at).as_secs_f64() / length.as_secs_f64();
        Some((between(there, next_there, share), between(back, next_back, share)))
    }
}

fn between(from: Duration, to: Duration, share: f64) -> Duration {
    from.mul_f64(1.0 - share) + to.mul_f64(share)
}
