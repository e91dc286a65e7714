//! Application of `[[change]]` entries to a path: each new round trip becomes a frame of the path.

use std::sync::Arc;

use skyhop_path::{Frame, PathTrace};
use skyhop_units::{Duration, Instant};

use crate::types::Change;

/// Time from which a change's new values apply: the end of its outage, if it has one.
pub(crate) fn takes_effect(change: &Change) -> Instant {
    Instant::START + change.at + change.outage.unwrap_or(Duration::ZERO)
}

/// Return `trace` with the round trips of `changes`, each from the time on at which it takes
/// effect; if no change has a round trip, return `trace` itself.
pub(crate) fn with_rtts(trace: Arc<PathTrace>, changes: &[Change]) -> Arc<PathTrace> {
    let mut rtts: Vec<(Instant, Duration)> =
        changes.iter().filter_map(|c| Some((takes_effect(c), c.rtt?))).collect();
    if rtts.is_empty() {
        return trace;
    }
    rtts.sort_by_key(|(at, _)| *at);
    let mut trace = Arc::unwrap_or_clone(trace);
    for (at, rtt) in rtts {
        insert_frame(&mut trace.frames, at);
        for frame in trace.frames.iter_mut().filter(|frame| frame.at >= at) {
            set_rtt(frame, rtt);
        }
    }
    Arc::new(trace)
}

/// Ensure that a frame begins at `at`: if none does, insert a copy of the frame in effect at that time.
fn insert_frame(frames: &mut Vec<Frame>, at: Instant) {
    let next = frames.partition_point(|frame| frame.at < at);
    if next == 0 || frames.get(next).is_some_and(|frame| frame.at == at) {
        return;
    }
    let frame = Frame { at, events: Vec::new(), ..frames[next - 1].clone() };
    frames.insert(next, frame);
}

fn set_rtt(frame: &mut Frame, rtt: Duration) {
    if frame.delay.is_none() {
        return;
    }
    let there = rtt / 2;
    scale_hops(&mut frame.hop_delays, there);
    frame.delay = Some(there);
    frame.delay_back = Some(rtt - there);
}

/// Scale the hops in proportion so that their sum is `total`.
fn scale_hops(hops: &mut [Duration], total: Duration) {
    let old: Duration = hops.iter().copied().sum();
    let Some((last, others)) = hops.split_last_mut() else { return };
    let factor = total.as_secs_f64() / old.as_secs_f64().max(1e-9);
    let mut left = total;
    for hop in others {
        *hop = hop.mul_f64(factor).min(left);
        left = left.saturating_sub(*hop);
    }
    *last = left;
}
