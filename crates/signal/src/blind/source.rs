//! The grid as a run itself learns it, and its announcements.

use skyhop_units::{Duration, Instant, UtcInstant};

use super::{Estimate, FEWEST_MOMENTS, Period, Sample, Traffic};
use crate::schedule::Grid;
use crate::{Announcement, Handover, Timing};

/// From one estimate to the next.
pub const ESTIMATE_EVERY: Duration = Duration::from_secs(30);
/// How far back arrivals count. A clock that drifts by 50 ppm moves the grid by 30 ms in that time, which is
/// less than an outage.
pub const WINDOW: Duration = Duration::from_secs(600);

/// What a run looks for, and how it announces what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlindPlan {
    /// The time between handovers.
    pub period: Duration,
    /// When they are announced.
    pub timing: Timing,
    /// When the run begins: offsets are counted in UTC.
    pub start: UtcInstant,
}

/// Something to tell congestion controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// A handover is to come.
    Announced(Announcement),
    /// What was announced last has turned out to be wrong.
    Withdrawn,
}

/// Learns the grid from arrivals behind a link, and announces its moments as soon as it knows them.
///
/// Sans-IO: an engine hands over arrivals, has an estimate made whenever one is due, and polls.
#[derive(Debug)]
pub struct BlindSource {
    plan: BlindPlan,
    traffic: Traffic,
    next_estimate: Instant,
    grid: Option<(Grid, Duration)>,
    /// The next announcement, and the moment that it means, its timing's error apart.
    pending: Option<(Announcement, Instant)>,
    /// The moment of the last announcement that was made, likewise.
    last: Option<(Announcement, Instant)>,
    said: u64,
    withdrawn: bool,
}

impl BlindSource {
    /// One that knows nothing yet.
    pub fn new(plan: BlindPlan) -> Self {
        Self {
            plan,
            traffic: Traffic::default(),
            next_estimate: Instant::START + plan.period * (FEWEST_MOMENTS + 1) as u64,
            grid: None,
            pending: None,
            last: None,
            said: 0,
            withdrawn: false,
        }
    }

    /// A packet has arrived that was under way for `delay`, one way. The shortest of these tells how long
    /// ago the link itself was as the arrivals show it.
    pub fn arrived(&mut self, at: Instant, delay: Duration) {
        self.traffic.push(Sample { at: self.utc(at), delay: Some(delay) });
    }

    /// When the next estimate is due.
    pub fn next_estimate(&self) -> Instant {
        self.next_estimate
    }

    /// What an estimate is made from: at leisure, and elsewhere if need be.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// What the arrivals say. The grid is that of the link's own moments: arrivals show them later by as
    /// long as they take.
    pub fn estimate(&self) -> Estimate {
        self.plan.estimate(&self.traffic)
    }

    /// Takes over an estimate, made when it was due. A later one counts instead; one without a grid ends the
    /// announcements.
    pub fn learn(&mut self, now: Instant, estimate: &Estimate) {
        self.next_estimate = now + ESTIMATE_EVERY;
        if let Some(before) = now.as_nanos().checked_sub(WINDOW.as_nanos()) {
            self.traffic.forget(self.utc(Instant::from_nanos(before)));
        }
        self.grid = estimate.grid.map(|grid| (grid, estimate.evidence.error()));
        let is_ahead = self.last.is_some_and(|(last, _)| last.at > now);
        self.withdrawn = self.grid.is_none() && is_ahead;
        self.pending = None;
        self.plan_next(now);
    }

    /// When there is something to say next; `None` while no grid is known.
    pub fn next(&self) -> Option<Instant> {
        if self.withdrawn {
            return Some(Instant::START);
        }
        self.pending.map(|(announcement, _)| announcement.announced)
    }

    /// What is to be said by `now`; call again until there is nothing more.
    pub fn poll(&mut self, now: Instant) -> Option<Said> {
        if std::mem::take(&mut self.withdrawn) {
            self.last = None;
            return Some(Said::Withdrawn);
        }
        let (announcement, moment) = self.pending.filter(|(one, _)| one.announced <= now)?;
        self.last = Some((announcement, moment));
        self.pending = None;
        self.said += 1;
        self.plan_next(now);
        Some(Said::Announced(announcement))
    }

    /// Works out the announcement of the first moment that has not been announced and is still to come.
    fn plan_next(&mut self, now: Instant) {
        let Some((grid, error)) = self.grid else { return };
        // The same moment may be a bit later by the last estimate than by the one before.
        let announced = self.last.map(|(_, moment)| moment + grid.period / 2);
        let after = announced.map_or(now, |moment| moment.max(now));
        let from = self.utc(after).after(Duration::from_nanos(1));
        let horizon = Instant::START + grid.period + Duration::from_nanos(1);
        let Some(handover) = grid.handovers(from, horizon).next() else { return };
        let moment = after + handover.at.saturating_since(Instant::START) + Duration::from_nanos(1);
        // Every moment's error is another.
        let timing =
            Timing { seed: self.plan.timing.seed.wrapping_add(self.said), ..self.plan.timing };
        let handover = Handover { at: moment, ..handover };
        self.pending = timing.announce([handover], Instant::NEVER).first().map(|one| {
            let announced = one.announced.max(now);
            (Announcement { announced, error: one.error.max(error), ..*one }, moment)
        });
    }

    fn utc(&self, at: Instant) -> UtcInstant {
        self.plan.start.after(at.saturating_since(Instant::START))
    }
}

impl BlindPlan {
    /// What a run's arrivals say: [`BlindSource::estimate`] of its traffic.
    pub fn estimate(&self, traffic: &Traffic) -> Estimate {
        let mut estimate = traffic.estimate(Period::Known(self.period));
        let under_way = traffic.shortest_delay().unwrap_or(Duration::ZERO).as_nanos();
        if let Some(grid) = &mut estimate.grid {
            let period_ns = grid.period.as_nanos();
            let at_link = grid.offset.as_nanos() + period_ns - under_way % period_ns;
            grid.offset = Duration::from_nanos(at_link % period_ns);
        }
        estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimingError;

    fn plan(lead_ms: u64) -> BlindPlan {
        let timing =
            Timing { lead: Duration::from_millis(lead_ms), error: TimingError::None, seed: 1 };
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        BlindPlan { period: Duration::from_secs(15), timing, start }
    }

    /// A source that had an arrival every ms, 20 ms after it was sent, but for 50 ms from `offset_ms` on in
    /// every period that `frozen` says.
    fn fed(source: &mut BlindSource, ms: std::ops::Range<u64>, frozen: impl Fn(u64) -> bool) {
        for ms in ms.filter(|ms| !frozen(*ms)) {
            let at = Instant::from_nanos(ms * 1_000_000 + 20_000_000);
            source.arrived(at, Duration::from_millis(20));
        }
    }

    fn learned(source: &mut BlindSource, at: Instant) {
        let estimate = source.estimate();
        source.learn(at, &estimate);
    }

    fn at_s(seconds: f64) -> Instant {
        Instant::START + Duration::from_secs_f64(seconds)
    }

    fn said(source: &mut BlindSource, until: Instant) -> Vec<(f64, f64)> {
        let mut said = Vec::new();
        while let Some(next) = source.next().filter(|next| *next < until) {
            match source.poll(next) {
                Some(Said::Announced(one)) => {
                    assert_eq!(one.error, Duration::from_millis(10));
                    said.push((one.announced.as_secs_f64(), one.at.as_secs_f64()));
                }
                other => panic!("{other:?}"),
            }
        }
        said
    }

    #[test]
    fn a_grid_is_announced_once_it_is_found_at_the_links_own_moments() {
        let mut source = BlindSource::new(plan(1000));
        assert_eq!((source.next(), source.next_estimate()), (None, at_s(105.0)));
        fed(&mut source, 0..95_000, |ms| (ms % 15_000).wrapping_sub(4_200) < 50);
        learned(&mut source, at_s(95.0));
        let announced = said(&mut source, at_s(130.0));
        let moments = [109.2, 124.2];
        assert_eq!(announced.len(), 2, "{announced:?}");
        for ((announced, at), moment) in announced.iter().zip(moments) {
            assert!((at - moment).abs() < 0.002, "{at}");
            assert!((announced + 1.0 - at).abs() < 1e-9, "{announced}");
        }
        // The next estimate does not announce again what has been.
        learned(&mut source, at_s(125.0));
        assert!((said(&mut source, at_s(140.0))[0].1 - 139.2).abs() < 0.002);
    }

    #[test]
    fn a_moment_whose_time_to_be_announced_is_over_is_announced_late() {
        let mut source = BlindSource::new(plan(10_000));
        fed(&mut source, 0..106_000, |ms| (ms % 15_000).wrapping_sub(4_200) < 50);
        learned(&mut source, at_s(106.0));
        let announced = said(&mut source, at_s(110.0));
        assert_eq!(announced.len(), 1);
        assert_eq!(announced[0].0, 106.0);
    }

    #[test]
    fn what_turns_out_to_be_no_grid_is_withdrawn() {
        let mut source = BlindSource::new(plan(5000));
        fed(&mut source, 0..103_000, |ms| (ms % 15_000).wrapping_sub(4_200) < 50);
        learned(&mut source, at_s(103.0));
        assert_eq!(said(&mut source, at_s(104.5)).len(), 1);
        let nothing = Estimate { grid: None, ..source.estimate() };
        source.learn(at_s(103.5), &nothing);
        assert_eq!(source.poll(at_s(103.5)), Some(Said::Withdrawn));
        assert_eq!((source.poll(at_s(103.5)), source.next()), (None, None));
        // What is over need not be taken back.
        learned(&mut source, at_s(104.0));
        said(&mut source, at_s(105.0));
        source.learn(at_s(115.0), &nothing);
        assert_eq!(source.poll(at_s(115.0)), None);
    }

    #[test]
    fn old_arrivals_are_forgotten() {
        let mut source = BlindSource::new(plan(0));
        fed(&mut source, 0..700_000, |ms| ms % 10 != 0);
        let before = source.traffic().samples();
        learned(&mut source, at_s(690.0));
        assert_eq!((before, source.traffic().samples()), (70_000, 61_002));
    }
}
