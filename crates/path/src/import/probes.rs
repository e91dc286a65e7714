//! Conversion of measured round trips into a path over which the same probes would measure them again.
//!
//! - A round trip is split into equal halves, forth and back, unless the measurement has both one-way delays.
//! - Between two probes the path changes once. The change applies to packets sent from the time halfway between the
//!   probes on; if the round trip falls, from an earlier time, by a sixth of the fall. That is halfway between the
//!   times at which the two probes had completed a third of their round trips. A third lies between the satellite of
//!   the way forth (a quarter) and the far end (a half): the true place of the change is unknown, and with a third,
//!   probes at equal intervals see the measured distribution. The way back changes when packets sent at that time
//!   turn round, so that no packet sees one half of each state. Packets on a path stay in order, so that the round
//!   trip falls only as fast as the order of the packets allows.
//! - Between two measurements in one file, the path keeps its state; probes lost at the end of the first or the begin
//!   of the second are an outage as long as their time, after the last answer. If the file states when they were sent,
//!   the outage lasts from then to the next answered probe.
//! - Three or more probes lost in a row are an outage. The outage begins when the first of these probes would have
//!   reached the far end, and ends when the next answered probe was sent, so that no answered probe is lost. Fewer
//!   lost probes, and those of an outage that would be shorter than the one-way delay to the far end, become random
//!   loss. The loss ratio is computed over windows of a second, or of twenty probes if that is longer. The probes
//!   after the last whole window are added to that window, because one loss among a few probes would be a very high
//!   ratio.

use skyhop_model::PathEventKind;
use std::collections::BTreeMap;

use skyhop_units::{Duration, Instant, Rate, UtcInstant};

use super::account::Account;
use super::lines::ImportError;
use super::{Imported, MeasuredOptions, level_shifts, measured_header};
use crate::trace::{Frame, PathEvent, PathTrace};

/// Minimum number of consecutive lost probes that count as an outage.
pub(super) const LOST_IN_A_ROW: u64 = 3;
/// Longest plausible round trip, ms; ping itself gives up much earlier.
pub(super) const LONGEST_RTT_MS: f64 = 60_000.0;
/// Longest plausible series, a year, ns; a longer one comes from a broken clock.
const LONGEST_SPAN_NS: u64 = 366 * 86_400 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// Largest number of outcomes that stand for the probes lost in a row: an hour of seconds.
const MOST_PIECES: u64 = 3_600;
/// Minimum number of probes per loss ratio, so that a single lost probe is at most a twentieth.
const PROBES_PER_RATIO: u64 = 20;

/// Answered probe of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    /// Sending time, on any clock, ns.
    pub sent_ns: i64,
    /// One-way delay to the far end.
    pub there: Duration,
    /// One-way delay of the answer.
    pub back: Duration,
    /// Number of probes lost since the previous answered one.
    pub lost_before: u64,
    /// Whether the probe begins another measurement, so that the time before it was not measured.
    pub after_pause: bool,
    /// Sending times of the first and the last of the lost probes before, ns, if the file states them.
    pub lost_ns: Option<[i64; 2]>,
}

impl Probe {
    /// Create a probe whose one-way delays are unknown: the round trip is split into equal halves.
    pub fn symmetric(sent_ns: i64, rtt: Duration, lost_before: u64) -> Self {
        let there = rtt / 2;
        let back = rtt - there;
        Self { sent_ns, there, back, lost_before, after_pause: false, lost_ns: None }
    }

    pub fn rtt(&self) -> Duration {
        self.there + self.back
    }
}

/// Series of probes of one measurement.
pub(super) struct Series {
    /// Answered probes in the order of sending.
    pub probes: Vec<Probe>,
    /// Number of probes lost after the last answered one.
    pub lost_after: u64,
    /// Sending times of the first and the last of them, ns, if the file states them.
    pub lost_after_ns: Option<[i64; 2]>,
    /// Whether the measurement reports every loss, so that a loss ratio of zero is known too.
    pub losses_known: bool,
    /// Whether `sent_ns` counts from 1970.
    pub unix: bool,
    /// Rates of the path, each with the time from which it holds, ns.
    pub rates: Vec<(i64, Rate)>,
    /// Account of the file: the parts that were left.
    pub account: Account,
}

impl Series {
    /// Series of answered probes without losses at its end, whose file does not report losses.
    pub fn of(probes: Vec<Probe>, unix: bool, account: Account) -> Self {
        Self {
            probes,
            lost_after: 0,
            lost_after_ns: None,
            losses_known: false,
            unix,
            rates: Vec::new(),
            account,
        }
    }

    /// Time from the last answered probe, `last`, to the end of the measurement.
    fn after_ns(&self, last: Probe, spacing_ns: u64) -> u64 {
        let until_lost_ns = match self.lost_after_ns {
            Some([_, at_ns]) => at_ns.abs_diff(last.sent_ns),
            None => spacing_ns.saturating_mul(self.lost_after),
        };
        until_lost_ns.saturating_add(spacing_ns).min(LONGEST_SPAN_NS)
    }

    /// Number of lost probes.
    fn lost(&self) -> u64 {
        let between = self.probes.iter().map(|probe| probe.lost_before);
        between.fold(self.lost_after, u64::saturating_add)
    }

    /// Complete the account of the file.
    pub fn close_account(&mut self) {
        let mut taken = vec![format!("{} answers", self.probes.len())];
        match (self.losses_known, self.lost()) {
            (true, lost) => taken.push(format!("{lost} lost")),
            (false, 0) => {}
            (false, lost) => taken.push(format!("about {lost} lost by the gaps")),
        }
        if !self.rates.is_empty() {
            taken.push(format!("{} rates", self.rates.len()));
        }
        self.account.taken = taken;
        if let (Some(first), Some(last)) = (self.probes.first(), self.probes.last()) {
            let span_ns = last.sent_ns.abs_diff(first.sent_ns);
            let spacing_ns = typical_spacing_ns(&self.probes).unwrap_or(SECOND_NS);
            let after_ns = self.after_ns(*last, spacing_ns);
            self.account.span = Duration::from_nanos(span_ns.saturating_add(after_ns));
        }
    }

    /// Convert the series into a path over which the same probes would measure it again.
    pub fn into_path(
        mut self,
        format: &str,
        options: &MeasuredOptions,
    ) -> Result<Imported, ImportError> {
        self.close_account();
        keep_order(&mut self.probes);
        let (first, last) = match (self.probes.first(), self.probes.last()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => return Err(ImportError::whole("not a single answered probe")),
        };
        if last.sent_ns.abs_diff(first.sent_ns) > LONGEST_SPAN_NS {
            return Err(ImportError::whole("it spans more than a year; are its times right?"));
        }
        let spacing_ns = typical_spacing_ns(&self.probes).unwrap_or(SECOND_NS);
        let span_ns = last.sent_ns.abs_diff(first.sent_ns);
        let duration = Duration::from_nanos(span_ns + self.after_ns(last, spacing_ns));
        let start = self.unix.then(|| UtcInstant::from_unix_nanos(first.sent_ns));
        let header =
            measured_header(format, options, start, duration, Duration::from_nanos(spacing_ns));
        let trace =
            PathTrace { header, frames: self.frames(first, span_ns, spacing_ns, &options.outages) };
        trace.validate()?;
        Ok(Imported { trace, account: self.account })
    }

    /// Answered and lost probes in the order of their arrival, each with the time at which its answer arrived, or, if it
    /// was lost, at which it was sent, ns. If the file does not report losses, there are only answers.
    pub fn into_outcomes(mut self) -> Outcomes {
        self.close_account();
        let spacing_ns = typical_spacing_ns(&self.probes).unwrap_or(SECOND_NS);
        let mut outcomes = Vec::with_capacity(self.probes.len());
        let mut last_ns = None;
        for probe in &self.probes {
            let from_ns = probe.lost_ns.map(|[from_ns, _]| from_ns).or(last_ns);
            let from_ns = from_ns.unwrap_or(probe.sent_ns);
            let gap_ns = probe.sent_ns.saturating_sub(from_ns).max(0).unsigned_abs();
            let covered_ns = match probe.lost_ns {
                Some([first_ns, last_ns]) => last_ns.abs_diff(first_ns),
                None if probe.after_pause => {
                    gap_ns.min(spacing_ns.saturating_mul(probe.lost_before.saturating_add(1)))
                }
                None => gap_ns,
            };
            if self.losses_known {
                add_lost(&mut outcomes, from_ns, covered_ns, probe.lost_before);
            }
            let arrived_ns = probe.sent_ns.saturating_add_unsigned(probe.rtt().as_nanos());
            outcomes.push(Outcome { at_ns: arrived_ns, rtt: Some(probe.rtt()), times: 1 });
            last_ns = Some(probe.sent_ns);
        }
        if let Some(last) = self.probes.last().filter(|_| self.losses_known) {
            let (from_ns, covered_ns) = match self.lost_after_ns {
                Some([first_ns, last_ns]) => (first_ns, last_ns.abs_diff(first_ns)),
                None => (last.sent_ns, self.after_ns(*last, spacing_ns)),
            };
            add_lost(&mut outcomes, from_ns, covered_ns, self.lost_after);
        }
        outcomes.sort_by_key(|outcome| outcome.at_ns);
        Outcomes {
            outcomes,
            losses_known: self.losses_known,
            unix: self.unix,
            account: self.account,
        }
    }

    fn frames(
        &self,
        first: Probe,
        span_ns: u64,
        spacing_ns: u64,
        outages: &[(i64, i64)],
    ) -> Vec<Frame> {
        let mut changes = Changes::beginning_with(first);
        let mut loss = LossPerWindow::new(span_ns, spacing_ns);
        loss.count_answered(0);
        for pair in self.probes.windows(2) {
            let [old, new] = [pair[0], pair[1]];
            let sent_ns = |probe: Probe| probe.sent_ns.abs_diff(first.sent_ns);
            let (from_ns, to_ns) = (sent_ns(old), sent_ns(new));
            loss.count_answered(to_ns);
            let known_ns = new.lost_ns.map(|[at_ns, _]| at_ns.abs_diff(first.sent_ns));
            // Between two measurements, only the time of the lost probes was measured.
            let up_ns = if new.after_pause && known_ns.is_none() {
                to_ns.min(from_ns + spacing_ns.saturating_mul(new.lost_before.saturating_add(1)))
            } else {
                to_ns
            };
            let first_lost_ns = known_ns
                .unwrap_or_else(|| from_ns + (up_ns - from_ns) / new.lost_before.saturating_add(1));
            let down_ns = first_lost_ns + old.there.as_nanos();
            if new.lost_before >= LOST_IN_A_ROW && down_ns < up_ns {
                changes.outage(down_ns, up_ns, new);
            } else {
                changes.step(from_ns, to_ns, old, new);
                loss.count_lost(first_lost_ns, new.lost_before);
            }
        }
        if let Some(last) = self.probes.last().filter(|_| self.lost_after >= LOST_IN_A_ROW) {
            let after_last_ns = last.sent_ns.saturating_add_unsigned(spacing_ns);
            let at_ns = self.lost_after_ns.map_or(after_last_ns, |[at_ns, _]| at_ns);
            let first_lost_ns = at_ns.abs_diff(first.sent_ns);
            changes.at(first_lost_ns + last.there.as_nanos(), Change::Down);
        }
        for at_ns in level_shifts::on_grid(&self.probes) {
            changes.at(at_ns, Change::Handover);
        }
        let since_ns = |at_ns: i64| at_ns.saturating_sub(first.sent_ns).max(0).unsigned_abs();
        for (index, (at_ns, rate)) in self.rates.iter().enumerate() {
            let from_ns = if index == 0 { 0 } else { since_ns(*at_ns) };
            changes.at(from_ns, Change::Rate(*rate));
        }
        for (begin_ns, end_ns) in outages.iter().filter(|(_, end_ns)| *end_ns > first.sent_ns) {
            if since_ns(*begin_ns) < span_ns {
                changes.at(since_ns(*begin_ns), Change::Down);
                if since_ns(*end_ns) < span_ns {
                    changes.at(since_ns(*end_ns), Change::Up);
                }
            }
        }
        if self.losses_known {
            loss.ratios().for_each(|(at_ns, ratio)| changes.at(at_ns, Change::Loss(ratio)));
        }
        changes.into_frames()
    }
}

/// Result of a probe, or of several consecutive lost ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Time at which the answer arrived or the lost probes were sent: ns since 1970, or on the measurement's own clock.
    pub at_ns: i64,
    /// Round trip; `None` for lost probes.
    pub rtt: Option<Duration>,
    /// Number of consecutive probes that it stands for.
    pub times: u64,
}

/// Answered and lost probes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcomes {
    /// Outcomes in the order of their times.
    pub outcomes: Vec<Outcome>,
    /// Whether the file reports every loss.
    pub losses_known: bool,
    /// Whether times count from 1970.
    pub unix: bool,
    /// Account of the file: the parts that were taken and left.
    pub account: Account,
}

/// Add lost probes, spread evenly over a time, with one outcome for all probes of about a second.
fn add_lost(outcomes: &mut Vec<Outcome>, from_ns: i64, covered_ns: u64, lost: u64) {
    let pieces = lost.min(covered_ns / SECOND_NS + 1).min(MOST_PIECES);
    for piece in 0..pieces {
        let until = |piece: u64| u128::from(lost) * u128::from(piece) / u128::from(pieces);
        let times = (until(piece + 1) - until(piece)) as u64;
        let after_ns = u128::from(covered_ns) * u128::from(piece + 1) / u128::from(pieces + 1);
        outcomes.push(Outcome {
            at_ns: from_ns.saturating_add_unsigned(after_ns as u64),
            rtt: None,
            times,
        });
    }
}

/// Sort probes by time and merge those with equal times, which the clock's resolution cannot distinguish.
fn keep_order(probes: &mut Vec<Probe>) {
    probes.sort_by_key(|probe| probe.sent_ns);
    probes.dedup_by(|next, kept| {
        let same = next.sent_ns == kept.sent_ns;
        kept.lost_before = kept.lost_before.saturating_add(if same { next.lost_before } else { 0 });
        same
    });
    if let Some(first) = probes.first_mut() {
        (first.lost_before, first.lost_ns) = (0, None);
    }
}

/// Median time between two probes, answered or lost, ns.
pub(super) fn typical_spacing_ns(probes: &[Probe]) -> Option<u64> {
    let spacing_ns = |old: Probe, new: Probe| {
        new.sent_ns.abs_diff(old.sent_ns) / new.lost_before.saturating_add(1)
    };
    let mut spacings: Vec<u64> =
        probes.windows(2).map(|pair| spacing_ns(pair[0], pair[1])).collect();
    if spacings.is_empty() {
        return None;
    }
    let middle = spacings.len() / 2;
    Some((*spacings.select_nth_unstable(middle).1).max(1))
}

/// Change of one property of the path.
#[derive(Debug, Clone, Copy)]
enum Change {
    There(Duration),
    Back(Duration),
    Loss(f64),
    Rate(Rate),
    Down,
    Up,
    Handover,
}

/// Changes of a path, each with the time at which it takes effect, ns.
struct Changes {
    list: Vec<(u64, Change)>,
    /// Time of the last change of the way back; its changes keep the order of the probes.
    last_back_ns: u64,
}

impl Changes {
    fn beginning_with(first: Probe) -> Self {
        let list = vec![(0, Change::There(first.there)), (0, Change::Back(first.back))];
        Self { list, last_back_ns: 0 }
    }

    fn at(&mut self, at_ns: u64, change: Change) {
        self.list.push((at_ns, change));
    }

    /// Change the path from the state that one probe saw to that of the next.
    fn step(&mut self, from_ns: u64, to_ns: u64, old: Probe, new: Probe) {
        let fall_ns = old.there.saturating_sub(new.there).as_nanos();
        let halfway_ns = from_ns + (to_ns - from_ns) / 2;
        // A third of the fall of the one-way delay is a sixth of the round trip's fall.
        let there_ns = halfway_ns.saturating_sub(fall_ns / 3).max(from_ns + 1);
        let turns_ns = if fall_ns > 0 {
            there_ns + old.there.as_nanos()
        } else {
            there_ns + (old.there.as_nanos() + new.there.as_nanos()) / 2
        };
        self.last_back_ns = self.last_back_ns.max(turns_ns);
        self.at(there_ns, Change::There(new.there));
        self.at(self.last_back_ns, Change::Back(new.back));
    }

    fn outage(&mut self, down_ns: u64, up_ns: u64, new: Probe) {
        self.last_back_ns = self.last_back_ns.max(up_ns);
        self.at(down_ns, Change::Down);
        self.at(up_ns, Change::There(new.there));
        self.at(self.last_back_ns, Change::Back(new.back));
        self.at(up_ns, Change::Up);
    }

    fn into_frames(mut self) -> Vec<Frame> {
        self.list.sort_by_key(|(at_ns, _)| *at_ns);
        let mut state = FrameState {
            there: Duration::ZERO,
            back: Duration::ZERO,
            loss: None,
            rate: None,
            up: true,
        };
        let mut frames: Vec<Frame> = Vec::new();
        for group in self.list.chunk_by(|a, b| a.0 == b.0) {
            let at = Instant::from_nanos(group[0].0);
            let events = group.iter().filter_map(|(_, change)| state.apply(*change, at)).collect();
            let frame = state.frame(at, events);
            if frames.last().is_none_or(|last| differs(last, &frame)) {
                frames.push(frame);
            }
        }
        frames
    }
}

/// Whether a frame differs from the previous one or has events.
fn differs(last: &Frame, next: &Frame) -> bool {
    !next.events.is_empty()
        || (last.delay, last.delay_back, last.loss, last.rate)
            != (next.delay, next.delay_back, next.loss, next.rate)
}

/// State of the path while changes are applied.
struct FrameState {
    there: Duration,
    back: Duration,
    loss: Option<f64>,
    rate: Option<Rate>,
    up: bool,
}

impl FrameState {
    /// Apply a change; return its event, if it is one.
    fn apply(&mut self, change: Change, at: Instant) -> Option<PathEvent> {
        let kind = match change {
            Change::There(there) => {
                self.there = there;
                return None;
            }
            Change::Back(back) => {
                self.back = back;
                return None;
            }
            Change::Loss(loss) => {
                self.loss = Some(loss);
                return None;
            }
            Change::Rate(rate) => {
                self.rate = Some(rate);
                return None;
            }
            Change::Down => {
                self.up = false;
                PathEventKind::Lost
            }
            Change::Up => {
                self.up = true;
                PathEventKind::Restored
            }
            Change::Handover => PathEventKind::End,
        };
        // The measured losses include those at handovers, so that the events of handovers have no outage.
        Some(PathEvent { at, kind, hop: None, outage: Duration::ZERO })
    }

    fn frame(&self, at: Instant, events: Vec<PathEvent>) -> Frame {
        Frame {
            at,
            delay: self.up.then_some(self.there),
            delay_back: self.up.then_some(self.back),
            loss: self.loss,
            rate: self.rate,
            events,
            ..Frame::default()
        }
    }
}

/// Counts of answered and lost probes in each window, without the probes lost in outages.
struct LossPerWindow {
    window_ns: u64,
    /// Index of the last window, which includes the remainder of the series.
    last: u64,
    /// Answered and lost probes by window.
    counts: BTreeMap<u64, (u64, u64)>,
}

impl LossPerWindow {
    fn new(span_ns: u64, spacing_ns: u64) -> Self {
        let window_ns = spacing_ns.saturating_mul(PROBES_PER_RATIO).max(SECOND_NS);
        let last = (span_ns / window_ns).saturating_sub(1);
        Self { window_ns, last, counts: BTreeMap::new() }
    }

    fn count_answered(&mut self, at_ns: u64) {
        self.at(at_ns).0 += 1;
    }

    fn count_lost(&mut self, at_ns: u64, lost: u64) {
        self.at(at_ns).1 += lost;
    }

    fn at(&mut self, at_ns: u64) -> &mut (u64, u64) {
        self.counts.entry((at_ns / self.window_ns).min(self.last)).or_default()
    }

    /// Loss ratios, each with the beginning of its window, ns.
    fn ratios(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        self.counts.iter().map(|(window, (answered, lost))| {
            (window * self.window_ns, *lost as f64 / (*answered + *lost).max(1) as f64)
        })
    }
}
